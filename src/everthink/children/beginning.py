"""Beginning a run, or joining it where it is.

    Asked --> Beginning: one commit (run, child, its turn) --> Watch
    a row that is not over ---join---------------------------> Watch

A run is never begun twice: whoever asks again under its id, also after a crash, joins the child.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ..address import Address
from ..current import identity_within
from ..door.submissions import AcceptedRun
from ..errors import AgentElsewhere, AgentError, RunConflict, StoreError
from ..holds import Hold
from ..messages import encode_json
from ..models.structured import Structured, structured
from ..observe.run_events import AgentToolRecoveryReattach
from ..store.port import AgentStore, Statement
from . import queries
from .following import Windows, last_of
from .parts import Child, Parts
from .queries import RunRow
from .telling import OPEN, Ended, result_of, started, stored, stored_result, tell
from .values import AgentToolResult, RunStatus, preview_of
from .watching import (
    UnknownChild,
    Wanted,
    Watch,
    Watched,
    began,
    finished,
    in_words,
    is_heard,
    of_hook,
    reached,
    tell_end,
)

__all__ = ["TOOL_OUTPUT", "Asked", "Beginning", "Started"]

log = logging.getLogger("everthink.children")

TOOL_OUTPUT = "toolOutput"
"""Under this name a child keeps the schema that its answer is to fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of a child."""

    input: Any
    run_id: str
    call_id: str | None = None
    turn: str | None = None
    """The turn of the parent that waits for it."""
    order: int = 0
    preview: str | None = None
    display: dict[str, Any] | None = None
    output: Structured | None = None
    """What the answer is to be."""
    detached: str | None = None
    """What becomes of it when nobody waits: see `DetachedRuns.planned`."""


@dataclass(frozen=True, slots=True)
class Started:
    """The child of a run that is to begin: in memory, or why it is not."""

    address: Address
    child: Child | None = None
    hold: Hold | None = None
    error: str = ""

    def is_at(self, address: Address) -> bool:
        """True when it is the one at this address, and has not left memory since."""
        has_left = self.child is not None and self.child.feed.is_over
        return self.address == address and not has_left

    def let_go(self) -> None:
        """It may leave memory again."""
        if self.hold is not None:
            self.hold.release()


class Beginning:
    """Begins and joins the runs of one parent."""

    def __init__(self, parts: Parts, watched: Watched) -> None:
        self._parts, self._watched = parts, watched

    async def known(self, asked: Asked) -> tuple[RunRow | None, Asked]:
        """The run of that id, and what is asked. A provider may use the id of a call again."""
        row = await queries.one(self._parts.store, asked.run_id)
        if row is not None and asked.turn is not None and row.turn not in (None, asked.turn):
            asked = replace(asked, run_id=f"{asked.run_id}:{asked.turn[-8:]}")
            row = await queries.one(self._parts.store, asked.run_id)
        return row, asked

    def check_same(self, cls: type[Any], asked: Asked, row: RunRow) -> None:
        """Refuse whoever asks another class, or something else, under the id of a run. What a call of a model
        asks is told apart by its turn."""
        if row.cls == cls.__name__ and (
            asked.turn is not None or row.turn is not None or row.asked in (None, _digest(cls, asked))
        ):
            return
        what = f"of {row.cls}" if row.cls != cls.__name__ else "with another input or output"
        raise RunConflict(
            f"There is a run {row.run_id!r} {what}.",
            kept="It stays as it is; nothing was asked.",
            next_step="Use another run_id; or ask with the same class, input and output to have its result.",
        )

    def address(self, cls: type[Any], asked: Asked) -> Address | AgentToolResult:
        """The address of the child; a result that says why there can be none."""
        try:
            return self._parts.kin.address(cls, asked.run_id, self._parts.address)
        except AgentError as error:
            return AgentToolResult(
                run_id=asked.run_id, agent_type=cls.__name__, status="error", error=str(error)
            )

    # --- a new one

    async def room(self, cls: type[Any], asked: Asked, address: Address) -> RunRow | AgentToolResult:
        """The row of a run that may begin. A result when there are too many."""
        await self._parts.mark()
        row = self._row(cls, asked, address.id)
        error = await self._over_cap()
        return row if error is None else await self._refused(row, error)

    async def start(self, address: Address) -> Started:
        """Have the child of a run that is to begin in memory."""
        try:
            child = await self._parts.kin.child(address)
        except (StoreError, AgentElsewhere):
            raise
        except Exception as error:
            log.error("%s could not start for a run", address, exc_info=error)
            return Started(address, error=f"{address.cls_name} could not start: {in_words(error)}")
        return Started(address, child, child.hold())

    async def begin(
        self, started: Started, row: RunRow, asked: Asked, alive: Callable[[], object] | None
    ) -> Watch | AgentToolResult:
        """Begin a run. A result when its child could not start, or refuses what it is asked."""
        if (child := started.child) is None:
            return await self._refused(row, started.error)
        parts = self._parts
        parts.ended_here.pop(row.run_id, None)  # that was another one, which was cleared
        wanted = Wanted(output=asked.output, alive=alive)
        watch = Watch(parts, self._watched, row, child, wanted)  # it listens before anything is accepted
        try:
            await self._accept(child, row, asked)
        except BaseException as error:
            watch.close()
            if isinstance(error, AgentError) and not isinstance(error, StoreError):
                return await self._refused(row, str(error))
            raise
        return watch

    def _row(self, cls: type[Any], asked: Asked, child: str) -> RunRow:
        display = None if asked.display is None else encode_json(asked.display).decode()
        preview = asked.preview if asked.preview is not None else preview_of(asked.input, encode_json)
        return RunRow(
            run_id=asked.run_id,
            child=child,
            cls=cls.__name__,
            call_id=asked.call_id,
            turn=asked.turn,
            status="running",
            place=asked.order,
            preview=preview,
            display=display,
            summary=None,
            output=None,
            error=None,
            reason=None,
            is_left=0,
            detached=asked.detached,
            started_at=self._parts.clock.now_ms(),
            ended_at=None,
            asked=_digest(cls, asked),
            start_owed=int(self._parts.hooks.overrides("on_agent_tool_start")),
        )

    async def _over_cap(self) -> str | None:
        """Why not, when too many children run."""
        parts = self._parts
        most = parts.hooks.setting("max_concurrent_agent_tools")
        if math.isinf(most) or len(await queries.open_runs(parts.store)) < most:
            return None
        return f"max_concurrent_agent_tools ({most:g}) exceeded"

    async def _refused(self, row: RunRow, error: str) -> AgentToolResult:
        """A run that could not begin, kept as one that failed. Of its child nothing is."""
        parts = self._parts
        refused = row._replace(status="error", error=error, ended_at=parts.clock.now_ms(), start_owed=0)
        await parts.store.apply([queries.began(parts.address.id, refused)])
        tell(parts.feed, refused, 0, started(refused))
        tell(parts.feed, refused, 1, {"kind": "error", "runId": row.run_id, "error": error})
        return stored_result(refused)

    async def _accept(self, child: Child, row: RunRow, asked: Asked) -> None:
        """One commit: the run, the child and its turn."""
        hook = "format_agent_tool_input"
        message = await of_hook(child, hook, child.hooks.format_agent_tool_input(asked.input))
        parent = self._parts.address.id
        began: list[Statement] = [queries.began(parent, row)]
        if asked.output is not None:
            began.append(child.save_value(TOOL_OUTPUT, msgspec.to_builtins(asked.output.schema)))
            child.expect(asked.output.schema)
        began += await child.accompany(parent, row)
        run = AcceptedRun(lambda _: began, identity_within(parent))
        accepted = await child.submissions.accept(message, submission_id=row.run_id, run=run)
        if not accepted.accepted:  # the child has had such a turn: only the run is new
            await self._parts.store.apply(began[:1])

    # --- one that is known

    async def join(
        self, row: RunRow, output: Structured | None = None, alive: Callable[[], object] | None = None
    ) -> Watch | AgentToolResult:
        """Follow a run where it is. Its result when it is over."""
        if row.status not in OPEN:
            return stored_result(row)
        parts, windows = self._parts, self._windows(row)
        since = None if windows is None or row.run_id in self._watched else windows.since
        if windows is not None and since is not None:
            silence = None if math.isinf(windows.no_progress) else round(windows.no_progress * 1000)
            parts.emit(AgentToolRecoveryReattach(run_id=row.run_id, agent_type=row.cls, budget_ms=silence))
        tell(parts.feed, row, 0, started(row))  # windows know it; others here see that a child is waited for
        if row.start_owed:
            await began(parts, row)
        try:
            child = await reached(parts, row, windows)
        except UnknownChild as error:
            log.warning("%s", error)
            # Code that names the class may yet ask for it again; nobody asks for a detached one.
            status: RunStatus = "interrupted" if row.detached is None else "error"
            left = Ended(status, error=str(error), is_left=row.detached is None)
            return await self._seal(row, left, since)
        if isinstance(child, Ended):
            return await self._seal(row, child, since)
        if row.run_id in self._watched or not child.has_found_turns():
            windows = None  # somebody here waits for it already, or nothing has cut it off
        output = output or structured(child.expected())
        wanted = Wanted(output=output, windows=windows, alive=alive, since=since)
        watch = Watch(parts, self._watched, row, child, wanted)
        try:
            await watch.following.catch_up()
        except BaseException:
            watch.close()
            raise
        return watch

    def _windows(self, row: RunRow) -> Windows | None:
        """How long a run is waited for that is joined now; one that has budgets of its own: for ever."""
        if row.detached is not None:
            return None
        setting, now = self._parts.hooks.setting, self._parts.clock.monotonic()
        silence = setting("agent_tool_reattach_no_progress_timeout")
        return Windows(silence, setting("agent_tool_reattach_max_window"), now)

    async def _seal(self, row: RunRow, ended: Ended, since: float | None) -> AgentToolResult:
        """End a run whose child is gone, or does not start, or whom nobody can reach."""
        parts, now = self._parts, self._parts.clock.now_ms()
        is_owed = row.detached is None and is_heard(parts)
        await parts.store.apply([stored(row.run_id, ended, now=now, is_owed=is_owed)])
        last = await last_of(AgentStore(parts.store.database, row.child), row.run_id)
        if tell_end(parts, row, ended, number=last + 1, since=since):
            await finished(parts, row, ended, now)
        return result_of(row, ended)


def _digest(cls: type[Any], asked: Asked) -> str | None:
    """What is asked of whom, in short; `None` when it cannot be written down, and so not compared."""
    schema = None if asked.output is None else msgspec.to_builtins(asked.output.schema)
    try:
        written = encode_json([cls.__name__, asked.input, schema])
    except (TypeError, ValueError):
        return None
    return hashlib.sha256(written).hexdigest()
