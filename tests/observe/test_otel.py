from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from everthink.models.port import (
    AssistantMessage,
    FilePart,
    ReasoningPart,
    Request,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    Usage,
    UserMessage,
)
from everthink.observe import EventBus
from everthink.observe.bus import Unsubscribe
from everthink.observe.events import (
    ChatStepFinish,
    ChatStepStart,
    ChatTurnFinish,
    ChatTurnStart,
    EventBody,
    ModelRetry,
    ToolCallFinish,
    ToolCallStart,
    TurnStatus,
)
from everthink.observe.otel import instrument

pytestmark = pytest.mark.anyio

MODEL = "anthropic:claude-sonnet-4-5"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Traced:
    """An instrumented bus, and the spans that came out of it."""

    def __init__(self, *, record_content: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.bus = EventBus(now_ms=lambda: 0)
        self.stop: Unsubscribe = instrument(
            self.bus, tracer_provider=self.provider, record_content=record_content
        )

    def emit(self, *bodies: EventBody) -> None:
        for body in bodies:
            self.bus.emit("Support", "room-1", body)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def parent_of(self, name: str) -> str | None:
        by_id = {s.context.span_id: s.name for s in self.spans().values() if s.context}
        parent = self.spans()[name].parent
        return by_id[parent.span_id] if parent else None


@pytest.fixture
def traced() -> Iterator[Traced]:
    traced = Traced()
    yield traced
    traced.stop()


def turn_start(request_id: str = "r1") -> ChatTurnStart:
    return ChatTurnStart(request_id=request_id, trigger="programmatic", admission="queue")


def turn_finish(
    status: TurnStatus = "completed", *, request_id: str = "r1", error_type: str | None = None
) -> ChatTurnFinish:
    return ChatTurnFinish(
        request_id=request_id,
        trigger="programmatic",
        admission="queue",
        status=status,
        duration_ms=5,
        error="text that must not be recorded" if error_type else None,
        error_type=error_type,
    )


def step_start(number: int = 0, **content: Request) -> ChatStepStart:
    return ChatStepStart(request_id="r1", step_number=number, model=MODEL, **content)


def step_finish(number: int = 0, reason: str = "stop", **more: object) -> ChatStepFinish:
    fields: dict[str, object] = {
        "usage": Usage(input_tokens=10, output_tokens=4, cached_input_tokens=2),
        "response_id": "resp-1",
        "response_model": "claude-sonnet-4-5-20250929",
        **more,
    }
    return ChatStepFinish(
        request_id="r1",
        step_number=number,
        model=MODEL,
        finish_reason=reason,
        duration_ms=3,
        **fields,  # pyright: ignore[reportArgumentType]
    )


def call_start(call_id: str = "c1", *, step: int | None = 0, input: object = None) -> ToolCallStart:
    return ToolCallStart(
        request_id="r1", tool_call_id=call_id, tool_name=f"look_{call_id}", step_number=step, input=input
    )


def call_finish(
    call_id: str = "c1", *, error_type: str | None = None, output: object = None
) -> ToolCallFinish:
    return ToolCallFinish(
        request_id="r1",
        tool_call_id=call_id,
        tool_name=f"look_{call_id}",
        success=error_type is None,
        duration_ms=1,
        error="text that must not be recorded" if error_type else None,
        error_type=error_type,
        output=output,
    )


async def test_a_turn_its_model_calls_and_its_tools_are_nested_spans(traced: Traced) -> None:
    traced.emit(turn_start(), step_start(), call_start(), call_finish(), step_finish(), turn_finish())

    assert traced.parent_of("invoke_agent Support") is None
    assert traced.parent_of("chat claude-sonnet-4-5") == "invoke_agent Support"
    assert traced.parent_of("execute_tool look_c1") == "chat claude-sonnet-4-5"

    spans = traced.spans()
    assert spans["invoke_agent Support"].kind is SpanKind.INTERNAL
    assert spans["chat claude-sonnet-4-5"].kind is SpanKind.CLIENT
    assert dict(spans["invoke_agent Support"].attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "Support",
        "gen_ai.agent.id": "Support/room-1",
        "gen_ai.conversation.id": "Support/room-1",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "everthink.request.id": "r1",
        "everthink.turn.trigger": "programmatic",
        "everthink.turn.continuation": False,
        "everthink.turn.status": "completed",
    }
    assert dict(spans["chat claude-sonnet-4-5"].attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.conversation.id": "Support/room-1",
        "gen_ai.response.id": "resp-1",
        "gen_ai.response.model": "claude-sonnet-4-5-20250929",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 2,
        "everthink.step.number": 0,
    }
    assert dict(spans["execute_tool look_c1"].attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_c1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
    }
    assert all(span.status.status_code is StatusCode.UNSET for span in spans.values())


async def test_the_tokens_of_a_turn_are_the_sum_of_its_steps(traced: Traced) -> None:
    traced.emit(turn_start())
    for number in (0, 1):
        traced.emit(step_start(number), step_finish(number))
    traced.emit(turn_finish())

    attributes = traced.spans()["invoke_agent Support"].attributes or {}
    assert attributes["gen_ai.usage.input_tokens"] == 20
    assert attributes["gen_ai.usage.output_tokens"] == 8


async def test_a_call_outside_a_step_hangs_on_the_turn(traced: Traced) -> None:
    traced.emit(turn_start(), call_start(step=None), call_finish(), turn_finish())
    assert traced.parent_of("execute_tool look_c1") == "invoke_agent Support"


async def test_two_turns_at_once_do_not_mix(traced: Traced) -> None:
    traced.emit(turn_start("r1"))
    traced.bus.emit("Other", "room-2", turn_start("r1"))
    traced.emit(step_start(), step_finish(), turn_finish())
    traced.bus.emit("Other", "room-2", turn_finish())
    assert traced.parent_of("chat claude-sonnet-4-5") == "invoke_agent Support"


async def test_a_failed_turn_records_the_type_of_its_error_and_nothing_it_said(traced: Traced) -> None:
    traced.emit(turn_start(), step_start(), turn_finish("error", error_type="ModelError"))

    for span in traced.spans().values():
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "ModelError"
        assert "must not be recorded" not in span.to_json()
        assert span.events == ()


async def test_an_aborted_turn_is_canceled_not_failed(traced: Traced) -> None:
    traced.emit(turn_start(), step_start(), call_start())
    traced.emit(call_finish(error_type="CancelledError"), turn_finish("aborted"))

    assert len(traced.spans()) == 3
    for span in traced.spans().values():
        assert span.status.status_code is StatusCode.UNSET
        assert (span.attributes or {})["everthink.canceled"] is True
        assert "error.type" not in (span.attributes or {})


async def test_a_failing_tool_fails_its_own_span_only(traced: Traced) -> None:
    traced.emit(turn_start(), step_start(), call_start(), call_finish(error_type="KeyError"))
    traced.emit(step_finish(), turn_finish())

    spans = traced.spans()
    assert spans["execute_tool look_c1"].status.status_code is StatusCode.ERROR
    assert (spans["execute_tool look_c1"].attributes or {})["error.type"] == "KeyError"
    assert spans["invoke_agent Support"].status.status_code is StatusCode.UNSET


async def test_retries_are_marks_on_the_model_call(traced: Traced) -> None:
    retry = ModelRetry(request_id="r1", attempt=1, delay_ms=500, error="secret text", error_type="ModelError")
    traced.emit(turn_start(), step_start(), retry, step_finish(), turn_finish())

    [mark] = traced.spans()["chat claude-sonnet-4-5"].events
    assert mark.name == "model.retry"
    assert dict(mark.attributes or {}) == {"attempt": 1, "delay_ms": 500, "error.type": "ModelError"}


async def test_spans_of_user_code_nest_below_the_tool_that_runs_it(traced: Traced) -> None:
    tracer = traced.provider.get_tracer("user")

    async def run_tool(call_id: str) -> None:
        traced.emit(call_start(call_id))
        await asyncio.sleep(0)
        with tracer.start_as_current_span(f"query {call_id}"):
            await asyncio.sleep(0)
        await asyncio.to_thread(lambda: tracer.start_span(f"thread {call_id}").end())
        traced.emit(call_finish(call_id))

    traced.emit(turn_start(), step_start())
    await asyncio.gather(run_tool("c1"), run_tool("c2"))
    traced.emit(step_finish(), turn_finish())

    for call_id in ("c1", "c2"):
        assert traced.parent_of(f"query {call_id}") == f"execute_tool look_{call_id}"
        assert traced.parent_of(f"thread {call_id}") == f"execute_tool look_{call_id}"


async def test_a_turn_nests_below_the_span_it_was_started_in_and_leaves_it_current(traced: Traced) -> None:
    tracer = traced.provider.get_tracer("user")
    with tracer.start_as_current_span("request") as request:
        traced.emit(turn_start(), step_start(), call_start("c1"), call_start("c2"))
        # Out of order on purpose: neither leaves an ended span behind as the current one.
        traced.emit(call_finish("c1"), call_finish("c2"), step_finish(), turn_finish())
        assert trace.get_current_span() is request
    assert traced.parent_of("invoke_agent Support") == "request"


async def test_starting_and_finishing_in_different_tasks_is_fine(
    traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    traced.emit(turn_start())

    async def elsewhere() -> None:
        traced.emit(step_start(), step_finish(), turn_finish())

    await asyncio.create_task(elsewhere())
    # This task still holds the ended span; the next turn must not become its child.
    traced.exporter.clear()
    traced.emit(turn_start("r2"), turn_finish(request_id="r2"))

    assert traced.parent_of("invoke_agent Support") is None
    assert caplog.records == []


async def test_what_was_said_is_recorded_only_when_asked_for() -> None:
    request = Request(
        system="Be kind.",
        messages=[
            UserMessage([TextPart("hello"), FilePart("data:image/png;base64,AAAA", "image/png")]),
            AssistantMessage([ReasoningPart("hm"), ToolCallPart("c0", "look_c0", {"q": 1})]),
            ToolMessage([ToolResultPart("c0", "look_c0", "found")]),
        ],
    )
    bodies = (
        turn_start(),
        step_start(request=request),
        call_start(input={"city": "Paris"}),
        call_finish(output={"sunny": True}),
        step_finish(answer=AssistantMessage([TextPart("hi")])),
        turn_finish(),
    )

    silent, open_ = Traced(), Traced(record_content=True)
    for traced in (silent, open_):
        traced.emit(*bodies)
        traced.stop()

    for span in silent.spans().values():
        assert not [said for said in ("hello", "Paris", "sunny", "Be kind") if said in span.to_json()]

    chat = open_.spans()["chat claude-sonnet-4-5"].attributes or {}
    tool = open_.spans()["execute_tool look_c1"].attributes or {}
    assert json.loads(str(chat["gen_ai.system_instructions"])) == [{"type": "text", "content": "Be kind."}]
    assert json.loads(str(chat["gen_ai.input.messages"])) == [
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "hello"},
                {"type": "uri", "mime_type": "image/png", "uri": "data:"},
            ],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "c0", "name": "look_c0", "arguments": {"q": 1}},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c0", "response": "found"}]},
    ]
    assert json.loads(str(chat["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "hi"}], "finish_reason": "stop"}
    ]
    assert json.loads(str(tool["gen_ai.tool.call.arguments"])) == {"city": "Paris"}
    assert json.loads(str(tool["gen_ai.tool.call.result"])) == {"sunny": True}


async def test_stopping_ends_open_spans_and_marks_them_as_cut_off(traced: Traced) -> None:
    traced.emit(turn_start(), step_start())
    traced.stop()
    traced.emit(step_finish(), turn_finish())

    assert len(traced.spans()) == 2
    assert all((span.attributes or {})["everthink.truncated"] is True for span in traced.spans().values())


async def test_a_turn_taken_up_again_cuts_off_the_span_it_left_behind(traced: Traced) -> None:
    traced.emit(turn_start(), turn_start(), turn_finish())
    first, second = traced.exporter.get_finished_spans()
    assert (first.attributes or {})["everthink.truncated"] is True
    assert "everthink.truncated" not in (second.attributes or {})
    assert second.parent is None


async def test_events_of_a_turn_nobody_saw_start_are_ignored(traced: Traced) -> None:
    traced.emit(step_start(), call_start(), call_finish(), step_finish(), turn_finish())
    assert traced.spans() == {}


@pytest.mark.slow
def test_without_opentelemetry_the_error_says_what_to_install() -> None:
    script = """
import sys
sys.modules["opentelemetry"] = None
from everthink.errors import MissingExtra
from everthink.observe import EventBus
from everthink.observe.otel import instrument
try:
    instrument(EventBus(now_ms=lambda: 0))
except MissingExtra as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 'pip install "everthink[otel]"' in ran.stdout
