"""Open the store that a URL names.

App(store="…") --> open_store --> sqlite/ or postgres/, on first use (in tests: crashpoints around it)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .store.crashpoints import crash_plan, with_crash_points
from .store.port import Migration, Store
from .store_urls import check_url, file_of, is_server

__all__ = ["open_store"]


async def open_store(url: str | os.PathLike[str], migrations: Sequence[Migration], **options: Any) -> Store:
    """Open the database at `url`, a URL or a path, and bring its schema up to date.

    `options` go to the adapter: `synchronous=`, `busy_timeout=` for SQLite,
    `readers=`, `patience=` for PostgreSQL.
    """
    text = os.fspath(url)
    plan = crash_plan(os.environ)
    store = await _open(text, migrations, options)
    try:
        return with_crash_points(store, plan)
    except BaseException:
        await store.close()
        raise


async def _open(text: str, migrations: Sequence[Migration], options: dict[str, Any]) -> Store:
    check_url(text)
    if is_server(text):
        from .postgres import open_postgres

        return await open_postgres(text, migrations, **options)
    from .sqlite import open_sqlite

    return await open_sqlite(file_of(text), migrations, **options)
