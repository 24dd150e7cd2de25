"""Tell the hooks of extensions what happens in a turn, in the order in which they were loaded.

    HookRunner, after the agent's own hook --> Listening --snapshot, at most hook_timeout--> each extension

Only what `before_turn` says counts. One that is slow, raises or says nonsense is told in the log and passed
over: the turn goes on, and the next extension hears all the same. Pieces of the answer are not waited for:
those that come while an extension is busy reach it together, in their order, before it hears of the step.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..hooks.listeners import Listeners
from ..hooks.values import (
    ChunkContext,
    StepResult,
    ToolCall,
    ToolDecision,
    ToolOutcome,
    TurnConfig,
    TurnContext,
)
from ..words import said
from . import snapshots
from .merging import merged
from .port import LoadedExtension
from .values import HookName

if TYPE_CHECKING:
    from .manager import ExtensionManager

__all__ = ["Listening"]

log = logging.getLogger("everthink.extensions")

MORE = 1.0
"""Seconds beyond its own limit after which an extension that does not end by itself is left alone."""
MOST_PIECES = 5_000
"""Pieces of an answer that wait for an extension; those beyond are left out."""


class Listening:
    """The hooks of the extensions of one agent."""

    def __init__(
        self,
        loaded: ExtensionManager,
        timeout: Callable[[], float],
        background: Callable[[Awaitable[Any]], None],
    ) -> None:
        self._loaded, self._timeout, self._background = loaded, timeout, background
        self._pieces: list[_Pieces] = []
        self._heard: Sequence[LoadedExtension] = ()
        """Those for whom there are pieces."""

    def listeners(self) -> Listeners:
        """The same, as an agent's hooks take it."""
        return Listeners(
            hears=self.hears,
            before_turn=self.before_turn,
            before_tool_call=self.before_tool_call,
            after_tool_call=self.after_tool_call,
            on_step_finish=self.on_step_finish,
            on_chunk=self.on_chunk,
        )

    def hears(self, hook: Any) -> bool:
        """True when an extension hears it."""
        return bool(self._loaded.get_hook_subscribers(hook))

    async def before_turn(self, context: TurnContext, config: TurnConfig | None) -> TurnConfig | None:
        """The config of a turn after all of them have had their say."""
        for one in self._loaded.get_hook_subscribers("before_turn"):
            so_far = config or TurnConfig()
            answer = await self._ask(one, "before_turn", snapshots.of_turn(context, so_far))
            if isinstance(answer, Mapping):
                said_so = cast("Mapping[str, Any]", answer)
                config = merged(so_far, said_so, context, one.manifest.name, _noting(one))
        return config

    async def before_tool_call(self, call: ToolCall, decision: ToolDecision | None) -> None:
        """Show a call that is about to run."""
        await self._show("before_tool_call", snapshots.of_call(call, decision))

    async def after_tool_call(self, outcome: ToolOutcome) -> None:
        """Show what came of it."""
        await self._show("after_tool_call", snapshots.of_outcome(outcome))

    async def on_step_finish(self, step: StepResult) -> None:
        """Show a step, after all pieces of its answer."""
        for pieces in list(self._pieces):
            await pieces.delivered(self._timeout())
        await self._show("on_step_finish", snapshots.of_step(step))

    def on_chunk(self, context: ChunkContext) -> None:
        """Take a piece of the answer along."""
        subscribers = self._loaded.get_hook_subscribers("on_chunk")
        if self._heard is not subscribers:
            known = {id(pieces.one): pieces for pieces in self._pieces}
            self._pieces = [known.get(id(one)) or _Pieces(one, self._tell) for one in subscribers]
            self._heard = subscribers
        snapshot = snapshots.of_chunk(context)
        for pieces in self._pieces:
            if pieces.take(snapshot):
                self._background(pieces.begin())

    async def _show(self, hook: HookName, snapshot: dict[str, Any]) -> None:
        for one in self._loaded.get_hook_subscribers(hook):
            await self._ask(one, hook, snapshot)

    async def _ask(self, one: LoadedExtension, hook: HookName, snapshot: dict[str, Any]) -> Any:
        return await self._tell(one, hook, lambda: one.hook(hook, snapshot))

    async def _tell(self, one: LoadedExtension, hook: HookName, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask an extension, and pass it over when it does not answer as it should."""
        seconds = self._timeout()
        try:
            async with asyncio.timeout(seconds + MORE):
                return await ask()
        except TimeoutError:
            _note(one, hook, f"took longer than {seconds:g} s")
        except Exception as error:  # noqa: BLE001 - an extension never ends a turn
            _note(one, hook, f"failed: {said(error)}")
        return None


def _note(one: LoadedExtension, hook: HookName, what: str) -> None:
    """Say it in the log, and beside what the extension has said itself."""
    log.warning("%s of the extension %r %s", hook, one.manifest.name, what)
    _noting(one)(f"{hook} {what}")


def _noting(one: LoadedExtension) -> Callable[[str], None]:
    """Puts a line beside what the extension has said itself."""

    def note(line: str) -> None:
        printed: deque[str] | None = getattr(one, "printed", None)
        if printed is not None:
            printed.append(line)

    return note


class _Pieces:
    """What an extension has not been told yet of an answer."""

    def __init__(
        self,
        one: LoadedExtension,
        tell: Callable[[LoadedExtension, HookName, Callable[[], Awaitable[Any]]], Awaitable[Any]],
    ) -> None:
        self.one, self._tell = one, tell
        self._waiting: list[dict[str, Any]] = []
        self._is_telling: asyncio.Task[None] | None = None
        self._dropped = 0

    def take(self, snapshot: dict[str, Any]) -> bool:
        """Take a piece. True when somebody has to begin telling."""
        if len(self._waiting) >= MOST_PIECES:
            self._dropped += 1
            return False
        self._waiting.append(snapshot)
        return self._is_telling is None

    def begin(self) -> asyncio.Task[None]:
        """Tell what waits."""
        self._is_telling = asyncio.ensure_future(self._told())
        return self._is_telling

    async def _told(self) -> None:
        try:
            while waiting := self._waiting:
                self._waiting = []
                await self._tell(self.one, "on_chunk", lambda given=waiting: self.one.chunks(given))
        finally:
            self._is_telling = None
            if self._dropped:
                log.warning(
                    "on_chunk of the extension %r is too slow: %d pieces were left out",
                    self.one.manifest.name,
                    self._dropped,
                )
                self._dropped = 0

    async def delivered(self, seconds: float) -> None:
        """Wait until nothing waits, or for so long: one that is slow hears the rest later."""
        if self._is_telling is not None:
            await asyncio.wait({self._is_telling}, timeout=seconds)
