"""Limits on the time of a turn, a step, and the silence between two chunks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import TurnConfig, tool
from everthink.hooks import ChatResponse, Timeouts
from everthink.journal.turn_rows import all_turns
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import Play, ScriptedModel, calls, fails, hangs, opens, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import breathe, configured, soon, types, until, watch

pytestmark = pytest.mark.anyio


@pytest.mark.case(158)
@pytest.mark.parametrize(
    "timeout", [30, 30.0, Timeouts(total=30), Timeouts(step=30), Timeouts(chunk=30), Timeouts(60, 45, 30)]
)
@pytest.mark.parametrize(
    ("play", "said"), [(says("Half").then_hangs(), "Half"), (opens().then_hangs(), ""), (hangs(), "")]
)
async def test_running_out_of_time_aborts_the_turn(
    open_app: OpenApp, timeout: Any, play: Play, said: str
) -> None:
    # Given a model that goes silent, in a turn with a limit
    clock = ManualClock()
    errors: list[Any] = []
    responses: list[ChatResponse] = []
    model = ScriptedModel(play, says("Whole."))
    cls = assistant(
        model,
        before_turn=configured(TurnConfig(timeout=timeout)),
        on_chat_error=lambda self, error, ctx: errors.append(error),
        on_chat_response=lambda self, response: responses.append(response),
    )
    app = await open_app(cls, clock=clock)
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Hi"))
    await soon(model.until_silent())

    # When almost all of the time has passed, then it still runs
    await clock.advance(29.9)
    await breathe()
    assert not turn.done()

    # When it is up, then the turn is aborted like any other, with what was said kept
    await clock.advance(0.1)
    result = await soon(turn)
    assert (result.status, result.message is not None) == ("aborted", bool(said))
    assert "within 30 seconds" in result.error
    assert (errors, [response.status for response in responses]) == ([], ["aborted"])
    assert model.cut_off == 1
    assert result.text == said
    [row] = await all_turns((await live(handle))._home.store)
    assert "within 30 seconds" in str(row.error)

    # And the next turn has no limit
    assert (await handle.save_messages("Again")).text == "Whole."
    assert clock.waiting == 0


async def test_every_chunk_starts_the_chunk_limit_anew(open_app: OpenApp) -> None:
    # Given a model that is slow but never silent for long
    clock = ManualClock()
    gates = [asyncio.Event() for _ in range(4)]
    play = says("a")
    for gate in gates:
        play = play.waits(gate).says("b")
    model = ScriptedModel(play)
    app = await open_app(
        cls := assistant(model, before_turn=configured(TurnConfig(timeout=Timeouts(chunk=30)))), clock=clock
    )
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))

    # When it takes four times 29 seconds, then it may finish
    for gate in gates:
        await soon(model.until_silent())
        await clock.advance(29)
        gate.set()
    assert (await soon(turn)).text == "abbbb"
    assert clock.waiting == 0


async def test_every_step_starts_the_step_limit_anew_but_not_the_turns(open_app: OpenApp) -> None:
    # Given two steps of 20 seconds each
    clock = ManualClock()

    @tool
    async def work() -> None:
        """Work."""
        await clock.advance(20)

    async def run(timeout: Any) -> tuple[str, int]:
        model = ScriptedModel(calls("work"), calls("work"), says("Done."))
        cls = assistant(
            model,
            get_tools=lambda self: [work],
            before_turn=lambda self, turn: TurnConfig(timeout=timeout),
        )
        app = await open_app(cls, clock=clock)
        result = await soon(app.agent(cls, "room").save_messages("Work"))
        await app.close()
        return result.status, model.asked

    # Then a limit of 30 seconds lets them pass as steps, and stops them as a turn
    assert await run(Timeouts(step=30)) == ("completed", 3)
    assert await run(Timeouts(total=30)) == ("aborted", 2)
    assert await run(Timeouts(total=50, step=30)) == ("completed", 3)


@pytest.mark.parametrize("timeout", [Timeouts(total=30), Timeouts(step=30)])
async def test_a_tool_that_runs_when_time_is_up_is_stopped(open_app: OpenApp, timeout: Timeouts) -> None:
    clock = ManualClock()
    running, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> None:
        """Work."""
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    model = ScriptedModel(calls("work"))
    cls = assistant(model, get_tools=lambda self: [work], before_turn=configured(TurnConfig(timeout=timeout)))
    app = await open_app(cls, clock=clock)
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    turn = asyncio.create_task(handle.save_messages("Work"))
    await soon(running.wait())
    await clock.advance(30)
    assert (await soon(turn)).status == "aborted"
    await soon(stopped.wait())
    assert types(shown)[-1] == "tool-input-available"


async def test_waiting_for_the_next_try_counts(open_app: OpenApp) -> None:
    clock = ManualClock()
    model = ScriptedModel(fails("busy", kind="transient", retry_after=50), says("Never asked."))
    app = await open_app(cls := assistant(model, before_turn=configured(TurnConfig(timeout=30))), clock=clock)
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))
    await until(lambda: clock.waiting == 2)
    await clock.advance(30)
    assert (await soon(turn)).status == "aborted"
    assert (model.asked, clock.waiting) == (1, 0)


@pytest.mark.parametrize("timeout", [0, Timeouts(), Timeouts(total=0, step=0, chunk=0), None])
async def test_no_limit_is_no_limit(open_app: OpenApp, timeout: Any) -> None:
    clock = ManualClock()
    gate = asyncio.Event()
    model = ScriptedModel(says("a").waits(gate).says("b"))
    hook = configured(TurnConfig(timeout=timeout))
    app = await open_app(cls := assistant(model, before_turn=hook, model_timeout=None), clock=clock)
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))
    await soon(model.until_silent())
    assert clock.waiting == 0
    await clock.advance(1_000_000)
    gate.set()
    assert (await soon(turn)).text == "ab"


async def test_a_turn_that_ends_in_time_leaves_no_timer_behind(open_app: OpenApp) -> None:
    clock = ManualClock()
    model = ScriptedModel(says("Hello."), says("Half").then_fails("broken"))
    cls = assistant(model, before_turn=lambda self, turn: TurnConfig(timeout=Timeouts(30, 20, 10)))
    app = await open_app(cls, clock=clock)
    for text in ("1", "2"):
        await app.agent(cls, "room").save_messages(text)
        assert clock.waiting == 0
