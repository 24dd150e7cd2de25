"""The words everthink itself puts into a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tools.tool import Tool

__all__ = [
    "CONTINUE_NUDGE",
    "DEFAULT_SYSTEM_PROMPT",
    "EARLIER",
    "EMPTY_MESSAGE",
    "LEFT_OUT",
    "SENTINEL",
    "capabilities",
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

_LINES: dict[str, str] = {
    "workspace": "You can inspect and edit the files of your private workspace with the file tools.",
    "context": "Load the context you need before you rely on it, and unload what you no longer need.",
    "extension": "Extensions can add tools; load one only when the task at hand calls for it.",
    "sandbox": "You can run code in a sandbox; prefer it for calculations and quick checks.",
    "fetch": "Fetch tools are read-only and reach allowed addresses only.",
}
"""What is said of tools from a source, once for all of them."""
_ELSEWHERE = {
    "browser": "in the user's browser",
    "mcp": "on an MCP server",
    "extension": "in an extension",
    "agent": "through another agent",
}
"""Where tools run that do not run on the server."""


def capabilities(tools: Mapping[str, Tool]) -> str:
    """A few lines on what a model can do with these tools, by where each of them comes from."""
    sources = {tool.origin for tool in tools.values()}
    lines = [SENTINEL, "", "Capabilities in this turn:"]
    if "workspace" in sources:
        lines.append(f"- {_LINES['workspace']}")
    if tools:
        lines.append(
            "- Use tools when they help; trust their descriptions and schemas over your assumptions."
        )
    for source, where in _ELSEWHERE.items():
        if names := [name for name, tool in tools.items() if tool.origin == source]:
            lines.append(f"- {_listed(names)} run{'s' if len(names) == 1 else ''} {where}.")
    lines += [f"- {line}" for source, line in _LINES.items() if source in sources and source != "workspace"]
    lines.append("- Do not claim a capability that is not listed or offered as a tool.")
    return "\n".join(lines)


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
