"""What a window of the parent sees of its children's runs while the server dies and comes back.

    agent-tool-event, over as many connections as it takes --> RunScreen --> SeenRun …, and what was wrong

Pure. Over one connection a run is told from its start, in its numbers, nothing twice. Over the next one it is
told again: what was there must be the same. A run that was interrupted may go on; no other end may change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...children.progress import is_report
from ...client.runs import Runs
from ...wire.frames import AgentToolEvent
from .story import SeenRun

__all__ = ["RunScreen"]


class RunScreen:
    """The runs on one screen. `complain` hears what a reader would object to."""

    def __init__(self, complain: Callable[[str], object]) -> None:
        self._complain = complain
        self._seen: dict[str, SeenRun] = {}
        self._client = Runs()
        # The number that is due of each run over this connection, and those whose end was told over it.
        self._due: dict[str, int] = {}
        self._over: dict[str, dict[str, Any]] = {}

    @property
    def seen(self) -> dict[str, SeenRun]:
        """Those that were told of, by their ids."""
        read = {run.run_id: run for run in self._client.all}
        return {
            id: replace(run, status=read[id].status, text=read[id].text) for id, run in self._seen.items()
        }

    def connected(self) -> None:
        """There is a new connection: over it nothing was told yet."""
        self._due.clear()
        self._over.clear()

    def take(self, frame: AgentToolEvent) -> None:
        """Show what happened in a run."""
        self._client.take(frame)
        event, id = frame.event, frame.event["runId"]
        match event["kind"]:
            case "started":
                self._start(frame, id)
            case "chunk" if is_report(event["body"]):
                pass  # it has no number of its own, and is no part of what was said
            case "chunk":
                self._piece(frame, id)
            case _:
                self._end(frame, id)

    def _start(self, frame: AgentToolEvent, id: str) -> None:
        agent, call = frame.event["agentType"], frame.parent_tool_call_id
        run = self._seen.setdefault(id, SeenRun(agent, call))
        if id in self._due:
            self._complain(f"the run of {agent} began twice over one connection")
        if frame.sequence != 0 or (run.agent, run.call) != (agent, call):
            self._complain(f"the run of {run.agent} began otherwise when it was told again")
        self._due[id] = 1

    def _piece(self, frame: AgentToolEvent, id: str) -> None:
        run, number = self._in_turn(frame, id), frame.sequence
        if run is None:
            return
        if (end := self._over.pop(id, None)) is not None and end["kind"] != "interrupted":
            self._complain(f"the run of {run.agent} went on after its end")
        self._due[id] = number + 1
        body: str = frame.event["body"]
        if number == len(run.pieces) + 1:
            run.pieces.append(body)
            run.end = None
        elif number <= len(run.pieces) and run.pieces[number - 1] != body:
            self._complain(f"piece {number} of {run.agent} was {run.pieces[number - 1]} and is now {body}")

    def _end(self, frame: AgentToolEvent, id: str) -> None:
        run, event = self._in_turn(frame, id), frame.event
        if run is None:
            return
        if id in self._over:
            self._complain(f"the run of {run.agent} ended twice over one connection")
        elif run.end not in (None, event) and run.end["kind"] != "interrupted":
            self._complain(f"the run of {run.agent} had ended with {run.end} and now with {event}")
        if frame.sequence <= len(run.pieces):
            self._complain(f"the run of {run.agent} ended before piece {len(run.pieces)}, which was told")
        self._over[id] = run.end = event

    def _in_turn(self, frame: AgentToolEvent, id: str) -> SeenRun | None:
        """The run of a frame, if it was begun. Nothing may be missing before it, nothing come again."""
        due, run = self._due.get(id), self._seen.get(id)
        if due is None or run is None:
            self._complain(f"a run was told of without its beginning: {frame.event}")
            return None
        if frame.sequence > due:
            self._complain(f"piece {frame.sequence} of {run.agent} came when piece {due} was due")
        elif frame.sequence < due:
            self._complain(f"piece {frame.sequence} of {run.agent} came twice over one connection")
        return run
