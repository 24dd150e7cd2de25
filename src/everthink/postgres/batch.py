"""A commit as one round trip, and a group of commits as one too.

    Commit --> statement numbers, one array of parameters --> one SELECT --> rows of each statement

asyncpg waits for the answer to each statement, so BEGIN, three statements and COMMIT are five round trips.
Instead every statement we meet becomes, once per connection, a function in `pg_temp` (which keeps its plan),
and a commit is one call that runs them in order: it is atomic as any single statement is. A group is the same
call once for each commit, sent together in one transaction, each behind a savepoint of its own.
On one machine a commit of three statements takes 0.35 ms instead of 0.87, and sixty commits of one statement
each take 1.8 ms instead of 13. Where temporary functions may not be made, commits go the plain way, and so do
very large ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import StoreError
from ..store.clean import storable
from ..store.error_texts import refused
from ..store.outcomes import Outcome
from ..store.port import Commit, Rows, Statement
from .driver import Connection
from .failures import NO_PERMISSION, failures, from_server, from_state, state_of
from .sql import Kinds, elements, kinds_of, numbered, present, returns_rows, subscripted

__all__ = ["BatchConnection"]

_Arguments = tuple[list[int], list[int], list[str]]
_Key = tuple[str, bool, str, Kinds]
"""What makes a function its own: the SQL, whether it guards, the name of the guard, the parameters."""

_REFUSED = "ET001"
_MOST_FUNCTIONS = 2000
_MOST_PARAMETERS = 500
_MOST_CHARACTERS = 1 << 20
"""Of one call: PostgreSQL counts through all of an array for each of its elements, so a commit with thousands
of parameters would take seconds, and one of many megabytes, too."""
_MAY_NOT_CREATE = (NO_PERMISSION, "42704", "0A000")
"""No right to temporary objects, no PL/pgSQL, no functions at all."""

_APPLY = """
CREATE FUNCTION pg_temp.everthink_apply(integer[], integer[], text[]) RETURNS text[]
LANGUAGE plpgsql AS $everthink$
DECLARE
  answers text[] := '{}';
  answer text;
BEGIN
  FOR i IN 1 .. cardinality($1) LOOP
    EXECUTE 'SELECT pg_temp.everthink_' || ($1)[i] || '($1, $2)' INTO answer USING $3, ($2)[i];
    answers := array_append(answers, answer);
  END LOOP;
  RETURN answers;
END
$everthink$;

CREATE FUNCTION pg_temp.everthink_apply_apart(integer[], integer[], text[]) RETURNS text[]
LANGUAGE plpgsql AS $everthink$
BEGIN
  RETURN array_prepend('', pg_temp.everthink_apply($1, $2, $3));
EXCEPTION WHEN OTHERS THEN
  RETURN ARRAY[SQLSTATE, SQLERRM];
END
$everthink$
"""

_STATEMENT = """
CREATE FUNCTION pg_temp.everthink_{number}(text[], integer) RETURNS text
LANGUAGE plpgsql AS $everthink$
#variable_conflict use_column
DECLARE
  everthink_rows text;
BEGIN
  {sql}
  ;
  {guard}
  RETURN everthink_rows;
