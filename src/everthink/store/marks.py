"""Put the agent's id where a statement says `:agent`.

    "… WHERE agent = :agent AND id = ?", (7,)  -->  "… WHERE agent = ? AND id = ?", ("Assistant/ann", 7)

Pure. A text is taken apart once: from then on a statement costs one look-up and one insertion. What stands in
a literal or a comment is left alone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import StoreError
from .error_texts import shortened
from .port import Commit, Statement

__all__ = ["QUOTED", "bound", "bound_query"]

QUOTED = r"""'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/"""
"""Literals, names in quotes and comments: a mark in them is none. A doubled quote inside a literal reads as
two literals side by side, which is as good here."""

_MARK = re.compile(rf"{QUOTED}|\?|(?<!:):agent\b", re.DOTALL)


class _Form(NamedTuple):
    """A statement with `?` alone."""

    sql: str
    places: tuple[int, ...]
    """Which of its marks are the agent's, counted from 0."""


def bound(commit: Commit, agent: str) -> tuple[Statement, ...]:
    """The statements of `commit` as an engine takes them."""
    return tuple([_bound(statement, agent) for statement in commit])


def bound_query(sql: str, params: tuple[Any, ...], agent: str) -> tuple[str, tuple[Any, ...]]:
    """A query and its parameters as an engine takes them."""
    form = _form(sql)
    return (form.sql, _filled(form, params, agent)) if form.places else (sql, params)


def _bound(statement: Statement, agent: str) -> Statement:
    sql, params, guard, name = statement
    form = _form(sql)
    if not form.places:
        return statement
    return Statement(form.sql, _filled(form, params, agent), guard, name)


def _filled(form: _Form, params: tuple[Any, ...], agent: str) -> tuple[Any, ...]:
    if not agent:
        raise _nobodys(form.sql)
    if form.places == (0,):
        return (agent, *params)
    filled = list(params)
    for place in form.places:
        filled.insert(place, agent)
    return tuple(filled)


@lru_cache(maxsize=4096)
def _form(sql: str) -> _Form:
    count = 0
    places: list[int] = []

    def mark(match: re.Match[str]) -> str:
        nonlocal count
        if match[0] not in ("?", ":agent"):
            return match[0]
        if match[0] == ":agent":
            places.append(count)
        count += 1
        return "?"

    return _Form(_MARK.sub(mark, sql), tuple(places))


def _nobodys(sql: str) -> StoreError:
    return StoreError(
        f"A statement is about an agent, and nobody said which: {shortened(sql)}",
        kept="Nothing was read or written.",
        next_step="Use an AgentStore, or say `agent=`.",
    )
