"""A store that counts what passes through it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from everthink.session import queries
from everthink.store.port import Commit, Rows, Search, Store

__all__ = ["MeteredStore", "Traffic"]


@dataclass
class Traffic:
    """What went to and fro since it was last asked for."""

    fetches: int = 0
    rows: int = 0
    bytes: int = 0
    """Characters of the rows that were read."""
    contents: int = 0
    """Characters of message contents among them."""
    commits: int = 0
    statements: int = 0
    written: int = 0
    """Characters of the values that were written."""


class MeteredStore:
    """The real store, and how much was read and written."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._traffic = Traffic()

    def take(self) -> Traffic:
        """What was counted since the last call."""
        taken, self._traffic = self._traffic, Traffic()
        return taken

    def apply(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        traffic = self._traffic
        traffic.commits += 1
        traffic.statements += len(commit)
        traffic.written += sum(len(str(value)) for statement in commit for value in statement.params)
        return self._inner.apply(commit)

    async def fetch(self, sql: str, *params: Any) -> Rows:
        rows = await self._inner.fetch(sql, *params)
        traffic = self._traffic
        size = sum(len(str(value)) for row in rows for value in row)
        traffic.fetches += 1
        traffic.rows += len(rows)
        traffic.bytes += size
        if sql in (queries.BETWEEN, queries.BEFORE_WITH_CONTENTS):
            traffic.contents += sum(len(row[-1] or "") for row in rows)
        return rows

    async def search(self, search: Search) -> Rows:
        return await self._inner.search(search)

    async def close(self) -> None:
        await self._inner.close()
