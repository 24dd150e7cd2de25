"""What a parent reports of the runs of its children: joined when it came back, or detached."""

from __future__ import annotations

import logging

from .events import EventBody, event

__all__ = [
    "AgentToolDetachedDeliveryFailed",
    "AgentToolDetachedLiveCountWarning",
    "AgentToolRecoveryReattach",
    "AgentToolRecoveryRow",
]


@event("agent_tool:recovery:reattach")
class AgentToolRecoveryReattach(EventBody, frozen=True, kw_only=True):
    """A parent that came back joins a run where it is. What a restart has cut off of it may be silent for
    `budget_ms`; `None`: for ever."""

    run_id: str
    agent_type: str
    budget_ms: int | None = None


@event("agent_tool:recovery:row")
class AgentToolRecoveryRow(EventBody, frozen=True, kw_only=True):
    """Such a run is over, or was left again. `elapsed_ms`: since it was joined."""

    run_id: str
    agent_type: str
    status: str
    reason: str | None = None
    elapsed_ms: int


@event("agent_tool:detached:delivery_failed", level=logging.WARNING)
class AgentToolDetachedDeliveryFailed(EventBody, frozen=True, kw_only=True):
    """Whoever was to be told of a detached run raised. It is tried again; `kind` is `finish` or `give_up`."""

    run_id: str
    kind: str
    status: str
    """How the run stands."""
    callback: str | None = None
    """The method that is told, if one is."""
    error: str


@event("agent_tool:detached:live_count_warning", level=logging.WARNING)
class AgentToolDetachedLiveCountWarning(EventBody, frozen=True, kw_only=True):
    """An agent has very many detached runs at once. Told once, until they are fewer."""

    live_count: int
    threshold: int
