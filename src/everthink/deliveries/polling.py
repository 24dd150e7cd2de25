"""Asking a platform for what is new, where it cannot send to us: for development, without a public address.

    Polling.start --> poll(offset) --> Inbox.take --> the offset is kept --> poll(offset) ...

The offset is kept after what it brought is durable: what comes twice is known by its key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from ..backoff import backoff
from ..clock import Clock
from ..errors import AgentError
from ..messengers.values import Arrived
from ..store.port import AgentStore, Statement
from .inbox import Inbox
from .sending import Bot

__all__ = ["OFFSETS", "Polled", "Polling"]

log = logging.getLogger("everthink.messengers")

OFFSETS = "polled"
"""Under this name an agent keeps from where it asks next, by the ids of its messengers."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


@runtime_checkable
class Polled(Protocol):
    """An adapter that can ask for what is new."""

    polls: bool
    """True when it is to."""

    async def poll(self, offset: int | None) -> tuple[int | None, list[Arrived]]:
        """What is new since `offset`, as soon as there is something; and from where to ask next."""
        ...


class Polling:
    """Asks for one agent's messengers."""

    def __init__(
        self,
        inbox: Inbox,
        store: AgentStore,
        clock: Clock,
        save_value: Callable[[str, Any], Statement],
        offsets: dict[str, int],
    ) -> None:
        self._inbox, self._store, self._clock = inbox, store, clock
        self._save_value, self._offsets = save_value, dict(offsets)

    async def run(self, bot: Bot, adapter: Polled) -> None:
        """Ask, for as long as the agent is in memory."""
        log.info("messenger %s asks its platform for what is new", bot.id)
        failures = 0
        while True:
            try:
                await bot.met()
                await self._once(bot, adapter)
                failures = 0
            except Exception as error:
                failures += 1
                pause = backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE)
                trace = None if isinstance(error, AgentError) else error
                log.warning("messenger %s asks again in %g s: %s", bot.id, pause, error, exc_info=trace)
                await self._clock.sleep(pause)

    async def _once(self, bot: Bot, adapter: Polled) -> None:
        before = self._offsets.get(bot.id)
        after, found = await adapter.poll(before)
        for arrived in found:
            await self._inbox.take(bot, arrived)
        if after is not None and after != before:
            self._offsets[bot.id] = after
            await self._store.apply([self._save_value(OFFSETS, self._offsets)])
