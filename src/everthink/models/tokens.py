"""How many tokens something takes, near enough to decide when a conversation is too long.

    messages, prompt, blocks --> estimate (or the user's counter) --> compaction, limits of blocks

Pure, and cheap enough to run on every append. The numbers are an estimate whose rules are fixed,
so that a threshold means the same everywhere; who knows the real ones gives a `token_counter`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..calling import awaited
from ..messages import Message, Part, encode_json

__all__ = [
    "TokenCount",
    "TokenCounter",
    "as_count",
    "counted",
    "estimate_message",
    "estimate_messages",
    "estimate_tokens",
]

_PER_MESSAGE = 4
_PIECE = 16_384
"""So many characters are cut into words at once."""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """What a `token_counter` is asked to count: all of it together."""

    messages: Sequence[Message]
    system_prompt: str = ""
    """The part of the prompt that the session writes."""
    context_blocks: Sequence[Any] = ()
    """The blocks the prompt was written from, with their contents."""


TokenCounter = Callable[[TokenCount], float | Awaitable[float]]
"""A function that knows better than the estimate, such as a provider's own tokenizer."""


def estimate_tokens(value: Any) -> int:
    """About how many tokens `value` takes: text as it is, anything else as its JSON, `None` nothing."""
    if type(value) is str:
        text = value
    elif value is None:
        return 0
    else:
        text = _written(value)
    if not text:
        return 0
    # In UTF-16 units, as clients measure text.
    units = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    return math.ceil(max(units / 4, _words(text) * 1.3))


def _words(text: str) -> int:
    """How many words it has, without a list of all of them: a text may be long."""
    if len(text) <= _PIECE:
        return len(text.split())
    words, is_inside = 0, False
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE]
        words += len(piece.split()) - (is_inside and not piece[0].isspace())
        is_inside = not piece[-1].isspace()
    return words


def estimate_message(message: Message) -> int:
    """About how many tokens one message takes in a prompt."""
    total = _PER_MESSAGE
    for part in message.parts:
        total += _part(part)
    return total


def estimate_messages(messages: Iterable[Message]) -> int:
    """About how many tokens the messages take in a prompt."""
    return sum(map(estimate_message, messages))


async def counted(counter: TokenCounter | None, count: TokenCount) -> int:
    """What `counter` makes of `count`, or the estimate when there is none. What it raises goes through."""
    if counter is None:
        return estimate_messages(count.messages) + estimate_tokens(count.system_prompt)
    return as_count(await awaited(counter(count)))


def as_count(value: object) -> int:
    """A counter's answer as a number of tokens: rounded up, and 0 for what is no amount."""
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        return 0
    return max(0, math.ceil(float(value)))


def _part(part: Part) -> int:
    kind = part.get("type")
    if kind in ("text", "reasoning"):
        return estimate_tokens(_first(part, "text", "reasoning"))
    if type(kind) is str and (kind.startswith("tool-") or kind == "dynamic-tool"):
        return estimate_tokens(part.get("input")) + estimate_tokens(_first(part, "output", "result"))
    return estimate_tokens(_first(part, "text", "result"))


def _first(part: Part, name: str, other: str) -> Any:
    value = part.get(name)
    return part.get(other) if value is None else value


def _written(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    try:
        return encode_json(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return str(value)  # has no JSON: an estimate needs no more than its length
