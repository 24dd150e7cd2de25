"""A conversation of 5,000 messages: its turns cost what they cost at the beginning, and its prompts stay put.

What is asserted is what is read, written, sent and kept, never how long it takes: that is in bench/memory.py.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everthink import App, Message, Think, tool
from everthink.door.numbers import SPAN
from everthink.models.port import Request, ToolMessage
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.session import queries
from everthink.session.media import MediaEviction
from everthink.session.overlay import is_overlay
from everthink.session.summary import create_compact_function
from everthink.testing import WatchedStore
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from everthink.turn.overflow import ContextOverflow
from tests.support.agents import live
from tests.support.samples import sample

pytestmark = pytest.mark.anyio

TURNS = sample(1000, 2500)
LATE = TURNS // 32
"""Which compaction counts as a late one."""
ANSWER = "The sum is three, as it was before, and as it will be tomorrow."


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def read(size: int) -> str:
    """Read a long text."""
    return "word " * (size // 5)


def weight(request: Request) -> list[bytes]:
    """A request as bytes: its system prompt, then each message."""
    return [request.system.encode(), *(msgspec.json.encode(message) for message in request.messages)]


class Prompts:
    """A model that adds up, or reads when it is asked to, and compares each prompt with the one before."""

    def __init__(self) -> None:
        self.last: list[bytes] = []
        self.breaks = 0
        """How many prompts did not begin with the whole prompt before them."""
        self.model = ScriptedModel(self._play, repeat=True, records=False, strict=False)

    def _play(self, request: Request) -> Play:
        now = weight(request)
        if now[: len(self.last)] != self.last:
            self.breaks += 1
        self.last = now
        if isinstance(request.messages[-1], ToolMessage):
            return says(ANSWER).uses(10, 10)
        asked = str(request.messages[-1])
        return calls("read", size=2000) if "Read" in asked else calls("add", a=1, b=2)

    @property
    def size(self) -> int:
        """Of the last prompt, in bytes."""
        return sum(map(len, self.last))

    def has_broken(self) -> bool:
        """True when one did since this was last asked."""
        broken, self.breaks = self.breaks > 0, 0
        return broken


def adder(prompts: Prompts, **members: Any) -> type[Think]:
    """An agent that shortens its conversation at 2,000 tokens."""

    def configure_session(self: Think, session: Any) -> Any:
        summarize = create_compact_function(
            summarize=lambda prompt: "They added up. " * 20, tail_token_budget=600
        )
        session.with_context("memory", description="Facts.").with_cached_prompt()
        return session.on_compaction(summarize).compact_after(2000)

    return type(
        "Adder",
        (Think,),
        {
            "model": prompts.model,
            "get_tools": lambda self: [add, read],
            "configure_session": configure_session,
            **members,
        },
    )


@asynccontextmanager
async def counted(folder: Path, cls: type[Think]) -> AsyncIterator[tuple[App, WatchedStore]]:
    store = WatchedStore(await open_store(f"sqlite:///{folder}/everthink.db", MIGRATIONS))
    try:
        async with App(cls, store=store, grace=0.0, idle_after=None) as app:
            yield app, store
    finally:
        await store.close()


Counts = tuple[int, ...]


def most(traffic: list[Counts]) -> Counts:
    """The most of each kind in one turn."""
    return tuple(map(max, zip(*traffic, strict=True)))


def same(late: Counts, early: Counts) -> bool:
    """True when as much was done. Numbers with more digits may take more room."""
    return all(now <= 1.02 * then for now, then in zip(late, early, strict=True))


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.slow
async def test_a_turn_after_thousands_of_messages_costs_what_it_cost_at_the_beginning(tmp_path: Path) -> None:
    prompts = Prompts()
    cls = adder(prompts)
    traffic: list[Counts] = []
    sizes: list[int] = []
    paths: list[int] = []
    compacted: list[int] = []
    held: dict[int, int] = {}
    async with counted(tmp_path, cls) as (app, store):
        agent: Any = await live(app.agent(cls))
        home, session = agent._home, agent.session
        summary: str | None = None
        for turn in range(TURNS):
            store.take()
            await agent.save_messages(f"Question {turn:05}: one and two, once more, please?")
            traffic.append(astuple(store.take()))
            sizes.append(prompts.size)
            paths.append(len(session.path) + len(session._overlays) + len(home.chat.host.converter._older))
            found = next((message.id for message in session.path if is_overlay(message)), None)
            if found != summary:
                summary = found
                compacted.append(turn)
                if len(compacted) in (5, LATE):
                    store.commits.clear()
                    store.reads.clear()
                    held[len(compacted)] = objects()
            # Prompts go on from each other, unless the conversation was shortened
            if prompts.has_broken():
                assert {turn, turn - 1} & set(compacted), turn
        assert await session.get_path_length() == 2 * TURNS

        # Then what is read, written, sent and kept is the same at the end as at the beginning
        assert len(compacted) >= LATE
        plain = [
            n for n in range(TURNS) if n not in compacted and n % SPAN
        ]  # now and then a mark is kept, too
        early, late = [n for n in plain if 100 <= n < 200], [n for n in plain if n >= TURNS - 100]
        assert same(most([traffic[n] for n in late]), most([traffic[n] for n in early]))
        for window in (range(100, 300), range(TURNS - 200, TURNS)):
            assert max(sizes[n] for n in window) <= 1.05 * max(sizes[100:300])
            assert max(paths[n] for n in window) <= 1.1 * max(paths[100:300])
        first, *_, last = [n for n in compacted if n >= 300]
        assert same(traffic[last], traffic[first])
        assert held[LATE] <= 1.02 * held[5]

        # And after a restart little is read, and the next prompt goes on from the last one before it
        shown = [message.id for message in session.path]
        await app.evict(cls, "default")
        store.take()
        agent = await live(app.agent(cls))
        opened = store.take()
        assert [message.id for message in agent.session.path] == shown
        assert opened.rows < 300
        assert opened.contents < 60_000
        prompts.has_broken()
        await agent.save_messages("Question after the restart?")
        assert not prompts.has_broken()


async def test_a_long_conversation_without_summaries_opens_within_its_budget(tmp_path: Path) -> None:
    # Given 5,000 messages that nobody shortened, and an agent that keeps 100 KB of them in memory
    prompts = Prompts()
    budget = 100_000
    cls = adder(prompts, configure_session=lambda self, session: session, hydration_byte_budget=budget)
    text = "Somebody said something here. " * 5
    roles = ("user", "assistant")
    messages = [Message(f"m{n}", roles[n % 2], [{"type": "text", "text": text}]) for n in range(5000)]
    async with counted(tmp_path, cls) as (app, store):
        await app.agent(cls).add_messages(messages)
        await app.evict(cls, "default")
        store.take()
        agent: Any = await live(app.agent(cls))
        opened = store.take()

        # Then only the end was read, to the end of a page; of the rest it is known how much it weighs
        page = queries.SMALL_PAGE * 200
        path = agent.session.path
        assert path[-1].id == "m4999"
        assert budget / 2 < opened.contents <= budget + page
        assert len(path) < 1000
        await agent.save_messages("And now?")
        turn = store.take()
        assert turn.contents <= budget + page
        assert prompts.size < 2 * budget


# --- what may change the beginning of a prompt


class Deeds:
    """Things that happen between two turns, each of which changes what was said before."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    async def nothing(self) -> None:
        """Just the next turn."""

    async def compaction(self) -> None:
        messages = self._agent.messages
        assert await self._agent.session.add_compaction("In short.", messages[1].id, messages[6].id)

    async def refresh(self) -> None:
        await self._agent.session.replace_context_block("memory", "The cat is called Mo.")
        await self._agent.session.refresh_system_prompt()

    async def block(self) -> None:
        """Written, and not yet shown: no trigger."""
        await self._agent.session.replace_context_block("memory", "The dog is called Bo.")

    async def edit(self) -> None:
        message = self._agent.messages[1]
        changed = [{"type": "text", "text": "Edited."}]
        await self._agent.session.update_message(Message(message.id, message.role, changed))

    async def branch(self) -> None:
        """Go on from an earlier message."""
        at = self._agent.messages[3]
        await self._agent.add_messages(
            Message(f"branch{at.id}", "user", [{"type": "text", "text": "Another way?"}]), parent_id=at.id
        )

    async def repair(self) -> None:
        """A call that nobody will answer is closed."""
        part = {
            "type": "tool-add",
            "toolCallId": "torn",
            "state": "input-available",
            "input": {"a": 1, "b": 1},
        }
        await self._agent.session.append_message(Message("torn", "assistant", [part]))

    async def clear(self) -> None:
        await self._agent.clear_messages()

    async def eviction(self) -> None:
        settings = MediaEviction(keep_recent_messages=4, min_part_bytes=1000)
        await self._agent._home.chat.evictor.run_pass(settings)


