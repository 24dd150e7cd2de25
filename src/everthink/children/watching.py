"""One run, seen through to its end: by whoever waits for it, or by nobody.

    begun, joined --> Watch --end--> Ended --> the result of a call | a commit of its own | delivering.py

There is one way to see a run through, whoever asked: a call of the parent's model, its code, a detached run,
one that is stopped and comes to its end alone. They differ in what they do with how it ended. Whoever is
stopped stops the child; who is only cut off lets it go on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..abort import AbortSignal
from ..current import current_connection, step_outside
from ..errors import AgentError, StoreError, StructuredOutputError
from ..journal import turn_rows
from ..journal.feed import RunProgressed
from ..journal.read import is_asking
from ..messages import Part, encode_json, text_of
from ..models.structured import Structured
from ..observe.run_events import AgentToolRecoveryRow
from ..store.port import AgentStore, Statement
from ..tools.output import jsonable
from . import queries
from .family import BELOW
from .following import Following, Windows, first_of, turns_of
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
    stored,
    tell,
    terminal,
)
from .values import CANCELLED, FAILED, AgentToolProgress, AgentToolResult

__all__ = [
    "UnknownChild",
    "Wanted",
    "Watch",
    "Watched",
    "began",
    "child_of",
    "finished",
    "in_words",
    "is_heard",
    "of_hook",
    "outside",
    "reached",
    "reason_of",
    "stop_child",
    "tell_end",
]

log = logging.getLogger("everthink.children")

T = TypeVar("T")
START = 2.0
"""Seconds that a child which is joined may take to start, however short its silence may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is wanted of a run, and by whom."""

    output: Structured | None = None
    """What the answer is to be."""
    windows: Windows | None = None
    """How long it is waited for."""
    alive: Callable[[], object] | None = None
    """Told of each piece: the turn that waits does not hang."""
    since: float | None = None
    """When a parent that came back joined it, by the clock; `None`: it was there all the time."""


class Watched:
    """The runs of one parent that are seen through here. Several may wait for the same one."""

    def __init__(self) -> None:
        self._by_run: dict[str, list[Watch]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_run)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._by_run

    def __iter__(self) -> Iterator[Watch]:
        return iter([watch for watches in self._by_run.values() for watch in watches])

    def of(self, run_id: str) -> Sequence[Watch]:
        """Those who see a run through."""
        return tuple(self._by_run.get(run_id, ()))

    def add(self, watch: Watch) -> None:
        """Somebody sees a run through."""
        self._by_run.setdefault(watch.row.run_id, []).append(watch)

    def drop(self, watch: Watch) -> None:
        """They do no longer."""
        watches = self._by_run.get(watch.row.run_id, [])
        if watch in watches:
            watches.remove(watch)
            if not watches:
                del self._by_run[watch.row.run_id]


class Watch:
    """A run that is not over, and is followed. Its child stays in memory for that."""

    def __init__(
        self, parts: Parts, watched: Watched, row: RunRow, child: Child, wanted: Wanted | None = None
    ) -> None:
        self._parts, self._watched = parts, watched
        self.row, self._wanted = row, wanted or Wanted()
        self.heard_at = parts.clock.now_ms()
        """When something was last heard of it (ms). While nobody ran it, it was not silent."""
        self.has_reported = row.progress_at is not None
        """True once the child has said how far it is."""
        self.on_milestone: Callable[[], object] | None = None
        """Called when the child passes a milestone."""
        self._is_stopped = False
        self._reason: str | None = None
        self.following, self._hold = self._follow(child), child.hold()
        watched.add(self)

    def close(self) -> None:
        """See it through no longer. The child notices nothing."""
        self._let_go()
        self._watched.drop(self)

    def _let_go(self) -> None:
        self.following.close()
        self._hold.release()

    def is_at_rest(self) -> bool:
        """True when nothing happens in it before a person answers the child, or one below it."""
        return not (self._is_stopped or self.following.is_left) and self.following.child.rests()

    # --- what the child says

    def _follow(self, child: Child) -> Following:
        feed, row = self._parts.feed, self.row

        def said(sequence: int, body: str) -> None:
            tell(feed, row, sequence, piece(row.run_id, body))
            if not following.is_catching_up:
                self._heard(milestone_in(body))

        def note(event: RunProgressed) -> None:
            tell(feed, row, following.last, piece(row.run_id, event.body), is_passing=True)
            self._heard(progress_of(event.progress))

        following = Following(child, row.run_id, said, note)
        return following

    def _heard(self, progress: AgentToolProgress | None) -> None:
        """The child says something, or how far it is."""
        parts, self.heard_at = self._parts, self._parts.clock.now_ms()
        if self._wanted.alive is not None:
            self._wanted.alive()
        if progress is None:
            return
        self.has_reported = True
        if progress.milestone is not None and self.on_milestone is not None:
            self.on_milestone()
        if parts.hooks.overrides("on_progress"):
            parts.background(outside(parts.hooks.on_progress(described(self.row), progress)))

    # --- its end

    async def end(self, signal: AbortSignal | None = None) -> Ended:
        """How the run ends. A signal that fires stops the child; the end comes all the same.

        `close` follows. Whoever is cancelled because of the signal leaves the run to come to its end alone.
        """
        ending = asyncio.ensure_future(self._to_the_end())
        fired = [] if signal is None else [asyncio.ensure_future(signal.wait())]
        try:
            await asyncio.wait([ending, *fired], return_when=asyncio.FIRST_COMPLETED)
            if signal is not None and signal.aborted and not ending.done():
                await self.stop(reason_of(signal))
            return await ending
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and signal is not None and signal.aborted:
                self._parts.background(self.stopped(reason_of(signal)))
            else:
                self.close()
            raise
        finally:
            for wait in (ending, *fired):
                wait.cancel()

    def ending(self, ended: Ended) -> tuple[Statement, Callable[[], None]]:
        """What stores how it ended, and what is to be done once that is durable."""
        parts, row, now = self._parts, self.row, self._parts.clock.now_ms()
        parts.ended_here.setdefault(row.run_id, False)

        def told() -> None:
            number, since = self.following.last + 1, self._wanted.since
            if tell_end(parts, row, ended, number=number, since=since):
                parts.background(finished(parts, row, ended, now))

        return stored(row.run_id, ended, now=now, is_owed=is_heard(parts)), told

    async def kept(self, signal: AbortSignal | None = None) -> AgentToolResult:
        """See it to its end, and store how it ended: for whoever does not store that with something else."""
        ended = await self.end(signal)
        try:
            statement, told = self.ending(ended)
            await self._parts.store.apply([statement])
        finally:
            self.close()
        told()
        return result_of(self.row, ended)

    async def stop(self, reason: str | None) -> None:
        """Stop the child. Its end is seen by whoever sees the run through."""
        for watch in (self, *self._watched.of(self.row.run_id)):  # nobody else is to wait in vain
            watch._note_stop(reason)
        await stop_child(self.following.child, self.row.run_id, reason)

    def _note_stop(self, reason: str | None) -> None:
        self._is_stopped, self._reason = True, reason
        self.following.stop()

    async def stopped(self, reason: str | None) -> None:
        """Stop a run that nobody waits for any more, see it to its end, and store that."""
        try:
            await self.stop(reason)
        except BaseException:
            self.close()
            raise
        await self.kept()

    async def _to_the_end(self) -> Ended:
        while True:
            why = await self.following.to_the_end(self._parts.clock, self._wanted.windows)
            if why is not None:
                is_left = why != "window-exceeded"
                if not is_left:
                    await self.stop(WHY[why])
                return Ended("interrupted", error=WHY[why], reason=why, is_left=is_left)
            if self.following.is_left:
                if (ended := await self._followed_again()) is not None:
                    return ended
                continue
            child = self.following.child
            if self._is_stopped and child.is_to_go_on():  # were a person to answer
                return Ended("aborted", error=self._reason or CANCELLED)
            if (ended := await _collected(child, self.row.run_id, self._wanted.output)) is not None:
                return ended
            # It went on just now.

    async def _followed_again(self) -> Ended | None:
        """The child left memory in the middle, and goes on when it is reached: so it is. How the run ended
        when it is gone, or does not start."""
        last, _ = self.following.last, self._let_go()
        child = await reached(self._parts, self.row, self._wanted.windows)
        if isinstance(child, Ended):
            return child
        self.following, self._hold = self._follow(child), child.hold()
        self.following.is_stopped = self._is_stopped
        await self.following.catch_up()
        log.debug("run %s is followed again, from %d on", self.row.run_id, last)
        return None


# --- the child of a run


class UnknownChild(AgentError):
    """The class of a run's child is not known here: nobody has named it since the process began."""

    def __init__(self, row: RunRow, why: str) -> None:
        super().__init__(
            f"There is no agent class {row.cls!r} for the run {row.run_id!r}{why}.",
            kept="What the child said is stored.",
            next_step=f"Name it in the class of the parent, sub_agents = ({row.cls},), or in App(…).",
        )


