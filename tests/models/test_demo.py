"""The first minute with the demo model."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from everthink.models.demo import DemoModel
from everthink.models.demo_tools import calls_for, instance
from everthink.models.port import (
    AssistantMessage,
    Finish,
    ModelEvent,
    ModelMessage,
    OutputSchema,
    ReasoningDelta,
    Request,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolCallReady,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    UserMessage,
)
from everthink.testing.contracts.model import text_of

pytestmark = pytest.mark.anyio


def tool(name: str, description: str, required: list[str] | None = None, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": required or list(properties)}
    return ToolSpec(name, description, schema)


STRING, NUMBER = {"type": "string"}, {"type": "number"}
WEATHER = tool(
    "get_weather", "Get the weather of a city.", ["city"], city=STRING, unit={"enum": ["celsius", "kelvin"]}
)
ADD = tool("add", "Add two numbers.", a=NUMBER, b=NUMBER)
SEARCH = tool("search_docs", "Search the documentation.", ["query"], query=STRING, limit={"type": "integer"})
EMAIL = tool("send_email", "Send an email.", to={"type": "string", "format": "email"}, subject=STRING)
REFUND = tool("refund", "Refund an order.", order_id=STRING, amount=NUMBER)
READ = tool("read", "Read a file of the workspace.", path=STRING)
TOOLS = [WEATHER, ADD, SEARCH, EMAIL, REFUND, READ]


async def say(
    text: str, *before: ModelMessage, tools: list[ToolSpec] = TOOLS, **options: Any
) -> list[ModelEvent]:
    request = Request("", [*before, UserMessage([TextPart(text)])], tools, **options)
    return [event async for event in DemoModel(pace=0).stream(request)]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("What is the weather in Paris?", [("get_weather", {"city": "Paris"})]),
        ("weather in new york please", [("get_weather", {"city": "new york"})]),
        (
            "Weather in San Francisco in kelvin",
            [("get_weather", {"city": "San Francisco", "unit": "kelvin"})],
        ),
        (
            "Weather in Paris and Rome?",
            [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})],
        ),
        ("add 2 and 3.5", [("add", {"a": 2, "b": 3.5})]),
        ("Search the docs for compaction", [("search_docs", {"query": "compaction"})]),
        ('search docs "fibers"', [("search_docs", {"query": "fibers"})]),
        ('Send an email to bob@x.org, "Hi"', [("send_email", {"to": "bob@x.org", "subject": "Hi"})]),
        ("refund order A-17, 20 dollars", [("refund", {"order_id": "A-17", "amount": 20})]),
        ("read notes/today.md", [("read", {"path": "notes/today.md"})]),
        ("I like to read", []),
        ("Do you know the capital of France?", []),
        ("", []),
    ],
)
async def test_the_tool_that_a_message_asks_for_is_called(text: str, calls: list[tuple[str, Any]]) -> None:
    events = await say(text)
    ready = [e for e in events if isinstance(e, ToolCallReady)]
    assert [(e.name, msgspec.json.decode(e.input)) for e in ready] == calls
    assert len({e.id for e in ready}) == len(calls)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("It is sunny in Paris", "It is sunny in Paris."),
        (5, "The answer is 5."),
        (True, "`get_weather` says yes."),
        (None, "Done: `get_weather` had nothing to add."),
        ([], "`get_weather` found nothing."),
        (["a", "b"], "`get_weather` found 2 things: a and b."),
        (
            {"city": "Paris", "degrees": 18, "rain_today": False},
            "`get_weather` gave me this: city is Paris, degrees is 18 and rain today is no.",
        ),
    ],
)
async def test_what_a_tool_gave_is_told_in_a_sentence(output: Any, said: str) -> None:
    call = AssistantMessage([ToolCallPart("demo_1", "get_weather", {"city": "Paris"})])
    result = ToolMessage([ToolResultPart("demo_1", "get_weather", output)])
    request = Request("", [UserMessage([TextPart("Weather in Paris?")]), call, result], TOOLS)
    events = [event async for event in DemoModel(pace=0).stream(request)]
    assert text_of(events) == said
    last = events[-1]
    assert isinstance(last, Finish)
    assert last.reason == "stop"


async def test_a_tool_that_failed_is_told_too() -> None:
    call = AssistantMessage([ToolCallPart("demo_1", "refund", {})])
    result = ToolMessage([ToolResultPart("demo_1", "refund", "Not approved", is_error=True)])
    request = Request("", [UserMessage([TextPart("refund")]), call, result], TOOLS)
    events = [event async for event in DemoModel(pace=0).stream(request)]
    assert text_of(events) == "I tried `refund`, but it did not work: Not approved."


async def test_a_second_call_of_a_conversation_has_a_new_id() -> None:
    call = AssistantMessage([ToolCallPart("demo_1", "add", {"a": 1, "b": 2})])
    result = ToolMessage([ToolResultPart("demo_1", "add", 3)])
    events = await say("add 3 and 4", UserMessage([TextPart("add 1 and 2")]), call, result)
    assert [e.id for e in events if isinstance(e, ToolCallReady)] == ["demo_2"]


@pytest.mark.parametrize("text", ["hi", "Hello!", "help", "/help", "who are you?", "what can you do?"])
async def test_it_says_what_it_is_and_what_to_try(text: str) -> None:
    said = text_of(await say(text))
    assert "I am the demo model" in said
    assert "`get_weather`" in said
    assert "Try" in said


async def test_it_admits_what_it_does_not_know() -> None:
    said = text_of(await say("What is the meaning of life?"))
    assert "What is the meaning of life?" in said
    assert "only the demo" in said


async def test_it_remembers_a_name_from_the_conversation() -> None:
    told = UserMessage([TextPart("Hi, my name is Ada")])
    assert "Your name is Ada." in text_of(
        await say("What is my name?", told, AssistantMessage([TextPart("Hi")]))
    )


async def test_it_thinks_aloud_and_speaks_word_by_word() -> None:
    events = await say("count to 3")
    assert any(isinstance(event, ReasoningDelta) for event in events)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["1, ", "2, ", "3."]


async def test_an_answer_that_was_cut_off_goes_on_at_the_word_where_it_stopped() -> None:
    whole = text_of(await say("tell me a story"))
    for cut in (1, 10, len(whole) // 2, len(whole)):
        for so_far in (whole[:cut], whole[:cut].rstrip()):
            request = Request(
                "", [UserMessage([TextPart("tell me a story")]), AssistantMessage([TextPart(so_far)])], TOOLS
            )
            rest = text_of([event async for event in DemoModel(pace=0).stream(request)])
            assert so_far + rest == whole


async def test_equal_conversations_get_equal_answers() -> None:
    assert await say("hi") == await say("hi")


@pytest.mark.parametrize("pace", [0, 0.01])
async def test_it_pauses_after_each_word_when_it_has_a_pace(
    pace: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("everthink.models.demo.asyncio.sleep", sleep)
    request = Request("", [UserMessage([TextPart("bye")])])
    async for _ in DemoModel(pace=pace).stream(request):
        pass
    assert bool(slept) == bool(pace)
    assert set(slept) <= {pace}


class Person(BaseModel):
    name: str = Field(min_length=3)
    age: int = Field(ge=0, le=150)
    email: str | None = None
    tags: list[str] = Field(min_length=2)
    mood: str = Field(json_schema_extra={"enum": ["good", "bad"]})
    home: Address


class Address(BaseModel):
    street: str
    number: float = Field(gt=0)


Person.model_rebuild()


async def test_structured_output_is_valid() -> None:
    events = await say(
        "Jane Doe is 42 and in a bad mood", tools=[], output=OutputSchema(Person.model_json_schema())
    )
    person = Person.model_validate_json(text_of(events))
    assert (person.name, person.age, person.mood) == ("Jane Doe", 42, "bad")


def test_an_empty_message_still_fills_a_schema() -> None:
    Person.model_validate(instance(Person.model_json_schema(), ""))


@given(st.text(max_size=80))
def test_any_message_fills_a_schema_and_picks_calls(text: str) -> None:
    Person.model_validate(instance(Person.model_json_schema(), text))
    for call in calls_for(text, TOOLS):
        assert set(call.input) >= set(next(t for t in TOOLS if t.name == call.name).input_schema["required"])


async def test_a_tool_that_must_be_called_is_called_whatever_was_said() -> None:
    for choice in ("tool:add", "required"):
        events = await say("blue", tool_choice=choice, tools=[ADD])
        assert [e.name for e in events if isinstance(e, ToolCallReady)] == ["add"]
