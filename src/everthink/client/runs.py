"""The runs of an agent's children, as a client is told of them.

    AgentToolEvent --take--> Runs --> ChildRun, as it is now; RunEvent, what is new

A piece is told by its number, which is the same live and told again after a lost connection: what is known is
passed over. What was handed out stays as it was; what comes next makes another value. A run that was
interrupted may go on, and a child may begin its answer anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from .. import chunks as ui
from ..journal.fold import Accumulator
from ..messages import Message
from ..wire.frames import RUN_MILESTONE, RUN_PROGRESS, AgentToolEvent

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


class _Said:
    """All that a child has said in a run. What it made at one moment is folded when somebody looks."""

    __slots__ = ("_chunks", "_fold", "_folded", "_id")

    def __init__(self, id: str) -> None:
        self._id, self._chunks = id, list[ui.Chunk]()
        self._fold, self._folded = Accumulator(id), 0

    def __len__(self) -> int:
        return len(self._chunks)

    def add(self, chunk: ui.Chunk) -> None:
        """It said more."""
        self._chunks.append(chunk)

    def message(self, count: int) -> Message:
        """What its first so many chunks made."""
        if count < self._folded:  # somebody looks back
            self._fold, self._folded = Accumulator(self._id), 0
        for chunk in self._chunks[self._folded : count]:
            self._fold.apply(chunk)
        self._folded = count
        return self._fold.message()


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
    progress: dict[str, Any] | None = None
    """How far the child last said it was: `fraction`, `message`, `phase`, `data`, what there is of them."""
    milestones: tuple[dict[str, Any], ...] = ()
    """The milestones that it has passed, in order: `name`, `sequence`, `at`, and what was said of them."""
    _said: _Said = field(repr=False, compare=False)
    _count: int = field(default=0, repr=False, compare=False)

    @property
    def message(self) -> Message:
        """What the child has said in it up to now."""
        return self._said.message(self._count)

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
    said: _Said
    last: int = 0
    """The number of the last piece."""
    answer: str | None = None
    """The id of the answer that is being said."""
    end: dict[str, Any] | None = None


class Runs:
    """The runs of one agent's children."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    @property
    def all(self) -> list[ChildRun]:
        """Those that were told of, in the order in which they began."""
        return [seen.run for seen in self._seen.values()]

    def of_call(self, call_id: str | None) -> list[ChildRun]:
        """Those that a call asked for, in the order in which they are shown; `None`: that code did."""
        found = [run for run in self.all if run.call_id == call_id]
        return sorted(found, key=lambda run: (run.order, run.run_id))

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
            said = _Said(event["runId"])
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
        if (reported := _reported(seen.run, chunk)) is not None:
            is_new, seen.run = reported != seen.run, reported
            return chunk if is_new else None
        if frame.sequence <= seen.last:
            return None
        seen.last, seen.end = frame.sequence, None
        if isinstance(chunk, ui.Start) and chunk.message_id is not None:
            if seen.answer not in (None, chunk.message_id):  # it begins anew
                seen.said = _Said(seen.run.run_id)
            seen.answer = chunk.message_id
        seen.said.add(chunk)
        seen.run = replace(seen.run, _said=seen.said, _count=len(seen.said))
        if seen.run.status != "running":
            seen.run = replace(seen.run, status="running", error=None, reason=None, child_still_running=False)
        return chunk


def _reported(run: ChildRun, chunk: ui.Chunk) -> ChildRun | None:
    """The run with what the child reports, which is no part of what it says; `None`: it says something.

    Reports have no number of their own, and milestones one in their run: what is known changes nothing.
    """
    given: object = chunk.data if isinstance(chunk, ui.Data) else None
    if not isinstance(chunk, ui.Data) or not isinstance(given, dict):
        return None
    data = cast("dict[str, Any]", given)
    if chunk.type == RUN_PROGRESS:
        return replace(run, progress=data)
    if chunk.type != RUN_MILESTONE or not isinstance(data.get("sequence"), int):
        return None
    passed = {data["sequence"]: data} | {one["sequence"]: one for one in run.milestones}
    return replace(run, milestones=tuple(passed[number] for number in sorted(passed)))


def _begun(frame: AgentToolEvent, said: _Said) -> ChildRun:
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
