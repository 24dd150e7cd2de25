"""The agents of this process that are in memory, and how to reach one.

    handle, socket, alarm --Address--> Directory --> Actor

At most one live instance exists per address. Callers that arrive while it starts share that
start; a start that fails leaves nothing behind, so the next caller tries again. Where other processes use
the same database an agent is claimed before it starts and given back when it leaves memory (claims.py).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from ..address import Address, check_name, check_place, kebab
from ..browser.browsers import Browsers
from ..children import queries as child_queries
from ..children.declared import with_children
from ..children.parts import Child, Kin
from ..clock import Clock, Timer
from ..cluster import queries as cluster_queries
from ..cluster.fence import Fence, Loss
from ..cluster.membership import Membership
from ..deliveries import queries as delivery_queries
from ..deliveries.sending import Bots
from ..engines.sandboxes import Sandboxes
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
from ..journal.feed import Cleared, FeedEvent, HistoryChanged, MessageUpdated, TurnEnded, TurnStarted
from ..keeping.objects import erase_objects
from ..limits import Limits
from ..mcp.places import Network, Place
from ..mcp.shared import SharedServers
from ..models.port import Model
from ..oauth.sealing import Sealer
from ..observe.bus import EventBus
from ..observe.events import Audit, Destroy, EventBody, Released, SetAside, TaskFailed
from ..recovery import suspects
from ..recovery.suspects import Suspect
from ..recovery.trials import Trial, Trials
from ..schedules import alarm_queries, job_queries
from ..store.port import Store
from ..tasks import begin
from ..turn.ending import SEGMENT_GRACE_MS
from ..turn.host import Leaves
from . import cleaning, queries
from .actor import Actor
from .claims import Claims
from .erasing import erased, rows_erased
from .introduced import Introduced
from .retention import Retention
from .waker import Waker

__all__ = ["Directory", "new_id"]

log = logging.getLogger("everthink.runtime")

ERASED = (4410, "Erased")
"""How the sockets of an agent that is erased are closed."""
DELETED = (1001, "Sub-agent deleted")
"""How those of a child are closed that is deleted: clients may come back, to an empty one."""
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
    """A fresh id. It sorts by time: short rows of one agent lie together in the database. And it is short:
    a turn stores a dozen. 45 bits of milliseconds, 65 that nobody can guess, five to a letter."""
    bits = (time.time_ns() // 1_000_000) << 75 | secrets.randbits(75)
    return base64.b32hexencode(bits.to_bytes(15, "big"))[:22].decode().lower()


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
        network: Network | None = None,
        mcp_servers: Mapping[str, Place] | None = None,
        handle: Callable[[type[Any], Address], Any] | None = None,
    ) -> None:
        self.classes = dict(classes)
        """The agent classes that are known, by name: those of the app, and those of children."""
        self._parts: dict[str, Any] = {
            "base": base,
            "store": store,
            "clock": clock,
            "bus": bus,
            "new_id": ids,
            "resolve_model": resolve_model,
            "limits": limits or Limits(),
        }
        self.network = network = network or Network(Sealer.from_environment())
        """How agents reach MCP servers."""
        self.shared_servers = SharedServers(
            mcp_servers or {}, network, store=store, clock=clock, tell=lambda failed: bus.emit("", "", failed)
        )
        """The MCP servers that every agent may use."""
        self._sandboxes, self._browsers, self._bots = Sandboxes(), Browsers(), Bots(clock)
        self._parts |= {
            "network": network,
            "shared_servers": self.shared_servers,
            "kin": self._kin(handle),
            "sandboxes": self._sandboxes,
            "browsers": self._browsers,
            "bots": self._bots,
        }
        self.store, self._clock, self._bus = store, clock, bus
        self.membership = membership
        """This process among those that share the database; `None` when it has one owner anyway."""
        if membership is not None:
            membership.on_lost, membership.on_change = self._lose_all, self._look_again
        self.trials = Trials(store, clock, store_of=lambda agent: self._claims.store_of(agent))
        """Counts what is tried, and knows what took earlier processes down."""
        self._claims = Claims(store, membership, learn=self.trials.learn, lost=self._lost)
        self._parts["trials"] = self.trials
        # The agents that are reached for what is due.
        self._reached_for_due: set[str] = set()
        self._live: dict[Address, asyncio.Task[Actor]] = {}
        # Tasks that wait for the start of an agent, and that start.
        self._waiting: dict[asyncio.Task[Any], asyncio.Task[Actor]] = {}
        self._leaving: dict[Address, asyncio.Future[Any]] = {}
        self._erasing: dict[Address, asyncio.Task[int]] = {}
        self._scrubs: set[asyncio.Future[bool]] = set()
        # No more agents start; then, once those in memory have stopped, nobody reaches one.
        self._is_closing = self._closed = False
        # Agents that left memory since their time was last noted, if agents are not kept for ever.
        self._left: set[str] = set()
        self._retention = None
        if retention is not None:
            self._retention = Retention(retention, store=store, clock=clock, classes=self.classes)
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
            classes=self.classes,
            find=self._address_of,
            reach=self._run_due,
            left=(
                turn_queries.WAITING,
                queries.TO_CONTINUE,
                fiber_queries.WAITING,
                job_queries.LEFT,
                child_queries.LEFT,
                child_queries.OWED,
                queries.TO_SWEEP,
                queries.TO_POLL,
                delivery_queries.LEFT,
            ),
            rank=self.trials.rank,
            elsewhere=membership.elsewhere if membership is not None else None,
        )
        """Reaches agents when their time has come, without any client."""

    def __len__(self) -> int:
        return len(self._live)

    # --- addresses

    def address(self, cls: type[Any], name: str, *, below: Address | None = None) -> Address:
        """The address of an agent, a child of the one it is `below`. Raises when there can be none."""
        if below is not None:
            self.learn(cls)
        elif self.classes.get(cls.__name__) is not cls:
            known = ", ".join(sorted(self.classes)) or "none"
            raise AgentError(
                f"{cls.__name__} is not an agent of this app (it has: {known}).",
                next_step=f"Add it: App({cls.__name__}, ...).",
            )
        check_name(name)
        address = Address(cls.__name__, name, () if below is None else below.path)
        check_place(address)
        return address

    def learn(self, cls: type[Any]) -> None:
        """Know the class of a child from now on, and those of its children. What is due for them is found."""
        if self.classes.get(cls.__name__) is cls:
            return
        found = {one.__name__: one for one in with_children([cls])}
        for name, one in found.items():
            if (known := self.classes.get(name, one)) is not one:
                raise AgentError(
                    f"There are two agent classes of the name {name}: {_where(known)} and {_where(one)}."
                    " Rows go by that name.",
                    next_step="Give one of them another name.",
                )
        self.classes |= found
        self.waker.look()

    def _kin(self, handle: Callable[[type[Any], Address], Any] | None) -> Kin:
        """How agents reach each other."""

        async def known(address: Address) -> Actor:
            actor = await self.reach(address)
            await self.note(actor)
            return actor

        async def child(address: Address) -> Child:
            return (await self.reach(address)).as_child()

        def below(cls: type[Any], name: str, parent: Address) -> Address:
            return self.address(cls, name, below=parent)

        def called(cls_name: str, name: str, parent: Address) -> Address:
            check_name(name)
            return parent.child(cls_name, name)

        return Kin(
            address=below,
            called=called,
            classes=lambda: self.classes,
            learn=self.learn,
            handle=handle or (lambda cls, address: address),
            reach=known,
            child=child,
            exists=self._is_known,
            found=self._address_of,
            evict=self.evict,
            erase=self.erase,
        )

    def in_memory(self, agent: str) -> Address | None:
        """The address behind the id of an agent that is in memory."""
        return self._claims.address(agent)

    def children_called(self) -> dict[str, type[Any]]:
        """The classes that may follow a `sub` in an address, by what they are called there."""
        return {name: cls for cls in self.classes.values() for name in (kebab(cls.__name__), cls.__name__)}

    async def note(self, actor: Actor) -> None:
        """The agent is known from now on, though nothing was kept for it yet."""
        is_known = isinstance(actor.store, Introduced) and actor.store.is_known
        if not is_known and not await self.store.fetch(queries.IS_KNOWN, actor.id):
            await actor.store.apply([])

    async def _address_of(self, agent: str) -> Address | None:
        """The address behind an id; `None` when there is no such agent."""
        if (address := self.in_memory(agent)) is not None:
            return address
        rows = await self.store.fetch(queries.ADDRESS, agent)
        return queries.address_of(*rows[0]) if rows else None

    # --- reaching them

    async def exists(self, address: Address) -> bool:
        """True when there is such an agent: in memory, or because something of it is kept."""
        self._check_open()
        return await self._is_there(address)

    async def reach(self, address: Address, props: Any = None) -> Actor:
        """The live agent at this address, started if need be."""
        for _ in range(STARTS):
            if (actor := await self._reach(address, props)) is not None:
                return actor
        raise LeaseLost(
            f"{address} was taken away {STARTS} times while it started.",
            kept="Everything that was stored is there.",
            next_step="Reach it again: here, or in the process that has it now.",
        )

    def live(self, address: Address) -> Actor | None:
        """The agent at this address, if it is in memory and serves."""
        self._check_open()
        task = self._live.get(address)
        return task.result() if task is not None and _is_up(task) else None

    async def _reach(self, key: Address, props: Any) -> Actor | None:
        """The live agent; `None` when it had to be dropped while it started, and may be tried again."""
        self._check_open()
        task = self._live.get(key)
        if self._is_closing and (task is None or not _is_up(task)):
            raise _not_started(key)
        if task is None:
            # Only who leaves now is waited for: whoever evicts this start waits for it, not the reverse.
            begun = self._start(key, props, after=self._leaving.get(key) or self._ending_above(key))
            task = self._live[key] = asyncio.create_task(begun, name=f"start {key}")
            self._watch()
            self._tidy_later()
        elif _is_up(task):
            actor = task.result()
            actor.idle_since = None
            return actor
        mine = self._check_circle(key, task)
        try:
            self._waiting[mine] = task
            return await asyncio.shield(task)
        except BaseException as error:
            if task.done() and self._live.get(key) is task:
                del self._live[key]
            if isinstance(error, asyncio.CancelledError) and task.cancelled() and key in self._erasing:
                raise AgentError(
                    f"{key} was erased while it started.",
                    kept="Nothing was stored.",
                    next_step="Reach it again to begin from nothing.",
                ) from None
            is_lost = task.cancelled() and not _is_cancelled()
            if isinstance(error, asyncio.CancelledError) and is_lost:
                if self._is_closing:
                    raise _not_started(key) from None
                return None
            raise
        finally:
            self._waiting.pop(mine, None)

    def _check_circle(self, key: Address, start: asyncio.Task[Actor]) -> asyncio.Task[Any]:
        """Refuse to wait for a start that waits for us: we are part of a start ourselves. Who we are."""
        mine = asyncio.current_task()
        assert mine is not None
        behind: asyncio.Task[Any] | None = start
        while behind is not None:
            if behind is mine:
                raise AgentError(
                    f"{key} has not started yet, and its start waits for whoever asks for it here: both would"
                    " wait for ever.",
                    kept="Nothing was done.",
                    next_step="Ask for it once its on_start has returned: in a method, a tool or a timer.",
                )
            behind = self._waiting.get(behind)
        return mine

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("The app is closed.", next_step="Use the agent inside `async with App(...)`.")

    async def _start(self, address: Address, props: Any, *, after: asyncio.Future[Any] | None) -> Actor:
        if after is not None:
            await asyncio.wait([after])  # what is being cut there must not be taken up here meanwhile
        id = address.id
        fence = await self._claims.take(address)
        try:
            trial = await self._counted(address)
            try:
                actor = await self._started(address, props, fence)
            except BaseException:
                if fence.is_lost:
                    self.trials.forget(id)
                await self.trials.undo_all(id)  # it failed in good order: that takes nobody down
                raise
        except BaseException:
            await self._claims.give_back(address, fence)
            raise
        if trial.is_open and id not in self._reached_for_due and not await self._has_due(id):
            self._clear_after(trial, actor.left_work())
        return actor

    async def _has_due(self, id: str) -> bool:
        """True when timers are due: the waker comes for them, and may find out what is wrong with them."""
        return bool(await self.store.fetch(alarm_queries.DUE, self._clock.now_ms(), 1, agent=id))

    async def _started(self, address: Address, props: Any, fence: Fence) -> Actor:
        now = self._clock.now_ms()
        noted = [queries.note_agent(one, now=now) for one in address.family]
        parts: dict[str, Any] = {**self._parts, "store": Introduced(fence, noted), "fence": fence}
        actor = Actor(self.classes[address.cls_name], address, waker=self.waker.wake_at, **parts)
        if address.parents:
            actor.feed.join(lambda shown: self._moved(address) if _is_move(shown) else None)
        try:
            await actor.start(props)
        except BaseException:
            await actor.stop(0)  # what it had begun must not go on beside the next attempt
            raise
        return actor

    async def require(self, address: Address) -> None:
        """Raise when there is no such agent."""
        if not await self.exists(address):
            where = f"below {address.parent} " if address.parent is not None else ""
            raise AgentError(
                f"There is no {address.cls_name} {address.name!r} {where}in this database.",
                kept="Nothing was changed.",
            )

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

    async def _is_known(self, key: Address) -> bool:
        """True when an agent is among those that are listed: one that was only looked at since it was deleted
        is none, though it is in memory. Whoever is erasing it is waited for."""
        self._check_open()
        while (leaving := self._leaving.get(key) or self._ending_above(key)) is not None:
            await asyncio.wait([leaving])
        return bool(await self.store.fetch(queries.IS_KNOWN, key.id))

    async def _run_due(self, address: Address) -> None:
        """Reach an agent whose time has come. What is due is part of a start that was made for it."""
        if not await self._is_there(address):
            return  # erased since somebody saw its timer
        id = address.id
        self._reached_for_due.add(id)
        try:
            actor = await self.reach(address)
            await actor.alarms.run_due()
        except BaseException as error:
            if (trial := self.trials.running(id)) is not None:
                await self.trials.undo(trial)
            is_stopped = isinstance(error, asyncio.CancelledError) and not _is_cancelled()
            if is_stopped and not await self._is_there(address):
                return  # what was due has erased it
            raise
        finally:
            self._reached_for_due.discard(id)
        if (trial := self.trials.running(id)) is not None:
            self._clear_after(trial, actor.left_work())

    # --- parents that left memory while a child waited for a person

    def _moved(self, child: Address) -> None:
        """Something happened in a child: a parent that waits for it, and has left memory, comes back."""
        if child.parent not in self._live and not self._is_closing:
            begin(self._wake_parent(child), f"waking the parent of {child}", tell=self._tell)

    async def _wake_parent(self, child: Address) -> None:
        assert child.parent is not None
        if await child_queries.is_awaited(self.store, child.id):
            self.waker.wake_at(0, child.parent.id)

    # --- losing one

    def _lost(self, key: Address, fence: Fence, why: Loss, what: str) -> None:
        """An agent must leave memory as if the process had died: it is not ours, or not as we think."""
        log.warning("%s leaves memory: %s", key.id, what)
        # Those who are not stopped with the agent, be it gone already, must not wait for ever.
        asyncio.get_running_loop().call_later(HELD, fence.answer)
        if self._claims.fence(key.id) is fence and (start := self._live.pop(key, None)) is not None:
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
        self._claims.forget(key, fence)
        if why == "taken":
            self.trials.forget(id)
        else:
            self.waker.wake_at(0, id)  # read it again: what was cut off goes on from what is stored

    def _lose_all(self) -> None:
        """Nobody knows any more that this process lives: others may have its agents."""
        self._claims.lose_all("this process has lost its lease")

    def _look_again(self) -> None:
        """Others came, went or died: what they had to do may be ours now."""
        self.waker.look()

    # --- what takes the process down

    async def _counted(self, address: Address) -> Trial:
        """Count a start before anything of the agent is read or run. Raises `AgentSetAside`."""
        trial = await self.trials.prepare(address.id, what="its start")
        if trial.is_aside:
            await self._set_aside(address, trial.suspect)
            raise AgentSetAside(address.id, trial.suspect.strikes)
        await self.trials.count(trial)
        return trial

    async def _set_aside(self, address: Address, suspect: Suspect) -> None:
        if suspect.is_aside:
            return
        await self._claims.store_of(suspect.agent).apply([self.trials.aside(suspect)])
        log.error(
            "%s is set aside: the process died, or was killed, in %d of its starts. All of it is kept;"
            " `everthink release %s` tries again.",
            suspect.agent,
            suspect.strikes,
            suspect.agent,
        )
        self._emit(address, SetAside(strikes=suspect.strikes))

    def _clear_after(self, trial: Trial, work: Collection[asyncio.Future[Any]]) -> None:
        """The agent is up: nothing speaks against it, unless what an earlier process left does it yet."""
        if not work:
            self.trials.clear(trial)
            return
        watching = asyncio.gather(*work, return_exceptions=True)
        watching.add_done_callback(lambda _: self.trials.clear(trial))

    async def release(self, key: Address, turn: str | None = None) -> list[str]:
        """Let what was set aside of an agent, and of all below it, be tried again: one turn, or all.

        Returns the turns, `""` for an agent.
        """
        self._check_open()
        members = {id for (id,) in await self.store.fetch(queries.MEMBERS, key.id)}
        below = {one.agent for one in await self.set_aside()} & (members - {key.id})
        found = await self._released(key, turn)
        for id in sorted(below):
            if (address := await self._address_of(id)) is not None:
                found += await self._released(address, turn)
        return found

    async def _released(self, key: Address, turn: str | None) -> list[str]:
        id = key.id
        while (task := self._leaving.get(key) or self._live.get(key)) is not None and not task.done():
            await asyncio.wait([task])
        fence = self._claims.fence(id)
        if key in self._live and fence is not None:
            found = await self._release(key, fence, turn)
        else:
            releasing = asyncio.create_task(self._release_asleep(key, turn), name=f"release {key}")
            self._note_leaving(key, releasing)  # whoever reaches it now waits for that
            found = await asyncio.shield(releasing)
        for one in found:
            self._emit(key, Released(turn_id=one or None))
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
        fence = await self._claims.take(key)
        try:
            return await self._release(key, fence, turn)
        finally:
            await self._claims.give_back(key, fence)

    async def set_aside(self) -> list[Suspect]:
        """What is not tried any more until it is released."""
        return await suspects.all_aside(self.store)

    # --- tidying up

    def _tidy_later(self) -> None:
        if self._broom is None and not self._is_closing:
            self._broom = self._clock.call_later(
                SEGMENT_GRACE_MS / 1000, self._begin_tidying, housekeeping=True
            )

    def _emit(self, address: Address, event: EventBody) -> None:
        self._bus.emit(address.cls_name, address.name, event, address.parents)

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
            fence = await self._claims.take(key)
        except AgentElsewhere:
            await retention.seen([id])  # it is in use
            return 0
        try:
            if not await retention.is_over(id):
                return 0
            return await self._delete(key, fence, Audit(action="erase", allowed=True, reason="retention"))
        finally:
            await self._claims.give_back(key, fence)

    async def _note_seen(self, retention: Retention) -> None:
        left, self._left = self._left, set()
        await retention.seen(left | {key.root.id for key in self._live})

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

    async def evict(self, key: Address, *, grace: float = 0.0) -> None:
        """Drop an agent from memory; the next one to reach it starts it anew."""
        task = self._live.pop(key, None)
        if task is None:
            return
        if _is_up(task) and (sockets := task.result().sockets) is not None:
            sockets.close_all(*RESTART)  # what they would send to this one is nobody's
        await asyncio.shield(self._leave(key, task, grace))

    def _leave(self, key: Address, start: asyncio.Task[Actor], grace: float) -> asyncio.Future[None]:
        """Stop an agent that cannot be reached any more. The next start at its address waits for that."""

        async def stop() -> None:
            actor = await start
            await actor.stop(grace, "alone")
            await self.trials.undo_all(actor.id)  # cut on purpose
            await self._claims.give_back(key, actor.fence)

        if self._retention is not None:
            self._left.add(key.root.id)
        agent = key.id
        leaving = begin(stop(), f"stopping {agent}", tell=lambda failed: self._emit(key, failed))
        self._note_leaving(key, leaving)
        return leaving

    def _note_leaving(self, key: Address, leaving: asyncio.Future[Any]) -> None:
        def done(_: asyncio.Future[Any]) -> None:
            if self._leaving.get(key) is leaving:
                del self._leaving[key]

        self._leaving[key] = leaving
        leaving.add_done_callback(done)

    # --- erasing

    async def erase(self, key: Address, *, identity: Any = None, patience: float = 1.0) -> int:
        """Delete an agent, everything of it and all below it. How many rows that were; 0: there was none."""
        self._check_open()
        task = self._erasing.get(key) or self._begin_erasing(key, identity=identity, patience=patience)
        rows = await asyncio.shield(task)
        await asyncio.gather(*(asyncio.shield(scrub) for scrub in self._scrubs))
        return rows

    def _begin_erasing(self, key: Address, *, identity: Any, patience: float) -> asyncio.Task[int]:
        """From here on whoever reaches the agent, or one below it, waits, and finds nothing."""
        below = len(key.path)
        family = [one for one in {*self._live, *self._leaving} if one.path[:below] == key.path]
        leaving = [self._leaving[one] for one in family if one in self._leaving]
        starts = [self._live.pop(one) for one in family if one in self._live]
        erasing = self._erase(key, leaving, starts, identity=identity, patience=patience)
        task = asyncio.create_task(erasing, name=f"erase {key}", context=contextvars.Context())
        self._erasing[key] = task
        for one in {key, *family}:
            self._note_leaving(one, task)
        task.add_done_callback(lambda _: self._erasing.pop(key, None))
        return task

    def _ending_above(self, key: Address) -> asyncio.Future[Any] | None:
        """The erasing of one that this agent is below, if that is under way."""
        return next(
            (task for one, task in self._erasing.items() if key.path[: len(one.path)] == one.path), None
        )

    async def _erase(
        self,
        key: Address,
        leaving: Sequence[asyncio.Future[Any]],
        starts: Sequence[asyncio.Task[Actor]],
        *,
        identity: Any,
        patience: float,
    ) -> int:
        for start in starts:
            start.cancel()
        if leaving or starts:
            await asyncio.wait([*leaving, *starts])
        actors = [start.result() for start in starts if _is_up(start)]
        await asyncio.gather(*(self._end(actor) for actor in actors))
        await self._browsers.forget(key.id)
        closing = RESTART
        try:
            fence = self._claims.fence(key.id) or await self._claims.take(key)
            try:
                rows = await self._delete(key, fence, Audit(action="erase", allowed=True, identity=identity))
                closing = DELETED if key.parents else ERASED
            finally:
                for actor in actors:
                    await self._claims.give_back(actor.address, actor.fence)
                await self._claims.give_back(key, fence)
        finally:
            # Only what is durable is told: those who hear of it stay away for good.
            for actor in actors:
                if actor.sockets is not None:
                    tell = actor.sockets.close_all if closing is RESTART else actor.sockets.erased
                    tell(*closing)
        # Not by whoever asked: that may have been the agent itself, which is gone.
        scrub = begin(self.store.scrub(patience=patience), "overwriting what was erased", tell=self._tell)
        self._scrubs.add(scrub)
        scrub.add_done_callback(self._scrubs.discard)
        return rows

    async def _delete(self, key: Address, fence: Fence, audit: Audit) -> int:
        for (id,) in await self.store.fetch(queries.MEMBERS, key.id):
            self.trials.forget(id)
            await self.trials.undo_all(id)  # what is on its way about it comes first
        below = await self.store.fetch(queries.BELOW, key.id)
        members = dict([(key.id, key.cls_name), *((row[0], row[1]) for row in below)])
        await erase_objects(self.store, list(members.items()), self.classes)
        is_claimed = fence.claim is not None and not key.parents
        rows = rows_erased(await fence.apply_last(erased(key.id, is_claimed=is_claimed)))
        self._emit(key, audit)
        if rows:
            self._emit(key, Destroy())
        if key.parents:
            self._moved(key)
        return rows

    async def _end(self, actor: Actor) -> None:
        """Stop an agent that shall write nothing any more."""
        if actor.sockets is not None:
            actor.sockets.hear_no_more()
        await self._stopped(actor, "erased")
        actor.fence.shut()

    async def _stopped(self, actor: Actor, leaves: Leaves = "alone") -> None:
        """Stop an agent that is not waited for longer than a moment."""
        stopping = asyncio.ensure_future(actor.stop(0, leaves))
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
        await self.shared_servers.close()
        await self._sandboxes.close()
        await self._browsers.close()
        await self._bots.close()
        await self.trials.undo_all()
        self._claims.retire_all()
        await self._give_all_back()

    async def _give_all_back(self) -> None:
        if self.membership is not None:
            try:
                await self.store.apply([cluster_queries.all_released(self.membership.id)])
            except StoreError as error:
                log.warning("the others find out by themselves that this process is gone: %s", error)
            await self.membership.leave()


def _is_move(shown: FeedEvent) -> bool:
    """True for what may end the waiting for a person: a turn, an answer, another conversation."""
    if isinstance(shown, HistoryChanged):
        return shown.what == "other"
    return isinstance(shown, MessageUpdated | TurnStarted | TurnEnded | Cleared)


def _is_up(task: asyncio.Task[Actor]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _not_started(key: Address) -> StoreClosed:
    return StoreClosed(
        f"The app is closing: {key} is not in memory, and no agent is started any more.",
        kept="Nothing was done.",
        next_step="Fibers, turns, jobs and timers that meet this go on at the next start.",
    )


def _where(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
