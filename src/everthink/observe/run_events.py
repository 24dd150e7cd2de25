"""What a parent reports of the runs of its children that nobody waits for."""

from __future__ import annotations

import logging

from .events import EventBody, event

__all__ = ["AgentToolDetachedDeliveryFailed", "AgentToolDetachedLiveCountWarning"]


@event("agent_tool:detached:delivery_failed", level=logging.WARNING)
class AgentToolDetachedDeliveryFailed(EventBody, frozen=True, kw_only=True):
    """Whoever was to be told of a detached run raised. It is tried again; `slot` is `finish` or `give_up`."""

    run_id: str
    slot: str
    error: str


@event("agent_tool:detached:live_count_warning", level=logging.WARNING)
class AgentToolDetachedLiveCountWarning(EventBody, frozen=True, kw_only=True):
    """An agent has very many detached runs at once. Told once, until they are fewer."""

    live_count: int
    threshold: int
