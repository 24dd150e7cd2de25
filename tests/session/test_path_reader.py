"""Reading a path by its bytes: in portions, within a budget, past rows that cannot be read."""

from __future__ import annotations

import asyncio
import random

import pytest

from everthink.messages import Message, stored_content
from everthink.session import queries
from everthink.session.path_reader import AT_ONCE, PathReader
from everthink.session.session import Session
from everthink.store.port import Statement
from tests.support.memory import fill, ids, said, texts

from .conftest import OpenSession

pytestmark = pytest.mark.anyio


async def put_all(session: Session, messages: list[Message]) -> None:
    """Store one path quickly, and read it."""
    rows = [
        queries.appended(session.id, one, seq=n + 1, parent=above, now=0)
        for n, (one, above) in enumerate(zip(messages, [None, *ids(messages)], strict=False))
    ]
    await session._store.apply(rows)
    await session.load()


async def spoil(session: Session, id: str) -> None:
    """Overwrite a row with something that is no message."""
    sql = "UPDATE messages SET content = ? WHERE id = ?"
    await session._store.apply([Statement(sql, ("{ no message", id))])


def weight(*messages: Message) -> int:
    return sum(len(stored_content(message).encode()) for message in messages)


@pytest.mark.memory_case(19, 20, 21)
@pytest.mark.parametrize("count", [50, 51, 120, 499, 500, 501, 1201])
async def test_a_history_of_any_length_is_read_whole_and_in_order(
    open_session: OpenSession, count: int
) -> None:
    session = await open_session()
    names = [f"m{n}" for n in range(count)]
    await put_all(session, [said(name) for name in names])
    assert ids(session.path) == names
    assert ids(await session.get_history(names[-1])) == names
    assert await session.get_path_length() == count


@pytest.mark.memory_case(22)
async def test_a_long_branch_follows_the_leaf_that_was_asked_for(open_session: OpenSession) -> None:
    # Given two branches below one root whose rows lie in turns, each longer than a portion
    session = await open_session()
    await fill(session, "root")
    rows: list[Statement] = []
    above = {"x": "root", "y": "root"}
    for n in range(600):
        branch = "xy"[n % 2]
        message = said(f"{branch}{n}")
        rows.append(queries.appended("", message, seq=n + 2, parent=above[branch], now=0))
        above[branch] = message.id
    await session._store.apply(rows)
    await session.load()

    # Then each leaf has its own path, also the one that is not the newest
    assert ids(session.path) == ["root", *(f"y{n}" for n in range(1, 600, 2))]
    assert ids(await session.get_history("x598")) == ["root", *(f"x{n}" for n in range(0, 600, 2))]
    assert await session.get_path_length("x298") == 151


@pytest.mark.memory_case(23)
async def test_an_overlay_over_many_portions_is_applied(open_session: OpenSession) -> None:
    session = await open_session()
    names = [f"m{n}" for n in range(1300)]
    await put_all(session, [said(name) for name in names])
    assert await session.add_compaction("in short", "m2", "m1290")
    fresh = await open_session()
    for path in (session.path, fresh.path, await fresh.get_history("m1299")):
        assert ids(path) == ["m0", "m1", "*", *names[1291:]]
    assert await fresh.get_path_length() == 1300


@pytest.mark.memory_case(24)
async def test_a_row_that_cannot_be_read_is_passed_over(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, "a", "b", "c")
    await spoil(session, "b")
    fresh = await open_session()
    assert ids(fresh.path) == ["a", "c"]
    assert await fresh.get_message("b") is None
    assert await fresh.get_path_length() == 3


@pytest.mark.memory_case(25, 26)
async def test_large_messages_come_back_as_they_were(open_session: OpenSession) -> None:
    # Given rows that are together more than one query reads, of text that does not repeat
    dice = random.Random(5)
    letters = "".join(dice.choices("abcdefghij äöü€😀", k=100_000))
    large = [said(f"m{n}", letters * 11) for n in range(6)] + [said("small", letters * 2)]
    assert (weight(large[0]), weight(large[6])) > (1_500_000, 200_000)
    session = await open_session()
    for message in large:
        await session.append_message(message)

    # Then they are the same in memory, after a restart, and one by one
    fresh = await open_session()
    assert list(fresh.path) == list(session.path) == large
    assert await fresh.get_history("m3") == large[:4]
    assert await fresh.get_message("m5") == large[5]


@pytest.mark.memory_case(27)
async def test_the_latest_leaf_is_a_whole_message(open_session: OpenSession) -> None:
    await fill(await open_session(), "a", "b")
    fresh = await open_session()
    assert await fresh.get_latest_leaf() == said("b")


# --- within a budget


@pytest.mark.memory_case(28)
async def test_the_end_of_an_empty_session_is_nothing_and_nothing_is_cut(open_session: OpenSession) -> None:
    recent = await (await open_session()).get_recent_history(100)
    assert (recent.messages, recent.truncated, recent.total_content_bytes) == ([], False, 0)


