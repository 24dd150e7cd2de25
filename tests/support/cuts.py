"""Cutting turns off, and waiting for what is reported of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everthink import App, Think
from everthink.journal.read import read_journal
from everthink.observe.events import Event
from tests.support.agents import live

from .turns import Database, home_of

__all__ = ["Reports", "cut", "incidents", "kept", "pull"]


class Reports:
    """What an app reports of its recoveries, and a way to wait for it."""

    def __init__(self, app: App, *types: str) -> None:
        self.all: list[Event] = []
        self._more = asyncio.Event()
        known = ("detected", "attempt", "scheduled", "completed", "skipped", "failed", "exhausted")
        app.events.subscribe(self._take, type=types or tuple(f"chat:recovery:{name}" for name in known))

    def _take(self, event: Event) -> None:
        self.all.append(event)
        self._more.set()

    @property
    def names(self) -> list[str]:
        return [event.type.removeprefix("chat:recovery:") for event in self.all]

    def of(self, name: str) -> list[dict[str, Any]]:
        """What was reported under this name."""
        return [event.payload for event in self.all if event.type.endswith(f":{name}")]

    async def until(self, name: str, count: int = 1) -> dict[str, Any]:
        """Return what was reported as number `count` under this name."""
        await self._until(lambda: len(self.of(name)) >= count)
        return self.of(name)[count - 1]

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not reached():
                self._more.clear()
                await self._more.wait()


def incidents(folder: Path) -> list[dict[str, Any]]:
    """The records of incidents in the database of `folder`."""
    return Database(folder).rows("SELECT * FROM incidents")


async def kept(app: App, cls: type[Think], said: str = "Half ", name: str = "room") -> None:
    """Return once a turn that runs has these words in the journal. What is not there nobody was shown."""
    home = await home_of(app, cls, name)
    async with asyncio.timeout(20):
        while turns := home.chat.host.turns:
            for turn in turns:
                journal = await read_journal(home.store, turn.id, message_id=turn.message_id)
                if said in journal.fold.message().text:
                    return
            await asyncio.sleep(0)


async def pull(app: App, cls: type[Think], *, said: str = "Half ", name: str = "room") -> None:
    """Drop the agent from memory, as a process that dies would, once it has said so much."""
    await kept(app, cls, said, name)
    await app.evict(cls, name)


async def cut(app: App, cls: type[Think], *, said: str = "Half ", name: str = "room") -> None:
    """The same, and start it again."""
    await pull(app, cls, said=said, name=name)
    await live(app.agent(cls, name))
