"""An agent's way to the store, which can be shut for good.

    turn/, session/, fibers, … --> Fence --> Store          erasing --shut()--> nothing more is written

Whatever of an erased agent still runs (a tool that ignores being stopped, code that kept the instance) can
write no row that the erasing commit would have missed: commits are applied in the order of the calls.
"""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import Any

from ..errors import StoreClosed
from ..store.port import Commit, Rows, Search, Store

__all__ = ["Fence"]


class Fence:
    """A `Store` for one agent. Everything passes until it is shut; then nothing is written any more."""

    __slots__ = ("_agent", "_is_shut", "_store")

    def __init__(self, store: Store, agent: str) -> None:
        self._store, self._agent, self._is_shut = store, agent, False

    def shut(self) -> None:
        """Write nothing any more. What was asked for before is written before what is asked for next."""
        self._is_shut = True

    def apply(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        """See `Store.apply`."""
        if not self._is_shut:
            return self._store.apply(commit)
        refused: asyncio.Future[list[Rows]] = asyncio.get_running_loop().create_future()
        refused.set_exception(
            StoreClosed(
                f"{self._agent} was erased.",
                kept="Nothing was stored.",
                next_step="Reach it anew, through the app, to begin from nothing.",
            )
        )
        return refused

    def fetch(self, sql: str, *params: Any) -> CoroutineType[Any, Any, Rows]:
        """See `Store.fetch`."""
        return self._store.fetch(sql, *params)

    def search(self, search: Search) -> CoroutineType[Any, Any, Rows]:
        """See `Store.search`."""
        return self._store.search(search)

    def scrub(self, *, patience: float = 0.0) -> CoroutineType[Any, Any, bool]:
        """See `Store.scrub`."""
        return self._store.scrub(patience=patience)

    def close(self) -> CoroutineType[Any, Any, None]:
        """See `Store.close`."""
        return self._store.close()

    def __getattr__(self, name: str) -> Any:
        # What an adapter offers besides the port: its path, its place.
        return getattr(self._store, name)
