"""This process among those that share a database: it claims agents, gives them back, and may start over.

    Directory --claim(agent)--> Membership --> claims            AgentElsewhere: another process has it
    Lease --lost--> Membership --> every agent leaves memory --> a new name, a new lease

Claims go over a connection of their own: whoever waits for the row of a process that is just dying must not
keep the commits of other agents waiting.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

from ..errors import AgentElsewhere, StoreClosed, StoreError, StoreUnavailable
from ..postgres.driver import Connection
from ..postgres.failures import failures, from_server, state_of
from ..store.port import Statement, Store
from . import queries
from .fence import Claim
from .lease import Lease

__all__ = ["Membership", "Shared", "joined"]

log = logging.getLogger("everthink.cluster")

PATIENCE = 10.0
"""Seconds that a claim waits for a database that is away, or for a new lease."""
_LOCKED = "55P03"


class Shared(Store, Protocol):
    """A store that several processes may open at once."""

    where: str
    lease: float

    @property
    def peer(self) -> str:
        """Who we are for the server."""
        ...

    async def rename(self) -> str:
        """Be somebody else from now on."""
        ...

    async def dial(self, *, command_timeout: float) -> Connection:
        """One more connection to the same database."""
        ...


async def joined(store: Any, *, classes: Collection[str], version: str) -> Membership | None:
    """Join the processes that share `store`; `None` when it has one owner anyway."""
    if not hasattr(store, "dial"):
        return None
    membership = Membership(store, classes=classes, version=version)
    await membership.join()
    return membership


class Membership:
    """This process, as the others see it."""

    def __init__(self, store: Shared, *, classes: Collection[str], version: str) -> None:
        self._store, self._classes, self._version = store, classes, version
        self._failures = failures()
        self._lease: Lease | None = None
        self._rejoining: asyncio.Task[None] | None = None
        self._is_left = False
        self._claiming = asyncio.Lock()
        self._connection: Connection | None = None
        self.on_lost: Callable[[], object] = lambda: None
        """Called when every agent must leave memory: others may have them."""
        self.on_change: Callable[[], object] = lambda: None
        """Called when others came, went or died."""

    @property
    def id(self) -> str:
        """Who we are."""
        return self._store.peer

    @property
    def is_alone(self) -> bool:
        """True when nobody else is known to live."""
        return self._lease is not None and not self._lease.others

    # --- coming and going

    async def join(self) -> None:
        """Register, and wait until those who died before us are known to be dead."""
        lease = self._new_lease()
        try:
            async with asyncio.timeout(PATIENCE + 2 * lease.seconds):
                await lease.begin()
        except (TimeoutError, StoreUnavailable):
            await lease.end()
            trouble = lease.trouble or TimeoutError("no answer")
            raise from_server(trouble, self._store.where, kept="Nothing was changed.") from trouble
        self._lease = lease

    async def leave(self) -> None:
        """Give back everything and be gone."""
        self._is_left = True
        if self._rejoining is not None:
            self._rejoining.cancel()
            await asyncio.wait([self._rejoining])
        if self._lease is not None:
            await self._lease.end()
        if self._connection is not None:
            self._connection.terminate()

    def _new_lease(self) -> Lease:
        return Lease(
            self._store.peer,
            self._store.dial,
            on_lost=self._lease_lost,
            on_change=self._others_changed,
            seconds=self._store.lease,
            classes=self._classes,
            version=self._version,
        )

    def _lease_lost(self, lease: Lease, why: str) -> None:
        if lease is self._lease and not self._is_left:
            log.warning(
                "node %s has lost its lease: %s. Its agents leave memory; it registers anew.", lease.id, why
            )
            self._lease = None
            self.on_lost()
            self._rejoining = asyncio.get_running_loop().create_task(self._rejoin(), name="rejoin")
            self._rejoining.add_done_callback(_tell_failure)

    def _others_changed(self, lease: Lease) -> None:
        if lease is self._lease and not self._is_left:
            self.on_change()

    async def _rejoin(self) -> None:
        before = self._store.peer
        if self._connection is not None:
            self._connection.terminate()
        while self._lease is None:
            await self._store.rename()
            lease = self._new_lease()
            try:
                await lease.begin()
            except StoreUnavailable:
                continue  # it was lost before it began
            except asyncio.CancelledError:
                await lease.end()
                raise
            self._lease = lease
        try:
            # Nobody needs to wait until the others have noticed.
            await self._say(queries.DECLARE_DEAD, before)
        except StoreError as error:
            log.info("the others find out by themselves that node %s is gone: %s", before, error)
        log.warning("node %s goes on as node %s", before, self.id)
        self.on_change()

    # --- agents

    async def claim(self, agent: str) -> Claim:
        """Own an agent from now on. Raises `AgentElsewhere` while another process has it."""
        while True:
            id = await self._alive()
            found = await self._say(queries.CLAIM, agent, id)
            if found and self._lease is not None and id == self.id:
                return Claim(agent, id, *found[0])
            if self._lease is not None and id == self.id:
                break
        owners = await self._say(queries.OWNER, agent)
        if owners and owners[0][2] != "dead":
            log.info("%s lives in node %s (%s)", agent, owners[0][0], owners[0][1])
            raise AgentElsewhere(agent, f"another process (node {owners[0][0]})")
        raise AgentElsewhere(agent)  # somebody else was quicker, or is just being cut off

    def released(self, claim: Claim) -> Statement:
        """The statement that gives an agent back."""
        return queries.released(claim.agent, claim.owner, claim.epoch)

    async def elsewhere(self) -> Collection[str]:
        """The agents that others have, as of now."""
        if self.is_alone:
            return ()
        return {agent for (agent,) in await self._store.fetch(queries.FOREIGN, self.id)}

    async def _alive(self) -> str:
        """Our id, once there is a lease."""
        if self._is_left:
            raise StoreClosed("The app is closed.", next_step="Make a new App.")
        if self._rejoining is not None and not self._rejoining.done():
            done, _ = await asyncio.wait([self._rejoining], timeout=PATIENCE)
            if not done:
                raise self._away()
        if self._lease is None:
            raise self._away()
        return self._lease.id

    def _away(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"The database {self._store.where} does not answer: nobody knows which agents are free.",
            kept="Nothing was changed.",
            next_step="Try again when the server is up; this process registers by itself.",
        )

    async def _say(self, sql: str, *params: Any) -> list[Any]:
        """Ask over the connection for claims. All that is asked may be asked twice."""
        deadline, pause = time.monotonic() + PATIENCE, 0.05
        while True:
            try:
                async with self._claiming:
                    return await (await self._connected()).fetch(sql, *params)
            except self._failures as error:
                if state_of(error) == _LOCKED:
                    return []
                translated = error if isinstance(error, StoreError) else from_server(error, self._store.where)
                is_away = isinstance(translated, StoreUnavailable) or self._is_broken()
                if not is_away or time.monotonic() + pause > deadline:
                    raise translated from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    def _is_broken(self) -> bool:
        return self._connection is None or self._connection.is_closed()

    async def _connected(self) -> Connection:
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = await self._store.dial(command_timeout=PATIENCE)
            await connection.execute("SET lock_timeout = '2s'")
            self._connection = connection
        return connection


def _tell_failure(rejoining: asyncio.Task[None]) -> None:
    if not rejoining.cancelled() and (error := rejoining.exception()) is not None:
        log.error("this process could not register anew and serves no agent: restart it", exc_info=error)
