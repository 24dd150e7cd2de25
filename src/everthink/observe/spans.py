"""Turn events into OpenTelemetry spans.

    bus --Event--> SpanRecorder --> invoke_agent > chat > execute_tool

Parents are found by request id, never guessed. Besides, each span is made current in the
task that emitted its start, so that spans of user code and of HTTP clients nest below it.

Only the type of an error is recorded. A turn that was aborted is marked canceled, which
is not an error. Imported by `otel.instrument` alone: this module needs OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from ..models.port import Usage
from . import gen_ai
from .events import (
    ChatStepFinish,
    ChatStepStart,
    ChatTurnFinish,
    ChatTurnStart,
    Event,
    ModelRetry,
    ToolCallFinish,
    ToolCallStart,
)

__all__ = ["SpanRecorder"]

_CANCELED_TYPES = frozenset({"Aborted", "CancelledError"})
_OPEN = otel_context.create_key("everthink-open-span")


@dataclass(eq=False, slots=True)
class _Open:
    """A span that was started, and the context that was current before it."""

    span: Span
    before: Context
    ended: bool = False


@dataclass(eq=False, slots=True)
class _Turn:
    """The open spans of one turn, and what its steps have used so far."""

    own: _Open
    steps: dict[int, _Open] = field(default_factory=dict[int, _Open])
    calls: dict[str, _Open] = field(default_factory=dict[str, _Open])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    records_output: bool = False

    def children(self) -> list[_Open]:
        """Calls before steps: the innermost close first."""
        return [*self.calls.values(), *self.steps.values()]


class SpanRecorder:
    """A subscriber that opens and closes spans. `close` ends what is still open."""

    def __init__(self, tracer: Tracer, *, record_content: bool) -> None:
        self._tracer = tracer
        self._record_content = record_content
        self._turns: dict[tuple[str, str], _Turn] = {}

    def __call__(self, event: Event) -> None:
        """Follow one event. Those that make no span are ignored."""
        match event.body:
            case ChatTurnStart() as body:
                self._turn_started(event, body)
            case ChatTurnFinish() as body:
                self._turn_finished(event, body)
            case ChatStepStart() as body:
                self._step_started(event, body)
            case ChatStepFinish() as body:
                self._step_finished(event, body)
            case ToolCallStart() as body:
                self._call_started(event, body)
            case ToolCallFinish() as body:
                self._call_finished(event, body)
            case ModelRetry() as body:
                self._retried(event, body)
            case _:
                pass

    def close(self) -> None:
        """End every open span, marked as cut off."""
        for turn in self._turns.values():
            for opened in (*turn.children(), turn.own):
                self._end(opened, _truncate)
        self._turns.clear()

    # --- turns ---

    def _turn_started(self, event: Event, body: ChatTurnStart) -> None:
        key = (event.id, body.request_id)
        if left_open := self._turns.pop(key, None):
            for opened in (*left_open.children(), left_open.own):
                self._end(opened, _truncate)
        instance = event.id
        attributes: dict[str, AttributeValue] = {
            gen_ai.OPERATION: "invoke_agent",
            gen_ai.AGENT_NAME: event.agent,
            gen_ai.AGENT_ID: instance,
            gen_ai.CONVERSATION_ID: instance,
            gen_ai.REQUEST_ID: body.request_id,
            gen_ai.TRIGGER: body.trigger,
            gen_ai.CONTINUATION: bool(body.continuation),
        }
        own = self._start(f"invoke_agent {event.agent}", SpanKind.INTERNAL, None, attributes)
        self._turns[key] = _Turn(own)

    def _turn_finished(self, event: Event, body: ChatTurnFinish) -> None:
        turn = self._turns.pop((event.id, body.request_id), None)
        if turn is None:
            return
        mark = _outcome(body.status, body.error_type)
        for opened in turn.children():
            self._end(opened, mark)
        turn.own.span.set_attribute(gen_ai.STATUS, body.status)
        for name, tokens in turn.usage.items():
            turn.own.span.set_attribute(name, tokens)
        self._end(turn.own, mark)

    # --- steps ---

    def _step_started(self, event: Event, body: ChatStepStart) -> None:
        turn = self._turn(event, body.request_id)
        wanted = body.telemetry or {}
        if turn is None or wanted.get("is_enabled") is False:
            return
        provider, model = gen_ai.provider_and_model(body.model)
        attributes: dict[str, AttributeValue] = {
            gen_ai.OPERATION: "chat",
            gen_ai.REQUEST_MODEL: model,
            gen_ai.CONVERSATION_ID: event.id,
            gen_ai.STEP: body.step_number,
        }
        if provider is not None:
            attributes[gen_ai.PROVIDER] = provider
        attributes |= _asked_for(wanted)
        turn.records_output = bool(wanted.get("record_outputs", self._record_content))
        if wanted.get("record_inputs", self._record_content) and body.request is not None:
            attributes[gen_ai.SYSTEM_INSTRUCTIONS] = gen_ai.system_instructions(body.request)
            attributes[gen_ai.INPUT_MESSAGES] = gen_ai.input_messages(body.request)
        turn.steps[body.step_number] = self._start(f"chat {model}", SpanKind.CLIENT, turn.own, attributes)

    def _step_finished(self, event: Event, body: ChatStepFinish) -> None:
        turn = self._turn(event, body.request_id)
        step = turn.steps.pop(body.step_number, None) if turn else None
        if turn is None or step is None:
            return
        span = step.span
        span.set_attribute(gen_ai.FINISH_REASONS, (body.finish_reason,))
        if body.response_id is not None:
            span.set_attribute(gen_ai.RESPONSE_ID, body.response_id)
        if body.response_model is not None:
            span.set_attribute(gen_ai.RESPONSE_MODEL, body.response_model)
        for name, tokens in _tokens(body.usage):
            span.set_attribute(name, tokens)
            turn.usage[name] = turn.usage.get(name, 0) + tokens
        if turn.records_output and body.answer is not None:
            answer = gen_ai.output_messages(body.answer, body.finish_reason)
            span.set_attribute(gen_ai.OUTPUT_MESSAGES, answer)
        failed = body.error_type is not None or body.finish_reason == "error"
        self._end(step, _outcome("error" if failed else "completed", body.error_type))

    def _retried(self, event: Event, body: ModelRetry) -> None:
        turn = self._turn(event, body.request_id)
        if turn is None:
            return
        opened = next(reversed(turn.steps.values()), turn.own)
        attributes: dict[str, AttributeValue] = {
            "attempt": body.attempt,
            "delay_ms": body.delay_ms,
            gen_ai.ERROR_TYPE: body.error_type or gen_ai.OTHER_ERROR,
        }
        opened.span.add_event("model.retry", attributes)

    # --- tool calls ---

    def _call_started(self, event: Event, body: ToolCallStart) -> None:
        turn = self._turn(event, body.request_id)
        if turn is None:
            return
        attributes: dict[str, AttributeValue] = {
            gen_ai.OPERATION: "execute_tool",
            gen_ai.TOOL_NAME: body.tool_name,
            gen_ai.TOOL_TYPE: "function",
            gen_ai.TOOL_CALL_ID: body.tool_call_id,
        }
        if self._record_content:
            attributes[gen_ai.TOOL_ARGUMENTS] = gen_ai.as_json(body.input)
        # A call whose step has ended (or that a person approved before the first) hangs on the turn.
        parent = turn.own if body.step_number is None else turn.steps.get(body.step_number, turn.own)
        opened = self._start(f"execute_tool {body.tool_name}", SpanKind.INTERNAL, parent, attributes)
        turn.calls[body.tool_call_id] = opened

    def _call_finished(self, event: Event, body: ToolCallFinish) -> None:
        turn = self._turn(event, body.request_id)
        call = turn.calls.pop(body.tool_call_id, None) if turn else None
        if call is None:
            return
        if self._record_content and body.success:
            call.span.set_attribute(gen_ai.TOOL_RESULT, gen_ai.as_json(body.output))
        self._end(call, _outcome("completed" if body.success else "error", body.error_type))

    # --- spans ---

    def _turn(self, event: Event, request_id: str) -> _Turn | None:
        return self._turns.get((event.id, request_id))

    def _start(
        self, name: str, kind: SpanKind, parent: _Open | None, attributes: dict[str, AttributeValue]
    ) -> _Open:
        before = _without_ended(otel_context.get_current())
        above = before if parent is None else trace.set_span_in_context(parent.span, before)
        span = self._tracer.start_span(name, context=above, kind=kind, attributes=attributes)
        opened = _Open(span, before)
        inside = otel_context.set_value(_OPEN, opened, trace.set_span_in_context(span, before))
        otel_context.attach(inside)
        return opened

    def _end(self, opened: _Open, mark: Callable[[Span], None]) -> None:
        mark(opened.span)
        opened.span.end()
        opened.ended = True
        # Not detach(): the end may come from another task than the start, whose token it
        # refuses. Setting the context that was there before is right in either.
        now = otel_context.get_current()
        restored = _without_ended(now)
        if restored is not now:
            otel_context.attach(restored)


def _without_ended(current: Context) -> Context:
    """`current`, or the context before our ended spans when one of them is the current span."""
    while True:
        opened = otel_context.get_value(_OPEN, current)
        if not isinstance(opened, _Open) or not opened.ended:
            return current
        if trace.get_current_span(current) is not opened.span:
            return current
        current = opened.before


def _tokens(usage: Usage | None) -> list[tuple[str, int]]:
    if usage is None:
        return []
    named = (
        (gen_ai.INPUT_TOKENS, usage.input_tokens),
        (gen_ai.OUTPUT_TOKENS, usage.output_tokens),
        (gen_ai.CACHE_READ_TOKENS, usage.cached_input_tokens),
        (gen_ai.CACHE_WRITE_TOKENS, usage.cache_write_tokens),
        (gen_ai.REASONING_TOKENS, usage.reasoning_tokens),
    )
    return [(name, tokens) for name, tokens in named if tokens is not None]


def _outcome(status: str, error_type: str | None) -> Callable[[Span], None]:
    if status == "aborted" or (status == "error" and error_type in _CANCELED_TYPES):
        return _cancel
    if status == "error":
        return lambda span: _fail(span, error_type or gen_ai.OTHER_ERROR)
    return lambda span: None


def _cancel(span: Span) -> None:
    span.set_attribute(gen_ai.CANCELED, True)


def _fail(span: Span, error_type: str) -> None:
    span.set_attribute(gen_ai.ERROR_TYPE, error_type)
    span.set_status(Status(StatusCode.ERROR))


def _truncate(span: Span) -> None:
    span.set_attribute(gen_ai.TRUNCATED, True)


def _asked_for(telemetry: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """What `TurnConfig.telemetry` wants on the span of each model call."""
    attributes: dict[str, AttributeValue] = {}
    if telemetry.get("function_id"):
        attributes[gen_ai.FUNCTION_ID] = str(telemetry["function_id"])
    metadata = cast("dict[str, Any]", telemetry.get("metadata") or {})
    for name, value in metadata.items():
        plain = isinstance(value, str | bool | int | float)
        attributes[f"{gen_ai.METADATA}.{name}"] = value if plain else str(value)
    return attributes
