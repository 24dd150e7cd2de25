"""Keep this process alive for the others, and find out which of them are dead. One thread for each life.

    thread --renew, every beat--> nodes.lease_until       agents' loop --tick--> thread (or it does not renew)
       └--look--> the others: lease run out? lock gone? --> dead, its sessions ended --> tell

The lease is the law, by the database's clock: who does not renew it for so long is dead. A lock of the
session that renews is the quick witness: it goes with the process. One look does not count, since a
connection that is made anew is without its lock for a moment.

It is a thread with a loop and a connection of its own, so that a tool which holds the agents' loop for a
while costs nothing; but one that holds it for ever does not keep its agents for ever.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from ..errors import StoreUnavailable
from ..postgres.driver import Connection
from ..postgres.failures import failures
from . import queries

__all__ = ["Lease"]

log = logging.getLogger("everthink.cluster")

BEATS = 12
"""So often within a lease it is renewed, and the others are looked at."""
LOOKS = 2
"""In so many looks in a row a lock must be missing."""

Dial = Callable[..., Awaitable[Connection]]


class Lease:
    """One life of this process, under one id.

    `seconds` is how long it is believed to live after each renewal; `dial` makes connections. On the
    loop of the agents `on_lost` is told why we are dead for the others, and `on_change` that somebody came,
    went or died: what they had may be anybody's now.
    """

    def __init__(
        self,
        id: str,
        dial: Dial,
        *,
        on_lost: Callable[[Lease, str], None],
        on_change: Callable[[Lease], None],
        seconds: float,
        classes: Collection[str],
        version: str,
    ) -> None:
        self.id, self._dial = id, dial
        self._on_lost, self._on_change = on_lost, on_change
        self.seconds, self.beat = seconds, seconds / BEATS
        self._classes, self._version = json.dumps(sorted(classes)), version
        self._lock = secrets.randbits(62)
        self._failures = failures()
        self._home = asyncio.get_running_loop()
        self.others: frozenset[str] = frozenset()
        """The ids of the others that live, as of the last look."""
        self.trouble: Exception | None = None
        """Why it cannot be renewed at the moment."""
        self._joined: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._loop = asyncio.new_event_loop()
        self._wanted = asyncio.Event()
        self._is_ending = self._is_over = self._is_locked = False
        # Monotonic times. Only the loop of the agents writes the first, only the thread the others.
        self._ticked = time.monotonic()
        self._renewed: float | None = None
        self._answered: float | None = None
        self._trusted: float | None = None
        self._unlocked: dict[str, int] = {}
        self._ticking: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name=f"everthink lease {id}", daemon=True)

    # --- on the loop of the agents

    def begin(self) -> asyncio.Future[None]:
        """Register. Resolves when that is done, and those who were found dead are declared so."""
        self._tick()
        self._thread.start()
        return asyncio.wrap_future(self._joined)

    async def end(self) -> None:
        """Die in good order: whatever we own is free when this returns, if the database can be reached."""
        self._stop_ticking()
        self._is_ending = True
        with contextlib.suppress(RuntimeError):  # the thread has ended already
            self._loop.call_soon_threadsafe(self._wanted.set)
        await asyncio.to_thread(self._thread.join, 2 * self.seconds)

    def _tick(self) -> None:
        self._ticked = time.monotonic()
        self._ticking = self._home.call_later(self.beat, self._tick)

    def _stop_ticking(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()

    # --- in the thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except Exception as error:
            log.exception("the lease of node %s ends because of a defect", self.id)
            self._lose(f"its lease failed ({type(error).__name__})")
        finally:
            self._loop.close()
            if not self._joined.done():
                self._joined.set_exception(StoreUnavailable("The lease was lost before it began."))

    async def _live(self) -> None:
        connection: Connection | None = None
        while not self._is_over:
            begun = time.monotonic()
            try:
                async with asyncio.timeout(self._patience()):
                    if connection is None or connection.is_closed():
                        connection = await self._connected()
                    if self._is_ending:
                        await self._goodbye(connection)
                    else:
                        await self._beat(connection)
                self.trouble, self._answered = None, begun
            except self._failures as error:
                self._failed(error)
                if connection is not None:
                    connection.terminate()
                connection = None
            if self._is_ending:
                return  # when it could not say goodbye the others find out by themselves
            await self._nap(begun + self.beat)
        if connection is not None:
            connection.terminate()

    def _patience(self) -> float:
        """How long an answer of the database is waited for: not much beyond a lease since the last one."""
        least, most = self.seconds / 3, self.seconds * 2 / 3
        if self._answered is None:
            return most
        return min(most, max(self._answered + self.seconds - time.monotonic(), least))

    async def _nap(self, until: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self._wanted.wait()
        self._wanted.clear()

    async def _connected(self) -> Connection:
        connection = await self._dial(command_timeout=self.seconds)
        # The lock goes with it: nobody should see us without one in two looks.
        connection.add_termination_listener(lambda _: self._wanted.set())
        self._is_locked = False
        await self._take_lock(connection)
        if self._renewed is None:
            await self._register(connection)
        return connection

    async def _take_lock(self, connection: Connection) -> None:
        # Not waited for: it may be held by our own last session, whose end the server has not noticed yet.
        if not self._is_locked:
            self._is_locked = await connection.fetchval(queries.LOCK, self._lock)

    async def _register(self, connection: Connection) -> None:
        uptime: int = await connection.fetchval(queries.UPTIME)
        place, ms = f"process {os.getpid()} on {socket.gethostname()}", round(self.seconds * 1000)
        began = time.monotonic()
        facts = (self.id, place, self._lock, self._version, self._classes, ms)
        await connection.execute(queries.REGISTER, *facts)
        self._renewed = began
        # On a server that has just started nobody has a lock, because nobody is back yet.
        self._trusted = began - self.seconds if uptime > ms else began

    async def _beat(self, connection: Connection) -> None:
        began = time.monotonic()
        await self._take_lock(connection)
        if began - self._ticked >= self.seconds / 2:
            return  # the agents' loop stands still: if that lasts, somebody else may have them
        if await connection.fetchval(queries.RENEW, self.id, round(self.seconds * 1000)) is None:
            self._lose("the others took it for dead")
            return
        assert self._renewed is not None
        if self._trusted is None or began - self._renewed > self.seconds:
            self._trusted = began
        self._renewed = began
        is_settled = await self._look(connection, began)
        if is_settled and not self._joined.done():
            self._joined.set_result(None)

    def _failed(self, error: Exception) -> None:
        self.trouble, self._trusted = error, None
        self._unlocked.clear()
        log.info("node %s cannot renew its lease: %s: %s", self.id, type(error).__name__, error)
        # A lease that ran out while the loop stood still is renewed, unless somebody took us for dead. One
        # that ran out because nobody answers is over: we cannot know.
        if self._answered is not None and time.monotonic() - self._answered >= self.seconds:
            self._lose(f"the database could not be reached for {self.seconds:g} s")

    def _lose(self, why: str) -> None:
        self._is_over = True
        self._tell(lambda: self._on_lost(self, why))
        self._tell(self._stop_ticking)

    async def _goodbye(self, connection: Connection) -> None:
        await connection.fetchval(queries.DECLARE_DEAD, self.id)
        await connection.execute(queries.RELEASE_ALL, self.id)
        await connection.close()

    # --- the others

    async def _look(self, connection: Connection, began: float) -> bool:
        """Look who lives. True when nobody is suspected who may turn out to be dead in the next looks."""
        found: list[Any] = await connection.fetch(queries.PEERS, self.id)
        self._unlocked = {id: self._unlocked.get(id, 0) + 1 for id, _, _, is_unlocked in found if is_unlocked}
        suspects = {id: place for id, place, is_late, is_unlocked in found if is_late or is_unlocked}
        late = {id for id, _, is_late, _ in found if is_late}
        # Only who has been here for a whole lease without a gap may judge.
        if self._trusted is not None and began - self._trusted >= self.seconds:
            for id in [id for id in suspects if id in late or self._unlocked.get(id, 0) >= LOOKS]:
                await self._declare(connection, id, suspects.pop(id))
                late.discard(id)
                found = [row for row in found if row[0] != id]
        others = frozenset(row[0] for row in found)
        if others != self.others:
            self.others = others
            self._tell(lambda: self._on_change(self))
        return not suspects

    async def _declare(self, connection: Connection, id: str, place: str) -> None:
        if await connection.fetchval(queries.DECLARE_DEAD, id) is not None:
            cut: int = await connection.fetchval(queries.CUT, id)
            log.warning("node %s (%s) is dead; others may run its agents. %d sessions ended", id, place, cut)

    def _tell(self, call: Callable[[], object]) -> None:
        try:
            self._home.call_soon_threadsafe(call)
        except RuntimeError:
            self._is_over = True  # that loop is closed: nobody needs us any more
