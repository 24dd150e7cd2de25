"""How the demo model remembers: what it writes down, looks up, and makes of a long conversation.

    what was said, prompt, tools --> remembering --> a call of set_context or search_context
    the prompt of a compaction --> summary_of --> a summary

Plain rules on words, as everywhere in the demo model. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from .demo_tools import Call
from .port import AssistantMessage, ModelMessage, ToolCallPart, ToolSpec

__all__ = ["is_summary_wanted", "remembered", "remembering", "summary_of"]

SET, SEARCH = "set_context", "search_context"

_REMEMBER = re.compile(
    r"^(?:please\s+|can you\s+|could you\s+)?(?:remember|note|keep in mind|don't forget|do not forget)"
    r"(?: that|:)?\s+(?P<what>\S.*)$",
    re.IGNORECASE | re.DOTALL,
)
_LOOK_UP = re.compile(
    r"(?:what did (?:we|i|you) (?:say|tell you|talk|write) about"
    r"|did (?:we|i) (?:ever )?(?:mention|talk about)"
    r"|when did (?:we|i) (?:mention|talk about)"
    r"|search (?:our conversations?|our history|the history|everything) for)\s+(?P<what>.+)$",
    re.IGNORECASE,
)
_BLOCK = re.compile(
    r"═+\n(?P<header>[^\n]*)\n═+\n(?P<content>.*?)(?=\n\n═+\n|\n\nYou are running|\Z)", re.DOTALL
)
_TURN = re.compile(r"^\[(user|assistant)\]\n(.*?)(?=\n\[Tool: |\Z)", re.DOTALL)


def remembering(text: str, tools: Sequence[ToolSpec]) -> list[Call]:
    """The call that a wish to remember or to look something up asks for; none without a tool for it."""
    if (found := _REMEMBER.match(text.strip())) and (labels := _labels(tools, SET)):
        label = "memory" if "memory" in labels else labels[0]
        return [Call(SET, {"label": label, "content": _sentence(found["what"]), "action": "append"})]
    if (found := _LOOK_UP.search(text)) and (labels := _labels(tools, SEARCH)):
        return [Call(SEARCH, {"label": labels[0], "query": found["what"].strip(' ?.!"“”')})]
    return []


def remembered(text: str, system: str, messages: Sequence[ModelMessage]) -> str | None:
    """What the memory says, for somebody who asks; `None` when nobody does."""
    if not re.search(r"\bwhat do you (?:still )?(?:remember|know about me)\b", text, re.IGNORECASE):
        return None
    told = _told(system)
    fresh = [line for line in _written(messages) if line not in told]
    if not told and not fresh:
        return "My memory is empty. Say “remember that my dog is called Rex”, and ask me again."
    said = [f"My prompt tells me: {' '.join(told)}"] if told else []
    if fresh:
        too = "I also" if told else "I"
        said.append(f"{too} wrote this down, which my prompt shows after its next refresh: {' '.join(fresh)}")
    return " ".join(said)


def _told(system: str) -> list[str]:
    """The lines of the block `memory` in the prompt."""
    for block in _BLOCK.finditer(system):
        if block["header"].startswith("MEMORY "):
            return [line for line in block["content"].splitlines() if line.strip()]
    return []


def _written(messages: Sequence[ModelMessage]) -> list[str]:
    """What this conversation added to the memory."""
    inputs = [
        cast("dict[str, Any]", part.input)
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.content
        if isinstance(part, ToolCallPart) and part.name == SET
    ]
    return [str(one.get("content")) for one in inputs if one.get("label") == "memory"]


def _labels(tools: Sequence[ToolSpec], name: str) -> list[str]:
    for tool in tools:
        if tool.name == name:
            properties = cast("dict[str, dict[str, Any]]", tool.input_schema.get("properties") or {})
            return cast("list[str]", properties.get("label", {}).get("enum") or [])
    return []


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(".!")
    return f"{text[:1].upper()}{text[1:]}."


# --- a conversation that became too long


def is_summary_wanted(text: str) -> bool:
    """True for the prompt with which a compaction asks for a summary."""
    return "\nTURNS:\n" in text.replace("NEW TURNS:", "TURNS:") and "(end of turns)" in text


def summary_of(prompt: str) -> str:
    """The summary a compaction asks for: what was known already, then a line for each question."""
    head, _, rest = prompt.replace("\nNEW TURNS:\n", "\nTURNS:\n", 1).partition("\nTURNS:\n")
    turns = rest.partition("\n\n(end of turns)")[0].split("\n\n---\n\n")
    lines = re.findall(r"^- .+$", head.partition("SUMMARY SO FAR:")[2], re.MULTILINE)
    for found in filter(None, (_TURN.match(turn.strip()) for turn in turns)):
        text = _shortened(found[2])
        if not text:
            continue
        if found[1] == "user" or not lines or "→" in lines[-1]:
            lines.append(f"- {text}" if found[1] == "user" else f"- → {text}")
        else:
            lines[-1] += f" → {text}"
    return "Earlier in this conversation:\n\n" + "\n".join(lines[-_MOST_LINES:])


_MOST_LINES = 12


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:59].rstrip() + "…"
