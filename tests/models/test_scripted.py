"""The model that follows a script."""

from __future__ import annotations

import asyncio

import pytest

from everthink.errors import ModelError, ScriptExhausted
from everthink.models.port import (
    ApprovalResponse,
    AssistantMessage,
    Failed,
    FilePart,
    Finish,
    GeneratedFile,
    ModelEvent,
    ModelMessage,
    Opened,
    ProviderToolResult,
    ReasoningDelta,
    ReasoningEnd,
    Request,
    Source,
    SystemMessage,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
    ToolCallPart,
    ToolCallReady,
    ToolInputDelta,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    Usage,
    UserMessage,
)
from everthink.testing.scripted import (
    Play,
    ScriptedModel,
    attaches,
    calls,
    calls_raw,
    fails,
    hangs,
    opens,
    overflows,
    says,
    thinks,
    waits,
)

pytestmark = pytest.mark.anyio

OBJECT = {"type": "object", "properties": {}}


def user(text: str = "Hi") -> UserMessage:
    return UserMessage([TextPart(text)])


def asking(*messages: ModelMessage, **options: object) -> Request:
    return Request("", list(messages) or [user()], **options)  # type: ignore[arg-type]


async def hear(play: Play, request: Request | None = None) -> list[ModelEvent]:
    return [event async for event in ScriptedModel(play).stream(request or asking())]


async def test_each_argument_of_says_is_one_delta() -> None:
    assert await hear(says("Hello ", "world")) == [
        Opened("resp_1", "scripted"),
        TextStart("text_1"),
        TextDelta("text_1", "Hello "),
        TextDelta("text_1", "world"),
        TextEnd("text_1"),
        Finish("stop"),
    ]


async def test_text_that_follows_text_is_one_block_and_a_call_ends_it() -> None:
    events = await hear(says("a").says("b").calls("x").says("c"))
    blocks = [type(event).__name__ for event in events if isinstance(event, TextStart | TextDelta | TextEnd)]
    assert blocks == ["TextStart", "TextDelta", "TextDelta", "TextEnd", "TextStart", "TextDelta", "TextEnd"]


async def test_a_thought_ends_with_its_signature() -> None:
    events = await hear(thinks("hm", signature="s").says("ok"))
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["hm"]
    assert [e.provider_metadata for e in events if isinstance(e, ReasoningEnd)] == [
        {"anthropic": {"signature": "s"}}
    ]


async def test_a_call_writes_its_input_in_two_pieces() -> None:
    events = await hear(calls("weather", city="Paris"))
    assert [e.delta for e in events if isinstance(e, ToolInputDelta)] == ['{"city": ', '"Paris"}']
    assert [e for e in events if isinstance(e, ToolCallReady)] == [
        ToolCallReady("call_1", "weather", '{"city": "Paris"}')
    ]
    assert events[-1] == Finish("tool-calls")


async def test_calls_take_a_mapping_and_an_id_and_may_be_parallel() -> None:
    events = await hear(calls("a", {"id": 7}, id="mine").calls("b"))
    ready = [(e.id, e.name, e.input) for e in events if isinstance(e, ToolCallReady)]
    assert ready == [("mine", "a", '{"id": 7}'), ("call_1", "b", "{}")]


async def test_broken_input_is_kept() -> None:
    events = await hear(calls_raw("a", '{"x": ').calls_raw("b", ""))
    assert [e.input for e in events if isinstance(e, ToolCallReady)] == ['{"x": ', ""]


async def test_made_up_ids_are_new_in_the_conversation() -> None:
    model = ScriptedModel(calls("a"))
    old = AssistantMessage([ToolCallPart("call_1", "a", {})])
    request = asking(user(), old, ToolMessage([ToolResultPart("call_1", "a", 1)]), user())
    ready = [e.id async for e in model.stream(request) if isinstance(e, ToolCallReady)]
    assert ready == ["call_2"]


async def test_sources_files_usage_reasons_and_results_of_the_provider() -> None:
    play = (
        calls("search", q="x", provider_executed=True)
        .provider_result({"hits": 1})
        .says("Here.")
        .cites("https://a.example", title="A")
        .attaches(FilePart("data:,x", "text/plain"))
        .uses(10, 5, reasoning_tokens=2)
        .finishes("length", raw="max_tokens")
    )
    events = await hear(play)
    assert ProviderToolResult("call_1", "search", {"hits": 1}) in events
    assert any(isinstance(e, Source) and e.url == "https://a.example" for e in events)
    assert GeneratedFile("data:,x", "text/plain") in events
    assert events[-1] == Finish("length", Usage(10, 5, 15, reasoning_tokens=2), raw_reason="max_tokens")


