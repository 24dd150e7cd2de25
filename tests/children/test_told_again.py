"""Runs told to windows that come late: in the numbers they had live, and no more than fits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink import Think
from everthink.children import following, replaying
from everthink.children.replaying import replayed
from everthink.journal.feed import RunTold
from everthink.recovery import RecoveryDecision
from everthink.testing import ManualClock, ScriptedModel, says, waits
from tests.conftest import OpenApp
from tests.runtime.conftest import BOTH, Open
from tests.support.agents import live
from tests.support.hooks import until
from tests.support.runs import ends, pieces, run_frames, text_of
from tests.support.server import served

pytestmark = pytest.mark.anyio

BOTH_ENGINES = pytest.mark.parametrize("url", BOTH, indirect=True)


def family(*plays: Any, **members: Any) -> tuple[type[Think], type[Think]]:
    """A parent, and the class of its child, which follows a script."""

    class Helper(Think):
        model: Any = ScriptedModel(*plays)

    child = type("Helper", (Helper,), {"__module__": __name__, **members})

    class Boss(Think):
        model: Any = ScriptedModel()
        sub_agents = (child,)

    return Boss, child


# --- numbers


def starting_over(**members: Any) -> tuple[type[Think], type[Think]]:
    """A child whose turn begins anew after ten silent seconds."""
    return family(
        says("Half a ", "wrong ").then_hangs(),
        says("Whole."),
        chat_stream_stall_timeout=10,
        on_chat_recovery=lambda self, context: RecoveryDecision(persist=False),
        **members,
    )


@BOTH_ENGINES
async def test_a_turn_that_begins_anew_has_the_same_numbers_live_and_told_again(
    start: Open, clock: ManualClock
) -> None:
    cls, child = starting_over()
    app = await start(cls)
    async with served(app) as server:
        first = await server.connect(cls)
        asked = asyncio.ensure_future(app.agent(cls, "room").run_agent_tool(child, input="Go", run_id="r"))
        await first.until(lambda: "wrong" in text_of(first))
        said = set(pieces(first))
        second = await server.connect(cls)  # it saw the first beginning told again
        await second.until(lambda: set(pieces(second)) == said)
        await clock.advance(10)
        assert (await asked).summary == "Whole."
        late = await server.connect(cls)
        for tab in (first, second, late):
            await tab.until(lambda tab=tab: ends(tab))

        # No number is given twice, and each names the same piece to whoever is told of it
        assert run_frames(late)[-1]["sequence"] == run_frames(first)[-1]["sequence"]
        assert pieces(second) == pieces(first)
        assert text_of(first) == "Half a wrong Whole."
        again = {number: body for number, body in pieces(first).items() if number > max(said)}
        assert pieces(late) == again
        assert text_of(late) == "Whole."
        numbers = [frame["sequence"] for frame in run_frames(first)]
        assert numbers == list(range(len(numbers)))


@BOTH_ENGINES
async def test_numbers_go_on_when_the_next_process_begins_the_turn_anew(start: Open) -> None:
    cls, child = starting_over()
    app = await start(cls)
    async with served(app) as server:
        before = await server.connect(cls)
        await app.agent(cls, "room").run_agent_tool(child, input="Go", run_id="r", detached=True)
        await before.until(lambda: "wrong" in text_of(before))
    last = max(pieces(before))
    app = await start(cls)
    agent = app.agent(cls, "room")

    async def is_over() -> bool:
        return [run.status for run in await agent.list_agent_tool_runs()] == ["completed"]

    await until(is_over)
    async with served(app) as server:
        after = await server.connect(cls)
        await after.until(lambda: ends(after))
        assert text_of(after) == "Whole."
        # A window that has seen the first beginning takes none of it for what it knows
        assert min(pieces(after)) == last + 1
        assert run_frames(after)[-1]["sequence"] == max(pieces(after)) + 1


async def test_a_turn_that_begins_anew_while_it_is_joined_is_told_in_order(
    start: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the moment at which the journal is read and the one at which that is told."""
    cls, child = starting_over()
    app = await start(cls)
    agent = app.agent(cls, "room")
    asked = asyncio.ensure_future(agent.run_agent_tool(child, input="Go", run_id="r"))
    async with served(app) as server:
        tab = await server.connect(cls)
        await tab.until(lambda: "wrong" in text_of(tab))
        real = following.pieces_of

        async def slowly(store: Any, turn: str) -> tuple[int, list[str]]:
            found = await real(store, turn)
            await clock.advance(10)
            await asked
            return found

        monkeypatch.setattr(following, "pieces_of", slowly)
        told: list[tuple[int, str]] = []
        home: Any = (await live(agent))._home
        below = await home._kin.child(home.address.child("Helper", "r"))
        joined = following.Following(below, "r", lambda *piece: told.append(piece), lambda _: None)
        await joined.catch_up()
        joined.close()
        await tab.until(lambda: ends(tab))
        assert [number for number, _ in told] == list(pieces(tab))


