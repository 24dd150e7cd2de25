"""Let the server drop what was deleted: its rows are only marked until a VACUUM has been by.

    Store.scrub --> VACUUM of our tables, on a connection of its own

Best effort: rows that an older transaction may still see stay until the next one. The server's write-ahead
log, its replicas and backups keep what was deleted for as long as whoever runs the server lets them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from .driver import connect
from .failures import failures

__all__ = ["Vacuum"]

log = logging.getLogger("everthink.store")

_LONGEST = 600.0
"""Seconds after which we stop waiting for it; the server's own comes by in time."""


class Vacuum:
    """Vacuums the tables of one database, one pass at a time."""

    def __init__(self, url: str, tables: Sequence[str], where: str) -> None:
        self._url, self._tables, self._where = url, tables, where
        self._lock = asyncio.Lock()

    async def run(self) -> bool:
        """Drop what was deleted before this was called. False when that was not possible."""
        async with self._lock:
            try:
                async with asyncio.timeout(_LONGEST):
                    await self._run()
            except failures() as error:
                log.warning("deleted rows stay in %s until its next VACUUM: %s", self._where, error)
                return False
        return True

    async def rest(self) -> None:
        """Return once nothing runs."""
        async with self._lock:
            pass

    async def _run(self) -> None:
        connection = await connect(self._url, command_timeout=None)
        try:
            await connection.execute(f"VACUUM {', '.join(self._tables)}")
            await connection.close()
        finally:
            if not connection.is_closed():
                connection.terminate()
