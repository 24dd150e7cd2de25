"""An agent wakes and finds a turn that was cut off: what `on_chat_recovery` sees, and what it may decide."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from everthink import Message, Think, tool
from everthink import chunks as ui
from everthink.clock import moment_of
from everthink.door.chat_request import ChatRequest
from everthink.hooks import TurnContext
from everthink.journal.feed import ChunksStored, TurnRewound
from everthink.recovery import ChatRecoveryContext, RecoveryDecision
from everthink.recovery.aside import UNREADABLE_TEXT
from everthink.recovery.recover import DECLINED_TEXT
from everthink.testing import calls, hangs, opens, says
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.recovery import Room
from tests.support.turns import Database, Witness, accept_request, follow, prompt, record_events

pytestmark = pytest.mark.anyio


class Deciding:
    """An `on_chat_recovery` hook that remembers what it was given and says what it was told to."""

    def __init__(self, decision: RecoveryDecision | None = None) -> None:
        self.seen: list[ChatRecoveryContext] = []
        self.decision = decision

    @property
    def hook(self) -> Any:
        def on_chat_recovery(agent: Think, ctx: ChatRecoveryContext) -> RecoveryDecision | None:
            self.seen.append(ctx)
            return self.decision

        return on_chat_recovery

    @property
    def only(self) -> ChatRecoveryContext:
        (ctx,) = self.seen
        return ctx


class Effects:
    """A tool that does something to the world."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @tool
        async def dig(where: str = "here") -> str:
            """Dig a hole."""
            self.done.append(where)
            return f"a hole {where}"

        self.tool = dig

    @property
    def tools(self) -> Any:
        return lambda agent: [self.tool]


# --- what a turn leaves


@pytest.mark.case(397, 398)
async def test_turns_leave_nothing_to_recover(open_app: OpenApp, tmp_path: Path) -> None:
    room = await Room.open(open_app, *[says(f"Answer {n}.") for n in range(20)])
    for n in range(10):
        assert (await room.agent.save_messages(f"Question {2 * n}")).text == f"Answer {2 * n}."
        assert (await room.agent.chat(f"Question {2 * n + 1}")).text == f"Answer {2 * n + 1}."
    db = Database(tmp_path)
    assert db.rows("SELECT * FROM fibers") == db.rows("SELECT * FROM incidents") == []
    assert db.rows("SELECT * FROM turns WHERE ended_at IS NULL") == []
    # nor is anything kept of what they were asked with
    assert {(row["input"], row["stash"]) for row in db.turns()} == {(None, None)}


@pytest.mark.case(400)
async def test_what_chat_says_is_in_the_journal_before_it_is_over(open_app: OpenApp, tmp_path: Path) -> None:
    room = await Room.open(open_app, says("Some ", "words").then_hangs())
    reading = follow(room.agent.chat("Hi"))
    await room.silence()
    await room.cut()
    text = "".join(c.delta for c in Database(tmp_path).chunks() if isinstance(c, ui.TextDelta))
    assert text == "Some words"
    await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.case(405)
async def test_the_outcome_of_a_tool_is_written_at_once(open_app: OpenApp, tmp_path: Path) -> None:
    effects = Effects()
    room = await Room.open(open_app, calls("dig", id="c1"), hangs(), get_tools=effects.tools)
    await room.ask()
    assert [c.output for c in Database(tmp_path).chunks() if isinstance(c, ui.ToolOutputAvailable)] == [
        "a hole here"
    ]
    assert Database(tmp_path).calls()["c1"]["state"] == "done"


@pytest.mark.case(401)
async def test_a_turn_keeps_what_it_was_asked_and_with_what(open_app: OpenApp, tmp_path: Path) -> None:
    room = await Room.open(open_app, says("zero"), says("Half").then_hangs())
    await room.agent.save_messages("Earlier")
    question = Message("q", "user", [{"type": "text", "text": "Where?"}])
    request = ChatRequest("r", [question], client_tools=[{"name": "locate"}], body={"tone": "dry"})
    await accept_request(await room.home(), request)
    await room.silence()
    row = Database(tmp_path).turns()[-1]
    assert (row["request_id"], row["question"], row["status"]) == ("r", "q", "running")
    assert '"tone":"dry"' in row["input"]
    assert '"locate"' in row["input"]