async def child_of(parts: Parts, row: RunRow) -> Child | None:
    """The child that a run is a turn of, in memory; `None` when it was deleted. Raises `UnknownChild`."""
    cls = parts.kin.classes().get(row.cls) or await _offered(parts, row)
    address = parts.kin.address(cls, row.run_id, parts.address)
    return await parts.kin.child(address) if await parts.kin.exists(address) else None


async def reached(parts: Parts, row: RunRow, windows: Windows | None) -> Child | Ended:
    """The same within these windows; how the run ended when its child is gone, or does not start."""
    patience = math.inf
    if windows is not None and await _is_cut_off(parts, row):
        patience = max(START, min(windows.no_progress, windows.until - parts.clock.monotonic()))
    starting = asyncio.ensure_future(child_of(parts, row))
    try:
        if not await first_of(parts.clock, patience, starting):
            return Ended("interrupted", error=WHY["no-progress"], reason="no-progress", is_left=True)
        return await starting or Ended("error", error=DELETED)
    finally:
        starting.cancel()


async def _is_cut_off(parts: Parts, row: RunRow) -> bool:
    """True when something of the run is left to do, and nobody is asked anything first."""
    database = parts.store.database
    turn = await turn_rows.one(AgentStore(database, row.child), row.run_id)
    if turn is None or turn.ended_at is not None:
        return False
    below = await parts.store.fetch(BELOW, row.child)
    return not any([await is_asking(AgentStore(database, agent)) for (agent,) in below])


