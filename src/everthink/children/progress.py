"""How far a child is: what it reports while it runs for its parent.

    child: report_progress(…) --> Reports --RunProgressed--> its feed --> watching.py --> the parent's windows
                                     '-- a milestone: its row and its chunk in the journal, one commit

Progress passes by: the latest is kept with the run, and no message holds it. At most one in 200 ms is told,
and of those between them the last one. A milestone is a piece of what the child says, with a number of its
own, and told again to whoever comes late.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import chunks as ui
from ..clock import Timer, moment_of
from ..current import current_turn
from ..journal import turn_rows
from ..journal.feed import RunProgressed
from ..journal.turn import Turn
from ..json_values import plain_json
from ..messages import decode_json, encode_json
from ..settings import check_call
from ..store.port import Statement
from ..wire.frames import RUN_MILESTONE, RUN_PROGRESS
from . import queries
from .parts import Parts
from .queries import MilestoneRow
from .values import AgentToolProgress

__all__ = ["Reports", "chunk_of", "is_report", "milestone_in", "milestone_of", "progress_of"]

log = logging.getLogger("everthink.children")

APART = 0.2
"""Seconds between two reports that are told."""


@dataclass(slots=True)
class _Told:
    """What was last told of a run, and what waits to be."""

    turn: Turn
    at: float
    waiting: tuple[dict[str, Any], bool] | None = None
    timer: Timer | None = None


class Reports:
    """What one child reports of its runs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._told: dict[str, _Told] = {}
        self._numbers: dict[str, int] = {}

    async def report(
        self,
        *,
        fraction: float | None,
        message: str | None,
        phase: str | None,
        milestone: str | None,
        data: Any,
        persist: bool,
    ) -> None:
        """Tell the parent how far the run is that this code is part of. Elsewhere there is nobody to tell."""
        check_call(
            "report_progress",
            fraction=fraction,
            message=message,
            phase=phase,
            milestone=milestone,
            persist=persist,
        )
        said: dict[str, Any] = {
            name: value
            for name, value in (("fraction", fraction), ("message", message), ("phase", phase))
            if value is not None
        }
        is_progress = bool(said) or milestone is None
        if data is not None:
            said["data"] = plain_json(data, "data", "report_progress")
        turn = await self._turn()
        if turn is None:
            log.warning(
                "report_progress() of %s is not part of a run that a parent asked for: nobody is told",
                self._parts.address,
            )
            return
        run_id = self._parts.address.name
        if milestone is not None:
            await self._pass(turn, run_id, milestone, said, said if is_progress else None, persist)
        else:
            await self._progress(turn, run_id, said, persist)

    async def _turn(self) -> Turn | None:
        """The turn of a run that this code is part of: the one that was asked for, or one that goes on."""
        within, turns, parts = current_turn(), self._parts.turns, self._parts
        if within is None or turns is None or within.agent != parts.address.id:
            return None
        turn = turns.of(within.id)
        if turn is None or turn.say is None:
            return None
        if turn.trigger == "auto-continuation":  # of the run, if there was one: the child is called like it
            first = await turn_rows.one(parts.store, parts.address.name)
            return turn if first is not None and first.trigger == "agent-tool" else None
        return turn if turn.trigger == "agent-tool" else None

    # --- milestones

    async def _pass(
        self,
        turn: Turn,
        run_id: str,
        name: str,
        said: dict[str, Any],
        progress: dict[str, Any] | None,
        persist: bool,
    ) -> None:
        """One commit: the milestone, its chunk, and the progress that is reported with it."""
        if run_id not in self._numbers:
            last = await queries.last_milestone(self._parts.store, run_id)
            self._numbers.setdefault(run_id, last)
        if turn.say is None or turn.afterwards is None:
            return  # it ended meanwhile
        self._numbers[run_id] = number = self._numbers[run_id] + 1
        now = self._parts.clock.now_ms()
        turn.say(
            ui.Data(RUN_MILESTONE, {"name": name, "sequence": number, "at": now, **said}, transient=True),
            queries.milestone(run_id, number, name, encode_json(said).decode(), now=now),
            self._kept(run_id, progress, persist, now),
        )
        if progress is not None:
            self._note(turn, run_id)
            loop = asyncio.get_running_loop()
            # After the milestone was shown.
            turn.afterwards(lambda: loop.call_soon(self._publish, run_id, progress, now))

    # --- progress

    async def _progress(self, turn: Turn, run_id: str, said: dict[str, Any], persist: bool) -> None:
        clock, told = self._parts.clock, self._told.get(run_id)
        if turn.alive is not None:
            turn.alive()
        is_due = told is None or clock.monotonic() - told.at >= APART
        if told is None or is_due or said.get("fraction", 0) >= 1:
            self._note(turn, run_id)
            await self._tell(run_id, said, persist)
            return
        told.waiting = (said, persist)
        if told.timer is None:
            left = told.at + APART - clock.monotonic()
            told.timer = clock.call_later(left, lambda: self._catch_up(run_id, told))

    def _note(self, turn: Turn, run_id: str) -> None:
        """Something is told now: what waited is older than that."""
        told = self._told.get(run_id)
        if told is not None and told.timer is not None:
            told.timer.cancel()
        self._told[run_id] = _Told(turn, self._parts.clock.monotonic())

    def _catch_up(self, run_id: str, told: _Told) -> None:
        """Tell the last of those that came too soon, unless the turn is over."""
        if told.waiting is not None and told.turn.say is not None:
            self._note(told.turn, run_id)
            self._parts.background(self._tell(run_id, *told.waiting))

    async def _tell(self, run_id: str, said: dict[str, Any], persist: bool) -> None:
        now = self._parts.clock.now_ms()
        await self._parts.store.apply([self._kept(run_id, said, persist, now)])
        self._publish(run_id, said, now)

    def _kept(self, run_id: str, said: dict[str, Any] | None, persist: bool, now: int) -> Statement:
        """What the run keeps of a report: `None` is none of how far it is."""
        above, text = self._parts.address.parent, None
        assert above is not None
        if said is not None:
            kept = said if persist else {name: value for name, value in said.items() if name != "data"}
            text = encode_json({**kept, "at": now}).decode()
        return queries.progressed(above.id, run_id, progress=text, now=now)

    def _publish(self, run_id: str, said: dict[str, Any], now: int) -> None:
        self._parts.feed.publish(RunProgressed(run_id, {**said, "at": now}, chunk_of(said)))


