"""A database into which somebody else has written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import Rows, Statement, Store

__all__ = ["DEEP", "Poisoned", "deep", "store_url"]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where one test's agents live."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/everthink.db"


def deep(levels: int = 10_000) -> str:
    """A JSON text that is nested so deep."""
    return "[" * levels + "]" * levels


DEEP = deep()


class Poisoned:
    """The rows of agents of one class, written by hand."""

    def __init__(self, store: Store, cls: str) -> None:
        self._store, self._cls, self._seq = store, cls, 0

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str, agents: str = "Assistant") -> AsyncIterator[Poisoned]:
        """While no server has it open."""
        store = await open_store(url, MIGRATIONS)
        try:
            yield cls(store, agents)
        finally:
            await store.close()

    async def run(self, sql: str, *params: Any) -> Rows:
        return (await self._store.apply([Statement(sql, params)]))[0]

    async def rows(self, sql: str, *params: Any) -> Rows:
        return await self._store.fetch(sql, *params)

    async def agent(self, name: str) -> None:
        """An agent that exists."""
        await self.run(
            "INSERT INTO agents (agent, class, name, created_at) VALUES (?, ?, ?, 1)",
            *(f"{self._cls}/{name}", self._cls, name),
        )

    async def message(
        self, name: str, id: str, content: str, *, parent: str | None = None, role: str = "user"
    ) -> None:
        self._seq += 1
        await self.run(
            "INSERT INTO messages (agent, session, id, seq, parent, role, content, created_at)"
            " VALUES (?, '', ?, ?, ?, ?, ?, 1)",
            *(f"{self._cls}/{name}", id, self._seq, parent, role, content),
        )

    async def said(self, name: str, id: str, text: str, *, parent: str | None = None) -> None:
        """A message as we write it."""
        content = json.dumps({"parts": [{"type": "text", "text": text}]})
        await self.message(name, id, content, parent=parent)

    async def turn(
        self, name: str, id: str, *, status: str = "running", input: str | None = None, question: str = "q"
    ) -> None:
        """A turn that a process left behind."""
        self._seq += 1
        started = None if status == "accepted" else 1
        await self.run(
            "INSERT INTO turns (agent, id, seq, request_id, trigger, status, continuation, input, message_id,"
            " created_at, started_at, question) VALUES (?, ?, ?, ?, 'ws-chat', ?, 0, ?, ?, 1, ?, ?)",
            *(f"{self._cls}/{name}", id, self._seq, f"r-{id}", status, input, f"answer-{id}"),
            *(started, question),
        )

    async def segment(self, name: str, turn: str, chunks: str, *, first: int = 0) -> None:
        await self.run(
            "INSERT INTO segments (agent, turn, first_seq, last_seq, chunks, written_at)"
            " VALUES (?, ?, ?, ?, ?, 1)",
            *(f"{self._cls}/{name}", turn, first, first + 3, chunks),
        )

    async def value(self, name: str, key: str, value: str) -> None:
        await self.run(
            "INSERT INTO kv (agent, name, value) VALUES (?, ?, ?)", f"{self._cls}/{name}", key, value
        )
