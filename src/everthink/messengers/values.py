"""What comes from a platform and what goes there, whatever platform it is: plain values, no I/O.

    body of a webhook --Messenger.parse--> Arrived(events=[MessengerEvent, …])
    MessengerEvent --the room--> a turn of a conversation, and a row that says where its answer goes: Target
    the turn's words --the courier--> Draft --Messenger.post, edit--> what a person sees

All of them are JSON: `encode` and `decode` give back what went in, also in the next process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from ..surface import knows_its_options

__all__ = [
    "Action",
    "Arrived",
    "Attachment",
    "Author",
    "Button",
    "Capabilities",
    "Draft",
    "EventKind",
    "Incoming",
    "MessengerContext",
    "MessengerEvent",
    "MessengerLimits",
    "Target",
    "Thread",
    "WebhookReply",
    "decode",
    "encode",
    "going_on",
]

EventKind = Literal["direct-message", "mention", "message", "subscribed-message", "action"]
"""What has happened. An adapter says `"message"` for what is said in a group without naming the bot; the room
makes it `"subscribed-message"` where the thread is subscribed. A message that was edited is the same message:
it has the same id."""

T = TypeVar("T")


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    pass


class Thread(_Value, frozen=True):
    """Where people talk: a chat, a topic of it, a thread of a channel."""

    id: str
    """One for all that is said there: `telegram:42`, `telegram:-100:7`, `slack:C1:1700000000.1`."""
    is_direct_message: bool = False
    channel_id: str | None = None
    """What the platform calls the chat."""
    channel_name: str | None = None
    title: str | None = None


class Author(_Value, frozen=True):
    """Who has written it, or pressed a button."""

    user_id: str
    user_name: str | None = None
    full_name: str | None = None
    is_bot: bool = False
    is_me: bool = False
    """True for what the bot itself has written."""


class Attachment(_Value, frozen=True):
    """A file that came along. Nothing of it is loaded before somebody asks for it: `fetch_attachment`."""

    id: str | None = None
    name: str | None = None
    media_type: str | None = None
    size: int | None = None
    url: str | None = None
    """An address that people may open; never one with a secret in it."""
    fetch_metadata: dict[str, Any] = {}
    """What the adapter needs to load it, in another process, too. No secrets."""


class Incoming(_Value, frozen=True):
    """A message that somebody wrote."""

    id: str
    """One for each message of the messenger: redeliveries have the same."""
    text: str
    author: Author
    attachments: tuple[Attachment, ...] = ()
    created_at: float | None = None
    """Seconds since 1970, as the platform says."""
    is_mention: bool = False


class Action(_Value, frozen=True):
    """A button that somebody pressed, or a command that a platform sends as one."""

    action_id: str
    """What `Button.id` was."""
    user: Author
    value: str | None = None
    message_id: str | None = None
    """The message that the button is on."""


class Target(_Value, frozen=True):
    """Where an answer goes. Kept in the delivery's row, so it says all that `post` and `edit` need."""

    chat: str
    thread: str | None = None
    """The topic, or the thread of a channel."""
    reply_to: str | None = None
    """The message that is answered."""
    is_direct: bool = False
    user: str | None = None
    """Who is answered."""
    more: dict[str, Any] = {}
    """What else the adapter needs: the token of an interaction, until when it is good."""
    is_more: bool = False
    """True for what follows the first message of an answer. Where a platform waits for that one, as Discord
    does after a command, what follows is a message of its own."""
    asks_for: str | None = None
    """The agent that works for the one who was asked, by the name that people see: what it asks them is shown
    there, what it says is not. `None`: the one who was asked."""


class MessengerEvent(_Value, frozen=True):
    """Something that happened on a platform, in one form for all of them."""

    kind: EventKind
    thread: Thread
    target: Target
    message: Incoming | None = None
    """Of every kind but `"action"`."""
    action: Action | None = None
    """Of an `"action"`."""
    answering: dict[str, Any] = {}
    """What `Messenger.notify` needs to answer whoever pressed a button; and as `ref` the id, as `post` gives
    it, of the message that the button is on."""

    @property
    def author(self) -> Author:
        """Who has written, or pressed."""
        if self.message is not None:
            return self.message.author
        assert self.action is not None
        return self.action.user


