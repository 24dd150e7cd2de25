"""After a clear: leave nothing of the conversation in the files of the database.

    chat.clear --ask--> Cleaning --unsaid, scrub--> store          in the background, one at a time

The turns that ran when it was cleared may write chunks until they notice: those go when they are over.
However often a client clears, one pass runs and at most one more is owed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from ..errors import StoreError
from ..journal import queries
from ..store.port import AgentStore

__all__ = ["PATIENCE", "Cleaning"]

log = logging.getLogger("everthink.runtime")

PATIENCE = 0.05
"""Seconds that others may wait while the file is rewritten, for what a client may ask for at any time."""


class Cleaning:
    """What is owed to the cleared conversations of one agent."""

    def __init__(self, store: AgentStore, background: Callable[[Awaitable[None]], None]) -> None:
        self._store, self._background = store, background
        self._is_asked = self._is_running = False
        self._late: dict[str, asyncio.Task[None]] = {}

    def ask(self, running: Mapping[str, asyncio.Task[None]]) -> None:
        """The conversation was cleared while these turns ran."""
        self._is_asked = True
        self._late.update(running)
        if not self._is_running:
            self._is_running = True
            self._background(self._run())

    async def _run(self) -> None:
        try:
            while self._is_asked:
                self._is_asked = False
                await self._store.database.scrub(patience=PATIENCE)
                late, self._late = self._late, {}
                if late:
                    await asyncio.wait(late.values())
                    await self._store.apply(queries.unsaid(list(late)))
                    self._is_asked = True
        except StoreError as error:
            log.warning(
                "%s: what was cleared is deleted; it could not be scrubbed yet: %s", self._store.agent, error
            )
        finally:
            self._is_running = False
