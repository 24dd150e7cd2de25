"""Who is answered, by whom, and what the model is told: decisions about what came from a platform.

    MessengerEvent --answered--> yes or no --conversation_of--> who answers --as_message--> what they are told

Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from ..errors import InvalidSettings
from ..kinds import shown
from ..messages import Message
from ..messengers.definition import Command, MessengerDefinition, SelfConversation, SubAgentConversation
from ..messengers.values import Attachment, Author, MessengerContext, MessengerEvent
from ..words import said as on_one_line

__all__ = [
    "CONTEXT",
    "Who",
    "addressed",
    "as_message",
    "command_in",
    "context_of",
    "conversation_name",
    "is_answered",
    "key_of",
    "label_of",
    "message_id",
    "resolved",
    "stable",
]

CONTEXT = "messenger"
"""Under this name the metadata of a message says whom its answer is for."""
_ID_KEYS = ("id", "fileId", "mediaId", "fileUniqueId")
_LONGEST, _LONGEST_FILE = 80, 255


@dataclass(frozen=True, slots=True)
class Who:
    """Who answers: a child of that name, the agent itself (no name), or a top-level agent."""

    name: str = ""
    cls: type[Any] | None = None
    is_agent: bool = False
    """True for a top-level agent."""


# --- who is answered


def addressed(event: MessengerEvent, *, is_subscribed: bool) -> MessengerEvent:
    """The event as what it is in its thread: what is said where the bot listens is `subscribed-message`."""
    if event.kind == "message" and is_subscribed:
        return msgspec.structs.replace(event, kind="subscribed-message")
    return event


def is_answered(event: MessengerEvent, definition: MessengerDefinition) -> bool:
    """True when somebody is to answer this."""
    author, wanted = event.author, definition.respond_to
    if author.is_me or (author.is_bot and not definition.answer_bots):
        return False
    match event.kind:
        case "direct-message" | "mention" | "action":
            return event.kind in wanted
        case "subscribed-message":
            return "subscribed-thread" in wanted
        case "message":
            return False


def command_in(event: MessengerEvent, definition: MessengerDefinition) -> Command | None:
    """The command that a message is, if the messenger has it: `/stop`, `/new@my_bot`."""
    if event.message is None or event.kind == "message":
        return None
    text = re.sub(
        rf"^@{re.escape(definition.messenger.user_name)}\s+", "", event.message.text.strip(), flags=re.I
    )
    found = re.fullmatch(r"/([a-z]+)(?:@(\w+))?", text, flags=re.I)
    if found is None or found[1].lower() not in definition.commands:
        return None
    if found[2] is not None and found[2].lower() != definition.messenger.user_name.lower():
        return None
    return cast("Command", found[1].lower())


# --- who answers


def stable(text: str) -> str:
    """A text as part of a name: of letters, digits, `:`, `_` and `-`. One that was changed ends in a hash."""
    plain = re.sub(r"[^A-Za-z0-9:_-]", "_", text)
    if plain == text and len(plain) <= _LONGEST:
        return plain
    return f"{plain[:48]}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def conversation_name(messenger_id: str, thread: str) -> str:
    """The name of the conversation of a thread."""
    return f"messenger:{messenger_id}:{stable(thread)}"


def resolved(answer: Any) -> Who:
    """Who answers, by what a function for `conversation` returned. Raises `InvalidSettings`."""
    if isinstance(answer, Mapping):
        given = cast("Mapping[str, Any]", answer)
        if given.get("target") == "self":
            return Who()
        if given.get("target") == "subagent":
            answer = SubAgentConversation(given.get("name", ""), given.get("agent_class"))
    match cast("object", answer):
        case SelfConversation() | "self":
            return Who()
        case "thread" | "agent" as word:
            raise InvalidSettings(
                f"The function for conversation returned {word!r}, which would be one child for everybody.",
                kept="Nobody answers.",
                next_step=f"Write conversation={word!r} instead of the function, or return another name for"
                " each thread: f'chat-{context.thread.id}'.",
            )
        case str(name) if name.strip():
            return Who(name)
        case SubAgentConversation(name, cls) if isinstance(cast("Any", name), str) and name.strip():
            return Who(name, cls)
        case other:
            raise InvalidSettings(
                f"The function for conversation returned {shown(other)}.",
                kept="Nobody answers.",
                next_step="It returns 'self', the name of a child, or SubAgentConversation(name, cls).",
            )


# --- what is kept of it


def key_of(messenger_id: str, event: MessengerEvent) -> str:
    """What an event is known by: a redelivery has the same."""
    if event.message is not None:
        part = stable(event.message.id or "unknown-message")
    else:
        action = event.action
        assert action is not None
        said = [
            stable(action.message_id or "unknown-message"),
            stable(action.action_id),
            stable(action.user.user_id or "unknown-user"),
            stable(action.value if action.value is not None else "no-value"),
        ]
        part = ":".join(["action", *said])
    return f"messenger:{messenger_id}:message:{event.thread.id}:{part}"


def message_id(messenger_id: str, event: MessengerEvent) -> str:
    """The id of the message that an event becomes in the conversation."""
    if event.message is not None:
        return f"{messenger_id}:{event.message.id}"
    action = event.action
    assert action is not None
    source = f"{action.message_id}:" if action.message_id else ""
    return f"{messenger_id}:action:{event.thread.id}:{source}{action.action_id}"


def context_of(messenger_id: str, event: MessengerEvent, definition: MessengerDefinition) -> MessengerContext:
    """Whom the answer is for, as code and the next process can read it."""
    return MessengerContext(
        messenger_id=messenger_id,
        provider=definition.messenger.provider,
        kind=event.kind,
        thread=event.thread,
        author=event.author,
        message=event.message,
        action=event.action,
        capabilities=definition.messenger.capabilities.as_json(),
    )


# --- what the model is told


def as_message(
    messenger_id: str, event: MessengerEvent, definition: MessengerDefinition, parts: Sequence[Any] = ()
) -> Message:
    """The message that the conversation is told. `parts` are files that were loaded."""
    if event.message is not None:
        text = _labelled(event.message.text.strip(), event, definition)
        if event.message.attachments:
            text = "\n\n".join(part for part in (text, _described(event.message.attachments)) if part)
    else:
        action = event.action
        assert action is not None
        lines = [f"Action selected: {action.action_id}"]
        if action.value is not None:
            lines.append(f"Value: {action.value}")
        if action.message_id is not None:
            lines.append(f"Source message: {action.message_id}")
        text = _labelled("\n".join(lines), event, definition)
    context = msgspec.to_builtins(context_of(messenger_id, event, definition))
    said = [{"type": "text", "text": text}, *parts]
    return Message(message_id(messenger_id, event), "user", said, {CONTEXT: context})


def label_of(author: Author, label: Callable[[Author], str | None] | None) -> str | None:
    """What stands before somebody's words in a group; `None`: nothing. People choose their names: one that
    has lines would put words into the mouth of somebody else."""
    names = [label(author)] if label is not None else [author.full_name, author.user_name, author.user_id]
    return next((line for name in names if name and (line := on_one_line(name, _LONGEST))), None)


def _labelled(text: str, event: MessengerEvent, definition: MessengerDefinition) -> str:
    if event.thread.is_direct_message:
        return text
    label = label_of(event.author, definition.speaker_label)
    return f"{label}: {text}" if label else text


def _described(attachments: Sequence[Attachment]) -> str:
    lines = ["Attachments:"]
    for number, one in enumerate(attachments, 1):
        size = None if one.size is None else f"{one.size} bytes"
        details = on_one_line(", ".join(part for part in (one.media_type, size, one.url) if part), 1_000)
        name = on_one_line(one.name or one.id or "", _LONGEST_FILE) or f"attachment {number}"
        lines.append(f"- {name} ({details})" if details else f"- {name}")
    return "\n".join(lines)


def with_id(attachment: Attachment) -> Attachment:
    """A file with an id: its own, or one that loading it needs."""
    if attachment.id:
        return attachment
    found = next(
        (attachment.fetch_metadata.get(key) for key in _ID_KEYS if attachment.fetch_metadata.get(key)), None
    )
    return attachment if found is None else msgspec.structs.replace(attachment, id=str(found))
