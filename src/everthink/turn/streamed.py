"""`chat()`: one turn, with its chunks as they become durable.

    async for chunk in agent.chat("hi"): ...            result = await agent.chat("hi", callback=cb)

The turn belongs to the agent, not to whoever reads: leaving the loop early does not stop it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Protocol, cast

from .. import chunks as ui
from ..errors import TurnFailed
from .admission import Admitted
from .audience import Audience, RecoveryChanged, Shown, ShownChunks
from .hooks import TurnResult, call_hook
from .turn import Turn

__all__ = ["ChatStream", "Prepared", "StreamCallback"]


class StreamCallback(Protocol):
    """What a callback may have; each method may be `def` or `async def`.

    `on_interrupted()` is optional: the turn stalled and goes on by itself, so it is neither done nor
    failed. A callback that has it is told nothing more; one that has not stays until the turn's end.
    """

    def on_start(self, request_id: str) -> Any:
        """The turn has an id and can be cancelled. Before it is queued."""
        ...

    def on_event(self, json: str) -> Any:
        """One chunk, as JSON text."""
        ...

    def on_done(self) -> Any:
        """The turn completed and its answer is stored. `on_chat_response` comes after this has returned."""
        ...

    def on_error(self, error: str) -> Any:
        """The turn failed."""
        ...


class Prepared:
    """A turn ready to be admitted: what `ChatStream` needs of its agent."""

    def __init__(
        self,
        turn: Turn,
        audience: Audience,
        admit: Callable[[], Awaitable[Admitted]],
        forget: Callable[[], object],
    ) -> None:
        self.turn, self.audience, self.admit, self.forget = turn, audience, admit, forget


class ChatStream:
    """A turn being streamed. Iterate over its chunks, or await its result.

    With `raises` a turn that could not be set up raises what kept it from it, as `save_messages` does.
    """

    def __init__(
        self,
        prepare: Callable[[], Awaitable[Prepared | TurnResult]],
        callback: Any = None,
        *,
        raises: bool = False,
    ) -> None:
        self.prepare, self._callback, self._raises = prepare, callback, raises
        self._shown: deque[ShownChunks] = deque()
        self._arrived = asyncio.Event()
        # Whoever awaits the result has a last word before the response hook; a loop may be left at any time.
        self._heard: asyncio.Event | None = None
        # A callback that can be told of an interruption leaves then; everybody else waits for the turn's end.
        self._is_interrupted = False
        self._leaves = callable(getattr(callback, "on_interrupted", None))
        self.request_id: str = ""
        self.result: TurnResult | None = None
        """The turn's result, once it ended."""

    def __await__(self) -> Generator[Any, None, TurnResult]:
        return self._to_the_end().__await__()

    async def __aiter__(self) -> AsyncIterator[ui.Chunk]:
        """Yield each chunk. A turn that failed raises `TurnFailed` after its last chunk."""
        async for shown in self._follow():
            for chunk in shown.chunks:
                yield chunk
        if self.result is not None and self.result.status == "error":
            raise TurnFailed(
                self.result.error or "The turn failed.",
                request_id=self.request_id,
                has_partial=self.result.message is not None,
            )

    async def text(self) -> AsyncIterator[str]:
        """Yield only the pieces of text."""
        async for chunk in self:
            if type(chunk) is ui.TextDelta:
                yield chunk.delta

    async def _to_the_end(self) -> TurnResult:
        callback = self._callback
        on_event = callback if callable(callback) else getattr(callback, "on_event", None)
        self._heard = asyncio.Event()
        try:
            async for shown in self._follow():
                if on_event is not None:
                    for body in shown.bodies:
                        await call_hook(cast("Any", on_event), body)
        finally:
            self._heard.set()
        assert self.result is not None
        if self.result.status == "error":
            await self._tell("on_error", self.result.error or "The turn failed.")
        return self.result

    async def _follow(self) -> AsyncIterator[ShownChunks]:
        prepared = await self.prepare()
        if isinstance(prepared, TurnResult):
            self.result = prepared
            await self._tell("on_start", "")
            await self._tell("on_done")
            return
        turn = prepared.turn
        turn.heard = self._heard
        self.request_id = turn.request_id
        try:
            await self._tell("on_start", turn.request_id)
        except BaseException:
            prepared.forget()  # the turn was never accepted
            raise
        leave = prepared.audience.join(lambda shown: self._take(turn, shown))
        try:
            admitted = await prepared.admit()
            ended = admitted.ended
            ended.add_done_callback(lambda _: self._arrived.set())
            while not (ended.done() and not self._shown):
                while self._shown:
                    yield self._shown.popleft()
                if self._is_interrupted and self._leaves:
                    self.result = TurnResult(turn.request_id, "interrupted", continuation=turn.continuation)
                    await self._tell("on_interrupted")
                    return
                if not ended.done():
                    self._arrived.clear()
                    await self._arrived.wait()
            if self._heard is not None:
                if (await asyncio.shield(ended)).status == "completed":
                    await self._tell("on_done")
                self._heard.set()
            outcome = await admitted.outcome()
            if self._raises:
                outcome.raise_setup_failure()
            self.result = outcome.result()
        finally:
            leave()

    def _take(self, turn: Turn, shown: Shown) -> None:
        if isinstance(shown, ShownChunks) and shown.turn is turn:
            self._shown.append(shown)
            self._arrived.set()
        elif isinstance(shown, RecoveryChanged) and shown.turn is turn and shown.recovering:
            self._is_interrupted = True
            self._arrived.set()

    async def _tell(self, event: str, *args: Any) -> None:
        method = None if callable(self._callback) else getattr(self._callback, event, None)
        if method is not None:
            told = method(*args)
            if inspect.isawaitable(told):
                await told
