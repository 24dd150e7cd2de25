"""Full-text search in a SQLite file, with FTS5.

    INSERT, UPDATE, DELETE --triggers--> <table>_fts <-- search

The index keeps no text: it reads it through the view `<table>_text`, which takes it out of the table.
Triggers write the index in the transaction of the row, so a row and its entry come and go together; a row
without text, or with JSON that cannot be read, has no entry. Of a long text the beginning is indexed, because
everybody's commits wait for the one writer. A file holds many agents, so each entry also
holds its agent as one word: a search walks the entries of its agent and leaps over those of the others.
For the same reason hits are counted here and FTS5's own ranking is not used, which reads every entry
of a word to learn how rare it is.

A Python whose SQLite was built without FTS5 searches the texts one by one.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from ..store.clean import storable
from ..store.port import Row, Rows, Search, TextIndex
from ..store.search import (
    LONGEST_TEXT,
    MOST_HITS,
    OPEN,
    SHUT,
    snippet_of,
)
from .index_repair import is_usable, repair, trim

__all__ = ["answer", "has_fts5", "install", "keep", "query"]

log = logging.getLogger("everthink.store")

_LARGEST_PART = 2 * 1024 * 1024
LARGE_ROW = 2 * 1024 * 1024
"""A row of so many bytes is not taken apart: SQLite would hold it in memory seven times over."""

# Every step is guarded by the one around it, because a write must never fail for what a row contains. A part
# beyond the length is a file, or a text of control characters: it is not taken apart.
_PARTS = (
    f"(SELECT substr(group_concat(CASE WHEN type='object' AND length(value) < {_LARGEST_PART} THEN"
    " CASE WHEN json_extract(value,'$.type')='text' AND json_type(value,'$.text')='text' THEN"
    f" substr(json_extract(replace(value,'\\u0000','\\ufffd'),'$.text'),1,{LONGEST_TEXT}) END END,' '),1,"
    f"{LONGEST_TEXT}) FROM json_each(CASE WHEN json_valid({{0}}) THEN {{0}} ELSE '{{{{}}}}' END,'$.parts'))"
)

# Of a large row the first text, by what stands before it and the quote that ends it. SQLite copies the row
# for each time that it is mentioned.
_BEFORE = '{{"type":"text","text":"'
_FIRST_TEXT = (
    "(SELECT CASE WHEN json_valid('\"'||said||'\"') THEN json_extract('\"'||said||'\"','$') END FROM"
    " (SELECT substr(said,1,instr(replace(replace(said,'\\\\','..'),'\\\"','..')||'\"','\"')-1) AS said FROM"
    f" (SELECT replace(substr({{0}},nullif(instr({{0}},'{_BEFORE}'),0)+{len(_BEFORE) - 1},{LONGEST_TEXT}),"
    "'\\u0000','\\ufffd') AS said LIMIT 1)"
    " LIMIT 1))"
)

_VIEW = (
    "CREATE VIEW {table}_text AS SELECT id, text, scope FROM"
    " (SELECT rowid AS id, {text} AS text, hex(agent) || '0' AS scope FROM {table}) WHERE text <> ''"
)

# The text first: an entry in the first column is two bytes shorter. `columnsize` serves FTS5's ranking only.
_INDEX = (
    "CREATE VIRTUAL TABLE {table}_fts USING fts5(text, scope, content='{table}_text', content_rowid='id',"
    " columnsize=0, tokenize='porter unicode61')"
)

# FTS5's own 'rebuild' may not read a view that reads JSON.
_FILL = "INSERT INTO {table}_fts (rowid, text, scope) SELECT id, text, scope FROM {table}_text"

# SQLite keeps these words in the file, so they go through the view where it is quick enough: of a view SQLite
# works the text out once for each time that it is mentioned, and a limit keeps it from doing so.
_NEW = (
    "INSERT INTO {table}_fts (rowid, text, scope) SELECT new.rowid, text, hex(new.agent) || '0'"
    " FROM (SELECT {new} AS text LIMIT 1) WHERE text <> ''"
)
_TRIGGERS = {
    "insert": "CREATE TRIGGER {table}_fts_insert AFTER INSERT ON {table} BEGIN " + _NEW + "; END",
    "delete": "CREATE TRIGGER {table}_fts_delete BEFORE DELETE ON {table} BEGIN"
    " INSERT INTO {table}_fts ({table}_fts, rowid, text, scope)"
    " SELECT 'delete', id, text, scope FROM {table}_text WHERE id = old.rowid; END",
    # An answer is stored again whenever a tool of it has settled: its text is the same. The join
    # is crossed, so that the old entry goes before the new one comes.
    "update": "CREATE TRIGGER {table}_fts_update AFTER UPDATE OF agent, {column} ON {table}"
    " WHEN old.agent <> new.agent OR old.{column} IS NOT new.{column} BEGIN"
    " INSERT INTO {table}_fts ({table}_fts, rowid, text, scope)"
    " SELECT verb, old.rowid, iif(verb IS NULL, after, before) AS text,"
    " hex(iif(verb IS NULL, new.agent, old.agent)) || '0'"
    " FROM (SELECT {old} AS before, {new} AS after LIMIT 1)"
    " CROSS JOIN (SELECT 'delete' AS verb UNION ALL SELECT NULL)"
    " WHERE text <> '' AND (old.agent <> new.agent OR before IS NOT after); END",
}

# How good a hit is: BM25 for a word whose rareness does not matter, in characters.
_SCORE = "everthink_hits / (everthink_hits + 0.3 + length(everthink_text) * 0.9 / 400)"

# As bytes: JSON may spell half a character, SQLite takes it as it is, and Python would refuse the row.
_SEARCH = """SELECT {names} CAST(everthink_text AS BLOB), CAST(everthink_marked AS BLOB) FROM (
  SELECT {names} everthink_text, everthink_marked, everthink_place,
    length(everthink_marked) - length(everthink_text) AS everthink_hits
  FROM (
    SELECT {columns} {hits}.text AS everthink_text, {marked} AS everthink_marked,
      everthink_row.rowid AS everthink_place
    FROM {hits} CROSS JOIN {table} AS everthink_row ON everthink_row.rowid = {hits}.{id}
    WHERE {matches} AND everthink_row.agent = ?
      AND EXISTS (SELECT 1 FROM {table} WHERE {table}.rowid = {hits}.{id} AND ({where}))
    ORDER BY {hits}.{id} DESC LIMIT {most}))
