"""Who did what, and who was kept from it: told to observers, a flood of refusals only in number.

    access, ChatSockets, devtools --> Auditor --Audit--> app.events

What somebody did costs work and is told each time. A refusal costs a stranger nothing, so only so many
are told in a second; the rest are counted, and nobody's refusals hide those of another address.
"""

from __future__ import annotations

from typing import Any

from ..address import Address
from ..clock import Clock, Timer
from ..observe.bus import EventBus
from ..observe.events import Audit

__all__ = ["NOBODY", "Auditor"]

NOBODY = Address("", "")
"""Whose are the refusals that are about no agent."""

WINDOW = 1.0
"""Seconds in which refusals are counted together."""
TOLD_EACH, TOLD_IN_ALL = 20, 200
"""Refusals that are told one by one in that time: of one address, and in all."""
LONGEST = 128
"""Characters of what a client named."""


class Auditor:
    """Tells the observers of one app."""

    def __init__(self, events: EventBus, clock: Clock) -> None:
        self._events, self._clock = events, clock
        # Of the window that is open.
        self._told: dict[str | None, int] = {}
        self._in_all = self._untold = 0
        self._window: Timer | None = None

    def did(self, agent: Address, action: str, *, target: str | None = None, **who: Any) -> None:
        """Somebody did something to an agent."""
        self._emit(agent, action, True, target, None, **who)

    def refused(
        self, agent: Address, action: str, reason: str, *, target: str | None = None, **who: Any
    ) -> None:
        """Somebody was kept from it. `who` are `identity`, `connection_id` and `address`.

        `NOBODY` when it is about no agent in particular."""
        if self._window is None:
            self._window = self._clock.call_later(WINDOW, self._sum_up, housekeeping=True)
        address = who.get("address")
        told = self._told.get(address, 0)
        if told >= TOLD_EACH or self._in_all >= TOLD_IN_ALL:
            self._untold += 1
            return
        self._told[address] = told + 1
        self._in_all += 1
        self._emit(agent, action, False, target, reason, **who)

    def _sum_up(self) -> None:
        untold, self._untold = self._untold, 0
        self._told.clear()
        self._in_all, self._window = 0, None
        if untold:
            self._emit(NOBODY, "refusals", False, None, f"{untold} more were refused and not told one by one")

    def _emit(
        self,
        agent: Address,
        action: str,
        allowed: bool,
        target: str | None,
        reason: str | None,
        **who: Any,
    ) -> None:
        target = None if target is None else target[:LONGEST]
        body = Audit(action=action, allowed=allowed, target=target, reason=reason, **who)
        self._events.emit(agent.cls_name, agent.name, body, agent.parents)
