"""Many conversations for many minutes with a server that is killed again and again: `make soak`.

    python -m everthink.testing.crashtest.soak --agents 200 --minutes 10 --every 20

Everybody asks, waits for the whole answer, and asks again. At the end: no turn that was acknowledged is
lost, no tool has acted twice, no reader has lost text or seen it twice, and memory has not grown.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click

from ...client.connection import chat_request
from ...errors import NotConnected
from ...messages import user_message
from ...models.port import (
    AssistantMessage,
    Finish,
    ModelEvent,
    Opened,
    Request,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
    ToolCallReady,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from ...open_store import open_store
from ...runtime.schema import MIGRATIONS
from ...think import Think
from ...tools.tool import tool
from ..node import Node
from .effects import EFFECTS, effect
from .reader import PAUSE, Reader
from .scratch import check_store, empty_store

__all__ = ["Clerk", "Soak", "main"]

PACE = 0.05
"""Seconds between two words of an answer."""
TURNS = 20
"""After so many turns a conversation makes room for a new one, so that memory can stay flat."""
PATIENCE = 90.0
"""Seconds after which an answer that was promised counts as lost."""
GROWTH = 1.25
"""Memory is flat when the last kills find at most this many times what the first ones found."""

_JOB = re.compile(r"Do job (\S+)\.")


class _ClerkModel:
    """Does the job it is asked for with its tool, and says so. Decides from the prompt alone."""

    name = "clerk"
    continues: Literal["prefill", "prompt"] = "prompt"

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Call the tool, or tell how it went."""
        job, since = "", list[Any]()
        for message in request.messages:
            if isinstance(message, UserMessage) and (found := _JOB.fullmatch(_text(message))):
                job, since = found[1], []
            elif isinstance(message, AssistantMessage | ToolMessage):
                since += message.content
        results = [part for part in since if isinstance(part, ToolResultPart)]
        said = "".join(part.text for part in since if isinstance(part, TextPart))
        yield Opened(model_id=self.name)
        if not results:
            yield ToolCallReady(f"call_{job}", "work", json.dumps({"job": job}))
            yield Finish("tool-calls")
            return
        whole = answer_to(job, reported=results[-1].is_error)
        yield TextStart("text")
        for word in re.findall(r"\S+\s*", whole[len(said) :] if whole.startswith(said) else whole):
            await asyncio.sleep(PACE)
            yield TextDelta("text", word)
        yield TextEnd("text")
        yield Finish("stop")


def _text(message: UserMessage) -> str:
    return "".join(part.text for part in message.content if isinstance(part, TextPart))


def answer_to(job: str, *, reported: bool) -> str:
    """What the clerk says of a job."""
    return (
        f"Job {job} may be done, nobody knows."
        if reported
        else f"Job {job} is done, and the books are closed."
    )


class Clerk(Think):
    """Does jobs."""

    model = _ClerkModel()

    @tool
    async def work(self, job: str) -> str:
        """Do a job. Each one is to be done once."""
        effect(job)
        return f"{job} done"


@dataclass(slots=True)
class Soak:
    """What was seen."""

    kills: int = 0
    asked: int = 0
    acknowledged: int = 0
    answered: int = 0
    reported: int = 0
    """Answers that say that nobody knows whether the tool has run."""
    lost: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    """Answers that are not what the clerk says."""
    faults: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    open_turns: int = 0
    memory: list[float] = field(default_factory=list[float])
    """MiB of the server before each kill."""
    restarts: list[float] = field(default_factory=list[float])
    """Seconds from a kill until it served again."""
    seconds: float = 0.0

    @property
    def is_flat(self) -> bool:
        """True unless the server needs more memory at the end than at the beginning."""
        third = len(self.memory) // 3
        if third < 2:
            return True
        return statistics.median(self.memory[-third:]) <= GROWTH * statistics.median(self.memory[:third])

    @property
    def is_fine(self) -> bool:
        """True when nothing went wrong."""
        wrong = (self.lost, self.wrong, self.faults, self.doubled, self.missing)
        return not any(wrong) and not self.open_turns and self.is_flat

    def to_json(self) -> dict[str, Any]:
        """A summary."""
        return {
            "ok": self.is_fine,
            "seconds": round(self.seconds),
            "kills": self.kills,
            "turns_acknowledged": self.acknowledged,
            "turns_answered": self.answered,
            "lost": self.lost[:20],
            "wrong_answers": self.wrong[:20],
            "reader_faults": self.faults[:20],
            "doubled_effects": self.doubled[:20],
            "missing_effects": self.missing[:20],
            "calls_reported": self.reported,
            "open_turns": self.open_turns,
            "memory_mib": [round(value, 1) for value in self.memory],
            "memory_flat": self.is_flat,
            "restart_seconds": [round(value, 2) for value in self.restarts],
        }


