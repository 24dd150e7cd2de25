"""The journal of a stream: durable before it is shown, dense, and the same as the stored message."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Message, tool
from everthink import chunks as ui
from everthink.chat import AbortController
from everthink.door.chat_request import ChatRequest
from everthink.errors import StoreFull
from everthink.journal.feed import (
    ChunksStored,
    FeedEvent,
    HistoryChanged,
    TurnAccepted,
    TurnEnded,
    TurnStarted,
)
from everthink.journal.fold import fold
from everthink.store.port import Commit
from everthink.testing.scripted import ScriptedModel, calls, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import Database, Heard, Witness, accept_request, all_over, follow, gated_app, home_of

pytestmark = pytest.mark.anyio


@tool
def look(at: str) -> dict[str, Any]:
    """Look at something."""
    return {"seen": at}


@tool
def stumble() -> str:
    """Always fail."""
    raise LookupError("fell")


def lively() -> ScriptedModel:
    """A model that thinks, talks, calls tools well and badly, and talks again."""
    return ScriptedModel(
        thinks("hm, ", "let me see", signature="sig").says("First ", "I look.").calls("look", at="the sea"),
        calls("stumble").calls("look", at="you").calls("nothing"),
        thinks("so").says("That ", "is ", "it."),
    )


# --- persist before show


async def test_whatever_readers_are_shown_is_in_the_database_already(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a reader that looks into the database each time it is shown something
    db, looked = Database(tmp_path), []

    def look_up(shown: FeedEvent) -> None:
        looked.append(type(shown))
        match shown:
            case TurnAccepted(turn):
                assert [t["id"] for t in db.turns()] == [turn.id]
            case TurnStarted():
                assert db.statuses() == ["running"]
                assert db.texts() == ["Look!"]
            case ChunksStored(turn, first, bodies, chunks):
                stored = db.chunks(turn.id)
                assert stored[first : first + len(chunks)] == list(chunks)
                assert [ui.encode(chunk) for chunk in chunks] == list(bodies)
            case TurnEnded(_, status):
                assert db.statuses() == [status]
            case HistoryChanged():
                assert db.texts()[:1] == ["Look!"]

    app = await open_app(cls := assistant(lively(), get_tools=lambda self: [look, stumble]))
    witness = Witness(await home_of(app, cls), look_up)

    # When a lively turn runs
    result = await app.agent(cls).save_messages("Look!")

    # Then it always found what it was shown (a reader that raises is dropped, and sees no end)
    assert result.status == "completed"
    assert looked[-1] is TurnEnded
    assert witness.chunks == db.chunks()


async def test_nothing_is_shown_while_its_commit_is_under_way(tmp_path: Path) -> None:
    # Given a store that takes its time, and a model that has said all it has to say
    model = ScriptedModel(says("Hello ", "there."))
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        witness, heard = Witness(await home_of(app, cls)), Heard()
        turn = follow(app.agent(cls).chat("Hi", callback=heard))
        await witness.until_accepted(1)
        store.hold()
        await store.until_waiting()
        for _ in range(20):
            await asyncio.sleep(0)

        # Then nobody has seen a word of it
        assert model.asked == 1
        assert (witness.chunks, heard.chunks, turn.done()) == ([], [], False)

        # When the commit is done, everything is shown
        store.release()
        await turn
        assert witness.text == heard.text == "Hello there."


async def test_a_turn_is_accepted_when_its_row_is_durable_and_not_before(tmp_path: Path) -> None:
    model = ScriptedModel(says("ok"))
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        home = await home_of(app, cls)
        witness = Witness(home)
        store.hold()
        submitting = asyncio.create_task(app.agent(cls).submit_messages("Hi"))
        await store.until_waiting()
        for _ in range(20):
            await asyncio.sleep(0)
        assert (submitting.done(), witness.shown, Database(tmp_path).turns()) == (False, [], [])
        store.release()
        submission = await submitting
        assert [t["id"] for t in Database(tmp_path).turns()] == [submission.submission_id]
        await all_over(app, cls)


async def test_a_request_from_a_browser_is_answered_after_its_messages_and_its_row_are_durable(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(says("ok"))
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        home = await home_of(app, cls)
        store.hold()
        question = Message("q", "user", [{"type": "text", "text": "Hi"}])
        accepting = asyncio.create_task(accept_request(home, ChatRequest("r", [question])))
        await store.until_waiting()
        assert not accepting.done()
        store.release()
        admitted: Any = await accepting
        assert Database(tmp_path).texts()[0] == "Hi"
        assert Database(tmp_path).turns()[0]["request_id"] == "r"
        await admitted.result()


# --- a store that fails


def refuse_segment(containing: str) -> Any:
    def why(commit: Commit) -> Exception | None:
        text = repr(commit)
        return StoreFull("No space left.") if "INSERT INTO segments" in text and containing in text else None

    return why


async def test_a_store_that_fails_in_mid_stream_ends_the_turn_and_loses_nothing_that_was_shown(
    tmp_path: Path,
) -> None:
    # Given a model that says a second sentence once the first was shown
    witness: Any = None
    model = ScriptedModel(
        says("Shown. ").waits(lambda: witness.until_text("Shown. ")).says("Lost.").then_hangs(), says("Fine.")
    )
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        witness, heard = Witness(await home_of(app, cls)), Heard()

        # When the second cannot be stored
        store.refuse(refuse_segment("Lost."))
        result = await app.agent(cls).chat("Hi", callback=heard)

        # Then the turn has failed, and the conversation holds exactly what was shown
        assert (result.status, heard.names) == ("error", ["start", "error"])
        assert "No space left." in (result.error or "")
        assert witness.text == heard.text == "Shown. "
        assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi", "Shown. "]
        assert Database(tmp_path).texts() == ["Hi", "Shown. "]
        assert Database(tmp_path).statuses() == ["error"]
        assert model.cut_off == 1

        # ... and once the store works again, so does the agent
        store.refuse(lambda commit: None)
        assert (await app.agent(cls).save_messages("Again")).text == "Fine."
        assert Database(tmp_path).texts() == ["Hi", "Shown. ", "Again", "Fine."]


async def test_a_store_that_fails_at_the_last_commit_keeps_what_was_shown(tmp_path: Path) -> None:
    # Given an answer of which all but the end was shown
    witness: Any = None
    model = ScriptedModel(says("Shown. ").waits(lambda: witness.until_text("Shown. ")).says("The end."))
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        witness = Witness(await home_of(app, cls))
        store.refuse(refuse_segment('"finish"'))
        result = await app.agent(cls).chat("Hi", callback=Heard())
        store.refuse(lambda commit: None)
        assert result.status == "error"
        shown = witness.text
        assert shown.startswith("Shown. ")
        assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi", shown]
        assert Database(tmp_path).texts() == ["Hi", shown]
        assert Database(tmp_path).statuses() == ["error"]


async def test_a_turn_that_could_not_even_be_ended_is_finished_at_the_next_start(tmp_path: Path) -> None:
    # Given a store that breaks for good in mid-stream
    witness: Any = None
    model = ScriptedModel(
        says("Shown. ").waits(lambda: witness.until_text("Shown. ")).says("Lost.").then_hangs(),
        says("And the rest."),
    )
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        witness = Witness(await home_of(app, cls))
        broken: list[bool] = []

        def breaks(commit: Commit) -> Exception | None:
            if "Lost." in repr(commit):
                broken.append(True)
            return StoreFull("No space left.") if broken else None

        store.refuse(breaks)
        result = await app.agent(cls).chat("Hi", callback=Heard())
        assert result.status == "error"
        assert Database(tmp_path).statuses() == ["running"]

        # When the agent starts anew on a store that works
        store.refuse(lambda commit: None)
        await app.evict(cls, "default")

        # Then the answer goes on from what was shown
        await all_over(app, cls)
        assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi", "Shown. And the rest."]
        assert Database(tmp_path).statuses() == ["completed"]


async def test_a_turn_whose_row_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    model = ScriptedModel(says("Fine."))
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        home = await home_of(app, cls)
        store.refuse(lambda commit: StoreFull("No space left."))
        with pytest.raises(StoreFull):
            await app.agent(cls).save_messages("Hi")
        with pytest.raises(StoreFull):
            await app.agent(cls).submit_messages("Hi")
        assert (len(home.chat.host.aborts), home.chat.door.queue.is_idle, model.asked) == (0, True, 0)
        store.refuse(lambda commit: None)
        assert (await app.agent(cls).save_messages("Again")).text == "Fine."
        assert Database(tmp_path).texts() == ["Again", "Fine."]


# --- batching


def is_dense(segments: list[dict[str, Any]]) -> bool:
    """Whether the segments number their chunks 0, 1, 2, … without a gap."""
    expected = 0
    for segment in segments:
        if segment["first_seq"] != expected:
            return False
        expected = segment["last_seq"] + 1
    return True


async def test_a_burst_is_a_few_rows_however_long_it_is(open_app: OpenApp, tmp_path: Path) -> None:
    words = [f"{i} " for i in range(3000)]
    app = await open_app(cls := assistant(ScriptedModel(says(*words))))

    result = await app.agent(cls).save_messages("Count!")

    assert result.text == "".join(words)
    segments = Database(tmp_path).segments()
    assert len(segments) < 15
    assert is_dense(segments)
    assert segments[-1]["last_seq"] == len(Database(tmp_path).chunks()) - 1 == 3005


async def test_a_slow_model_has_a_row_for_each_word(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a model that says the next word once the one before was shown
    witness: Any = None
    play = says("word0 ")
    for i in range(1, 8):
        play = play.waits(lambda i=i: witness.until_text(f"word{i - 1} ")).says(f"word{i} ")
    app = await open_app(cls := assistant(ScriptedModel(play)))
    witness = Witness(await home_of(app, cls))

    # When it answers
    await app.agent(cls).save_messages("Slowly.")

    # Then each word was committed, and shown, on its own
    (turn,) = Database(tmp_path).turns()
    segments = Database(tmp_path).segments(turn["id"])
    assert len(segments) >= 8
    assert is_dense(segments)
    shown = [s for s in witness.shown if isinstance(s, ChunksStored)]
    assert [s.first_seq for s in shown] == [segment["first_seq"] for segment in segments]
    words = ["".join(c.delta for c in s.chunks if isinstance(c, ui.TextDelta)) for s in shown]
    assert [word for word in words if word] == [f"word{i} " for i in range(8)]


async def test_chunks_that_arrive_during_a_commit_share_the_next_one(tmp_path: Path) -> None:
    gate = asyncio.Event()
    words = [f"{i} " for i in range(100)]
    model = ScriptedModel(says("first ").waits(gate).says(*words))
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        witness = Witness(await home_of(app, cls))
        turn = asyncio.create_task(app.agent(cls).save_messages("Hi"))
        await witness.until_accepted(1)
        store.hold()
        await store.until_waiting()
        gate.set()
        for _ in range(20):
            await asyncio.sleep(0)
        store.release()
        await turn
        assert len(Database(tmp_path).segments()) == 2
        assert witness.text == "first " + "".join(words)


# --- the fold of the journal is the message


@pytest.mark.parametrize("end", ["completed", "failed", "aborted"])
async def test_the_segments_of_a_turn_fold_to_exactly_the_stored_message(
    open_app: OpenApp, tmp_path: Path, end: str
) -> None:
    model = lively()
    if end != "completed":
        hang = (
            says("And ", "then").then_hangs() if end == "aborted" else says("And ", "then").then_fails("no")
        )
        model = ScriptedModel(*lively()._plays[:2], hang)
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look, stumble]))
    stop = AbortController()
    running = asyncio.create_task(app.agent(cls).save_messages("Look!", signal=stop.signal))
    if end == "aborted":
        await model.until_silent()
        stop.abort()
    result = await running

    (turn,) = Database(tmp_path).turns()
    folded = fold(Database(tmp_path).chunks(turn["id"]), id=turn["message_id"]).message()
    assert folded == result.message == (await app.agent(cls).get_messages())[1]
    assert folded.to_json() == Database(tmp_path).messages()[1]
    assert is_dense(Database(tmp_path).segments())


async def test_the_id_announced_at_the_start_is_the_id_of_the_stored_message(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))
    result = await app.agent(cls).save_messages("Hi")
    start = Database(tmp_path).chunks()[0]
    assert isinstance(start, ui.Start)
    assert start.message_id == result.message.id == Database(tmp_path).messages()[1]["id"]  # type: ignore[union-attr]


# --- the express lane


async def test_a_short_turn_on_an_idle_agent_is_two_commits(tmp_path: Path) -> None:
    # Given an agent that has nothing to do
    async with gated_app(tmp_path, cls := assistant(ScriptedModel(says("Hello")))) as (app, store):
        await home_of(app, cls)
        before = len(store.commits)

        # When it answers at once
        await app.agent(cls).save_messages("Hi")

        # Then one commit took the turn in, running, with its message; another ended it with everything
        first, last = store.commits[before:]
        assert ["turns" in s.sql for s in first].count(True) == 1
        assert any("INSERT INTO messages" in s.sql for s in first)
        assert any("INSERT INTO turns" in s.sql and "running" in s.params for s in first)
        assert any("INSERT INTO segments" in s.sql for s in last)
        assert any("INSERT INTO messages" in s.sql for s in last)
        assert any(s.sql.startswith("UPDATE turns") and "completed" in s.params for s in last)


async def test_a_turn_that_must_wait_is_accepted_with_its_input_and_stores_its_message_when_it_runs(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn that runs
    gate, db = asyncio.Event(), Database(tmp_path)
    model = ScriptedModel(says("one").waits(gate), says("two"))
    app = await open_app(cls := assistant(model))
    witness = Witness(await home_of(app, cls))
    first = asyncio.create_task(app.agent(cls).save_messages("first"))
    await model.until_silent()

    # When another is asked for
    second = asyncio.create_task(app.agent(cls).save_messages("second"))
    await witness.until_accepted(2)

    # Then its row waits with all it needs, and the conversation does not have its message yet
    running, waiting = db.turns()
    assert (running["status"], running["started_at"] is not None) == ("running", True)
    assert (waiting["status"], waiting["started_at"]) == ("accepted", None)
    assert "second" in waiting["input"]
    assert db.texts() == ["first"]

    # ... until it runs
    gate.set()
    await asyncio.gather(first, second)
    assert [(t["status"], t["input"]) for t in db.turns()] == [("completed", None)] * 2
    assert db.texts() == ["first", "one", "second", "two"]


async def test_calls_that_end_a_step_are_journaled_with_their_outcomes(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(
        cls := assistant(
            ScriptedModel(calls("look", at="x", id="c1"), says("ok")), get_tools=lambda self: [look]
        )
    )
    await app.agent(cls).save_messages("Look!")
    kinds = [chunk.type for chunk in Database(tmp_path).chunks()]
    assert kinds == [
        "start",
        "start-step",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-delta",
        "tool-input-available",
        "tool-output-available",
        "finish-step",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ]
