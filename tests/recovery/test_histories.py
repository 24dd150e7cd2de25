"""Random histories of one conversation: whatever happens in whichever order, nothing is lost or doubled.

Each history is a list of things that happen: somebody says something, the model says a word, a tool
ends, a turn is cancelled, the process dies and another one takes over, a reader comes. At its end
everything runs to its end, and the conversation, the ledger and what readers have seen must agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everthink import App, Message, Think, tool
from everthink.errors import AgentError
from everthink.journal.feed import ChunksStored, FeedEvent
from everthink.journal.read import read_journal
from everthink.journal.turn_rows import all_turns
from everthink.models import port as model
from everthink.open_store import open_store
from everthink.prompt.wording import CONTINUE_NUDGE
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import AgentStore, Store
from tests.support.agents import live
from tests.support.samples import sample

DONE = "The {} is done. It gave {} and that is all there is to say about it."


class Gate:
    """Lets work go on one step at a time."""

    def __init__(self) -> None:
        self.is_open = False
        self._waiting: list[asyncio.Future[None]] = []

    async def step(self) -> None:
        if self.is_open:
            await asyncio.sleep(0)
            return
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waits)
        try:
            await waits
        finally:
            self._waiting.remove(waits)

    def let_one(self) -> None:
        for waits in self._waiting:
            if not waits.done():
                waits.set_result(None)
                return

    def open(self) -> None:
        self.is_open = True
        for waits in list(self._waiting):
            if not waits.done():
                waits.set_result(None)


def beginning(question: str) -> str:
    return f"You said {question}, and I will look into it at once, word by word."


class Narrator:
    """A model that has one fixed answer to each question, and goes on from any place in it."""

    name = "narrator"

    def __init__(self, gate: Gate, continues: Literal["prefill", "prompt"]) -> None:
        self.continues: Literal["prefill", "prompt"] = continues
        self._gate = gate

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        messages = list(request.messages)
        if _text(messages[-1]) == CONTINUE_NUDGE:
            messages.pop()
        asked = max(i for i, m in enumerate(messages) if isinstance(m, model.UserMessage))
        question, since = _text(messages[asked]), messages[asked + 1 :]
        results = [m for m in since if isinstance(m, model.ToolMessage)]
        said = _text(since[-1]) if since and isinstance(since[-1], model.AssistantMessage) else ""
        calls = "dig" in question and not results
        whole = beginning(question)
        if results:
            part = results[-1].content[0]
            assert isinstance(part, model.ToolResultPart)
            whole = DONE.format(question, "nothing" if part.is_error else part.output)
        assert whole.startswith(said), (whole, said)
        yield model.Opened()
        yield model.TextStart("t")
        for word in _words(whole[len(said) :]):
            await self._gate.step()
            yield model.TextDelta("t", word)
        yield model.TextEnd("t")
        if calls:
            yield model.ToolCallReady(f"call {question}", "dig", "{}")
        yield model.Finish("tool-calls" if calls else "stop")


def _text(message: Any) -> str:
    return "".join(part.text for part in message.content if isinstance(part, model.TextPart))


def _words(text: str) -> list[str]:
    return [text[i : i + 9] for i in range(0, len(text), 9)]


class World:
    """The database, the process that lives now, and what everybody has seen."""

    def __init__(self, store: Store, continues: Literal["prefill", "prompt"]) -> None:
        self.store, self.continues = store, continues
        self.effects: list[str] = []
        self.chunks: dict[str, dict[int, Any]] = {}
        self.is_doubled = False
        self.accepted: list[str] = []
        self.cancelled: set[str] = set()
        self.keys: set[str] = set()
        self.count = 0
        self.tasks: list[asyncio.Task[Any]] = []

    async def begin(self) -> None:
        world, gate = self, Gate()
        self.gate = gate

        class Digger(Think):
            model = Narrator(gate, self.continues)  # type: ignore[assignment]

            @tool
            async def dig(self) -> str:
                """Dig."""
                world.effects.append(world.active)
                await gate.step()
                return "gold"

        self.app = App(Digger, store=self.store, grace=0.0, idle_after=None)
        self.agent = self.app.agent(Digger, "one")
        self.home = (await live(self.agent))._home
        self.home.feed.join(self._see)

    @property
    def active(self) -> str:
        running = self.home.chat.door.queue.active
        return "" if running is None else running.request_id

    def _see(self, shown: FeedEvent) -> None:
        if isinstance(shown, ChunksStored):
            known = self.chunks.setdefault(shown.turn.id, {})
            for place, chunk in enumerate(shown.chunks, shown.first_seq):
                self.is_doubled = self.is_doubled or place in known
                known[place] = chunk

    async def end(self) -> None:
        await self.app.close()
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, AgentError):
                await task
        self.tasks.clear()

    # --- what may happen

    async def happens(self, what: str) -> None:
        self.count += 1
        match what:
            case "say" | "ask to dig":
                text = f"{'dig' if 'dig' in what else 'word'} {self.count}"
                message = Message(f"u{self.count}", "user", [{"type": "text", "text": text}])
                self.tasks.append(asyncio.create_task(self.agent.save_messages([message])))
                await self._accepted(text)
            case "submit":
                await self.agent.submit_messages(f"job {self.count}", idempotency_key=f"key {self.count}")
                self.accepted.append(f"job {self.count}")
                self.keys.add(f"job {self.count}")
            case "submit again" if self.keys:
                text = sorted(self.keys)[-1]
                known = await self.agent.submit_messages(text, idempotency_key=text.replace("job", "key"))
                assert not known.accepted
            case "step":
                self.gate.let_one()
                await asyncio.sleep(0.001)
            case "some steps":
                for _ in range(6):
                    self.gate.let_one()
                    await asyncio.sleep(0)
                await asyncio.sleep(0.001)
            case "cancel":
                turns = list(self.home.chat.host.turns)
                if turns:
                    self.agent_cancelled(turns[0].request_id, turns[0].id)
            case "die":
                await self.end()
                await self.begin()
            case _:
                await asyncio.sleep(0.001)

    def agent_cancelled(self, request_id: str, turn: str) -> None:
        self.home.chat.host.aborts.cancel(request_id, "enough")
        self.cancelled.add(turn)

    async def _accepted(self, text: str) -> None:
        """Wait until the row is there: from then on it may not be lost."""
        while True:
            turns = await all_turns(AgentStore(self.store, self.home.id))
            stored = await self.home.chat.session.get_history()
            if any(text in (turn.input or "") for turn in turns) or any(m.text == text for m in stored):
                self.accepted.append(text)
                return
            await asyncio.sleep(0)

    # --- what must hold in the end

    async def check(self) -> None:
        self.gate.open()
        assert await self.agent.wait_until_stable(timeout=20)
        rows = {row.id: row for row in await all_turns(AgentStore(self.store, self.home.id))}
        assert all(row.ended_at is not None for row in rows.values()), "a turn was left open"
        history = await self.agent.get_messages()
        asked = [m.text for m in history if m.role == "user"]
        skipped = {row.id for row in rows.values() if row.status in ("aborted", "skipped")}
        assert len(asked) == len(set(asked)), "a message was doubled"
        lost = [text for text in self.accepted if text not in asked]
        assert len(lost) <= len(skipped), ("a message was lost", lost)
        for number, message in enumerate(history):
            if message.role != "user":
                continue
            answers = []
            for later in history[number + 1 :]:
                if later.role == "user":
                    break
                answers.append(later)
            self._check_answer(message.text, answers, has_skipped=bool(skipped))
        assert len(self.effects) == len(set(self.effects)), "a tool ran twice"
        assert not self.is_doubled, "a chunk was shown twice"
        for turn, row in rows.items():
            journal = await read_journal(self.home.store, turn, message_id=row.message_id or "")
            # What a reader missed between two processes is replayed to them from here.
            written = [chunk for _, chunks in journal.segments for chunk in chunks]
            for place, chunk in self.chunks.get(turn, {}).items():
                assert written[place] == chunk, "a reader saw something else"
            for message in history:
                if message.id == journal.fold.id:
                    assert message.text == journal.fold.message().text, "stored is not what was shown"

    def _check_answer(self, question: str, answers: list[Message], *, has_skipped: bool) -> None:
        texts = ["".join(p["text"] for p in a.parts if p["type"] == "text") for a in answers]
        whole = beginning(question)
        ends = [DONE.format(question, given) for given in ("gold", "nothing")] if "dig" in question else [""]
        complete = [whole + end for end in ends]
        if not has_skipped:
            assert len(texts) == 1, ("not one answer", question, texts)
            assert texts[0] in complete, ("not the whole answer", texts)
        for text in texts:
            assert any(full.startswith(text) for full in complete), ("not a beginning of it", text)


WHAT = st.sampled_from(
    [
        "say",
        "ask to dig",
        "submit",
        "submit again",
        "step",
        "some steps",
        "some steps",
        "cancel",
        "die",
        "die",
    ]
)


async def _play(history: list[str], continues: Literal["prefill", "prompt"]) -> None:
    store = await open_store("sqlite://:memory:", MIGRATIONS)
    try:
        world = World(store, continues)
        await world.begin()
        for what in history:
            await world.happens(what)
        await world.check()
        await world.end()
    finally:
        await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("continues", ["prefill", "prompt"])
@settings(
    max_examples=sample(120, 1000),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(history=st.lists(WHAT, min_size=2, max_size=14))
def test_no_history_loses_or_doubles_anything(
    continues: Literal["prefill", "prompt"], history: list[str]
) -> None:
    asyncio.run(_play(["say", *history], continues))