async def _offered(parts: Parts, row: RunRow) -> type[Any]:
    """The class of a child that only `get_tools` names, which nobody has asked in this process."""
    try:
        tools = await parts.hooks.get_tools() if parts.turns is not None else {}
    except Exception as error:
        parts.hooks.log_error("get_tools", error)
        raise UnknownChild(row, f", and get_tools raised {in_words(error)}") from error
    for tool in tools.values():
        child = getattr(tool, "child", None)
        if isinstance(child, type) and child.__name__ == row.cls:
            parts.kin.learn(child)
            return child
    raise UnknownChild(row, "")


async def stop_child(child: Child, run_id: str, reason: str | None) -> None:
    """Stop what a child does in a run."""
    await child.submissions.cancel(run_id, reason)
    await child.cancel_all(reason)  # what it goes on with after a person's answer


async def _collected(child: Child, run_id: str, wanted: Structured | None) -> Ended | None:
    """How a child that is at rest has ended its run; `None` when it goes on. What cannot be said of it, be it
    because of a hook, is its end too: nobody would come to say it later."""
    try:
        return await _found(child, run_id, wanted)
    except StoreError:
        raise
    except Exception as error:
        if not isinstance(error, AgentError):
            log.error("the end of run %s of %s cannot be told", run_id, child.address, exc_info=error)
        return Ended("error", error=in_words(error))


async def _found(child: Child, run_id: str, wanted: Structured | None) -> Ended | None:
    rows = await turns_of(child.store, run_id)
    if not rows:
        return Ended("error", error=DELETED)
    last = rows[-1]
    if last.ended_at is None:
        return None
    match last.status:
        case "completed":
            return await _answered(child, run_id, [row.answer_id for row in rows], wanted)
        case "aborted":
            return Ended("aborted", error=last.error or CANCELLED)
        case "skipped":
            return Ended("error", error=SKIPPED)
        case _:
            return Ended("error", error=last.error or FAILED)


