"""A model that says nothing is given up after a while, in words that name the setting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import AgentError, App, Think, tool
from everthink.errors import ModelError
from everthink.models.classify import classify
from everthink.testing import ManualClock, ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

pytestmark = pytest.mark.anyio


async def begun(app: App, cls: type[Think], model: ScriptedModel) -> asyncio.Task[Any]:
    """A turn whose model has been asked, and has said what it has to say."""
    asked = asyncio.Event()
    app.events.subscribe(lambda event: event.type == "chat:step:start" and asked.set(), channel="chat")
    task = asyncio.ensure_future(app.agent(cls).save_messages("Hi"))
    await asked.wait()
    await settled(model)
    return task


async def settled(model: ScriptedModel) -> None:
    for _ in range(50):
        await asyncio.sleep(0)
    assert model.requests


@pytest.mark.parametrize("said", ["", "Half an answer"])
async def test_a_silent_model_is_given_up_and_the_error_names_the_limit(open_app: OpenApp, said: str) -> None:
    # Given a model that goes silent, at once or half way
    clock, model = (
        ManualClock(),
        ScriptedModel((says(said) if said else says("")).then_hangs(), says("Next.")),
    )
    app = await open_app(cls := assistant(model), clock=clock)
    turn = await begun(app, cls, model)

    # When the default time is over
    await clock.advance(299)
    assert not turn.done()
    await clock.advance(2)
    result = await turn

    # Then the turn fails in words, keeps what was said, and the next one runs
    assert result.status == "error"
    assert result.error is not None
    assert "said nothing for 300 s" in result.error
    assert "model_timeout" in result.error
    assert result.text == said
    assert len(model.requests) == 1
    assert (await app.agent(cls).save_messages("Again")).text == "Next."


async def test_how_long_is_a_setting(open_app: OpenApp) -> None:
    clock, model = ManualClock(), ScriptedModel(says("").then_hangs())
    app = await open_app(cls := assistant(model, model_timeout=20), clock=clock)
    turn = await begun(app, cls, model)
    await clock.advance(21)
    assert "said nothing for 20 s" in (await turn).error


@pytest.mark.parametrize("never", [0, None, float("inf")])
async def test_it_can_be_switched_off(open_app: OpenApp, never: Any) -> None:
    clock, model = ManualClock(), ScriptedModel(says("").then_hangs())
    app = await open_app(cls := assistant(model, model_timeout=never), clock=clock)
    turn = await begun(app, cls, model)
    await clock.advance(100_000)
    assert not turn.done()
    agent = await live(app.agent(cls))
    agent.abort_all_requests()
    assert (await turn).status == "aborted"


async def test_time_in_tools_does_not_count(open_app: OpenApp) -> None:
    clock, model = ManualClock(), ScriptedModel(calls("slow"), says("Done."))
    began = asyncio.Event()

    class Assistant(Think):
        @tool
        async def slow(self) -> str:
            """Take long."""
            began.set()
            await clock.sleep(3600)
            return "at last"

    cls = type("Assistant", (Assistant,), {"model": model})
    app = await open_app(cls, clock=clock)
    turn = asyncio.ensure_future(app.agent(cls).save_messages("Hi"))
    await began.wait()
    await clock.advance(3601)
    assert (await turn).text == "Done."


async def test_stopping_a_silent_model_is_stopping_it(open_app: OpenApp) -> None:
    clock, model = ManualClock(), ScriptedModel(says("").then_hangs())
    app = await open_app(cls := assistant(model), clock=clock)
    turn = await begun(app, cls, model)
    (await live(app.agent(cls))).abort_all_requests("enough")
    assert ((await turn).status, (await turn).error) == ("aborted", "enough")


async def test_generate_text_has_the_same_limit(open_app: OpenApp) -> None:
    clock, model = ManualClock(), ScriptedModel(says("").then_hangs())
    app = await open_app(cls := assistant(model, model_timeout=5), clock=clock)
    asked = asyncio.ensure_future((await live(app.agent(cls))).generate_text("Hi"))
    await settled(model)
    await clock.advance(6)
    with pytest.raises(ModelError, match="said nothing for 5 s"):
        await asked


def test_an_address_is_told_without_what_may_be_secret() -> None:
    error = classify(ConnectionError("refused"), model="local:m", address="http://me:pw@box:11434/v1?key=s3")
    assert "local:m could not be reached at http://box:11434/v1: refused" in str(error)
    assert isinstance(error, AgentError)
