"""What every `Store` must do. An adapter passes by subclassing `StoreContract` in its tests:

    pytestmark = pytest.mark.anyio

    class TestMyStore(StoreContract):
        @pytest.fixture(autouse=True)
        def place(self, tmp_path):
            self.path = tmp_path / "agents.db"

        async def open(self, migrations):
            return await open_my_store(self.path, migrations)

Needs pytest with the anyio plugin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ...errors import CommitRefused, StoreClosed, StoreError, StoreReadOnly, StoreTooNew
from ...store.port import Migration, Statement, Store

__all__ = ["SCHEMA", "StoreContract"]

SCHEMA = (
    Migration(
        1,
        "notes",
        (
            "CREATE TABLE notes (id TEXT PRIMARY KEY, n BIGINT, weight DOUBLE PRECISION, body TEXT)",
            "CREATE TABLE log (seq BIGINT PRIMARY KEY, what TEXT NOT NULL)",
            "CREATE TABLE links (note TEXT NOT NULL REFERENCES notes (id), target TEXT NOT NULL)",
        ),
    ),
)

PUT = "INSERT INTO notes (id, n) VALUES (?, ?)"
UPSERT = (
    "INSERT INTO notes (id, n) VALUES (?, ?)"
    " ON CONFLICT (id) DO UPDATE SET n = notes.n + excluded.n RETURNING id, n"
)
BUMP = "UPDATE notes SET n = n + ? WHERE id = ?"
LOG = "INSERT INTO log (seq, what) SELECT COALESCE(MAX(seq), 0) + 1, ? FROM log"


def put(id: str, n: int | None = 0, *, guard: bool = False) -> Statement:
    """Store a note; its id must be new."""
    return Statement(PUT, (id, n), guard)


async def notes(store: Store) -> dict[str, Any]:
    """Every stored note: id -> n."""
    return {id: n for id, n in await store.fetch("SELECT id, n FROM notes")}


class StoreContract:
    """The tests. Override `open`; set `keeps_data` to False when nothing outlives `close`."""

    keeps_data = True

    async def open(self, migrations: Sequence[Migration]) -> Store:
        """Open this test's database: the same one at every call."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self, migrations: Sequence[Migration] = SCHEMA) -> AsyncIterator[Store]:
        """Open this test's database, and close it at the end."""
        store = await self.open(migrations)
        try:
            yield store
        finally:
            await store.close()

    def needs_kept_data(self) -> None:
        """Skip a test that makes no sense for a database in memory."""
        if not self.keeps_data:
            pytest.skip("this store keeps nothing after close")

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

    # Guards.

    @pytest.mark.parametrize(
        "guard",
        [
            Statement(BUMP, (1, "missing"), guard=True),
            Statement(BUMP + " RETURNING n", (1, "missing"), guard=True),
            Statement("DELETE FROM notes WHERE id = ?", ("missing",), guard=True),
            Statement("SELECT 1 FROM notes WHERE id = ?", ("missing",), guard=True),
            Statement(PUT + " ON CONFLICT (id) DO NOTHING", ("known", 1), guard=True),
            Statement("WITH x AS (SELECT ? AS id) SELECT id FROM x WHERE id <> id", ("a",), guard=True),
        ],
        ids=["update", "update returning", "delete", "select", "insert", "with"],
    )
    @pytest.mark.parametrize("position", ["first", "last", "only"])
    async def test_a_guard_that_matches_nothing_refuses_the_commit(self, guard: Statement, position: str) -> None:
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

    async def test_a_guard_that_matches_lets_the_commit_pass(self) -> None:
        async with self.opened() as store:
            await store.apply([put("known", guard=True)])
            guards = [
                Statement(BUMP, (0, "known"), guard=True),
                Statement("SELECT id FROM notes WHERE id = ?", ("known",), guard=True),
            ]
            assert await store.apply([*guards, put("a")]) == [[], [("known",)], []]
            assert await asyncio.gather(store.apply(guards), store.apply(guards[:1])) == [
                [[], [("known",)]],
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

    # Values.

    @pytest.mark.parametrize(
        "text",
        ["", "plain", "naïve – “quotes” 'it''s' \\ % ? $1", "漢字 العربية 👩‍👩‍👧‍👦 e\u0301", "line\n\ttab\r\x01\x7f", '{"a": "\\u0000"}'],
        ids=["empty", "plain", "punctuation", "scripts", "control", "json"],
    )  # fmt: skip
    @pytest.mark.parametrize("statements", [1, 2])
    async def test_text_comes_back_as_it_went_in(self, text: str, statements: int) -> None:
        async with self.opened() as store:
            sql = "INSERT INTO notes (id, body) VALUES (?, ?) RETURNING id, body"
            commit = [Statement(sql, (text, text)), put("other")][:statements]
            assert (await store.apply(commit))[0] == [(text, text)]
            assert await store.fetch("SELECT body FROM notes WHERE id = ?", text) == [(text,)]

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            ("a\0b\0", "a\ufffdb\ufffd"),
            ("half \ud83d", "half \ufffd"),
            ("two halves \ud83d\ude00", "two halves 😀"),
        ],
        ids=["nul", "half a pair", "a pair apart"],
    )
    async def test_what_cannot_be_stored_becomes_the_replacement_character(
        self, text: str, kept: str
    ) -> None:
        async with self.opened() as store:
            sql = "INSERT INTO notes (id, body) VALUES (?, ?)"
            await store.apply([Statement(sql, ("one", text))])
            await asyncio.gather(
                store.apply([Statement(sql, ("two", text))]),
                store.apply([Statement(sql, ("three", text)), put("four")]),
            )
            rows = await store.fetch("SELECT id FROM notes WHERE body = ? ORDER BY id", text)
            assert rows == [("one",), ("three",), ("two",)]
            assert await store.fetch("SELECT DISTINCT body FROM notes WHERE body IS NOT NULL") == [(kept,)]

    async def test_five_megabytes_of_text_fit(self) -> None:
        async with self.opened() as store:
            text = "Größe 👍" * 600_000
            sql = "INSERT INTO notes (id, body) VALUES (?, ?)"
            await asyncio.gather(*(store.apply([Statement(sql, (f"{i}", text)), put(f"{i}+")]) for i in range(2)))
            assert await store.fetch("SELECT body FROM notes WHERE body IS NOT NULL") == [(text,), (text,)]

    @pytest.mark.parametrize("n", [None, 0, -1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)])
    @pytest.mark.parametrize("statements", [1, 2])
    async def test_integers_and_null_come_back_exactly(self, n: int | None, statements: int) -> None:
        async with self.opened() as store:
            commit = [Statement(PUT + " RETURNING n", ("a", n)), put("b", 0)][:statements]
            assert (await store.apply(commit))[0] == [(n,)]
            assert await store.fetch("SELECT n FROM notes WHERE id = ?", "a") == [(n,)]

    @pytest.mark.parametrize("weight", [0.0, 0.1, -1e300, 5e-324, 1 / 3])
    async def test_floats_come_back_exactly(self, weight: float) -> None:
        async with self.opened() as store:
            sql = "INSERT INTO notes (id, weight) VALUES (?, ?) RETURNING weight"
            assert await store.apply([Statement(sql, ("a", weight))]) == [[(weight,)]]
            assert (await store.apply([put("c"), Statement(sql, ("b", weight))]))[1] == [(weight,)]
            assert await store.fetch("SELECT weight FROM notes WHERE weight = ?", weight) == [(weight,)] * 2

    @pytest.mark.parametrize("value", [2**63, {"a": 1}, b"bytes", object()], ids=["large", "dict", "bytes", "object"])
    async def test_a_value_that_does_not_fit_is_refused(self, value: object) -> None:
        async with self.opened() as store:
            wrong = Statement(PUT, ("wrong", value))
            with pytest.raises(StoreError, match="Nothing of"):
                await store.apply([wrong])
            outcomes = await asyncio.gather(
                store.apply([put("a")]),
                store.apply([put("b"), wrong]),
                store.apply([put("c")]),
                return_exceptions=True,
            )
            assert [isinstance(outcome, StoreError) for outcome in outcomes] == [False, True, False]
            assert set(await notes(store)) == {"a", "c"}

    async def test_a_value_has_its_own_type_wherever_it_stands(self) -> None:
        async with self.opened() as store:
            assert await store.fetch("SELECT ?, ?, ?, ?", 1, "1", 0.5, None) == [(1, "1", 0.5, None)]
            assert await store.fetch("SELECT 1 WHERE ? > 0 AND ? IS NOT NULL", 2**40, "x") == [(1,)]
            assert await store.fetch("SELECT COALESCE(?, ?)", None, 7) == [(7,)]

    async def test_a_question_mark_in_quotes_is_not_a_placeholder(self) -> None:
        async with self.opened() as store:
            sql = "SELECT 'really?', 'it''s ?', ? AS \"what?\" -- is it?"
            assert await store.fetch(sql, "yes") == [("really?", "it's ?", "yes")]
            assert await store.apply([Statement(sql, ("yes",)), put("a")]) == [
                [("really?", "it's ?", "yes")],
                [],
            ]

    async def test_sums_and_counts_are_integers(self) -> None:
        async with self.opened() as store:
            query = "SELECT COUNT(*), SUM(n), MAX(n), COALESCE(SUM(n), 0) + 1 FROM notes"
            assert await store.fetch(query) == [(0, None, None, 1)]
            await store.apply([put("a", 2**60), put("b", 2**60)])
            [row] = await store.fetch(query)
            assert row == (2, 2**61, 2**60, 2**61 + 1)
            assert [type(value) for value in row] == [int] * 4

    # Reading.

    async def test_a_read_sees_every_commit_that_was_confirmed(self) -> None:
        async with self.opened() as store:
            for i in range(50):
                await store.apply([put(f"{i}")])
                assert await store.fetch("SELECT COUNT(*) FROM notes") == [(i + 1,)]

    async def test_fetch_does_not_write(self) -> None:
        async with self.opened() as store:
            with pytest.raises(StoreReadOnly, match="apply"):
                await store.fetch(PUT, "a", 1)
            assert await notes(store) == {}

    async def test_a_wrong_query_is_reported_and_forgotten(self) -> None:
        async with self.opened() as store:
            for sql, params in (("SELEKT 1", ()), ("SELECT ?", ()), ("SELECT n FROM nowhere", ())):
                with pytest.raises(StoreError):
                    await store.fetch(sql, *params)
            assert await store.fetch("SELECT 1") == [(1,)]

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

    # Closing.

    async def test_close_finishes_what_was_accepted(self) -> None:
        store = await self.open(SCHEMA)
        applied = [store.apply([put(f"{i}"), Statement(LOG, (f"{i}",))]) for i in range(100)]
        await store.close()
        assert await asyncio.gather(*applied) == [[[], []]] * 100
        if self.keeps_data:
            async with self.opened() as again:
                assert len(await notes(again)) == 100

    async def test_a_closed_store_says_so(self) -> None:
        store = await self.open(SCHEMA)
        closing = asyncio.gather(store.close(), store.close())
        await closing
        await store.close()
        with pytest.raises(StoreClosed, match="closed"):
            await store.apply([put("a")])
        with pytest.raises(StoreClosed, match="closed"):
            await store.fetch("SELECT 1")

    async def test_a_closed_store_is_closed_even_if_closing_was_cancelled(self) -> None:
        store = await self.open(SCHEMA)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await store.close()
        async with self.opened() as again:
            assert await again.fetch("SELECT 1") == [(1,)]

    async def test_data_is_there_after_opening_again(self) -> None:
        self.needs_kept_data()
        async with self.opened() as store:
            await store.apply([put("a", 1)])
        async with self.opened() as store:
            await store.apply([Statement(BUMP, (1, "a"), guard=True)])
        async with self.opened() as store:
            assert await notes(store) == {"a": 2}

    # The schema.

    async def test_migrations_run_once_and_in_order(self) -> None:
        self.needs_kept_data()
        second = Migration(2, "tags", ("ALTER TABLE notes ADD COLUMN tag TEXT", "UPDATE notes SET tag = 'old'"))
        third = Migration(3, "seen", ("CREATE TABLE seen (id TEXT)", "INSERT INTO seen SELECT id FROM notes"))
        async with self.opened() as store:
            await store.apply([put("a")])
        for _ in range(2):
            async with self.opened([*SCHEMA, second, third]) as store:
                assert await store.fetch("SELECT id, tag FROM notes") == [("a", "old")]
                assert await store.fetch("SELECT id FROM seen") == [("a",)]
                recorded = await store.fetch("SELECT number, name FROM everthink_schema ORDER BY number")
                assert recorded == [(1, "notes"), (2, "tags"), (3, "seen")]
                assert await store.fetch("SELECT 1 FROM everthink_schema WHERE applied_at < 1700000000000") == []

    async def test_a_database_of_a_newer_release_is_refused(self) -> None:
        self.needs_kept_data()
        later = [Migration(number, f"step {number}", ()) for number in range(2, 8)]
        async with self.opened([*SCHEMA, *later]) as store:
            await store.apply([put("a")])
        with pytest.raises(StoreTooNew, match=r"number 7.* up to 1"):
            await self.open(SCHEMA)
        async with self.opened([*SCHEMA, *later]) as store:
            assert await notes(store) == {"a": 0}

    async def test_a_migration_that_fails_changes_nothing(self) -> None:
        wrong = Migration(2, "wrong", ("CREATE TABLE good (id TEXT)", "CREATE TABLE notes (id TEXT)"))
        with pytest.raises(StoreError, match=r"step 2 \(wrong\).*CREATE TABLE notes"):
            await self.open([*SCHEMA, wrong])
        async with self.opened([*SCHEMA, Migration(2, "right", ("CREATE TABLE good (id TEXT)",))]) as store:
            assert await store.fetch("SELECT id FROM good") == []

    @pytest.mark.parametrize("numbers", [(2,), (1, 3), (2, 1), (1, 1)])
    async def test_migrations_are_numbered_without_gaps(self, numbers: Sequence[int]) -> None:
        with pytest.raises(StoreError, match="without gaps"):
            await self.open([Migration(number, "x", ()) for number in numbers])
