"""Take heavy contents out of old messages, a few rows at a time, beside the turns.

    turn ended, large history opened --start_pass--> Evictor --> files of the workspace and lighter rows
    conversation cleared, agent started --remove_cleared--> Evictor --> its files are gone

A file and the row that names it are one commit, or the file comes first: whatever is killed in here leaves a
message whole or its file in place. What the workspace does not take stays in its message.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from ..clock import Clock
from ..errors import CommitRefused, WorkspaceError
from ..observe.events import ChatMediaEvicted, EventBody
from ..store.port import AgentStore, Statement
from . import attachments
from .media import EVICTED_FOLDER, Blob, Evicted, MediaEviction, aged, evicted, eviction_of
from .session import REWRITTEN, Session

__all__ = ["Evictor", "Keeper", "Parts"]

log = logging.getLogger("everthink.session")

_TRIES = 5
"""Places that are tried for the files of a message, when something else is there."""


class Keeper(Protocol):
    """Where the files go: `file_tools.preserved` has one over the agent's workspace."""

    @property
    def folder(self) -> str:
        """What keeps them apart from those of other agents; empty when nobody else has this workspace."""
        ...

    async def keep(
        self, blobs: Sequence[Blob], conclude: Callable[[Sequence[Statement]], Awaitable[None]]
    ) -> None:
        """Write files; `conclude` commits what names them. Raises `WorkspaceError` when that cannot be."""
        ...

    async def drop(self, paths: Sequence[str], forget: Callable[[Sequence[str]], Statement]) -> bool:
        """Remove files for good. False when some are still there."""
        ...

    async def read(self, path: str) -> bytes | None:
        """The bytes of one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of an agent that its evictor uses."""

    clock: Clock
    store: AgentStore
    files: Keeper
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
        for place in range(_TRIES if message is not None else 0):
            lighter = message and evicted(
                message,
                min_part_bytes=settings.min_part_bytes,
                externalize=settings.externalize_to_workspace,
                folder=self._folder(session, place),
            )
            if lighter is None:
                return None
            try:
                await self._exchange(session, lighter)
                return lighter
            except CommitRefused as error:
                if error.guard != REWRITTEN:
                    raise
                return None  # the message was cleared away meanwhile
            except WorkspaceError as error:
                if error.code != "ESTALE":
                    log.warning("message %s keeps its files: %s", id, error)
                    return None
        return None

    def _folder(self, session: Session, place: int) -> str:
        # Ids are chosen by clients and may be the same in two sessions: their files must not be.
        parts = (self._parts.files.folder, quote(session.id, safe=""), f"{place}" if place else "")
        return "/".join((EVICTED_FOLDER, *(part for part in parts if part)))

    async def _exchange(self, session: Session, lighter: Evicted) -> None:
        now = self._parts.clock.now_ms()
        notes = [attachments.noted(session.id, blob, now=now) for blob in lighter.blobs]

        async def conclude(statements: Sequence[Statement]) -> None:
            await session.rewrite(lighter.message, *statements, *notes)

        if lighter.blobs:
            await self._parts.files.keep(lighter.blobs, conclude)
        else:
            await conclude(())

    # --- what goes with a conversation

    async def remove_cleared(self) -> bool:
        """Remove the files of conversations that were cleared. True when there were any."""
        parts, is_done, found = self._parts, True, False
        while is_done and (rows := await parts.store.fetch(attachments.GONE)):
            found = True
            is_done = await parts.files.drop([row[0] for row in rows], attachments.forgotten)
        return found

    async def read(self, path: str) -> bytes | None:
        """A file that left its message, or `None`."""
        return await attachments.read_attachment(self._parts.store, path, self._parts.files.read)
