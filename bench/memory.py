"""What a long memory costs: turns after 5,000 messages, and opening such a conversation again."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import mean, median
from typing import Any

from everthink import App, Message, Think, tool
from everthink.memory import Session, create_compact_function
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says

from .measure import Row, calm, live
from .work import QUESTION, add

WINDOW = 60
"""So many turns of both are measured, in turns: whatever compaction costs is in their mean."""

_ADD = tool(add)
_ASKS, _ANSWERS = calls("add", a=1, b=2), says("The sum is three, ", "as it was before.")


def _play(request: Request) -> Play:
    return _ANSWERS if isinstance(request.messages[-1], ToolMessage) else _ASKS


class Remembering(Think):
    """Calls a tool in every turn; a summary takes the place of the middle at 2,000 tokens."""

    model = ScriptedModel.forever(_play)

    def get_tools(self) -> list[Any]:
        return [_ADD]

    def configure_session(self, session: Session) -> Session:
        def summarize(prompt: str) -> str:
            return "They added up, again and again. " * 40

        session.with_context("memory", description="What you know.")
        session.on_compaction(create_compact_function(summarize=summarize, tail_token_budget=600))
        return session.compact_after(2000)


async def late_turns(folder: Path, *, turns: int) -> list[Row]:
    """CPU of the last turns of a long conversation beside those of a young one, and its cold open."""
    taken: dict[str, list[float]] = {"old": [], "young": []}
    async with App(Remembering, store=f"sqlite:///{folder / 'memory.db'}") as app:
        for name, before in (("old", turns - WINDOW), ("young", 50)):
            for _ in range(before):
                await app.agent(Remembering, name).save_messages(QUESTION)
        calm()
        for _ in range(WINDOW):
            for name, cpu in taken.items():
                began = time.process_time()
                await app.agent(Remembering, name).save_messages(QUESTION)
                cpu.append(time.process_time() - began)
        session = (await live(app.agent(Remembering, "old"))).session
        assert await session.get_path_length() == 2 * turns
        assert len(await session.get_compactions()) > turns / WINDOW
        opened = await _opened(app, Remembering, repetitions=10)
    old, young = taken.values()
    what = f"CPU of turn {turns:,} against turn 50, compaction on"
    rows = [
        Row(f"{what}, with its cost", "×", {"everthink": mean(old) / mean(young)}),
        Row(f"{what}, median turn", "×", {"everthink": median(old) / median(young)}),
        Row(f"CPU of a cold open, {2 * turns:,} messages, summarised", "ms", {"everthink": opened}),
    ]
    rows[0].held_to("≤ 1.3 ×", rows[0].values["everthink"] <= 1.3)
    rows[2].held_to("≤ 10 ms", opened <= 10)
    return rows


async def cold_open(folder: Path, *, repetitions: int) -> list[Row]:
    """Opening 5,000 messages that nobody summarised, all of them. `standing` opens 1,000."""
    text, roles = "Somebody said something here. " * 5, ("user", "assistant")
    plain = type("Plain", (Think,), {"model": Remembering.model, "__module__": __name__})
    messages = [Message(f"m{n}", roles[n % 2], [{"type": "text", "text": text}]) for n in range(5000)]
    async with App(plain, store=f"sqlite:///{folder / 'plain.db'}") as app:
        await app.agent(plain, "old").add_messages(messages)
        opened = await _opened(app, plain, repetitions=repetitions)
    return [Row("CPU of a cold open, 5,000 messages", "ms", {"everthink": opened})]


async def _opened(app: App, cls: type[Think], *, repetitions: int) -> float:
    """The median CPU of opening an agent that was evicted, in ms."""
    taken: list[float] = []
    for _ in range(repetitions):
        await app.evict(cls, "old")
        calm()
        began = time.process_time()
        await live(app.agent(cls, "old"))
        taken.append((time.process_time() - began) * 1e3)
    return median(taken)