ORDER BY {score} DESC, everthink_place DESC LIMIT ?"""


def has_fts5(connection: sqlite3.Connection) -> bool:
    """True when this SQLite can index texts."""
    return bool(connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchall())


def install(connection: sqlite3.Connection, index: TextIndex) -> None:
    """Index the rows that are there, and those to come. Inside the caller's transaction."""
    view, *triggers = _made(index).values()
    _drop_triggers(connection, index)
    connection.execute(f"DROP VIEW IF EXISTS {index.table}_text")
    connection.execute(view)
    if not has_fts5(connection):
        return
    connection.execute(f"DROP TABLE IF EXISTS {index.table}_fts")
    connection.execute(_INDEX.format(table=index.table))
    connection.execute(_FILL.format(table=index.table))
    for sql in triggers:
        connection.execute(sql)


def keep(connection: sqlite3.Connection, indexes: Mapping[str, TextIndex]) -> bool:
    """At every open: let the indexes fit this SQLite. True when they can be searched.

    Without FTS5 the triggers would refuse every write, so they go; the next SQLite that has it begins anew.
    """
    if not indexes:
        return False
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')")
    known: dict[str, str] = dict(found.fetchall())
    kept = [index for index in indexes.values() if f"{index.table}_fts_update" in known]
    is_able = has_fts5(connection)
    if not is_able:
        log.warning(
            "This Python's SQLite (%s) has no FTS5: searches read every text of an agent, without stems. "
            "Nothing else is different.",
            sqlite3.sqlite_version,
        )
    stale = kept
    if is_able:
        # Also one that an earlier version of ours made another way: an entry must go as it came.
        stale = [index for index in indexes.values() if not _made(index).items() <= known.items()]
    if stale:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for index in stale:
                if is_able:
                    install(connection, index)
                else:
                    _drop_triggers(connection, index)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    if is_able:
        for table in indexes:
            trim(connection, table)
        repair(connection, [table for table in indexes if not is_usable(connection, table)])
    return is_able


