"""Keep the files of an agent free of bytes that nothing names any more: at a start, and after a clear.

    start, once a day; conversation cleared --Sweeping--> StoredFiles.sweep --named?--> messages, segments

What files, kept changes and messages name stays, a picture that only the history shows as well. What a
cleared conversation leaves behind is owed until it is done, by the next process if need be.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import AgentError
from ..journal import queries as journal
from ..session import queries as session
from ..store.port import AgentStore, Statement, Store
from ..workspace.port import WorkspaceLimits
from ..workspace.stored import StoredFiles

__all__ = ["DONE", "OWED", "Parts", "Sweeping", "is_due", "named_by_history"]

log = logging.getLogger("everthink.runtime")

OWED, DONE = "sweep", "swept"
"""The values under which it is kept that a sweep is owed, and when the last one was."""
EVERY_MS = 24 * 60 * 60 * 1000
_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of an agent that are used here."""

    id: str
    store: AgentStore
    now: Callable[[], int]
    files: Callable[[], StoredFiles]
    """Those in its own rows."""
    limits: Callable[[], WorkspaceLimits]
    save_value: Callable[[str, Any], Statement]
    background: Callable[[Awaitable[Any]], None]
    scrub: Callable[[], object]
    """Leaves nothing of what was deleted in the files of the database."""


def is_due(last: int | None, now: int) -> bool:
    """True when the last sweep, if there was one, is a day ago."""
    return last is None or now - last >= EVERY_MS


class Sweeping:
    """What is owed to the files of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = asyncio.Lock()
        self._owed = 0

    def owed(self) -> list[Statement]:
        """What a commit says that leaves bytes behind. `after_clear` follows it."""
        self._owed += 1
        return [self._parts.save_value(OWED, True)]

    def start(self, *, is_owed: bool) -> None:
        """Do in the background what is due."""
        self._owed += is_owed
        self._parts.background(self.run())

    async def after_clear(self) -> None:
        """A conversation was cleared: remove what it leaves behind. What cannot be now is done later."""
        self._parts.files().count_again()
        await self.run()

    async def run(self) -> None:
        """Sweep."""
        parts = self._parts
        async with self._lock:
            owed, files = self._owed, parts.files()
            try:
                swept = await files.sweep(parts.limits())
                done = [parts.save_value(DONE, parts.now())]
                if owed == self._owed:
                    self._owed = 0
                    done.append(parts.save_value(OWED, None))
                await parts.store.apply(done)
            except AgentError as error:
                log.warning("%s: bytes that nothing names any more stay for now: %s", parts.id, error)
                return
        if swept:
            parts.scrub()


async def named_by_history(store: Store, agents: Iterable[str], hashes: Collection[str]) -> set[str]:
    """Which of these hashes a message of one of the agents names, or a turn that is not a message yet."""
    found: set[str] = set()
    for agent in agents:
        for sql in (session.CONTENTS, journal.CHUNKS):
            after: tuple[Any, Any] = ("", -1)
            while rows := await store.fetch(sql, *after, agent=agent):
                after = (rows[-1][0], rows[-1][1])
                found |= await asyncio.to_thread(_named, [row[2] for row in rows], hashes)
    return found


def _named(texts: list[str], hashes: Collection[str]) -> set[str]:
    return {hash for text in texts for hash in _HASH.findall(text) if hash in hashes}
