"""Decide which steps of the schema a database still needs.

    open --applied numbers--> outstanding --Migration, …--> the adapter runs them in one transaction

Pure. Steps only go forward, and a database that is ahead of this release is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import StoreError, StoreTooNew
from .error_texts import shortened
from .port import Engine, Migration, TextIndex

__all__ = [
    "CREATE_SCHEMA_TABLE",
    "READ_APPLIED",
    "RECORD_APPLIED",
    "Table",
    "failed_step",
    "outstanding",
    "tables_of",
]

CREATE_SCHEMA_TABLE = (
    "CREATE TABLE IF NOT EXISTS everthink_schema "
    "(number BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL) /* clustered */"
)
READ_APPLIED = "SELECT COALESCE(MAX(number), 0) FROM everthink_schema"
RECORD_APPLIED = "INSERT INTO everthink_schema (number, name, applied_at) VALUES (?, ?, ?)"

_CREATES = re.compile(r"\s*CREATE TABLE (\w+) \((.*)\)", re.DOTALL)
_ADDS = re.compile(r"\s*ALTER TABLE (\w+) ADD COLUMN (\w+)")
_DROPS = re.compile(r"\s*DROP TABLE (\w+)")
_KEY = re.compile(r"PRIMARY KEY \(([^)]*)\)")
_INSIDE = re.compile(r"\([^()]*\)")
_NO_COLUMN = ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "CONSTRAINT")


class Table(NamedTuple):
    """A table as the steps of a schema leave it."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


def tables_of(migrations: Sequence[Migration], engine: Engine | None = None) -> tuple[Table, ...]:
    """The tables that these steps leave, in order, read from their definitions: none can be forgotten.

    Those of every engine, and with `engine` also those that only that one has.
    """
    found: dict[str, Table] = {}
    made_here = (migration for migration in migrations if migration.only in (None, engine))
    for sql in (step for migration in made_here for step in migration.statements if isinstance(step, str)):
        if made := _CREATES.match(sql):
            words = [column.split()[0] for column in _INSIDE.sub("", made[2]).split(",")]
            key = _KEY.search(made[2])
            columns = tuple(word for word in words if word.upper() not in _NO_COLUMN)
            found[made[1]] = Table(made[1], columns, tuple(key[1].split(", ")) if key else ())
        elif added := _ADDS.match(sql):
            table = found[added[1]]
            found[added[1]] = table._replace(columns=(*table.columns, added[2]))
        elif dropped := _DROPS.match(sql):
            found.pop(dropped[1], None)
    return tuple(found.values())


def outstanding(
    migrations: Sequence[Migration], applied: int, *, where: str, engine: Engine | None = None
) -> Sequence[Migration]:
    """The steps above number `applied`, in order; those for another engine are empty.

    `where` names the database in errors.
    """
    numbers = [migration.number for migration in migrations]
    if numbers != list(range(1, len(numbers) + 1)):
        raise StoreError(
            f"Migrations must be numbered 1, 2, 3 and so on without gaps, not {numbers}.",
            kept=f"{where} was not touched.",
            next_step="Renumber the steps that were not released yet.",
        )
    if applied > len(migrations):
        raise StoreTooNew(
            f"{where} has schema number {applied}, and this release knows numbers up to {len(migrations)}.",
            kept="Nothing in it was changed.",
            next_step="Upgrade everthink to the release that wrote it, or open another database.",
        )
    steps = migrations[applied:]
    return [step if step.only in (None, engine) else step._replace(statements=()) for step in steps]


def failed_step(migration: Migration, sql: str | TextIndex, reason: object, *, where: str) -> StoreError:
    """A step of the schema could not be applied."""
    return StoreError(
        f"{where} rejected schema step {migration.number} ({migration.name}): {reason}. "
        f"The statement was: {shortened(str(sql))}",
        kept="The schema and the data are as they were before this start.",
        next_step="Correct the step and start again.",
    )