def files() -> list[Message]:
    url = "data:image/png;base64," + "iVBORw0KGgo=" * 300
    return [
        Message("file", "user", [{"type": "file", "mediaType": "image/png", "url": url}]),
        Message("filed", "assistant", [{"type": "text", "text": "Seen."}]),
    ]


@pytest.mark.parametrize(
    ("deed", "changes"),
    [
        ("nothing", False),
        ("block", False),
        ("repair", False),
        ("compaction", True),
        ("refresh", True),
        ("edit", True),
        ("branch", True),
        ("clear", True),
        ("eviction", True),
    ],
)
async def test_only_what_is_listed_changes_the_beginning_of_a_prompt(
    tmp_path: Path, deed: str, changes: bool
) -> None:
    prompts = Prompts()
    cls = adder(prompts, context_overflow=ContextOverflow(), media_eviction=False)
    async with counted(tmp_path, cls) as (app, _):
        agent: Any = await live(app.agent(cls))
        await agent.add_messages(files())
        for turn in range(8):
            await agent.save_messages(f"Question {turn}?")
        assert not prompts.has_broken()

        await getattr(Deeds(agent), deed)()
        await agent.save_messages("And now?")
        assert prompts.has_broken() == changes

        # And then it stays put again
        for turn in range(6):
            await agent.save_messages(f"Question {turn}, later?")
        assert not prompts.has_broken()


async def test_a_long_output_is_shortened_once_when_it_grows_old(tmp_path: Path) -> None:
    prompts = Prompts()
    cls = adder(prompts)
    broken: list[int] = []
    async with counted(tmp_path, cls) as (app, _):
        agent: Any = await live(app.agent(cls))
        for turn in range(12):
            await agent.save_messages("Read the book." if turn == 3 else f"Question {turn}?")
            if prompts.has_broken():
                broken.append(turn)
    # Two turns later it is still among the latest messages; with the third it is not, and never changes again
    assert broken == [6]
