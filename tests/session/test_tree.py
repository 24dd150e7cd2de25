"""The conversation as a tree: where messages go, which path is shown, what a restart finds."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.errors import UnknownMessage
from everthink.messages import UNSET, Message
from everthink.session import queries
from everthink.session.session import Session
from everthink.store.port import Statement

from .conftest import OpenSession

pytestmark = pytest.mark.anyio


def said(id: str, text: str = "", role: Any = "user") -> Message:
    return Message(id, role, [{"type": "text", "text": text or id}])


def ids(messages: Any) -> list[str]:
    return [message.id for message in messages]


async def grow(session: Session, *ids: str) -> None:
    for id in ids:
        assert await session.append_message(said(id))


async def check_as_after_a_restart(session: Session, open_session: OpenSession) -> None:
    """What is in memory is what a new process would read."""
    fresh = await open_session(id=session.id)
    assert list(session.path) == list(fresh.path)
    assert await session.get_history() == await fresh.get_history()


# --- where a message goes


@pytest.mark.memory_case(1)
async def test_a_new_session_is_empty(open_session: OpenSession) -> None:
    session = await open_session()
    assert (list(session.path), session.leaf) == ([], None)
    assert await session.get_history() == []
    assert await session.get_latest_leaf() is None
    assert await session.get_path_length() == 0
    assert await session.get_message("a") is None
    assert await session.get_branches("a") == []


@pytest.mark.memory_case(2, 4, 12)
async def test_without_a_parent_a_message_goes_below_the_tip(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b", "c")
    assert ids(session.path) == ["a", "b", "c"]
    assert session.leaf == said("c")
    assert ids(await session.get_branches("a")) == ["b"]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.memory_case(11)
async def test_none_as_parent_makes_a_new_root(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b")
    assert await session.append_message(said("r"), None)
    assert ids(session.path) == ["r"]
    await grow(session, "s")
    assert ids(session.path) == ["r", "s"]
    assert ids(await session.get_history("b")) == ["a", "b"]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.memory_case(5, 6, 7)
async def test_a_named_parent_makes_a_branch_that_becomes_the_active_path(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b", "c")
    assert await session.append_message(said("x"), "a")
    assert ids(session.path) == ["a", "x"]
    assert ids(await session.get_branches("a")) == ["b", "x"]
    assert ids(await session.get_history("c")) == ["a", "b", "c"]
    # also below a message that is not on the path in memory
    assert await session.append_message(said("d"), "c")
    assert ids(session.path) == ["a", "b", "c", "d"]
    await check_as_after_a_restart(session, open_session)


async def test_an_unknown_parent_means_a_new_root(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a")
    assert await session.append_message(said("x"), "nobody")
    assert ids(session.path) == ["x"]
    await check_as_after_a_restart(session, open_session)


async def test_unset_none_and_a_name_are_three_different_parents(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b")
    for id, parent, path in [
        ("unset", UNSET, ["a", "b", "unset"]),
        ("none", None, ["none"]),
        ("named", "a", ["a", "named"]),
    ]:
        await session.append_message(said(id), parent)
        assert ids(session.path) == path


@pytest.mark.memory_case(10)
@pytest.mark.case(15)
@pytest.mark.parametrize("parent", [UNSET, None, "a"])
async def test_a_known_id_is_stored_once_and_keeps_its_content_and_place(
    open_session: OpenSession, parent: Any
) -> None:
    session = await open_session()
    await grow(session, "a", "b")
    assert not await session.append_message(said("b", "changed"), parent)
    assert ids(session.path) == ["a", "b"]
    assert await session.get_message("b") == said("b")
    await check_as_after_a_restart(session, open_session)


async def test_a_known_id_of_another_branch_is_stored_once_too(open_session: OpenSession) -> None:
    # Given a message that is not on the path in memory
    session = await open_session()
    await grow(session, "a", "b")
    await session.append_message(said("x"), "a")

    # When it is appended again
    assert not await session.append_message(said("b", "changed"))

    # Then nothing moved, and the next message goes where it would have gone
    assert ids(session.path) == ["a", "x"]
    assert await session.get_message("b") == said("b")
    await grow(session, "y")
    assert ids(session.path) == ["a", "x", "y"]
    await check_as_after_a_restart(session, open_session)


# --- changing and removing


@pytest.mark.memory_case(8)
async def test_an_update_changes_content_and_never_place(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b", "c")
    await session.append_message(said("x"), "a")
    assert await session.update_message(said("a", "changed"))
    assert await session.update_message(said("b", "changed"))
    assert [m.text for m in session.path] == ["changed", "x"]
    assert [m.text for m in await session.get_history("c")] == ["changed", "changed", "c"]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.case(18)
async def test_updating_an_unknown_id_adds_nothing(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a")
    assert not await session.update_message(said("nobody"))
    assert ids(session.path) == ["a"]
    assert await session.get_message("nobody") is None
    await check_as_after_a_restart(session, open_session)


async def test_deleting_the_tip_shows_the_newest_leaf_that_is_left(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b", "c")
    await session.append_message(said("x"), "a")
    await session.delete_messages(["x"])
    assert ids(session.path) == ["a", "b", "c"]
    await session.delete_messages(["c"])
    assert ids(session.path) == ["a", "b"]
    await check_as_after_a_restart(session, open_session)


async def test_deleting_in_the_middle_hangs_what_was_below_under_what_was_above(
    open_session: OpenSession,
) -> None:
    session = await open_session()
    await grow(session, "a", "b", "c", "d")
    await session.append_message(said("x"), "b")
    await session.delete_messages(["b"])
    assert ids(session.path) == ["a", "x"]
    assert ids(await session.get_history("d")) == ["a", "c", "d"]
    assert ids(await session.get_branches("a")) == ["c", "x"]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.memory_case(16)
@pytest.mark.parametrize(
    "gone", [["a"], ["a", "b"], ["b", "a"], ["a", "c"], ["a", "b", "c", "d"], ["nobody"], []]
)
async def test_any_set_of_messages_can_be_deleted(open_session: OpenSession, gone: list[str]) -> None:
    session = await open_session()
    await grow(session, "a", "b", "c", "d")
    await session.delete_messages(gone)
    left = [id for id in "abcd" if id not in gone]
    assert ids(session.path) == left
    await grow(session, "e")
    assert ids(session.path) == [*left, "e"]
    await check_as_after_a_restart(session, open_session)


async def test_a_deleted_id_may_come_again(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b")
    await session.delete_messages(["b"])
    assert await session.append_message(said("b", "again"))
    assert [m.text for m in session.path] == ["a", "again"]


@pytest.mark.memory_case(17, 18)
async def test_clearing_empties_one_session_and_no_other(open_session: OpenSession) -> None:
    session, other, stranger = (
        await open_session(),
        await open_session(id="other"),
        await open_session("Assistant/elsewhere"),
    )
    for one in (session, other, stranger):
        await grow(one, "a", "b")
    await session.clear_messages()
    assert (ids(session.path), ids(other.path), ids(stranger.path)) == ([], ["a", "b"], ["a", "b"])
    await grow(session, "c")
    assert ids(session.path) == ["c"]
    await check_as_after_a_restart(session, open_session)
    await check_as_after_a_restart(other, open_session)


@pytest.mark.memory_case(15)
async def test_sessions_may_use_the_same_ids(open_session: OpenSession) -> None:
    first, second = await open_session(), await open_session(id="second")
    await first.append_message(said("a", "first"))
    await second.append_message(said("a", "second"))
    assert [m.text for m in (first.leaf, second.leaf) if m] == ["first", "second"]


# --- reading


@pytest.mark.memory_case(13)
@pytest.mark.case(22)
async def test_a_restart_finds_the_path_that_was_active(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b", "c")
    await session.append_message(said("x"), "b")
    fresh = await open_session()
    assert ids(fresh.path) == ["a", "b", "x"]
    await grow(fresh, "y")
    assert ids(fresh.path) == ["a", "b", "x", "y"]


async def test_history_is_given_out_as_copies(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b")
    for history in (await session.get_history(), await session.get_history("b")):
        history[0].parts[0]["text"] = "forged"
        history.pop()
    leaf = await session.get_latest_leaf()
    assert leaf is not None
    leaf.parts.clear()
    assert [m.text for m in session.path] == ["a", "b"]


async def test_the_path_to_an_unknown_message_is_empty(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a")
    assert await session.get_history("nobody") == []
    assert await session.get_path_length("nobody") == 0


@pytest.mark.memory_case(4)
async def test_the_length_of_a_path_is_that_of_its_rows(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b", "c")
    await session.append_message(said("x"), "a")
    assert await session.get_path_length() == 2
    assert await session.get_path_length("c") == 3


@pytest.mark.memory_case(3)
async def test_a_message_is_found_on_whichever_branch_it_is(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a", "b")
    await session.append_message(said("x"), "a")
    assert await session.get_message("b") == said("b")
    assert (session.find("b"), session.find("x")) == (None, said("x"))
    assert await session.has("b")
    await session.require("b", what="parent")
    with pytest.raises(UnknownMessage, match='parent "nobody" does not exist in this session'):
        await session.require("nobody", what="parent")


async def test_what_is_stored_is_cleaned_and_a_copy_stays_with_the_caller(open_session: OpenSession) -> None:
    session = await open_session()
    secret = {"type": "text", "text": "hi", "providerMetadata": {"openai": {"itemId": "x"}}}
    given = Message("a", "assistant", [secret])
    await session.append_message(given)
    assert (await session.get_message("a")) == Message("a", "assistant", [{"type": "text", "text": "hi"}])
    assert session.leaf == await session.get_message("a")
    assert given.parts == [secret]


async def put(session: Session, id: str, content: str, parent: str | None, seq: int) -> None:
    """Write a row past the session, as an old or a broken release might have."""
    columns = "agent, session, id, seq, parent, role, content, created_at"
    sql = f"INSERT INTO messages ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    await session._store.apply(
        [Statement(sql, (session._store.agent, session.id, id, seq, parent, "user", content, 0))]
    )


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "null",
        "[]",
        '{"id": "x"}',
        '{"id": "x", "role": "user"}',
        '{"parts": {}}',
    ],
)
async def test_rows_that_hold_no_message_are_passed_over(open_session: OpenSession, content: str) -> None:
    # Given a broken row in the middle of the path, and one at its end
    session = await open_session()
    await grow(session, "a")
    await put(session, "x", content, "a", 100)
    await put(session, "b", '{"id":"b","role":"user","parts":[]}', "x", 101)
    await put(session, "y", content, "b", 102)

    # Then everybody who reads passes over them
    fresh = await open_session()
    assert ids(fresh.path) == ids(await fresh.get_history("y")) == ["a", "b"]
    assert await fresh.get_message("x") is None
    assert await fresh.get_branches("a") == []

    # And the conversation goes on behind them
    await grow(fresh, "c")
    assert ids(fresh.path) == ["a", "b", "c"]
    await grow(fresh, "d")
    assert ids(fresh.path) == ["a", "b", "c", "d"]
    await check_as_after_a_restart(fresh, open_session)


async def test_a_path_is_followed_for_ten_thousand_ancestors(open_session: OpenSession) -> None:
    # Given a conversation that is deeper than that
    session = await open_session()
    rows = [
        queries.appended(session.id, said(f"m{n}"), seq=n + 1, parent=f"m{n - 1}" if n else None, now=0)
        for n in range(10_050)
    ]
    for first in range(0, len(rows), 500):
        await session._store.apply(rows[first : first + 500])

    # Then its end is read, and it can be used
    fresh = await open_session()
    assert len(fresh.path) == 10_001
    assert (fresh.path[0].id, fresh.path[-1].id) == ("m49", "m10049")
    assert await fresh.get_path_length("m10049") == 10_001
    await grow(fresh, "new")
    assert fresh.path[-1] == said("new")


async def test_a_row_that_is_its_own_ancestor_does_not_hang_anybody(open_session: OpenSession) -> None:
    session = await open_session()
    await put(session, "a", '{"id":"a","role":"user","parts":[]}', "b", 1)
    await put(session, "b", '{"id":"b","role":"user","parts":[]}', "a", 2)
    fresh = await open_session()
    assert {"a", "b"} == set(ids(fresh.path))
