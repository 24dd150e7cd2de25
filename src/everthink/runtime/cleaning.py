"""After a clear: leave nothing of the conversation in the files of the database.

    control.clear --ask--> Cleaning --unsaid, scrub--> store          in the background, one at a time

The turns that ran when it was cleared may write chunks until they notice: those go when they are over.
However often a client clears, one pass runs and at most one more is owed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Protocol

from ..errors import StoreError
from ..journal import queries
from ..store.port import Store

__all__ = ["PATIENCE", "Cleaning"]

log = logging.getLogger("everthink.runtime")

PATIENCE = 0.05
"""Seconds that others may wait while the file is rewritten, for what a client may ask for at any time."""


class Home(Protocol):
    """The agent, as this sees it."""

    id: str
    store: Store

    def background(self, work: Awaitable[None]) -> None:
        """Keep a task alive until it ends."""
        ...


class Cleaning:
    """What is owed to the cleared conversations of one agent."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._is_asked = self._is_running = False
        self._late: dict[str, asyncio.Task[None]] = {}

    def ask(self, running: Mapping[str, asyncio.Task[None]]) -> None:
        """The conversation was cleared while these turns ran."""
        self._is_asked = True
        self._late.update(running)
        if not self._is_running:
            self._is_running = True
            self._home.background(self._run())

    async def _run(self) -> None:
        home = self._home
        try:
            while self._is_asked:
                self._is_asked = False
                await home.store.scrub(patience=PATIENCE)
                late, self._late = self._late, {}
                if late:
                    await asyncio.wait(late.values())
                    await home.store.apply(queries.unsaid(home.id, list(late)))
                    self._is_asked = True
        except StoreError as error:
            log.warning("%s: what was cleared is deleted; it could not be scrubbed yet: %s", home.id, error)
        finally:
            self._is_running = False
