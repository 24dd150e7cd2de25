"""The stall watchdog: a model that falls silent does not hold the turn for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import TurnConfig
from everthink.testing import ManualClock, ScriptedModel, hangs, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

pytestmark = pytest.mark.anyio

STALLED = "Chat stream stalled: no activity for 5000ms; the turn was aborted by the stall watchdog."


@pytest.mark.case(47)
async def test_silence_beyond_the_window_fails_the_turn_and_keeps_what_was_said(open_app: OpenApp) -> None:
    # Given a model that falls silent, and five seconds of patience
    clock, model = ManualClock(), ScriptedModel(says("Half ").then_hangs(), says("Fine."))
    app = await open_app(cls := assistant(model, chat_stream_stall_timeout=5.0), clock=clock)
    told: list[dict[str, Any]] = []
    app.events.subscribe(lambda event: told.append(event.payload), type="chat:stream:stalled")
    agent = app.agent(cls, "room")
    turn = asyncio.create_task(agent.save_messages("Hi"))
    await model.until_silent()

    # When less, then more than that passes
    await clock.advance(4.9)
    assert not turn.done()
    await clock.advance(0.2)

    # Then the turn failed with that error, the model was let go, and the half answer is kept
    result = await turn
    assert (result.status, result.error, result.text) == ("error", STALLED, "Half ")
    assert told == [{"requestId": result.request_id, "timeoutMs": 5000}]
    assert model.cut_off == 1
    # And the next turn is fine
    assert (await agent.save_messages("Again")).text == "Fine."


@pytest.mark.case(46)
async def test_a_slow_but_steady_stream_is_left_alone(open_app: OpenApp) -> None:
    clock, goes = ManualClock(), [asyncio.Event() for _ in range(3)]
    play = says("a")
    for event in goes:
        play = play.waits(event).says("b")
    model = ScriptedModel(play)
    app = await open_app(cls := assistant(model, chat_stream_stall_timeout=5.0), clock=clock)
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))
    for event in goes:
        await model.until_silent()
        await clock.advance(4.0)
        event.set()
    assert (await turn).text == "abbb"


@pytest.mark.case(45, 53)
async def test_a_turn_may_have_a_window_of_its_own_and_zero_is_none(open_app: OpenApp) -> None:
    # Given an agent without a watchdog, and one turn with it
    clock, model = ManualClock(), ScriptedModel(hangs(), hangs())
    windows = [5.0, 0.0]
    app = await open_app(
        cls := assistant(
            model, before_turn=lambda self, turn: TurnConfig(chat_stream_stall_timeout=windows.pop(0))
        ),
        clock=clock,
    )
    agent = app.agent(cls, "room")
    first = asyncio.create_task(agent.save_messages("Hi"))
    await model.until_silent()
    await clock.advance(5.1)
    assert (await first).error == STALLED

    # When the next turn switches it off
    second = asyncio.create_task(agent.save_messages("Again"))
    await model.until_silent()
    await clock.advance(3600)

    # Then it waits until somebody stops it
    assert not second.done()
    await agent.abort_all_requests("enough")
    assert (await second).status == "aborted"
