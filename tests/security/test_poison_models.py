"""What a model, a tool or a provider gives that nobody can keep: an error of that turn, never of the next."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everthink import Message, tool
from everthink.models.port import AssistantMessage, FilePart, TextPart, ToolMessage, UserMessage
from everthink.prompt.wording import LEFT_OUT
from everthink.testing import ScriptedModel, calls_raw, says
from everthink.turn.calls import MAX_INPUT
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import prompt, record_events

from .poisoned import DEEP

pytestmark = pytest.mark.anyio


def nested(levels: int = 10_000) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@tool
async def look(where: Any = None) -> Any:
    """Look somewhere."""
    return nested() if where == "down" else "nothing"


def given(self: Any) -> Any:
    return [look]


HUGE = json.dumps({"where": "x" * 16_000_000})
INPUTS = {
    "nested 10,000 levels deep": (f'{{"where": {DEEP}}}', "levels deep"),
    "of 16 MB": (HUGE, f"more than the {MAX_INPUT}"),
    "that is no JSON": ("{broken", "not valid JSON"),
    "half a character": ('{"where": "\\ud83d"}', "not valid JSON"),
}


@pytest.mark.parametrize(("input", "words"), INPUTS.values(), ids=INPUTS)
async def test_the_model_is_told_what_is_wrong_with_its_input_and_the_conversation_goes_on(
    open_app: OpenApp, input: str, words: str
) -> None:
    model = ScriptedModel(calls_raw("look", input), says("I see."), says("Again."))
    cls = assistant(model, get_tools=given)
    app = await open_app(cls)
    assert (await app.agent(cls).save_messages("Look!")).text == "I see."
    assert words in str(model.requests[1].messages[-1])
    # What was refused is neither kept nor sent again
    await app.evict(cls, "default")
    assert (await app.agent(cls).save_messages("And?")).text == "Again."
    assert len(str(model.requests[2].messages)) < 10_000


async def test_a_tool_that_returns_what_is_nested_too_deep_has_failed(open_app: OpenApp) -> None:
    model = ScriptedModel(calls_raw("look", '{"where": "down"}'), says("I see."), says("Again."))
    cls = assistant(model, get_tools=given)
    app = await open_app(cls)
    assert (await app.agent(cls).save_messages("Look!")).text == "I see."
    last = model.requests[1].messages[-1]
    assert isinstance(last, ToolMessage)
    assert "levels deep" in str(last)
    assert (await app.agent(cls).save_messages("And?")).text == "Again."


class Broken:
    """A model of the application's own, whose stream brings what nobody can store."""

    name, continues = "broken", "prompt"

    def __init__(self, *events: Any) -> None:
        self._events, self.asked = events, 0

    async def stream(self, request: Any) -> Any:
        from everthink.models import port

        self.asked += 1
        yield port.Opened("r", "broken")
        yield port.TextDelta("t", "Half. ")
        if self.asked == 1:
            for event in self._events:
                yield event
        yield port.Finish("stop")


async def test_what_a_provider_says_and_nobody_can_keep_is_an_error_of_that_turn(open_app: OpenApp) -> None:
    from everthink.models import port

    poison = port.ProviderToolResult("c", "search", nested(), False, None)
    cls = assistant(Broken(port.ToolCallReady("c", "search", "{}", True, None), poison))
    app = await open_app(cls)
    result = await app.agent(cls).save_messages("Hello")
    assert result.status == "error"
    # What was said before it stays, and so does everybody's conversation
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Hello", "Half. "]
    assert (await app.agent(cls).save_messages("And?")).status == "completed"
    await app.evict(cls, "default")
    assert (await app.agent(cls).save_messages("And now?")).status == "completed"


async def test_a_message_that_cannot_be_put_into_words_is_noted_in_the_prompt(open_app: OpenApp) -> None:
    """A tool's own view of a result may break on what is stored: one message must not fail every turn."""
    model = ScriptedModel(says("One."), says("Two."), repeat=True)
    cls = assistant(model)
    app = await open_app(cls)
    told = record_events(app, "chat:stored:unreadable")
    await app.agent(cls).save_messages("Hello")
    agent = await live(app.agent(cls))
    part = {"type": "tool-look", "toolCallId": "c", "state": "output-denied", "input": {}, "approval": "no"}
    await agent.session.append_message(Message("bad", "assistant", [part]))
    for _ in range(2):
        assert (await app.agent(cls).save_messages("And?")).status == "completed"
    assert ("assistant", LEFT_OUT) in prompt(model.requests[1])
    assert [event.body.id for event in told] == ["bad"]


def test_what_was_said_before_is_left_out_of_a_request_that_no_provider_would_take() -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.test import TestModel

    from everthink.models.provider_request import UNSENDABLE, History

    broken = UserMessage([TextPart("Look:"), FilePart("data:image/png;base64,abcde", "image/png")])
    history = History(TestModel())
    # What is asked now is refused: whoever asked is told
    with pytest.raises(ValueError, match="base64"):
        history._map([broken])
    # Once it is past, it does not fail what follows
    told = str(history._map([broken, AssistantMessage([TextPart("Hm.")]), UserMessage([TextPart("And?")])]))
    assert UNSENDABLE in told
    assert "Look:" in told
