"""Who is offered which stream, and what an ack is answered with. Decisions only.

    probe or ack + what the agent is doing --> what to say

A connection that joins a running turn must end up with exactly the same text, once. So it is
offered the stream, held out of live chunks until it acks, and then gets everything from the start.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Ended",
    "Failed",
    "Ignore",
    "Nothing",
    "Offer",
    "Replay",
    "View",
    "Wait",
    "answer_ack",
    "answer_probe",
]


@dataclass(frozen=True, slots=True)
class View:
    """What an agent is doing, as far as a reader is concerned. Ids are request ids."""

    active: str | None = None
    """The turn that streams."""
    active_owner: str | None = None
    """The connection a streaming continuation belongs to, when that connection is still there."""
    continuation: str | None = None
    """A continuation that is armed and has not begun."""
    continuation_owner: str | None = None
    failed: str | None = None
    """The last turn, when it failed."""
    accepted: str | None = None
    """A turn that is accepted and has said nothing yet."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Offer the stream. `holds`: keep the connection out of live chunks until it acks."""

    id: str
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    """Something will stream: tell so, and offer it when it does."""

    id: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing to resume for this connection."""

    reason: str


def answer_probe(view: View, connection: str) -> Offer | Wait | Nothing:
    """What a connection that asks is told. The first rule that fits."""
    if view.active is not None:
        if view.active_owner is not None and view.active_owner != connection:
            return Nothing("continuation-owned")
        return Offer(view.active)
    if view.continuation is not None and view.continuation_owner in (None, connection):
        return Wait(view.continuation)
    if view.failed is not None:
        return Offer(view.failed, holds=False)
    if view.accepted is not None:
        return Wait(view.accepted)
    return Nothing("idle")


@dataclass(frozen=True, slots=True)
class Replay:
    """All chunks so far, then live."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The chunks of the failed turn, then its error."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over: its chunks if they are still there, then done."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Another stream is running: say nothing."""


def answer_ack(view: View, id: str) -> Replay | Failed | Ended | Ignore:
    """What a connection that accepts a stream gets."""
    if view.active == id:
        return Replay()
    if view.active is not None:
        return Ignore()
    if view.failed == id:
        return Failed()
    return Ended()
