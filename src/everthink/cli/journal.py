"""Read a database beside the server that owns it. Nothing is locked or migrated, and nothing written unasked.

    store URL --> open_journal --> rows of agents, turns and calls

The server itself shows the same rows to its page: devtools/inspector.py.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..address import Address, canonical, from_address
from ..errors import AgentError, StoreUnavailable, StoreUnreadable
from ..journal import facts
from ..masking import mask
from ..recovery import suspects
from ..runtime import queries as runtime
from ..runtime.exporting import Section, header, sections
from ..runtime.schema import MIGRATIONS
from ..session import queries as session
from ..settings import nearest
from ..sqlite.files import check_beside
from ..store.marks import bound, bound_query
from ..store.migrate import READ_APPLIED, outstanding
from ..store.port import Statement
from ..store_urls import check_url

__all__ = [
    "Journal",
    "Row",
    "agents",
    "calls",
    "lines",
    "named",
    "open_journal",
    "set_aside",
    "sqlite_path",
    "turns",
    "unknown",
]

Row = dict[str, Any]


def open_journal(store: str, *, writes: bool = False) -> Journal:
    """Open a database, for reading unless `writes`. Raises an `AgentError` when that is not possible."""
    if store.startswith(("postgresql://", "postgres://")):
        journal: Journal = PostgresJournal(store, writes=writes)
    else:
        journal = SqliteJournal(sqlite_path(store), writes=writes)
    if writes:
        try:
            [applied] = journal.rows(READ_APPLIED)[0].values()
            outstanding(MIGRATIONS, applied, where="This database")  # one that is ahead of us is not changed
        except AgentError:
            journal.close()
            raise
    return journal


def sqlite_path(store: str) -> Path:
    """The file of a SQLite URL or a path."""
    if store in (":memory:", "sqlite://:memory:", "sqlite:///:memory:"):
        raise AgentError("A database in memory can only be seen by the process it is in.")
    if not store.strip():
        raise AgentError(
            "No database is named: --store, or EVERTHINK_STORE, is empty.",
            next_step="Leave it out for the one in this folder, or write --store sqlite:///path/to/file.db",
        )
    scheme, separator, rest = store.partition("://")
    if separator and (scheme != "sqlite" or not rest.startswith("/")):
        raise AgentError(
            f"{mask(store)!r} is no store.",
            next_step="Write sqlite:///path/to/file.db, a path, or postgresql://user:password@host/database",
        )
    return Path(os.path.expanduser(rest[1:] if separator else store))


# --- questions: the statements are those of the tables' owners


def agents(journal: Journal, only: str | None = None) -> list[Row]:
    """The agents with their messages and turns counted, the busiest of late first."""
    messages = {row["agent"]: row["messages"] for row in journal.rows(session.COUNTS)}
    counts = {row["agent"]: row for row in journal.rows(facts.COUNTS)}
    found: list[Row] = []
    for row in _chosen(journal, only):
        counted = counts.get(row["agent"], {})
        found.append(
            {
                "class": row["class"],
                "name": row["name"],
                "created_at": row["created_at"],
                "messages": messages.get(row["agent"], 0),
                "turns": counted.get("turns", 0),
                "open_turns": counted.get("open_turns", 0),
                "last_turn_at": counted.get("last_turn_at"),
            }
        )
    found.sort(key=lambda row: (-_time(row["last_turn_at"] or row["created_at"]), row["class"], row["name"]))
    return found


def turns(journal: Journal, only: str | None = None, *, limit: int = 20) -> list[Row]:
    """The latest turns."""
    return _latest(journal, only, facts.LATEST_TURNS, facts.TURNS_OF, "created_at", limit)


def calls(journal: Journal, only: str | None = None, *, limit: int = 20) -> list[Row]:
    """The latest tool calls, each once: one that a person approved has a row of the turn that asked for it,
    and another of the turn that ran it."""
    rows = _latest(journal, only, facts.LATEST_CALLS, facts.CALLS_OF, "asked_at", 2 * limit)
    found: dict[tuple[str, str, str], Row] = {}
    for row in rows:  # the latest first, which is the one that ran
        kept = found.setdefault((row["class"], row["name"], row["call_id"]), row)
        kept["asked_at"] = row["asked_at"]
    return list(found.values())[:limit]


def set_aside(journal: Journal, only: str | None = None) -> list[Row]:
    """What is not tried any more, the latest last: turns, and agents (whose `turn` is empty)."""
    try:
        rows = journal.rows(suspects.ASIDE)
    except StoreUnreadable:
        return []  # written by a release that set nothing aside
    chosen = {row["agent"]: row for row in _chosen(journal, only)}
    return [_with_names(row, chosen) for row in rows if row["agent"] in chosen]


def named(journal: Journal, agent: str) -> Row | None:
    """The agent called `assistant/room-1`, as a row of `agents` above; `None` when there is none."""
    if "/" not in agent:
        raise AgentError(
            f"{agent!r} names no agent.", next_step="Write class/name, for example assistant/room-1."
        )
    found = agents(journal, agent)
    exact = [row for row in found if Address(row["class"], row["name"]).id == agent]
    return next(iter(exact or found), None)


def unknown(journal: Journal, agent: str) -> AgentError:
    """What to say when nobody is called `agent`: the nearest names, or where to find them."""
    names = [Address(row["class"], row["name"]).id for row in journal.rows(runtime.AGENTS)]
    near = nearest(agent, names) or nearest(agent.lower(), {name.lower(): name for name in names})
    meant = next((name for name in names if near and name.lower() == near.lower()), None)
    hint = f"Did you mean {meant}?" if meant else "`everthink inspect`, with the same --store, lists them."
    return AgentError(f"There is no agent {agent!r} in {journal.where}.", next_step=hint)


def lines(journal: Journal, agent: str, *, now: int) -> Iterator[Row]:
    """Everything that is kept of an agent, as it is now."""
    journal.hold()
    [applied] = journal.rows(READ_APPLIED)[0].values()
    outstanding(MIGRATIONS, applied, where="This database")  # one that is ahead of us is not half exported
    parts = sections(MIGRATIONS[:applied])
    _check_readable(journal, parts, applied)
    yield header(agent, schema=applied, now=now)
    for section in parts:
        after: tuple[Any, ...] | None = ()
        while after is not None:
            sql, params, *_ = section.page(agent, after)
            rows = [tuple(row.values()) for row in journal.rows(sql, *params)]
            yield from map(section.line, rows)
            after = section.after(rows)


def _check_readable(journal: Journal, parts: Sequence[Section], applied: int) -> None:
    """Raise before the first line when a table is not what its schema number promises."""
    try:
        for section in parts:
            journal.rows(section.page("").sql, "")
    except StoreUnreadable as error:
        raise StoreUnreadable(
            f"This database says that it has schema number {applied} (this release: {len(MIGRATIONS)}),"
            f" and its tables are others: {error.what}",
            kept="Nothing was exported.",
            next_step="Export it with the release that wrote it, or from a backup.",
        ) from error


def _latest(journal: Journal, only: str | None, many: str, one: str, time: str, limit: int) -> list[Row]:
    chosen = {row["agent"]: row for row in _chosen(journal, only)}
    found: list[Row] = []
    if only and "/" in only:
        for agent in chosen:
            found += [{"agent": agent, **row} for row in journal.rows(one, limit, agent=agent)]
    else:
        classes = sorted({_escaped(row["class"]) for row in chosen.values()})
        for pattern in [f"{cls}/%" for cls in classes] if only else ["%"]:
            found += [row for row in journal.rows(many, pattern, limit) if row["agent"] in chosen]
    found.sort(key=lambda row: -_time(row[time]))
    return [_with_names(row, chosen) for row in found[:limit]]


def _time(value: Any) -> float:
    """A time to sort by. SQLite keeps a text in its place, if somebody wrote one."""
    return value if isinstance(value, int | float) else 0


def _with_names(row: Row, known: dict[str, Row]) -> Row:
    agent = known[row.pop("agent")]
    return {"class": agent["class"], "name": agent["name"], **row}


def _escaped(text: str) -> str:
    """For LIKE, which takes `_` and `%` for more than they are."""
    return re.sub("[!%_]", r"!\g<0>", text)


def _chosen(journal: Journal, only: str | None) -> list[Row]:
    """The agents, or those called `Assistant`, `assistant`, or with a name `assistant/room-1`."""
    rows = journal.rows(runtime.AGENTS)
    if not only:
        return rows
    wanted = Address.parse(only)
    cls, name = wanted.cls_name.replace("-", "").lower(), wanted.name
    own = [row for row in rows if row["class"].lower() == cls]
    if "/" not in only:
        return own
    # As it is kept, and as others write it: with other keys, or as in an address.
    return [row for row in own if row["name"] == name] or [
        row for row in own if canonical(row["name"]) == from_address(name)
    ]


# --- engines


class SqliteJournal:
    """A SQLite file, for reading. `where` says which one it is, for people."""

    def __init__(self, path: Path, *, writes: bool) -> None:
        self._path, self.where = path, str(path)
        if not path.exists():
            raise StoreUnreadable(
                f"There is no database at {path}.",
                next_step="Name it: --store sqlite:///path/to/everthink.db. `everthink dev` makes one "
                "in the folder where it runs.",
            )
        if path.is_dir():
            file = shlex.quote(str(path / "everthink.db"))
            raise StoreUnreadable(f"{path} is a folder.", next_step=f"Name the file: --store {file}")
        check_beside(path.resolve())  # SQLite writes to the WAL's index also when it only reads
        # A read-only connection cannot make the WAL's index. Without a WAL there is nothing to miss.
        has_wal = path.with_name(path.name + "-wal").exists()
        mode = "mode=rw" if writes else "mode=ro" if has_wal else "mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(
                f"file:{quote(str(path.resolve()))}?{mode}", uri=True, timeout=5
            )
            self._connection.row_factory = sqlite3.Row
            # A text that is none stands in nobody's way.
            self._connection.text_factory = lambda data: data.decode(errors="replace")  # pyright: ignore[reportUnknownMemberType, reportUnknownLambdaType]
            self._connection.execute("SELECT 1 FROM agents LIMIT 1").fetchall()
        except sqlite3.Error as error:
            is_strange = "no such table" in str(error)
            raise StoreUnreadable(
                f"{path} is a database in which everthink has kept nothing."
                if is_strange
                else f"{path} cannot be read as a database of everthink: {error}.",
                kept="Nothing was changed.",
                next_step="Name another one: --store sqlite:///path/to/everthink.db",
            ) from error

    def rows(self, sql: str, *params: Any, agent: str = "") -> list[Row]:
        """The rows of a query, in which `:agent` is this agent."""
        try:
            return [dict(row) for row in self._connection.execute(*bound_query(sql, params, agent))]
        except sqlite3.Error as error:
            raise StoreUnreadable(f"{self._path} cannot be read: {error}.") from error

    def change(self, commit: Sequence[Statement], *, agent: str) -> None:
        """Apply statements of an agent, all or none. Only for one that was opened with `writes`."""
        try:
            with self._connection:
                for statement in bound(commit, agent):
                    self._connection.execute(statement.sql, statement.params).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable(
                f"{self._path} cannot be written: {error}.", kept="Nothing was changed."
            ) from error

    def hold(self) -> None:
        """See everything as it is now, whatever a server writes meanwhile."""
        self._connection.execute("BEGIN")
        self.rows(runtime.AGENTS + " LIMIT 1")  # what is seen is fixed by the first look

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PostgresJournal:
    """A database of a PostgreSQL server, for reading."""

    def __init__(self, url: str, *, writes: bool) -> None:
        from ..postgres.driver import load
        from ..postgres.failures import location_of

        check_url(url)
        self._asyncpg, self.where = load(), f"the database {location_of(url)}"
        self._runner = asyncio.Runner()
        access = "READ WRITE" if writes else "READ ONLY"
        try:
            self._connection: Any = self._runner.run(self._asyncpg.connect(url, timeout=10))
            self._runner.run(self._connection.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION {access}"))
        except (OSError, TimeoutError, self._asyncpg.PostgresError, ValueError) as error:
            self._runner.close()
            raise StoreUnavailable(
                f"The PostgreSQL server cannot be used: {mask(str(error)) or type(error).__name__}.",
                next_step="Check the address, the user and that the server runs.",
            ) from error

    def rows(self, sql: str, *params: Any, agent: str = "") -> list[Row]:
        """The rows of a query, in which `:agent` is this agent."""
        from ..postgres.sql import kinds_of, numbered

        sql, params = bound_query(sql, params, agent)
        try:
            found = self._runner.run(self._connection.fetch(numbered(sql, kinds_of(params)), *params))
        except self._asyncpg.PostgresError as error:
            raise StoreUnreadable(f"The database cannot be read: {mask(str(error))}.") from error
        return [dict(row) for row in found]

    def change(self, commit: Sequence[Statement], *, agent: str) -> None:
        """Apply statements of an agent, all or none. Only for one that was opened with `writes`."""
        try:
            self._runner.run(self._change(bound(commit, agent)))
        except self._asyncpg.PostgresError as error:
            raise StoreUnavailable(
                f"The database cannot be written: {error}.", kept="Nothing was changed."
            ) from error

    async def _change(self, commit: Sequence[Statement]) -> None:
        from ..postgres.sql import kinds_of, numbered

        async with self._connection.transaction():
            for sql, params, *_ in commit:
                await self._connection.fetch(numbered(sql, kinds_of(params)), *params)

    def hold(self) -> None:
        """See everything as it is now, whatever a server writes meanwhile."""
        self._runner.run(self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))

    def close(self) -> None:
        """Close the connection."""
        self._runner.run(self._connection.close())
        self._runner.close()


Journal = SqliteJournal | PostgresJournal
"""A database, for reading."""
