"""Any commits, in any grouping, give what a dictionary would give."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everthink.errors import CommitRefused, StoreError
from everthink.open_store import open_store
from everthink.store.port import Migration, Statement

SCHEMA = [Migration(1, "cells", ("CREATE TABLE cells (k TEXT PRIMARY KEY, v BIGINT NOT NULL)",))]


@dataclass(frozen=True)
class Step:
    """One statement, and what it does to a dictionary."""

    verb: Literal["insert", "upsert", "add", "delete", "see"]
    key: str
    value: int
    guard: bool

    def statement(self) -> Statement:
        key, value = self.key, self.value
        sql, params = {
            "insert": ("INSERT INTO cells (k, v) VALUES (?, ?)", (key, value)),
            "upsert": (
                "INSERT INTO cells (k, v) VALUES (?, ?)"
                " ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING v",
                (key, value),
            ),
            "add": ("UPDATE cells SET v = v + ? WHERE k = ? RETURNING k, v", (value, key)),
            "delete": ("DELETE FROM cells WHERE k = ?", (key,)),
            "see": ("SELECT v FROM cells WHERE k = ?", (key,)),
        }[self.verb]
        return Statement(sql, params, self.guard)

    def do(self, cells: dict[str, int]) -> list[tuple[object, ...]]:
        key, value = self.key, self.value
        is_there = key in cells
        if self.verb == "insert" and is_there:
            raise StoreError("taken")
        if self.guard and not is_there and self.verb in ("add", "delete", "see"):
            raise CommitRefused("nothing")
        match self.verb:
            case "insert":
                cells[key] = value
            case "upsert":
                cells[key] = value
                return [(value,)]
            case "add" if is_there:
                cells[key] += value
                return [(key, cells[key])]
            case "delete":
                cells.pop(key, None)
            case "see" if is_there:
                return [(cells[key],)]
            case _:
                pass
        return []


steps = st.builds(
    Step,
    st.sampled_from(["insert", "upsert", "add", "delete", "see"]),
    st.sampled_from(["a", "b", "c", "🙂"]),
    st.integers(-(2**40), 2**40),
    st.booleans(),
)
bursts = st.lists(st.lists(st.lists(steps, max_size=4), max_size=12), max_size=4)


def expected(burst: Sequence[Sequence[Step]], cells: dict[str, int]) -> list[object]:
    outcomes: list[object] = []
    for commit in burst:
        draft = dict(cells)
        try:
            outcomes.append([step.do(draft) for step in commit])
        except StoreError as error:
            outcomes.append(type(error))
            continue
        cells.clear()
        cells.update(draft)
    return outcomes


async def check(url: str, plan: Sequence[Sequence[Sequence[Step]]]) -> None:
    store = await open_store(url, SCHEMA)
    try:
        cells: dict[str, int] = {}
        await store.apply([Statement("DELETE FROM cells")])
        for burst in plan:
            commits = [[step.statement() for step in commit] for commit in burst]
            outcomes = await asyncio.gather(*map(store.apply, commits), return_exceptions=True)
            told = [type(outcome) if isinstance(outcome, Exception) else outcome for outcome in outcomes]
            assert told == expected(burst, cells)
            assert dict(await store.fetch("SELECT k, v FROM cells")) == cells
    finally:
        await store.close()


some = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)


@some
@given(plan=bursts)
def test_a_file_does_what_a_dictionary_does(plan: list[list[list[Step]]], tmp_path: Path) -> None:
    asyncio.run(check(str(tmp_path / "cells.db"), plan))


@settings(some, max_examples=30)
@given(plan=bursts)
def test_memory_does_what_a_dictionary_does(plan: list[list[list[Step]]]) -> None:
    asyncio.run(check(":memory:", plan))


@pytest.mark.slow
@settings(some, max_examples=60)
@given(plan=bursts)
def test_postgresql_does_what_a_dictionary_does(plan: list[list[list[Step]]], postgres_url: str) -> None:
    asyncio.run(check(postgres_url, plan))
