"""What agents report, and how to follow it: events, the bus, OpenTelemetry (`observe.otel`)."""

from __future__ import annotations

from ..facades import help_from
from .bus import EventBus, Listener, Unsubscribe
from .events import Event, EventBody, event

__all__ = ["Event", "EventBody", "EventBus", "Listener", "Unsubscribe", "event"]

help_from(__name__)
