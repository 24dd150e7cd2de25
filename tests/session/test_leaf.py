"""The tip of a conversation is known without searching: the newest row is it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from everthink.errors import StoreError
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.testing import WatchedStore
from tests.support.memory import fill, ids, said, session_on

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(store_url: str, anyio_backend: str) -> AsyncIterator[WatchedStore]:
    store = WatchedStore(await open_store(store_url, MIGRATIONS))
    yield store
    await store.close()


def look_at_messages(store: WatchedStore) -> list[str]:
    """The queries since the last time that looked at the rows of a session, whatever they wanted."""
    looked = [sql for sql in store.reads if "FROM messages" in sql]
    store.reads.clear()
    return looked


@pytest.mark.memory_case(40)
async def test_once_warm_neither_the_leaf_nor_an_append_reads_anything(store: WatchedStore) -> None:
    session = session_on(store)
    await session.load()
    store.reads.clear()
    for n in range(20):
        assert await session.append_message(said(f"m{n}"))
        leaf = await session.get_latest_leaf()
        assert leaf == said(f"m{n}")
    assert (store.reads, store.writes) == ([], 20)


@pytest.mark.memory_case(41)
async def test_once_warm_no_read_searches_the_session_for_its_tip(store: WatchedStore) -> None:
    # Given a conversation that fits one portion
    session = session_on(store)
    await session.load()
    await fill(session, *(f"m{n}" for n in range(30)))
    store.reads.clear()

    # Then its history costs nothing
    assert len(await session.get_history()) == 30
    assert store.reads == []

    # And what has to be counted is counted in one look that begins at the end
    await session.get_history_row_stats()
    assert len(look_at_messages(store)) == 1
    await session.get_path_length()
    assert len(look_at_messages(store)) == 1
    await session.get_recent_history(10)
    assert len([sql for sql in store.reads if "ORDER BY seq DESC" in sql]) == 1


async def test_a_look_at_the_end_of_a_long_conversation_does_not_read_its_contents(
    store: WatchedStore,
) -> None:
    session = session_on(store)
    await session.load()
    await fill(session, *(f"m{n}" for n in range(30)))
    store.reads.clear()
    await session.get_history_row_stats()
    assert not any("content," in sql or ", content" in sql for sql in store.reads)


@pytest.mark.memory_case(42)
async def test_an_append_to_another_branch_makes_that_the_tip(store: WatchedStore) -> None:
    session = session_on(store)
    await session.load()
    await fill(session, "a", "b", "c")
    await session.append_message(said("x"), "a")
    await fill(session, "y")
    store.reads.clear()
    assert ids(await session.get_history()) == ["a", "x", "y"]
    assert store.reads == []


@pytest.mark.memory_case(43, 44)
@pytest.mark.parametrize(("gone", "left"), [("c", ["a", "b"]), ("b", ["a", "c"]), ("a", ["b", "c"])])
async def test_after_a_deletion_the_path_is_read_once_and_then_known(
    store: WatchedStore, gone: str, left: list[str]
) -> None:
    session = session_on(store)
    await session.load()
    await fill(session, "a", "b", "c")
    store.reads.clear()
    await session.delete_messages([gone])
    assert len([sql for sql in store.reads if "ORDER BY seq DESC" in sql]) == 1
    store.reads.clear()
    assert ids(session.path) == left
    await fill(session, "d")
    assert ids(await session.get_history()) == [*left, "d"]
    assert store.reads == []


@pytest.mark.memory_case(45)
async def test_after_clearing_there_is_no_leaf_and_nobody_looks_for_one(store: WatchedStore) -> None:
    session = session_on(store)
    await session.load()
    await fill(session, "a", "b")
    store.reads.clear()
    await session.clear_messages()
    assert (session.leaf, session.tip, await session.get_latest_leaf()) == (None, None, None)
    await fill(session, "c")
    assert ids(session.path) == ["c"]
    assert store.reads == []


@pytest.mark.memory_case(46)
async def test_a_child_of_another_writer_is_never_written_over(store: WatchedStore) -> None:
    # Given a session that somebody else, who should not, has written to behind our back
    session, other = session_on(store), session_on(store)
    await session.load()
    await fill(session, "a")
    await other.load()
    await fill(other, "theirs")

    # When we append, then nothing is stored over theirs
    with pytest.raises(StoreError):
        await session.append_message(said("ours"))
    store.reads.clear()

    # And with one search we know the tip again
    await fill(session, "ours")
    assert ids(session.path) == ["a", "theirs", "ours"]
    assert len([sql for sql in store.reads if "ORDER BY seq DESC" in sql]) == 1


@pytest.mark.memory_case(48)
async def test_a_cold_start_is_one_search_and_the_next_append_hangs_on_the_tip(store: WatchedStore) -> None:
    warm = session_on(store)
    await warm.load()
    await fill(warm, "a", "b")
    await warm.append_message(said("x"), "a")
    store.reads.clear()
    cold = session_on(store)
    await cold.load()
    assert len([sql for sql in store.reads if "ORDER BY seq DESC" in sql]) == 1
    await fill(cold, "y")
    assert ids(await cold.get_history()) == ["a", "x", "y"]
    assert len([sql for sql in store.reads if "ORDER BY seq DESC" in sql]) == 1


async def test_opening_a_summarised_conversation_reads_its_end_and_not_what_is_covered(
    store: WatchedStore,
) -> None:
    # Given a long conversation of which only the end is shown
    session = session_on(store)
    await session.load()
    plan = session.plan_append([said(f"m{n}") for n in range(3000)])
    await session.write(plan)
    assert await session.add_compaction("in short", "m1", "m2995")
    store.reads.clear()

    # Then a restart looks at the ends of the range, not at the 3000 rows
    cold = session_on(store)
    await cold.load()
    assert ids(cold.path) == ["m0", "*", "m2996", "m2997", "m2998", "m2999"]
    assert len([sql for sql in store.reads if "ORDER BY seq DESC" in sql]) == 2


@pytest.mark.memory_case(49)
async def test_sessions_stay_apart_when_everything_left_memory(store: WatchedStore) -> None:
    for id in ("", "one", "two"):
        session = session_on(store, id=id)
        await session.load()
        await fill(session, f"a{id}", f"b{id}")
    for id in ("two", "", "one"):
        cold = session_on(store, id=id)
        await cold.load()
        await fill(cold, "c")
        assert ids(await cold.get_history()) == [f"a{id}", f"b{id}", "c"]
