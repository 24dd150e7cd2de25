"""Turns are numbered from their rows: in the order of acceptance, whatever clocks say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink.door.numbers import MARK
from everthink.errors import StoreError
from everthink.journal.turn_rows import all_turns
from everthink.store.port import Statement
from everthink.testing import ManualClock, ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.cuts import Reports
from tests.support.turns import Database, all_over

pytestmark = pytest.mark.anyio

NOON = 1_800_000_000_000
AN_HOUR = 3_600_000


async def numbers(agent: Any) -> dict[str, int]:
    return {turn.request_id: turn.seq for turn in await all_turns((await live(agent))._home.store)}


async def test_turns_keep_their_order_when_the_clock_of_another_machine_is_behind(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given an agent that was cut off with one turn done, one in the middle and one that waits
    model = ScriptedModel(
        says("One."), says("Half ").then_hangs(), says("Two."), says("Three."), says("Four.")
    )
    cls = assistant(model)
    app = await open_app(cls, clock=ManualClock(NOON))
    agent = app.agent(cls, "room")
    await agent.save_messages("first")
    for text in ("second", "third"):
        await agent.submit_messages(text, submission_id=text)
    await model.until_silent()
    before = await numbers(agent)
    assert list(before.values()) == [1, 2, 3]
    await app.close()

    # When it goes on where the clock is an hour behind, and somebody sends more at once
    app = await open_app(cls, clock=ManualClock(NOON - AN_HOUR))
    agent = app.agent(cls, "room")
    await agent.submit_messages("fourth", submission_id="fourth")
    await all_over(app, cls, "room")

    # Then what came later has the greater number, and ran later
    assert await numbers(agent) == {**before, "fourth": 4}
    asked = [text for text in Database(tmp_path).texts() if text in ("first", "second", "third", "fourth")]
    assert asked == ["first", "second", "third", "fourth"]


async def test_numbers_go_on_from_those_that_a_clock_has_made(open_app: OpenApp) -> None:
    # Given rows whose numbers were made from the time
    cls = assistant(ScriptedModel(says("One."), says("Two.")))
    app = await open_app(cls)
    agent = app.agent(cls, "room")
    await agent.save_messages("first")
    (before,) = (await numbers(agent)).values()
    store = (await live(agent))._home.store
    await store.apply([Statement("UPDATE turns SET seq = ? WHERE agent = :agent", (NOON << 10,))])
    await app.close()

    # When the agent goes on
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("second")

    # Then the next number is above them
    assert before == 1
    assert sorted((await numbers(app.agent(cls, "room"))).values()) == [NOON << 10, (NOON << 10) + 1]


async def test_what_the_start_code_sends_runs_once(open_app: OpenApp, tmp_path: Path) -> None:
    # Given start code that sends turns, the first of which runs while the agent still starts
    go = asyncio.Event()
    model = ScriptedModel(says("A ").waits(go).says("whole."), says("B"), says("C"))

    async def on_start(self: Any, props: Any = None) -> None:
        for text in ("one", "two", "three"):
            await self.submit_messages(text, submission_id=text)

    cls = assistant(model, on_start=on_start)
    app = await open_app(cls)
    recoveries = Reports(app)
    await live(app.agent(cls, "room"))
    go.set()
    await all_over(app, cls, "room")

    # Then each is answered once, and nothing counts as cut off
    assert Database(tmp_path).texts() == ["one", "A whole.", "two", "B", "three", "C"]
    assert (len(model.requests), recoveries.names) == (3, [])


async def test_an_agent_with_many_turns_goes_on_without_looking_through_them(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an agent that has had more turns than share a mark
    monkeypatch.setattr("everthink.door.numbers.SPAN", 4)
    cls = assistant(ScriptedModel(says("Yes."), repeat=True))
    app = await open_app(cls)
    for number in range(6):
        await app.agent(cls, "room").save_messages(f"turn {number}")
    before = list((await numbers(app.agent(cls, "room"))).values())
    assert sorted(before) == [1, 2, 3, 4, 5, 6]
    await app.close()

    # When it starts anew and goes on
    app = await open_app(cls)
    agent = await live(app.agent(cls, "room"))
    found: list[str] = []
    fetch = type(agent._home.store.database).fetch

    async def watched(store: Any, sql: str, *params: Any, **whose: Any) -> Any:
        found.append(sql)
        return await fetch(store, sql, *params, **whose)

    monkeypatch.setattr(type(agent._home.store.database), "fetch", watched)
    await app.close()
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("one more")

    # Then no row was looked through, and its number is above all that were given
    assert found
    assert not [sql for sql in found if "MAX(seq)" in sql and "turns" in sql]
    assert max((await numbers(app.agent(cls, "room"))).values()) > 6


async def test_a_mark_that_could_not_be_stored_is_stored_with_the_next_turn(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a first turn above the mark whose commit fails
    monkeypatch.setattr("everthink.door.numbers.SPAN", 1)
    cls = assistant(ScriptedModel(says("Yes."), repeat=True))
    app = await open_app(cls)
    agent = await live(app.agent(cls, "room"))
    await agent.save_messages("first")
    write = agent.session.write

    async def refuses(*args: Any) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(agent.session, "write", refuses)
    with pytest.raises(StoreError):
        await agent.save_messages("lost")
    monkeypatch.setattr(agent.session, "write", write)

    # When the next one is stored, and the agent starts anew
    await agent.save_messages("second")
    (mark,) = await agent._home.store.fetch("SELECT value FROM kv WHERE agent = :agent AND name = ?", MARK)
    await app.close()
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("third")

    # Then no number is given twice
    given = sorted((await numbers(app.agent(cls, "room"))).values())
    assert len(set(given)) == 3
    assert given[-1] > int(mark[0]) >= given[-2]