END
$everthink$
"""
_ROWS = """WITH everthink_row AS (
{sql}
  ) SELECT json_agg(row_to_json(everthink_row))::text INTO everthink_rows FROM everthink_row"""
_GUARD = """IF {nothing} THEN
    RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = '{number}';
  END IF;"""


class _Plain(Exception):
    """This commit cannot be one call."""


class BatchConnection:
    """One connection and the functions made on it."""

    def __init__(self, connection: Connection, where: str) -> None:
        self.connection = connection
        self._where = where
        self._failures = failures()
        self._numbers: dict[_Key, int] = {}
        # What each number refuses: the statement and the name of the guard.
        self._guards: dict[str, tuple[str, str]] = {}
        # None until the first attempt.
        self._may_create: bool | None = None

    async def run(self, commit: Commit) -> list[Rows]:
        """Apply one commit, or raise."""
        if not commit:
            return []
        if len(commit) == 1:
            return [await self._run_statement(commit[0])]
        try:
            arguments = await self._arguments(commit)
        except _Plain:
            return await self._run_plainly(commit)
        try:
            call = "SELECT pg_temp.everthink_apply($1, $2, $3)"
            answers: list[str | None] = await self.connection.fetchval(call, *arguments)
        except self._failures as error:
            if state_of(error) == _REFUSED:
                raise refused(*self._guards[error.args[0]]) from None
            raise
        return list(map(_rows, answers))

    async def run_group(self, group: Sequence[Commit]) -> list[Outcome] | None:
        """Apply several commits in one transaction. None when nothing was written and each must go alone."""
        calls: list[_Arguments] = []
        unfit: dict[int, StoreError] = {}
        for index, commit in enumerate(group):
            try:
                calls.append(await self._arguments(commit))
            except _Plain:
                return None
            except self._failures as error:
                if self.is_lost(error):
                    return None
                unfit[index] = from_server(error, self._where)
        try:
            call = "SELECT pg_temp.everthink_apply_apart($1, $2, $3)"
            told = iter(await self.connection.fetchmany(call, calls))
        except self._failures as error:
            if self.is_lost(error):
                raise
            return None
        return [unfit[i] if i in unfit else self._outcome(next(told)[0]) for i in range(len(group))]

    def is_lost(self, error: Exception) -> bool:
        """True when `error` means that we shall never hear what became of what we sent."""
        return isinstance(error, TimeoutError) or self.connection.is_closed()

    async def _run_statement(self, statement: Statement) -> Rows:
        params = storable(statement.params)
        sql = numbered(statement.sql, kinds_of(params))
        rows: Rows = []
        if returns_rows(statement.sql):
            rows = [tuple(row) for row in await self.connection.fetch(sql, *present(params))]
            is_touched = bool(rows)
        else:
            tag = await self.connection.execute(sql, *present(params))
            is_touched = not tag.endswith(" 0")
        if statement.guard and not is_touched:
            raise refused(statement.sql, statement.name)
        return rows

    async def _run_plainly(self, commit: Commit) -> list[Rows]:
        await self.connection.execute("BEGIN")
        try:
            rows = [await self._run_statement(statement) for statement in commit]
            await self.connection.execute("COMMIT")
        except self._failures as error:
            if not self.is_lost(error):
                await self.connection.execute("ROLLBACK")
            raise
        return rows

    async def _arguments(self, commit: Commit) -> _Arguments:
        if self._may_create is None:
            self._may_create = await self._can_create()
        if not self._may_create:
            raise _Plain
        if _is_large(commit):
            raise _Plain
        numbers: list[int] = []
        offsets: list[int] = []
        texts: list[str] = []
        for statement in commit:
            params = storable(statement.params)
            key = (statement.sql, statement.guard, statement.name, kinds_of(params))
            numbers.append(self._numbers.get(key) or await self._create(key))
            offsets.append(len(texts))
            texts += elements(params)
        return numbers, offsets, texts

    async def _create(self, key: _Key) -> int:
        """Make a function of a statement that this connection has not met before."""
        if len(self._numbers) == _MOST_FUNCTIONS:
            raise _Plain
        sql, guard, name, kinds = key
        number = len(self._numbers) + 1
        body = subscripted(sql, kinds).rstrip().removesuffix(";")
        has_rows = returns_rows(sql)
        check = ""
        if guard:
            nothing = "everthink_rows IS NULL" if has_rows else "NOT FOUND"
            check = _GUARD.format(nothing=nothing, state=_REFUSED, number=number)
        body = _ROWS.format(sql=body) if has_rows else body
        await self.connection.execute(_STATEMENT.format(number=number, sql=body, guard=check))
        self._numbers[key] = number
        self._guards[str(number)] = sql, name
        return number

    async def _can_create(self) -> bool:
        try:
            await self.connection.execute(_APPLY)
        except self._failures as error:
            if state_of(error) not in _MAY_NOT_CREATE:
                raise
            return False
        return True

    def _outcome(self, answers: list[str | None]) -> Outcome:
        state, *rest = answers
        if not state:
            return list(map(_rows, rest))
        message = rest[0] or ""
        return (
            refused(*self._guards[message]) if state == _REFUSED else from_state(state, message, self._where)
        )


def _is_large(commit: Commit) -> bool:
    """True for what goes faster statement by statement."""
    if sum(len(statement.params) for statement in commit) > _MOST_PARAMETERS:
        return True
    texts = (value for statement in commit for value in statement.params if isinstance(value, str))
    return sum(map(len, texts)) > _MOST_CHARACTERS


def _rows(answer: str | None) -> Rows:
    """The rows in an answer: a JSON list of objects, whose names we do not need."""
    return json.loads(answer, object_pairs_hook=_values) if answer else []


def _values(pairs: list[tuple[str, Any]]) -> tuple[Any, ...]:
    return tuple(value for _, value in pairs)
