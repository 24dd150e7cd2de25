"""The two directions of the provider adapter, piece by piece."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import messages as ai
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from everthink.errors import ModelError
from everthink.models.port import (
    AssistantMessage,
    FilePart,
    Finish,
    GeneratedFile,
    ModelEvent,
    ModelMessage,
    Raw,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Request,
    Settings,
    Source,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolCallReady,
    ToolInputDelta,
    ToolMessage,
    ToolResultPart,
    Usage,
    UserMessage,
)
from everthink.models.provider_events import Translation, usage_of
from everthink.models.provider_model import ProviderModel
from everthink.models.provider_request import History, parameters
from everthink.testing.contracts.model import WEATHER_TOOL, asking, hear, text_of


def translate(*events: ai.ModelResponseStreamEvent) -> list[ModelEvent]:
    translation = Translation()
    mine = [event for theirs in events for event in translation.translate(theirs)]
    return [*mine, *translation.end_stream()]


def start(index: int, part: ai.ModelResponsePart) -> ai.PartStartEvent:
    return ai.PartStartEvent(index=index, part=part)


def delta(index: int, value: ai.ModelResponsePartDelta) -> ai.PartDeltaEvent:
    return ai.PartDeltaEvent(index=index, delta=value)


def end(index: int, part: ai.ModelResponsePart, following: Any = None) -> ai.PartEndEvent:
    return ai.PartEndEvent(index=index, part=part, next_part_kind=following)


def test_a_signature_that_comes_after_the_next_thought_belongs_to_its_own() -> None:
    first = ai.ThinkingPart("a", id="rs_1", provider_name="openai")
    second = ai.ThinkingPart("b", id="rs_1", provider_name="openai")
    events = translate(
        start(0, first),
        end(0, first, "thinking"),
        start(1, second),
        delta(0, ai.ThinkingPartDelta(signature_delta="sig", provider_name="openai")),
        end(1, second, "text"),
        start(2, ai.TextPart("x")),
        end(2, ai.TextPart("x")),
    )
    ends = [event for event in events if isinstance(event, ReasoningEnd)]
    assert ends == [
        ReasoningEnd("reasoning_1", {"openai": {"itemId": "rs_1"}}),
        ReasoningEnd("reasoning_0", {"openai": {"itemId": "rs_1", "signature": "sig"}}),
    ]
    assert [type(event).__name__ for event in events[-3:]] == ["TextStart", "TextDelta", "TextEnd"]


def test_calls_that_are_written_interleaved_are_ready_when_they_are_whole() -> None:
    a, b = ai.ToolCallPart("a", '{"x":', "1"), ai.ToolCallPart("b", '{"y":', "2")
    events = translate(
        start(0, a),
        end(0, a, "tool-call"),
        start(1, b),
        delta(0, ai.ToolCallPartDelta(args_delta="1}", tool_call_id="1")),
        delta(1, ai.ToolCallPartDelta(args_delta="2}", tool_call_id="2")),
        end(1, ai.ToolCallPart("b", '{"y":2}', "2")),
    )
    assert [(e.id, e.input) for e in events if isinstance(e, ToolCallReady)] == [
        ("2", '{"y":2}'),
        ("1", '{"x":1}'),
    ]
    assert [(e.id, e.delta) for e in events if isinstance(e, ToolInputDelta)] == [
        ("1", '{"x":'),
        ("2", '{"y":'),
        ("1", "1}"),
        ("2", "2}"),
    ]


def test_input_that_comes_as_an_object_is_written_as_json() -> None:
    part = ai.ToolCallPart("a", {"x": [1]}, "1")
    events = translate(start(0, part), end(0, part))
    assert [e.input for e in events if isinstance(e, ToolCallReady)] == ['{"x":[1]}']


def test_files_citations_and_unknown_parts() -> None:
    picture = ai.FilePart(ai.BinaryContent(b"abc", media_type="image/png"))
    web = ai.Citation([ai.WebCitationSource("https://a.example", title="A")])
    document = ai.Citation([ai.DocumentCitationSource(title="report.pdf")])
    compaction = ai.CompactionPart("short")
    events = translate(
        start(0, picture),
        start(1, ai.TextPart("Hi")),
        end(1, ai.TextPart("Hi")),
        delta(1, ai.TextPartDelta("", citations_delta=[web, document, web])),
        start(2, compaction),
    )
    assert GeneratedFile("data:image/png;base64,YWJj", "image/png") in events
    assert [(e.url, e.title, e.filename) for e in events if isinstance(e, Source)] == [
        ("https://a.example", "A", None),
        (None, "report.pdf", "report.pdf"),
    ]
    assert Raw(compaction) in events


def test_sealed_thoughts_say_so_from_the_start() -> None:
    part = ai.ThinkingPart("", id="redacted_thinking", signature="blob", provider_name="anthropic")
    events = translate(start(0, part), end(0, part))
    metadata = {"anthropic": {"redactedData": "blob"}}
    assert events == [ReasoningStart("reasoning_0", metadata), ReasoningEnd("reasoning_0", metadata)]


def test_counts_that_nobody_reported_are_unknown() -> None:
    assert usage_of(RequestUsage()) == Usage()
    assert usage_of(RequestUsage(input_tokens=3, output_tokens=4)) == Usage(3, 4, 7)
    so_far = Usage(1, 1, 2, cached_input_tokens=1)
    both = usage_of(RequestUsage(input_tokens=3, output_tokens=4, output_reasoning_tokens=2), so_far)
    assert both == Usage(4, 5, 9, reasoning_tokens=2, cached_input_tokens=1)


def mapped(*messages: ModelMessage) -> list[ai.ModelMessage]:
    return History(TestModel()).map(list(messages), ModelRequestParameters())


def user(text: str) -> UserMessage:
    return UserMessage([TextPart(text)])


def test_what_follows_each_other_on_one_side_is_one_request() -> None:
    call = AssistantMessage([ToolCallPart("c", "t", {"a": 1})])
    result = ToolMessage([ToolResultPart("c", "t", "ok")])
    first, answered, second = mapped(user("a"), user("b"), call, result, user("c"))
    assert [type(part).__name__ for part in first.parts] == ["UserPromptPart", "UserPromptPart"]
    assert [type(part).__name__ for part in answered.parts] == ["ToolCallPart"]
    assert [type(part).__name__ for part in second.parts] == ["ToolReturnPart", "UserPromptPart"]


def test_an_answer_of_which_nothing_may_be_sent_does_not_split_the_request() -> None:
    gone = AssistantMessage([FilePart("https://example.com/a.png", "image/png")])
    (only,) = mapped(user("a"), gone, user("b"))
    assert len(only.parts) == 2


@pytest.mark.parametrize(
    ("part", "kind", "value"),
    [
        (FilePart("data:text/plain,hello%20you", "text/plain"), ai.BinaryContent, b"hello you"),
        (FilePart("data:application/pdf;base64,YWJj", "application/pdf", "a.pdf"), ai.BinaryContent, b"abc"),
        (FilePart("data:image/png;base64,YWJj", "image/png"), ai.BinaryImage, b"abc"),
        (FilePart("https://e.example/a", "image/png"), ai.ImageUrl, "https://e.example/a"),
        (FilePart("https://e.example/a", "audio/wav"), ai.AudioUrl, "https://e.example/a"),
        (FilePart("https://e.example/a", "video/mp4"), ai.VideoUrl, "https://e.example/a"),
        (FilePart("https://e.example/a", "application/pdf"), ai.DocumentUrl, "https://e.example/a"),
    ],
)
def test_files_of_a_person(part: FilePart, kind: type, value: object) -> None:
    (request,) = mapped(UserMessage([TextPart("See"), part]))
    prompt = request.parts[0]
    assert isinstance(prompt, ai.UserPromptPart)
    file: Any = prompt.content[1]
    assert type(file) is kind
    assert (file.data if isinstance(file, ai.BinaryContent) else file.url) == value
    assert part.filename in (None, file.identifier)


def test_a_data_url_without_data_is_explained() -> None:
    with pytest.raises(ModelError, match="data: URL without data"):
        mapped(UserMessage([FilePart("data:oops", "image/png")]))


def test_a_message_is_mapped_once_and_again_when_it_gained_parts() -> None:
    history = History(TestModel())
    message = user("a")
    nothing = ModelRequestParameters()
    first = history.map([message], nothing)[0].parts[0]
    assert history.map([message], nothing)[0].parts[0] is first
    message.content.append(TextPart("b"))
    again = history.map([message], nothing)[0].parts[0]
    assert isinstance(again, ai.UserPromptPart)
    assert again.content == ["a", "b"]


def test_what_is_remembered_is_bounded() -> None:
    history = History(TestModel())
    for number in range(10_000):
        history.map([user(str(number))], ModelRequestParameters())
    assert len(history._known) <= 4096  # pyright: ignore[reportPrivateUsage]


def test_broken_input_in_history_is_still_sent_as_an_object() -> None:
    calls = AssistantMessage([ToolCallPart("c", "t", "{broken"), ToolCallPart("d", "t", [1])])
    (answered,) = mapped(calls)
    texts = [part.args_as_dict() for part in answered.parts if isinstance(part, ai.ToolCallPart)]
    assert texts == [{"INVALID_JSON": "{broken"}, {"value": [1]}]


def test_instructions_on_the_way_are_prepared_for_the_model() -> None:
    _, _, last = mapped(user("a"), AssistantMessage([TextPart("b")]), SystemMessage("be kind"), user("c"))
    assert "be kind" in str(last.parts)


def test_a_native_tool_nobody_has_is_explained() -> None:
    request = asking("x", settings=Settings(provider_options={"native_tools": ["teleport"]}))
    with pytest.raises(ModelError, match="web_search"):
        parameters(TestModel(), request)


@pytest.mark.anyio
async def test_any_model_of_pydantic_ai_can_be_used() -> None:
    async def function(messages: list[ai.ModelMessage], info: Any) -> Any:
        yield {0: DeltaThinkingPart(content="hm")}
        yield "Hel"
        yield "lo"
        yield {2: DeltaToolCall("weather", '{"city":', tool_call_id="c1")}
        yield {2: DeltaToolCall(json_args='"Rome"}')}

    model = ProviderModel(FunctionModel(stream_function=function))
    events = await hear(model, asking("Hi", tools=[WEATHER_TOOL]))
    assert text_of(events) == "Hello"
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["hm"]
    assert [e.input for e in events if isinstance(e, ToolCallReady)] == ['{"city":"Rome"}']
    assert isinstance(events[-1], Finish)


@pytest.mark.anyio
async def test_a_bug_in_a_model_is_an_unknown_model_error() -> None:
    async def function(messages: list[ai.ModelMessage], info: Any) -> Any:
        raise ZeroDivisionError("oops")
        yield ""

    with pytest.raises(ModelError, match="oops") as caught:
        await hear(ProviderModel(FunctionModel(stream_function=function)), Request("", [user("Hi")]))
    assert caught.value.kind == "unknown"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
