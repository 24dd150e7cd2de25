"""An answer on its way: chunks as they arrive, then how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

from .. import chunks as ui
from ..errors import AgentError, TurnFailed
from ..messages import Message

__all__ = ["Reply"]


class Reply:
    """What an agent says to one message, or goes on saying after an answer to its tools.

    `async for chunk in reply` is what it says, as it says it; `await reply` is the whole message. Both
    raise `TurnFailed` when the turn failed, and `NotConnected` when the connection is gone for good.
    """

    def __init__(self, cancel: Callable[[], Awaitable[None]], *, id: str | None = None) -> None:
        self.id = id
        """The id of the request. `None` for what follows an answer to a tool, until it begins."""
        self.outcome: str | None = None
        """`completed`, `error`, `aborted` or `skipped`, once it is over."""
        self.error: str | None = None
        """What went wrong, in the agent's words for people."""
        self.message: Message | None = None
        """The answer as it is kept, once it is over, if there is any."""
        self.message_id: str | None = None
        """The id under which the answer will be kept, once that is known."""
        self.text = ""
        """The text so far."""
        self._cancel = cancel
        self._chunks: list[ui.Chunk] = []
        self._failure: Exception | None = None
        self._more = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """True once nothing more comes."""
        return self.outcome is not None or self._failure is not None

    def __aiter__(self) -> AsyncIterator[ui.Chunk]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[ui.Chunk]:
        place = 0
        while True:
            while place < len(self._chunks):
                place += 1
                yield self._chunks[place - 1]
            if self.is_over:
                break
            self._more.clear()
            await self._more.wait()
        self._raise()

    def __await__(self) -> Generator[Any, None, Message]:
        return self._whole().__await__()

    async def _whole(self) -> Message:
        await self.ended()
        self._raise()
        if self.message is None:
            raise AgentError(
                f"There is no answer: the turn was {self.outcome}.",
                next_step="The agent may drop messages that come while it answers: send it again later.",
            )
        return self.message

    async def ended(self) -> str:
        """Wait until it is over. Returns how it ended, be it with an error."""
        while not self.is_over:
            self._more.clear()
            await self._more.wait()
        if self._failure is not None:
            raise self._failure
        assert self.outcome is not None
        return self.outcome

    async def cancel(self) -> None:
        """Stop it. What was said is kept."""
        await self._cancel()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.outcome == "error":
            has_partial = bool(self.text)
            raise TurnFailed(
                self.error or "The turn failed.", request_id=self.id or "", has_partial=has_partial
            )

    # --- for the conversation

    def hear(self, chunk: ui.Chunk) -> None:
        """The next chunk."""
        if isinstance(chunk, ui.Start):
            self.message_id, self.text = chunk.message_id, ""
        elif isinstance(chunk, ui.TextDelta):
            self.text += chunk.delta
        self._chunks.append(chunk)
        self._more.set()

    def finish(self, outcome: str, message: Message | None) -> None:
        """It is over. What was said while nobody listened comes as one last piece of text."""
        whole = message.text if message is not None else ""
        if whole != self.text and whole.startswith(self.text):
            self.hear(ui.TextDelta("rest", whole.removeprefix(self.text)))
        self.outcome, self.message = outcome, message
        self._more.set()

    def fail(self, error: Exception) -> None:
        """Nothing more can come."""
        self._failure = error
        self._more.set()
