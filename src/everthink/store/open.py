"""Open the store that a URL names.

App(store="…") --> open_store --> sqlite/ or postgres/, on first use (for tests: crashpoints around it)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..errors import StoreError
from ..masking import mask
from .crashpoints import crash_plan, with_crash_points
from .port import Migration, Store

__all__ = ["check_url", "open_store"]

_SERVERS = ("postgresql", "postgres")
_ACCEPTED = """\
Accepted are:
  sqlite:///data/agents.db          a file, relative to the working directory
  sqlite:////var/lib/agents.db      a file, absolute
  data/agents.db                    a file, without the scheme
  :memory: or sqlite://:memory:     nothing is kept after the process ends
  postgresql://user:password@host:5432/database"""


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


def check_url(url: str) -> None:
    """Raise `StoreError` for what names no store, before anything is opened."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        _bare(url)
    elif scheme not in _SERVERS:
        _path(scheme, rest)


async def _open(text: str, migrations: Sequence[Migration], options: dict[str, Any]) -> Store:
    scheme, separator, rest = text.partition("://")
    if separator and scheme in _SERVERS:
        from .postgres import open_postgres

        return await open_postgres(text, migrations, **options)
    from .sqlite import open_sqlite

    return await open_sqlite(_path(scheme, rest) if separator else _bare(text), migrations, **options)


def _path(scheme: str, rest: str) -> str:
    """The path in a SQLite URL: what follows the third slash."""
    if scheme != "sqlite":
        raise _unknown(f"A store URL cannot start with {scheme}://.")
    if rest in (":memory:", "/:memory:"):
        return ":memory:"
    if not rest.startswith("/") or rest == "/":
        raise _unknown(f"The store URL sqlite://{rest} names no file.")
    if "?" in rest:
        raise _unknown(f"The store URL sqlite://{rest} has options; pass them as arguments instead.")
    return rest[1:]


def _bare(text: str) -> str:
    if not text:
        raise _unknown("The store URL is empty.")
    return text


def _unknown(what: str) -> StoreError:
    return StoreError(mask(what), kept="Nothing was opened.", next_step=_ACCEPTED)
