"""One conversation with a real provider adapter, over real HTTP, beat by beat."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from everthink.errors import ModelError, ScriptExhausted
from everthink.models.port import (
    ApprovalResponse,
    AssistantContent,
    AssistantMessage,
    Failed,
    FilePart,
    Finish,
    Model,
    ModelEvent,
    ModelMessage,
    Opened,
    ProviderToolResult,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningPart,
    Request,
    Settings,
    Source,
    SystemMessage,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolCallReady,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    Usage,
    UserMessage,
)
from everthink.testing.contracts.model import PERSON, WEATHER_TOOL, asking, hear, text_of
from everthink.testing.scripted import ScriptedModel, calls, calls_raw, fails, hangs, overflows, says, thinks
from everthink.testing.served import Endpoint, served

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Sampling parameters:UserWarning"),
]

TIME_TOOL = ToolSpec("time", "Tell the time.", {"type": "object", "properties": {}})
PIXEL = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n-a-pixel").decode()

Adapter = Callable[[Endpoint], Model]
ADAPTERS: dict[str, Adapter] = {
    "chat": lambda endpoint: endpoint.openai_model(),
    "responses": lambda endpoint: endpoint.openai_responses_model(),
    "anthropic": lambda endpoint: endpoint.anthropic_model(),
}


@pytest.fixture(params=ADAPTERS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def conversation(
    kind: str, *plays: object
) -> AsyncGenerator[tuple[Model, ScriptedModel, Endpoint], None]:
    scripted = ScriptedModel(*plays)  # type: ignore[arg-type]
    async with served(scripted) as endpoint:
        yield ADAPTERS[kind](endpoint), scripted, endpoint


def remember(events: list[ModelEvent]) -> AssistantMessage:
    """The answer as the loop keeps it."""
    thoughts: dict[str, str] = {}
    parts: list[AssistantContent] = []
    for event in events:
        match event:
            case ReasoningDelta():
                thoughts[event.id] = thoughts.get(event.id, "") + event.text
            case ReasoningEnd():
                parts.append(ReasoningPart(thoughts.get(event.id, ""), event.provider_metadata))
            case ToolCallReady():
                value = json.loads(event.input or "{}")
                parts.append(
                    ToolCallPart(
                        event.id, event.name, value, event.provider_executed, event.provider_metadata
                    )
                )
            case ProviderToolResult():
                parts.append(
                    ToolResultPart(
                        event.id,
                        event.name,
                        event.output,
                        event.is_error,
                        provider_executed=True,
                        provider_metadata=event.provider_metadata,
                    )
                )
            case _:
                pass
    if text := text_of(events):
        parts.append(TextPart(text))
    return AssistantMessage(parts)


def finish_of(events: list[ModelEvent]) -> Finish:
    last = events[-1]
    assert isinstance(last, Finish)
    return last


async def test_text_arrives_delta_by_delta(kind: str) -> None:
    async with conversation(kind, says("The capital ", "is ", "Paris.")) as (model, scripted, _):
        events = await hear(model, asking("Capital of France?"))

    assert [event.text for event in events if isinstance(event, TextDelta)] == [
        "The capital ",
        "is ",
        "Paris.",
    ]
    assert isinstance(events[0], Opened)
    assert (finish_of(events).reason, finish_of(events).response_id) == ("stop", "resp_1")
    assert scripted.last_request.system == "You are brief."
    assert scripted.last_request.messages == [UserMessage([TextPart("Capital of France?")])]


async def test_thinking_comes_with_its_signature_and_goes_back_on_the_next_request(kind: str) -> None:
    provider = "anthropic" if kind == "anthropic" else "openai"
    thought = thinks("Let me ", "see.", signature="sig-123", provider=provider).calls("time")
    async with conversation(kind, thought, says("Noon.")) as (model, scripted, _):
        question: list[ModelMessage] = [UserMessage([TextPart("What time is it?")])]
        events = await hear(model, Request("", question, [TIME_TOOL]))
        answered = remember(events)
        result = ToolMessage([ToolResultPart("call_1", "time", "12:00")])
        await hear(model, Request("", [*question, answered, result], [TIME_TOOL]))

    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["Let me ", "see."]
    sent_back = scripted.last_request.messages[1]
    assert isinstance(sent_back, AssistantMessage)
    thoughts = [part for part in sent_back.content if isinstance(part, ReasoningPart)]
    signed = None if kind == "chat" else {provider: {"signature": "sig-123"}}  # chat completions sign nothing
    assert thoughts == [ReasoningPart("Let me see.", signed)]


async def test_sealed_thinking_goes_back_as_it_came() -> None:
    sealed = thinks(redacted="b64-blob").calls("time")
    async with conversation("anthropic", sealed, says("Noon.")) as (model, scripted, _):
        events = await hear(model, asking("Time?", tools=[TIME_TOOL]))
        result = ToolMessage([ToolResultPart("call_1", "time", "12:00")])
        await hear(model, asking("Time?", remember(events), result, tools=[TIME_TOOL]))

    sent_back = scripted.last_request.messages[1]
    assert isinstance(sent_back, AssistantMessage)
    assert sent_back.content[0] == ReasoningPart("", {"anthropic": {"redactedData": "b64-blob"}})


async def test_thinking_of_another_provider_stays_at_home(kind: str) -> None:
    foreign = ReasoningPart("Secret thought", {"elsewhere": {"signature": "x"}})
    unsigned = ReasoningPart("Half a thou")
    history = AssistantMessage([foreign, unsigned, TextPart("Hello.")])
    async with conversation(kind, says("Fine.")) as (model, scripted, endpoint):
        await hear(model, asking("Hi", history, UserMessage([TextPart("How are you?")])))

    assert scripted.last_request.messages[1] == AssistantMessage([TextPart("Hello.")])
    assert "thou" not in str(endpoint.bodies[0])


async def test_two_calls_at_once_and_their_results(kind: str) -> None:
    both = says("One moment.").calls("weather", city="Paris").calls("time")
    async with conversation(kind, both, says("18 degrees, noon.")) as (model, scripted, _):
        tools = [WEATHER_TOOL, TIME_TOOL]
        events = await hear(model, asking("Weather and time?", tools=tools))
        results = ToolMessage(
            [
                ToolResultPart("call_1", "weather", {"degrees": 18}),
                ToolResultPart("call_2", "time", "no clock", is_error=True),
                ApprovalResponse("approval", "call_1", True),
            ]
        )
        await hear(model, asking("Weather and time?", remember(events), results, tools=tools))

    assert [(e.id, e.input) for e in events if isinstance(e, ToolCallReady)] == [
        ("call_1", '{"city": "Paris"}'),
        ("call_2", "{}"),
    ]
    assert finish_of(events).reason == "tool-calls"
    first, second = scripted.requests
    assert [(tool.name, tool.description) for tool in first.tools] == [
        ("weather", "Get the weather of a city."),
        ("time", "Tell the time."),
    ]
    told = second.messages[-1]
    assert isinstance(told, ToolMessage)
    assert [part.id for part in told.content if isinstance(part, ToolResultPart)] == ["call_1", "call_2"]
    weather, time = told.content
    assert isinstance(weather, ToolResultPart)
    assert isinstance(time, ToolResultPart)
    assert weather.output == '{"degrees":18}'
    assert time.is_error or "error" in time.output


async def test_structured_output_asks_for_the_schema(kind: str) -> None:
    async with conversation(kind, says('{"name":"Ada",', '"age":36}')) as (model, scripted, _):
        events = await hear(model, asking("Who?", output=PERSON))

    assert text_of(events) == '{"name":"Ada","age":36}'
    assert scripted.last_request.output is not None
    assert scripted.last_request.output.json_schema["properties"].keys() == {"name", "age"}


async def test_structured_output_of_a_model_without_it_is_a_call_that_reads_as_text() -> None:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    from everthink.models.provider_model import ProviderModel

    scripted = ScriptedModel(calls("person", name="Ada", age=36))
    async with served(scripted) as endpoint:
        provider = OpenAIProvider(base_url=f"{endpoint.url}/v1", api_key="sk-none")
        profile = OpenAIModelProfile(supports_json_schema_output=False, default_structured_output_mode="tool")
        model = ProviderModel(OpenAIChatModel("old-model", provider=provider, profile=profile))
        events = await hear(model, asking("Who?", output=PERSON))
        await model.aclose()

    assert text_of(events) == '{"name": "Ada", "age": 36}'
    assert not any(isinstance(event, ToolCallReady) for event in events)
    assert finish_of(events).reason == "stop"
    assert scripted.last_request.tool_choice in ("required", "tool:person")


@pytest.mark.parametrize("choice", ["auto", "none", "required", "tool:weather"])
async def test_the_tool_choice_reaches_the_provider(kind: str, choice: str) -> None:
    play = calls("weather", city="Rome") if choice in ("required", "tool:weather") else says("No.")
    async with conversation(kind, play) as (model, scripted, _):
        await hear(model, asking("Weather?", tools=[WEATHER_TOOL, TIME_TOOL], tool_choice=choice))

    assert scripted.last_request.tool_choice == choice


async def test_cancelling_mid_answer_closes_the_connection(kind: str) -> None:
    async with conversation(kind, says("Once upon ").then_hangs()) as (model, scripted, endpoint):
        heard = asyncio.Event()

        async def read() -> None:
            async for event in model.stream(asking("A story?")):
                if isinstance(event, TextDelta):
                    heard.set()

        reading = asyncio.create_task(read())
        await heard.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await endpoint.wait_for_disconnect()

    assert (endpoint.closed_connections, scripted.cut_off) == (1, 1)


async def test_closing_the_answer_closes_the_connection(kind: str) -> None:
    async with conversation(kind, says("Once upon ").then_hangs()) as (model, _, endpoint):
        async with aclosing(model.stream(asking("A story?"))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        await endpoint.wait_for_disconnect()

    assert endpoint.closed_connections == 1


async def test_cancelling_a_call_that_never_opened_closes_the_connection(kind: str) -> None:
    async with conversation(kind, hangs()) as (model, scripted, endpoint):
        reading = asyncio.ensure_future(anext(model.stream(asking("Anybody there?"))))
        await scripted.until_silent()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await endpoint.wait_for_disconnect()


async def test_a_conversation_that_is_too_long_is_an_overflow(kind: str) -> None:
    async with conversation(kind, overflows()) as (model, _, _):
        with pytest.raises(ModelError, match="prompt is too long") as caught:
            await hear(model, asking("x"))

    assert (caught.value.kind, caught.value.status) == ("context_overflow", 400)
    assert caught.value.__cause__ is not None


async def test_a_rate_limit_says_how_long_to_wait_and_the_next_call_goes_through(kind: str) -> None:
    limit = fails("Too many requests.", kind="rate_limit", retry_after=1.5)
    async with conversation(kind, limit, says("Hello.")) as (model, scripted, _):
        with pytest.raises(ModelError) as caught:
            await hear(model, asking("Hi"))
        assert text_of(await hear(model, asking("Hi"))) == "Hello."

    error = caught.value
    assert (error.kind, error.status, error.retry_after, error.is_retryable) == ("rate_limit", 429, 1.5, True)
    assert scripted.asked == 2  # the adapter itself did not retry


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *[(400, "fatal"), (401, "fatal"), (403, "fatal"), (404, "fatal"), (408, "transient")],
        *[(409, "transient"), (500, "transient"), (503, "transient"), (529, "transient")],
    ],
)
async def test_a_refusal_is_classified_by_its_status(kind: str, status: int, expected: str) -> None:
    async with conversation(kind, fails("Not now.", status=status)) as (model, scripted, _):
        with pytest.raises(ModelError) as caught:
            await hear(model, asking("Hi"))

    assert (caught.value.kind, caught.value.status) == (expected, status)
    assert scripted.asked == 1


async def test_usage_with_cached_and_reasoning_tokens(kind: str) -> None:
    play = says("Hi.").uses(100, 20, cached_input_tokens=60, reasoning_tokens=5)
    async with conversation(kind, play, says("Hi again.")) as (model, _, _):
        known = finish_of(await hear(model, asking("Hi")))
        unknown = finish_of(await hear(model, asking("Hi")))

    assert known.usage == Usage(100, 20, 120, reasoning_tokens=5, cached_input_tokens=60)
    assert unknown.usage == Usage()


async def test_tokens_written_to_the_cache_are_counted() -> None:
    play = says("Hi.").uses(100, 20, cached_input_tokens=60, cache_write_tokens=30)
    async with conversation("anthropic", play) as (model, _, _):
        usage = finish_of(await hear(model, asking("Hi"))).usage

    assert usage == Usage(100, 20, 120, cached_input_tokens=60, cache_write_tokens=30)


async def test_what_anthropic_read_from_and_wrote_to_its_cache_is_in_the_metadata() -> None:
    play = says("Hi.").uses(100, 20, cached_input_tokens=60, cache_write_tokens=30)
    async with conversation("anthropic", play) as (model, _, _):
        events = await hear(model, asking("Hi"))
    [finish] = [event for event in events if isinstance(event, Finish)]
    assert finish.provider_metadata is not None
    assert finish.provider_metadata["anthropic"] == {
        "cacheReadInputTokens": 60,
        "cacheCreationInputTokens": 30,
    }


async def test_a_setting_that_the_model_does_not_take_is_named() -> None:
    async with conversation("anthropic", says("Hi.")) as (model, _, _):
        request = asking("Hi")
        request.settings = Settings(seed=7, temperature=0.5)
        events = await hear(model, request)
    [finish] = [event for event in events if isinstance(event, Finish)]
    assert [warning.partition(" does not take ")[2] for warning in finish.warnings] == [
        "seed, which was left out."
    ]


@pytest.mark.parametrize(("status", "expected"), [(529, "transient"), (500, "transient")])
async def test_an_error_inside_the_answer_is_its_last_event(kind: str, status: int, expected: str) -> None:
    async with conversation(kind, says("Half an ans").then_fails("Overloaded", status=status)) as (
        model,
        _,
        _,
    ):
        events = await hear(model, asking("Hi"))

    assert text_of(events) == "Half an ans"
    last = events[-1]
    assert isinstance(last, Failed)
    assert "Overloaded" in str(last.error)
    assert last.error.kind == expected
    assert last.error.__cause__ is not None


async def test_an_overflow_inside_the_answer_is_an_overflow(kind: str) -> None:
    async with conversation(kind, says("Hm").then_overflows()) as (model, _, _):
        events = await hear(model, asking("Hi"))

    last = events[-1]
    assert isinstance(last, Failed)
    assert last.error.kind == "context_overflow"


async def test_a_connection_that_breaks_is_transient(kind: str) -> None:
    async with conversation(kind, says("Half an ans").then_raises(ConnectionError)) as (model, _, _):
        events = await hear(model, asking("Hi"))

    last = events[-1]
    assert isinstance(last, Failed)
    assert last.error.kind == "transient"


async def test_nobody_there_is_transient(kind: str) -> None:
    async with conversation(kind) as (model, _, endpoint):
        pass
    with pytest.raises(ModelError, match="could not be reached") as caught:
        await hear(ADAPTERS[kind](endpoint), asking("Hi"))
    assert caught.value.kind == "transient"
    await endpoint.close()
    assert model.name in str(caught.value)


async def test_nobody_there_is_told_with_the_address(kind: str) -> None:
    async with conversation(kind) as (_, _, endpoint):
        pass
    with pytest.raises(ModelError, match="could not be reached at http://127") as caught:
        await hear(ADAPTERS[kind](endpoint), asking("Hi"))
    await endpoint.close()
    assert f"could not be reached at {endpoint.url}" in str(caught.value)
    assert "Check that something answers at this address" in caught.value.next_step


@pytest.mark.parametrize(("reason", "raw"), [("length", None), ("content-filter", None)])
async def test_why_an_answer_ended(kind: str, reason: str, raw: str | None) -> None:
    async with conversation(kind, says("Cut").finishes(reason)) as (model, _, _):  # type: ignore[arg-type]
        finish = finish_of(await hear(model, asking("Hi")))

    assert finish.reason == reason
    assert finish.raw_reason


async def test_an_answer_without_an_end_is_not_said_to_be_complete(kind: str) -> None:
    async with conversation(kind, says("Hm").finishes("other", raw="")) as (model, _, endpoint):
        endpoint.model = _Endless()
        events = await hear(model, asking("Hi"))
    assert text_of(events) == "Half"
    assert not any(isinstance(event, Finish) for event in events)


class _Endless:
    """A provider that closes the connection politely in the middle of its answer."""

    name = "endless"
    continues = "prompt"

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        async with aclosing(ScriptedModel(says("Half")).stream(request)) as events:
            async for event in events:
                if not isinstance(event, Finish):
                    yield event


async def test_citations(kind: str) -> None:
    play = says("It rains.").cites("https://weather.example/paris", title="Paris")
    async with conversation(kind, play) as (model, _, _):
        events = await hear(model, asking("Weather?"))

    sources = [event for event in events if isinstance(event, Source)]
    assert [(source.url, source.title) for source in sources] == [("https://weather.example/paris", "Paris")]


async def test_a_tool_the_provider_runs_itself_and_its_way_back() -> None:
    found = {
        "type": "web_search_result",
        "url": "https://a.example",
        "title": "A",
        "encrypted_content": "xyz",
    }
    search = calls("web_search", query="news", id="srvtoolu_1", provider_executed=True).provider_result(
        [found]
    )
    async with conversation("anthropic", search.says("Here."), says("Bye.")) as (model, scripted, _):
        options = Settings(provider_options={"native_tools": ["web_search"]})
        events = await hear(model, asking("News?", settings=options))
        more = UserMessage([TextPart("Thanks")])
        await hear(model, asking("News?", remember(events), more, settings=options))

    ready = next(event for event in events if isinstance(event, ToolCallReady))
    assert (ready.name, ready.input, ready.provider_executed) == ("web_search", '{"query": "news"}', True)
    result = next(event for event in events if isinstance(event, ProviderToolResult))
    assert result.output[0]["url"] == "https://a.example"
    assert finish_of(events).reason == "stop"
    sent_back = scripted.last_request.messages[1]
    assert isinstance(sent_back, AssistantMessage)
    call, came_back, _ = sent_back.content
    assert isinstance(call, ToolCallPart)
    assert call.provider_executed
    assert isinstance(came_back, ToolResultPart)
    assert came_back.output[0]["encrypted_content"] == "xyz"


async def test_a_pause_of_the_provider_is_bridged() -> None:
    first = says("Let me search.").uses(10, 5).finishes("other", raw="pause_turn")
    async with conversation("anthropic", first, says("Found it.").uses(20, 7)) as (model, scripted, endpoint):
        scripted_options = Settings(provider_options={"native_tools": ["web_search"]})
        scripted.continues = "prefill"  # type: ignore[misc]
        events = await hear(model, asking("News?", settings=scripted_options))

    assert text_of(events) == "Let me search.Found it."
    assert len([event for event in events if isinstance(event, Opened)]) == 1
    assert finish_of(events).usage == Usage(30, 12, 42)
    assert len(endpoint.bodies) == 2


async def test_files_by_link_and_as_data(kind: str) -> None:
    link = FilePart("https://example.com/cat.png", "image/png")
    async with conversation(kind, says("Two pictures.")) as (model, scripted, _):
        content: list[TextPart | FilePart] = [TextPart("What is this?"), link, FilePart(PIXEL, "image/png")]
        await hear(model, Request("", [UserMessage(content)]))

    seen = scripted.last_request.messages[0]
    assert isinstance(seen, UserMessage)
    assert [part.url for part in seen.content if isinstance(part, FilePart)] == [link.url, PIXEL]
    assert seen.content[0] == TextPart("What is this?")


async def test_files_from_a_tool(kind: str) -> None:
    call = AssistantMessage([ToolCallPart("call_1", "time", {})])
    content: list[TextPart | FilePart] = [TextPart("A clock:"), FilePart(PIXEL, "image/png")]
    result = ToolMessage([ToolResultPart("call_1", "time", None, content=content)])
    async with conversation(kind, says("Noon.")) as (model, _, endpoint):
        await hear(model, asking("Time?", call, result, tools=[TIME_TOOL]))

    assert "A clock:" in str(endpoint.bodies[0])
    assert PIXEL.partition(",")[2] in str(endpoint.bodies[0])


async def test_instructions_on_the_way(kind: str) -> None:
    async with conversation(kind, says("Bien.")) as (model, _, endpoint):
        hello = AssistantMessage([TextPart("Hello.")])
        await hear(
            model,
            asking("Hi", hello, SystemMessage("Now speak French."), UserMessage([TextPart("How are you?")])),
        )

    assert "Now speak French." in str(endpoint.bodies[0])


async def test_settings_headers_and_options_reach_the_provider(kind: str) -> None:
    settings = Settings(
        max_output_tokens=77,
        headers={"x-trace": "abc"},
        provider_options={
            "parallel_tool_calls": False,
            "something_new": {"a": 1},
            "anthropic": {"service_tier": "standard_only"},
            "openai": {"service_tier": "flex"},
        },
    )
    async with conversation(kind, says("Ok.")) as (model, scripted, endpoint):
        await hear(model, asking("Hi", tools=[TIME_TOOL], settings=settings))

    body = endpoint.bodies[0]
    assert scripted.last_request.settings.max_output_tokens == 77
    assert endpoint.headers[0]["x-trace"] == "abc"
    assert body["something_new"] == {"a": 1}
    assert body["service_tier"] == ("standard_only" if kind == "anthropic" else "flex")
    assert "anthropic" not in body
    assert "openai" not in body


async def test_broken_tool_input_comes_through_as_written(kind: str) -> None:
    async with conversation(kind, calls_raw("weather", '{"city": "Par').calls("time")) as (model, _, _):
        events = await hear(model, asking("Weather?", tools=[WEATHER_TOOL, TIME_TOOL]))

    ready = {event.name: event.input for event in events if isinstance(event, ToolCallReady)}
    assert ready == {"weather": '{"city": "Par', "time": "{}"}


async def test_messages_of_a_growing_history_are_mapped_once() -> None:
    async with conversation("chat", says("a"), says("b"), says("c")) as (model, scripted, _):
        messages: list[ModelMessage] = [UserMessage([TextPart("one")])]
        for number in range(3):
            answer = remember(await hear(model, Request("", messages)))
            messages += [answer, UserMessage([TextPart(f"more {number}")])]

    said = [m.content[0].text for m in scripted.last_request.messages]  # type: ignore[union-attr]
    assert said == ["one", "a", "more 0", "b", "more 1"]


async def test_a_script_that_ran_out_fails_the_block() -> None:
    async def ask_twice() -> None:
        async with conversation("chat", says("a")) as (model, _, _):
            await hear(model, asking("Hi"))
            with pytest.raises(ModelError):
                await hear(model, asking("Hi"))

    with pytest.raises(ScriptExhausted, match="a script of 1 and was asked for answer 2"):
        await ask_twice()


async def test_no_key_is_in_any_error(kind: str) -> None:
    leaking = fails("Incorrect API key provided: sk-served-key / sk-ant-served-key", status=401)
    async with conversation(kind, leaking) as (model, _, _):
        with pytest.raises(ModelError, match="Check the API key") as caught:
            await hear(model, asking("Hi"))

    assert "served-key" not in str(caught.value)


async def test_the_last_answer_to_go_on_from_does_not_end_in_white_space() -> None:
    async with conversation("anthropic", says("Paris.")) as (model, scripted, _):
        scripted.continues = "prefill"  # type: ignore[misc]
        await hear(model, asking("Capital?", AssistantMessage([TextPart("The capital is ")])))

    assert scripted.last_request.messages[-1] == AssistantMessage([TextPart("The capital is")])
