"""Whatever is done to a conversation with summaries, the view is what the rows and the rules say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everthink.messages import UNSET, Message
from everthink.session.overlay import applied
from everthink.session.session import Session
from everthink.session.summary import Compaction
from everthink.store.port import AgentStore
from tests.support.conversations import unhurried
from tests.support.memory import ids, said

from .test_tree_properties import on_a_real_file

pytestmark = pytest.mark.slow  # by nature: hundreds of cases each

IDS = [f"m{n}" for n in range(9)]
some_id = st.sampled_from(IDS)
places = st.integers(0, 8)
operations = st.one_of(
    st.tuples(st.just("append"), some_id, st.just(UNSET) | st.none() | some_id),
    st.tuples(st.just("append"), some_id, st.just(UNSET)),
    st.tuples(st.just("cover"), some_id, some_id),
    st.tuples(st.just("compact"), places, places),
    st.tuples(st.just("under what is shown"), some_id, places),
    st.tuples(st.just("select"), some_id),
    st.tuples(st.just("update"), some_id),
    st.tuples(st.just("delete"), st.lists(some_id, max_size=2)),
    st.tuples(st.just("all"), st.lists(some_id, max_size=4, unique=True)),
    st.sampled_from([("clear",), ("restart",)]),
)


def opened(store: Any) -> Session:
    return Session(AgentStore(store, "Assistant/room"), now=lambda: 7)


async def rows_of(store: Any) -> dict[str, tuple[str | None, int]]:
    """Each row: its parent and its number."""
    found = await store.fetch("SELECT id, parent, seq FROM messages")
    return {id: (parent, seq) for id, parent, seq in found}


def path_to(rows: dict[str, tuple[str | None, int]], leaf: str | None) -> list[str]:
    path: list[str] = []
    while leaf is not None:
        path.insert(0, leaf)
        leaf = rows[leaf][0]  # a parent that is not there would fail here
    return path


async def do(session: Session, operation: Any, number: int) -> None:
    match operation:
        case ("append", id, parent):
            await session.append_message(said(id, f"{id} {number}"), parent)
        case ("cover", first, last):
            await session.add_compaction(f"summary {number}", first, last)
        case ("compact", first, last):
            shown = await session.get_history()
            if first < len(shown) and last < len(shown):
                answer = Compaction(shown[first].id, shown[last].id, f"summary {number}")
                done = await session.on_compaction(lambda messages, context: answer).compact()
                assert (done is not None) == (first <= last)
        case ("under what is shown", id, place):
            if place < len(session.path):
                await session.append_message(said(id, f"{id} {number}"), session.path[place].id)
        case ("select", id):
            await session.select_leaf(id)
        case ("update", id):
            await session.update_message(said(id, f"{id} {number}"))
        case ("delete", gone):
            await session.delete_messages(gone)
        case ("all", several):
            given = [said(id, f"{id} {number}") for id in several]
            await session.note_stored_ids(given)
            await session.write(session.plan_append(given))
        case _:
            await session.clear_messages()


async def check(session: Session, store: Any) -> None:
    """Memory is what the plain rules make of the rows."""
    rows = await rows_of(store)
    tip = max(rows, key=lambda id: rows[id][1], default=None)
    raw = path_to(rows, tip)
    stored = {id: message for id in rows if (message := await session.get_message(id))}
    overlays = await session.get_compactions()
    shown = applied([stored[id] for id in raw], overlays)
    assert list(session.path) == await session.get_history() == shown
    assert session.tip == tip
    assert await session.get_path_length() == len(raw)
    assert ids(await session.get_stored_path()) == raw
    assert session.is_partial or all(message.id in stored for message in shown)
    # Nothing is shown twice, and what is not shown is behind a summary.
    assert len({message.id for message in shown}) == len(shown)
    for leaf in rows:
        path = [stored[id] for id in path_to(rows, leaf)]
        assert await session.get_history(leaf) == applied(path, overlays)
    await check_the_end(session, [stored[id] for id in raw])


async def check_the_end(session: Session, raw: Sequence[Message]) -> None:
    """A read with a budget is an end of the path."""
    overlays = await session.get_compactions()
    total = sum(row.bytes for row in await session.get_history_row_stats())
    for budget in (0, total // 3, total - 1, total):
        recent = await session.get_recent_history(budget, 2)
        ends = [applied(raw[start:], overlays) for start in range(len(raw) + 1)]
        assert recent.messages in ends
        assert recent.total_content_bytes == total
        assert recent.truncated or recent.messages == ends[0]


@settings(unhurried, max_examples=70)
@given(st.lists(operations, max_size=22))
def test_the_path_in_memory_is_the_rows_with_the_overlays_applied(done: list[Any]) -> None:
    async def story(store: Any) -> None:
        session = opened(store)
        await session.load()
        for number, operation in enumerate(done):
            if operation == ("restart",):
                session = opened(store)
                await session.load()
            else:
                await do(session, operation, number)
            await check(session, store)
        fresh = opened(store)
        await fresh.load()
        assert list(fresh.path) == list(session.path)
        # what is said next stands behind what is shown
        before = list(session.path)
        await session.append_message(said("next"))
        assert list(session.path) == [*before, said("next")]

    on_a_real_file(story)


@settings(unhurried, max_examples=40)
@given(st.lists(operations, max_size=14), st.integers(1, 700))
def test_a_window_is_the_end_of_what_would_be_shown_without_one(done: list[Any], budget: int) -> None:
    async def story(store: Any) -> None:
        whole = opened(store)
        await whole.load()
        for number, operation in enumerate(done):
            if operation != ("restart",):
                await do(whole, operation, number)
        window = opened(store)
        window.limit_hydration(budget)
        await window.load()
        shown = list(whole.path)
        assert list(window.path) == shown[len(shown) - len(window.path) :]
        assert len(window.path) >= min(4, len(shown))
        assert await window.get_history() == shown
        await window.append_message(said("next"))
        assert await window.get_history() == [*shown, said("next")]

    on_a_real_file(story)


@settings(unhurried, max_examples=40)
@given(st.lists(operations, max_size=16))
def test_every_word_that_was_said_is_found_and_nobody_elses(done: list[Any]) -> None:
    async def story(store: Any) -> None:
        session = opened(store)
        await session.load()
        strangers = [
            Session(AgentStore(store, "Assistant/room"), now=lambda: 7, id="other"),
            Session(AgentStore(store, "Assistant/room2"), now=lambda: 7),
        ]
        for stranger in strangers:
            await stranger.load()
            for id in IDS:
                await stranger.append_message(said(id, f"{id} secret"))
        for number, operation in enumerate(done):
            if operation != ("restart",):
                await do(session, operation, number)
        for id in IDS:
            row = await session.get_message(id)
            hits = [hit.id for hit in await session.search(row.text if row else id)]
            assert hits == ([id] if row else [])
        assert await session.search("secret") == []
        assert await session.search("summary") == []
        for stranger in strangers:
            assert {hit.id for hit in await stranger.search("secret")} == set(IDS)

    on_a_real_file(story)
