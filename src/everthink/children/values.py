"""What is said of a run of a child: how it stands, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from ..settings import check_fields

__all__ = [
    "CANCELLED",
    "FAILED",
    "INTERRUPTED",
    "AgentToolProgress",
    "AgentToolResult",
    "AgentToolRun",
    "Detached",
    "InterruptedReason",
    "MilestoneMode",
    "RunStatus",
    "SubAgent",
    "preview_of",
]

RunStatus = Literal["running", "completed", "error", "aborted", "interrupted"]
InterruptedReason = Literal["no-progress", "window-exceeded", "budget-exceeded"]
"""Why a run was left: nothing was heard of the child, or it took longer than it may."""
MilestoneMode = Literal["narrate", "react"]

LONGEST_PREVIEW = 500
CANCELLED = "agent tool run was cancelled"
INTERRUPTED = "agent tool run was interrupted before it finished; it can be retried"
FAILED = "agent tool run failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgent:
    """A child, as its parent lists it."""

    cls_name: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolProgress:
    """How far a child is with a run, as it reported."""

    fraction: float | None = None
    """From 0 to 1."""
    message: str | None = None
    phase: str | None = None
    data: Any = None
    milestone: str | None = None
    """The milestone that it passed, if it was one."""
    sequence: int | None = None
    """The number of that milestone in its run."""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Detached:
    """What becomes of a run that nobody waits for.

        await self.run_agent_tool(Researcher, input="…", detached=Detached(on_finish="research_done"))

    It is told at least once how the run ended; what is told must be fit to be heard twice.
    """

    on_finish: Any = None
    """The name of a method, `def research_done(self, run, result)`, that is called when the run is over, and
    when it is given up before that (`result.status` is `"interrupted"`)."""
    notify: bool | str = False
    """Whether the conversation gets a message of it, which the model answers. A text: where the message says
    that it comes from."""
    max_budget: float | None = None
    """Seconds after which the child is given up and stopped, whatever it does."""
    no_progress_budget: float | None = None
    """Seconds of silence after which it is, once it has reported progress."""
    on_milestones: Sequence[str] = ()
    """The milestones that the conversation is told of, each once."""
    milestone_mode: MilestoneMode = "narrate"
    """How: a message that the agent itself says, or (`"react"`) one that its model answers."""

    def __post_init__(self) -> None:
        check_fields(self, "Detached")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolRun:
    """One turn of a child, which its parent asked for."""

    run_id: str
    agent_type: str
    """The name of the child's class."""
    status: RunStatus
    parent_tool_call_id: str | None = None
    """The call of the parent's model that it answers, if it was one."""
    input_preview: str | None = None
    display: dict[str, Any] | None = None
    """How it is called and drawn: `name`, `icon`, …"""
    order: int = 0
    """Where it stands among the runs of one call."""
    is_detached: bool = False
    """True when nobody waits for it: its parent is told when it is over."""
    progress: AgentToolProgress | None = None
    """How far the child said it was, if it did."""
    started_at: datetime
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolResult:
    """What came of a run. Failures are told here and not raised."""

    run_id: str
    agent_type: str
    status: RunStatus
    output: Any = None
    """The value that the child's answer holds, when an `output` was asked for."""
    summary: str | None = None
    """What the child answered, as text."""
    error: str | None = None
    reason: InterruptedReason | None = None
    """Why it was left, when it was `interrupted`. That is not final: the child may still come to its end."""
    child_still_running: bool = False

    @property
    def is_retryable(self) -> bool:
        """True when asking again joins the child where it is."""
        return self.status == "interrupted"


def preview_of(input: Any, encode: Any) -> str | None:
    """The beginning of what a child was asked with, for people."""
    if input is None:
        return None
    if isinstance(input, str):
        return input[:LONGEST_PREVIEW]
    try:
        text: str = encode(input).decode()
    except (TypeError, ValueError):
        return str(input)[:LONGEST_PREVIEW]
    return text if len(text) <= LONGEST_PREVIEW else text[: LONGEST_PREVIEW - 3] + "..."
