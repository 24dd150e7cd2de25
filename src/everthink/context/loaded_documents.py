"""Which documents a conversation holds, read back from the calls that loaded them.

    history --messages--> restored    --> {"skills:pirate-style", …}
    unload  --message---> unloaded_in --> the same message without the document

Pure. The results of `load_context` and `unload_context` in the history are the record, so nothing else
has to be stored, and a restart finds what the model still sees.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..messages import Message, Part, is_tool_part, normalize_input, tool_name

__all__ = [
    "LOAD",
    "LOAD_FAILED",
    "UNLOAD",
    "loaded_name",
    "not_found",
    "restored",
    "unloaded",
    "unloaded_in",
    "without_unloaded",
]

LOAD, UNLOAD = "load_context", "unload_context"

LOAD_FAILED = f"Error: {LOAD}"
"""How the results of a load that failed begin."""

_UNLOADED = "[skill unloaded:"


def loaded_name(label: str, key: str) -> str:
    """How a loaded document is noted. Labels hold no colon, so this can be told apart again."""
    return f"{label}:{key}"


def not_found(key: str) -> str:
    """The result of a load that met no document."""
    return f"Not found: {key}"


def unloaded(key: str) -> str:
    """What stands in the history where a document was."""
    return f"{_UNLOADED} {key}]"


def restored(messages: Iterable[Message]) -> set[str]:
    """The documents that are loaded after `messages`, which are in the order of the conversation."""
    held: set[str] = set()
    for message in messages:
        if message.role != "assistant":
            continue
        for part in message.parts:
            called, document = _call(part)
            if document is None:
                continue
            if called == LOAD and _holds_document(part, document[1]):
                held.add(loaded_name(*document))
            elif _lets_go(called, part):
                held.discard(loaded_name(*document))
    return held


def unloaded_in(message: Message, label: str, key: str) -> Message | None:
    """`message` without the document it loaded, or `None` when it holds no such result."""
    if message.role != "assistant":
        return None
    parts = [
        {**part, "output": unloaded(key)}
        if _call(part) == (LOAD, (label, key)) and _holds_document(part, key)
        else part
        for part in message.parts
    ]
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return None
    return message.with_parts(parts)


def without_unloaded(message: Message) -> Message:
    """`message` without the documents that it loads and lets go of again, for a turn that did both."""
    changed = message
    for index, part in enumerate(message.parts):
        called, document = _call(part)
        if called != UNLOAD or document is None or not _lets_go(called, part):
            continue
        before = Message(message.id, message.role, changed.parts[:index])
        if (made := unloaded_in(before, *document)) is not None:
            parts = [*made.parts, *changed.parts[index:]]
            changed = message.with_parts(parts)
    return changed


def _call(part: Part) -> tuple[str, tuple[str, str] | None]:
    """The tool that a part with a result calls, and the document it names."""
    if not is_tool_part(part) or part.get("state") != "output-available" or part.get("preliminary"):
        return "", None
    named = part.get("toolName")
    # Static parts (`tool-load_context`) say their name in the type only.
    called = named if isinstance(named, str) and named else tool_name(part)
    if called not in (LOAD, UNLOAD):
        return called, None
    given = normalize_input(part.get("input"))
    label, key = given.get("label"), given.get("key")
    return called, (label, key) if isinstance(label, str) and isinstance(key, str) else None


def _holds_document(part: Part, key: str) -> bool:
    """True for the result of a load that gave the document and has not been unloaded since."""
    output = part.get("output")
    return not (
        isinstance(output, str) and (output.startswith((_UNLOADED, LOAD_FAILED)) or output == not_found(key))
    )


def _lets_go(called: str, part: Part) -> bool:
    """True for the result of an unload that worked, and for a load that one has changed."""
    output = part.get("output")
    told = output if isinstance(output, str) else ""
    return not told.startswith("Error:") if called == UNLOAD else told.startswith(_UNLOADED)
