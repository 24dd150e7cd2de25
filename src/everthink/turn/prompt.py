"""The words everthink itself puts into a prompt."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "CONTINUE_NUDGE",
    "DEFAULT_SYSTEM_PROMPT",
    "EARLIER",
    "EMPTY_MESSAGE",
    "LEFT_OUT",
    "SENTINEL",
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

_FILES = frozenset({"read", "write", "edit", "list", "find", "grep", "delete"})
_CONTEXT = frozenset({"load_context", "unload_context"})
_EXTENSIONS = frozenset({"load_extension", "list_extensions"})


def with_capabilities(system: str, tools: Iterable[str]) -> str:
    """`system` with a few lines on what this turn can do, unless it has them already."""
    if SENTINEL in system:
        return system
    names = set(tools)
    lines = [SENTINEL, "", "Capabilities in this turn:"]
    if names & _FILES:
        lines.append("- You can inspect and edit the files of your private workspace with the file tools.")
    if names:
        lines.append(
            "- Use tools when they help; trust their descriptions and schemas over your assumptions."
        )
        lines.append(
            "- A tool may run on the server, in the user's browser, on an MCP server, in an extension "
            "or through another agent."
        )
    if names & _CONTEXT:
        lines.append("- Load the context you need before you rely on it, and unload what you no longer need.")
    if names & _EXTENSIONS:
        lines.append("- Extensions can add tools; load one only when the task at hand calls for it.")
    if "execute" in names:
        lines.append("- You can run code in a sandbox; prefer it for calculations and quick checks.")
    if any(name.startswith("fetch_") for name in names):
        lines.append("- Fetch tools are read-only and reach allowed addresses only.")
    lines.append("- Do not claim a capability that is not listed or offered as a tool.")
    return f"{system.rstrip()}\n\n" + "\n".join(lines)
