"""What a conversation takes in a SQLite file, and that what is dropped is given back."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from everthink import App, Think
from everthink.journal import queries as journal
from everthink.runtime import queries
from everthink.runtime.directory import new_id
from everthink.testing.scripted import ScriptedModel, says

pytestmark = pytest.mark.anyio

WORDS = [f"word{number} " for number in range(20)]


class Short(Think):
    """Answers in twenty words."""

    model = ScriptedModel.forever(says(*WORDS))


async def test_a_hundred_short_turns_take_less_than_300_kb(tmp_path: Path) -> None:
    # Given an agent that was asked a hundred times
    path = tmp_path / "short.db"
    async with App(Short, store=f"sqlite:///{path}") as app:
        for _ in range(100):
            await app.agent(Short, "one").save_messages("Tell me something about the weather, please.")
    # Then all that was said is kept in little room
    full = path.stat().st_size
    assert full <= 300_000

    # And when what was streamed is dropped, its pages are given back
    async with App(Short, store=f"sqlite:///{path}") as app:
        store = (await app.open()).store
        await store.apply([journal.pruned(before=1 << 60)], agent="Short/one")
    assert path.stat().st_size < full - 40_000


async def test_a_start_finds_the_agents_that_wait_through_one_index(tmp_path: Path) -> None:
    path = tmp_path / "waiting.db"
    async with App(Short, store=f"sqlite:///{path}") as app:
        await app.open()
    with sqlite3.connect(path) as database:
        for sql in (queries.TO_CONTINUE, queries.TO_SWEEP, queries.TO_POLL):
            [(*_, plan)] = database.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
            assert "USING COVERING INDEX kv_waiting (name=?)" in plan
    database.close()


def test_ids_are_short_and_in_the_order_of_their_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given ids that were made from now until many years from now
    made: list[str] = []
    for year in (0, 1, 30, 300, 900):
        monkeypatch.setattr("time.time_ns", lambda year=year: (1_790_000_000 + year * 31_557_600) * 10**9)
        made += sorted(new_id() for _ in range(1000))
    # Then they sort by time, are all different, and have nothing in them that a path or a word would break at
    assert made == sorted(set(made))
    assert {len(id) for id in made} == {22}
    assert all(id.isalnum() and id == id.lower() for id in made)
