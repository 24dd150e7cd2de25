"""Read a database beside the server that owns it. Nothing is locked or migrated, and nothing written unasked.

    store URL --> open_journal --> rows of agents, turns and calls

The server itself shows the same rows to its page: devtools/inspector.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, unquote

from ..address import Address, canonical, from_address
from ..children import queries as children
from ..children.paths import SUB
from ..cluster import queries as cluster
from ..codemode import queries as code
from ..deliveries import queries as messages
from ..deliveries.queries import DeliveryRow
from ..deliveries.showing import view
from ..errors import AgentError, StoreLocked, StoreUnavailable, StoreUnreadable
from ..journal import facts
from ..masking import mask
from ..recovery import suspects
from ..runtime import queries as runtime
from ..runtime.exporting import Section, below, child_header, has_families, header, of_child, sections
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
    "address",
    "agents",
    "calls",
    "deliveries",
    "executions",
    "lines",
    "named",
    "open_journal",
    "refuse_beside_a_server",
    "runs",
    "set_aside",
    "sqlite_path",
    "turns",
    "unknown",
    "who",
]

Row = dict[str, Any]
T = TypeVar("T")

IN_USE = (
    "SELECT COUNT(*) AS servers FROM pg_stat_activity"
    " WHERE application_name LIKE 'everthink%' AND datname = current_database()"
)
PATIENCE = 5

AT_A_TIME = 500
"""So many agents are asked for in one query."""


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


def refuse_beside_a_server(journal: Journal, agent: str, *, kept: str, inside: str) -> None:
    """PostgreSQL lets several processes in; a server that has the agent in memory would not know what we
    write. Raises `StoreLocked`, which says who is there."""
    if isinstance(journal, SqliteJournal):
        return  # one process opens it for writing: whoever comes second is told
    for _ in range(PATIENCE):
        if not journal.rows(IN_USE)[0]["servers"]:
            return
        time.sleep(0.2)  # one that was just stopped may not have been noticed yet
    places = ", ".join(mask(row["place"]) for row in journal.rows(cluster.LIVING))
    raise StoreLocked(
        f"A server of everthink is connected to this database{f' ({places})' if places else ''}.",
        kept=kept,
        next_step=f"Stop it first, or call `{inside}` inside it: it may have {agent} in memory.",
    )


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
    """The agents with their messages and turns counted, the busiest of late first, and each followed by its
    children."""
    return _counted(journal, _chosen(journal, only))


def turns(journal: Journal, only: str | None = None, *, limit: int = 20) -> list[Row]:
    """The latest turns."""
    return _latest(journal, only, facts.turns_among, "created_at", limit)


def calls(journal: Journal, only: str | None = None, *, limit: int = 20) -> list[Row]:
    """The latest tool calls, each once: one that a person approved has a row of the turn that asked for it,
    and another of the turn that ran it."""
    rows = _latest(journal, only, facts.calls_among, "asked_at", 2 * limit)
    found: dict[tuple[str, str], Row] = {}
    for row in rows:  # the latest first, which is the one that ran
        kept = found.setdefault((who(row), row["call_id"]), row)
        kept["asked_at"] = row["asked_at"]
    return list(found.values())[:limit]


def runs(journal: Journal, only: str | None = None, *, limit: int = 20) -> list[Row]:
    """The latest runs of children, each with the parent that asked for it."""
    try:
        found = _latest(journal, only, children.runs_among, "started_at", limit)
    except StoreUnreadable:
        return []  # written by a release whose agents had no children
    for row in found:
        del row["child"]  # an id; who it is say class and run
    return found


def deliveries(journal: Journal, only: str | None = None, *, limit: int = 20) -> list[Row]:
    """The latest messages to platforms, each with the agent whose words it shows."""
    try:
        found = _latest(journal, only, messages.among, "created_at", limit)
    except StoreUnreadable:
        return []  # written by a release that knew no messengers
    told: list[Row] = []
    for row in found:
        names = {name: row.pop(name) for name in ("class", "name", "parents")}
        if (shown := view(DeliveryRow(**row))) is not None:
            told.append({**names, **shown})
    return told


def executions(journal: Journal, only: str | None = None, *, limit: int = 20) -> list[Row]:
    """The latest runs of code, each with its calls, in their order."""
    try:
        found = _latest(journal, only, code.among, "began_at", limit)
    except StoreUnreadable:
        return []  # written by a release whose models wrote no code
    for row in found:
        calls = journal.rows(code.MADE, row.pop("whose"), row["id"])
        row["error"] = _words(row.pop("outcome"))
        row["calls"] = [{**call, "error": _words(call.pop("outcome"))} for call in calls]
    return found


def _words(outcome: str | None) -> str | None:
    """What is said of something that did not go well. One that was cut to be read is told as it is."""
    try:
        told: Any = json.loads(outcome or "null")
    except ValueError:
        return outcome
    if isinstance(told, dict):
        told = cast("dict[str, Any]", told)
        told = told.get("error", told.get("untold"))
    return None if told is None else str(told)


def set_aside(journal: Journal, only: str | None = None) -> list[Row]:
    """What is not tried any more, the latest last: turns, and agents (whose `turn` is empty)."""
    try:
        rows = journal.rows(suspects.ASIDE)
    except StoreUnreadable:
        return []  # written by a release that set nothing aside
    chosen = {row["agent"]: row for row in _chosen(journal, only)}
    return [_with_names(row, chosen) for row in rows if row["agent"] in chosen]


def named(journal: Journal, agent: str) -> Row | None:
    """The agent called `assistant/room-1`, or the child `assistant/room-1/sub/researcher/notes`, as a row of
    `agents` above with `below`: how many are below it. `None` when there is none."""
    if "/" not in agent:
        raise AgentError(
            f"{agent!r} names no agent.", next_step="Write class/name, for example assistant/room-1."
        )
    known = _known(journal)
    found = _called(known, agent)
    exact = [row for row in found if row["address"].id == agent]
    if not found:
        return None
    (row,) = _counted(journal, (exact or found)[:1])
    return {**row, "below": len(_with_families(known, (exact or found)[:1])) - 1}


def unknown(journal: Journal, agent: str) -> AgentError:
    """What to say when nobody is called `agent`: the nearest names, or where to find them."""
    names = [row["address"].id for row in _known(journal)]
    near = nearest(agent, names) or nearest(agent.lower(), {name.lower(): name for name in names})
    meant = next((name for name in names if near and name.lower() == near.lower()), None)
    hint = f"Did you mean {meant}?" if meant else "`everthink inspect`, with the same --store, lists them."
    return AgentError(f"There is no agent {agent!r} in {journal.where}.", next_step=hint)


def address(row: Row) -> Address:
    """The agent that a row is of."""
    return Address(row["class"], row["name"], tuple((cls, name) for cls, name in row["parents"]))


def who(row: Row) -> str:
    """The same for people, and for rows."""
    return address(row).id


def lines(journal: Journal, whose: Address, *, now: int) -> Iterator[Row]:
    """Everything that is kept of an agent and of all below it, as it is now."""
    journal.hold()
    [applied] = journal.rows(READ_APPLIED)[0].values()
    outstanding(MIGRATIONS, applied, where="This database")  # one that is ahead of us is not half exported
    parts = sections(MIGRATIONS[:applied])
    _check_readable(journal, parts, applied)
    yield header(whose, schema=applied, now=now)
    yield from _rows_of(journal, parts, whose.id)
    if has_families(MIGRATIONS[:applied]):
        for child in below(whose, [tuple(row.values()) for row in journal.rows(runtime.BELOW, whose.id)]):
            yield child_header(child)
            for line in _rows_of(journal, parts, child.id):
                yield of_child(child, line)


def _rows_of(journal: Journal, parts: Sequence[Section], agent: str) -> Iterator[Row]:
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


def _latest(
    journal: Journal, only: str | None, among: Callable[[int], str], time: str, limit: int
) -> list[Row]:
    chosen = {row["agent"]: row for row in _chosen(journal, only)}
    if only:
        found: list[Row] = []
        ids = list(chosen)
        for first in range(0, len(ids), AT_A_TIME):
            some = ids[first : first + AT_A_TIME]
            found += journal.rows(among(len(some)), *some, limit)
    else:
        found = [row for row in journal.rows(among(0), limit) if row["agent"] in chosen]
    found.sort(key=lambda row: -_time(row[time]))
    return [_with_names(row, chosen) for row in found[:limit]]


def _counted(journal: Journal, rows: Sequence[Row]) -> list[Row]:
    """These agents with their messages and turns. Whether a class `chats` is seen from what is kept: False
    when none of its agents has ever had a conversation."""
    messages = {row["agent"]: row["messages"] for row in journal.rows(session.COUNTS)}
    counts = {row["agent"]: row for row in journal.rows(facts.COUNTS)}
    talked_to = {*messages, *counts}
    chatting = {row["class"] for row in _known(journal) if row["agent"] in talked_to}
    found: dict[str, Row] = {}
    for row in rows:
        counted = counts.get(row["agent"], {})
        found[row["agent"]] = {
            "class": row["class"],
            "name": row["name"],
            "parents": _parents(row),
            "created_at": row["created_at"],
            "chats": row["class"] in chatting,
            "messages": messages.get(row["agent"], 0),
            "turns": counted.get("turns", 0),
            "open_turns": counted.get("open_turns", 0),
            "last_turn_at": counted.get("last_turn_at"),
        }
    return _as_families(found, {row["agent"]: row.get("parent") for row in rows})


def _as_families(rows: dict[str, Row], parents: dict[str, str | None]) -> list[Row]:
    """Each followed by its children; those of one parent by when something happened to them, or below."""
    below: dict[str | None, list[str]] = {}
    for agent in rows:
        parent = parents[agent]
        below.setdefault(parent if parent in rows else None, []).append(agent)

    def latest(agent: str) -> float:
        own = rows[agent]["last_turn_at"] or rows[agent]["created_at"]
        return max([_time(own), *map(latest, below.get(agent, ()))])

    def told(parent: str | None) -> Iterator[Row]:
        siblings = below.get(parent, [])
        for agent in sorted(siblings, key=lambda one: (-latest(one), rows[one]["class"], rows[one]["name"])):
            yield rows[agent]
            yield from told(agent)

    return list(told(None))


def _time(value: Any) -> float:
    """A time to sort by. SQLite keeps a text in its place, if somebody wrote one."""
    return value if isinstance(value, int | float) else 0


def _with_names(row: Row, known: dict[str, Row]) -> Row:
    agent = known[row.pop("agent")]
    return {"class": agent["class"], "name": agent["name"], "parents": _parents(agent), **row}


def _parents(row: Row) -> list[list[str]]:
    return [list(one) for one in row["address"].parents]


# --- who is called how


def _known(journal: Journal) -> list[Row]:
    """All agents, each with its `address`."""
    try:
        rows = journal.rows(runtime.AGENTS_IN_FAMILIES)
    except StoreUnreadable:
        rows = journal.rows(runtime.AGENTS)  # written by a release whose agents had no children
    for row in rows:
        row["address"] = runtime.address_of(row["class"], row["name"], row.pop("path", None))
    return rows


def _chosen(journal: Journal, only: str | None) -> list[Row]:
    """All agents; or those called `Assistant`, `assistant` or `assistant/room-1`, with all below them."""
    known = _known(journal)
    return _with_families(known, _called(known, only)) if only else known


def _called(known: Sequence[Row], written: str) -> list[Row]:
    if "/" not in written:
        return [row for row in known if _is_class(row["class"], written)]
    # As it is kept; else as others write it, with other keys or as in an address.
    return [row for row in known if _leads_to(row["address"], written, _as_kept)] or [
        row for row in known if _leads_to(row["address"], written, _as_written)
    ]


def _with_families(known: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """These, and all below them."""
    below: dict[str | None, list[Row]] = {}
    for row in known:
        below.setdefault(row.get("parent"), []).append(row)
    found: dict[str, Row] = {}
    wanted = list(rows)
    while wanted:
        row = wanted.pop()
        if row["agent"] not in found:
            found[row["agent"]] = row
            wanted += below.get(row["agent"], ())
    return list(found.values())


def _is_class(cls: str, written: str) -> bool:
    return cls.lower() == written.replace("-", "").lower()


def _leads_to(whose: Address, written: str, is_name: Callable[[str, str, bool], bool]) -> bool:
    """True when what somebody wrote is this agent's address. A name may have slashes, so what was written is
    compared with each address, from the outermost on, and not taken apart."""
    *above, (cls, name) = whose.path
    for parent, called in above:
        given, _, rest = written.partition("/")
        ways = [way for way in _ways(called) if rest.startswith(f"{way}/{SUB}/")]
        if not _is_class(parent, given) or not ways:
            return False
        written = rest[len(ways[0]) + len(f"/{SUB}/") :]
    given, _, rest = written.partition("/")
    return _is_class(cls, given) and is_name(name, rest, bool(above))


def _ways(name: str) -> set[str]:
    """How a name is written before a child's: as it is, and with what parts addresses escaped."""
    return {name, name.replace("%", "%25").replace("/", "%2F"), quote(name, safe="")}


