"""Full-text search in PostgreSQL: a GIN index over what a function makes of a row.

    a row --everthink_text--> its text --everthink_vector--> stems and its agent <-- search

The functions belong to the schema that the migration runs in and name it wherever they call each other:
PostgreSQL builds indexes without a search path. They never fail a write: JSON that cannot be read
has no text, and of a long text the beginning is indexed. The agent is one
more word of the vector, so a search leaps over the rows of other agents however often they say the same.
"""

from __future__ import annotations

import hashlib
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
from .driver import Connection

__all__ = ["answer", "install", "query"]

# Signs of ASCII, Latin and typography. Each becomes one space, so that places in a text stay what they are.
_SIGNS = (
    r"[\u0001-/:-@[-`{-\u00a9\u00ab-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u00d7\u00f7"
    r"\u2000-\u206f\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030\u303d"
    r"\ue000\ue001\ufe30-\ufe4f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\ufffd]"
)

_FUNCTIONS = (
    # The text parts of a message. A second attempt does without what JSON may spell and text may not hold.
    r"""
CREATE OR REPLACE FUNCTION {schema}.everthink_text(content text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT COST 100 AS $everthink$
BEGIN
  FOR attempt IN 1 .. 2 LOOP
    BEGIN
      RETURN (
        SELECT string_agg(part ->> 'text', ' ' ORDER BY place)
        FROM json_array_elements(content::json -> 'parts') WITH ORDINALITY AS parts (part, place)
        WHERE json_typeof(part) = 'object' AND part ->> 'type' = 'text'
          AND json_typeof(part -> 'text') = 'string');
    EXCEPTION WHEN OTHERS THEN
      content := regexp_replace(content, '\\u(?:0000|d[89a-f][0-9a-f][0-9a-f])', '\\ufffd', 'gi');
    END;
  END LOOP;
  RETURN NULL;
END
$everthink$
""",
    # Signs only part words; PostgreSQL would read addresses, files and numbers with signs as one word each.
    r"""
CREATE OR REPLACE FUNCTION {schema}.everthink_words(body text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $everthink$
  SELECT pg_catalog.regexp_replace(body, '{signs}', ' ', 'g')
$everthink$
""",
    r"""
CREATE OR REPLACE FUNCTION {schema}.everthink_vector(agent text, body text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE COST 1000 AS $everthink$
DECLARE
  scope tsvector;
BEGIN
  IF agent IS NULL OR body IS NULL OR body = '' THEN
    RETURN '';
  END IF;
  scope := array_to_tsvector(ARRAY['agent' || left(encode(sha256(convert_to(agent, 'UTF8')), 'hex'), 32)]);
  RETURN to_tsvector('pg_catalog.english', {schema}.everthink_words(left(body, {longest}))) || scope;
END
$everthink$
""",
)

_SEARCH = """SELECT {names} everthink_body,
  ts_headline('pg_catalog.english', everthink_words(everthink_body), {wanted},
    'HighlightAll=true, StartSel={open}, StopSel={shut}')
FROM (
  SELECT * FROM (
    SELECT {columns} {body} AS everthink_body, agent AS everthink_agent, {table}.ctid AS everthink_place
    FROM {table}
    WHERE {vector} @@ (?::tsquery && {wanted}) AND numnode({wanted}) > 0
      AND agent = ? AND ({where})
    ORDER BY {table}.ctid DESC LIMIT {most}
  ) AS everthink_hits
  ORDER BY ts_rank(everthink_vector(everthink_agent, everthink_body), {wanted}, 1) DESC, everthink_place DESC
  LIMIT ?
) AS everthink_best"""


async def install(connection: Connection, index: TextIndex) -> None:
    """Index the rows that are there, and those to come. Inside the caller's transaction."""
    schema: str = await connection.fetchval("SELECT quote_ident(current_schema())")
    for sql in _FUNCTIONS:
        await connection.execute(sql.format(schema=schema, signs=_SIGNS, longest=LONGEST_TEXT))
    # Without fastupdate, which leaves a heap of new rows that every search would have to read through.
    await connection.execute(
        f"CREATE INDEX {index.table}_by_text ON {index.table} USING gin (({_vector(index)}))"
        " WITH (fastupdate = off)"
    )


def query(search: Search, agent: str, index: TextIndex, words: list[str]) -> tuple[str, tuple[Any, ...]]:
    """The SQL of a search and its parameters."""
    names = [f"everthink_{number}" for number in range(len(search.columns))]
    text = " ".join(words)
    (agent,) = storable((agent,))
    wanted = "phraseto_tsquery" if search.is_phrase else "plainto_tsquery"
    sql = _SEARCH.format(
        names="".join(f"{name}, " for name in names),
        columns="".join(
            f"{search.table}.{column} AS {name}, " for column, name in zip(search.columns, names, strict=True)
        ),
        table=search.table,
        body=_body(index),
        vector=_vector(index),
        wanted=f"{wanted}('pg_catalog.english', ?)",
        where=search.where or "true",
        open=OPEN,
        shut=SHUT,
        most=MOST_HITS,
    )
    scope = "agent" + hashlib.sha256(agent.encode()).hexdigest()[:32]
    # In the order of the marks: the headline, the index, the count, the agent, the condition, the rank.
    return sql, (text, scope, text, text, agent, *search.params, text, max(0, search.limit))


def answer(rows: Rows) -> Rows:
    """The rows of a query with the snippet in the place of the marked text."""
    return [_shown(row) for row in rows]


def _shown(row: Row) -> Row:
    *columns, text, marked = row
    return (*columns, text, snippet_of(text, marked))


def _body(index: TextIndex) -> str:
    return f"everthink_text({index.column})" if index.parts else index.column


def _vector(index: TextIndex) -> str:
    return f"everthink_vector(agent, {_body(index)})"
