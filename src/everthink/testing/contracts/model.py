"""What every `Model` must do. An adapter passes by subclassing `ModelContract` in its tests:

    pytestmark = pytest.mark.anyio

    class TestMyModel(ModelContract):
        @asynccontextmanager
        async def opened(self):
            yield MyModel(...)

The model must answer `GREETING` with text, call the tool `weather` when asked for `WEATHER` (with
`WEATHER_TOOL` on offer), say something about the result, and follow `PERSON` as output schema.
`answer` is a play that does all this. Needs pytest with the anyio plugin.
"""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import msgspec
import pytest

from ...errors import ModelError
from ...models.port import (
    AssistantMessage,
    Failed,
    Finish,
    Model,
    ModelEvent,
    ModelMessage,
    Opened,
    OutputSchema,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Request,
    Settings,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
    ToolCallPart,
    ToolCallReady,
    ToolInputDelta,
    ToolInputStart,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    UserMessage,
)
from ..scripted import Play, calls, says

__all__ = ["GREETING", "PERSON", "WEATHER", "WEATHER_TOOL", "ModelContract", "answer"]

GREETING = "Hello, who are you?"
WEATHER = "What is the weather in Paris?"
WEATHER_TOOL = ToolSpec(
    "weather",
    "Get the weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
PERSON = OutputSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    name="person",
)

_BLOCKS = ((TextStart, TextDelta, TextEnd), (ReasoningStart, ReasoningDelta, ReasoningEnd))


def answer(request: Request) -> Play:
    """What a scripted model says to pass: `ScriptedModel(answer, repeat=True)`."""
    if request.output is not None:
        return says('{"name": "Ada", ', '"age": 36}')
    asked = isinstance(request.messages[-1], UserMessage)
    if asked and request.tools and request.tool_choice != "none" and _says(request, WEATHER):
        return calls("weather", city="Paris")
    return says("It is ", "18 degrees." if not asked else "me, ", "a script.")


def _says(request: Request, text: str) -> bool:
    last = request.messages[-1]
    return isinstance(last, UserMessage) and any(
        isinstance(p, TextPart) and p.text == text for p in last.content
    )


def asking(text: str, *more: ModelMessage, **options: Any) -> Request:
    """A request with one question."""
    return Request("You are brief.", [UserMessage([TextPart(text)]), *more], **options)


async def hear(model: Model, request: Request) -> list[ModelEvent]:
    """Every event of one answer."""
    return [event async for event in model.stream(request)]


