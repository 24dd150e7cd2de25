"""How much of older messages the model is shown, and the setting for it."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import AgentError, Think, tool
from everthink.memory import Shortening
from everthink.models.port import ToolMessage, ToolResultPart
from everthink.session.row_size import shortening_of
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import live

LONG = "x" * 3000


def searching(**members: Any) -> tuple[type[Think], ScriptedModel]:
    model = ScriptedModel(calls("search"), says("Found."), *(says(f"Answer {n}.") for n in range(3)))

    class Assistant(Think):
        @tool
        def search(self) -> str:
            """Search."""
            return LONG

    return type("Assistant", (Assistant,), {"model": model, **members}), model


async def shown(open_app: OpenApp, **members: Any) -> list[int]:
    """How much of the first result the model sees, turn by turn."""
    cls, model = searching(**members)
    app = await open_app(cls)
    for text in ("Search", "And?", "And then?", "More"):
        await app.agent(cls).save_messages(text)
    return [
        len(str(part.output))
        for request in model.requests[1:]
        for message in request.messages
        if isinstance(message, ToolMessage)
        for part in message.content
        if isinstance(part, ToolResultPart)
    ]


@pytest.mark.anyio
async def test_old_results_are_shortened_by_default(open_app: OpenApp) -> None:
    assert await shown(open_app) == [3000, 3000, 3000, 500]


@pytest.mark.anyio
async def test_switched_off_they_stay_whole(open_app: OpenApp) -> None:
    assert await shown(open_app, shorten_old_messages=False) == [3000, 3000, 3000, 3000]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "setting",
    [
        Shortening(keep_recent_messages=2, max_output_chars=100),
        {"keepRecentMessages": 2, "max_output_chars": 100},
    ],
)
async def test_how_many_and_how_much_are_settings(open_app: OpenApp, setting: Any) -> None:
    assert await shown(open_app, shorten_old_messages=setting) == [3000, 3000, 100, 100]


@pytest.mark.anyio
async def test_an_agent_may_change_it_while_it_lives(open_app: OpenApp) -> None:
    cls, model = searching()
    app = await open_app(cls)
    agent = await live(app.agent(cls))
    for text in ("Search", "And?", "And then?"):
        await agent.save_messages(text)
    agent.shorten_old_messages = False
    await agent.save_messages("More")
    assert LONG in str(model.last_request.messages)


@pytest.mark.parametrize("wrong", [{"keep_recent": 2}, {"max_output_chars": 0}, {"max_text_chars": "all"}, 7])
def test_what_makes_no_sense_is_refused_with_the_field(wrong: Any) -> None:
    with pytest.raises(AgentError, match=r"short|keep_recent_messages|max_"):
        shortening_of(wrong)
