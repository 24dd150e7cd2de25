"""Going on from another branch of the conversation."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.messages import Message
from everthink.session.session import Session

from .conftest import OpenSession

pytestmark = pytest.mark.anyio


def said(id: str) -> Message:
    return Message(id, "user", [{"type": "text", "text": id}])


def ids(messages: Any) -> list[str]:
    return [message.id for message in messages]


async def forked(open_session: OpenSession) -> Session:
    """`q` with the answers `a` (which `b` follows), `x` and `y`; the last one is the tip."""
    session = await open_session()
    for id in ("q", "a", "b"):
        await session.append_message(said(id))
    for id in ("x", "y"):
        await session.append_message(said(id), "q")
    assert ids(session.path) == ["q", "y"]
    return session


async def test_the_conversation_goes_on_from_the_branch_that_was_selected(open_session: OpenSession) -> None:
    session = await forked(open_session)
    assert await session.select_leaf("b")
    assert ids(session.path) == ["q", "a", "b"]
    await session.append_message(said("c"))
    assert ids(session.path) == ["q", "a", "b", "c"]
    fresh = await open_session()
    assert ids(fresh.path) == ["q", "a", "b", "c"]


async def test_a_selection_outlives_the_process(open_session: OpenSession) -> None:
    session = await forked(open_session)
    assert await session.select_leaf("x")
    fresh = await open_session()
    assert ids(fresh.path) == ids(session.path) == ["q", "x"]


async def test_branches_keep_their_order(open_session: OpenSession) -> None:
    session = await forked(open_session)
    for leaf in ("x", "b", "y", "b"):
        assert await session.select_leaf(leaf)
        assert ids(await session.get_branches("q")) == ["a", "x", "y"]
        assert session.leaf == said(leaf)


async def test_only_the_end_of_a_branch_can_be_selected(open_session: OpenSession) -> None:
    session = await forked(open_session)
    for id in ("q", "a", "nobody"):
        assert not await session.select_leaf(id)
        assert ids(session.path) == ["q", "y"]
    # What was refused leaves no trace
    await session.append_message(said("z"))
    assert ids(session.path) == ["q", "y", "z"]
    assert ids((await open_session()).path) == ["q", "y", "z"]


async def test_what_was_written_before_and_after_finds_its_place(open_session: OpenSession) -> None:
    session = await forked(open_session)
    # Planned before the selection and committed after it: the newest message is the tip
    plan = session.plan_append([said("z")])
    assert await session.select_leaf("b")
    await session.write(plan)
    assert ids(session.path) == ids((await open_session()).path)
    await session.append_message(said("last"))
    assert ids(session.path) == ids((await open_session()).path)
    assert session.leaf == said("last")
