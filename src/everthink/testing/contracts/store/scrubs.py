"""Scrubbing: what was deleted is gone, what is stored is as it was."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio

import pytest

from ....errors import StoreClosed
from ....store.port import Migration, Search, Statement, Store, TextIndex
from .case import SCHEMA, StoreCase, notes, put

__all__ = ["ScrubContract"]

TEXTS = (
    Migration(
        1,
        "texts",
        (
            "CREATE TABLE texts (agent TEXT NOT NULL, id TEXT NOT NULL, body TEXT, PRIMARY KEY (agent, id))",
            TextIndex("texts", "body"),
        ),
    ),
)
HURRY, PATIENT = 0.0, 60.0


def said(id: str, body: str) -> Statement:
    """Keep a text."""
    return Statement("INSERT INTO texts (agent, id, body) VALUES ('a', ?, ?)", (id, body))


async def found(store: Store, *words: str) -> set[str]:
    """Which texts hold the words."""
    return {row[0] for row in await store.search(Search("texts", ("id",), words, limit=1000), agent="a")}


class ScrubContract(StoreCase):
    """What `scrub` promises."""

    @pytest.mark.parametrize("patience", [HURRY, PATIENT])
    async def test_scrubbing_changes_nothing_that_is_stored(self, patience: float) -> None:
        async with self.opened(TEXTS) as store:
            for number in range(300):
                await store.apply([said(f"{number}", f"word{number} common")])
            await store.apply([Statement("DELETE FROM texts WHERE id LIKE '%7'")])
            await store.scrub(patience=patience)
            assert await store.fetch("SELECT COUNT(*) FROM texts") == [(270,)]
            assert await found(store, "word8", "common") == {"8"}
            assert await found(store, "word7") == set()
            assert len(await found(store, "common")) == 270
            await store.apply([said("new", "word7 again")])
            assert await found(store, "word7") == {"new"}

    async def test_commits_go_on_while_it_scrubs(self) -> None:
        async with self.opened() as store:
            scrubs = [asyncio.ensure_future(store.scrub(patience=patience)) for patience in (0, 60, 0)]
            await asyncio.gather(*(store.apply([put(f"{number}")]) for number in range(500)))
            await asyncio.gather(*scrubs)
            assert len(await notes(store)) == 500

    async def test_scrubbing_with_patience_says_that_it_is_done(self) -> None:
        async with self.opened() as store:
            assert await store.scrub(patience=PATIENT)
            assert await store.scrub(patience=PATIENT)

    async def test_a_closed_store_does_not_scrub(self) -> None:
        store = await self.open(SCHEMA)
        under_way = asyncio.ensure_future(store.scrub())
        await asyncio.sleep(0)
        await store.close()
        assert await under_way in (True, False)
        with pytest.raises(StoreClosed, match="closed"):
            await store.scrub()
