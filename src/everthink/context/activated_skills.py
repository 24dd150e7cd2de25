"""Instructions that a conversation has asked for stay whole: in old messages, in summaries, for good.

    activate_skill --text--> a message --(compaction)--> with_activated(summary) --> the overlay
                                       --(shortening, eviction, omission)--> is_activation: left alone

Pure. A skill that was activated is in force until the conversation is cleared, so what shortens a
conversation must not shorten it away: a summary carries the texts of those it covers at its end, each with
its length before it, and the next summary takes them from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..messages import Message, Part, is_tool_part, tool_name
from ..models.tokens import estimate_tokens

__all__ = [
    "ACTIVATE",
    "MOST_TOKENS",
    "OPENING",
    "activated_in",
    "carries_activated",
    "is_activation",
    "is_activation_text",
    "name_in",
    "with_activated",
    "without_activated",
]

ACTIVATE = "activate_skill"
OPENING = "<skill_content "
MOST_TOKENS = 40_000
"""So much of activated skills a summary carries. Those that were activated first are named only."""

_NAME = re.compile(r'<skill_content name="([^"]*)"')
_BEGINS = "\n\nSkills that were activated earlier. Their instructions are in force:\n"
_ENTRY = re.compile(r"\n<activated_skill length=\"(\d+)\">\n")
_AGAIN = "\nActivated earlier too, and left out for want of room; activate them again when you need them: "
_UNESCAPED = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"'}


def is_activation_text(tool: str, output: Any) -> bool:
    """True for what a call of a tool gave, if it is the instructions of a skill."""
    return tool == ACTIVATE and isinstance(output, str) and output.startswith(OPENING)


def is_activation(part: Part) -> bool:
    """True for a part of a message that holds the instructions of a skill."""
    if not is_tool_part(part) or part.get("state") != "output-available" or part.get("preliminary"):
        return False
    named = part.get("toolName")
    return is_activation_text(
        named if isinstance(named, str) and named else tool_name(part), part.get("output")
    )


def name_in(text: str) -> str:
    """The skill whose instructions a text is."""
    found = _NAME.match(text)
    name = "" if found is None else found[1]
    return re.sub("|".join(_UNESCAPED), lambda entity: _UNESCAPED[entity[0]], name)


IsSummary = Callable[[Message], bool]
"""Whether a message stands for others. Only such a one carries instructions in its text."""


def activated_in(messages: Iterable[Message], is_summary: IsSummary) -> dict[str, str]:
    """The instructions that messages hold, by the name of the skill: the latest of each, the latest last."""
    found: dict[str, str] = {}

    def take(name: str, text: str) -> None:
        found.pop(name, None)
        found[name] = text

    for message in messages:
        if message.role != "assistant":
            continue
        for part in message.parts:
            if part.get("type") == "text" and is_summary(message):
                for name, text in _carried(str(part.get("text", "")))[1].items():
                    take(name, text)
            elif is_activation(part):
                take(name_in(part["output"]), part["output"])
    return found


def with_activated(summary: str, messages: Iterable[Message], is_summary: IsSummary) -> str:
    """A summary of messages that carries the instructions they hold."""
    return _with(summary, activated_in(messages, is_summary))


def without_activated(message: Message) -> Message:
    """The message of a summary without what it carries: what is summarised again is its words."""
    parts = [
        {**part, "text": _carried(part["text"])[0]} if carries_activated(part) else part
        for part in message.parts
    ]
    return (
        message
        if all(a is b for a, b in zip(parts, message.parts, strict=True))
        else message.with_parts(parts)
    )


def _with(summary: str, activated: Mapping[str, str]) -> str:
    if not activated:
        return summary
    kept, left, room = list[str](), list[str](), MOST_TOKENS
    for name, text in reversed(list(activated.items())):
        room -= estimate_tokens(text)
        if room < 0 and kept:
            left.append(name)
        else:
            kept.append(text)
    entries = "".join(f'\n<activated_skill length="{len(text)}">\n{text}\n' for text in reversed(kept))
    return f"{summary}{_BEGINS}{entries}{_AGAIN + ', '.join(reversed(left)) if left else ''}"


def carries_activated(part: Part) -> bool:
    """True for the text of a summary that carries instructions."""
    return part.get("type") == "text" and _BEGINS in str(part.get("text", ""))


def _carried(text: str) -> tuple[str, dict[str, str]]:
    """The words of a summary, and the instructions that it carries."""
    words, begins, rest = text.partition(_BEGINS)
    found: dict[str, str] = {}
    if not begins:
        return text, found
    at = 0
    while (entry := _ENTRY.match(rest, at)) is not None:
        given = rest[entry.end() : entry.end() + int(entry[1])]
        at = entry.end() + int(entry[1]) + 1
        if given.startswith(OPENING):
            found[name_in(given)] = given
    return words, found