def text_of(events: Sequence[ModelEvent]) -> str:
    """What the answer said."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


class ModelContract:
    """One test per promise of the port."""

    def opened(self) -> AbstractAsyncContextManager[Model]:
        """A model, for as long as the block runs."""
        raise NotImplementedError

    def refused(self) -> AbstractAsyncContextManager[Model] | None:
        """A model whose calls never open, if there can be one."""
        return None

    async def test_it_has_a_name_and_says_how_it_continues(self) -> None:
        async with self.opened() as model:
            assert model.name
            assert model.continues in ("prefill", "prompt")

    async def test_an_answer_opens_first_and_finishes_last(self) -> None:
        async with self.opened() as model:
            events = await hear(model, asking(GREETING))
        assert [i for i, event in enumerate(events) if isinstance(event, Opened)] == [0]
        assert [i for i, event in enumerate(events) if isinstance(event, Finish)] == [len(events) - 1]
        assert not any(isinstance(event, Failed) for event in events)
        last = events[-1]
        assert isinstance(last, Finish)
        assert last.reason == "stop"
        assert text_of(events)

    async def test_blocks_start_once_end_once_and_speak_in_between(self) -> None:
        async with self.opened() as model:
            events = await hear(model, asking(GREETING))
        for start, delta, end in _BLOCKS:
            open_: set[str] = set()
            ended: set[str] = set()
            for event in events:
                if isinstance(event, start):
                    assert event.id not in open_ | ended
                    open_.add(event.id)
                elif isinstance(event, delta):
                    assert event.id in open_
                    assert event.text
                elif isinstance(event, end):
                    open_.remove(event.id)
                    ended.add(event.id)
            assert not open_

    async def test_a_call_is_written_out_before_it_is_ready(self) -> None:
        async with self.opened() as model:
            events = await hear(model, asking(WEATHER, tools=[WEATHER_TOOL]))
        ready = [event for event in events if isinstance(event, ToolCallReady)]
        assert [call.name for call in ready] == ["weather"]
        assert msgspec.json.decode(ready[0].input) == {"city": "Paris"}
        start = next(event for event in events if isinstance(event, ToolInputStart))
        written = "".join(event.delta for event in events if isinstance(event, ToolInputDelta))
        assert (start.id, start.name, written) == (ready[0].id, "weather", ready[0].input)
        last = events[-1]
        assert isinstance(last, Finish)
        assert last.reason == "tool-calls"

    async def test_a_result_is_answered_with_text(self) -> None:
        call = AssistantMessage([ToolCallPart("call_1", "weather", {"city": "Paris"})])
        result = ToolMessage([ToolResultPart("call_1", "weather", {"degrees": 18})])
        async with self.opened() as model:
            events = await hear(model, asking(WEATHER, call, result, tools=[WEATHER_TOOL]))
        assert "18" in text_of(events)
        assert not any(isinstance(event, ToolCallReady) for event in events)

    async def test_a_tool_that_must_be_called_is_called(self) -> None:
        async with self.opened() as model:
            events = await hear(model, asking(WEATHER, tools=[WEATHER_TOOL], tool_choice="tool:weather"))
        assert [event.name for event in events if isinstance(event, ToolCallReady)] == ["weather"]

    async def test_a_tool_that_must_not_be_called_is_not_called(self) -> None:
        async with self.opened() as model:
            events = await hear(model, asking(WEATHER, tools=[WEATHER_TOOL], tool_choice="none"))
        assert not any(isinstance(event, ToolCallReady) for event in events)

    async def test_structured_output_is_text_that_follows_the_schema(self) -> None:
        async with self.opened() as model:
            events = await hear(model, asking("Ada is 36.", output=PERSON))
        person = msgspec.json.decode(text_of(events))
        assert set(person) == {"name", "age"}
        assert isinstance(person["age"], int)

    async def test_the_request_is_left_as_it_was(self) -> None:
        request = asking(WEATHER, tools=[WEATHER_TOOL], settings=Settings(max_output_tokens=500))
        before = msgspec.json.encode(request)
        async with self.opened() as model:
            await hear(model, request)
        assert msgspec.json.encode(request) == before

    async def test_two_answers_at_once_do_not_mix(self) -> None:
        async with self.opened() as model:
            alone = text_of(await hear(model, asking(GREETING)))
            both = await asyncio.gather(hear(model, asking(GREETING)), hear(model, asking(GREETING)))
        assert [text_of(events) for events in both] == [alone, alone]

    async def test_an_answer_may_be_closed_early_and_the_model_asked_again(self) -> None:
        async with self.opened() as model:
            async with aclosing(model.stream(asking(GREETING))) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
            assert text_of(await hear(model, asking(GREETING)))

    async def test_cancelling_the_reader_propagates_and_the_model_can_be_asked_again(self) -> None:
        async with self.opened() as model:
            reading = asyncio.Event()

            async def read() -> None:
                async with aclosing(model.stream(asking(GREETING))) as events:
                    async for _ in events:
                        reading.set()
                        await asyncio.get_running_loop().create_future()

            task = asyncio.create_task(read())
            await reading.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert text_of(await hear(model, asking(GREETING)))

    async def test_a_refusal_is_a_model_error_before_the_first_event(self) -> None:
        if (refused := self.refused()) is None:
            pytest.skip("this model never refuses")
        async with refused as model:
            with pytest.raises(ModelError) as caught:
                await anext(model.stream(asking(GREETING)))
        assert caught.value.kind == "rate_limit"
