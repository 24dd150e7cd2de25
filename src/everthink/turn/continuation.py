"""Go on by itself after a browser tool's result or a person's answer.

    result, approval (auto_continue) --50 ms quiet--> nothing streams, nothing open? --> one turn

However many results of a step arrive, in whatever order, one continuation follows, once the last of
them is in. Which calls are open is read from the conversation; that a batch wants to go on is kept in
memory only, so after a restart one of its remaining answers has to say so again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..clock import Timer
from ..messages import Message, Part, is_tool_part
from .admission import Door, House
from .turn import Turn

__all__ = ["Continuation", "Continuations", "is_incomplete"]

QUIET = 0.05
_OPEN = frozenset({"input-available", "approval-requested"})


@dataclass(slots=True)
class Continuation:
    """A continuation that will run: its id is on the wire before it begins."""

    request_id: str
    owner: str | None
    """The connection that answered."""


class Chatty(House, Protocol):
    """A house whose agent goes on by itself."""

    door: Door
    last_body: dict[str, Any] | None

    def client_tools(self) -> Any:
        """The tools the browser declared last."""
        ...


def is_incomplete(message: Message | None) -> bool:
    """True when some calls of the last step wait for an answer while others have theirs."""
    if message is None or message.role != "assistant":
        return False
    step: list[Part] = []
    for part in message.parts:
        step = [] if part.get("type") == "step-start" else [*step, part]
    return any(part.get("state") in _OPEN for part in step if is_tool_part(part))


class Continuations:
    """The continuation an agent is about to make, if any."""

    def __init__(self, house: Chatty, *, refused: Callable[[Continuation], None]) -> None:
        self._house, self._refused = house, refused
        self.armed: Continuation | None = None
        self._starting: Continuation | None = None
        self._timer: Timer | None = None

    @property
    def pending(self) -> Continuation | None:
        """The continuation that will run and is not accepted yet."""
        return self._starting or self.armed

    def answered(self, *, auto_continue: bool, owner: str | None) -> None:
        """A call was answered. Without `auto_continue` it may only complete a batch that wants to go on."""
        if auto_continue:
            if self.armed is None:
                self.armed = Continuation(self._house.new_id(), owner)
            else:
                self.armed.owner = owner or self.armed.owner
        if self.armed is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._house.clock.call_later(QUIET, self.check)

    def check(self) -> None:
        """Start the continuation unless something streams or a call is open. Asked again when a turn ends."""
        armed, house = self.armed, self._house
        if armed is None or not house.queue.is_idle or is_incomplete(house.session.leaf):
            return
        self.reset()
        self._starting = armed
        house.background(self._go_on(armed))

    def reset(self) -> None:
        """Forget it (the conversation was cleared, or it begins)."""
        self.armed = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _go_on(self, armed: Continuation) -> None:
        house = self._house
        turn: Turn = house.door.turn(
            "auto-continuation",
            request_id=armed.request_id,
            continuation=True,
            body=house.last_body,
            client_tools=house.client_tools(),
        )
        turn.origin = armed.owner
        try:
            await house.door.admit(turn)
        except asyncio.CancelledError:
            raise
        except Exception:
            self._refused(armed)
            raise
        finally:
            self._starting = None
