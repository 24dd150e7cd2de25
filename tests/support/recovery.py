"""One agent whose turns are cut off, again and again, and who wakes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from everthink import App, Think
from everthink.errors import TurnInterrupted
from everthink.recovery import queries
from everthink.recovery.incident import Incident
from everthink.runtime.actor import Actor
from everthink.testing import ManualClock, ScriptedModel
from tests.support.agents import live

from .agents import assistant
from .turns import all_over, home_of

__all__ = ["Room"]


class Room:
    """The agent `room` of an app whose clock stands still."""

    def __init__(self, app: App, cls: type[Think], model: ScriptedModel, clock: ManualClock) -> None:
        self.app, self.cls, self.model, self.clock = app, cls, model, clock
        self._asked: list[asyncio.Task[Any]] = []

    @classmethod
    async def open(cls, open_app: Any, *plays: Any, **members: Any) -> Room:
        """A new app with an agent that follows this script. Call it again for another process."""
        clock = members.pop("clock", None) or ManualClock()
        continues = members.pop("continues", "prompt")
        model = ScriptedModel(*plays, continues=continues)
        agent = assistant(model, **members)
        return cls(await open_app(agent, clock=clock), agent, model, clock)

    @property
    def agent(self) -> Any:
        """The agent, as callers have it."""
        return self.app.agent(self.cls, "room")

    async def home(self) -> Actor:
        """Where the agent lives; it is started if need be."""
        return await home_of(self.app, self.cls, "room")

    async def ask(self, text: Any = "Hi", **options: Any) -> None:
        """Begin a turn and let it run until the model is silent."""
        self._asked.append(asyncio.create_task(self._ask(text, options)))
        await self.silence()

    async def _ask(self, text: Any, options: dict[str, Any]) -> None:
        with contextlib.suppress(TurnInterrupted):
            await self.agent.save_messages(text, **options)

    async def silence(self) -> None:
        """Return once the model is silent and all it said is durable and shown."""
        await self.model.until_silent()
        await self.flushed()

    async def flushed(self) -> None:
        """Return once all that was said so far is durable and shown."""
        home = await self.home()
        # Commits are made in order: one may be under way, and one may have to follow it.
        for _ in range(2):
            await asyncio.sleep(0)
            await home.store.apply([queries.forget_incident("nothing")])

    async def cut(self, *, after: float = 0.0) -> None:
        """Pull the plug, and let time pass before anybody comes back."""
        await self.app.evict(self.cls, "room")
        await asyncio.gather(*self._asked)
        self._asked.clear()
        await self.clock.advance(after)

    async def put_off(self) -> None:
        """Return once a turn has given up its place and waits for its time."""
        home = await self.home()
        await home.chat.door.queue.wait_for_idle()
        await self.clock.until_waiting()

    async def wake(self) -> Any:
        """Reach the agent, and return when its turns are over."""
        await all_over(self.app, self.cls, "room")
        return await live(self.agent)

    async def wake_into_silence(self) -> None:
        """Reach the agent, and return when the model is silent again."""
        await self.home()
        await self.silence()

    async def texts(self) -> list[str]:
        """The conversation."""
        return [message.text for message in await self.agent.get_messages()]

    async def incidents(self) -> list[Incident]:
        """The records that are kept."""
        home = await self.home()
        return [queries.incident_of(row) for row in await home.store.fetch(queries.ALL)]
