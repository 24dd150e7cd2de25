"""Commits: whole or not at all, in the order of the calls, whoever waits for them."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ....errors import StoreError
from ....store.port import Statement
from .case import BUMP, LOG, PUT, UPSERT, StoreCase, notes, put

__all__ = ["CommitsContract"]


class CommitsContract(StoreCase):
    """What `apply` promises."""

    # A commit is applied whole, or not at all.

    async def test_a_commit_is_applied_with_all_its_statements(self) -> None:
        async with self.opened() as store:
            rows = await store.apply([put("a", 1), put("b", 2), Statement(BUMP, (10, "a"))])
            assert rows == [[], [], []]
            assert await notes(store) == {"a": 11, "b": 2}

    async def test_a_commit_that_fails_half_way_leaves_nothing(self) -> None:
        async with self.opened() as store:
            await store.apply([put("taken", 1)])
            with pytest.raises(StoreError):
                await store.apply([put("new", 1), Statement(BUMP, (5, "taken")), put("taken", 2)])
            assert await notes(store) == {"taken": 1}

    async def test_a_store_goes_on_after_a_commit_that_failed(self) -> None:
        async with self.opened() as store:
            for wrong in ("INSERT INTO nowhere (id) VALUES (?)", "SELEKT ?", PUT):
                with pytest.raises(StoreError, match="Nothing of"):
                    await store.apply([put("never"), Statement(wrong, ("x",))])
                with pytest.raises(StoreError):
                    await store.apply([Statement(wrong, ("x",))])
            await store.apply([put("good")])
            assert await notes(store) == {"good": 0}

    async def test_an_empty_commit_is_applied(self) -> None:
        async with self.opened() as store:
            assert await store.apply([]) == []
            assert await asyncio.gather(store.apply([]), store.apply([put("a")])) == [[], [[]]]

    async def test_a_commit_is_taken_as_it_was_when_apply_was_called(self) -> None:
        async with self.opened() as store:
            commit = [put("a")]
            applied = store.apply(commit)
            commit.append(put("b"))
            await applied
            assert await notes(store) == {"a": 0}

    async def test_a_reader_sees_a_commit_whole_or_not_at_all(self) -> None:
        async with self.opened() as store:
            await store.apply([put("from", 1000), put("to", 0)])
            move = [Statement(BUMP, (-1, "from")), Statement(BUMP, (1, "to"))]
            moves = [asyncio.ensure_future(store.apply(move)) for _ in range(200)]
            while not all(move.done() for move in moves):
                assert await store.fetch("SELECT SUM(n) FROM notes") == [(1000,)]
                await asyncio.sleep(0)
            await asyncio.gather(*moves)
            assert await notes(store) == {"from": 800, "to": 200}

    async def test_references_are_checked(self) -> None:
        async with self.opened() as store:
            link = Statement("INSERT INTO links (note, target) VALUES (?, ?)", ("a", "b"))
            with pytest.raises(StoreError):
                await store.apply([link])
            await store.apply([put("a"), link])

    # Commits keep the order of the calls.

    async def test_commits_are_applied_and_answered_in_the_order_of_the_calls(self) -> None:
        async with self.opened() as store:
            answered: list[str] = []
            names = [f"{i}" for i in range(300)]
            futures: list[asyncio.Future[Any]] = []
            for name in names:
                future = store.apply([Statement(LOG, (name,))])
                assert isinstance(future, asyncio.Future)
                future.add_done_callback(lambda _, name=name: answered.append(name))
                futures.append(future)
            await asyncio.gather(*futures)
            await asyncio.sleep(0)
            assert [what for (what,) in await store.fetch("SELECT what FROM log ORDER BY seq")] == names
            assert answered == names

    async def test_hundreds_of_writers_at_once_lose_nothing(self) -> None:
        async with self.opened() as store:
            await store.apply([put("total", 0)])

            async def write(writer: int) -> None:
                for step in range(5):
                    await store.apply([put(f"{writer}/{step}", step), Statement(BUMP, (1, "total"))])
                    assert await store.fetch("SELECT n FROM notes WHERE id = ?", f"{writer}/{step}") == [
                        (step,)
                    ]

            await asyncio.gather(*(write(writer) for writer in range(200)))
            stored = await notes(store)
            assert stored.pop("total") == 1000
            assert len(stored) == 1000

    async def test_commits_that_fail_leave_their_neighbours_alone(self) -> None:
        async with self.opened() as store:
            await store.apply([put("taken")])
            commits = [
                [put(f"{i}"), put("taken" if i % 7 == 0 else f"{i}b")]
                if i % 2
                else [put("taken" if i % 7 == 0 else f"{i}")]
                for i in range(150)
            ]
            outcomes = await asyncio.gather(*map(store.apply, commits), return_exceptions=True)
            for i, outcome in enumerate(outcomes):
                assert isinstance(outcome, StoreError) == (i % 7 == 0), (i, outcome)
            expected = {s.params[0] for i, commit in enumerate(commits) if i % 7 for s in commit}
            assert set(await notes(store)) == expected | {"taken"}

    # Rows come back.

    async def test_returning_gives_the_rows_of_each_statement(self) -> None:
        async with self.opened() as store:
            one = await store.apply([Statement(PUT + " RETURNING id, n", ("a", 1))])
            assert one == [[("a", 1)]]
            several = await store.apply(
                [
                    Statement(PUT + " RETURNING n", ("b", 2)),
                    put("c", None),
                    Statement("UPDATE notes SET n = ? WHERE n < ? RETURNING id", (9, 0)),
                    Statement("SELECT id, n, weight, n AS again FROM notes ORDER BY id DESC"),
                    Statement("DELETE FROM notes WHERE id = ? RETURNING id, n, body", ("a",)),
                ]
            )
            seen = [("c", None, None, None), ("b", 2, None, 2), ("a", 1, None, 1)]
            assert several == [[(2,)], [], [], seen, [("a", 1, None)]]

    async def test_an_upsert_says_what_is_stored_now(self) -> None:
        async with self.opened() as store:
            answers = await asyncio.gather(*(store.apply([Statement(UPSERT, ("a", 1))]) for _ in range(20)))
            assert answers == [[[("a", n)]] for n in range(1, 21)]

    async def test_rows_come_back_from_a_group_of_commits_too(self) -> None:
        async with self.opened() as store:
            answers = await asyncio.gather(
                *(
                    store.apply([Statement(UPSERT, (f"{i}", i)), Statement("SELECT COUNT(*) FROM notes")])
                    for i in range(20)
                )
            )
            assert answers == [[[(f"{i}", i)], [(i + 1,)]] for i in range(20)]

    # Nobody waits.

    async def test_a_commit_is_applied_although_nobody_waits_for_it(self) -> None:
        async with self.opened() as store:
            futures = [asyncio.ensure_future(store.apply([put(f"{i}")])) for i in range(10)]
            for future in futures:
                future.cancel()
            await store.apply([put("last")])
            assert set(await notes(store)) == {*(f"{i}" for i in range(10)), "last"}

    async def test_a_waiter_that_is_cancelled_does_not_disturb_the_others(self) -> None:
        async with self.opened() as store:

            async def write(id: str) -> None:
                await store.apply([put(id), Statement(LOG, (id,))])

            tasks = [asyncio.create_task(write(f"{i}")) for i in range(50)]
            await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert [task.cancelled() for task in tasks] == [i % 3 == 0 for i in range(50)]
            await store.apply([])
            assert len(await notes(store)) == 50
