"""An agent for server processes: it says its words, and may be held up in the middle.

TALKER_GATE   a file; the words after the fifth are said once it is there
TALKER_LEASE  seconds of the lease
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from everthink import App, Think, exposed
from everthink.models.port import (
    AssistantMessage,
    Finish,
    ModelEvent,
    Opened,
    Request,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
)

WORDS = [f"w{number} " for number in range(20)]
ANSWER = "".join(WORDS).strip()
HELD_AFTER = 5


class Words:
    """Says the words, and goes on behind those that it has said already."""

    name = "words"
    continues: Literal["prefill", "prompt"] = "prefill"

    def __init__(self, pace: float = 0.0) -> None:
        self._pace = pace

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        last = request.messages[-1]
        parts = last.content if isinstance(last, AssistantMessage) else ()
        said = "".join(part.text for part in parts if isinstance(part, TextPart))
        yield Opened(model_id="words")
        yield TextStart("t")
        for number in range(len(said.split()), len(WORDS)):
            if number >= HELD_AFTER:
                await opened()
            await asyncio.sleep(self._pace)
            text = WORDS[number]
            if said and number == len(said.split()) and not said.endswith(" "):
                text = " " + text
            yield TextDelta("t", text.rstrip() if number == len(WORDS) - 1 else text)
        yield TextEnd("t")
        yield Finish("stop")


async def opened() -> None:
    """Return once the gate is open. It is a file, because it must be seen by processes that stand still."""
    gate = os.environ.get("TALKER_GATE")
    while gate and not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240 - there is nobody to tell us
        await asyncio.sleep(0.01)


class Talker(Think):
    model = Words()

    @exposed
    async def block(self, seconds: float) -> str:
        """Hold the loop of all agents."""
        time.sleep(seconds)  # noqa: ASYNC251 - that is what it is for
        return "held"

    @exposed
    async def note_later(self, path: str, seconds: float) -> None:
        """Plan to add a line to a file."""
        await self.schedule(seconds, "note", path)

    def note(self, path: str, item: Any = None) -> None:
        with Path(path).open("a") as file:
            file.write(f"{self.name} {os.getpid()}\n")


if "TALKER_STORE" in os.environ:
    app = App(
        Talker,
        store=os.environ["TALKER_STORE"],
        store_options={"lease": float(os.environ.get("TALKER_LEASE", "1"))},
        grace=0.0,
    )
