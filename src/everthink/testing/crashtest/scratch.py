"""An empty database for each performance, gone afterwards.

SQLite: a file in a temporary folder. PostgreSQL: a schema of its own in the database that is named, so that
nothing that is there already is touched.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path

from ...errors import AgentError
from ...postgres.driver import connect, load
from ...postgres.failures import failures, from_server, location_of

__all__ = ["check_store", "empty_store", "shown"]


def is_postgres(store: str) -> bool:
    """True for a PostgreSQL URL."""
    return store.startswith(("postgresql://", "postgres://"))


def check_store(store: str) -> None:
    """Raise an `AgentError` unless `store` is `sqlite` or a PostgreSQL URL."""
    if store != "sqlite" and not is_postgres(store):
        raise AgentError(
            f"{store!r} is no store to test with.",
            kept="Nothing was run.",
            next_step="Say sqlite (a new file each time) or postgresql://user@host/database (each time a new "
            "schema). Both are removed afterwards.",
        )


def shown(store: str) -> str:
    """The store as one may print it: without a password."""
    return f"PostgreSQL at {location_of(store)}" if is_postgres(store) else store


@contextlib.asynccontextmanager
async def empty_store(store: str, folder: Path) -> AsyncGenerator[str]:
    """The URL of a database that nobody has used, for as long as the block lasts."""
    if not is_postgres(store):
        yield f"sqlite:///{folder}/crashtest.db"
        return
    name = f"everthink_crashtest_{secrets.token_hex(6)}"
    await _run(store, f"CREATE SCHEMA {name}")
    try:
        yield f"{store}{'&' if '?' in store else '?'}search_path={name}"
    finally:
        await _run(store, f"DROP SCHEMA {name} CASCADE")


async def _run(url: str, sql: str) -> None:
    load()
    try:
        connection = await connect(url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()
    except failures() as error:
        raise from_server(
            error, location_of(url), kept="Nothing but the schemas of this test was touched."
        ) from error
