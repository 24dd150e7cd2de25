"""The words everthink itself puts into a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tools.tool import Origin, Tool

__all__ = [
    "CONTINUE_NUDGE",
    "DEFAULT_SYSTEM_PROMPT",
    "EARLIER",
    "EMPTY_MESSAGE",
    "LEFT_OUT",
    "SENTINEL",
    "capabilities",
    "with_blocks",
    "with_capabilities",
]

DEFAULT_SYSTEM_PROMPT = """\
You are a careful, capable assistant who helps people get real work done.

Use the tools you are given whenever they would make an answer better, and look at the \
material at hand before you change any of it.

Keep changes small and to the point. Do nothing destructive, costly or lasting that nobody asked for.

Say briefly how you will go about a larger task, check what you did in the simplest way that \
would show a mistake, and be open about anything you could not check.

Finish with a short, direct summary of the outcome."""

SENTINEL = "You are running inside a Think agent."
"""The first sentence of the capability block. A prompt that contains it gets no second one."""

CONTINUE_NUDGE = (
    "Go on with your previous message from exactly where it stopped. "
    "Do not repeat anything that is already there and do not comment on the interruption."
)

EMPTY_MESSAGE = "(The message is empty.)"
"""What the model reads when somebody sent no text at all."""

EARLIER = "(The earlier part of this conversation is summarised or left out.)"
"""What stands first when a conversation would begin with the assistant: providers want a person there."""

LEFT_OUT = "(A message of this conversation could not be read and is left out here.)"
"""What the model reads in place of a stored message that cannot be put into words for it."""

MAX_NAMED = 12
"""So many tools of one source are named; there may be hundreds."""


def capabilities(tools: Mapping[str, Tool]) -> str:
    """A few lines on what a model can do with these tools, by where each of them comes from."""
    named: dict[Origin, list[str]] = {}
    origin, names = None, list[str]()
    for name, tool in tools.items():
        if tool.origin is not origin:  # hundreds of one server come in a row
            origin = tool.origin
            names = named.setdefault(origin, [])
        names.append(name)
    lines = [SENTINEL, "", "Capabilities in this turn:"]
    lines += [f"- {origin.line}" for origin in named if origin.line and origin.is_first]
    if tools:
        lines.append(
            "- Use tools when they help; trust their descriptions and schemas over your assumptions."
        )
    for origin, names in named.items():
        if origin.where is not None:
            lines.append(f"- {_listed(names)} run{'s' if len(names) == 1 else ''} {origin.where}.")
    lines += [f"- {origin.line}" for origin in named if origin.line and not origin.is_first]
    lines.append("- Do not claim a capability that is not listed or offered as a tool.")
    return "\n".join(lines)


def with_blocks(system: str, blocks: str) -> str:
    """The prompt of an agent with the blocks that its extensions bring along."""
    return f"{system.rstrip()}\n\n{blocks}" if system and blocks else system or blocks


def with_capabilities(system: str, lines: str | None) -> str:
    """`system` with what the model can do after it. One that has our block gets no second."""
    if not lines or (SENTINEL in system and lines.startswith(SENTINEL)):
        return system
    return f"{system.rstrip()}\n\n{lines}"


def _listed(names: Sequence[str]) -> str:
    shown = [f"`{name}`" for name in names[:MAX_NAMED]]
    if len(names) > MAX_NAMED:
        shown.append(f"{len(names) - MAX_NAMED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
