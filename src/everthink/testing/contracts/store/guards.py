"""Guards: a statement that must match, or the whole commit is refused."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio

import pytest

from ....errors import CommitRefused
from ....store.port import Statement
from .case import BUMP, PUT, StoreCase, notes, put

__all__ = ["GuardsContract"]

WITH_BUMP = (
    "WITH wanted AS (SELECT ? AS id) UPDATE notes SET n = n + 1 WHERE id IN (SELECT wanted.id FROM wanted)"
)


class GuardsContract(StoreCase):
    """What a guard promises."""

    @pytest.mark.parametrize(
        "guard",
        [
            Statement(BUMP, (1, "missing"), guard=True),
            Statement(BUMP + " RETURNING n", (1, "missing"), guard=True),
            Statement("DELETE FROM notes WHERE id = ?", ("missing",), guard=True),
            Statement("SELECT 1 FROM notes WHERE id = ?", ("missing",), guard=True),
            Statement(PUT + " ON CONFLICT (id) DO NOTHING", ("known", 1), guard=True),
            Statement("WITH x AS (SELECT ? AS id) SELECT id FROM x WHERE id <> id", ("a",), guard=True),
            Statement(WITH_BUMP, ("missing",), guard=True),
        ],
        ids=["update", "update returning", "delete", "select", "insert", "with", "with update"],
    )
    @pytest.mark.parametrize("position", ["first", "last", "only"])
    async def test_a_guard_that_matches_nothing_refuses_the_commit(
        self, guard: Statement, position: str
    ) -> None:
        async with self.opened() as store:
            await store.apply([put("known")])
            commit = {"first": [guard, put("a")], "last": [put("a"), guard], "only": [guard]}[position]
            with pytest.raises(CommitRefused, match="Nothing of this commit was written"):
                await store.apply(commit)
            # The same among others, which must not notice.
            before, refusal, after = await asyncio.gather(
                store.apply([put("before")]),
                store.apply(commit),
                store.apply([put("after")]),
                return_exceptions=True,
            )
            assert (before, after) == ([[]], [[]])
            assert isinstance(refusal, CommitRefused)
            assert guard.sql[:20] in str(refusal)
            assert set(await notes(store)) == {"known", "before", "after"}

    async def test_a_guard_that_matches_nothing_refuses_a_very_large_commit(self) -> None:
        guard = Statement(BUMP, (1, "missing"), guard=True, name="missing")
        many = [put(f"{n:04}") for n in range(400)]
        async with self.opened() as store:
            with pytest.raises(CommitRefused) as refused:
                await store.apply([*many, guard])
            assert refused.value.guard == "missing"
            told = await asyncio.gather(
                store.apply([put("before")]),
                store.apply([*many, guard]),
                store.apply([put("after")]),
                return_exceptions=True,
            )
            assert isinstance(told[1], CommitRefused)
            assert set(await notes(store)) == {"before", "after"}
            assert await store.apply(many) == [[]] * 400
            assert len(await notes(store)) == 402

    async def test_a_refusal_tells_the_name_of_the_guard(self) -> None:
        same = [Statement(BUMP, (1, "missing"), guard=True, name=name) for name in ("one", "two", "")]
        async with self.opened() as store:
            commits = [*([guard] for guard in same), *([put("a"), guard] for guard in same)]
            told = await asyncio.gather(*map(store.apply, commits), return_exceptions=True)
            alone = await asyncio.gather(store.apply(commits[4]), return_exceptions=True)
            assert [error.guard for error in (*told, *alone) if isinstance(error, CommitRefused)] == [
                *("one", "two", ""),
                *("one", "two", ""),
                "two",
            ]

    async def test_a_guard_that_matches_lets_the_commit_pass(self) -> None:
        async with self.opened() as store:
            await store.apply([put("known", guard=True)])
            guards = [
                Statement(BUMP, (0, "known"), guard=True),
                Statement("SELECT id FROM notes WHERE id = ?", ("known",), guard=True),
                Statement(WITH_BUMP, ("known",), guard=True),
            ]
            assert await store.apply([*guards, put("a")]) == [[], [("known",)], [], []]
            assert await asyncio.gather(store.apply(guards), store.apply(guards[:1])) == [
                [[], [("known",)], []],
                [[]],
            ]

    async def test_a_guard_sees_the_commits_before_it(self) -> None:
        async with self.opened() as store:
            claim = Statement("UPDATE notes SET n = 1 WHERE id = ? AND n = 0", ("job",), guard=True)
            await store.apply([put("job", 0)])
            outcomes = await asyncio.gather(
                *(store.apply([claim, put(f"winner {i}")]) for i in range(30)), return_exceptions=True
            )
            assert [isinstance(outcome, CommitRefused) for outcome in outcomes] == [False] + [True] * 29
            assert await notes(store) == {"job": 1, "winner 0": 0}