class MessengerContext(_Value, frozen=True):
    """Whom an answer is for: what `get_messenger_context()` says during a turn that came by a messenger."""

    messenger_id: str
    provider: str
    kind: EventKind
    thread: Thread
    author: Author
    message: Incoming | None = None
    action: Action | None = None
    capabilities: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class WebhookReply:
    """What a webhook is answered with, when it is not a plain 200."""

    body: Mapping[str, Any] | str
    status: int = 200


@dataclass(frozen=True, slots=True)
class Arrived:
    """What the body of one webhook, or one poll, comes to."""

    events: tuple[MessengerEvent, ...] = ()
    reply: WebhookReply | None = None
    """For challenges, pings and deferred answers. It is sent once the events are durable."""
    moved: tuple[tuple[str, str], ...] = ()
    """Threads that have another id from now on: before and after."""
    ignored: tuple[str, ...] = ()
    """The kinds of updates in it that mean nothing to us. They are counted, and answered 200."""


class Button(_Value, frozen=True):
    """A button below a message. What is pressed comes back as an `Action` with this id."""

    id: str
    """At most 60 characters of ASCII."""
    label: str
    style: Literal["primary", "danger"] | None = None


class Draft(_Value, frozen=True):
    """A message as it is to be seen: the whole of it, whenever it is posted or edited."""

    text: str
    """Markdown, as models write it. It may end in the middle while it is streamed."""
    buttons: tuple[Button, ...] = ()
    is_final: bool = True
    """False while more is to come."""


@knows_its_options()
@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a platform can do."""

    edit_messages: bool = True
    stream: bool = True
    """Whether an answer is shown while it is written."""
    actions: bool = True
    """Whether there are buttons."""
    attachments: bool = True
    ephemeral: bool = False
    """Whether one person can be told something that others do not see."""
    repeats: Literal["keyed", "findable", "neither"] = "neither"
    """What is known of a message that was sent when the process died before it could write that down.
    `"keyed"`: posting with the same key again is the same message. `"findable"`: `find` finds it.
    `"neither"`: nobody knows, and `on_uncertain` decides."""

    def as_json(self) -> dict[str, Any]:
        """As the model's code and a page are told."""
        return {
            "canEditMessages": self.edit_messages,
            "canStream": self.stream,
            "supportsActions": self.actions,
            "supportsAttachments": self.attachments,
            "supportsEphemeral": self.ephemeral,
        }


@knows_its_options()
@dataclass(frozen=True, slots=True, kw_only=True)
class MessengerLimits:
    """How much and how often. Times are seconds."""

    visible: int
    """Characters of an answer in the message that is streamed; what is longer follows in further ones."""
    follow_up: int
    """Characters of each of those."""
    edit_every: float
    """Between two edits of one message with one person."""
    edit_every_in_groups: float
    sends_per_second: float = 30.0
    """Messages and edits of one bot, in all chats together."""
    typing_for: float = 5.0
    """How long a platform shows that somebody writes."""
    first_words: int = 20
    """Characters before a message is shown that is still being written."""
    most: int | None = None
    """Characters of the longest message that the platform takes. Default: `visible` or `follow_up`, whichever
    is more."""
    counts: Literal["characters", "utf-16"] = "characters"
    """What a character is here. In UTF-16 most emoji are two or more."""

    @property
    def longest(self) -> int:
        """Characters of the longest message that the platform takes."""
        return self.most or max(self.visible, self.follow_up)

    def length(self, text: str) -> int:
        """How long a text is, as the platform counts."""
        if self.counts == "characters" or text.isascii():
            return len(text)
        return len(text.encode("utf-16-le", "surrogatepass")) // 2


def going_on(target: str) -> str:
    """Where what follows the first message of an answer goes, both as JSON."""
    return encode(msgspec.structs.replace(decode(Target, target), is_more=True))


def encode(value: Any) -> str:
    """One of the values above as JSON text."""
    return msgspec.json.encode(value).decode()


def decode(kind: type[T], text: str | bytes) -> T:
    """The value that `encode` wrote."""
    return msgspec.json.decode(text, type=kind)
