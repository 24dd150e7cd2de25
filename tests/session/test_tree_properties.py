"""Whatever is done to a session, what it holds in memory is what a restart would read."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everthink.messages import UNSET, Message
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.session.session import Session
from everthink.store.port import AgentStore
from tests.support.conversations import unhurried

pytestmark = pytest.mark.slow  # by nature: hundreds of cases each

IDS = [f"m{number}" for number in range(8)]
some_id = st.sampled_from(IDS)
parent = st.just(UNSET) | st.none() | some_id | st.just("nobody")
operations = st.one_of(
    st.tuples(st.just("append"), some_id, parent, st.integers(0, 9)),
    st.tuples(st.just("update"), some_id, st.integers(0, 9)),
    st.tuples(st.just("delete"), st.lists(some_id, max_size=3)),
    st.tuples(st.just("upsert"), some_id, st.integers(0, 9)),
    st.sampled_from([("clear",), ("restart",), ("read",)]),
)


def said(id: str, number: int) -> Message:
    return Message(id, "user", [{"type": "text", "text": f"{id} {number}"}])


@dataclass
class Naive:
    """The rules of the tree, in the plainest way: a row is (parent, message), in the order of insertion."""

    rows: dict[str, tuple[str | None, Message]] = field(default_factory=dict[str, tuple[str | None, Message]])

    @property
    def tip(self) -> str | None:
        childless = [id for id in self.rows if not any(above == id for above, _ in self.rows.values())]
        return childless[-1] if childless else None

    def path(self, leaf: str | None) -> list[Message]:
        found: list[Message] = []
        while leaf is not None and leaf in self.rows:
            leaf, message = self.rows[leaf]
            found.insert(0, message)
        return found

    def branches(self, id: str) -> list[Message]:
        return [message for above, message in self.rows.values() if above == id]

    def append(self, message: Message, parent: Any) -> bool:
        if message.id in self.rows:
            return False
        above = self.tip if parent is UNSET else parent if parent in self.rows else None
        self.rows[message.id] = (above, message)
        return True

    def update(self, message: Message) -> bool:
        if message.id not in self.rows:
            return False
        self.rows[message.id] = (self.rows[message.id][0], message)
        return True

    def delete(self, ids: list[str]) -> None:
        for id in ids:
            if id in self.rows:
                above, _ = self.rows.pop(id)
                self.rows = {k: (above if p == id else p, m) for k, (p, m) in self.rows.items()}


class Both:
    """A real session and the naive one, side by side."""

    def __init__(self, store: Any) -> None:
        self.store, self.naive = store, Naive()
        self.session = Session(AgentStore(store, "Assistant/room"), now=lambda: 0)

    async def restart(self) -> None:
        self.session = Session(AgentStore(self.store, "Assistant/room"), now=lambda: 0)
        await self.session.load()

    async def do(self, operation: Any) -> None:
        match operation:
            case ("append", id, parent, number):
                done = await self.session.append_message(said(id, number), parent)
                assert done == self.naive.append(said(id, number), parent)
            case ("update", id, number):
                assert await self.session.update_message(said(id, number)) == self.naive.update(
                    said(id, number)
                )
            case ("upsert", id, number):
                if not await self.session.update_message(said(id, number)):
                    assert await self.session.append_message(said(id, number))
                if not self.naive.update(said(id, number)):
                    self.naive.append(said(id, number), UNSET)
            case ("delete", ids):
                await self.session.delete_messages(ids)
                self.naive.delete(ids)
            case ("clear",):
                await self.session.clear_messages()
                self.naive.rows.clear()
            case ("restart",):
                await self.restart()
            case _:
                await self.compare_everything()

    async def compare(self) -> None:
        path = self.naive.path(self.naive.tip)
        assert list(self.session.path) == path
        assert self.session.leaf == (path[-1] if path else None)
        assert await self.session.get_path_length() == len(path)
        for id in IDS:
            on_path = next((m for m in path if m.id == id), None)
            assert self.session.find(id) == on_path

    async def compare_everything(self) -> None:
        for id in IDS:
            row = self.naive.rows.get(id)
            assert await self.session.get_message(id) == (row[1] if row else None)
            assert await self.session.has(id) == (row is not None)
            assert await self.session.get_history(id) == self.naive.path(id)
            assert await self.session.get_branches(id) == self.naive.branches(id)


def on_a_real_file(story: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            store = await open_store(f"sqlite:///{directory}/session.db", MIGRATIONS, synchronous="NORMAL")
            try:
                await story(store)
            finally:
                await store.close()

    asyncio.run(run())


@settings(unhurried, max_examples=60)
@given(st.lists(operations, max_size=25))
def test_a_session_is_always_what_the_plain_rules_say(done: list[Any]) -> None:
    async def story(store: Any) -> None:
        both = Both(store)
        await both.session.load()
        for operation in done:
            await both.do(operation)
            await both.compare()
        await both.compare_everything()
        await both.restart()
        await both.compare()
        await both.compare_everything()

    on_a_real_file(story)


@settings(unhurried, max_examples=60)
@given(
    st.lists(
        st.lists(st.tuples(some_id, parent) | st.tuples(some_id, st.just("update")), min_size=1, max_size=5),
        max_size=6,
    )
)
def test_writes_that_overlap_leave_memory_and_storage_agreed(batches: list[list[Any]]) -> None:
    async def story(store: Any) -> None:
        session = Session(AgentStore(store, "Assistant/room"), now=lambda: 0)
        await session.load()
        stored: set[str] = set()
        for number, batch in enumerate(batches):
            # When several tasks write at once
            await asyncio.gather(
                *(
                    session.update_message(said(id, number))
                    if where == "update"
                    else session.append_message(said(id, number), where)
                    for id, where in batch
                )
            )
            stored |= {id for id, where in batch if where != "update"}

            # Then nothing is lost, nothing hangs in the air, and a restart would find the same
            await session.refresh()
            fresh = Session(AgentStore(store, "Assistant/room"), now=lambda: 0)
            await fresh.load()
            assert list(session.path) == list(fresh.path)
            rows = await store.fetch("SELECT id, parent FROM messages")
            assert {id for id, _ in rows} == stored
            assert {above for _, above in rows if above is not None} <= stored
            # and what is written next goes below what is shown
            tip = session.leaf
            await session.append_message(said(f"next{number}", number))
            stored.add(f"next{number}")
            assert (session.path[-2] if len(session.path) > 1 else None) == tip

    on_a_real_file(story)


@settings(unhurried, max_examples=25)
@given(st.integers(1, 8), st.data())
def test_plans_in_flight_build_on_each_other(count: int, data: st.DataObject) -> None:
    # Given messages planned one after the other before any of them is durable
    async def story(store: Any) -> None:
        session = Session(AgentStore(store, "Assistant/room"), now=lambda: 0)
        await session.load()
        plans = [session.plan_append([said(f"p{number}", 0)]) for number in range(count)]
        sent = [asyncio.ensure_future(session._store.apply(plan.statements)) for plan in plans]

        # When somebody reads the path from the database at any moment in between
        asked_at = data.draw(st.integers(0, count))
        for number, (plan, rows) in enumerate(zip(plans, sent, strict=True)):
            if number == asked_at:
                await session.load()
            session.confirm(plan, await rows)

        # Then they are one path, and so is what follows
        await session.refresh()
        await session.append_message(said("last", 0))
        assert [m.id for m in session.path] == [*(f"p{number}" for number in range(count)), "last"]

    on_a_real_file(story)
