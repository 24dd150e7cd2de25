"""Commits in the order of the calls, over one connection, grouped behind the one in flight.

    apply --> waiting --> send at once, or together once the server has answered --> futures

A commit that finds the connection idle is sent as it is; what arrives meanwhile goes as one group.
When the connection breaks, the commits in flight are in doubt and fail; those not sent yet
wait for a new connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from ..errors import StoreError
from ..store.error_texts import (
    NOTHING_WRITTEN,
    closed,
    copied,
)
from ..store.marks import bound
from ..store.outcomes import Job, Outcome, settle
from ..store.port import Commit, Rows
from .batch import BatchConnection
from .failures import failures, from_server, in_doubt
from .wait_for_server import patiently

__all__ = ["Writer"]

_LARGEST_GROUP = 64
"""PostgreSQL keeps 64 subtransactions of a session at hand; with more, every other session slows down."""


class Writer:
    """Owns the writing connection. Everything runs on the event loop that opened it."""

    def __init__(
        self,
        session: BatchConnection,
        connect: Callable[[], Awaitable[BatchConnection]],
        *,
        where: str,
        patience: float,
    ) -> None:
        self._session = session
        self._connect = connect
        self._where = where
        self._patience = patience
        self._failures = failures()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Job] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._is_sealed = False

    def submit(self, commit: Commit, agent: str = "") -> asyncio.Future[list[Rows]]:
        """Send `commit`, or put it behind those already waiting."""
        future: asyncio.Future[list[Rows]] = self._loop.create_future()
        if self._is_sealed:
            future.set_exception(closed(self._where))
            return future
        try:
            self._waiting.append((bound(commit, agent), future))
        except StoreError as error:
            future.set_exception(error)
            return future
        if self._sending is None:
            self._sending = self._loop.create_task(self._send())
        return future

    def reconnect(self) -> None:
        """Write through a new connection from now on. What is in flight on the present one is in doubt."""
        self._session.connection.terminate()

    def seal(self) -> None:
        """Accept no more commits."""
        self._is_sealed = True

    async def stop(self) -> None:
        """Finish what was accepted, then close the connection."""
        self.seal()
        if self._sending:
            await self._sending
        if not self._session.connection.is_closed():
            try:
                await self._session.connection.close()
            except self._failures:
                self._session.connection.terminate()

    async def _send(self) -> None:
        group: list[Job] = []
        try:
            while self._waiting:
                group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _LARGEST_GROUP))]
                settle(group, await self._write([commit for commit, _ in group]))
        except asyncio.CancelledError:
            # The loop is being torn down: nobody may wait for us.
            self._session.connection.terminate()
            for _, future in (*group, *self._waiting):
                future.cancel()
            self._waiting.clear()
            raise
        finally:
            self._sending = None

    async def _write(self, group: Sequence[Commit]) -> Sequence[Outcome]:
        try:
            outcomes = await self._write_group(group) if len(group) > 1 else None
            return outcomes or [await self._write_one(commit) for commit in group]
        except Exception as error:  # noqa: BLE001 - a defect of ours must not leave anybody waiting.
            self._session.connection.terminate()
            translated = in_doubt(error, self._where)
            return [copied(translated) for _ in group]

    async def _write_group(self, group: Sequence[Commit]) -> Sequence[Outcome] | None:
        try:
            session = await self._ready()
            return await session.run_group(group)
        except self._failures as error:
            translated = self._translated(error)
            return [copied(translated) for _ in group]

    async def _write_one(self, commit: Commit) -> Outcome:
        try:
            session = await self._ready()
            return await session.run(commit)
        except self._failures as error:
            return self._translated(error)

    async def _ready(self) -> BatchConnection:
        if self._session.connection.is_closed():
            self._session = await patiently(self._connect, self._where, self._patience, kept=NOTHING_WRITTEN)
        return self._session

    def _translated(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        if self._session.is_lost(error):
            self._session.connection.terminate()
            return in_doubt(error, self._where)
        return from_server(error, self._where)
