"""Everything that is kept of one agent, one thing after the other: `App.export`, `everthink export`.

    schema --> sections --page(agent)--> rows --line--> {"kind": "message", …}

What is kept of an agent's children is kept of it: they follow, each after a line of the kind `child`, and
their lines say whose they are. Like erasing it goes by the schema, so a new table is exported from its first
day on, under its own name until it is given a better one here. Pages are small: what is in memory at a time
is a few rows, however long the conversation. The format is described in docs/storage.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..address import Address
from ..keeping.objects import objects_of, pieces_of
from ..store.migrate import Table, tables_of
from ..store.port import Migration, Row, Statement, Store
from .queries import BELOW, address_of
from .schema import MIGRATIONS

__all__ = [
    "FORMAT",
    "Section",
    "below",
    "child_header",
    "exported",
    "has_families",
    "header",
    "of_child",
    "sections",
]

FORMAT = 2
"""Grows when a reader of exports would have to change."""
_PAGE = 16

_KINDS = {
    "agents": "agent",
    "kv": "value",
    "messages": "message",
    "compactions": "compaction",
    "sessions": "session",
    "blocks": "block",
    "entries": "entry",
    "attachments": "attachment",  # of databases that were not opened since
    "turns": "turn",
    "segments": "segment",
    "calls": "call",
    "incidents": "incident",
    "fibers": "fiber",
    "milestones": "milestone",
    "alarms": "schedule",
    "jobs": "job",
    "scheduled_tasks": "task",
    "authors": "author",
    "suspects": "suspect",
    "mcp_servers": "mcp_server",
    "child_runs": "child_run",
    "files": "file",
    "contents": "content",
    "file_changes": "file_change",
    "executions": "execution",
    "execution_calls": "execution_call",
    "deliveries": "delivery",
    "threads": "thread",
    "extensions": "extension",
    "extension_values": "extension_value",
}
_SECRET = {"mcp_servers": {"secrets"}}
"""Columns that let their reader in somewhere else. They are no words of anybody's, and no export has them."""
_SPECIAL = {
    ("kv", "name", "state"): "state",
    ("turns", "trigger", "submission"): "submission",
    ("blocks", "label", ""): "prompt",
}
"""Rows that are something else than their neighbours: table, column, its value."""

_JSON = {
    "agents": {"path"},
    "kv": {"value"},
    "messages": {"content"},
    "turns": {"input", "metadata", "stash"},
    "segments": {"chunks"},
    "executions": {"outcome"},
    "execution_calls": {"input", "outcome"},
    "extensions": {"manifest", "found"},
    "extension_values": {"value"},
    "calls": {"input", "answer"},
    "fibers": {"snapshot", "metadata"},
    "milestones": {"said"},
    "alarms": {"payload", "retry"},
    "jobs": {"payload", "retry"},
    "mcp_servers": {"options", "catalogue"},
    "child_runs": {"display", "output", "detached", "progress"},
    "file_changes": {"was"},
    "deliveries": {"target"},
}
"""Columns that hold JSON: they are exported as values."""

_ORDER = {"messages": ("session", "seq"), "compactions": ("session", "seq"), "jobs": ("seq",)}
"""Where the key is not the order in which things came."""


