"""Overlays: a summary shown in place of messages that stay where they are."""

from __future__ import annotations

import asyncio

import pytest

from everthink.clock import EPOCH, moment_of
from everthink.messages import Message
from everthink.session.overlay import Overlay, applied
from everthink.session.session import Session
from everthink.store.port import Statement
from tests.support.memory import between, fill, ids, said, session_on, texts

from .conftest import OpenSession

pytestmark = pytest.mark.anyio


async def check_as_after_a_restart(session: Session, open_session: OpenSession) -> None:
    fresh = await open_session(id=session.id)
    assert list(session.path) == list(fresh.path)
    assert session.tip == fresh.tip


@pytest.mark.memory_case(50, 51, 174)
async def test_an_overlay_stands_for_its_range_and_the_messages_stay(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, *"abcde")
    made = await session.add_compaction("b to d in short", "b", "d")
    assert made is not None
    shown = Message(f"compaction_{made.id}", "assistant", [{"type": "text", "text": "b to d in short"}])
    assert list(session.path) == await session.get_history() == [said("a"), shown, said("e")]
    assert await session.get_history("e") == [said("a"), shown, said("e")]
    await check_as_after_a_restart(session, open_session)

    # and nothing is gone
    assert await session.get_message("c") == said("c")
    assert await session.get_path_length() == 5
    assert ids(await session.get_stored_path()) == list("abcde")

    # and it is on record
    fresh = await open_session()
    assert await fresh.get_compactions() == [made]
    assert (made.from_message_id, made.to_message_id, made.summary) == ("b", "d", "b to d in short")
    assert (made.reason, made.tokens_before) == ("asked", 0)


@pytest.mark.memory_case(52)
async def test_of_overlays_with_one_beginning_the_later_and_longer_is_shown(
    open_session: OpenSession,
) -> None:
    session = await open_session()
    await fill(session, *"abcdef")
    await session.add_compaction("first", "b", "c")
    await session.add_compaction("second", "b", "d")
    assert texts(session.path) == ["a", "second", "e", "f"]
    assert [one.summary for one in await session.get_compactions()] == ["first", "second"]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.memory_case(53)
async def test_overlays_of_one_moment_are_in_the_order_they_were_stored(open_session: OpenSession) -> None:
    # Given a clock that stands still
    store = (await open_session())._store.database
    session = session_on(store)
    await session.load()
    await fill(session, *"abc")
    for n in range(12):
        await session.add_compaction(f"summary {n}", "a", "b")
    made = await session.get_compactions()
    assert [one.summary for one in made] == [f"summary {n}" for n in range(12)]
    assert {one.created_at for one in made} == {moment_of(1_000)}
    assert len({one.id for one in made}) == 12
    assert texts(session.path) == ["summary 11", "c"]
    await check_as_after_a_restart(session, open_session)


async def test_overlays_made_at_the_same_time_are_all_kept(open_session: OpenSession) -> None:
    store = (await open_session())._store.database
    session = session_on(store)
    await session.load()
    await fill(session, *"abcdefgh")
    made = await asyncio.gather(
        *(session.add_compaction(f"to {last}", "b", last) for last in "bcdef"),
        session.add_compaction("all", "a", "g"),
    )
    assert None not in made
    assert len({one.seq for one in made if one}) == 6
    assert texts(session.path) == ["all", "h"]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.memory_case(54)
async def test_an_overlay_of_one_branch_is_not_seen_on_another(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, *"abcd")
    await fill(session, "x", "y", "z", parent="b")
    await session.add_compaction("c and d", "c", "d")
    await session.add_compaction("b to d", "b", "d")
    assert ids(session.path) == list("abxyz")
    assert texts(await session.get_history("d")) == ["a", "b to d"]

    # While what is before the fork is seen on both
    await session.add_compaction("the beginning", "a", "b")
    assert texts(session.path) == ["the beginning", "x", "y", "z"]
    assert texts(await session.get_history("d")) == ["a", "b to d"]
    await session.select_leaf("d")
    assert texts(session.path) == ["a", "b to d"]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.memory_case(56)
async def test_overlays_belong_to_one_session_of_one_agent(open_session: OpenSession) -> None:
    session = await open_session()
    others = [await open_session(id="other"), await open_session("Assistant/elsewhere")]
    for one in (session, *others):
        await fill(one, *"abc")
    await session.add_compaction("in short", "a", "b")
    assert ids(session.path) == ["*", "c"]
    for one in others:
        await one.load()
        assert (ids(one.path), await one.get_compactions()) == (["a", "b", "c"], [])
        await one.clear_messages()
    assert len(await session.get_compactions()) == 1


