"""Take heavy contents out of old messages, a few rows at a time, beside the turns.

    turn ended, large history opened --start_pass--> Evictor --> files and lighter rows, in one commit each

A file and the row that names it are one commit, so whatever is killed in here leaves a message
whole or its file in place.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ..clock import Clock
from ..observe.events import ChatMediaEvicted, EventBody
from . import attachments
from .media import EVICTED_FOLDER, MediaEviction, aged, evicted, eviction_of
from .session import Session

__all__ = ["Evictor", "Parts"]

log = logging.getLogger("everthink.session")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of an agent that its evictor uses."""

    clock: Clock
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
        # Ids are chosen by clients and may be the same in two sessions: their files must not be.
        folder = f"{EVICTED_FOLDER}/{quote(session.id, safe='')}" if session.id else EVICTED_FOLDER
        stats = await session.get_history_row_stats()
        waiting = aged([(row.id, row.bytes) for row in stats], settings, seen=seen)
        total = {"messages": 0, "parts": 0, "bytes": 0, "externalized_bytes": 0}
        for id in waiting[: settings.max_rows_per_pass]:
            async with session.rewriting:
                message = session.find(id) or await session.get_message(id)
                lighter = message and evicted(
                    message,
                    min_part_bytes=settings.min_part_bytes,
                    externalize=settings.externalize_to_workspace,
                    folder=folder,
                )
                if lighter is None:
                    seen.add(id)
                    continue
                now = parts.clock.now_ms()
                files = [attachments.kept(session.id, blob, now=now) for blob in lighter.blobs]
                await session.rewrite(lighter.message, *files)
            seen.add(id)  # what was taken out is not there a second time
            total["messages"] += 1
            total["parts"] += lighter.parts
            total["bytes"] += lighter.bytes
            total["externalized_bytes"] += lighter.externalized_bytes
        if total["messages"]:
            parts.emit(ChatMediaEvicted(**total))
        return len(waiting) > settings.max_rows_per_pass
