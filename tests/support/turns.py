"""Ways to watch a turn from outside: the database, the readers, the events, the store itself."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everthink import App, Think
from everthink import chunks as ui
from everthink.door.admission import Admitted
from everthink.door.chat_request import ChatRequest, Dropped
from everthink.journal.segments import unpack
from everthink.observe.events import Event
from everthink.open_store import open_store
from everthink.runtime.actor import Actor
from everthink.runtime.schema import MIGRATIONS
from everthink.testing import WatchedStore, Witness
from tests.support.agents import live

__all__ = [
    "Database",
    "Heard",
    "WatchedStore",
    "Witness",
    "all_over",
    "follow",
    "gated_app",
    "home_of",
    "prompt",
    "record_events",
    "roles",
]


class Database:
    """A second, read-only look into the file an app writes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "everthink.db"

    def rows(self, sql: str, *params: Any) -> list[dict[str, Any]]:
        connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, params)]
        finally:
            connection.close()

    def turns(self) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM turns ORDER BY agent, seq")

    def statuses(self) -> list[str]:
        return [row["status"] for row in self.turns()]

    def messages(self) -> list[dict[str, Any]]:
        """The stored messages of all agents, in the order they were stored, as JSON."""
        return [
            {"id": row["id"], "role": row["role"], **json.loads(row["content"])}
            for row in self.rows("SELECT id, role, content FROM messages ORDER BY seq")
        ]

    def texts(self) -> list[str]:
        return [
            "".join(part.get("text", "") for part in message["parts"] if part["type"] == "text")
            for message in self.messages()
        ]

    def segments(self, turn: str | None = None) -> list[dict[str, Any]]:
        if turn is None:
            return self.rows("SELECT * FROM segments ORDER BY agent, turn, first_seq")
        return self.rows("SELECT * FROM segments WHERE turn = ? ORDER BY first_seq", turn)

    def chunks(self, turn: str | None = None) -> list[ui.Chunk]:
        """Every chunk in the journal, decoded."""
        return [chunk for segment in self.segments(turn) for chunk in unpack(segment["chunks"])]

    def calls(self) -> dict[str, dict[str, Any]]:
        """The ledger, by call id."""
        return {row["call_id"]: row for row in self.rows("SELECT * FROM calls ORDER BY asked_at")}


@asynccontextmanager
async def gated_app(
    folder: Path, *agents: type[Think], **options: Any
) -> AsyncIterator[tuple[App, WatchedStore]]:
    """An app on a real SQLite file behind a gate."""
    store = WatchedStore(await open_store(f"sqlite:///{folder}/everthink.db", MIGRATIONS))
    try:
        async with App(*agents, store=store, grace=0.0, idle_after=None, **options) as app:
            yield app, store
            store.release()
    finally:
        store.release()
        await store.close()


async def home_of(app: App, cls: type[Think], name: str = "default") -> Actor:
    """Where an agent lives, for tests that need its queue or its readers."""
    return (await live(app.agent(cls, name)))._home


async def accept_request(home: Actor, request: ChatRequest) -> Admitted | Dropped:
    """What a chat window asks of an agent."""
    assert home.chat is not None
    return await home.chat.requests.accept(request)


async def all_over(app: App, cls: type[Think], name: str = "default") -> None:
    """Return once no turn of the agent runs or waits, and the hooks after the turns have returned too."""
    home = await home_of(app, cls, name)
    while home.chat.door._open:
        await asyncio.wait([turn.task for turn in home.chat.door._open if turn.task is not None])


def follow(stream: Awaitable[Any]) -> asyncio.Task[Any]:
    """Await a stream in a task of its own."""

    async def to_the_end() -> Any:
        return await stream

    return asyncio.create_task(to_the_end())


class Heard:
    """A callback for `chat()` that remembers what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def on_start(self, request_id: str) -> None:
        self.told.append(("start", request_id))

    def on_event(self, json: str) -> None:
        self.told.append(("event", json))

    def on_done(self) -> None:
        self.told.append(("done", None))

    def on_error(self, error: str) -> None:
        self.told.append(("error", error))

    @property
    def names(self) -> list[str]:
        """What was told besides the chunks."""
        return [name for name, _ in self.told if name != "event"]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(value) for name, value in self.told if name == "event"]

    @property
    def text(self) -> str:
        return "".join(chunk["delta"] for chunk in self.chunks if chunk["type"] == "text-delta")


def record_events(app: App, *types: str) -> list[Event]:
    """Everything the app reports from now on, or events of these types only."""
    events: list[Event] = []
    app.events.subscribe(events.append, type=types or None)
    return events


def roles(messages: list[Any]) -> list[str]:
    return [message.role for message in messages]


def prompt(request: Any) -> list[tuple[str, str]]:
    """What a model was shown: (role, text) of each message."""
    return [(_role(message), _text(message)) for message in request.messages]


def _role(message: Any) -> str:
    return type(message).__name__.removesuffix("Message").lower()


def _text(message: Any) -> str:
    content = getattr(message, "content", None)
    if content is None:
        return message.text
    return "".join(getattr(part, "text", "") for part in content)