# --- which one counts


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (["bc", "de"], ["a", "bc", "de", "f"]),
        (["de", "bc"], ["a", "bc", "de", "f"]),
        (["be", "cd"], ["a", "be", "f"]),
        (["cd", "be"], ["a", "be", "f"]),
        (["bd", "ce"], ["a", "b", "ce", "f"]),
        (["ce", "bd"], ["a", "b", "ce", "f"]),
        (["bd", "cd"], ["a", "bd", "e", "f"]),
        (["cd", "bd"], ["a", "bd", "e", "f"]),
        (["bd", "bc"], ["a", "bd", "e", "f"]),
        (["aa", "ff"], ["aa", "b", "c", "d", "e", "ff"]),
        (["af"], ["af"]),
    ],
)
async def test_the_one_that_reaches_furthest_wins(
    open_session: OpenSession, ranges: list[str], expected: list[str]
) -> None:
    session = await open_session()
    await fill(session, *"abcdef")
    for first, last in ranges:
        assert await session.add_compaction(first + last, first, last)
    assert texts(session.path) == expected
    await check_as_after_a_restart(session, open_session)


async def test_the_conversation_goes_on_behind_a_summary(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, *"abc")
    await session.add_compaction("all of it", "a", "c")
    assert (ids(session.path), session.tip) == (["*"], "c")
    await fill(session, "d")
    assert ids(session.path) == ["*", "d"]
    assert ids(await session.get_branches("c")) == ["d"]
    await check_as_after_a_restart(session, open_session)


async def test_what_is_covered_is_still_known(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, *"abcd")
    await session.add_compaction("in short", "a", "c")
    for id in "abc":
        assert not await session.append_message(said(id, "again"))
        assert await session.has(id)
        assert session.find(id) is None
        assert await session.get_message(id) == said(id)
    assert ids(session.path) == ["*", "d"]
    assert await session.known(["a", "b", "c", "d", "e"]) == set("abcd")
    await check_as_after_a_restart(session, open_session)


async def test_an_update_of_what_is_covered_changes_the_row_and_not_the_view(
    open_session: OpenSession,
) -> None:
    session = await open_session()
    await fill(session, *"abcd")
    await session.add_compaction("in short", "a", "c")
    for id in "bc":
        assert await session.update_message(said(id, "changed"))
    assert texts(session.path) == ["in short", "d"]
    assert texts(await session.get_history("c")) == ["in short"]
    assert texts(await session.get_history("b")) == ["a", "changed"]
    await check_as_after_a_restart(session, open_session)


# --- ranges that are none


@pytest.mark.parametrize(
    ("first", "last"),
    [("c", "b"), ("x", "c"), ("b", "x"), ("nobody", "b"), ("b", "nobody"), ("elsewhere", "c"), ("d", "a")],
)
async def test_what_is_no_range_of_one_path_is_refused(
    open_session: OpenSession, first: str, last: str
) -> None:
    session, other = await open_session(), await open_session(id="other")
    await fill(other, "elsewhere")
    await fill(session, *"abcd")
    await fill(session, "x", parent="a")
    await session.select_leaf("d")
    assert await session.add_compaction("in short", first, last) is None
    assert await session.get_compactions() == []
    assert ids(session.path) == list("abcd")
    await check_as_after_a_restart(session, open_session)


async def test_a_range_may_be_named_by_summaries_in_view(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, *"abcdefg")
    first = await session.add_compaction("first", "b", "c")
    second = await session.add_compaction("second", "e", "f")
    assert first is not None
    assert second is not None
    made = await session.add_compaction("both", first.message_id, second.message_id)
    assert made is not None
    assert (made.from_message_id, made.to_message_id) == ("b", "f")
    assert texts(session.path) == ["a", "both", "g"]


async def test_a_range_that_turns_back_hangs_nobody(open_session: OpenSession) -> None:
    # Given an overlay that a broken release stored the wrong way round
    session = await open_session()
    await fill(session, *"abcd")
    await session.add_compaction("in short", "b", "c")
    turned = "UPDATE compactions SET from_message = 'c', to_message = 'b'"
    await session._store.apply([Statement(turned)])

    # Then it stands for nothing
    fresh = await open_session()
    assert ids(fresh.path) == list("abcd")
    assert ids(await fresh.get_history("b")) == ["a", "b"]