# --- what the hook sees


@pytest.mark.case(437, 450)
async def test_the_hook_sees_what_was_said_and_by_whom_and_when(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a turn that was cut off in the middle of a sentence
    deciding = Deciding()
    room = await Room.open(
        open_app, says("The capital ").then_hangs(), says("is Paris."), on_chat_recovery=deciding.hook
    )
    await room.ask("Capital of France?", metadata={"n": 1})
    (row,) = Database(tmp_path).turns()
    await room.cut(after=7)

    # When the agent wakes
    agent = await room.wake()

    # Then the hook was told
    ctx = deciding.only
    assert (ctx.partial_text, ctx.recovery_kind) == ("The capital ", "continue")
    assert [part["type"] for part in ctx.partial_parts] == ["step-start", "text"]
    assert (ctx.attempt, ctx.max_attempts) == (1, 10)
    assert ctx.request_id == ctx.recovery_root_request_id == row["request_id"]
    assert (ctx.stream_id, ctx.created_at) == (row["id"], moment_of(room.clock.now_ms() - 7000))
    assert [m.text for m in ctx.messages] == ["Capital of France?"]
    assert ctx.incident_id == f"{row['request_id']}:{ctx.messages[0].id}"
    assert (ctx.recovery_data, ctx.last_body, ctx.last_client_tools) == (None, None, None)
    # and returning nothing went on
    assert [m.text for m in agent.messages] == ["Capital of France?", "The capital is Paris."]


@pytest.mark.case(399, 402)
@pytest.mark.parametrize("way", ["save_messages", "chat"])
@pytest.mark.parametrize("data", [{"step": 2, "deep": {"list": [1, None, "é"]}}, [1], "text", 0, False])
async def test_what_a_turn_stashed_comes_back(open_app: OpenApp, way: str, data: Any) -> None:
    deciding = Deciding()

    async def before_turn(self: Think, turn: TurnContext) -> None:
        if not deciding.seen:
            await self.stash({"old": "the last one counts"})
            await self.stash(data)

    room = await Room.open(
        open_app, hangs(), says("Done."), before_turn=before_turn, on_chat_recovery=deciding.hook
    )
    waiting = follow(getattr(room.agent, way)("Hi"))
    await room.silence()
    await room.cut()
    await asyncio.gather(waiting, return_exceptions=True)
    await room.wake()
    found = deciding.only.recovery_data
    assert (found, type(found)) == (data, type(data))


@pytest.mark.case(403)
async def test_a_turn_whose_row_is_not_readable_is_set_aside(open_app: OpenApp, tmp_path: Path) -> None:
    """It used to go on without what could not be read: who asked, and whether they may change anything."""
    # Given a turn that was cut off, and a row that something has spoiled
    room = await Room.open(open_app, says("Half ").then_hangs())
    question = Message("q", "user", [{"type": "text", "text": "Hi"}])
    await accept_request(await room.home(), ChatRequest("r", [question], body={"tone": "dry"}))
    await room.silence()
    await room.app.close()
    with sqlite3.connect(tmp_path / "everthink.db") as connection:
        connection.execute("UPDATE turns SET input = '{broken', stash = '{broken'")
    connection.close()

    # When another process takes over
    deciding = Deciding()
    room = await Room.open(open_app, says("whole."), on_chat_recovery=deciding.hook)
    agent = await room.wake()

    # Then it is over, nobody was asked, and the conversation goes on
    assert [m.text for m in agent.messages] == ["Hi"]
    assert deciding.seen == []
    (turn,) = Database(tmp_path).turns()
    assert (turn["status"], turn["error"], turn["input"]) == ("error", UNREADABLE_TEXT, "{broken")
    assert (await room.agent.save_messages("And now?")).text == "whole."


@pytest.mark.case(441)
async def test_a_turn_that_had_said_nothing_is_asked_again_with_its_own_body(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn that was cut off while it was prepared
    deciding, began, seen = Deciding(), asyncio.Event(), list[Any]()

    async def before_turn(self: Think, turn: TurnContext) -> None:
        seen.append((turn.body, turn.request_id, turn.continuation))
        if len(seen) == 1:
            await self.stash("so far")
            began.set()
            await asyncio.Event().wait()

    room = await Room.open(open_app, says("Hello."), before_turn=before_turn, on_chat_recovery=deciding.hook)
    question = Message("q", "user", [{"type": "text", "text": "Hi"}])
    await accept_request(await room.home(), ChatRequest("r", [question], body={"tone": "dry"}))
    await began.wait()
    await room.cut()
    await room.wake()

    # Then there was nothing to see, and it is the same turn that runs again
    ctx = deciding.only
    assert (ctx.recovery_kind, ctx.stream_id, ctx.partial_text, ctx.partial_parts) == ("retry", "", "", [])
    assert (ctx.recovery_data, ctx.last_body) == ("so far", {"tone": "dry"})
    assert seen == [({"tone": "dry"}, "r", False)] * 2
    # with one user message and one answer
    assert await room.texts() == ["Hi", "Hello."]
    assert Database(tmp_path).statuses() == ["completed"]


@pytest.mark.case(456)
async def test_a_turn_that_waited_for_the_first_word_is_asked_again(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a model that has accepted the request and not begun to answer: a stream with nothing in it
    deciding = Deciding()
    room = await Room.open(open_app, opens().then_hangs(), says("Hello."), on_chat_recovery=deciding.hook)
    await room.ask()
    assert [type(c) for c in Database(tmp_path).chunks()] == [ui.Start, ui.StartStep]
    await room.cut()
    await room.wake()
    assert (deciding.only.recovery_kind, deciding.only.partial_text) == ("retry", "")
    assert prompt(room.model.last_request) == [("user", "Hi")]
    assert await room.texts() == ["Hi", "Hello."]
    # The stream that readers know has one beginning
    assert [type(c) for c in Database(tmp_path).chunks()][:3] == [ui.Start, ui.StartStep, ui.TextStart]


@pytest.mark.case(442)
async def test_a_turn_goes_on_with_the_body_and_the_tools_of_its_time(open_app: OpenApp) -> None:
    # Given a turn with a body and tools, cut off; and a newer request that has others
    deciding, seen = Deciding(), list[Any]()

    def before_turn(self: Think, turn: TurnContext) -> None:
        seen.append((turn.request_id, turn.body, sorted(turn.tools)))

    room = await Room.open(
        open_app,
        says("Half ").then_hangs(),
        says("whole."),
        says("Two."),
        before_turn=before_turn,
        on_chat_recovery=deciding.hook,
    )
    home = await room.home()
    first = Message("q1", "user", [{"type": "text", "text": "One?"}])
    locate = {"name": "locate", "description": "Where?", "parameters": {"type": "object"}}
    await accept_request(home, ChatRequest("r1", [first], client_tools=[locate], body={"n": 1}))
    await room.silence()
    second = Message("q2", "user", [{"type": "text", "text": "Two?"}])
    await accept_request(home, ChatRequest("r2", [first, second], client_tools=[], body={"n": 2}))
    await room.cut()

    # When the agent wakes
    await room.wake()

    # Then each of them has its own, and what was asked later is no part of the earlier question
    assert seen == [("r1", {"n": 1}, ["locate"]), ("r1", {"n": 1}, ["locate"]), ("r2", {"n": 2}, [])]
    assert deciding.only.last_body == {"n": 1}
    assert deciding.only.last_client_tools == [locate]
    assert [text for _, text in prompt(room.model.requests[1])][:2] == ["One?", "Half "]
    assert "Two?" not in repr(room.model.requests[1])


@pytest.mark.case(438)
async def test_things_happen_in_their_order(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a turn that was cut off, and an agent that also left a fiber
    order: list[str] = []

    def on_chat_recovery(self: Think, ctx: ChatRecoveryContext) -> None:
        order.append("hook")

    def on_fiber_recovered(self: Think, ctx: Any) -> None:
        order.append(f"fiber {ctx.name}")

    room = await Room.open(
        open_app,
        says("Half ").then_hangs(),
        says("whole."),
        on_chat_recovery=on_chat_recovery,
        on_fiber_recovered=on_fiber_recovered,
        on_start=lambda self, props=None: order.append("start"),
    )
    agent = await live(room.agent)
    fiber = agent.run_fiber("work", lambda ctx: asyncio.Event().wait())
    await room.ask()
    await room.cut()
    await asyncio.gather(fiber, return_exceptions=True)
    order.clear()
    room.app.events.subscribe(
        lambda event: order.append(event.type), type=tuple(f"chat:recovery:{e}" for e in EVENTS)
    )

    # When the agent wakes
    await room.wake()

    # Then fibers come first; a turn is counted before anybody is asked, and goes on after that
    assert order == [
        "fiber work",
        "start",
        "chat:recovery:detected",
        "chat:recovery:attempt",
        "hook",
        "chat:recovery:scheduled",
        "chat:recovery:completed",
    ]


EVENTS = ("detected", "attempt", "scheduled", "completed", "skipped", "failed", "exhausted")


# --- what the hook decides


@pytest.mark.case(443)
async def test_declining_keeps_what_was_said_and_tells_everybody_now_and_later(
    open_app: OpenApp, tmp_path: Path
) -> None:
    deciding = Deciding(RecoveryDecision(continue_=False))
    room = await Room.open(open_app, says("Half ").then_hangs(), on_chat_recovery=deciding.hook)
    await room.ask()
    await room.cut()
    events = record_events(room.app, "chat:recovery:skipped")
    await room.wake()
    assert await room.texts() == ["Hi", "Half "]
    (row,) = Database(tmp_path).turns()
    assert (row["status"], row["error"]) == ("error", DECLINED_TEXT)
    assert [event.payload["reason"] for event in events] == ["continue_disabled"]
    assert room.model.asked == 1
    # Whoever comes later is told, also after another restart; nothing runs
    for _ in range(2):
        home = await room.home()
        failure = home.chat.host.last_failure.value
        assert failure is not None
        assert (failure.request_id, failure.error) == (
            row["request_id"],
            DECLINED_TEXT,
        )
        assert home.chat.recovery.recovering is None
        await room.cut()
    assert len(deciding.seen) == room.model.asked == 1


@pytest.mark.case(444)
async def test_neither_keeping_nor_going_on_leaves_the_question_alone(
    open_app: OpenApp, tmp_path: Path
) -> None:
    deciding = Deciding(RecoveryDecision(persist=False, continue_=False))
    room = await Room.open(open_app, says("Half ").then_hangs(), on_chat_recovery=deciding.hook)
    await room.ask()
    await room.cut()
    await room.wake()
    assert await room.texts() == ["Hi"]
    assert Database(tmp_path).statuses() == ["error"]
    assert room.model.asked == 1


@pytest.mark.case(444)
async def test_a_hook_that_brings_the_answer_itself_completes_the_turn(
    open_app: OpenApp, tmp_path: Path
) -> None:
    async def on_chat_recovery(self: Think, ctx: ChatRecoveryContext) -> RecoveryDecision:
        await self.add_messages([Message("a", "assistant", [{"type": "text", "text": "From elsewhere."}])])
        return RecoveryDecision(persist=False, continue_=False)

    room = await Room.open(open_app, says("Half ").then_hangs(), on_chat_recovery=on_chat_recovery)
    await room.agent.submit_messages("Hi", submission_id="job")
    await room.silence()
    await room.cut()
    await room.wake()
    assert await room.texts() == ["Hi", "From elsewhere."]
    assert (await room.agent.inspect_submission("job")).status == "completed"
    assert (await room.home()).chat.host.last_failure.value is None


@pytest.mark.case(445)
@pytest.mark.parametrize("goes_on", [True, False])
async def test_what_a_tool_has_done_is_kept_in_any_case(
    open_app: OpenApp, tmp_path: Path, goes_on: bool
) -> None:
    # Given a turn whose tool is done, and a hook that wants nothing kept
    effects, deciding = Effects(), Deciding(RecoveryDecision(persist=False, continue_=goes_on))
    room = await Room.open(
        open_app,
        says("I dig. ").calls("dig", id="c1"),
        says("There ").then_hangs(),
        says("is a hole."),
        get_tools=effects.tools,
        on_chat_recovery=deciding.hook,
    )
    await room.ask()
    await room.cut()

    # When the agent wakes
    agent = await room.wake()

    # Then the result is in the conversation, and the tool has not run again
    answer = agent.messages[1]
    assert [part["state"] for part in answer.tool_parts] == ["output-available"]
    assert answer.text == ("I dig. There is a hole." if goes_on else "I dig. There ")
    assert effects.done == ["here"]


@pytest.mark.case(446)
async def test_text_alone_may_be_forgotten_and_the_turn_starts_over(
    open_app: OpenApp, tmp_path: Path
) -> None:
    deciding = Deciding(RecoveryDecision(persist=False))
    room = await Room.open(
        open_app, says("Nonsense ").then_hangs(), says("A better answer."), on_chat_recovery=deciding.hook
    )
    await room.ask()
    (before,) = Database(tmp_path).turns()
    await room.cut()
    witness = Witness(await room.home())
    await room.wake()

    # It is asked as if it had never said anything, and readers are told to forget it too
    assert prompt(room.model.last_request) == [("user", "Hi")]
    assert await room.texts() == ["Hi", "A better answer."]
    assert [type(s) for s in witness.shown if isinstance(s, TurnRewound)] == [TurnRewound]
    first = next(s for s in witness.shown if isinstance(s, ChunksStored))
    assert (first.first_seq, type(first.chunks[0])) == (0, ui.Start)
    (row,) = Database(tmp_path).turns()
    assert row["request_id"] == before["request_id"]
    assert row["message_id"] != before["message_id"]
    assert "Nonsense" not in repr(Database(tmp_path).chunks())


@pytest.mark.case(440)
async def test_a_hook_that_raises_keeps_the_turn_and_is_asked_again_later(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a hook that fails twice
    seen: list[int] = []

    def on_chat_recovery(self: Think, ctx: ChatRecoveryContext) -> None:
        seen.append(ctx.attempt)
        if len(seen) <= 2:
            raise RuntimeError("the archive is closed")

    room = await Room.open(
        open_app, says("Half ").then_hangs(), says("whole."), on_chat_recovery=on_chat_recovery
    )
    await room.ask()
    await room.cut()
    events = record_events(room.app, "chat:recovery:failed", "chat:recovery:completed")
    await room.home()

    # When time passes
    for seconds in (30, 60):
        await room.put_off()
        (incident,) = await room.incidents()
        assert (incident.status, incident.reason) == ("failed", "the archive is closed")
        assert Database(tmp_path).statuses() == ["running"]
        assert room.model.asked == 1
        await room.clock.advance(seconds)
    await room.wake()

    # Then it went on, once the hook did
    assert seen == [1, 2, 3]
    assert [(e.type, e.payload.get("reason")) for e in events] == [
        ("chat:recovery:failed", "the archive is closed"),
        ("chat:recovery:failed", "the archive is closed"),
        ("chat:recovery:completed", None),
    ]
    assert await room.texts() == ["Hi", "Half whole."]
