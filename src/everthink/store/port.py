"""What the core asks of a database: apply a commit, fetch rows, search texts, scrub, close.

    turn/, session/, fibers/ --Commit--> AgentStore --Commit, its agent--> Store --rows--> back

A commit is a value: a list of statements applied atomically, in order. Nobody holds a
transaction open across an `await`. When `apply` resolves, the commit is durable; when it
raises, nothing of it was written, unless the error says that this is in doubt (the connection to
a server was lost in the middle).

Every table of an agent begins with the column `agent`. A statement over it writes `:agent` where the agent's
id goes, and says nothing of whose it is: an `AgentStore` is one agent's way to the database, and the id goes
along with each call. What is done for all agents at once is asked of the `Store` itself, with `?` alone.

The SQL is the subset that SQLite >= 3.35 and PostgreSQL >= 14 share: `?` placeholders,
`ON CONFLICT`, `RETURNING`, JSON as TEXT, times as BIGINT milliseconds. A table definition may
end in `/* clustered */`: small rows that are found by their key; an engine that can keep them
in the key's own tree does. A `TextIndex` among the statements of a migration makes a table searchable;
how words are cut, stemmed and ranked is the engine's affair, behind `Store.search`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import CoroutineType
from typing import Any, Literal, NamedTuple, Protocol

__all__ = [
    "LONGEST_QUERY",
    "AgentStore",
    "Commit",
    "Engine",
    "Migration",
    "Row",
    "Rows",
    "Search",
    "Statement",
    "Store",
    "TextIndex",
]

Row = Sequence[Any]
Rows = list[Row]


class Statement(NamedTuple):
    """One SQL statement with its parameters (str, int, float or None): one for each `?`, none for `:agent`.

    A `guard` must touch (or return) at least one row; otherwise the whole commit is
    refused with `CommitRefused`, whose `guard` is the `name` of the one that was not met.
    """

    sql: str
    params: tuple[Any, ...] = ()
    guard: bool = False
    name: str = ""


Commit = Sequence[Statement]


class TextIndex(NamedTuple):
    """Stands in a migration among its statements: makes the text of a table's rows searchable with
    `Store.search`, those that are there already and those to come.

    The table has a column `agent` and is not `/* clustered */`. With `parts` the column holds a message's
    JSON (`{"parts": [{"type": "text", "text": "…"}, …]}`) and its text parts, joined by a space, are the
    text; a row whose JSON cannot be read is simply not found. `size` names the column with the bytes of
    that JSON, if there is one: an engine may then look for the first text only in a very large row, which
    holds a file. One index for a table. Rows of the table are
    written with INSERT (also `ON CONFLICT … DO UPDATE`), UPDATE and DELETE, never with `REPLACE`.
    """

    table: str
    column: str
    parts: bool = False
    size: str | None = None


Engine = Literal["sqlite", "postgres"]


class Migration(NamedTuple):
    """A numbered, forward-only step of the schema. Numbers start at 1 without gaps.

    With `only` it changes the databases of one engine; on others its number is noted and nothing is done.
    """

    number: int
    name: str
    statements: tuple[str | TextIndex, ...]
    only: Engine | None = None


LONGEST_QUERY = 32 * 200
"""Characters of a query that count: so many words of so many characters."""


class Search(NamedTuple):
    """A full-text search over an agent's rows in a table with a `TextIndex`.

    `words` are plain words of a person or a model: whatever they contain is looked for, never obeyed.
    The first 32 words count, and the first 200 characters of each. All of them must be in the text,
    anywhere, or one after the other with `is_phrase`. `where` is a further condition over the table's
    columns, with a `?` for each of `params`.
    """

    table: str
    columns: tuple[str, ...]
    words: tuple[str, ...]
    is_phrase: bool = False
    where: str = ""
    params: tuple[Any, ...] = ()
    limit: int = 20


class Store(Protocol):
    """A database. Adapters: `sqlite`, `postgres`.

    `agent` is whose a call is: what `:agent` stands for. A statement that says `:agent` in a call that is
    nobody's fails.
    """

    def apply(self, commit: Commit, *, agent: str = "") -> asyncio.Future[list[Rows]]:
        """Write `commit` atomically. Resolves, once it is durable, to the rows of each statement
        (empty without RETURNING). Commits are applied in the order of the calls.

        A future, so that a caller may attach a callback instead of a task. The work goes on even
        if nobody waits for it.
        """
        ...

    async def fetch(self, sql: str, *params: Any, agent: str = "") -> Rows:
        """Read rows. Sees every commit whose `apply` has resolved."""
        ...

    async def search(self, search: Search, *, agent: str) -> Rows:
        """Rows `(*columns, text, snippet)` of the agent's texts that have the words, the best first, of
        equals the newest. Sees every commit whose `apply` has resolved.

        `snippet` is some 24 words around the first hit: hits between `**`, `…` where the text was cut.
        `[]` when there are no words, or none that an index holds: signs alone, and on PostgreSQL what
        English leaves out ("the", "of"). Of very many hits the newest thousand are ranked.
        """
        ...

    async def scrub(self, *, patience: float = 0.0) -> bool:
        """Leave nothing of the rows that were deleted so far: not in what the engine keeps for itself, as
        far as it lets us. True when that is done.

        `patience` is how many seconds other commits may have to wait for it at a time; with none, only what
        hardly anybody notices is done. Nothing that is stored changes. What a process that was cut off left
        undone is done at the next start, or by the engine itself.
        """
        ...

    async def close(self) -> None:
        """Finish the commits already accepted, then release the database."""
        ...


class AgentStore:
    """The database as one agent has it: `:agent` in what it applies and reads is its own id."""

    __slots__ = ("agent", "database")

    def __init__(self, database: Store, agent: str) -> None:
        self.database = database
        """What is behind it, for what is not one agent's affair."""
        self.agent = agent

    def apply(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        """Write a commit of this agent. See `Store.apply`."""
        return self.database.apply(commit, agent=self.agent)

    def fetch(self, sql: str, *params: Any) -> CoroutineType[Any, Any, Rows]:
        """Read rows. See `Store.fetch`."""
        return self.database.fetch(sql, *params, agent=self.agent)

    def search(self, search: Search) -> CoroutineType[Any, Any, Rows]:
        """Find texts of this agent. See `Store.search`."""
        return self.database.search(search, agent=self.agent)
