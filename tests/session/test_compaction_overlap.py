"""A compaction takes a while: what happens to a conversation that goes on, ends or changes meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from everthink.messages import Message
from everthink.models.tokens import estimate_messages
from everthink.session.compaction import SessionNews, SessionStatus
from everthink.session.session import Session
from everthink.session.summary import Compaction
from everthink.testing import WatchedStore
from tests.support.context import Sign
from tests.support.memory import Summarizer, fill, ids, said, session_on, texts

from .conftest import OpenSession

pytestmark = pytest.mark.anyio


async def begun(session: Session, summarizer: Summarizer) -> asyncio.Task[object]:
    """A compaction that waits for its summary."""
    work: asyncio.Task[object] = asyncio.create_task(session.compact())
    await summarizer.asked.wait()
    summarizer.asked.clear()
    return work


async def test_what_is_said_meanwhile_stands_behind_the_summary(open_session: OpenSession) -> None:
    summarizer = Summarizer(hold=True)
    session = (await open_session()).on_compaction(summarizer)
    await fill(session, *"abc")
    work = await begun(session, summarizer)
    await fill(session, "d", "e")
    await session.update_message(said("c", "changed meanwhile"))
    summarizer.go.set()
    await work
    assert texts(session.path) == ["summary 1", "changed meanwhile", "d", "e"]
    assert list((await open_session()).path) == list(session.path)


async def test_a_second_compaction_waits_for_the_first_and_sees_its_summary(
    open_session: OpenSession,
) -> None:
    summarizer = Summarizer(hold=True)
    session = (await open_session()).on_compaction(summarizer)
    await fill(session, *"abc")
    first = await begun(session, summarizer)
    second = asyncio.create_task(session.compact())
    await fill(session, "d")
    assert len(summarizer.shown) == 1
    summarizer.go.set()
    await asyncio.gather(first, second)
    assert [texts(shown) for shown in summarizer.shown] == [["a", "b", "c"], ["summary 1", "c", "d"]]
    assert texts(session.path) == ["summary 2", "d"]
    [_, last] = await session.get_compactions()
    assert (last.from_message_id, last.to_message_id) == ("a", "c")


async def test_appends_at_the_same_time_pay_for_one_summary(open_session: OpenSession) -> None:
    # Given a conversation just below its threshold
    summarizer = Summarizer(hold=True)
    weight = estimate_messages([said("a", "x" * 400)])
    session = (await open_session()).on_compaction(summarizer).compact_after(3 * weight)
    for id in "abc":
        await session.append_message(said(id, "x" * 400))

    # When several messages cross it together, and each of them finds the conversation too long
    appends = [asyncio.create_task(session.append_message(said(id, "y"))) for id in "def"]
    await summarizer.asked.wait()
    while len(session.path) < 6:  # noqa: ASYNC110 - until all three are stored
        await asyncio.sleep(0)
    summarizer.go.set()
    assert await asyncio.gather(*appends) == [True, True, True]

    # Then the model wrote one summary, and everybody is behind it
    assert len(summarizer.shown) == 1
    assert len(await session.get_compactions()) == 1
    assert texts(session.path)[0] == "summary 1"
    assert texts(session.path)[-3:] == ["y", "y", "y"]


async def test_clearing_meanwhile_leaves_no_overlay(open_session: OpenSession) -> None:
    summarizer = Summarizer(hold=True)
    session = (await open_session()).on_compaction(summarizer)
    await fill(session, *"abc")
    work = await begun(session, summarizer)
    await session.clear_messages()
    summarizer.go.set()
    assert await work is None
    assert (list(session.path), await session.get_compactions()) == ([], [])
    await fill(session, "x")
    assert ids(session.path) == ids((await open_session()).path) == ["x"]


@pytest.mark.parametrize("gone", ["a", "b"])
async def test_deleting_one_of_its_ends_meanwhile_leaves_no_overlay(
    open_session: OpenSession, gone: str
) -> None:
    summarizer = Summarizer(hold=True)
    session = (await open_session()).on_compaction(summarizer)
    await fill(session, *"abc")
    work = await begun(session, summarizer)
    await session.delete_messages([gone])
    summarizer.go.set()
    assert await work is None
    assert ids(session.path) == [id for id in "abc" if id != gone]
    assert await session.get_compactions() == []


async def test_clearing_at_the_very_end_of_a_compaction_is_no_accident(open_session: OpenSession) -> None:
    # Given a session that is cleared between the commit of an overlay and the look at what was stored
    store = WatchedStore((await open_session())._store.database)
    clears: list[asyncio.Task[None]] = []

    class Clearing(Sign):
        def get(self) -> str | None:
            if session.path and session.path[0].id.startswith("compaction_") and not clears:
                clears.append(asyncio.create_task(other.clear_messages()))
            return "be kind"

    session, other = session_on(store), session_on(store)
    session.with_context("rules", provider=Clearing()).on_compaction(Summarizer())
    await session.load()
    await fill(session, *"abc")
    done = await session.compact()
    await asyncio.gather(*clears)
    # Then the compaction ends in one way or the other, and is not an error
    assert len(clears) == 1
    assert done is None or done.summary == "summary 1"
    assert await session.get_compactions() == []


async def test_another_branch_selected_meanwhile_is_not_covered(open_session: OpenSession) -> None:
    summarizer = Summarizer(hold=True)
    session = (await open_session()).on_compaction(summarizer)
    await fill(session, *"abcd")
    await fill(session, "x", "y", parent="a")
    await session.select_leaf("d")
    work = await begun(session, summarizer)
    await session.select_leaf("y")
    summarizer.go.set()
    await work
    assert ids(session.path) == ["a", "x", "y"]
    assert texts(await session.get_history("d")) == ["summary 1", "d"]


async def test_every_beginning_is_followed_by_an_end(open_session: OpenSession) -> None:
    summarizer = Summarizer()
    session = (await open_session()).on_compaction(summarizer).compact_after(12)
    told: list[SessionNews] = []
    session.listener = told.append
    await asyncio.gather(*(session.append_message(said(f"m{n}")) for n in range(8)))
    phases = [(one.phase, one.tokens_before is not None) for one in told if isinstance(one, SessionStatus)]
    # While one runs, nothing that is appended says that it is over.
    began = [now for before, now in itertools.pairwise([("idle", False), *phases]) if before[0] != now[0]]
    assert began.count(("compacting", False)) == len(summarizer.shown) > 0
    assert phases.count(("idle", True)) == len(await session.get_compactions())
    assert phases[-1][0] == "idle"


async def test_a_compaction_function_may_append_to_its_own_session(open_session: OpenSession) -> None:
    # Given a function that notes in the conversation that it was asked
    session = await open_session()

    async def notes(messages: list[Message], context: Any) -> Compaction:
        await session.append_message(said("note", "summarised " * 50))
        return Compaction(messages[0].id, messages[0].id, "short")

    session.on_compaction(notes).compact_after(50)

    # When the conversation outgrows its threshold
    await session.append_message(said("long", "word " * 200))

    # Then it is shortened once, and nobody waits for himself
    assert [message.text[:5] for message in session.path] == ["short", "summa"]