# --- the id of a summary


async def test_the_id_of_a_summary_is_a_parent_like_any_other(open_session: OpenSession) -> None:
    # Given a conversation of which only a summary is shown
    session = await open_session()
    await fill(session, *"abc")
    made = await session.add_compaction("in short", "a", "c")
    assert made is not None

    # When somebody hangs a message on what they see
    assert await session.append_message(said("d"), made.message_id)

    # Then it hangs on the last message that is covered
    assert ids(session.path) == ["*", "d"]
    assert ids(await session.get_branches("c")) == ["d"]
    assert texts(await session.get_history(made.message_id)) == ["in short"]
    await check_as_after_a_restart(session, open_session)


async def test_a_summary_is_never_stored_as_a_message(open_session: OpenSession) -> None:
    session = await open_session()
    await fill(session, *"abc")
    await session.add_compaction("in short", "a", "b")
    summary = session.path[0]
    assert not await session.append_message(summary)
    assert not await session.append_message(Message("compaction_made-up", "assistant", summary.parts))
    assert not await session.update_message(Message(summary.id, "assistant", said("x", "forged").parts))
    await session.write(session.plan_append([*session.path, said("d")]))
    assert ids(session.path) == ["*", "c", "d"]
    assert texts(session.path)[0] == "in short"
    rows = await session._store.fetch("SELECT id FROM messages WHERE id LIKE 'compaction%'")
    assert rows == []
    await check_as_after_a_restart(session, open_session)


# --- deleting


@pytest.mark.memory_case(617)
async def test_trap_after_a_message_inside_the_path_was_deleted_the_rest_can_be_read(
    open_session: OpenSession,
) -> None:
    session = await open_session()
    await fill(session, *"abcdef")
    await session.add_compaction("in short", "b", "d")
    await session.delete_messages(["c", "e"])
    assert ids(session.path) == ["a", "*", "f"]
    assert ids(await session.get_stored_path()) == ["a", "b", "d", "f"]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.parametrize("end", ["b", "d"])
async def test_an_overlay_that_lost_an_end_shows_what_is_left(open_session: OpenSession, end: str) -> None:
    session = await open_session()
    await fill(session, *"abcde")
    await session.add_compaction("in short", "b", "d")
    await session.delete_messages([end])
    assert ids(session.path) == [id for id in "abcde" if id != end]
    assert await session.get_compactions() == []

    # And a message that takes its id later is not hidden by it
    assert await session.append_message(said(end, "again"))
    assert texts(session.path)[-1] == "again"
    assert ids(session.path) == [*(id for id in "abcde" if id != end), end]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.memory_case(9, 18)
async def test_clearing_leaves_no_message_and_no_overlay(open_session: OpenSession) -> None:
    session, other = await open_session(), await open_session(id="other")
    for one in (session, other):
        await fill(one, *"abc")
        await one.add_compaction("in short", "a", "b")
    await session.clear_messages()
    assert (list(session.path), await session.get_compactions(), await session.get_path_length()) == (
        [],
        [],
        0,
    )
    assert not session.is_partial
    assert ids(other.path) == ["*", "c"]
    # the same ids may come again and stand for themselves
    await fill(session, *"abc")
    assert ids(session.path) == ["a", "b", "c"]
    await check_as_after_a_restart(session, open_session)


# --- the function behind it


def test_applied_shows_overlays_that_lie_inside_and_leaves_the_others() -> None:
    def overlay(begins: str, ends: str, seq: int, first: int) -> Overlay:
        return Overlay(f"o{seq}", begins, ends, begins + ends, "asked", 0, EPOCH, seq, first)

    path = [said(id) for id in "abcdef"]
    overlays = [overlay("b", "c", 1, 2), overlay("z", "e", 2, 9), overlay("f", "d", 3, 6)]
    assert texts(applied(path, overlays)) == ["a", "bc", "d", "e", "f"]
    assert texts(applied(path[2:], overlays)) == ["c", "d", "e", "f"]
    assert applied(path, []) == path
    assert applied([], overlays) == []


async def test_compacting_over_a_given_range_uses_the_same_rules(open_session: OpenSession) -> None:
    session = (await open_session()).on_compaction(between("b", "d"))
    await fill(session, *"abcde")
    assert await session.compact()
    assert ids(session.path) == ["a", "*", "e"]
