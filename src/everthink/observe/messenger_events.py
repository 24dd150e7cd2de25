"""What an agent reports of messengers: what came, what was left, what was delivered."""

from __future__ import annotations

import logging

from .events import EventBody, event

__all__ = [
    "MessengerDelivered",
    "MessengerDeliveryChanged",
    "MessengerDeliveryFailed",
    "MessengerDeliveryRetried",
    "MessengerIgnored",
    "MessengerReceived",
    "MessengerRefused",
]


@event("messenger:received")
class MessengerReceived(EventBody, frozen=True, kw_only=True):
    """Something came from a platform, and is answered. `is_new` is false for a redelivery."""

    messenger: str
    kind: str
    thread: str
    is_new: bool


@event("messenger:ignored")
class MessengerIgnored(EventBody, frozen=True, kw_only=True):
    """Something came from a platform that nobody answers: what kind of thing it was."""

    messenger: str
    what: str


@event("messenger:refused", level=logging.WARNING)
class MessengerRefused(EventBody, frozen=True, kw_only=True):
    """A webhook was called by somebody who is not the platform, or with what it does not send."""

    messenger: str
    reason: str


@event("messenger:delivery:changed")
class MessengerDeliveryChanged(EventBody, frozen=True, kw_only=True):
    """A message is on its way to a platform (`sending`), or is there while more of it follows (`sent`)."""

    messenger: str
    turn_id: str
    part: int
    state: str


@event("messenger:delivered")
class MessengerDelivered(EventBody, frozen=True, kw_only=True):
    """A message is shown, the whole of it. Parts from 1000 on are questions."""

    messenger: str
    turn_id: str
    part: int


@event("messenger:delivery:retried")
class MessengerDeliveryRetried(EventBody, frozen=True, kw_only=True):
    """A platform did not take a message. It is tried again `after` so many seconds."""

    messenger: str
    turn_id: str
    part: int
    after: float
    error: str


@event("messenger:delivery:failed", level=logging.WARNING)
class MessengerDeliveryFailed(EventBody, frozen=True, kw_only=True):
    """A message is not shown, and nobody tries again."""

    messenger: str
    turn_id: str
    part: int
    error: str
