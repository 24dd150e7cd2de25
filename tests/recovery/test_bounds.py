"""A turn that is cut off again and again: what counts, when it is given up, and what never is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from everthink import Message, Think, tool
from everthink.clock import moment_of
from everthink.door.chat_request import ChatRequest
from everthink.journal.feed import RecoveryChanged, TurnEnded
from everthink.recovery import ChatRecovery, ChatRecoveryContext, RecoveryDecision
from everthink.recovery.incident import TERMINAL_MESSAGE, Exhausted, KeepRecovering
from everthink.recovery.recover import SUBMISSION_TEXT
from everthink.testing import calls, hangs, says
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.recovery import Room
from tests.support.turns import Database, Witness, accept_request, record_events

pytestmark = pytest.mark.anyio

SORRY = "I was interrupted and could not finish."


@pytest.mark.case(411, 431)
async def test_an_incident_is_counted_while_it_lasts_and_forgotten_when_the_turn_is_done(
    open_app: OpenApp,
) -> None:
    room = await Room.open(open_app, says("a ").then_hangs(), *[hangs()] * 2, says("b"))
    await room.ask()
    events = record_events(room.app, "chat:recovery:detected", "chat:recovery:attempt")
    for attempt in (1, 2):
        await room.cut(after=40)
        await room.wake_into_silence()
        (incident,) = await room.incidents()
        assert (incident.attempt, incident.status, incident.kind) == (attempt, "scheduled", "continue")
    await room.cut(after=40)
    await room.wake()
    assert await room.incidents() == []
    assert await room.texts() == ["Hi", "a b"]
    assert [(event.type, event.payload["attempt"]) for event in events] == [
        ("chat:recovery:detected", 1),
        ("chat:recovery:attempt", 1),
        ("chat:recovery:attempt", 2),
        ("chat:recovery:attempt", 3),
    ]
    # All of them are about the one turn
    assert len({(event.payload["incidentId"], event.payload["requestId"]) for event in events}) == 1


@pytest.mark.case(419, 436, 439)
async def test_a_turn_that_dies_again_and_again_is_given_up_and_keeps_what_it_said(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given two attempts, and a process that dies in each of them
    gone: list[Exhausted] = []
    asked: list[int] = []

    def on_chat_recovery(self: Think, ctx: ChatRecoveryContext) -> None:
        asked.append(ctx.attempt)

    recovery = ChatRecovery(max_attempts=2, terminal_message=SORRY, on_exhausted=gone.append)
    room = await Room.open(
        open_app,
        says("Half ").then_hangs(),
        *[hangs()] * 2,
        chat_recovery=recovery,
        on_chat_recovery=on_chat_recovery,
    )
    await room.ask()
    for _ in range(2):
        await room.cut(after=40)
        await room.wake_into_silence()
    await room.cut(after=40)
    events = record_events(room.app, "chat:recovery:exhausted", "chat:recovery:scheduled")

    # When it wakes for the third time
    witness = Witness(await room.home())
    await room.wake()

    # Then the model and the hook are left alone, and what was said is in the conversation
    assert (room.model.asked, asked) == (3, [1, 2])
    assert await room.texts() == ["Hi", "Half "]
    # everybody is told, now and later
    assert [(s.status, s.error) for s in witness.shown if isinstance(s, TurnEnded)] == [("error", SORRY)]
    home = await room.home()
    assert home.chat.host.last_failure.value is not None
    assert (home.chat.host.last_failure.value.error, home.chat.recovery.recovering) == (SORRY, None)
    assert [event.type for event in events] == ["chat:recovery:exhausted"]
    # and so is the agent, once, with everything it may want to know
    (told,) = gone
    (row,) = Database(tmp_path).turns()
    assert (told.reason, told.attempt, told.max_attempts) == ("max_attempts_exceeded", 3, 2)
    assert (told.request_id, told.stream_id, told.created_at) == (
        row["request_id"],
        row["id"],
        moment_of(row["created_at"]),
    )
    assert (told.partial_text, told.recovery_kind, told.terminal_message) == ("Half ", "continue", SORRY)
    assert [part["type"] for part in told.partial_parts] == ["step-start", "text"]
    assert (row["status"], row["error"]) == ("error", SORRY)
    # It is over for good
    await room.cut(after=40)
    await room.wake()
    assert (room.model.asked, len(gone)) == (3, 1)
    (incident,) = await room.incidents()
    assert (incident.status, incident.reason) == ("exhausted", "max_attempts_exceeded")


async def test_a_process_that_dies_every_two_seconds_asks_the_model_so_often_and_no_more(
    open_app: OpenApp,
) -> None:
    gone: list[Exhausted] = []
    recovery = ChatRecovery(max_attempts=2, on_exhausted=gone.append)
    room = await Room.open(open_app, says("Half ").then_hangs(), *[hangs()] * 9, chat_recovery=recovery)
    await room.ask()
    for _ in range(2):
        await room.cut(after=2)
        await room.wake_into_silence()
    await room.cut(after=2)
    await room.wake()
    assert (room.model.asked, [told.reason for told in gone]) == (3, ["max_attempts_exceeded"])
    assert await room.texts() == ["Hi", "Half "]


async def test_a_provider_that_hangs_is_asked_so_often_however_short_the_window_is(open_app: OpenApp) -> None:
    gone: list[Exhausted] = []
    recovery = ChatRecovery(max_attempts=4, on_exhausted=gone.append)
    room = await Room.open(
        open_app,
        says("Half ").then_hangs(),
        *[hangs()] * 20,
        chat_recovery=recovery,
        chat_stream_stall_timeout=0.5,
    )
    await room.ask()
    for _ in range(4):
        await room.clock.advance(0.6)
        await room.model.until_silent()
    await room.clock.advance(0.6)
    await room.wake()
    assert (room.model.asked, [told.reason for told in gone]) == (5, ["max_attempts_exceeded"])
    assert await room.texts() == ["Hi", "Half "]


@pytest.mark.case(420, 421)
async def test_a_turn_without_progress_for_too_long_is_given_up(open_app: OpenApp) -> None:
    gone: list[Exhausted] = []
    recovery = ChatRecovery(no_progress_timeout=60, on_exhausted=gone.append)
    room = await Room.open(open_app, says("Half ").then_hangs(), hangs(), chat_recovery=recovery)
    await room.ask()
    await room.cut(after=3600)
    # However long nobody was there: that is counted from the first wake
    await room.wake_into_silence()
    await room.cut(after=61)
    await room.wake()
    assert [told.reason for told in gone] == ["no_progress_timeout"]


@pytest.mark.case(422)
async def test_a_turn_that_produces_more_than_its_budget_is_given_up(open_app: OpenApp) -> None:
    gone: list[Exhausted] = []
    recovery = ChatRecovery(max_recovery_work=1, on_exhausted=gone.append)
    room = await Room.open(
        open_app,
        says("a ").then_hangs(),
        says("b ").then_hangs(),
        says("c ").then_hangs(),
        chat_recovery=recovery,
    )
    await room.ask()
    for _ in range(2):
        await room.cut(after=40)
        await room.wake_into_silence()
    await room.cut(after=40)
    await room.wake()
    assert [(told.reason, told.partial_text) for told in gone] == [("work_budget_exceeded", "a b c ")]
    assert await room.texts() == ["Hi", "a b c "]


@pytest.mark.case(414, 415, 423)
async def test_a_turn_that_makes_progress_is_never_given_up_though_the_conversation_shrinks(
    open_app: OpenApp,
) -> None:
    # Given one attempt without progress, and a turn that gets a word further each time
    words = [f"word{n} " for n in range(6)]
    room = await Room.open(
        open_app,
        says("Earlier answer."),
        *[says(word).then_hangs() for word in words],
        says("end."),
        chat_recovery=ChatRecovery(max_attempts=1, no_progress_timeout=60),
    )
    await room.agent.save_messages("Earlier question")
    await room.ask("Now")
    for place in range(len(words)):
        await room.cut(after=3600)
        if place == 2:
            # meanwhile somebody shortens the conversation
            agent = await live(room.agent)
            await agent.session.delete_messages([message.id for message in agent.messages[:2]])
        if place < len(words) - 1:
            await room.wake_into_silence()
            (incident,) = await room.incidents()
            assert incident.attempt == 1
    await room.wake()
    assert await room.texts() == ["Now", "".join(words) + "end."]


@pytest.mark.case(418)
async def test_readers_that_come_back_are_no_progress(open_app: OpenApp) -> None:
    room = await Room.open(open_app, says("a ").then_hangs(), *[hangs()] * 3)
    await room.ask()
    for attempt in (1, 2, 3):
        await room.cut(after=40)
        await room.wake_into_silence()
        Witness(await room.home())
        assert await room.agent.get_messages()
        (incident,) = await room.incidents()
        assert (incident.attempt, incident.work) == (attempt, 0)


# --- who has a say


@pytest.mark.case(424, 425)
@pytest.mark.parametrize(("answer", "goes_on"), [(True, True), (None, True), (False, False)])
async def test_the_policy_is_asked_from_the_second_attempt_on_and_only_false_stops(
    open_app: OpenApp, answer: bool | None, goes_on: bool
) -> None:
    asked: list[KeepRecovering] = []
    gone: list[Exhausted] = []

    async def should_keep_recovering(ctx: KeepRecovering) -> bool | None:
        asked.append(ctx)
        return answer

    recovery = ChatRecovery(should_keep_recovering=should_keep_recovering, on_exhausted=gone.append)
    room = await Room.open(open_app, says("a ").then_hangs(), hangs(), says("b"), chat_recovery=recovery)
    await room.ask()
    await room.cut(after=40)
    await room.wake_into_silence()
    assert asked == []
    await room.cut(after=40)
    await room.wake()
    (ctx,) = asked
    assert (ctx.attempt, ctx.max_attempts, ctx.work, ctx.age) == (2, 10, 0, 40.0)
    assert (ctx.recovery_kind, ctx.request_id) == ("continue", ctx.recovery_root_request_id)
    assert ctx.incident_id.startswith(f"{ctx.request_id}:")
    assert await room.texts() == ["Hi", "a b" if goes_on else "a "]
    assert [told.reason for told in gone] == ([] if goes_on else ["recovery_aborted"])


@pytest.mark.case(426)
async def test_a_policy_that_raises_is_reported_and_the_turn_goes_on(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    def should_keep_recovering(ctx: KeepRecovering) -> bool:
        raise RuntimeError("no idea")

    recovery = ChatRecovery(should_keep_recovering=should_keep_recovering)
    room = await Room.open(open_app, says("a ").then_hangs(), hangs(), says("b"), chat_recovery=recovery)
    await room.ask()
    await room.cut(after=40)
    await room.wake_into_silence()
    await room.cut(after=40)
    await room.wake()
    assert await room.texts() == ["Hi", "a b"]
    assert "should_keep_recovering" in caplog.text
    assert "no idea" in caplog.text


async def test_whoever_is_told_of_the_end_may_raise_and_people_are_told_all_the_same(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    def on_exhausted(told: Exhausted) -> None:
        raise RuntimeError("the pager is broken")

    recovery = ChatRecovery(no_progress_timeout=1, on_exhausted=on_exhausted, terminal_message=SORRY)
    room = await Room.open(open_app, says("Half ").then_hangs(), hangs(), chat_recovery=recovery)
    await room.ask()
    await room.cut()
    await room.wake_into_silence()
    await room.cut(after=2)
    await room.wake()
    home = await room.home()
    assert home.chat.host.last_failure.value is not None
    assert home.chat.host.last_failure.value.error == SORRY
    assert "the pager is broken" in caplog.text


# --- waiting for a person


@tool(needs_approval=True)
def wipe() -> str:
    """Wipe everything."""
    raise AssertionError


@tool(client=True)
def pick() -> str:
    """Pick a file."""
    raise AssertionError


@pytest.mark.case(428, 429)
@pytest.mark.parametrize("way", ["approval", "our own browser tool", "the browser's tool"])
async def test_a_question_to_a_person_outlives_every_bound(open_app: OpenApp, way: str) -> None:
    # Given a turn that waits for a person, the tightest bounds, and a hook that does not let it go on
    class Fails(Exception):
        pass

    fails = True

    def on_chat_recovery(self: Think, ctx: ChatRecoveryContext) -> None:
        if fails:
            raise Fails

    gone: list[Exhausted] = []
    recovery = ChatRecovery(
        max_attempts=1,
        no_progress_timeout=0,
        max_recovery_work=0,
        should_keep_recovering=lambda ctx: False,
        on_exhausted=gone.append,
    )
    room = await Room.open(
        open_app,
        calls("wipe" if way == "approval" else "pick", id="c1").then_hangs(),
        chat_recovery=recovery,
        on_chat_recovery=on_chat_recovery,
        get_tools=lambda self: [wipe] if way == "approval" else [],
        **({"pick": pick} if way == "our own browser tool" else {}),
    )
    tools = [{"name": "pick"}] if way == "the browser's tool" else []
    question = Message("q", "user", [{"type": "text", "text": "Hi"}])
    await accept_request(await room.home(), ChatRequest("r", [question], client_tools=tools))
    await room.silence()

    # When it is cut off all day long
    for _ in range(12):
        await room.cut(after=7200)
        await room.put_off()
    assert gone == []

    # Then the question is still there once the hook lets it through
    fails = False
    await room.cut(after=7200)
    agent = await room.wake()
    assert gone == []
    [part] = agent.messages[1].tool_parts
    assert part["state"] == ("approval-requested" if way == "approval" else "input-available")
    assert room.model.asked == 1


@pytest.mark.case(430)
async def test_a_dead_call_of_our_own_does_not_keep_a_turn_from_being_given_up(open_app: OpenApp) -> None:
    # Given a turn that waits for a person, and beside that a tool of ours that was cut off each time
    began, gone = asyncio.Event(), list[Exhausted]()

    @tool(on_interrupt="rerun")
    async def dig() -> str:
        """Dig for ever."""
        began.set()
        await asyncio.Event().wait()
        return "never"

    recovery = ChatRecovery(max_attempts=2, on_exhausted=gone.append)
    room = await Room.open(
        open_app,
        calls("wipe", id="c1").calls("dig", id="c2"),
        chat_recovery=recovery,
        get_tools=lambda self: [wipe, dig],
    )
    await room.agent.submit_messages("Hi")
    for _ in range(3):
        await began.wait()
        began.clear()
        await room.cut(after=40)
        if gone or _ == 2:
            break
        await room.home()
    await room.wake()
    assert [told.reason for told in gone] == ["max_attempts_exceeded"]


# --- keeping records


@pytest.mark.case(432)
async def test_records_that_nothing_happened_to_for_an_hour_are_forgotten(open_app: OpenApp) -> None:
    def on_chat_recovery(self: Think, ctx: ChatRecoveryContext) -> RecoveryDecision:
        return RecoveryDecision(continue_=False)

    room = await Room.open(open_app, *[says("Half ").then_hangs()] * 3, on_chat_recovery=on_chat_recovery)
    for _ in range(3):
        await room.ask()
        await room.cut(after=31 * 60)
        await room.wake()
    kept = await room.incidents()
    assert [(i.status, i.reason) for i in kept] == [("skipped", "continue_disabled")] * 2
    now = room.clock.now_ms()
    assert [now - incident.last_attempt_at for incident in kept] == [31 * 60_000, 0]


async def test_an_incident_of_another_turn_starts_from_the_beginning(open_app: OpenApp) -> None:
    room = await Room.open(
        open_app, says("a ").then_hangs(), hangs(), says("b"), says("c ").then_hangs(), says("d")
    )
    await room.ask("One")
    for _ in range(2):
        await room.cut(after=40)
        if _ == 0:
            await room.wake_into_silence()
    await room.wake()
    events = record_events(room.app, "chat:recovery:attempt")
    await room.ask("Two")
    await room.cut(after=40)
    await room.wake()
    assert [event.payload["attempt"] for event in events] == [1]
    assert await room.texts() == ["One", "a b", "Two", "c d"]


# --- off


@pytest.mark.case(404)
@pytest.mark.parametrize("way", ["message", "submission"])
async def test_without_recovery_a_turn_that_was_cut_off_fails_and_keeps_what_it_said(
    open_app: OpenApp, tmp_path: Path, way: str
) -> None:
    asked: list[ChatRecoveryContext] = []
    room = await Room.open(
        open_app,
        says("Half ").then_hangs(),
        chat_recovery=False,
        on_chat_recovery=lambda self, ctx: asked.append(ctx),
    )
    if way == "submission":
        await room.agent.submit_messages("Hi", submission_id="job")
        await room.silence()
    else:
        await room.ask()
    await room.cut()
    events = record_events(room.app, "chat:recovery:*")
    witness = Witness(await room.home())
    await room.wake()
    text = SUBMISSION_TEXT if way == "submission" else TERMINAL_MESSAGE
    (row,) = Database(tmp_path).turns()
    assert (row["status"], row["error"]) == ("error", text)
    assert await room.texts() == ["Hi", "Half "]
    assert (asked, events, room.model.asked) == ([], [], 1)
    assert [s for s in witness.shown if isinstance(s, RecoveryChanged)] == []
    failure = (await room.home()).chat.host.last_failure.value
    assert failure is not None
    assert failure.error == text