def _as_kept(name: str, written: str, is_child: bool) -> bool:
    return written in _ways(name) if is_child else written == name


def _as_written(name: str, written: str, is_child: bool) -> bool:
    return canonical(name) == (canonical(unquote(written)) if is_child else from_address(written))


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

    async def fetch(self, sql: str, *params: Any, agent: str = "") -> list[tuple[Any, ...]]:
        """The same for what asks a store. To be awaited inside of `run`."""
        return [tuple(row.values()) for row in self.rows(sql, *params, agent=agent)]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something that fetches."""
        return asyncio.run(work)

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
        return [dict(row) for row in self._runner.run(self._rows(sql, params, agent))]

    async def fetch(self, sql: str, *params: Any, agent: str = "") -> list[tuple[Any, ...]]:
        """The same for what asks a store. To be awaited inside of `run`."""
        return [tuple(row) for row in await self._rows(sql, params, agent)]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something that fetches."""
        return self._runner.run(work)

    async def _rows(self, sql: str, params: tuple[Any, ...], agent: str) -> list[Any]:
        from ..postgres.sql import kinds_of, numbered

        sql, params = bound_query(sql, params, agent)
        try:
            return await self._connection.fetch(numbered(sql, kinds_of(params)), *params)
        except self._asyncpg.PostgresError as error:
            raise StoreUnreadable(f"The database cannot be read: {mask(str(error))}.") from error

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