def chunk_of(said: Mapping[str, Any]) -> str:
    """Progress as windows are told it. Its id tells one report from the next."""
    shown = {name: value for name, value in said.items() if name != "at"}
    return ui.encode(ui.Data(RUN_PROGRESS, shown, id=secrets.token_hex(8), transient=True))


# --- reading it


def progress_of(said: Mapping[str, Any]) -> AgentToolProgress:
    """How far a run is, for code."""
    return AgentToolProgress(
        fraction=said.get("fraction"),
        message=said.get("message"),
        phase=said.get("phase"),
        data=said.get("data"),
        milestone=said.get("name"),
        sequence=said.get("sequence"),
        at=moment_of(said["at"]),
    )


def milestone_of(row: MilestoneRow) -> AgentToolProgress:
    """A milestone by its row, for code."""
    said: dict[str, Any] = decode_json(row.said, dict[str, Any])
    return progress_of({**said, "name": row.name, "sequence": row.seq, "at": row.at})


def is_report(body: str) -> bool:
    """True when a piece of a child is how far it is: told as it passes, without a number of its own."""
    if f'"{RUN_PROGRESS}"' not in body:
        return False
    chunk = ui.decode(body)
    return isinstance(chunk, ui.Data) and chunk.type == RUN_PROGRESS


def milestone_in(body: str) -> AgentToolProgress | None:
    """The milestone that a piece of a child is, if it is one."""
    if f'"{RUN_MILESTONE}"' not in body:
        return None
    chunk = ui.decode(body)
    return progress_of(chunk.data) if isinstance(chunk, ui.Data) and chunk.type == RUN_MILESTONE else None