class Section(NamedTuple):
    """The rows of one table, as an export has them."""

    table: Table
    order: tuple[str, ...]

    def page(self, agent: str, after: Sequence[Any] = ()) -> Statement:
        """A few rows of an agent, those that follow a place."""
        columns, order = ", ".join(self.table.columns[1:]), ", ".join(self.order)
        sql = f"SELECT {columns} FROM {self.table.name} WHERE agent = ?"
        if after:
            sql += f" AND ({order}) > ({', '.join('?' * len(self.order))})"
        return Statement(f"{sql} ORDER BY {order or 'agent'} LIMIT {_PAGE}", (agent, *after))

    def after(self, rows: Sequence[Row]) -> tuple[Any, ...] | None:
        """The place that the next page follows; `None` when this one was the last."""
        if len(rows) < _PAGE:
            return None
        columns = self.table.columns[1:]
        return tuple(rows[-1][columns.index(column)] for column in self.order)

    def line(self, row: Row) -> dict[str, Any]:
        """A row as one thing of the export."""
        name = self.table.name
        kind, parsed = _KINDS.get(name, name), _JSON.get(name, ())
        columns = dict(zip(self.table.columns[1:], row, strict=True))
        for column in _SECRET.get(name, ()):
            del columns[column]
        for (table, column, value), special in _SPECIAL.items():
            if table == name and columns[column] == value:
                kind = special
        return {"kind": kind} | {
            column: _value(value) if column in parsed else value for column, value in columns.items()
        }


def sections(migrations: Sequence[Migration] = MIGRATIONS) -> list[Section]:
    """What an export of a database with these steps consists of, in order."""
    return [Section(table, _ORDER.get(table.name, table.key[1:])) for table in tables_of(migrations)]


def header(address: Address, *, schema: int, now: int) -> dict[str, Any]:
    """The first line of an export."""
    return {
        "kind": "export",
        "format": FORMAT,
        "class": address.cls_name,
        "name": address.name,
        **({"parents": [list(one) for one in address.parents]} if address.parents else {}),
        "schema": schema,
        "exported_at": now,
    }


def child_header(child: Address) -> dict[str, Any]:
    """The line that begins what is kept of a child."""
    parents = [list(one) for one in child.parents]
    return {
        "kind": "child",
        "agent": child.id,
        "class": child.cls_name,
        "name": child.name,
        "parents": parents,
    }


def of_child(child: Address, line: dict[str, Any]) -> dict[str, Any]:
    """A line of a child: it says whose it is."""
    return {"kind": line["kind"], "agent": child.id, **line}


def below(address: Address, rows: Sequence[Row]) -> list[Address]:
    """The agents below one, from what `queries.BELOW` gives: parents before their children."""
    found = [address_of(cls, name, path) for _, cls, name, path in rows]
    return sorted((one for one in found if one != address), key=lambda one: len(one.parents))


def has_families(migrations: Sequence[Migration]) -> bool:
    """True for a database with these steps that knows children."""
    return any("parent" in table.columns for table in tables_of(migrations) if table.name == "agents")


async def exported(
    store: Store, address: Address, *, now: int, classes: Mapping[str, type[Any]]
) -> AsyncIterator[dict[str, Any]]:
    """The lines of an agent and of all below it. What changes meanwhile is seen as it was before or after the
    change. `classes` say where contents are that are in no row."""
    yield header(address, schema=MIGRATIONS[-1].number, now=now)
    async for line in _whole(store, address, classes):
        yield line
    for child in below(address, await store.fetch(BELOW, address.id)):
        yield child_header(child)
        async for line in _whole(store, child, classes):
            yield of_child(child, line)


async def _whole(
    store: Store, address: Address, classes: Mapping[str, type[Any]]
) -> AsyncIterator[dict[str, Any]]:
    """The lines of an agent, those of contents with their bytes."""
    objects = objects_of(classes.get(address.cls_name), address.id)
    async for line in _lines(store, address.id):
        if objects is not None and line["kind"] == "content" and line["place"] == "object":
            async for piece in pieces_of(objects, line):
                yield piece
        else:
            yield line


async def _lines(store: Store, agent: str) -> AsyncIterator[dict[str, Any]]:
    for section in sections():
        after: tuple[Any, ...] | None = ()
        while after is not None:
            sql, params, *_ = section.page(agent, after)
            rows = await store.fetch(sql, *params)
            for row in rows:
                yield section.line(row)
            after = section.after(rows)


def _value(text: Any) -> Any:
    """What a JSON column holds; its text when that cannot be read."""
    try:
        return text if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
