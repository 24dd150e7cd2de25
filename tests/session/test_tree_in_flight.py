"""Writes that are on their way, overtake each other or fail: memory follows the database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink.errors import StoreFull
from everthink.messages import Message
from everthink.session.session import Session
from everthink.store.port import Commit
from everthink.testing import WatchedStore

from .conftest import OpenSession
from .test_tree import check_as_after_a_restart, grow, ids, said

pytestmark = pytest.mark.anyio


async def settle(session: Session, *plans: Any) -> None:
    """Write plans and confirm them, in this order."""
    for plan in plans:
        session.confirm(plan, await session._store.apply(plan.statements))


async def test_what_is_planned_hangs_below_what_is_in_flight_though_the_path_was_read_meanwhile(
    open_session: OpenSession,
) -> None:
    # Given a message on its way to the database
    session = await open_session()
    await grow(session, "a")
    first = session.plan_append([said("b")])

    # When the path is read before it arrives, and another message is planned
    await session.load()
    second = session.plan_append([said("c")])
    await settle(session, first, second)

    # Then they hang one below the other
    assert ids(session.path) == ["a", "b", "c"]
    await check_as_after_a_restart(session, open_session)


async def test_a_late_confirmation_does_not_bring_back_an_older_branch(open_session: OpenSession) -> None:
    # Given two branches written in one go, of which the second is the newer
    session = await open_session()
    await grow(session, "a")
    older, newer = session.plan_append([said("b")]), session.plan_append([said("x")], "a")
    rows = [await session._store.apply(plan.statements) for plan in (older, newer)]

    # When the path is read before the writer hears of either
    await session.load()
    session.confirm(older, rows[0])
    assert ids(session.path) == ["a", "x"]
    session.confirm(newer, rows[1])

    # Then the newer one stays the active path
    await session.refresh()
    assert ids(session.path) == ["a", "x"]
    await grow(session, "y")
    assert ids(session.path) == ["a", "x", "y"]
    await check_as_after_a_restart(session, open_session)


@pytest.mark.parametrize("change", ["append", "update", "delete", "clear"])
async def test_a_read_that_was_overtaken_by_a_write_does_not_undo_it(
    open_session: OpenSession, change: str
) -> None:
    # Given a read of the path that has its rows and has not put them into memory yet
    session = await open_session()
    await grow(session, "a", "b")
    store = WatchedStore(session._store.database)
    session._store.database = store
    held = store.hold_read(after=True)
    reading = asyncio.create_task(session.load())
    await held.reached()

    # When something is written before it does
    match change:
        case "append":
            await grow(session, "c")
        case "update":
            await session.update_message(said("b", "changed"))
        case "delete":
            await session.delete_messages(["b"])
        case _:
            await session.clear_messages()
    held.release()
    await reading

    # Then memory has it
    await session.refresh()
    await check_as_after_a_restart(session, open_session)
    expected = {"append": ["a", "b", "c"], "update": ["a", "changed"], "delete": ["a"], "clear": []}
    assert [m.text for m in session.path] == expected[change]


# --- commits that fail


def full_disk(commit: Commit) -> Exception:
    return StoreFull("The disk is full.")


async def test_what_could_not_be_stored_is_nobody_s_parent(open_session: OpenSession) -> None:
    # Given a conversation, and a message that could not be stored
    session = await open_session()
    store = WatchedStore(session._store.database)
    session._store.database = store
    await grow(session, "a", "b")
    store.refuse(full_disk)
    with pytest.raises(StoreFull):
        await session.append_message(said("lost"))
    store.refuse(lambda commit: None)

    # When another one is planned at once, and then one the usual way
    plan = session.plan_append([said("c")])
    await session.write(plan)
    await grow(session, "d")

    # Then both hang below what is there
    assert ids(session.path) == ["a", "b", "c", "d"]
    await check_as_after_a_restart(session, open_session)


async def test_a_list_that_cannot_be_planned_leaves_no_trace(open_session: OpenSession) -> None:
    session = await open_session()
    await grow(session, "a")
    unstorable = Message("y", "user", [{"type": "text", "text": "y"}], {"now": object()})
    with pytest.raises(TypeError):
        session.plan_append([said("x"), unstorable])
    await grow(session, "b")
    assert ids(session.path) == ["a", "b"]
    await check_as_after_a_restart(session, open_session)
