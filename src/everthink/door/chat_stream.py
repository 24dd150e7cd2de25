"""`chat()`: one turn, with its chunks as they become durable.

    async for chunk in agent.chat("hi"): ...            result = await agent.chat("hi", callback=cb)

The turn belongs to the agent, not to whoever reads: leaving the loop early does not stop it.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, NamedTuple, Protocol, cast

from .. import chunks as ui
from ..calling import awaited, call_hook
from ..errors import InvalidTurn, TurnFailed
from ..hooks.values import TurnResult
from ..journal.feed import (
    ChunksStored,
    Feed,
    FeedEvent,
    RecoveryChanged,
)
from ..journal.turn import Turn
from ..settings import nearest, shown, snake
from ..surface import can_take
from .admission import Admitted

__all__ = ["ChatStream", "Prepared", "StreamCallback"]


class StreamCallback(Protocol):
    """What a callback may have; each method may be `def` or `async def`.

    `on_interrupted()` is optional: the turn stalled and goes on by itself, so it is neither done nor
    failed. A callback that has it is told nothing more; one that has not stays until the turn's end.
    """

    def on_start(self, request_id: str, /) -> Any:
        """The turn has an id and can be cancelled. Before it is queued."""
        ...

    def on_event(self, json: str, /) -> Any:
        """One chunk, as JSON text."""
        ...

    def on_done(self) -> Any:
        """The turn completed and its answer is stored. `on_chat_response` comes after this has returned."""
        ...

    def on_error(self, error: str, /) -> Any:
        """The turn failed."""
        ...


class Prepared:
    """A turn ready to be admitted: what `ChatStream` needs of its agent."""

    def __init__(
        self,
        turn: Turn,
        feed: Feed,
        admit: Callable[[], asyncio.Future[Admitted]],
        forget: Callable[[], object],
    ) -> None:
        self.turn, self.feed, self.admit, self.forget = turn, feed, admit, forget


class _Asked(NamedTuple):
    """The turn of a stream, once it is on its way.

    Whoever awaits its result has a last word before the response hook (`turn.heard`); a loop may be left.
    """

    turn: Turn
    admitting: asyncio.Future[Admitted]
    leave: Callable[[], object]


_EVENTS = ("on_start", "on_event", "on_done", "on_error", "on_interrupted")


class ChatStream:
    """A turn being streamed. Iterate over its chunks, or await its result: until then nothing is asked, and
    one that is thrown away before is warned about.

    It asks once. Awaited later, or again, it gives the result of that turn; its chunks come once, and a
    second loop over them raises `InvalidTurn`.

    With `raises` a turn that could not be set up raises what kept it from it, as `save_messages` does.
    """

    def __init__(
        self,
        prepare: Callable[[], Awaitable[Prepared | TurnResult]],
        callback: Any = None,
        *,
        raises: bool = False,
    ) -> None:
        _check_callback(callback)
        self._prepare, self._callback, self._raises = prepare, callback, raises
        self._asking = asyncio.Lock()
        self._asked: _Asked | TurnResult | None = None
        self._shown: deque[ChunksStored] = deque()
        self._arrived = asyncio.Event()
        # A callback that can be told of an interruption leaves then; everybody else waits for the turn's end.
        self._is_interrupted = False
        self._leaves = callable(getattr(callback, "on_interrupted", None))
        self.request_id: str = ""
        self.result: TurnResult | None = None
        """The turn's result, once it ended."""
        self._made_by = _caller()
        self._is_begun = False

    _is_begun = True  # one that could not be made is nobody's mistake twice

    def __del__(self) -> None:
        if not self._is_begun and not sys.is_finalizing():
            method, file, line = self._made_by
            warnings.warn_explicit(
                f"{method}() was never iterated or awaited: nothing was asked. Write"
                f" `await ….{method}(…)` or `async for chunk in ….{method}(…)`.",
                RuntimeWarning,
                file,
                line,
            )

    async def prepare(self) -> Prepared | TurnResult:
        """Begin: what is needed to admit the turn, or its result when there is none."""
        self._is_begun = True
        return await self._prepare()

    def __await__(self) -> Generator[Any, None, TurnResult]:
        return self._to_the_end().__await__()

    async def __aiter__(self) -> AsyncIterator[ui.Chunk]:
        """Yield each chunk. A turn that failed raises `TurnFailed` after its last chunk."""
        if not await self._ask():
            raise self._was_read()
        async for told in self._follow():
            for chunk in told.chunks:
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
        heard = asyncio.Event()
        if not await self._ask(heard):
            return await self._result()
        try:
            async for told in self._follow(heard):
                if on_event is not None:
                    for body in told.bodies:
                        await call_hook(cast("Any", on_event), body)
        finally:
            heard.set()
        assert self.result is not None
        if self.result.status == "error":
            await self._tell("on_error", self.result.error or "The turn failed.")
        return self.result

    async def _ask(self, heard: asyncio.Event | None = None) -> bool:
        """Begin the turn, unless that was done: True for the one who has its chunks to read."""
        async with self._asking:
            if self._asked is not None:
                return False
            prepared = await self.prepare()
            if isinstance(prepared, TurnResult):
                self._asked = self.result = prepared
                return True
            turn = prepared.turn
            turn.heard = heard
            self.request_id = turn.request_id
            try:
                await self._tell("on_start", turn.request_id)
            except BaseException:
                prepared.forget()  # the turn was never accepted
                raise
            leave = prepared.feed.join(lambda told: self._take(turn, told))
            try:
                self._asked = _Asked(turn, prepared.admit(), leave)
            except BaseException:
                leave()
                raise
            return True

    async def _follow(self, heard: asyncio.Event | None = None) -> AsyncIterator[ChunksStored]:
        asked = self._asked
        if not isinstance(asked, _Asked):
            await self._tell("on_start", "")
            await self._tell("on_done")
            return
        turn = asked.turn
        try:
            ended = (await asyncio.shield(asked.admitting)).ended
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
            if heard is not None:
                if (await asyncio.shield(ended)).status == "completed":
                    await self._tell("on_done")
                heard.set()
            await self._result()
        finally:
            asked.leave()

    async def _result(self) -> TurnResult:
        """The result of the one turn that was asked, once it ended."""
        asked = self._asked
        if isinstance(asked, _Asked) and (self.result is None or self.result.status == "interrupted"):
            outcome = await (await asyncio.shield(asked.admitting)).outcome()
            if self._raises:
                outcome.raise_setup_failure()
            self.result = outcome.result()
        assert self.result is not None
        return self.result

    def _was_read(self) -> InvalidTurn:
        method = self._made_by[0]
        return InvalidTurn(
            f"The chunks of this {method}() were read already, or are being read: they come once.",
            kept="Its turn is not asked for again.",
            next_step=f"Await the stream for its result; to ask again, call {method}() again.",
        )

    def _take(self, turn: Turn, told: FeedEvent) -> None:
        if isinstance(told, ChunksStored) and told.turn is turn:
            self._shown.append(told)
            self._arrived.set()
        elif isinstance(told, RecoveryChanged) and told.turn is turn and told.recovering:
            self._is_interrupted = True
            self._arrived.set()

    async def _tell(self, event: str, *args: Any) -> None:
        method = None if callable(self._callback) else getattr(self._callback, event, None)
        if method is not None:
            await awaited(method(*args))


def _caller() -> tuple[str, str, int]:
    """Which method of ours was called to get here, and where: file and line."""
    frame = inner = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("everthink."):
        inner, frame = frame, frame.f_back
    return inner.f_code.co_name, frame.f_code.co_filename, frame.f_lineno


def _check_callback(callback: Any) -> None:
    """Refuse what would never be told anything. Raises `InvalidTurn`."""
    takes = f"It takes a function of the chunk as JSON text, or an object with {', '.join(_EVENTS)}."
    if callback is None:
        return
    if callable(callback):
        if not can_take(callback, 1):
            raise InvalidTurn(f"The callback {shown(callback)} takes more than a chunk.", next_step=takes)
        return
    called = [event for event in _EVENTS if callable(getattr(callback, event, None))]
    for name in dir(callback):
        if name.startswith("on") and name not in _EVENTS:
            meant = snake(name) if snake(name) in _EVENTS else nearest(name, _EVENTS, like=0.8)
            if meant is not None and meant not in called:
                raise InvalidTurn(
                    f"The callback {shown(callback)} has {name!r}, which is never called.",
                    next_step=f"Did you mean {meant!r}?",
                )
    if not called:
        raise InvalidTurn(f"The callback is {shown(callback)}.", next_step=takes)
