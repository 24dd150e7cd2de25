"""Bring the schema of a PostgreSQL database up to date, in one transaction.

Several processes may start at once: an advisory lock lets one of them do the work while
the others wait, and then find nothing left to do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..errors import StoreError
from ..store.migrate import CREATE_SCHEMA_TABLE, READ_APPLIED, RECORD_APPLIED, failed_step, outstanding
from ..store.port import Migration, TextIndex
from .driver import Connection
from .failures import failures, state_of
from .search import install
from .sql import kinds_of, numbered

__all__ = ["migrate"]

_LOCK = 0x65766572  # "ever": any number will do as long as every release uses the same one.


async def migrate(connection: Connection, migrations: Sequence[Migration], where: str) -> None:
    """Run the outstanding steps on `connection`, which the caller closes; failing, that undoes them."""
    encoding: str = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"The database {where} has the encoding {encoding}, which cannot hold every text.",
            kept="Nothing was changed.",
            next_step="Create another one with: createdb --encoding=UTF8 --template=template0 NAME",
        )
    await connection.execute("BEGIN")
    await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
    known = await connection.fetchval("SELECT to_regclass('everthink_schema') IS NOT NULL")
    applied: int = await connection.fetchval(READ_APPLIED) if known else 0
    steps = outstanding(migrations, applied, where=f"The database {where}", engine="postgres")
    if not known:
        await connection.execute(CREATE_SCHEMA_TABLE)
    for step in steps:
        await _run_step(connection, step, where)
    await connection.execute("COMMIT")


async def _run_step(connection: Connection, step: Migration, where: str) -> None:
    for sql in step.statements:
        try:
            if isinstance(sql, TextIndex):
                await install(connection, sql)
            else:
                await connection.execute(sql)
        except failures() as error:
            if not state_of(error) or connection.is_closed():
                raise
            raise failed_step(step, sql, error.args[0], where=f"The database {where}") from error
    record = (step.number, step.name, int(time.time() * 1000))
    await connection.execute(numbered(RECORD_APPLIED, kinds_of(record)), *record)
