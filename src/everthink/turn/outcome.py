"""How a turn ended, or that it has not: what performing one gives back.

turn/attempt, recovery/ --Outcome | Postponed--> door/admission --> response hook, caller
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..hooks.values import (
    ChatResponse,
    Stage,
    StoppedBy,
    TurnResult,
    TurnStatus,
)
from ..journal.turn import Turn
from ..messages import Message
from ..session.row_size import is_cut
from ..store.port import Statement

__all__ = ["Outcome", "Postponed", "Recoverer", "reason_of"]


@dataclass(slots=True)
class Outcome:
    """How a turn ended. `error` is the exception, `text` what people may read of it."""

    turn: Turn
    status: TurnStatus
    error: BaseException | None = None
    text: str | None = None
    stage: Stage = "stream"
    message: Message | None = None
    output: Any = None
    stopped_by: StoppedBy | None = None
    fires_response: bool = False

    @property
    def is_setup_failure(self) -> bool:
        """True when the turn failed before the model was asked."""
        return self.status == "error" and self.stage in ("turn", "persist", "transcript")

    def raise_setup_failure(self) -> None:
        """Raise what kept the turn from being set up, if anything did."""
        if self.is_setup_failure and self.error is not None:
            raise self.error

    def result(self) -> TurnResult:
        """What the turn APIs give back."""
        return TurnResult(
            request_id=self.turn.request_id,
            status=self.status,
            continuation=self.turn.continuation,
            error=self.text if self.status != "aborted" else reason_of(self.turn),
            message=self.message.copy() if self.message else None,
            output=self.output,
            stopped_by=self.stopped_by,
            usage=self.turn.usage,
            cut=tuple(self.turn.cut) + ((self.message.id,) if self.message and is_cut(self.message) else ()),
        )

    def response(self) -> ChatResponse | None:
        """What `on_chat_response` is given; `None` when it does not fire."""
        if not self.fires_response or self.status == "skipped":
            return None
        message = self.message or Message(self.turn.message_id, "assistant", [])
        return ChatResponse(
            message.copy(),
            self.turn.request_id,
            self.turn.continuation,
            self.status,
            self.text,
            self.output,
            self.turn.identity,
        )


@dataclass(frozen=True, slots=True)
class Postponed:
    """The turn is not over and cannot go on now: it gives up its place and comes again."""

    seconds: float


def reason_of(turn: Turn) -> str | None:
    """Why the turn was aborted, if anybody said so."""
    return None if turn.signal.reason is None else str(turn.signal.reason)


class Recoverer(Protocol):
    """Decides about interrupted turns. `recovery/recover.py` is it."""

    @property
    def is_on(self) -> bool:
        """False when the agent wants interrupted turns to fail."""
        ...

    @property
    def patience(self) -> float:
        """Seconds an interrupted turn waits for its place."""
        ...

    def interrupt(self, turn: Turn) -> None:
        """A turn was cut off and is to go on: tell those who wait for it."""
        ...

    async def decide(self, turn: Turn) -> Outcome | Postponed | None:
        """Decide about a turn that was cut off. `None`: it goes on, from `turn.journal`."""
        ...

    async def queue_timeout(self, turn: Turn) -> Outcome | Postponed:
        """The turn waited for its place in vain."""
        ...

    def closing(self, turn: Turn, status: TurnStatus) -> list[Statement]:
        """What to write together with the end of a turn."""
        ...

    def closed(self, turn: Turn, status: TurnStatus) -> None:
        """The turn's end is durable."""
        ...
