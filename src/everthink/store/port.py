"""What the core asks of a database: apply a commit, fetch rows, close.

    turn/, session/, submissions --Commit--> store --rows--> back

A commit is a value: a list of statements applied atomically, in order. Nobody holds a
transaction open across an `await`. When `apply` resolves, the commit is durable; when it
raises, nothing of it was written, unless the error says that this is in doubt (the connection to
a server was lost in the middle).

The SQL is the subset that SQLite >= 3.35 and PostgreSQL >= 14 share: `?` placeholders,
`ON CONFLICT`, `RETURNING`, JSON as TEXT, times as BIGINT milliseconds. A table definition may
end in `/* clustered */`: small rows that are found by their key; an engine that can keep them
in the key's own tree does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["Commit", "Migration", "Row", "Rows", "Statement", "Store"]

Row = Sequence[Any]
Rows = list[Row]


class Statement(NamedTuple):
    """One SQL statement with its parameters (str, int, float or None).

    A `guard` must touch (or return) at least one row; otherwise the whole commit is
    refused with `CommitRefused`.
    """

    sql: str
    params: tuple[Any, ...] = ()
    guard: bool = False


Commit = Sequence[Statement]


class Migration(NamedTuple):
    """A numbered, forward-only step of the schema. Numbers start at 1 without gaps."""

    number: int
    name: str
    statements: tuple[str, ...]


class Store(Protocol):
    """A database. Adapters: `store/sqlite`, `store/postgres`."""

    def apply(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        """Write `commit` atomically. Resolves, once it is durable, to the rows of each statement
        (empty without RETURNING). Commits are applied in the order of the calls.

        A future, so that a caller may attach a callback instead of a task. The work goes on even
        if nobody waits for it.
        """
        ...

    async def fetch(self, sql: str, *params: Any) -> Rows:
        """Read rows. Sees every commit whose `apply` has resolved."""
        ...

    async def close(self) -> None:
        """Finish the commits already accepted, then release the database."""
        ...
