"""The agents of this process that are in memory, and how to reach one.

    handle, socket, alarm --(class, name)--> Directory --> Actor

At most one live instance exists per address. Callers that arrive while it starts share that
start; a start that fails leaves nothing behind, so the next caller tries again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from ..clock import Clock
from ..errors import AgentError, StoreClosed
from ..models.port import Model
from ..observe.bus import EventBus
from ..store.port import Store
from . import queries
from .actor import Actor, Resident

__all__ = ["Directory", "new_id"]

MAX_NAME = 512


def new_id() -> str:
    """A fresh id that sorts by time: short rows of one agent lie together in the database."""
    stamp = (time.time_ns() // 1_000_000) << 80
    return str(uuid.UUID(int=stamp | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)))


class Directory:
    """The live agents of one process."""

    def __init__(
        self,
        classes: Mapping[str, type[Resident]],
        *,
        base: type[Resident],
        store: Store,
        clock: Clock,
        bus: EventBus,
        resolve_model: Callable[[Any], Model],
        ids: Callable[[], str] = new_id,
    ) -> None:
        self._classes = classes
        self._parts: dict[str, Any] = {
            "base": base,
            "store": store,
            "clock": clock,
            "bus": bus,
            "new_id": ids,
            "resolve_model": resolve_model,
        }
        self.store, self._clock = store, clock
        self._live: dict[tuple[str, str], asyncio.Task[Actor]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._live)

    async def reach(self, cls: type[Resident], name: str, props: Any = None) -> Actor:
        """The live agent at this address, started if need be."""
        if self._closed:
            raise StoreClosed("The app is closed.", next_step="Use the agent inside `async with App(...)`.")
        if self._classes.get(cls.__name__) is not cls:
            known = ", ".join(sorted(self._classes)) or "none"
            raise AgentError(
                f"{cls.__name__} is not an agent of this app (it has: {known}).",
                next_step=f"Add it: App({cls.__name__}, ...).",
            )
        _check_name(name)
        key = (cls.__name__, name)
        task = self._live.get(key)
        if task is None:
            task = self._live[key] = asyncio.create_task(self._start(cls, name, props), name=f"start {key}")
        elif task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
        try:
            return await asyncio.shield(task)
        except BaseException:
            if task.done() and self._live.get(key) is task:
                del self._live[key]
            raise

    async def _start(self, cls: type[Resident], name: str, props: Any) -> Actor:
        actor = Actor(cls, name, **self._parts)
        await self.store.apply(
            [queries.known(actor.id, cls=cls.__name__, name=name, now=self._clock.now_ms())]
        )
        await actor.start(props)
        return actor

    async def evict(self, cls: type[Resident], name: str, *, grace: float = 0.0) -> None:
        """Drop an agent from memory; the next one to reach it starts it anew."""
        task = self._live.pop((cls.__name__, name), None)
        if task is not None:
            await (await task).stop(grace)

    async def close(self, *, grace: float) -> None:
        """Stop every agent."""
        self._closed = True
        actors = [task.result() for task in self._live.values() if _is_up(task)]
        for task in self._live.values():
            task.cancel()
        self._live.clear()
        await asyncio.gather(*(actor.stop(grace) for actor in actors))


def _is_up(task: asyncio.Task[Actor]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or "\x00" in name:
        raise AgentError(
            f"An agent's name is text of 1 to {MAX_NAME} characters; this one is {str(name)[:40]!r}."
        )
