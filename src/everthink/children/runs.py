"""The runs of an agent's children: one turn of a child each, asked for by the parent and kept with it.

    agent_tool, run_agent_tool --> Runs: one commit (run, child, its turn) --> Following --> result

A run is never begun twice: whoever asks again under its id, also after a crash, joins the child where it is.
How it ended is stored with the result of the call that asked for it. A parent that is stopped stops its
children; one that only leaves memory does not.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from ..abort import AbortSignal
from ..clock import ms_of
from ..current import current_turn, identity_within
from ..door.submissions import AcceptedRun
from ..errors import AgentError, StructuredOutputError
from ..journal import turn_rows
from ..journal.feed import FeedEvent, RunProgressed, RunTold, TurnEnded
from ..journal.read import Below, is_asking, worked_at
from ..messages import encode_json
from ..models.structured import Structured, structured
from ..store.port import AgentStore, Statement
from ..tools.output import jsonable
from ..turn.settled import Settled
from . import queries
from .detached import CANCELLED_BY_PARENT, DetachedRuns, Hands, outside
from .family import BELOW
from .following import (
    Followed,
    Following,
    Windows,
    first_of,
    last_of,
    note_end,
    open_windows,
    turns_of,
)
from .parts import Child, Parts
from .progress import milestone_in, progress_of
from .queries import RunRow
from .telling import (
    DELETED,
    NO_OUTPUT,
    OPEN,
    SKIPPED,
    WHY,
    Ended,
    described,
    piece,
    result_of,
    started,
    stored,
    stored_result,
    terminal,
)
from .values import (
    CANCELLED,
    FAILED,
    AgentToolProgress,
    AgentToolResult,
    AgentToolRun,
    RunStatus,
    preview_of,
)

__all__ = ["RUNS", "TOOL_OUTPUT", "Asked", "Runs"]

log = logging.getLogger("everthink.children")

RUNS = "runs"
"""Under this name a parent keeps that it has runs: others look for none."""
TOOL_OUTPUT = "toolOutput"
"""Under this name a child keeps the schema that its answer is to fit."""
START = 2.0
"""Seconds that a child which an earlier process began may take to start, however short its silence may be."""


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


class Runs:
    """The runs of one parent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._beginning = asyncio.Lock()
        # The runs that somebody here waits for, or brings to their end.
        self._followed: dict[str, Followed] = {}
        # The turns of the parent that have asked for runs, and go on.
        self._turns: set[str] = set()
        parts.feed.join(self._see)
        self.detached = DetachedRuns(
            parts,
            Hands(
                join=lambda row: self._join(row, None),
                awaited=self._awaited,
                stop=self._stop,
                tell_end=self._tell_end,
            ),
        )

    # --- asking for one

    async def run(self, cls: type[Any], asked: Asked, signal: AbortSignal | None = None) -> AgentToolResult:
        """Let a child answer, and wait for it unless it is detached. Failures are told in the result."""
        if asked.detached is not None and signal is not None:
            log.warning("run %s is detached: its signal stops nothing", asked.run_id)
            signal = None
        begun = await self._begun(cls, asked, signal, None if asked.detached else self._alive())
        if isinstance(begun, AgentToolResult):
            return begun
        if begun.row.detached is not None:
            return _handle(begun.row)
        ended = await self._awaited(begun, signal)
        await self._end(begun, ended)
        return result_of(begun.row, ended)

    async def run_for_call(
        self, cls: type[Any], asked: Asked, request_id: str, alive: Callable[[], object] | None = None
    ) -> Settled:
        """The same for a call of the parent's model: how it ended is stored together with its result, which
        is an `AgentToolResult` yet. `alive` is told of each piece of the child."""
        aborts = self._parts.aborts
        signal = None if aborts is None else aborts.peek(request_id)
        begun = await self._begun(cls, asked, signal, alive)
        if isinstance(begun, AgentToolResult):
            return Settled(begun)
        ended = await self._awaited(begun, signal)
        statement, told = self._ending(begun, ended)
        return Settled(result_of(begun.row, ended), [statement], told)

    def _alive(self) -> Callable[[], object] | None:
        """Says that the turn of the parent which this code is part of does not hang."""
        within, turns = current_turn(), self._parts.turns
        if within is None or turns is None or within.agent != self._parts.address.id:
            return None
        turn = turns.of(within.id)
        return None if turn is None else turn.alive

    async def _begun(
        self,
        cls: type[Any],
        asked: Asked,
        signal: AbortSignal | None,
        alive: Callable[[], object] | None,
    ) -> Followed | AgentToolResult:
        """Begin a run, or join it. What is begun is seen through: a child must not run that nobody knows."""
        beginning = asyncio.ensure_future(self._begin(cls, asked, alive))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # Where the agent stops at once, nobody comes to hear that it could not begin.
            beginning.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._parts.background(self._abandoned(beginning, signal))
            raise

    async def _abandoned(
        self, beginning: asyncio.Future[Followed | AgentToolResult], signal: AbortSignal | None
    ) -> None:
        begun = await beginning
        if isinstance(begun, Followed) and begun.row.detached is None:
            if signal is not None and signal.aborted:
                self._followed[begun.row.run_id] = begun
                await self._stopped(begun, _reason(signal))
            else:
                self._let_go(begun)

    async def _begin(
        self, cls: type[Any], asked: Asked, alive: Callable[[], object] | None
    ) -> Followed | AgentToolResult:
        child: Child | None = None
        while True:
            async with self._beginning:
                row, asked = await self._known(asked)
                if asked.turn is not None:
                    self._turns.add(asked.turn)
                if row is not None and (asked.detached is not None or row.detached is not None):
                    return self._known_detached(row)
                if row is None:
                    new = await self._new(cls, asked)
                    if isinstance(new, AgentToolResult):
                        return new
                    if child is not None:
                        run = await self._accepted(child, new, asked, alive)
                        break
            # Children are joined and started outside: one that takes long to start holds up no other.
            if row is not None:
                return await self._join(row, asked.output, alive)
            child = await self._parts.kin.child(self._parts.address.child(cls.__name__, asked.run_id))
        self._tell(run.row, 0, started(run.row))
        await self._parts.hooks.on_agent_tool_start(described(run.row))
        return run

    async def _new(self, cls: type[Any], asked: Asked) -> RunRow | AgentToolResult:
        """The row of a run that is to begin, or why it cannot."""
        try:
            address = self._parts.kin.address(cls, asked.run_id, self._parts.address)
        except AgentError as error:
            return AgentToolResult(
                run_id=asked.run_id, agent_type=cls.__name__, status="error", error=str(error)
            )
        await self._parts.mark()
        row = self._row(cls, asked, address.id)
        return await self._over_cap(row) or row

    async def _accepted(
        self, child: Child, row: RunRow, asked: Asked, alive: Callable[[], object] | None
    ) -> Followed:
        """Begin a run. From its first moment on it is known here who follows it."""
        run = Followed(row, self._follow(child, row, alive), asked.output, alive=alive)
        if row.detached is None:
            self._followed[row.run_id] = run
        try:
            await self._accept(child, row, asked)
        except BaseException:
            self._let_go(run)
            raise
        if row.detached is not None:
            self.detached.watch(run)
        return run

    async def _known(self, asked: Asked) -> tuple[RunRow | None, Asked]:
        """The run of that id, and what is asked. A provider may use the id of a call again."""
        row = await queries.one(self._parts.store, asked.run_id)
        if row is not None and asked.turn is not None and row.turn not in (None, asked.turn):
            asked = replace(asked, run_id=f"{asked.run_id}:{asked.turn[-8:]}")
            row = await queries.one(self._parts.store, asked.run_id)
        return row, asked

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
        )

    async def _over_cap(self, row: RunRow) -> AgentToolResult | None:
        """The refusal when too many children run."""
        most = self._parts.hooks.setting("max_concurrent_agent_tools")
        if math.isinf(most) or len(await queries.open_runs(self._parts.store)) < most:
            return None
        now = self._parts.clock.now_ms()
        error = f"max_concurrent_agent_tools ({most:g}) exceeded"
        refused = row._replace(status="error", error=error, ended_at=now)
        await self._parts.store.apply([queries.began(self._parts.address.id, refused)])
        self._tell(refused, 0, started(refused))
        self._tell(refused, 1, {"kind": "error", "runId": row.run_id, "error": error})
        return stored_result(refused)

    async def _accept(self, child: Child, row: RunRow, asked: Asked) -> None:
        """One commit: the run, the child and its turn."""
        began: list[Statement] = [queries.began(self._parts.address.id, row)]
        if asked.output is not None:
            began.append(child.save_value(TOOL_OUTPUT, msgspec.to_builtins(asked.output.schema)))
            child.expect(asked.output.schema)
        message = await child.hooks.format_agent_tool_input(asked.input)
        run = AcceptedRun(began, identity_within(self._parts.address.id))
        accepted = await child.submissions.accept(message, submission_id=row.run_id, run=run)
        if not accepted.accepted:  # the child has had such a turn: only the run is new
            await self._parts.store.apply(began[:1])

    # --- joining one

    def _known_detached(self, row: RunRow) -> AgentToolResult:
        """A run that is detached stays so, whoever asks again: its result when it is over."""
        if row.status not in OPEN:
            return stored_result(row)
        if row.detached is None:
            raise AgentError(
                f"The run {row.run_id!r} was begun by somebody who waits for it: it cannot be detached.",
                kept="It goes on.",
                next_step="Use another run_id, or ask for it without `detached`.",
            )
        self.detached.take_up(row)
        return _handle(row)

    async def _join(
        self, row: RunRow, output: Structured | None, alive: Callable[[], object] | None = None
    ) -> Followed | AgentToolResult:
        if row.status not in OPEN:
            return stored_result(row)
        self._tell(row, 0, started(row))  # windows know it; others here see that a child is waited for
        is_left = row.detached is None and row.run_id not in self._followed
        windows = open_windows(self._parts, row) if is_left else None
        child = await self._reached(row, windows)
        if isinstance(child, Ended):
            return await self._seal(row, child, windows)
        following = self._follow(child, row, alive)
        try:
            await following.catch_up()
        except BaseException:
            following.close()
            raise
        return Followed(row, following, output or structured(child.expected()), windows, alive)

    async def _reached(self, row: RunRow, windows: Windows | None) -> Child | Ended:
        """The child of a run, in memory; how the run ended when it is gone, or its start does not come to an
        end."""
        starting = asyncio.ensure_future(self._child(row))
        seconds = math.inf if windows is None else max(windows.no_progress, START)
        try:
            if not await first_of(self._parts.clock, seconds, starting):
                return Ended("interrupted", error=WHY["no-progress"], reason="no-progress", is_left=True)
            return await starting or Ended("error", error=DELETED)
        finally:
            starting.cancel()

    async def _child(self, row: RunRow) -> Child | None:
        cls = self._parts.kin.classes().get(row.cls)
        if cls is None:
            raise AgentError(
                f"There is no agent class {row.cls!r} for the run {row.run_id!r}.",
                next_step=f"Name it in the class of the parent, sub_agents = ({row.cls},), or in App(…).",
            )
        address = self._parts.kin.address(cls, row.run_id, self._parts.address)
        return await self._parts.kin.child(address) if await self._parts.kin.exists(address) else None

    def _follow(self, child: Child, row: RunRow, alive: Callable[[], object] | None) -> Following:
        def tell(sequence: int, body: str) -> None:
            self._tell(row, sequence, piece(row.run_id, body))
            if not following.is_catching_up:
                self._heard(row, alive, milestone_in(body))

        def note(event: RunProgressed) -> None:
            self._tell(row, following.last, piece(row.run_id, event.body), is_passing=True)
            self._heard(row, alive, progress_of(event.progress))

        following = Following(child, row.run_id, tell, note)
        return following

    def _heard(
        self, row: RunRow, alive: Callable[[], object] | None, progress: AgentToolProgress | None
    ) -> None:
        """A child says something, or how far it is."""
        if alive is not None:
            alive()
        is_milestone = progress is not None and progress.milestone is not None
        self.detached.heard(row, is_report=progress is not None, is_milestone=is_milestone)
        if progress is not None and self._parts.hooks.overrides("on_progress"):
            self._parts.background(outside(self._parts.hooks.on_progress(described(row), progress)))

    # --- waiting for it

    async def _awaited(self, run: Followed, signal: AbortSignal | None) -> Ended:
        """How a run ends. Whoever is stopped stops the child; who is only cut off lets it go on."""
        ending = asyncio.ensure_future(self._to_the_end(run))
        watch = None if signal is None else asyncio.ensure_future(signal.wait())
        self._followed.setdefault(run.row.run_id, run)
        is_handed_on = False
        try:
            with self._parts.hold(), run.following.child.hold():
                await asyncio.wait(
                    [ending] if watch is None else [ending, watch], return_when=asyncio.FIRST_COMPLETED
                )
                if signal is not None and signal.aborted and not ending.done():
                    await self._stop(run, _reason(signal))
                return await ending
        except asyncio.CancelledError:
            if signal is not None and signal.aborted:
                # The turn of the parent is over: the run comes to its end without it.
                is_handed_on = True
                self._parts.background(self._stopped(run, _reason(signal)))
            raise
        finally:
            ending.cancel()
            if watch is not None:
                watch.cancel()
            if not is_handed_on:
                self._let_go(run)

    async def _to_the_end(self, run: Followed) -> Ended:
        while True:
            why = await run.following.to_the_end(self._parts.clock, run.windows)
            if why is not None:
                is_left = why != "window-exceeded"
                if not is_left:
                    await self._stop(run, WHY[why])
                return Ended("interrupted", error=WHY[why], reason=why, is_left=is_left)
            if not run.following.is_left:
                if run.is_stopped and run.following.child.is_to_go_on():  # were a person to answer
                    return Ended("aborted", error=run.reason or CANCELLED)
                if (ended := await self._collected(run.following.child, run.row.run_id)) is not None:
                    return _fitted(ended, run.output)
                continue  # it went on just now
            # The child left memory in the middle, and goes on when it is reached: so it is.
            last, _ = run.following.last, run.following.close()
            child = await self._reached(run.row, run.windows)
            if isinstance(child, Ended):
                return child
            run.following = self._follow(child, run.row, run.alive)
            run.following.is_stopped = run.is_stopped
            await run.following.catch_up()
            log.debug("run %s is followed again, from %d on", run.row.run_id, last)

    async def _collected(self, child: Child, run_id: str) -> Ended | None:
        """How a child that is at rest has ended its run; `None` when it goes on."""
        rows, _ = await turns_of(child.store, run_id)
        if not rows:
            return Ended("error", error=DELETED)
        last = rows[-1]
        if last.ended_at is None:
            return None
        match last.status:
            case "completed":
                said = [await child.text_of(row.answer_id) for row in rows]
                own = await child.hooks.get_agent_tool_output(run_id)
                output = None if own is None else jsonable(own, tool=run_id, by="get_agent_tool_output")
                summary = await child.hooks.get_agent_tool_summary(run_id)
                if summary is None:
                    summary = "\n".join(text for text in said if text)
                if not summary and output is not None:
                    summary = output if isinstance(output, str) else encode_json(output).decode()
                return Ended("completed", summary, output)
            case "aborted":
                return Ended("aborted", error=last.error or CANCELLED)
            case "skipped":
                return Ended("error", error=SKIPPED)
            case _:
                return Ended("error", error=last.error or FAILED)

    # --- its end

    def _ending(self, run: Followed, ended: Ended) -> tuple[Statement, Any]:
        """What stores how a run ended, and what is to be done once that is durable."""
        row, now = run.row, self._parts.clock.now_ms()
        run.following.close()

        def told() -> None:
            self._tell_end(row, ended, run.following.last + 1)
            note_end(self._parts, row, ended, run.windows)
            self._parts.background(self._finished(row, ended, now))

        return stored(row.run_id, ended, now=now), told

    async def _end(self, run: Followed, ended: Ended) -> None:
        """Store how a run ended, and tell it, unless somebody who waited for it as well has done so."""
        statement, told = self._ending(run, ended)
        [is_ours] = await self._parts.store.apply([statement])
        if is_ours:
            told()

    async def _finished(self, row: RunRow, ended: Ended, now: int) -> None:
        info = described(row._replace(status=ended.status, ended_at=now))
        await self._parts.hooks.on_agent_tool_finish(info, result_of(row, ended))

    async def _seal(self, row: RunRow, ended: Ended, windows: Windows | None) -> AgentToolResult:
        """End a run whose child is gone, or does not start."""
        now = self._parts.clock.now_ms()
        await self._parts.store.apply([stored(row.run_id, ended, now=now)])
        self._tell_end(
            row, ended, 1 + await last_of(AgentStore(self._parts.store.database, row.child), row.run_id)
        )
        note_end(self._parts, row, ended, windows)
        await self._finished(row, ended, now)
        return result_of(row, ended)

    def _let_go(self, run: Followed) -> None:
        run.following.close()
        if self._followed.get(run.row.run_id) is run:
            del self._followed[run.row.run_id]

    async def _stop(self, run: Followed, reason: str | None) -> None:
        run.is_stopped, run.reason = True, reason
        run.following.stop()
        child = run.following.child
        await child.submissions.cancel(run.row.run_id, reason)
        await child.cancel_all(reason)  # what it goes on with after a person's answer

    async def _stopped(self, run: Followed, reason: str | None) -> None:
        """Stop a run that nobody waits for any more, and store how it ended."""
        try:
            await self._stop(run, reason)
            await self._end(run, await self._to_the_end(run))
        finally:
            self._let_go(run)

    # --- from outside

    async def cancel(self, run_id: str, reason: object = None) -> None:
        """Stop a run. One that is over, or unknown, stays as it is."""
        row = await queries.one(self._parts.store, run_id)
        if row is None or row.status not in OPEN:
            return
        text = None if reason is None else str(reason)
        if text is None and row.detached is not None:
            text = CANCELLED_BY_PARENT
        if (run := self._followed.get(run_id)) is not None:
            await self._stop(run, text)
        elif row.detached is not None:
            await self._cancel_child(row, text)
            self.detached.take_up(row)  # which delivers that it was stopped
        else:
            joined = await self._join(row, None)
            if isinstance(joined, Followed):
                self._followed[run_id] = joined
                await self._stopped(joined, text)

    async def _cancel_child(self, row: RunRow, reason: str | None) -> None:
        child = await self._child(row)
        if child is not None:
            await child.submissions.cancel(row.run_id, reason)
            await child.cancel_all(reason)

    async def list(self) -> list[AgentToolRun]:
        """Those that are kept, the oldest first."""
        return [described(row) for row in await queries.kept(self._parts.store)]

    async def clear(
        self, *, older_than: datetime | None, status: RunStatus | Sequence[RunStatus] | None
    ) -> int:
        """Delete runs with their children. How many."""
        wanted = None if status is None else frozenset([status] if isinstance(status, str) else status)
        rows = await queries.kept(self._parts.store, before=None if older_than is None else ms_of(older_than))
        cleared = 0
        for row in rows:
            if wanted is not None and row.status not in wanted:
                continue
            if row.detached is not None:
                self.detached.forget(row.run_id)  # erasing its child stops it, and nobody is told
            elif row.cls in self._parts.kin.classes():  # nothing of another one runs
                await self.cancel(row.run_id, "cleared")
            address = self._parts.address.child(row.cls, row.run_id)
            await self._parts.kin.erase(address)
            await self._parts.store.apply([queries.cleared(row.run_id)])
            cleared += 1
        return cleared

    async def reconcile(self) -> None:
        """See to the runs that an earlier process left and that nobody asks for again."""
        async with self._beginning:  # what begins just now is seen to by whoever begins it
            for row in await queries.owed(self._parts.store):
                self.detached.take_up(row)
        for row in await queries.open_runs(self._parts.store):
            if row.turn is not None:
                self._turns.add(row.turn)
                await self._without_turn(row)
            elif self._is_left(row):
                self._parts.background(self._left(row))

    def _see(self, shown: FeedEvent) -> None:
        """A turn that is over waits for nobody: what it has asked for and nobody has stopped is stopped."""
        if isinstance(shown, TurnEnded) and shown.turn.id in self._turns:
            self._turns.discard(shown.turn.id)
            self._parts.background(self._after(shown.turn.id))

    async def _after(self, turn_id: str) -> None:
        for row in await queries.open_runs(self._parts.store):
            if row.turn == turn_id:
                await self._without_turn(row)

    def _is_left(self, row: RunRow) -> bool:
        return row.run_id not in self._followed and row.detached is None and row.status == "running"

    async def _without_turn(self, row: RunRow) -> None:
        """Stop a run whose turn is over, or was told to stop. Another one asks again, and goes on with it."""
        assert row.turn is not None
        turn = await turn_rows.one(self._parts.store, row.turn)
        if turn is not None and turn.ended_at is None and turn.stop is None:
            return
        if self._is_left(row):
            reason = None if turn is None else turn.stop or turn.error
            self._parts.background(self.cancel(row.run_id, reason or CANCELLED))

    async def _left(self, row: RunRow) -> None:
        """Bring a run of code to its end that nobody waits for."""
        joined = await self._join(row, None)
        if isinstance(joined, Followed):
            await self._end(joined, await self._awaited(joined, None))

    async def below(self, turn_id: str) -> Below:
        """What the children do that a turn waits for, and those below them."""
        worked, is_asked = 0, False
        for row in await queries.open_runs(self._parts.store):
            if row.turn != turn_id:
                continue
            for (agent,) in await self._parts.store.fetch(BELOW, row.child):
                member = AgentStore(self._parts.store.database, agent)
                worked = max(worked, await worked_at(member))
                is_asked = is_asked or await is_asking(member)
        return Below(worked, is_asked)

    def _tell(self, row: RunRow, sequence: int, event: dict[str, Any], *, is_passing: bool = False) -> None:
        self._parts.feed.publish(RunTold(row.run_id, row.call_id, sequence, event, is_passing))

    def _tell_end(self, row: RunRow, ended: Ended, sequence: int) -> None:
        self._tell(row, sequence, terminal(row.run_id, ended))


def _handle(row: RunRow) -> AgentToolResult:
    """What whoever asks for a detached run gets of it."""
    return AgentToolResult(run_id=row.run_id, agent_type=row.cls, status="running")


def _reason(signal: AbortSignal) -> str | None:
    return None if signal.reason is None else str(signal.reason)


def _fitted(ended: Ended, wanted: Structured | None) -> Ended:
    """The same with the value that was asked for; an error when what the child answered is none."""
    if wanted is None or ended.status != "completed":
        return ended
    text = ended.summary if ended.output is None else encode_json(ended.output).decode()
    if not text:
        return replace(ended, status="error", error=NO_OUTPUT)
    try:
        return replace(ended, output=jsonable(wanted.parse(text), tool=wanted.schema.name))
    except StructuredOutputError as error:
        return replace(ended, status="error", output=None, error=error.what)