@pytest.mark.agent_case(315)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_a_child_says_while_it_is_joined_is_told_once(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Before its journal is read it is in the journal as well; after that it is not."""
    gate, spoke = asyncio.Event(), asyncio.Event()
    cls, child = family(says("one ").waits(gate).says("two ").then_hangs())
    agent: Any = (await open_app(cls)).agent(cls, "room")
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=True)
    await child.model.until_silent()  # type: ignore[union-attr]
    home = (await live(agent))._home
    below = await home._kin.child(home.address.child("Helper", "r"))
    below.feed.join(lambda event: spoke.set() if "two " in str(event) else None)
    real = following.pieces_of

    async def meanwhile(store: Any, turn: str) -> tuple[int, list[str]]:
        found = await real(store, turn)
        gate.set()
        await spoke.wait()
        return found if when == "after" else await real(store, turn)

    monkeypatch.setattr(following, "pieces_of", meanwhile)
    told: list[tuple[int, str]] = []
    joined = following.Following(below, "r", lambda *piece: told.append(piece), lambda _: None)
    await joined.catch_up()
    joined.close()
    assert [number for number, _ in told] == list(range(1, len(told) + 1))
    deltas = [json.loads(body).get("delta", "") for _, body in told]
    assert "".join(deltas) == "one two "
    await agent.cancel_agent_tool("r")


@BOTH_ENGINES
@pytest.mark.agent_case(320, 378)
async def test_after_a_restart_what_the_child_says_in_its_run_is_told_and_nothing_else(start: Open) -> None:
    gate = asyncio.Event()
    cls, child = family(says("Half ").then_hangs(), waits(gate).says("whole."), says("None of yours."))
    app = await start(cls)
    async with served(app) as server:
        before = await server.connect(cls)
        await app.agent(cls, "room").run_agent_tool(child, input="Go", run_id="r", detached=True)
        await before.until(lambda: "Half" in text_of(before))
    app = await start(cls)
    agent: Any = app.agent(cls, "room")
    async with served(app) as server:
        after = await server.connect(cls)
        await after.until(lambda: "Half" in text_of(after))
        assert pieces(after) == pieces(before)
        gate.set()
        await after.until(lambda: bool(ends(after)))
        below: Any = await agent.sub_agent(child, "r")
        assert (await below.save_messages("And you?")).text == "None of yours."
        late = await server.connect(cls)
        await late.until(lambda: bool(ends(late)))
        for tab in (after, late):
            assert text_of(tab) == "Half whole."
            numbers = [frame["sequence"] for frame in run_frames(tab)]
            assert numbers == list(range(len(numbers)))


# --- how much


async def test_a_window_is_told_of_the_newest_runs_as_far_as_there_is_room(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [["x" * 1000] * 20, ["short"], ["y" * 1000] * 20, ["z" * 1000] * 20]
    cls, child = family(*(says(*deltas) for deltas in words))
    agent: Any = (await open_app(cls)).agent(cls, "room")
    for number in range(len(words)):
        await agent.run_agent_tool(child, input="Go", run_id=f"r{number}")
    store = (await live(agent))._home.store
    whole = by_run(await replayed(store))
    monkeypatch.setattr(replaying, "BYTES", 64_000)
    some = by_run(await replayed(store))

    # All runs are told, in their order; the oldest without what was said in it
    assert list(some) == list(whole) == ["r0", "r1", "r2", "r3"]
    assert {run: told for run, told in some.items() if run != "r0"} == {
        run: told for run, told in whole.items() if run != "r0"
    }
    assert [told.event["kind"] for told in some["r0"]] == ["started", "finished"]
    assert some["r0"] == [whole["r0"][0], whole["r0"][-1]]  # the number of its end says what is missing
    monkeypatch.setattr(replaying, "BYTES", 0)
    none = by_run(await replayed(store))
    assert none == {run: [told[0], told[-1]] for run, told in whole.items()}


async def test_of_a_run_that_does_not_fit_nothing_is_read(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls, child = family(says("x" * 100_000), says("short"))
    agent: Any = (await open_app(cls)).agent(cls, "room")
    for name in ("long", "short"):
        await agent.run_agent_tool(child, input="Go", run_id=name)
    read: list[str] = []
    real = replaying.pieces_of

    async def watched(store: Any, turn: str) -> tuple[int, list[str]]:
        read.append(turn)
        return await real(store, turn)

    monkeypatch.setattr(replaying, "pieces_of", watched)
    monkeypatch.setattr(replaying, "BYTES", 50_000)
    await replayed((await live(agent))._home.store)
    assert read == ["short"]


async def test_a_run_that_was_told_without_its_pieces_goes_on_live(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    cls, child = family(says("x" * 10_000).waits(gate).says("The end."))
    monkeypatch.setattr(replaying, "BYTES", 5_000)
    app = await open_app(cls)
    async with served(app) as server:
        tab = await server.connect(cls)
        asked = asyncio.ensure_future(app.agent(cls, "room").run_agent_tool(child, input="Go", run_id="r"))
        await tab.until(lambda: "xxx" in text_of(tab))
        late = await server.connect(cls)
        await late.until(lambda: bool(run_frames(late)))
        gate.set()
        await asked
        for one in (tab, late):
            await one.until(lambda one=one: ends(one))
        assert text_of(late) == "The end."
        assert pieces(late).items() <= pieces(tab).items()
        assert run_frames(late)[-1]["sequence"] == run_frames(tab)[-1]["sequence"]


def by_run(told: list[RunTold]) -> dict[str, list[RunTold]]:
    """What is told of each run."""
    found: dict[str, list[RunTold]] = {}
    for one in told:
        found.setdefault(one.run_id, []).append(one)
    return found