def query(search: Search, agent: str, words: list[str], *, is_indexed: bool) -> tuple[str, tuple[Any, ...]]:
    """The SQL of a search and its parameters."""
    hits = f"{search.table}_fts" if is_indexed else f"{search.table}_text"
    names = [f"everthink_{number}" for number in range(len(search.columns))]
    finds: tuple[Any, ...]
    if is_indexed:
        matches, marked = f"{hits} MATCH ?", f"highlight({hits}, 0, '{OPEN}', '{SHUT}')"
        finds = (_expression(search, agent, words),)
    else:
        wanted = [" ".join(words)] if search.is_phrase else words
        matches = " AND ".join([f"{hits}.text LIKE ?"] * len(wanted))
        marked = f"{hits}.text"
        finds = tuple(f"%{word}%" for word in wanted)
    sql = _SEARCH.format(
        names="".join(f"{name}, " for name in names),
        columns="".join(
            f"everthink_row.{column} AS {name}, " for column, name in zip(search.columns, names, strict=True)
        ),
        hits=hits,
        id="rowid" if is_indexed else "id",
        table=search.table,
        marked=marked,
        matches=matches,
        where=search.where or "1",
        most=MOST_HITS,
        score=_SCORE if is_indexed else "-length(everthink_text)",
    )
    return sql, (*finds, agent, *search.params, max(0, search.limit))


def answer(rows: Rows, words: list[str], *, is_indexed: bool) -> Rows:
    """The rows of a query with the snippet in the place of the marked text."""
    pattern = None if is_indexed else re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    return [_shown(row, pattern) for row in rows]


def _shown(row: Row, pattern: re.Pattern[str] | None) -> Row:
    *columns, text, marked = row
    text, marked = text.decode(errors="replace"), marked.decode(errors="replace")
    return (*columns, text, snippet_of(text, pattern.sub(_mark, marked) if pattern else marked))


def _mark(match: re.Match[str]) -> str:
    return f"{OPEN}{match[0]}{SHUT}"


def _expression(search: Search, agent: str, words: list[str]) -> str:
    """What FTS5 is asked: the agent's word, and the words in the text. Words are letters, so quotes hold."""
    (agent,) = storable((agent,))
    # It ends in a digit, here as in the view, so that FTS5 takes no stem of it.
    scope = agent.encode().hex() + "0"
    wanted = f'"{" ".join(words)}"' if search.is_phrase else " ".join(f'"{word}"' for word in words)
    return f'scope : "{scope}" AND text : ({wanted})'


def _made(index: TextIndex) -> dict[str, str]:
    """The view and the triggers of a table by name, each with its SQL."""
    names = {
        "table": index.table,
        "column": index.column,
        "text": _text(index),
        "old": _text(index, "old."),
        "new": _text(index, "new."),
    }
    made = {f"{index.table}_text": _VIEW.format_map(names)}
    for verb, sql in _TRIGGERS.items():
        made[f"{index.table}_fts_{verb}"] = sql.format_map(names)
    return made


def _text(index: TextIndex, row: str = "") -> str:
    """The text of a row, `new.` or `old.` in a trigger."""
    column = f"{row}{index.column}"
    if not index.parts:
        return f"substr({column},1,{LONGEST_TEXT})"
    whole = _PARTS.format(column)
    if index.size is None:
        return whole
    return f"CASE WHEN {row}{index.size} >= {LARGE_ROW} THEN {_FIRST_TEXT.format(column)} ELSE {whole} END"


def _drop_triggers(connection: sqlite3.Connection, index: TextIndex) -> None:
    for verb in _TRIGGERS:
        connection.execute(f"DROP TRIGGER IF EXISTS {index.table}_fts_{verb}")