async def _answered(child: Child, run_id: str, answers: list[str], wanted: Structured | None) -> Ended:
    said = [await child.parts_of(answer) for answer in answers]
    hooks, cls = child.hooks, child.address.cls_name
    own = await of_hook(child, "get_agent_tool_output", hooks.get_agent_tool_output(run_id))
    output = None if own is None else jsonable(own, tool=cls, by="get_agent_tool_output")
    summary = await of_hook(child, "get_agent_tool_summary", hooks.get_agent_tool_summary(run_id))
    if summary is None:
        summary = "\n".join(line for parts in said for line in _lines(parts))
    if not summary and output is not None:
        summary = output if isinstance(output, str) else encode_json(output).decode()
    ended = Ended("completed", summary, output)
    return ended if wanted is None else _fitted(ended, wanted, _final_text(said[-1]))


def _lines(parts: list[Part]) -> list[str]:
    return [part["text"] for part in parts if part.get("type") == "text" and part.get("text")]


def _final_text(parts: list[Part]) -> str:
    """What was said in the last step: the words before a call are no part of the value that is asked for."""
    steps = [at for at, part in enumerate(parts) if part.get("type") == "step-start"]
    return text_of(parts[steps[-1] :] if steps else parts)


def _fitted(ended: Ended, wanted: Structured, text: str) -> Ended:
    """The same with the value that was asked for; an error when what the child answered is none."""
    if ended.output is not None:
        text = encode_json(ended.output).decode()
    if not text:
        return replace(ended, status="error", error=NO_OUTPUT)
    try:
        return replace(ended, output=jsonable(wanted.parse(text), tool=wanted.schema.name))
    except StructuredOutputError as error:
        return replace(ended, status="error", output=None, error=error.what)


async def of_hook(child: Child, hook: str, answer: Awaitable[T]) -> T:
    """What a hook of the child says. What it raises is logged, and told in words."""
    try:
        return await answer
    except (AgentError, asyncio.CancelledError):
        raise
    except Exception as error:
        child.hooks.log_error(hook, error)
        raise AgentError(f"{hook} of {child.address.cls_name} raised {in_words(error)}") from error


def in_words(error: Exception) -> str:
    """What was raised, for whoever reads of the run."""
    if isinstance(error, AgentError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# --- whoever is told


def is_heard(parts: Parts) -> bool:
    """True when the parent has a hook that hears how runs end."""
    return parts.hooks.overrides("on_agent_tool_finish")


async def began(parts: Parts, row: RunRow) -> None:
    """Let the parent hear that a run began. A process that dies meanwhile leaves that to the next one."""
    await parts.hooks.on_agent_tool_start(described(row))
    if row.start_owed:
        await parts.store.apply([queries.start_told(row.run_id)])


def tell_end(parts: Parts, row: RunRow, ended: Ended, *, number: int, since: float | None) -> bool:
    """Tell windows how a run ended, and report it when it was joined. False when somebody else has who waited
    for it too."""
    if parts.ended_here.get(row.run_id):
        return False
    parts.ended_here[row.run_id] = ended.status not in OPEN
    tell(parts.feed, row, number, terminal(row.run_id, ended))
    if since is not None:
        parts.emit(
            AgentToolRecoveryRow(
                run_id=row.run_id,
                agent_type=row.cls,
                status=ended.status,
                reason=ended.reason,
                elapsed_ms=round((parts.clock.monotonic() - since) * 1000),
            )
        )
    return True


async def finished(parts: Parts, row: RunRow, ended: Ended, now: int) -> None:
    """Let the parent hear that a run is over, and stored. A process that dies meanwhile leaves that to the
    next one: so it may hear it twice."""
    is_owed = is_heard(parts) or row.finish_claimed_at is not None
    info = described(row._replace(status=ended.status, ended_at=now))
    await parts.hooks.on_agent_tool_finish(info, result_of(row, ended))
    if is_owed and row.detached is None:
        await parts.store.apply([queries.delivered(row.run_id, "finish", now=parts.clock.now_ms())])


async def outside(work: Awaitable[None]) -> None:
    """Do something that no turn waits for, in a task of its own: neither the turn that asked for the run,
    nor that of the child. Its client may be gone."""
    step_outside()
    current_connection.set(None)
    await work


def reason_of(signal: AbortSignal) -> str | None:
    """Why it fired, in words."""
    return None if signal.reason is None else str(signal.reason)
