"""What the demo model says: short, friendly, and honest about what it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from .port import ToolResultPart

__all__ = ["about_results", "listing", "reply"]

_WHO = (
    "I am the demo model. I run right here, without a key and without the internet, and I follow a few "
    "simple rules. I am not clever, but everything around me is real: streaming, tools, and a "
    "conversation that is kept."
)

_STORY = (
    "Once there was a small chat that lived in a single file. Every word it said was written down before "
    "anybody saw it. One evening, in the middle of a sentence, the lights went out. The fans stopped, the "
    "screen turned black, and the house was quiet. When the power came back, the chat opened its file, "
    "found the last word it had written, and went on with the next one. The person in front of the screen "
    "never noticed that there had been a gap. They only said: go on, what happened then? And the chat "
    "told them."
)


def reply(text: str, earlier: Sequence[str], tools: Sequence[str]) -> tuple[str, str]:
    """A thought and an answer for a message that no tool is needed for."""
    said = text.lower().strip(" !.?")
    if not said:
        return "There are no words in this message.", f"I can only read text. {_hint(tools)}"
    if re.match(r"(/?help|what can you do|what can i (do|try|ask)|how does this work)\b", said):
        return "Somebody wants to know what to try.", f"{_WHO}\n\n{_hint(tools)}"
    if re.search(r"\b(who|what) are you\b|\byour name\b|are you (real|an? ai|gpt|claude)", said):
        return "Somebody wants to know who is talking.", f"{_WHO} {_hint(tools)}"
    if found := re.match(r"count (?:up )?to (\d{1,4})\b", said):
        count = range(1, int(found[1]) + 1)
        return "Counting is something I can do.", ", ".join(map(str, count)) + "."
    if re.search(r"\b(story|tale)\b", said):
        return "A story. I know exactly one.", _STORY
    if remembered := _memory(text, earlier):
        return "I look at what was said before.", remembered
    if re.match(r"(hi|hello|hey|hiya|good (morning|afternoon|evening)|greetings)\b", said):
        return "A greeting, so I greet back.", f"Hello! {_WHO} {_hint(tools)}"
    if re.search(r"\b(thanks?|thank you|cheers)\b", said):
        return "That was kind.", "You are welcome!"
    if re.match(r"(bye|goodbye|see you)\b", said):
        return "A goodbye.", "Goodbye! This conversation stays here until you come back."
    return (
        "None of my rules fits this, and no tool does either.",
        f"You said: “{_short(text)}” A real model would have an answer to that; I am only the demo. "
        "Say “help” to see what I can do.",
    )


def about_results(results: Sequence[ToolResultPart], question: str = "") -> str:
    """Plain sentences about what the tools gave."""
    return " ".join(_about(result, question) for result in results)


def listing(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def _hint(tools: Sequence[str]) -> str:
    named = [tool for tool in tools if not tool.endswith("_context")]
    shown = [f"`{tool}`" for tool in named[:5]] + ([f"{len(named) - 5} more"] if len(named) > 5 else [])
    can = f"I can use {listing(shown)}: just ask for it. " if named else ""
    keeps = "set_context" in tools
    memory = "“remember that my dog is called Rex” and later “what do you remember?”"
    name = "“my name is Ada” and later “what is my name?”"
    return f"{can}Try “tell me a story”, “count to 30”, or {memory if keeps else name}."


def _memory(text: str, earlier: Sequence[str]) -> str | None:
    if found := re.search(r"\bmy name is ([A-Z][\w'-]*|\w+)", text, re.IGNORECASE):
        return f"Nice to meet you, {found[1]}. Ask me later what your name is, and I will look it up."
    if re.search(r"\b(my name|who am i)\b", text, re.IGNORECASE):
        for old in reversed(earlier):
            if found := re.search(r"\bmy name is ([\w'-]+)", old, re.IGNORECASE):
                return f"Your name is {found[1]}. You told me earlier in this conversation."
        return "You have not told me yet. Say “my name is …” and I will remember."
    if earlier and re.search(r"\bwhat did i (just )?(say|ask|write)", text, re.IGNORECASE):
        return f"You said: “{_short(earlier[-1])}”"
    return None


def _about(result: ToolResultPart, question: str) -> str:
    output: Any = result.output
    if (
        isinstance(output, str)
        and not result.is_error
        and (said := _about_memory(result.name, output, question))
    ):
        return said
    if result.is_error:
        return f"I tried `{result.name}`, but it did not work: {_ended(_plain(output))}"
    match output:
        case None | "":
            return f"Done: `{result.name}` had nothing to add."
        case bool():
            return f"`{result.name}` says {'yes' if output else 'no'}."
        case int() | float():
            return f"The answer is {output}."
        case str():
            return _ended(output)
        case list():
            return _list(result.name, cast("list[Any]", output))
        case dict():
            return f"`{result.name}` gave me this: {_ended(_plain(cast('dict[str, Any]', output)))}"
        case _:
            return f"`{result.name}` gave me {_plain(output)}."


def _about_memory(tool: str, output: str, question: str) -> str | None:
    """What the tools of memory gave, in words for people."""
    if tool == "set_context" and output.startswith("Written to "):
        return f"I wrote that down. {output} Ask “what do you remember?” at any time, also after a restart."
    if tool != "search_context":
        return None
    lines = [line for line in output.split("\n---\n") if line.partition("] ")[2].strip() != question.strip()]
    found = [f"“{_short(line.partition('] ')[2])}”" for line in lines if line.startswith("[")]
    return f"I looked through everything that was said and found {listing(found)}" if found else None


def _list(name: str, items: list[Any]) -> str:
    if not items:
        return f"`{name}` found nothing."
    things = "one thing" if len(items) == 1 else f"{len(items)} things"
    shown = listing([_plain(item) for item in items[:5]])
    return f"`{name}` found {things}: {shown}{', and more' if len(items) > 5 else ''}."


def _plain(value: Any) -> str:
    """A value the way one would say it."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return (
            listing([f"{str(key).replace('_', ' ')} is {_plain(inner)}" for key, inner in pairs]) or "nothing"
        )
    if isinstance(value, list):
        return listing([_plain(inner) for inner in cast("list[Any]", value)]) or "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "nothing" if value is None else str(value)


def _ended(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", "…", "”", "`")) else f"{text}."


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:119] + "…"
