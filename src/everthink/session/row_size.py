"""What a message may weigh: cleaning and cutting before storage and before the model.

    fold --Message--> clean --> fit (storage)          older messages --> shorten (prompt only)

Pure. `fit` changes what is stored and says so in the message's metadata; `shorten`
only changes what the model is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..context.activated_skills import carries_activated, is_activation
from ..context.loaded_documents import LOAD
from ..messages import Message, Part, encode_json, is_tool_part, tool_name
from ..settings import as_settings, check_fields
from .overlay import is_overlay

__all__ = [
    "MAX_ROW_BYTES",
    "Shortening",
    "clean",
    "cut",
    "fit",
    "is_cut",
    "shorten",
    "shortening_of",
    "storable",
    "will_be_cut",
]

MAX_ROW_BYTES = 1_800_000
_LONG = 1000
_EPHEMERAL = ("itemId", "reasoningEncryptedContent")

log = logging.getLogger("everthink.session")


@dataclass(frozen=True, slots=True)
class Shortening:
    """How much of older messages the model is shown. What is stored stays whole."""

    keep_recent_messages: int = 4
    """The latest messages are shown as they are."""
    max_output_chars: int = 500
    """What is shown of a tool's result in an older one."""
    max_text_chars: int = 10_000
    """What is shown of a text in an older one."""

    def __post_init__(self) -> None:
        check_fields(self, "Shortening")


_USUAL = Shortening()


def shortening_of(setting: bool | Shortening | Mapping[str, Any]) -> Shortening | None:
    """What `shorten_old_messages` asks for: `None` when it is off; what is not said has its default."""
    if isinstance(setting, bool):
        return _USUAL if setting else None
    return as_settings(Shortening, setting, "shorten_old_messages")


def storable(message: Message) -> Message:
    """The message as it may be stored: cleaned, and cut if its row would be too large."""
    return fit(clean(message))


def clean(message: Message) -> Message:
    """Drop provider data that is worthless later, and empty thinking. The same object if unchanged."""
    parts: list[Part] = []
    changed = False
    for part in message.parts:
        cleaned = _without_ephemeral(part)
        changed = changed or cleaned is not part
        if (
            cleaned.get("type") == "reasoning"
            and not str(cleaned.get("text", "")).strip()
            and not cleaned.get("providerMetadata")
        ):
            changed = True  # redacted thinking keeps its metadata and so survives
            continue
        parts.append(cleaned)
    if not changed:
        return message
    return message.with_parts(parts)


def _without_ephemeral(part: Part) -> Part:
    for field in ("providerMetadata", "callProviderMetadata"):
        metadata = part.get(field)
        openai = cast("Any", metadata.get("openai") if isinstance(metadata, dict) else None)
        if not isinstance(openai, dict) or not any(key in openai for key in _EPHEMERAL):
            continue
        kept = {k: v for k, v in cast("dict[str, Any]", openai).items() if k not in _EPHEMERAL}
        rest = {k: v for k, v in cast("dict[str, Any]", metadata).items() if k != "openai"}
        if kept:
            rest["openai"] = kept
        part = {k: v for k, v in part.items() if k != field}
        if rest:
            part[field] = rest
    return part


def fit(message: Message, limit: int = MAX_ROW_BYTES) -> Message:
    """Cut the largest contents until the message's JSON fits `limit` bytes."""
    size = len(encode_json(message))
    if size <= limit:
        return message
    log.warning(
        "message %s has %d bytes, more than the %d a row may hold; it is cut", message.id, size, limit
    )
    small = message.copy()
    metadata = dict(small.metadata or {})
    if small.role == "assistant":
        cut_ids: list[str] = []
        for part in small.parts:
            if (
                is_tool_part(part)
                and part.get("state") == "output-available"
                and _length(part.get("output")) > _LONG
            ):
                part["output"] = cut(part["output"], _LONG)
                cut_ids.append(part["toolCallId"])
        if cut_ids:
            metadata["compactedToolOutputs"] = cut_ids
            small.metadata = metadata
    cut_texts: list[int] = []
    size = len(encode_json(small))
    for index, part in enumerate(small.parts):
        if size <= limit:
            break
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str) and len(text) > _LONG:
            before = len(encode_json(part))
            part["text"] = (
                f"[Text truncated for storage ({len(text)} chars). First 500 chars: {text[:500]}...]"
            )
            # Without what the row gains in notes, which is a few characters.
            size -= before - len(encode_json(part))
            cut_texts.append(index)
            metadata["compactedTextParts"] = cut_texts
            small.metadata = metadata
    return small


