"""The agents of this process that are in memory, and how to reach one.

    handle, socket, alarm --(class, name)--> Directory --> Actor

At most one live instance exists per address. Callers that arrive while it starts share that
start; a start that fails leaves nothing behind, so the next caller tries again. Where other processes use
the same database an agent is claimed before it starts and given back when it leaves memory (`cluster/`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from ..address import Address
from ..clock import Clock, Timer
from ..cluster import queries as cluster_queries
from ..cluster.fence import Fence, Loss
from ..cluster.membership import Membership
from ..errors import (
    AgentElsewhere,
    AgentError,
    AgentSetAside,
    CommitRefused,
    LeaseLost,
    StoreClosed,
    StoreError,
)
from ..fibers import queries as fiber_queries
from ..journal import queries as turn_queries
from ..limits import Limits
from ..models.port import Model
from ..observe.bus import EventBus
from ..observe.events import Audit, Destroy, Released, SetAside, TaskFailed
from ..recovery import suspects
from ..recovery.suspects import Suspect
from ..recovery.trials import Trial, Trials
from ..schedules import alarm_queries, job_queries
from ..store.port import AgentStore, Store
from ..tasks import begin
from ..turn.ending import SEGMENT_GRACE_MS
from . import cleaning, queries
from .actor import Actor
from .erasing import erased, rows_erased
from .introduced import Introduced
from .retention import Retention
from .waker import Waker

__all__ = ["Directory", "new_id"]

log = logging.getLogger("everthink.runtime")

MAX_NAME = 512
ERASED = (4410, "Erased")
"""How the sockets of an agent that is erased are closed."""
RESTART = (1012, "Service restart")
"""How those of an agent are closed that has to leave memory: clients come back."""
STARTS = 3
"""So often a start is begun anew that was cut because of the database, or by another process."""
HELD = 0.05
"""Seconds after which those hear of a lost agent who were not stopped with it."""
MOST_FAILED = 10
"""When so many idle agents could not be erased it is not them: the others are tried the next time."""
STOPPING = 5.0
"""Seconds that an agent which is erased gets to stop. What does not stop then can write nothing any more."""


def new_id() -> str:
    """A fresh id that sorts by time: short rows of one agent lie together in the database."""
    stamp = (time.time_ns() // 1_000_000) << 80
    return str(uuid.UUID(int=stamp | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)))


class Directory:
    """The live agents of one process."""

    def __init__(
        self,
        classes: Mapping[str, type[Any]],
        *,
        base: type[Any],
        store: Store,
        clock: Clock,
        bus: EventBus,
        resolve_model: Callable[[Any], Awaitable[Model]],
        ids: Callable[[], str] = new_id,
        limits: Limits | None = None,
        idle_after: float | None = None,
        retention: float | None = None,
        membership: Membership | None = None,
    ) -> None:
        self._classes = classes
        self._parts: dict[str, Any] = {
            "base": base,
            "store": store,
            "clock": clock,
            "bus": bus,
            "new_id": ids,
            "resolve_model": resolve_model,
            "limits": limits or Limits(),
        }
        self.store, self._clock, self._bus = store, clock, bus
        self.membership = membership
        """This process among those that share the database; `None` when it has one owner anyway."""
        if membership is not None:
            membership.on_lost, membership.on_change = self._lose_all, self._look_again
        # The way to the store of each agent that is ours.
        self._fences: dict[str, Fence] = {}
        self.trials = Trials(store, clock, store_of=self._store_of)
        """Counts what is tried, and knows what took earlier processes down."""
        self._parts["trials"] = self.trials
        # The agents that are reached for what is due.
        self._reached_for_due: set[str] = set()
        self._live: dict[Address, asyncio.Task[Actor]] = {}
        self._leaving: dict[Address, asyncio.Future[Any]] = {}
        self._erasing: dict[Address, asyncio.Task[int]] = {}
        self._scrubs: set[asyncio.Future[bool]] = set()
        # No more agents start; then, once those in memory have stopped, nobody reaches one.
        self._is_closing = self._closed = False
        # Agents that left memory since their time was last noted, if agents are not kept for ever.
        self._left: set[str] = set()
        self._retention = None
        if retention is not None:
            self._retention = Retention(retention, store=store, clock=clock, classes=classes)
        self._idle_after = idle_after
        self._sweep: Timer | None = None
        # Chunks of ended turns are dropped now and then, for all agents at once.
        self._broom: Timer | None = None
        self._sweeping: asyncio.Future[None] | None = None
        if self._retention is not None:
            self._tidy_later()
        self.waker = Waker(
            store=store,
            clock=clock,
            classes=classes,
            reach=self._run_due,
            left=(turn_queries.WAITING, queries.TO_CONTINUE, fiber_queries.WAITING, job_queries.LEFT),
            rank=self.trials.rank,
            elsewhere=membership.elsewhere if membership is not None else None,
        )
        """Reaches agents when their time has come, without any client."""

    def __len__(self) -> int:
        return len(self._live)

    async def exists(self, cls: type[Any], name: str) -> bool:
        """True when there is such an agent: in memory, or because something of it is kept."""
        return await self._is_there(self._key(cls, name))

    async def reach(self, cls: type[Any], name: str, props: Any = None) -> Actor:
        """The live agent at this address, started if need be."""
        for _ in range(STARTS):
            if (actor := await self._reach(cls, name, props)) is not None:
                return actor
        raise LeaseLost(
            f"{cls.__name__} {name!r} was taken away {STARTS} times while it started.",
            kept="Everything that was stored is there.",
            next_step="Reach it again: here, or in the process that has it now.",
        )

    def live(self, cls: type[Any], name: str) -> Actor | None:
        """The agent at this address, if it is in memory and serves."""
        task = self._live.get(self._key(cls, name))
        return task.result() if task is not None and _is_up(task) else None

    async def _reach(self, cls: type[Any], name: str, props: Any) -> Actor | None:
        """The live agent; `None` when it had to be dropped while it started, and may be tried again."""
        key = self._key(cls, name)
        task = self._live.get(key)
        if self._is_closing and (task is None or not _is_up(task)):
            raise _not_started(key)
        if task is None:
            # Only who leaves now is waited for: whoever evicts this start waits for it, not the reverse.
            begun = self._start(cls, name, props, after=self._leaving.get(key))
            task = self._live[key] = asyncio.create_task(begun, name=f"start {key}")
            self._watch()
            self._tidy_later()
        elif _is_up(task):
            actor = task.result()
            actor.idle_since = None
            return actor
        try:
            return await asyncio.shield(task)
        except BaseException as error:
            if task.done() and self._live.get(key) is task:
                del self._live[key]
            if isinstance(error, asyncio.CancelledError) and task.cancelled() and key in self._erasing:
                raise AgentError(
                    f"{cls.__name__} {name!r} was erased while it started.",
                    kept="Nothing was stored.",
                    next_step="Reach it again to begin from nothing.",
                ) from None
            is_lost = task.cancelled() and not _is_cancelled()
            if isinstance(error, asyncio.CancelledError) and is_lost:
                if self._is_closing:
                    raise _not_started(key) from None
                return None
            raise

    def _key(self, cls: type[Any], name: str) -> Address:
        """The address of an agent, if there can be one."""
        if self._closed:
            raise StoreClosed("The app is closed.", next_step="Use the agent inside `async with App(...)`.")
        if self._classes.get(cls.__name__) is not cls:
            known = ", ".join(sorted(self._classes)) or "none"
            raise AgentError(
                f"{cls.__name__} is not an agent of this app (it has: {known}).",
                next_step=f"Add it: App({cls.__name__}, ...).",
            )
        _check_name(name)
        return Address(cls.__name__, name)

    async def _start(
        self, cls: type[Any], name: str, props: Any, *, after: asyncio.Future[Any] | None
    ) -> Actor:
        if after is not None:
            await asyncio.wait([after])  # what is being cut there must not be taken up here meanwhile
        address = Address(cls.__name__, name)
        id = address.id
        fence = await self._claimed(address)
        try:
            trial = await self._counted(id, cls, name)
            try:
                actor = await self._started(cls, name, props, fence)
            except BaseException:
                if fence.is_lost:
                    self.trials.forget(id)
                await self.trials.undo_all(id)  # it failed in good order: that takes nobody down
                raise
        except BaseException:
            await self._give_back(fence, id)
            raise
        if trial.is_open and id not in self._reached_for_due and not await self._has_due(id):
            self._clear_after(trial, actor.left_work())
        return actor

    def _store_of(self, agent: str) -> AgentStore:
        """An agent's way to the database: through its fence while this process has it."""
        return self._fences.get(agent) or AgentStore(self.store, agent)

    async def _has_due(self, id: str) -> bool:
        """True when timers are due: the waker comes for them, and may find out what is wrong with them."""
        return bool(await self.store.fetch(alarm_queries.DUE, self._clock.now_ms(), 1, agent=id))

    async def _started(self, cls: type[Any], name: str, props: Any, fence: Fence) -> Actor:
        noted = queries.note_agent(cls=cls.__name__, name=name, now=self._clock.now_ms())
        parts: dict[str, Any] = {**self._parts, "store": Introduced(fence, noted), "fence": fence}
        actor = Actor(cls, name, waker=self.waker.wake_at, **parts)
        try:
            await actor.start(props)
        except BaseException:
            await actor.stop(0)  # what it had begun must not go on beside the next attempt
            raise
        return actor

    async def known(self, cls: type[Any], name: str) -> str:
        """The id of an agent that exists. Raises when there is none."""
        key = self._key(cls, name)
        if not await self._is_there(key):
            raise AgentError(
                f"There is no {cls.__name__} {name!r} in this database.", kept="Nothing was changed."
            )
        return key.id

    async def _is_there(self, key: Address) -> bool:
        """True when an agent exists, in memory or not. Whoever is erasing it is waited for."""
        while True:
            if (leaving := self._leaving.get(key)) is not None:
                await asyncio.wait([leaving])
            if key in self._live:
                return True
            is_there = bool(await self.store.fetch(queries.IS_KNOWN, key.id))
            if key not in self._leaving:
                return is_there

    async def _run_due(self, cls: str, name: str) -> None:
        """Reach an agent whose time has come. What is due is part of a start that was made for it."""
        address = Address(cls, name)
        if not await self._is_there(address):
            return  # erased since somebody saw its timer
        id = address.id
        self._reached_for_due.add(id)
        try:
            actor = await self.reach(self._classes[cls], name)
            await actor.alarms.run_due()
        except BaseException:
            if (trial := self.trials.running(id)) is not None:
                await self.trials.undo(trial)
            raise
        finally:
            self._reached_for_due.discard(id)
        if (trial := self.trials.running(id)) is not None:
            self._clear_after(trial, actor.left_work())

    # --- whose an agent is

    async def _claimed(self, key: Address) -> Fence:
        """The way to the store of an agent that is ours from now on. Raises `AgentElsewhere`."""
        id = key.id
        if self.membership is None:
            fence = Fence(self.store, id)
        else:
            claim = await self.membership.claim(id)
            fence = Fence(self.store, id, claim, lambda why, what: self._lost(key, fence, why, what))
            await self.trials.learn(id)  # others may have tried it, and not survived that
        self._fences[id] = fence
        return fence

    async def _give_back(self, fence: Fence, id: str) -> None:
        """Others may have the agent. Behind everything that was asked for to be written about it."""
        fence.retire()
        if self._fences.get(id) is not fence:
            return
        if self.membership is not None and fence.claim is not None:
            try:
                await self.store.apply([self.membership.released(fence.claim)])
            except StoreError as error:
                log.warning("%s could not be given back and stays with this process: %s", id, error)
        self._fences.pop(id, None)

    def _lost(self, key: Address, fence: Fence, why: Loss, what: str) -> None:
        """An agent must leave memory as if the process had died: it is not ours, or not as we think."""
        log.warning("%s leaves memory: %s", key.id, what)
        # Those who are not stopped with the agent, be it gone already, must not wait for ever.
        asyncio.get_running_loop().call_later(HELD, fence.answer)
        if self._fences.get(key.id) is fence and (start := self._live.pop(key, None)) is not None:
            if _is_up(start):
                self._hang_up(start.result())
            cutting = asyncio.create_task(self._cut(key, start, fence, why), name=f"cut {key}")
            self._note_leaving(key, cutting)

    def _hang_up(self, actor: Actor) -> None:
        """Without an await: no turn may hear of it first, and take it for a failure of its own."""
        actor.cut()
        if actor.sockets is not None:
            actor.sockets.close_all(*RESTART)

    async def _cut(self, key: Address, start: asyncio.Task[Actor], fence: Fence, why: Loss) -> None:
        id = key.id
        start.cancel()
        await asyncio.wait([start])
        if _is_up(start):
            await self._stopped(start.result())
        fence.answer()
        if why == "taken":
            self.trials.forget(id)
            self._fences.pop(id, None)
        else:
            self.waker.wake_at(0, id)  # read it again: what was cut off goes on from what is stored

    def _lose_all(self) -> None:
        """Nobody knows any more that this process lives: others may have its agents."""
        for fence in list(self._fences.values()):
            fence.lose("taken", "this process has lost its lease")

    def _look_again(self) -> None:
        """Others came, went or died: what they had to do may be ours now."""
        self.waker.look()

    # --- what takes the process down

    async def _counted(self, id: str, cls: type[Any], name: str) -> Trial:
        """Count a start before anything of the agent is read or run. Raises `AgentSetAside`."""
        trial = await self.trials.prepare(id, what="its start")
        if trial.is_aside:
            await self._set_aside(cls, name, trial.suspect)
            raise AgentSetAside(id, trial.suspect.strikes)
        await self.trials.count(trial)
        return trial

    async def _set_aside(self, cls: type[Any], name: str, suspect: Suspect) -> None:
        if suspect.is_aside:
            return
        await self._store_of(suspect.agent).apply([self.trials.aside(suspect)])
        log.error(
            "%s is set aside: the process died, or was killed, in %d of its starts. All of it is kept;"
            " `everthink release %s` tries again.",
            suspect.agent,
            suspect.strikes,
            suspect.agent,
        )
        self._bus.emit(cls.__name__, name, SetAside(strikes=suspect.strikes))

    def _clear_after(self, trial: Trial, work: Collection[asyncio.Future[Any]]) -> None:
        """The agent is up: nothing speaks against it, unless what an earlier process left does it yet."""
        if not work:
            self.trials.clear(trial)
            return
        watching = asyncio.gather(*work, return_exceptions=True)
        watching.add_done_callback(lambda _: self.trials.clear(trial))

    async def release(self, cls: type[Any], name: str, turn: str | None = None) -> list[str]:
        """Let what was set aside be tried again: one turn, or all. Returns the turns, `""` for the agent."""
        key = self._key(cls, name)
        id = key.id
        while (task := self._leaving.get(key) or self._live.get(key)) is not None and not task.done():
            await asyncio.wait([task])
        if key in self._live:
            found = await self._release(key, self._fences[id], turn)
        else:
            releasing = asyncio.create_task(self._release_asleep(key, turn), name=f"release {key}")
            self._note_leaving(key, releasing)  # whoever reaches it now waits for that
            found = await asyncio.shield(releasing)
        for one in found:
            self._bus.emit(cls.__name__, name, Released(turn_id=one or None))
        task = self._live.get(key)
        if task is not None and _is_up(task):
            if (chat := task.result().chat) is not None:
                for one in found:
                    await chat.take_up(one)
        elif found:
            self.waker.wake_at(0, id)
        return found

    async def _release(self, key: Address, fence: Fence, turn: str | None) -> list[str]:
        id = key.id
        rows, _ = await fence.apply([suspects.released(turn), turn_queries.released(turn)])
        self.trials.released(id, turn)
        return [row[0] for row in rows]

    async def _release_asleep(self, key: Address, turn: str | None) -> list[str]:
        fence = await self._claimed(key)
        try:
            return await self._release(key, fence, turn)
        finally:
            await self._give_back(fence, key.id)

    async def set_aside(self) -> list[Suspect]:
        """What is not tried any more until it is released."""
        return await suspects.all_aside(self.store)

    # --- tidying up

    def _tidy_later(self) -> None:
        if self._broom is None and not self._is_closing:
            self._broom = self._clock.call_later(
                SEGMENT_GRACE_MS / 1000, self._begin_tidying, housekeeping=True
            )

    def _tell(self, failed: TaskFailed) -> None:
        """Tell of a failure that is no agent's."""
        self._bus.emit("", "", failed)

    def _begin_tidying(self) -> None:
        self._sweeping = begin(self._tidy(), "tidying up", tell=self._tell, context=contextvars.Context())

    async def _tidy(self) -> None:
        """Drop old chunks and idle agents, and come again while there are any or somebody may make some."""
        self._broom = None
        is_needed = True
        try:
            await self._sweep_all()
            if self._retention is None:
                is_needed = bool(self._live or await self.store.fetch(turn_queries.ANY_CHUNKS))
            else:
                await self._erase_idle(self._retention)
        except CommitRefused:
            log.debug("another process tidies up")
        except StoreError as error:
            log.warning("what is old could not be dropped and stays for now: %s", error)
        if is_needed:
            self._tidy_later()

    async def _sweep_all(self) -> None:
        """Drop the old chunks of all agents. `CommitRefused`: another process is at it."""
        swept = turn_queries.swept(before=self._clock.now_ms() - SEGMENT_GRACE_MS)
        if self.membership is None:
            await self.store.apply([swept])
        else:
            await self.store.apply([cluster_queries.alone(), swept, *cluster_queries.tidied()])

    async def _erase_idle(self, retention: Retention) -> None:
        """Erase the agents to whom nothing has happened for too long, one after the other."""
        await self._note_seen(retention)
        rows = failures = 0
        met = set[Address]()
        # One that stays where it is, whatever its rows hold, is met once and stands in nobody's way.
        while idle := [key for key in await retention.idle() if key not in met]:
            met.update(idle)
            for key in idle:
                if self._is_closing or failures == MOST_FAILED:
                    break
                if key in self._live or key in self._leaving:
                    await retention.seen([key.id])  # reached since we looked
                    continue
                expiring = asyncio.create_task(self._expire(key, retention), name=f"expire {key}")
                self._note_leaving(key, expiring)  # whoever reaches it now waits until it is decided
                try:
                    rows += await expiring
                except Exception as error:  # noqa: BLE001 - told, and the next one may go
                    failures += 1
                    log.warning("%s could not be erased and stays for now: %s", key.id, error)
        if rows and not self._is_closing:
            await self.store.scrub(patience=cleaning.PATIENCE)

    async def _expire(self, key: Address, retention: Retention) -> int:
        id = key.id
        try:
            fence = await self._claimed(key)
        except AgentElsewhere:
            await retention.seen([id])  # it is in use
            return 0
        try:
            if not await retention.is_over(id):
                return 0
            return await self._delete(key, fence, Audit(action="erase", allowed=True, reason="retention"))
        finally:
            await self._give_back(fence, id)

    async def _note_seen(self, retention: Retention) -> None:
        left, self._left = self._left, set()
        await retention.seen(left | {key.id for key in self._live})

    # --- leaving memory

    def _watch(self) -> None:
        """Look for idle agents after a while, as long as there are agents at all."""
        if self._sweep is None and self._idle_after is not None:
            self._sweep = self._clock.call_later(self._idle_after / 2, self._drop_idle, housekeeping=True)

    def _drop_idle(self) -> None:
        self._sweep, now = None, self._clock.monotonic()
        assert self._idle_after is not None
        for key, task in list(self._live.items()):
            if not _is_up(task):
                continue
            actor = task.result()
            if not actor.is_idle:
                actor.idle_since = None
            elif actor.idle_since is None:
                actor.idle_since = now
            elif now - actor.idle_since >= self._idle_after / 2:
                self._leave(key, self._live.pop(key), 0)
        if self._live:
            self._watch()

    async def evict(self, cls: type[Any], name: str, *, grace: float = 0.0) -> None:
        """Drop an agent from memory; the next one to reach it starts it anew."""
        task = self._live.pop(key := Address(cls.__name__, name), None)
        if task is not None:
            await asyncio.shield(self._leave(key, task, grace))

    def _leave(self, key: Address, start: asyncio.Task[Actor], grace: float) -> asyncio.Future[None]:
        """Stop an agent that cannot be reached any more. The next start at its address waits for that."""

        async def stop() -> None:
            actor = await start
            await actor.stop(grace)
            await self.trials.undo_all(actor.id)  # cut on purpose
            await self._give_back(actor.fence, actor.id)

        if self._retention is not None:
            self._left.add(key.id)
        agent = key.id
        leaving = begin(
            stop(), f"stopping {agent}", tell=lambda failed: self._bus.emit(key.cls_name, key.name, failed)
        )
        self._note_leaving(key, leaving)
        return leaving

    def _note_leaving(self, key: Address, leaving: asyncio.Future[Any]) -> None:
        def done(_: asyncio.Future[Any]) -> None:
            if self._leaving.get(key) is leaving:
                del self._leaving[key]

        self._leaving[key] = leaving
        leaving.add_done_callback(done)

    # --- erasing

    async def erase(self, cls: type[Any], name: str, *, identity: Any = None, patience: float = 1.0) -> int:
        """Delete an agent and everything of it. How many rows that were; 0 when there was none."""
        key = self._key(cls, name)
        task = self._erasing.get(key) or self._begin_erasing(key, identity=identity, patience=patience)
        rows = await asyncio.shield(task)
        await asyncio.gather(*(asyncio.shield(scrub) for scrub in self._scrubs))
        return rows

    def _begin_erasing(self, key: Address, *, identity: Any, patience: float) -> asyncio.Task[int]:
        """From here on whoever reaches the agent waits, and finds nothing."""
        leaving, start = self._leaving.get(key), self._live.pop(key, None)
        erasing = self._erase(key, leaving, start, identity=identity, patience=patience)
        task = asyncio.create_task(erasing, name=f"erase {key}", context=contextvars.Context())
        self._erasing[key] = task
        self._note_leaving(key, task)
        task.add_done_callback(lambda _: self._erasing.pop(key, None))
        return task

    async def _erase(
        self,
        key: Address,
        leaving: asyncio.Future[Any] | None,
        start: asyncio.Task[Actor] | None,
        *,
        identity: Any,
        patience: float,
    ) -> int:
        if leaving is not None:
            await asyncio.wait([leaving])
        if start is not None:
            start.cancel()
            await asyncio.wait([start])
        actor = start.result() if start is not None and _is_up(start) else None
        if actor is not None:
            await self._end(actor)
        id, closing = key.id, RESTART
        try:
            fence = self._fences.get(id) or await self._claimed(key)
            try:
                rows = await self._delete(key, fence, Audit(action="erase", allowed=True, identity=identity))
                closing = ERASED
            finally:
                await self._give_back(fence, id)
        finally:
            # Only what is durable is told: those who hear of it stay away for good.
            if actor is not None and actor.sockets is not None:
                actor.sockets.close_all(*closing)
        # Not by whoever asked: that may have been the agent itself, which is gone.
        scrub = begin(self.store.scrub(patience=patience), "overwriting what was erased", tell=self._tell)
        self._scrubs.add(scrub)
        scrub.add_done_callback(self._scrubs.discard)
        return rows

    async def _delete(self, key: Address, fence: Fence, audit: Audit) -> int:
        id = key.id
        self.trials.forget(id)
        await self.trials.undo_all(id)  # what is on its way about it comes first
        rows = rows_erased(await fence.apply_last(erased(id, is_claimed=fence.claim is not None)))
        self._bus.emit(key.cls_name, key.name, audit)
        if rows:
            self._bus.emit(key.cls_name, key.name, Destroy())
        return rows

    async def _end(self, actor: Actor) -> None:
        """Stop an agent that shall write nothing any more."""
        if actor.sockets is not None:
            actor.sockets.hear_no_more()
        await self._stopped(actor)
        actor.fence.shut()

    async def _stopped(self, actor: Actor) -> None:
        """Stop an agent that is not waited for longer than a moment."""
        stopping = asyncio.ensure_future(actor.stop(0))
        await asyncio.wait([stopping], timeout=STOPPING)
        if not stopping.done():
            log.warning("%s is gone while something of it does not stop; it can write nothing", actor.id)
        elif (error := stopping.exception()) is not None:
            log.error("%s is gone; stopping it failed", actor.id, exc_info=error)

    async def close(self, *, grace: float) -> None:
        """Stop every agent. Until all of them have stopped they reach each other."""
        await self.waker.stop()
        self._is_closing = True
        for task in self._live.values():
            if _is_up(task):
                task.result().refuse()  # at once: what is refused from here on must be no failure of theirs
        for timer in (self._sweep, self._broom):
            if timer is not None:
                timer.cancel()
        if self._sweeping is not None:
            await asyncio.wait([self._sweeping])
        if self._retention is not None:
            with contextlib.suppress(StoreError):
                await self._note_seen(self._retention)
        actors = [task.result() for task in self._live.values() if _is_up(task)]
        starting = [task for task in self._live.values() if not task.done()]
        for task in starting:
            task.cancel()
        await asyncio.gather(*(actor.stop(grace) for actor in actors))
        self._closed = True
        self._live.clear()
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)
        await asyncio.gather(*starting, return_exceptions=True)
        await self.trials.undo_all()
        for fence in self._fences.values():
            fence.retire()
        await self._give_all_back()

    async def _give_all_back(self) -> None:
        if self.membership is not None:
            try:
                await self.store.apply([cluster_queries.all_released(self.membership.id)])
            except StoreError as error:
                log.warning("the others find out by themselves that this process is gone: %s", error)
            await self.membership.leave()


def _is_up(task: asyncio.Task[Actor]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _not_started(key: Address) -> StoreClosed:
    return StoreClosed(
        f"The app is closing: {key} is not in memory, and no agent is started any more.",
        kept="Nothing was done.",
        next_step="Fibers, turns, jobs and timers that meet this go on at the next start.",
    )


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or "\x00" in name:
        raise AgentError(
            f"An agent's name is text of 1 to {MAX_NAME} characters; this one is {str(name)[:40]!r}."
        )