async def test_a_failure_in_the_stream_is_its_last_event_and_comes_mid_block() -> None:
    events = await hear(says("Half").then_fails("boom", kind="fatal", status=400))
    last = events[-1]
    assert isinstance(last, Failed)
    assert (str(last.error), last.error.kind, last.error.status) == ("boom", "fatal", 400)
    assert not any(isinstance(event, TextEnd) for event in events)


async def test_fails_raises_before_anything_opens() -> None:
    with pytest.raises(ModelError) as caught:
        await hear(fails("slow", kind="rate_limit", retry_after=2))
    assert (caught.value.kind, caught.value.status, caught.value.retry_after) == ("rate_limit", 429, 2)


async def test_overflows_before_and_inside() -> None:
    with pytest.raises(ModelError) as caught:
        await hear(overflows())
    last = (await hear(says("a").then_overflows()))[-1]
    assert isinstance(last, Failed)
    assert caught.value.kind == last.error.kind == "context_overflow"


async def test_any_exception_may_be_raised_half_way() -> None:
    with pytest.raises(ZeroDivisionError):
        await hear(says("a").then_raises(ZeroDivisionError))
    with pytest.raises(ModelError):
        await hear(says("a").then(fails("late")))


async def test_hanging_lasts_until_cancelled_and_is_counted_as_cut_off() -> None:
    model = ScriptedModel(says("a").then_hangs())
    heard: list[ModelEvent] = []

    async def read() -> None:
        async for event in model.stream(asking()):
            heard.append(event)

    task = asyncio.create_task(read())
    await model.until_silent()
    assert heard[-1] == TextDelta("text_1", "a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await model.until_cut_off()
    assert model.cut_off == 1


@pytest.mark.parametrize(("play", "opened"), [(hangs(), False), (opens().then_hangs(), True)])
async def test_a_silence_at_the_start_is_before_or_after_the_opening(play: Play, opened: bool) -> None:
    model = ScriptedModel(play)
    events = model.stream(asking())
    if opened:
        assert isinstance(await anext(events), Opened)
    waiting = asyncio.ensure_future(anext(events))
    await model.until_silent()
    assert not waiting.done()
    waiting.cancel()


async def test_a_gate_holds_the_answer_without_sleeping() -> None:
    gate, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    model = ScriptedModel(waits(gate).says("a").waits(lambda: ready).says("b"))
    heard: list[str] = []

    async def read() -> None:
        async for event in model.stream(asking()):
            heard.append(type(event).__name__)

    task = asyncio.create_task(read())
    await model.until_silent()
    assert heard == []
    gate.set()
    await model.until_silent()
    assert heard == ["Opened", "TextStart", "TextDelta"]
    ready.set_result(None)
    await task
    assert heard[3:] == ["TextDelta", "TextEnd", "Finish"]


async def test_an_answer_read_to_its_end_was_not_cut_off() -> None:
    model = ScriptedModel(says("a"), says("b"))
    async for event in model.stream(asking()):
        if isinstance(event, Finish):
            break
    assert model.cut_off == 0
    events = model.stream(asking())
    await anext(events)
    await events.aclose()
    assert model.cut_off == 1


async def test_a_play_may_be_written_when_the_question_is_known() -> None:
    model = ScriptedModel(lambda request: says(f"{len(request.messages)} messages"))
    events = [event async for event in model.stream(asking())]
    assert TextDelta("text_1", "1 messages") in events


async def test_requests_are_recorded_as_they_were() -> None:
    model = ScriptedModel(says("a"))
    request = asking()
    [_ async for _ in model.stream(request)]
    request.messages.append(user("later"))
    request.tools.append(ToolSpec("t", "", OBJECT))
    request.system = "changed"
    request.settings.temperature = 1.0
    recorded = model.last_request
    assert (recorded.system, len(recorded.messages), recorded.tools) == ("", 1, [])
    assert recorded.settings.temperature is None


async def test_a_script_that_runs_out_says_what_was_asked() -> None:
    model = ScriptedModel(says("a"), name="tiny")
    [_ async for _ in model.stream(asking())]
    with pytest.raises(ScriptExhausted) as caught:
        await anext(model.stream(asking(user("And now?"))))
    assert "'tiny' has a script of 1 and was asked for answer 2: the user said 'And now?'." in str(
        caught.value
    )
    model.add(says("more"))
    assert model.remaining == 0  # the failed call counted


async def test_forever_repeats_and_keeps_nothing() -> None:
    model = ScriptedModel.forever(says("a"), says("b"))
    heard: list[str] = []
    for _ in range(5):
        heard += [event.text async for event in model.stream(asking()) if isinstance(event, TextDelta)]
    assert (heard, model.requests, model.asked) == (["a", "b", "a", "b", "a"], [], 5)


def test_plays_are_values() -> None:
    hello = says("Hello")
    assert hello.calls("x") != hello
    assert hello == says("Hello")
    assert says("a").then(calls("b")) == says("a").calls("b")
    assert attaches("data:,x", "text/plain") == attaches(GeneratedFile("data:,x", "text/plain"))


CALL = AssistantMessage([ToolCallPart("c", "t", {})])
RESULT = ToolMessage([ToolResultPart("c", "t", 1)])

REFUSED: dict[str, tuple[list[ModelMessage], str]] = {
    "nothing": ([], "at least one message"),
    "only approvals": ([ToolMessage([ApprovalResponse("a", "c", True)])], "at least one message"),
    "an empty user message": ([UserMessage([])], "empty user message"),
    "a blank user message": ([user("  ")], "empty user message"),
    "an empty assistant message": ([user(), AssistantMessage([]), user()], "empty assistant message"),
    "an empty system message": ([SystemMessage(""), user()], "empty system message"),
    "the assistant's last word": (
        [user(), AssistantMessage([TextPart("a")])],
        "must end with a user or tool",
    ),
    "a call without its result": (
        [user(), CALL, user()],
        "tool call 'c' (t) has no result before messages[2]",
    ),
    "a call at the end": ([user(), CALL], "has no result before the end"),
    "a result without its call": (
        [user(), RESULT],
        "result for 'c', which the message before it did not call",
    ),
    "a result for an older call": ([user(), CALL, RESULT, user(), RESULT], "did not call"),
    "two results": ([user(), CALL, RESULT, RESULT], "second result for tool call 'c'"),
    "two calls of one id": (
        [user(), AssistantMessage([ToolCallPart("c", "t", {}), ToolCallPart("c", "u", {})]), RESULT],
        "two tool calls with id 'c'",
    ),
    "input that is no object": (
        [user(), AssistantMessage([ToolCallPart("c", "t", "{broken")]), RESULT],
        "must be a JSON object",
    ),
    "a provider's call without its result": (
        [user(), AssistantMessage([ToolCallPart("c", "t", {}, provider_executed=True)]), user()],
        "provider-executed call 'c' (t) has no result",
    ),
    "a provider's result without its call": (
        [user(), AssistantMessage([ToolResultPart("c", "t", 1, provider_executed=True)]), user()],
        "was not asked to run",
    ),
}


@pytest.mark.parametrize(("messages", "rule"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_providers_refuse_is_refused(messages: list[ModelMessage], rule: str) -> None:
    request = Request("", messages)
    with pytest.raises(ModelError) as caught:
        await anext(ScriptedModel(says("a")).stream(request))
    assert rule in str(caught.value)
    assert (caught.value.kind, caught.value.status) == ("fatal", 400)
    await anext(ScriptedModel(says("a"), strict=False).stream(request))


@pytest.mark.parametrize(
    ("tools", "choice", "rule"),
    [
        (["a", "a"], "auto", "two tools are called 'a'"),
        (["bad name"], "auto", "must match"),
        ([], "required", "no tools are offered"),
        (["a"], "tool:b", "names a tool that is not offered"),
    ],
)
async def test_tools_that_providers_refuse_are_refused(tools: list[str], choice: str, rule: str) -> None:
    specs = [ToolSpec(name, "", OBJECT) for name in tools]
    with pytest.raises(ModelError) as caught:
        await anext(ScriptedModel(says("a")).stream(asking(tools=specs, tool_choice=choice)))
    assert rule in str(caught.value)


async def test_a_schema_that_is_no_object_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        await anext(ScriptedModel(says("a")).stream(asking(tools=[ToolSpec("a", "", {})])))
    assert 'must have "type": "object"' in str(caught.value)


async def test_what_providers_accept_is_accepted() -> None:
    both = AssistantMessage([TextPart("Now"), ToolCallPart("c", "t", {}), ToolCallPart("d", "t", {})])
    results = ToolMessage(
        [ToolResultPart("c", "t", 1), ApprovalResponse("a", "d", True), ToolResultPart("d", "t", 2)]
    )
    own = AssistantMessage(
        [
            ToolCallPart("s", "web", {}, provider_executed=True),
            ToolResultPart("s", "web", [], provider_executed=True),
        ]
    )
    messages = [
        SystemMessage("x"),
        user(),
        user(),
        both,
        results,
        own,
        SystemMessage("y"),
        user(),
        CALL,
        RESULT,
    ]
    await anext(ScriptedModel(says("a")).stream(Request("", messages)))


async def test_alternation_and_prefill_are_choices() -> None:
    twice = asking(user(), user())
    with pytest.raises(ModelError, match="roles must alternate"):
        await anext(ScriptedModel(says("a"), alternate=True).stream(twice))
    half = asking(user(), AssistantMessage([TextPart("Once upon")]))
    await anext(ScriptedModel(says("a"), continues="prefill").stream(half))
