"""From open to close: reading what was written, closing, opening again, moving the schema on."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ....errors import StoreClosed, StoreError, StoreReadOnly, StoreTooNew
from ....store.port import Migration, Statement
from .case import BUMP, LOG, PUT, SCHEMA, StoreCase, notes, put

__all__ = ["LifetimeContract"]


class LifetimeContract(StoreCase):
    """What `open`, `fetch` and `close` promise."""

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

    async def test_a_table_may_ask_to_be_clustered(self) -> None:
        table = "CREATE TABLE small (agent TEXT, seq BIGINT, PRIMARY KEY (agent, seq)) /* clustered */"
        async with self.opened([Migration(1, "small", (table,))]) as store:
            sql = "INSERT INTO small (agent, seq) VALUES (?, ?) RETURNING seq"
            answers = await asyncio.gather(*(store.apply([Statement(sql, ("a", i))]) for i in range(3)))
            assert answers == [[[(0,)]], [[(1,)]], [[(2,)]]]

    async def test_migrations_run_once_and_in_order(self) -> None:
        self.needs_kept_data()
        second = Migration(
            2, "tags", ("ALTER TABLE notes ADD COLUMN tag TEXT", "UPDATE notes SET tag = 'old'")
        )
        third = Migration(3, "seen", ("CREATE TABLE seen (id TEXT)", "INSERT INTO seen SELECT id FROM notes"))
        async with self.opened() as store:
            await store.apply([put("a")])
        for _ in range(2):
            async with self.opened([*SCHEMA, second, third]) as store:
                assert await store.fetch("SELECT id, tag FROM notes") == [("a", "old")]
                assert await store.fetch("SELECT id FROM seen") == [("a",)]
                recorded = await store.fetch("SELECT number, name FROM everthink_schema ORDER BY number")
                assert recorded == [(1, "notes"), (2, "tags"), (3, "seen")]
                assert (
                    await store.fetch("SELECT 1 FROM everthink_schema WHERE applied_at < 1700000000000") == []
                )

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