def will_be_cut(message: Message) -> bool:
    """True for a message that is too large to be stored as it is."""
    return len(encode_json(message)) > MAX_ROW_BYTES and is_cut(storable(message))


def is_cut(message: Message) -> bool:
    """True for a message of which `fit` has taken something away."""
    return any(key in (message.metadata or {}) for key in ("compactedToolOutputs", "compactedTextParts"))


def shorten(message: Message, how: Shortening = _USUAL) -> Message:
    """One older message as the model is shown it. The same object when it is short enough."""
    parts: list[Part] = []
    changed = False
    for part in message.parts:
        if (is_tool_part(part) and tool_name(part) == LOAD) or is_activation(part):
            pass  # a document stays whole until it is unloaded, and a skill for good
        elif carries_activated(part) and is_overlay(message):
            pass  # so do the skills of a summary
        elif "output" in part and _length(part["output"]) > how.max_output_chars:
            part = {**part, "output": cut(part["output"], how.max_output_chars)}
            changed = True
        elif part.get("type") == "text" and len(part.get("text", "")) > how.max_text_chars:
            part = {**part, "text": _cut_text(part["text"], how.max_text_chars)}
            changed = True
        parts.append(part)
    return message.with_parts(parts) if changed else message


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else _written(value)


def _cut_text(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    suffix = f"... [truncated {len(text) - limit} chars]"
    return text[: max(0, limit - len(suffix))] + suffix


def cut(value: Any, limit: int, depth: int = 0) -> Any:
    """`value` in at most about `limit` characters of JSON, keeping its type: text stays text, lists lists."""
    size = _length(value)
    if size <= limit:
        return value
    if isinstance(value, str):
        suffix = f"... [truncated {size} chars]"
        return value[: max(0, limit - len(suffix))] + suffix
    if depth >= 8:
        return f"... [truncated {size} chars]"
    if isinstance(value, list):
        return _cut_list(cast("list[Any]", value), limit, size, depth)
    if isinstance(value, dict):
        return _cut_dict(cast("dict[str, Any]", value), limit, size, depth)
    return value


def _budget(count: int, room: int) -> int:
    return max(80, room if count <= 1 else room // min(count, 10))


def _cut_list(value: list[Any], limit: int, size: int, depth: int) -> list[Any]:
    """As many items from the front, each cut to its share, as there is room for."""
    share = _budget(len(value), limit - 44)
    items: list[Any] = []
    length = 2
    for item in value:
        small = cut(item, share, depth + 1)
        length += _written(small) + (1 if items else 0)
        if length > limit - 40:
            break
        items.append(small)
    if len(items) < len(value):
        items.append(f"... [truncated {len(value) - len(items)} items]")
    return items if _length(items) <= limit else [{"__truncated": True, "__truncatedChars": size}]


def _cut_dict(value: dict[str, Any], limit: int, size: int, depth: int) -> dict[str, Any]:
    # What the keys and the marks take is not the children's to share.
    room = limit - 64 - sum(len(key) + 4 for key in value)
    if room < 0 and len(value) > limit:
        return {"__truncated": True, "__truncatedChars": size, "note": "too large to keep"}
    share = _budget(len(value), room)
    small = {key: cut(item, share, depth + 1) for key, item in value.items()}
    length = _length(small)
    if length > limit - 60:
        by_length: Callable[[str], int] = lambda key: -len(small[key])  # noqa: E731 - a sort key
        for key in sorted((k for k, v in small.items() if isinstance(v, str)), key=by_length):
            if length <= limit - 60:
                break
            before = _written(small[key])
            small[key] = _cut_text(small[key], max(20, limit // 4))
            length -= before - _written(small[key])
    if length <= limit - 60:
        return {**small, "__truncated": True, "__truncatedChars": size}
    return {"__truncated": True, "__truncatedChars": size, "note": "too large to keep"}


def _written(value: Any) -> int:
    """Characters of its JSON, quotes included."""
    return len(encode_json(value).decode())
