"""An agent that writes down what was called, and ways to wait for it without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from everthink import App, Think
from everthink.runtime.actor import Actor
from everthink.store.port import Statement
from everthink.testing.clock import ManualClock
from tests.support.agents import live

__all__ = ["Diary", "Failing", "move", "quiet", "storage"]


class Failing:
    """Raises these one after the other, `None` standing for success; the last one for ever."""

    def __init__(self, *outcomes: BaseException | None) -> None:
        self._outcomes = list(outcomes)

    def __call__(self) -> None:
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if outcome is not None:
            raise outcome


class Diary:
    """What the agents of one test did, in order, and a class of agents that write into it.

    `note` only writes. `fail` does what `outcome` says after writing. `wait` stays until `gate` opens.
    """

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.errors: list[BaseException] = []
        self.items: list[Any] = []
        self.outcome: Callable[[], None] = lambda: None
        self.gate = asyncio.Event()
        self._more = asyncio.Event()

    def write(self, line: Any) -> None:
        self.lines.append(line)
        self._more.set()

    async def until(self, count: int) -> None:
        """Return once there are so many lines."""
        while len(self.lines) < count:
            self._more.clear()
            await self._more.wait()

    def agent(self, **members: Any) -> type[Any]:
        """A class of agents, with more members if you like."""
        diary = self

        class Keeper(Think):
            async def note(self, payload: Any, item: Any) -> None:
                diary.items.append(item)
                diary.write(payload)

            async def fail(self, payload: Any) -> None:
                diary.write(payload)
                diary.outcome()

            async def wait(self, payload: Any) -> None:
                diary.write(payload)
                await diary.gate.wait()

            def on_error(self, error: BaseException) -> None:
                diary.errors.append(error)

        return type("Keeper", (Keeper,), members)


async def quiet(app: App) -> None:
    """Return once nothing is due and nothing runs."""
    await (await app.open()).waker.idle()


async def move(app: App, clock: ManualClock, seconds: float) -> None:
    """Let time pass, and everything that is due then happen."""
    await clock.advance(seconds)
    await quiet(app)


async def storage(app: App, cls: type[Think], name: str, sql: str) -> Any:
    """Change something behind the agent's back."""
    home: Actor = (await live(app.agent(cls, name)))._home
    return (await home.store.apply([Statement(sql)]))[0]
