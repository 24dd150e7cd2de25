"""The runs of an agent's children, as a client is told of them.

    AgentToolEvent --take--> Runs --> ChildRun, as it is now; RunEvent, what is new

Pure. A piece is told by its number, which is the same live and told again after a lost connection: what is
known is passed over. A run that was interrupted may go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from .. import chunks as ui
from ..journal.fold import Accumulator
from ..messages import Message
from ..wire.frames import AgentToolEvent

__all__ = ["ChildRun", "RunEvent", "RunKind", "RunState", "Runs"]

RunState = Literal["running", "completed", "error", "aborted", "interrupted"]
"""How a run stands."""
RunKind = Literal["started", "chunk", "finished", "error", "aborted", "interrupted"]
"""What is told of one."""
_STATES: dict[str, RunState] = {
    "finished": "completed",
    "error": "error",
    "aborted": "aborted",
    "interrupted": "interrupted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRun:
    """A run of a child, as it is now."""

    run_id: str
    agent_type: str
    """The class of the child."""
    call_id: str | None = None
    """The call of the parent's model that asked for it; `None`: code did."""
    status: RunState = "running"
    input_preview: str | None = None
    order: int = 0
    """Where it stands among those of the same call."""
    display: dict[str, Any] = field(default_factory=dict[str, Any])
    """How to show it: `name`, `icon`, and what else the agent says."""
    summary: str | None = None
    """What it gave, in words, once it is completed."""
    error: str | None = None
    reason: str | None = None
    """Why it was interrupted, or stopped."""
    child_still_running: bool = False
    """True when it was interrupted and the child goes on by itself."""
    _said: Accumulator = field(repr=False, compare=False)

    @property
    def message(self) -> Message:
        """What the child has said in it up to now."""
        return self._said.message()

    @property
    def text(self) -> str:
        """The same as text."""
        return self.message.text

    @property
    def sub(self) -> tuple[str, str]:
        """The way from the parent to the child: `connect(…, sub=[run.sub])` opens its own conversation."""
        return self.agent_type, self.run_id


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened in a run."""

    kind: RunKind
    run: ChildRun
    """The run after it."""
    chunk: ui.Chunk | None = None
    """What the child said, of a `chunk`."""
    is_replay: bool = False
    """True for what was told again because we came later."""


@dataclass(slots=True)
class _Seen:
    """One run, and what was told of it."""

    run: ChildRun
    said: Accumulator
    last: int = 0
    """The number of the last piece."""
    end: dict[str, Any] | None = None


class Runs:
    """The runs of one agent's children."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    @property
    def all(self) -> list[ChildRun]:
        """Those that were told of, in the order in which they began."""
        return [seen.run for seen in self._seen.values()]

    def take(self, frame: AgentToolEvent) -> RunEvent | None:
        """What is new in a frame; `None`: nothing, or it is of a run whose start was not told."""
        event = frame.event
        kind = cast("RunKind", event["kind"])
        if kind not in get_args(RunKind):
            return None
        seen, chunk = self._seen.get(event["runId"]), None
        if kind == "started":
            if seen is not None:
                return None
            said = Accumulator(event["runId"])
            seen = self._seen[event["runId"]] = _Seen(_begun(frame, said), said)
        elif seen is None:
            return None
        elif kind == "chunk":
            chunk = self._said(seen, frame)
            if chunk is None:
                return None
        elif event == seen.end:
            return None
        else:
            seen.end = event
            seen.run = _ended(seen.run, kind, event)
        return RunEvent(kind, seen.run, chunk, frame.replay)

    @staticmethod
    def _said(seen: _Seen, frame: AgentToolEvent) -> ui.Chunk | None:
        chunk = ui.decode(frame.event["body"])
        if not getattr(
            chunk, "transient", None
        ):  # how far it is: told as it passes, with no number of its own
            if frame.sequence <= seen.last:
                return None
            seen.last, seen.end = frame.sequence, None
            seen.said.apply(chunk)
            if seen.run.status != "running":
                seen.run = replace(seen.run, status="running", error=None, reason=None)
        return chunk


def _begun(frame: AgentToolEvent, said: Accumulator) -> ChildRun:
    event = frame.event
    return ChildRun(
        run_id=event["runId"],
        agent_type=event["agentType"],
        call_id=frame.parent_tool_call_id,
        input_preview=event.get("inputPreview"),
        order=event.get("order", 0),
        display=event.get("display") or {},
        _said=said,
    )


def _ended(run: ChildRun, kind: RunKind, event: dict[str, Any]) -> ChildRun:
    return replace(
        run,
        status=_STATES[kind],
        summary=event.get("summary"),
        error=event.get("error"),
        reason=event.get("reason"),
        child_still_running=event.get("childStillRunning", False),
    )
