"""Take heavy contents out of old messages, a few rows at a time, beside the turns.

    turn ended, large history opened --start_pass--> Evictor --> files and lighter rows, in one commit each

The files are in the agent's own rows, whatever its workspace is: nobody else may see what was said. A file
and the row that names it are one commit, so whatever is killed in here leaves a message whole or its file in
place. These files are not in the log of changes: no `restore` takes them away from their messages.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CommitRefused, WorkspaceError
from ..observe.events import ChatMediaEvicted, EventBody
from ..store.port import Statement
from ..workspace.port import Put
from ..workspace.stored import StoredFiles
from .attachments import folder_of
from .media import Evicted, MediaEviction, aged, evicted, eviction_of
from .session import REWRITTEN, Session

__all__ = ["Evictor", "Parts"]

log = logging.getLogger("everthink.session")

_TRIES = 5
"""Names that are tried for the files of a message, when something else has them."""
_TAKEN = ("ESTALE", "EISDIR")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of an agent that its evictor uses."""

    files: Callable[[], StoredFiles]
    """The agent's own files."""
    live: Callable[[], Session]
    """The session that turns run in."""
    setting: Callable[[], Any]
    """The agent's `media_eviction` as it is now."""
    emit: Callable[[EventBody], None]
    """Tells observers."""
    background: Callable[[Awaitable[Any]], None]
    """Keeps a task alive until it ends."""


class Evictor:
    """Keeps the messages of one agent light."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._is_running = False
        # By session, messages that are large because somebody wrote much: there is nothing to take out.
        self._seen: dict[str, set[str]] = {}

    def start_pass(self) -> None:
        """Look at old messages in the background, if some may be too heavy and nobody does so already."""
        settings = eviction_of(self._parts.setting())
        session = self._parts.live()
        if settings is None or self._is_running or session.heaviest < settings.min_part_bytes:
            return
        if len(session.path) <= settings.keep_recent_messages and not session.is_partial:
            return
        self._is_running = True
        self._parts.background(self._run(settings))

    async def _run(self, settings: MediaEviction) -> None:
        try:
            while await self.run_pass(settings):
                pass
        finally:
            self._is_running = False

    async def run_pass(self, settings: MediaEviction) -> bool:
        """Look at so many rows as one pass may. True when there are more."""
        parts, session = self._parts, self._parts.live()
        seen = self._seen.setdefault(session.id, set())
        stats = await session.get_history_row_stats()
        waiting = aged([(row.id, row.bytes) for row in stats], settings, seen=seen)
        total = {"messages": 0, "parts": 0, "bytes": 0, "externalized_bytes": 0}
        for id in waiting[: settings.max_rows_per_pass]:
            async with session.rewriting:
                lighter = await self._lightened(session, id, settings)
            seen.add(id)  # what was taken out is not there a second time, and what stays is not asked again
            if lighter is None:
                continue
            total["messages"] += 1
            total["parts"] += lighter.parts
            total["bytes"] += lighter.bytes
            total["externalized_bytes"] += lighter.externalized_bytes
        if total["messages"]:
            parts.emit(ChatMediaEvicted(**total))
        return len(waiting) > settings.max_rows_per_pass

    async def _lightened(self, session: Session, id: str, settings: MediaEviction) -> Evicted | None:
        """Rewrite a message without its heavy contents. `None` when it stays as it is."""
        message = session.find(id) or await session.get_message(id)
        for number in range(_TRIES if message is not None else 0):
            assert message is not None
            lighter = evicted(
                message,
                min_part_bytes=settings.min_part_bytes,
                externalize=settings.externalize_to_workspace,
                folder=folder_of(session.id),
                number=number,
            )
            if lighter is None:
                return None
            try:
                await self._exchange(session, lighter)
                return lighter
            except CommitRefused as error:
                if error.guard != REWRITTEN:
                    raise
                return None  # the conversation was cleared meanwhile
            except WorkspaceError as error:
                if error.code not in _TAKEN:
                    log.warning("message %s keeps what it has: %s", id, error)
                    return None
        log.warning("message %s keeps what it has: there are other files at its names", id)
        return None

    async def _exchange(self, session: Session, lighter: Evicted) -> None:
        """Write the files and the lighter message in one commit."""

        async def conclude(statements: Sequence[Statement]) -> None:
            await session.rewrite(lighter.message, *statements)

        if not lighter.blobs:
            return await conclude(())
        puts = [Put(blob.path, blob.data, blob.media_type, if_hash="") for blob in lighter.blobs]
        await self._parts.files().apply(puts, conclude=conclude, is_logged=False)
