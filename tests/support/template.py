"""Our tables in a new SQLite file: copied from a file that was migrated, instead of made again for each test.

    App, open_store --> open_database --our steps, and no file yet--> the bytes of a migrated file go first
                                      --anything else---------------> the steps run, as always

Making the tables is two thirds of what an app on a new file costs, and thousands of tests open one. The file
that is copied is made by the steps themselves, once in each process. Where it is tested how tables are made
(tests/store), and in every process that a test starts, the steps run.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from everthink.runtime.schema import MIGRATIONS
from everthink.sqlite import database, store
from everthink.sqlite.database import Database, open_database
from everthink.sqlite.files import claim
from everthink.store.port import Migration

__all__ = ["copied_tables", "migrated_file"]

_opening = threading.local()
"""In a thread that opens a database of ours."""


@cache
def migrated_file() -> bytes:
    """What a database is in which the steps have made our tables, and nothing else happened."""
    with tempfile.TemporaryDirectory(prefix="everthink-tables-") as folder:
        path = Path(folder) / "everthink.db"
        open_database(path, MIGRATIONS, synchronous="NORMAL", busy_timeout=5.0).close()
        return path.read_bytes()


@contextlib.contextmanager
def copied_tables() -> Iterator[None]:
    """Have whoever opens a new database in this process find our tables in it."""
    migrated_file()  # before anything is in its place
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "open_database", _open)
        patch.setattr(database, "claim", _claim)
        yield


def _open(path: Path | None, migrations: Sequence[Migration], **options: Any) -> Database:
    _opening.ours = migrations is MIGRATIONS
    try:
        return open_database(path, migrations, **options)
    finally:
        _opening.ours = False


def _claim(path: Path) -> tuple[int, int]:
    """`claim`, which makes the file if there is none: what it makes is filled."""
    is_new = not os.path.lexists(path)
    claimed = claim(path)
    if is_new and getattr(_opening, "ours", False):
        with path.open("r+b") as file:
            file.write(migrated_file())
    return claimed
