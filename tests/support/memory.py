"""Sessions for tests of memory: short messages, functions that shorten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from everthink.messages import Message, Role
from everthink.session.session import Session
from everthink.session.summary import CompactContext, Compaction
from everthink.store.port import AgentStore

__all__ = ["Summarizer", "between", "fill", "ids", "said", "session_on", "texts"]


def said(id: str, text: str = "", role: Role = "user") -> Message:
    """A message; without a text it says its id."""
    return Message(id, role, [{"type": "text", "text": text or id}])


def ids(messages: Iterable[Message]) -> list[str]:
    """The ids of messages; that of a summary, which is made up, as `*`."""
    return ["*" if m.id.startswith("compaction_") else m.id for m in messages]


def texts(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


async def fill(session: Session, *ids: str, parent: str | None = None) -> None:
    """Append messages one under the other, below the tip or below `parent`."""
    for id in ids:
        if parent is None:
            assert await session.append_message(said(id))
        else:
            assert await session.append_message(said(id), parent)
            parent = None


def between(first: str, last: str, summary: str = "in short") -> Callable[..., Compaction]:
    """A compaction function that always names the same range."""
    return lambda messages, context: Compaction(first, last, summary)


class Summarizer:
    """A compaction function: all but the last `tail` messages become one summary, when there are two.

    With `hold` it waits for `go`. It remembers what it was shown.
    """

    def __init__(self, *, tail: int = 1, hold: bool = False) -> None:
        self.tail = tail
        self.shown: list[list[Message]] = []
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        if not hold:
            self.go.set()

    async def __call__(self, messages: list[Message], context: CompactContext) -> Compaction | None:
        self.shown.append(messages)
        self.asked.set()
        await self.go.wait()
        covered = messages[: len(messages) - self.tail]
        if len(covered) < 2:
            return None
        return Compaction(covered[0].id, covered[-1].id, f"summary {len(self.shown)}")


def session_on(store: Any, *, id: str = "", agent: str = "Assistant/room") -> Session:
    """A session as a process has it that has just started; read nothing yet. Its clock stands still."""
    return Session(AgentStore(store, agent), now=lambda: 1_000, id=id)
