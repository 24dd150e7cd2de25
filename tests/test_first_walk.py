"""The first walk: one message, two tools, one answer."""

from __future__ import annotations

import pytest

from everthink import tool
from everthink.testing.scripted import ScriptedModel, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant

pytestmark = pytest.mark.anyio


@pytest.mark.case(2, 24)
async def test_a_message_is_answered_with_a_tool_and_everything_is_stored(open_app: OpenApp) -> None:
    # Given a model that thinks, asks for the weather and then answers
    model = ScriptedModel(thinks("hm").calls("weather", city="Paris"), says("It ", "rains."))

    @tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"rain in {city}"

    app = await open_app(cls := assistant(model, get_tools=lambda self: [weather]))

    # When somebody asks
    result = await app.agent(cls, "room").save_messages("Weather?")

    # Then the answer is whole, and stored after the question
    assert (result.status, result.text) == ("completed", "It rains.")
    question, answer = await app.agent(cls, "room").get_messages()
    assert (question.role, question.text, answer.text) == ("user", "Weather?", "It rains.")
    assert answer.tool_parts[0]["output"] == "rain in Paris"
