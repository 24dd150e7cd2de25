"""OpenTelemetry, for those who use it.

    bus --Event--> otel.instrument --spans--> your tracer provider

Costs nothing until `instrument` is called; OpenTelemetry is imported only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MissingExtra
from .bus import EventBus, Unsubscribe

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["instrument"]


def instrument(
    bus: EventBus, *, tracer_provider: TracerProvider | None = None, record_content: bool = False
) -> Unsubscribe:
    """Record turns, model calls and tool calls as spans. Returns how to stop.

    Spans follow the gen_ai conventions: `invoke_agent {agent}` holds `chat {model}` holds
    `execute_tool {tool}`. `tracer_provider` is the global one unless given. What people,
    models and tools said is recorded only with `record_content`. Stopping ends the spans
    that are still open and marks them as cut off.
    """
    try:
        from opentelemetry import trace

        from .spans import SpanRecorder
    except ImportError as error:
        raise MissingExtra(
            "OpenTelemetry is not installed.", next_step='Install it with: pip install "everthink[otel]".'
        ) from error
    recorder = SpanRecorder(
        trace.get_tracer("everthink", tracer_provider=tracer_provider), record_content=record_content
    )
    unsubscribe = bus.subscribe(recorder, channel=("chat", "message"))

    def uninstrument() -> None:
        unsubscribe()
        recorder.close()

    return uninstrument