@pytest.mark.memory_case(29, 30, 31, 32, 36, 37)
@pytest.mark.parametrize(
    ("budget", "least", "expected"),
    [
        (1_000_000, 1, "abcdef"),
        ("all", 1, "abcdef"),
        ("all but one byte", 1, "bcdef"),
        ("three", 1, "def"),
        ("three", 5, "bcdef"),
        ("three", 6, "abcdef"),
        ("three", 100, "abcdef"),
        (1, 1, "f"),
        (0, 0, "f"),
        (-5, -5, "f"),
        (0, 4, "cdef"),
    ],
)
async def test_the_end_of_a_path_is_what_fits_and_never_less_than_its_leaf(
    open_session: OpenSession, budget: int | str, least: int, expected: str
) -> None:
    session = await open_session()
    messages = [said(id, id * 50) for id in "abcdef"]
    for message in messages:
        await session.append_message(message)
    total = weight(*messages)
    sizes = {"all": total, "all but one byte": total - 1, "three": weight(*messages[3:])}
    recent = await session.get_recent_history(sizes.get(str(budget), 0) or int(budget), least)
    assert ids(recent.messages) == list(expected)
    assert recent.truncated == (expected != "abcdef")
    assert recent.total_content_bytes == total
    assert total == sum(row.bytes for row in await session.get_history_row_stats())


@pytest.mark.memory_case(33, 34)
async def test_rows_have_their_role_and_their_size_in_bytes(open_session: OpenSession) -> None:
    session = await open_session()
    given = [said("a"), said("b", "é€😀", "assistant"), said("c", "x" * 5000, "system")]
    for message in given:
        await session.append_message(message)
    await session.append_message(said("elsewhere"), "a")
    stats = await session.get_history_row_stats("c")
    assert [(row.id, row.role, row.bytes) for row in stats] == [
        (message.id, message.role, weight(message)) for message in given
    ]
    assert [row.id for row in await session.get_history_row_stats()] == ["a", "elsewhere"]
    # and they follow an update
    await session.update_message(said("a", "longer than it was"))
    assert (await session.get_history_row_stats())[0].bytes == weight(said("a", "longer than it was"))


async def test_rows_of_an_older_release_have_no_size_and_are_measured(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, "a", "b")
    await session._store.apply([Statement("UPDATE messages SET bytes = NULL")])
    fresh = await open_session()
    assert ids(fresh.path) == ["a", "b"]
    stats = await fresh.get_history_row_stats()
    assert sum(row.bytes for row in stats) == weight(said("a"), said("b"))


@pytest.mark.memory_case(35)
@pytest.mark.parametrize(
    ("least", "expected"),
    [(2, ["e", "f"]), (3, ["d", "e", "f"]), (4, ["c", "d", "e", "f"]), (5, ["*", "e", "f"])],
)
async def test_an_overlay_counts_when_all_of_it_lies_inside_the_window(
    open_session: OpenSession, least: int, expected: list[str]
) -> None:
    session = await open_session()
    await fill(session, *"abcdef")
    await session.add_compaction("in short", "b", "d")
    recent = await session.get_recent_history(0, least)
    assert ids(recent.messages) == expected
    assert recent.truncated


@pytest.mark.memory_case(38)
async def test_a_row_in_the_window_that_cannot_be_read_is_not_shown_and_still_weighs(
    open_session: OpenSession,
) -> None:
    session = await open_session()
    await fill(session, "a", "b", "c")
    before = (await session.get_recent_history(10_000)).total_content_bytes
    await spoil(session, "b")
    recent = await session.get_recent_history(10_000)
    assert (ids(recent.messages), recent.truncated) == (["a", "c"], False)
    assert recent.total_content_bytes == before
    # and takes its room: what is older than it does not move up
    assert ids((await session.get_recent_history(0, 2)).messages) == ["c"]


async def test_what_is_read_along_between_two_branches_stays_within_a_portion(
    open_session: OpenSession,
) -> None:
    # Given a small path whose rows lie between heavy rows of another branch
    session = await open_session()
    await fill(session, "root")
    rows: list[Statement] = []
    small = heavy = "root"
    for n in range(5):
        for id, text, parent in [(f"h{n}", "h" * 1_500_000, heavy), (f"s{n}", "", small)]:
            rows.append(queries.appended("", said(id, text), seq=len(rows) + 2, parent=parent, now=0))
        heavy, small = f"h{n}", f"s{n}"
    await session._store.apply(rows)

    # Then the path is read whole
    fresh = await open_session()
    assert texts(fresh.path) == ["root", "s0", "s1", "s2", "s3", "s4"]
    assert [len(text) for text in texts(await fresh.get_history("h4"))] == [4, *[1_500_000] * 5]


async def test_others_have_their_turn_while_a_long_path_is_read(open_session: OpenSession) -> None:
    # Given a path of a megabyte, and somebody who counts the turns of the loop
    session = await open_session()
    await put_all(session, [said(f"m{n}", "x" * 10_000) for n in range(100)])
    loop, turn = asyncio.get_running_loop(), 0

    def count() -> None:
        nonlocal turn, handle
        turn += 1
        handle = loop.call_soon(count)

    # When what the rows hold is read
    read: dict[int, int] = {}
    parsed = session._reader.parsed

    def counted(id: str, role: str, content: str, at: int) -> Message | None:
        read[turn] = read.get(turn, 0) + len(content)
        return parsed(id, role, content, at)

    reader = type("Counting", (PathReader,), {"parsed": staticmethod(counted)})
    shelf = reader(session._store, session.id)
    handle = loop.call_soon(count)
    found = await shelf.read(await shelf.walk())
    handle.cancel()

    # Then it is read bit by bit
    assert len(found) == 100
    assert max(read.values()) <= AT_ONCE
