"""Attempts are counted before they begin: who is suspected, who waits, who is not tried any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import tool
from everthink.errors import AgentSetAside
from everthink.open_store import open_store
from everthink.recovery import suspects
from everthink.recovery.aside import SET_ASIDE_TEXT
from everthink.recovery.trials import WINDOW, Trials
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import Store
from everthink.testing import ManualClock, calls, says
from tests.conftest import OpenApp
from tests.support.recovery import Room
from tests.support.turns import Database, gated_app, record_events

pytestmark = pytest.mark.anyio

Begin = Callable[..., Awaitable[Trials]]


@pytest.fixture
async def store(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        store = await open_store(f"sqlite:///{tmp_path}/everthink.db", MIGRATIONS)
        stack.push_async_callback(store.close)
        yield store


async def strikes(store: Store) -> dict[str, int]:
    return {row[1]: row[2] for row in await store.fetch(suspects.ALL)}


async def test_an_attempt_whose_process_died_is_counted_and_the_fourth_is_not_made(store: Store) -> None:
    for number in (1, 2, 3):
        trial = await Trials(store, ManualClock()).begin("A/a", "t", what="turn")
        assert not trial.is_aside
        assert await strikes(store) == {"t": number}
    trial = await Trials(store, ManualClock()).begin("A/a", "t", what="turn")
    assert trial.is_aside
    assert await strikes(store) == {"t": 3}


async def test_progress_begins_the_count_anew(store: Store) -> None:
    for said in (3, 3, 3):
        await Trials(store, ManualClock()).begin("A/a", "t", said=said, what="turn")
    assert await strikes(store) == {"t": 3}
    trial = await Trials(store, ManualClock()).begin("A/a", "t", said=4, what="turn")
    assert not trial.is_aside
    assert await strikes(store) == {"t": 1}


async def test_suspects_are_tried_one_at_a_time_the_least_suspected_first(store: Store) -> None:
    for turn, times in (("worst", 2), ("bad", 1), ("worse", 1)):
        for _ in range(times):
            await Trials(store, ManualClock()).begin("A/a", turn, what="turn")
    trials = Trials(store, ManualClock())
    entered: list[str] = []
    came = asyncio.Event()

    async def tried(turn: str) -> None:
        trial = await trials.begin("A/a", turn, what="turn")
        entered.append(turn)
        came.set()
        await asyncio.sleep(0)
        trials.passed("A/a", turn)
        assert not trial.is_open

    first = await trials.begin("A/a", "bad", what="turn")
    others = [asyncio.ensure_future(tried(turn)) for turn in ("worst", "worse", "new")]
    # Who is not suspected does not wait
    await came.wait()
    assert entered == ["new"]
    trials.lives(first)
    await asyncio.gather(*others)
    assert entered == ["new", "worse", "worst"]


async def test_what_is_stopped_or_lives_long_enough_does_not_count(store: Store) -> None:
    clock = ManualClock()
    for _ in range(5):
        trials = Trials(store, clock)
        await trials.begin("A/a", "t", what="turn")
        await trials.undo_all("A/a")
        assert await strikes(store) == {}
    await Trials(store, clock).begin("A/a", "t", what="turn")
    trials = Trials(store, clock)
    await trials.begin("A/a", "t", what="turn")
    assert await strikes(store) == {"t": 2}
    await clock.advance(WINDOW)
    await trials.undo_all()
    assert await strikes(store) == {"t": 1}


async def test_what_is_stopped_while_it_is_being_counted_does_not_count(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_while_counted() -> None:
        trials = Trials(store, ManualClock())
        await trials.load()
        apply, written = store.apply, list[asyncio.Future[Any]]()

        def cutting(commit: Any, *, agent: str) -> Any:
            monkeypatch.setattr(store, "apply", apply)
            written.append(apply(commit, agent=agent))
            attempt.cancel()
            return asyncio.shield(written[0])  # a commit that is under way is written

        monkeypatch.setattr(store, "apply", cutting)
        attempt = asyncio.create_task(trials.begin("A/a", "t", what="turn"))
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await trials.undo_all()
        await written[0]

    await cut_while_counted()
    assert await store.fetch(suspects.ALL) == []
    # And what was counted before stays as it was
    await Trials(store, ManualClock()).begin("A/a", "t", what="turn")
    before = await store.fetch(suspects.ALL)
    await cut_while_counted()
    assert await store.fetch(suspects.ALL) == before


async def test_waiting_for_a_place_can_be_given_up(store: Store) -> None:
    for turn in ("a", "b", "c"):
        await Trials(store, ManualClock()).begin("A/a", turn, what="turn")
    trials = Trials(store, ManualClock())
    first = await trials.begin("A/a", "a", what="turn")
    waiting = asyncio.ensure_future(trials.begin("A/a", "b", what="turn"))
    for _ in range(100):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await trials.undo(first)
    assert not (await trials.begin("A/a", "c", what="turn")).is_aside


async def test_an_agent_that_is_new_or_starts_well_leaves_no_trace(open_app: OpenApp, tmp_path: Path) -> None:
    room = await Room.open(open_app, says("One."), says("Two."))
    await room.agent.save_messages("Hi")
    await room.cut()
    await room.agent.save_messages("Hi")
    await room.app.close()
    assert Database(tmp_path).rows("SELECT * FROM suspects") == []


async def test_a_turn_costs_nothing_more_unless_it_was_cut_off(tmp_path: Path) -> None:
    from everthink.testing import ScriptedModel
    from tests.support.agents import assistant

    cls = assistant(ScriptedModel(says("One."), repeat=True))
    async with gated_app(tmp_path, cls) as (app, store):
        await app.agent(cls).save_messages("Hi")
        await app.agent(cls).save_messages("Hi")
        written = [statement.sql for commit in store.commits[1:] for statement in commit]
    assert not any("suspects" in sql for sql in written)


async def struck_out(room: Room, tmp_path: Path, turn: str | None) -> str:
    """Close the app, and write down that three attempts ended with their process."""
    import sqlite3

    await room.app.close()
    found = Database(tmp_path).turns()[0]["id"] if turn is None else turn
    with sqlite3.connect(tmp_path / "everthink.db") as connection:
        connection.execute(
            "INSERT INTO suspects (agent, turn, strikes, said, first_at, last_at, what, is_aside)"
            " VALUES ('Assistant/room', ?, 3, 1000, 1, 1, 'turn', 0)",
            (found,),
        )
    connection.close()
    return found


async def test_a_turn_that_struck_out_is_over_in_words_and_tried_again_once_released(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn that was cut off in three processes
    room = await Room.open(open_app, says("Half ").then_hangs())
    await room.ask("Hi")
    id = await struck_out(room, tmp_path, None)

    # When another one comes
    room = await Room.open(open_app, says("Later."), says("whole."))
    told = record_events(room.app, "chat:turn:set_aside", "released")
    await room.wake()

    # Then it is over, and the conversation goes on
    [turn] = Database(tmp_path).turns()
    assert (turn["status"], turn["error"]) == ("error", SET_ASIDE_TEXT)
    assert (await room.agent.save_messages("Go on")).text == "Later."
    assert [(one.turn, one.strikes) for one in await room.app.set_aside()] == [(id, 3)]
    assert [event.body.strikes for event in told] == [3]

    # And once released it is finished, in the same process
    assert await room.app.release(room.cls, "room") == [id]
    await room.wake()
    assert "Half whole." in await room.texts()
    assert await room.app.set_aside() == []
    assert told[-1].body.turn_id == id
    assert await room.app.release(room.cls, "room") == []


async def test_a_cleared_conversation_keeps_nothing_of_what_was_set_aside(
    open_app: OpenApp, tmp_path: Path
) -> None:
    room = await Room.open(open_app, says("Half ").then_hangs())
    await room.ask("Hi", channel="web")
    await struck_out(room, tmp_path, None)
    room = await Room.open(open_app)
    await room.wake()
    [turn] = Database(tmp_path).turns()
    assert turn["input"] is not None
    await room.agent.clear_messages()
    [turn] = Database(tmp_path).turns()
    assert (turn["input"], turn["question"], turn["set_aside_at"]) == (None, None, None)
    assert await room.app.set_aside() == []
    assert await room.app.release(room.cls, "room") == []


async def test_an_agent_that_struck_out_is_not_started_before_it_is_released(
    open_app: OpenApp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    room = await Room.open(open_app, says("One."))
    await room.agent.save_messages("Hi")
    await struck_out(room, tmp_path, "")
    room = await Room.open(open_app, says("Two."))
    told = record_events(room.app, "set_aside", "released")
    for _ in range(2):
        with pytest.raises(AgentSetAside, match="everthink release Assistant/room"):
            await room.agent.save_messages("Hi")
    lines = [line.message for line in caplog.records if line.name == "everthink.runtime"]
    assert sum("is set aside" in line for line in lines) == 1
    assert [event.type for event in told] == ["set_aside"]
    assert await room.app.release(room.cls, "room") == [""]
    assert (await room.agent.save_messages("Hi")).text == "Two."


async def test_a_call_that_runs_long_is_not_suspected_for_that(open_app: OpenApp, tmp_path: Path) -> None:
    """Killed often enough it would be: but it lived through its window each time."""
    gate, begun = asyncio.Event(), asyncio.Event()

    @tool(on_interrupt="rerun")
    async def dig() -> str:
        """Dig for a long time."""
        begun.set()
        await gate.wait()
        return "a hole"

    members: dict[str, Any] = {"get_tools": lambda self: [dig]}
    room = await Room.open(open_app, calls("dig"), **members)
    asking = asyncio.ensure_future(room.ask("Dig!"))
    await begun.wait()
    asking.cancel()
    for _ in range(5):
        begun.clear()
        await room.cut()
        await room.home()
        await begun.wait()
        await room.clock.advance(WINDOW)
        await room.flushed()
        assert Database(tmp_path).rows("SELECT * FROM suspects") == []
