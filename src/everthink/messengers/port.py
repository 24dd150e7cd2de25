"""What a platform must be able to do, so that agents can talk there.

    POST /messengers/{id}/webhook --verify--> parse --> events        in
    courier --> post, edit, find, typing                              out
    a tool --> fetch                                                  files, only when somebody asks

An adapter is thin: it verifies, parses and sends. It keeps nothing, reads no clock, waits for nobody and
tries nothing again: what it raises says what may be done, and the courier does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, runtime_checkable

from ..errors import AgentError
from .values import Arrived, Attachment, Capabilities, Draft, MessengerEvent, MessengerLimits, Target

__all__ = [
    "LONGEST_BODY",
    "DeliveryError",
    "Messenger",
    "Moved",
    "RateLimited",
    "Refused",
    "Uncertain",
    "Unreachable",
]

LONGEST_BODY = 1024 * 1024
"""Bytes of a webhook's body, of platforms that send no files with it. An adapter that has a `longest_body` is
sent no more; others are sent as much as `Limits.frame_bytes` says."""


@runtime_checkable
class Messenger(Protocol):
    """A bot on one platform: one account of it."""

    @property
    def provider(self) -> str:
        """The platform's name: `"telegram"`."""
        ...

    @property
    def user_name(self) -> str:
        """The bot's handle, without @."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the platform can do."""
        ...

    @property
    def limits(self) -> MessengerLimits:
        """How much and how often."""
        ...

    def verify(self, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
        """True when the platform has sent this. Compared in constant time; `now` is seconds since 1970.

        Names of headers are in small letters. Nothing of the body is parsed before it.
        """
        ...

    def parse(self, headers: Mapping[str, str], body: bytes) -> Arrived:
        """What a webhook's body comes to. Pure. Raises `ValueError` for one that is not the platform's."""
        ...

    async def post(self, target: Target, draft: Draft, *, key: str) -> str:
        """Show a new message. Returns the platform's id of it.

        `key` is the same for every try of the same message: 25 characters at most. Raises `DeliveryError`s.
        """
        ...

    async def edit(self, target: Target, ref: str, draft: Draft) -> None:
        """Show `draft` in the place of the message `ref`. What is shown already is no error."""
        ...

    async def find(self, target: Target, key: str, *, since: float) -> str | None:
        """The id of the message that was posted with `key`, if there is one.

        Asked only where `capabilities.repeats` is `"findable"`. `since`: seconds since 1970.
        """
        ...

    async def typing(self, target: Target) -> None:
        """Show that an answer is being written. Raises nothing that matters: the courier does not look."""
        ...

    async def withdraw(self, target: Target) -> None:
        """There is no answer after all: where the platform shows that one is awaited, it stops."""
        ...

    async def notify(self, event: MessengerEvent, text: str | None) -> None:
        """Answer whoever pressed a button: with a word that only they see, or `None` for a mere yes."""
        ...

    async def fetch(self, attachment: Attachment, *, most: int) -> bytes:
        """The bytes of a file, at most so many. An address that is not the API's is opened guarded."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class DeliveryError(AgentError):
    """Something could not be shown on a platform."""


class RateLimited(DeliveryError):
    """The platform wants to be left alone for `after` seconds. Nothing was shown."""

    def __init__(self, what: str, *, after: float) -> None:
        super().__init__(
            what, next_step=f"The platform wants to be asked again in {after:g} s at the earliest."
        )
        self.after = after


class Unreachable(DeliveryError):
    """The platform is not there, or has failed, and nothing was shown. It is tried again."""


class Uncertain(DeliveryError):
    """It was sent, and nobody knows whether it is shown: the answer of the platform is missing."""


class Moved(DeliveryError):
    """The chat is another one now. What goes to the old one goes to `to`, and what is said in the thread that
    was `before` is said in `after`."""

    def __init__(self, what: str, *, to: Target, before: str, after: str) -> None:
        super().__init__(what, next_step="It is sent there.")
        self.to, self.before, self.after = to, before, after


class Refused(DeliveryError):
    """The platform will not show this, however often it is asked.

    `why`: `"blocked"`, the bot is not let in there any more; `"gone"`, the message or the chat is deleted;
    `"invalid"`, the platform does not understand what was sent; `"unauthorized"`, the bot's token is not
    valid.
    """

    def __init__(
        self, what: str, *, why: Literal["blocked", "gone", "invalid", "unauthorized"] = "invalid"
    ) -> None:
        super().__init__(what)
        self.why: Literal["blocked", "gone", "invalid", "unauthorized"] = why
