"""The agent's id in a statement: where it goes, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.errors import StoreError
from everthink.store.marks import bound, bound_query
from everthink.store.port import Statement


@pytest.mark.parametrize(
    ("sql", "params", "told", "values"),
    [
        ("a = :agent", (), "a = ?", ("me",)),
        ("a = :agent AND b = ?", (1,), "a = ? AND b = ?", ("me", 1)),
        ("b = ? AND a = :agent", (1,), "b = ? AND a = ?", (1, "me")),
        (":agent, ?, ?, :agent, ?", (1, 2, 3), "?, ?, ?, ?, ?", ("me", 1, 2, "me", 3)),
        (":agent:agent", (), "??", ("me", "me")),
        ("b = ?", (1,), "b = ?", (1,)),
        ("':agent' \":agent\" -- :agent ?\n, ?", (1,), "':agent' \":agent\" -- :agent ?\n, ?", (1,)),
        ("'it''s :agent' = :agent", (), "'it''s :agent' = ?", ("me",)),
        ("a::agent, :agents, :agent_id, ?", (1,), "a::agent, :agents, :agent_id, ?", (1,)),
    ],
)
def test_where_the_agent_goes(sql: str, params: tuple[Any, ...], told: str, values: tuple[Any, ...]) -> None:
    assert bound_query(sql, params, "me") == (told, values)
    (statement,) = bound([Statement(sql, params, guard=True, name="mine")], "me")
    assert statement == Statement(told, values, guard=True, name="mine")


def test_a_statement_that_names_nobody_is_the_same_one() -> None:
    plain = Statement("b = ?", (1,))
    (found,) = bound([plain], "")
    assert found is plain


def test_a_commit_is_copied() -> None:
    commit = [Statement("b = ?", (1,))]
    found = bound(commit, "me")
    commit.append(Statement("c = ?", (2,)))
    assert len(found) == 1


def test_nobody_is_no_agent() -> None:
    with pytest.raises(StoreError, match="nobody said which"):
        bound([Statement("a = :agent")], "")


@given(st.lists(st.booleans(), max_size=12))
def test_values_keep_their_order_whatever_stands_between_them(marks: list[bool]) -> None:
    sql = ", ".join(":agent" if is_agent else "?" for is_agent in marks)
    given = tuple(range(marks.count(False)))
    told, values = bound_query(sql, given, "me")
    assert told == ", ".join("?" * len(marks))
    assert [value == "me" for value in values] == marks
    assert tuple(value for value in values if value != "me") == given
