"""The files of an agent, from the terminal: looked at beside a server, changed only where there is none.

    AGENT, --store --look--> read-only connection --> Workspace --> what a command shows
                   --change--> the database itself, held alone --> Workspace --> what a command writes

A server that has the agent in memory would not know of a change, so the one excludes the other, in words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar, cast

from ..cli import journal as read
from ..clock import SystemClock
from ..errors import StoreLocked, StoreUnreadable
from ..store.port import AgentStore, Store
from ..workspace.workspace import Workspace

__all__ = ["change", "look"]

T = TypeVar("T")

Work = Callable[[Workspace], Coroutine[Any, Any, T]]

_KEPT = "Nothing was changed."
_INSIDE = "agent.workspace"


def look(store: str, agent: str, work: Work[T]) -> T:
    """What `work` comes to with the files of an agent, which it can only read."""
    journal = read.open_journal(store)
    try:
        id = _id_of(journal, agent)
        try:
            journal.rows("SELECT 1 FROM files LIMIT 1")
        except StoreUnreadable as error:
            raise StoreUnreadable(
                f"{journal.where} was written by a release whose agents had no files.",
                kept=_KEPT,
                next_step="They have some once a server of this release has opened it.",
            ) from error
        return journal.run(work(_workspace(AgentStore(cast("Store", journal), id))))
    finally:
        journal.close()


def change(store: str, agent: str, work: Work[T]) -> T:
    """The same with files that it may write. Raises `StoreLocked` when a server has the database."""
    journal = read.open_journal(store)
    try:
        id = _id_of(journal, agent)
        read.refuse_beside_a_server(journal, id, kept=_KEPT, inside=_INSIDE)
    finally:
        journal.close()
    return asyncio.run(_changed(store, id, work))


async def _changed(store: str, id: str, work: Work[T]) -> T:
    from ..open_store import open_store
    from ..runtime.schema import MIGRATIONS

    try:
        database = await open_store(store, MIGRATIONS)
    except StoreLocked as error:
        raise StoreLocked(
            error.what, kept=_KEPT, next_step=f"Stop that process first, or use `{_INSIDE}` inside it."
        ) from error
    try:
        return await work(_workspace(AgentStore(database, id)))
    finally:
        await database.close()


def _id_of(journal: read.Journal, agent: str) -> str:
    found = read.named(journal, agent)
    if found is None:
        raise read.unknown(journal, agent)
    return read.who(found)


def _workspace(store: AgentStore) -> Workspace:
    async def named(hashes: Collection[str]) -> Collection[str]:
        from ..keeping.sweeping import named_by_history
        from ..runtime.queries import MEMBERS

        members = await store.database.fetch(MEMBERS, store.agent)
        return await named_by_history(store.database, [row[0] for row in members], hashes)

    return Workspace().bind(store, clock=SystemClock(), named=named)
