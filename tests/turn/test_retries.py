"""Model calls that did not open are tried again, while that may help."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import App, Think, TurnConfig, tool
from everthink.errors import ModelError
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import Play, ScriptedModel, calls, fails, opens, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import breathe, configured, soon, types, watch

pytestmark = pytest.mark.anyio

BUSY = fails("busy", kind="transient")


def delays_of(app: App) -> list[int]:
    """The delays in ms, as they are decided."""
    delays: list[int] = []
    app.events.subscribe(lambda event: delays.append(event.payload["delayMs"]), type="model:retry")
    return delays


async def patiently(clock: ManualClock, work: Any) -> Any:
    """Run `work`, moving the clock whenever somebody waits for it."""
    task = asyncio.ensure_future(work)
    while not task.done():
        waiting = asyncio.ensure_future(clock.until_waiting())
        await asyncio.wait([task, waiting], timeout=10, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not task.done():
            await clock.advance(1)
    return await task


@pytest.mark.case(650)
async def test_a_call_that_did_not_open_is_tried_again_after_two_then_four_seconds(open_app: OpenApp) -> None:
    # Given a provider that is busy twice
    clock = ManualClock()
    model = ScriptedModel(BUSY, BUSY, says("Hello."))
    app = await open_app(cls := assistant(model), clock=clock)
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    turn = asyncio.create_task(handle.save_messages("Hi"))

    # When time passes, then it is asked again exactly when it is due
    for asked, delay in ((1, 2.0), (2, 4.0)):
        await soon(clock.until_waiting())
        await clock.advance(delay - 0.001)
        await breathe()
        assert model.asked == asked
        await clock.advance(0.001)
        await breathe()
        assert model.asked == asked + 1

    # And the answer shows nothing of it
    result = await soon(turn)
    assert (result.status, result.text) == ("completed", "Hello.")
    assert types(shown).count("start-step") == 1
    assert model.requests[0] == model.requests[1] == model.requests[2]


@pytest.mark.case(650)
async def test_three_tries_are_made_and_then_the_last_error_is_told(open_app: OpenApp) -> None:
    clock = ManualClock()
    told: list[Any] = []
    model = ScriptedModel(BUSY, BUSY, fails("still busy", kind="rate_limit"), says("Never asked."))
    cls = assistant(model, on_chat_error=lambda self, error, ctx: told.append(error))
    app = await open_app(cls, clock=clock)
    delays = delays_of(app)
    result = await patiently(clock, app.agent(cls, "room").save_messages("Hi"))
    assert (result.status, result.error) == ("error", "Failed after 3 attempts. Last error: still busy")
    assert (model.asked, delays) == (3, [2000, 4000])
    (error,) = told
    assert isinstance(error, ModelError)
    assert (error.kind, error.status) == ("rate_limit", 429)
    assert str(error.__cause__) == "still busy"


@pytest.mark.case(158, 650)
@pytest.mark.parametrize(
    ("retries", "asked", "error"),
    [
        (0, 1, "busy"),
        (1, 2, "Failed after 2 attempts. Last error: busy"),
        (4, 5, "Failed after 5 attempts. Last error: busy"),
    ],
)
async def test_max_retries_says_how_often_for_that_turn(
    open_app: OpenApp, retries: int, asked: int, error: str
) -> None:
    clock = ManualClock()
    model = ScriptedModel(*[BUSY] * asked, BUSY, says("Hello."))
    config = TurnConfig(max_retries=retries)
    app = await open_app(cls := assistant(model, before_turn=configured(config)), clock=clock)
    handle = app.agent(cls, "room")
    result = await patiently(clock, handle.save_messages("Hi"))
    assert (result.error, model.asked) == (error, asked)

    # And the next turn has the usual number again
    assert (await patiently(clock, handle.save_messages("Hi"))).text == "Hello."


@pytest.mark.case(650)
@pytest.mark.parametrize(
    ("retry_after", "delay"),
    [(0.0, 0), (0.5, 500), (30.0, 30_000), (59.9, 59_900), (60.0, 2000), (3600.0, 2000), (-1.0, 2000)],
)
async def test_the_providers_wish_is_honoured_below_a_minute(
    open_app: OpenApp, retry_after: float, delay: int
) -> None:
    clock = ManualClock()
    model = ScriptedModel(fails("slow down", kind="rate_limit", retry_after=retry_after), says("Hello."))
    app = await open_app(cls := assistant(model), clock=clock)
    delays = delays_of(app)
    assert (await patiently(clock, app.agent(cls, "room").save_messages("Hi"))).text == "Hello."
    assert delays == [delay]


async def test_a_long_wish_is_honoured_when_our_own_delay_would_be_longer(open_app: OpenApp) -> None:
    clock = ManualClock()
    slow = fails("slow down", kind="rate_limit", retry_after=61.0)
    model = ScriptedModel(*[slow] * 6, says("Hello."))
    app = await open_app(
        cls := assistant(model, before_turn=configured(TurnConfig(max_retries=6))), clock=clock
    )
    delays = delays_of(app)
    assert (await patiently(clock, app.agent(cls, "room").save_messages("Hi"))).text == "Hello."
    assert delays == [2000, 4000, 8000, 16_000, 32_000, 61_000]


@pytest.mark.case(650)
@pytest.mark.parametrize(
    ("play", "error"),
    [
        (fails("bad key", kind="fatal", status=401), "bad key"),
        (fails("who knows", kind="unknown"), "who knows"),
        (fails("too long", kind="context_overflow"), "too long"),
        (Play().then_raises(ValueError("a bug")), "a bug"),
    ],
)
async def test_an_error_that_trying_again_cannot_mend_is_told_unchanged(
    open_app: OpenApp, play: Play, error: str
) -> None:
    clock = ManualClock()
    model = ScriptedModel(play, says("Never asked."))
    app = await open_app(cls := assistant(model), clock=clock)
    result = await soon(app.agent(cls, "room").save_messages("Hi"))
    assert (result.status, result.error, model.asked) == ("error", error, 1)
    assert clock.waiting == 0


@pytest.mark.case(650)
@pytest.mark.parametrize(
    "play",
    [
        opens().then_fails("busy", kind="transient"),
        opens().then_raises(ModelError("busy", kind="transient")),
        says("Half").then_fails("busy", kind="rate_limit"),
        says("Half").then_raises(ModelError("busy", kind="transient")),
    ],
)
async def test_nothing_is_tried_again_once_the_stream_has_opened(open_app: OpenApp, play: Play) -> None:
    clock = ManualClock()
    model = ScriptedModel(play, says("Never asked."))
    app = await open_app(cls := assistant(model), clock=clock)
    result = await soon(app.agent(cls, "room").save_messages("Hi"))
    assert (result.status, result.error, model.asked) == ("error", "busy", 1)
    assert clock.waiting == 0


async def test_each_step_has_its_own_tries(open_app: OpenApp) -> None:
    class Assistant(Think):
        model = ScriptedModel(BUSY, BUSY, calls("look"), BUSY, BUSY, says("Done."))

        @tool
        async def look(self) -> str:
            """Look."""
            return "seen"

    clock = ManualClock()
    app = await open_app(Assistant, clock=clock)
    delays = delays_of(app)
    result = await patiently(clock, app.agent(Assistant, "room").save_messages("Look"))
    assert result.text == "Done."
    assert delays == [2000, 4000, 2000, 4000]


@pytest.mark.case(650)
async def test_an_abort_ends_the_waiting_at_once(open_app: OpenApp) -> None:
    clock = ManualClock()
    model = ScriptedModel(BUSY, says("Never asked."))
    app = await open_app(cls := assistant(model), clock=clock)
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Hi"))
    await soon(clock.until_waiting())
    (await live(handle)).abort_all_requests()
    assert (await soon(turn)).status == "aborted"
    assert (model.asked, clock.waiting) == (1, 0)


async def test_hooks_are_asked_once_however_often_the_call_is_tried(open_app: OpenApp) -> None:
    clock = ManualClock()
    steps: list[int] = []
    model = ScriptedModel(BUSY, BUSY, says("Hello."))
    cls = assistant(model, before_step=lambda self, step: steps.append(step.step_number))
    app = await open_app(cls, clock=clock)
    await patiently(clock, app.agent(cls, "room").save_messages("Hi"))
    assert steps == [0]


async def test_each_try_is_told_to_observers(open_app: OpenApp) -> None:
    clock = ManualClock()
    model = ScriptedModel(BUSY, says("Hello."))
    app = await open_app(cls := assistant(model), clock=clock)
    seen: list[Any] = []
    app.events.subscribe(lambda event: seen.append(event.payload), type="model:retry")
    result = await patiently(clock, app.agent(cls, "room").save_messages("Hi"))
    (payload,) = seen
    assert payload["requestId"] == result.request_id
    assert (payload["attempt"], payload["delayMs"], payload["error"]) == (1, 2000, "busy")
