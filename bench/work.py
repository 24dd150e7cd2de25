"""The work: the same words at the same pace, and the same tool, for every contestant."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

QUESTION = "Tell me something about the weather, please."


@dataclass(eq=False)
class Job:
    """One answer of the model: so many words, `pace` seconds before each (None: without a pause)."""

    name: str
    words: int
    pace: float | None = None
    calls_tool: bool = False
    size: int = 0
    """Characters of a word, when words are longer than they need to be."""
    spoken: list[float] = field(default_factory=list[float])
    """When the model said each word, for jobs with a pace."""
    heard: list[float] = field(default_factory=list[float])
    """When the reader had each word."""

    @property
    def text(self) -> list[str]:
        return [f"word{number} ".ljust(self.size, "x") for number in range(self.words)]

    async def pause(self) -> None:
        """Wait as long as the model thinks about its next word."""
        await asyncio.sleep(self.pace or 0)
        self.spoken.append(time.perf_counter())

    async def speak(self) -> AsyncIterator[str]:
        """The model's answer."""
        for word in self.text:
            if self.pace is not None:
                await self.pause()
            yield word


BURST = Job("Burst", 2000)
PACED = Job("Paced", 2000, pace=0)  # sleep(0): one turn of the event loop between two words
SHORT = Job("Short", 20)
TOOL = Job("Tool", 20, calls_tool=True)
SLOW = Job("Slow", 200, pace=0.004)
JOBS = (BURST, PACED, SHORT, TOOL, SLOW)

ALOUD = Job("Aloud", 500)
STEADY = Job("Steady", 150, pace=0.02)
PIECES = Job("Pieces", 150, pace=0, size=10_000)
FAMILY = Job("Family", 150, pace=0.02)
"""A hundred children, each of which does the work of STEADY for one answer of their parent."""
CHILDREN = 100
WIRE = (BURST, PACED, SHORT, SLOW, ALOUD, STEADY, PIECES)
"""What is done over sockets."""


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Contestant(Protocol):
    """Somebody who can hold conversations."""

    name: str

    async def turn(self, agent: str, job: Job) -> None:
        """Put one question to `agent` and read the whole answer, as it streams."""
        ...

    async def close(self) -> None:
        """Let go of files and threads."""
        ...