class _Run:
    def __init__(self, *, agents: int, seconds: float, every: float, seed: int, node: Node) -> None:
        self._agents, self._every, self._node = agents, every, node
        self._end = time.monotonic() + seconds
        self._chance = random.Random(seed)
        self.soak = Soak()
        self.answers: dict[str, str] = {}
        """The answer to each job, as its reader saw it."""

    async def run(self) -> None:
        began = time.monotonic()
        killing = asyncio.create_task(self._kill())
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._agents):
                    group.create_task(self._converse(number))
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
        self.soak.seconds = time.monotonic() - began

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self._end

    async def _kill(self) -> None:
        """Pull the plug every now and then, not after the end."""
        while True:
            await asyncio.sleep(self._every)
            if self._is_over:
                return
            self.soak.memory.append(memory_of(self._node.pid))
            began = time.monotonic()
            await self._node.restart()
            self.soak.restarts.append(time.monotonic() - began)
            self.soak.kills += 1

    async def _converse(self, number: int) -> None:
        round_ = 0
        while not self._is_over:
            round_ += 1
            room = f"desk-{number}-{round_}"
            async with Reader(self._node.address(Clerk, room)) as reader:
                for turn in range(TURNS):
                    await asyncio.sleep(self._chance.uniform(0.5, 5.0))
                    if self._is_over:
                        break
                    await self._ask(reader, f"{room}-{turn}")
                self.soak.faults += [f"{room}: {fault}" for fault in reader.screen.faults]
                self.soak.faults += [f"{room}: was shown {error}" for error in reader.screen.errors]

    async def _ask(self, reader: Reader, job: str) -> None:
        soak, message = self.soak, user_message(f"Do job {job}.", id=f"user-{job}")
        soak.asked += 1
        sent, is_acknowledged, deadline = 0, False, time.monotonic() + PATIENCE
        while (text := self._answer(reader, message.id)) is None:
            if time.monotonic() > deadline:
                soak.lost.append(job if is_acknowledged else f"{job} (never acknowledged)")
                return
            try:
                await reader.settled()
                known = job in reader.heard or message.id in (reader.screen.told or ())
                if known and not is_acknowledged:
                    is_acknowledged = True
                    soak.acknowledged += 1
                elif not known and sent != reader.connections:
                    await reader.send(chat_request(job, [*reader.screen.messages, message]))
                    sent = reader.connections
            except NotConnected:
                pass
            await asyncio.sleep(5 * PAUSE)
        soak.acknowledged += not is_acknowledged
        soak.answered += 1
        self.answers[job] = text

    @staticmethod
    def _answer(reader: Reader, question: str) -> str | None:
        """The whole answer, once its turn is over."""
        messages = reader.screen.messages
        ids = [message.id for message in messages]
        if question not in ids or reader.screen.is_streaming:
            return None
        following = messages[ids.index(question) + 1 :]
        return following[0].text if following else None


def memory_of(pid: int) -> float:
    """MiB that a process has in memory; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def soaked(*, agents: int, seconds: float, every: float, store: str = "sqlite", seed: int = 1) -> Soak:
    """Run it."""
    check_store(store)
    with tempfile.TemporaryDirectory(prefix="everthink-soak-") as name:
        folder = Path(name)
        effects = folder / "effects"
        effects.touch()
        async with empty_store(store, folder) as url:
            target = f"{__spec__.name if __spec__ else __name__}:Clerk"
            async with Node(target, store=url, env={EFFECTS: str(effects)}) as node:
                run = _Run(agents=agents, seconds=seconds, every=every, seed=seed, node=node)
                await run.run()
                await node.term()
            await _judge(run, effects.read_text().splitlines(), url)
        return run.soak


async def _judge(run: _Run, effects: Sequence[str], url: str) -> None:
    soak, done = run.soak, Counter(effects)
    soak.doubled = sorted(job for job, times in done.items() if times > 1)
    for job, text in run.answers.items():
        if text == answer_to(job, reported=True):
            soak.reported += 1
        elif text != answer_to(job, reported=False):
            soak.wrong.append(f"{job}: {text!r}")
        elif not done[job]:
            soak.missing.append(job)
    store = await open_store(url, MIGRATIONS)
    try:
        ((soak.open_turns,),) = await store.fetch("SELECT COUNT(*) FROM turns WHERE ended_at IS NULL")
    finally:
        await store.close()


@click.command(help="Many conversations, and a server that is killed again and again. Prints a JSON summary.")
@click.option("--agents", default=200, show_default=True, type=click.IntRange(1))
@click.option("--minutes", default=10.0, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option(
    "--every", default=20.0, show_default=True, type=click.FloatRange(0.5), help="Seconds between kills."
)
@click.option("--store", default="sqlite", show_default=True, help="sqlite, or postgresql://…")
@click.option("--seed", default=1, show_default=True, help="Who asks when.")
def main(agents: int, minutes: float, every: float, store: str, seed: int) -> None:
    """Soak, and tell."""
    soak = asyncio.run(soaked(agents=agents, seconds=minutes * 60, every=every, store=store, seed=seed))
    click.echo(json.dumps({"agents": agents, "minutes": minutes, "every": every, **soak.to_json()}, indent=2))
    sys.exit(0 if soak.is_fine else 1)


if __name__ == "__main__":
    main()
