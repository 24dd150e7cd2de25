"""A store that a test can watch: what passed, what waits, what fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from everthink.errors import CommitInDoubt, StoreFull
from everthink.open_store import open_store
from everthink.store.port import Migration, Statement
from everthink.testing import ManualClock, WatchedStore

pytestmark = pytest.mark.anyio

NOTES = (Migration(1, "notes", ("CREATE TABLE notes (agent TEXT NOT NULL, text TEXT NOT NULL)",)),)


def note(text: str) -> Statement:
    return Statement("INSERT INTO notes (agent, text) VALUES ('a', ?)", (text,))


def unnote(text: str) -> Statement:
    return Statement("DELETE FROM notes WHERE text = ?", (text,))


async def texts(store: WatchedStore) -> list[str]:
    return [row[0] for row in await store.fetch("SELECT text FROM notes ORDER BY rowid")]


@pytest.fixture
async def store(anyio_backend: str, clock: ManualClock) -> AsyncIterator[WatchedStore]:
    store = WatchedStore(await open_store(":memory:", NOTES), clock=clock)
    yield store
    store.release()
    await store.until_quiet()
    await store.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_what_passes_is_counted_until_somebody_looks(store: WatchedStore) -> None:
    await store.apply([note("one"), note("three")])
    await texts(store)

    seen = store.take()
    assert (seen.commits, seen.statements, seen.written) == (1, 2, 8)
    assert (seen.fetches, seen.rows, seen.bytes) == (1, 2, 8)
    assert store.take().commits == 0
    assert [len(commit) for commit in store.commits] == [2]
    assert (store.writes, len(store.reads)) == (1, 1)


async def test_commits_at_a_closed_gate_pass_in_their_order_once_it_is_open(store: WatchedStore) -> None:
    # Given two commits at the gate
    store.hold()
    first, second = store.apply([note("one")]), store.apply([note("two")])
    await store.until_waiting()
    assert (await texts(store), first.done()) == ([], False)

    # When it is opened and a third one comes at the same moment
    store.release()
    third = store.apply([note("three")])
    await asyncio.gather(first, second, third)

    # Then nobody has overtaken anybody
    assert await texts(store) == ["one", "two", "three"]


async def test_a_commit_that_is_held_alone_is_passed_by_the_others(store: WatchedStore) -> None:
    store.hold("DELETE")
    await store.apply([note("one")])
    held = store.apply([unnote("one")])
    await store.apply([note("two")])
    await store.until_waiting()
    assert await texts(store) == ["one", "two"]
    store.release()
    await held
    assert await texts(store) == ["two"]


async def test_whoever_waits_for_a_held_commit_may_give_up_and_it_is_still_stored(
    store: WatchedStore,
) -> None:
    store.hold()
    waiting = asyncio.ensure_future(store.apply([note("one")]))
    await store.until_waiting()
    waiting.cancel()
    store.release()
    await store.until_quiet()
    assert await texts(store) == ["one"]


async def test_the_nth_commit_that_matches_fails_and_nothing_of_it_is_written(store: WatchedStore) -> None:
    failure = store.fail(StoreFull("The disk is full."), nth=2, matching="INSERT")
    await store.apply([note("one")])
    await store.apply([unnote("nothing")])
    assert not failure.happened
    with pytest.raises(StoreFull):
        await store.apply([unnote("one"), note("two")])
    await store.apply([note("three")])
    assert failure.happened
    assert await texts(store) == ["one", "three"]
    assert (len(store.commits), store.writes) == (3, 4)


async def test_an_answer_can_be_lost_after_the_commit_was_stored(store: WatchedStore) -> None:
    store.fail(CommitInDoubt("The connection was lost."), stored=True)
    with pytest.raises(CommitInDoubt):
        await store.apply([note("one")])
    assert await texts(store) == ["one"]


async def test_a_rule_refuses_commits_until_another_one_is_given(store: WatchedStore) -> None:
    store.refuse(lambda commit: StoreFull("full") if "two" in commit[0].params else None)
    await store.apply([note("one")])
    with pytest.raises(StoreFull):
        await store.apply([note("two")])
    store.refuse(lambda commit: None)
    await store.apply([note("two")])
    assert await texts(store) == ["one", "two"]


async def test_a_rule_refuses_reads(store: WatchedStore) -> None:
    store.refuse_reads(lambda sql: StoreFull("away"))
    with pytest.raises(StoreFull):
        await texts(store)


@pytest.mark.parametrize(("after", "seen"), [(False, ["one"]), (True, [])])
async def test_a_read_is_held_before_it_asks_or_when_it_has_its_rows(
    store: WatchedStore, after: bool, seen: list[str]
) -> None:
    held = store.hold_read("FROM notes", after=after)
    reading = asyncio.create_task(texts(store))
    await held.reached()
    await store.apply([note("one")])
    assert await texts(store) == ["one"]  # only one read is held
    held.release()
    assert await reading == seen


async def test_a_slow_store_takes_its_time_for_every_commit(store: WatchedStore, clock: ManualClock) -> None:
    store.delay = 5.0
    slow, slower = store.apply([note("one")]), store.apply([note("two")])
    await clock.until_waiting()
    await clock.advance(5)
    await slow
    assert not slower.done()
    await clock.until_waiting()
    await clock.advance(5)
    await slower
    assert await texts(store) == ["one", "two"]


async def test_what_only_one_engine_has_is_found_behind_it(anyio_backend: str) -> None:
    inner = await open_store(":memory:", NOTES)
    watched = WatchedStore(inner)
    assert await watched.scrub() in (True, False)
    with pytest.raises(AttributeError):
        _ = watched.nothing_of_that_name
    await watched.close()
