"""Put the agent's id where a statement says `:agent`.

    "… WHERE agent = :agent AND id = ?", (7,)  -->  "… WHERE agent = ? AND id = ?", ("Assistant/ann", 7)

Pure. A text is taken apart once: from then on a statement costs one look-up and one insertion. What stands in
a literal or a comment is left alone.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast

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
    # Every commit passes here, so this is one loop without a call for what was seen before.
    found: list[Statement] = []
    for statement in commit:
        sql, params, guard, name = statement
        form = _FORMS.get(sql) or _form(sql)
        if form.places == _FIRST and agent:
            statement = _MAKE(Statement, (form.sql, (agent, *params), guard, name))
        elif form.places:
            statement = Statement(form.sql, _filled(form, params, agent), guard, name)
        found.append(statement)
    return tuple(found)


def bound_query(sql: str, params: tuple[Any, ...], agent: str) -> tuple[str, tuple[Any, ...]]:
    """A query and its parameters as an engine takes them."""
    form = _FORMS.get(sql) or _form(sql)
    return (form.sql, _filled(form, params, agent)) if form.places else (sql, params)


def _filled(form: _Form, params: tuple[Any, ...], agent: str) -> tuple[Any, ...]:
    if not agent:
        raise _nobodys(form.sql)
    if form.places == _FIRST:
        return (agent, *params)
    filled = list(params)
    for place in form.places:
        filled.insert(place, agent)
    return tuple(filled)


_FIRST = (0,)
_MAKE = cast("Any", tuple).__new__
_FORMS: dict[str, _Form] = {}
_MOST = 4096
"""So many texts are remembered; they are few, unless somebody writes values into them."""


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

    form = _Form(_MARK.sub(mark, sql), tuple(places))
    if len(_FORMS) >= _MOST:
        _FORMS.clear()
    _FORMS[sql] = form
    return form


def _nobodys(sql: str) -> StoreError:
    return StoreError(
        f"A statement is about an agent, and nobody said which: {shortened(sql)}",
        kept="Nothing was read or written.",
        next_step="Use an AgentStore, or say `agent=`.",
    )
