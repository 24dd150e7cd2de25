"""What is no play, and how that is told where it is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think, ToolError, tool
from everthink.errors import InvalidSettings
from everthink.testing import ScriptedModel, calls, says, waits
from tests.conftest import OpenApp
from tests.support.agents import assistant


class Cars(Think):
    @tool
    def rent(self, car: str) -> str:
        """Rent a car."""
        return car


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: calls("rent", "b"), r"calls: input is 'b', a str.*by name"),
        (lambda: calls(Cars.rent), r"calls: name is <Tool rent>.*the name of a tool, as text"),
        (lambda: waits(5), r"waits: gate is 5, an int.*asyncio\.Event"),
    ],
)
def test_what_is_no_play_is_refused_at_the_call(made: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        made()


def test_what_is_a_play_is_taken() -> None:
    event = asyncio.Event()
    assert waits(event).calls("rent", {"car": "b"}).waits(event.wait).beats


def test_a_function_of_a_script_is_not_async() -> None:
    async def play(request: Any) -> Any:
        return says("Hi.")

    with pytest.raises(InvalidSettings, match="play is async, and nobody awaits it"):
        ScriptedModel(play)


@pytest.mark.anyio
async def test_a_function_of_a_script_returns_a_play(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(lambda request: "Hi.")))  # type: ignore[arg-type,return-value]
    result = await app.agent(cls).save_messages("Hello")
    assert result.status == "error"
    assert "in the script of 'scripted' returned 'Hi.', a str" in (result.error or "")


def test_a_tool_s_error_may_be_anything_with_a_text() -> None:
    assert str(ToolError(5)) == "5"
    assert str(ToolError(KeyError("x"), next_step="Ask again.")) == "'x' Ask again."
