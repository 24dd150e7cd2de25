"""A reader of one agent that remembers what it was shown, and can wait for more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import chunks as ui
from ..journal.feed import ChunksStored, FeedEvent, TurnAccepted, TurnEnded

if TYPE_CHECKING:
    from ..app.app import App
    from ..runtime.actor import Actor
    from ..think import Think

__all__ = ["Witness"]

LONGEST = 60.0
"""Seconds that a wait takes at most, unless it is told otherwise."""


class Witness:
    """Sees what every reader of an agent sees: only what is stored already, in order.

    `look` is called with everything that is shown, at the moment it is shown.
    """

    def __init__(self, home: Actor, look: Callable[[FeedEvent], object] | None = None) -> None:
        self.shown: list[FeedEvent] = []
        """Everything that was shown, in order."""
        self._look = look
        self._more = asyncio.Event()
        self.leave = home.feed.join(self._see)
        """Call it to see nothing more."""

    @classmethod
    async def of(
        cls,
        app: App,
        agent: type[Think],
        name: str = "default",
        *,
        look: Callable[[FeedEvent], object] | None = None,
    ) -> Witness:
        """Watch an agent of an app; it is loaded when it is not there."""
        directory = await app.open()
        return cls(await directory.reach(directory.address(agent, name)), look)

    @property
    def chunks(self) -> list[ui.Chunk]:
        """What the model said and did, of all turns."""
        return [chunk for s in self.shown if isinstance(s, ChunksStored) for chunk in s.chunks]

    @property
    def text(self) -> str:
        """The words among them."""
        return "".join(chunk.delta for chunk in self.chunks if isinstance(chunk, ui.TextDelta))

    @property
    def over(self) -> list[TurnEnded]:
        """The turns that have ended."""
        return [shown for shown in self.shown if isinstance(shown, TurnEnded)]

    async def until(self, reached: Callable[[], bool], *, within: float = LONGEST) -> None:
        """Return once what was shown makes `reached()` true. `TimeoutError` says what was shown instead."""
        try:
            async with asyncio.timeout(within):
                while not reached():
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            kinds = [type(shown).__name__ for shown in self.shown[-10:]]
            said = f"shown were {kinds} and the words {self.text[-200:]!r}"
            raise TimeoutError(f"{within:g} s passed without it: {said}") from None

    async def until_text(self, text: str, *, within: float = LONGEST) -> None:
        """Return once these words were shown."""
        await self.until(lambda: text in self.text, within=within)

    async def until_accepted(self, count: int, *, within: float = LONGEST) -> None:
        """Return once so many turns were accepted."""
        await self.until(
            lambda: sum(isinstance(shown, TurnAccepted) for shown in self.shown) >= count, within=within
        )

    async def until_over(self, count: int = 1, *, within: float = LONGEST) -> TurnEnded:
        """Return once so many turns have ended; gives the last of them."""
        await self.until(lambda: len(self.over) >= count, within=within)
        return self.over[count - 1]

    def _see(self, shown: FeedEvent) -> None:
        if self._look is not None:
            self._look(shown)
        self.shown.append(shown)
        self._more.set()
