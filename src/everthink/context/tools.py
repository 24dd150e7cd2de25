"""The tools with which the model writes, loads, unloads and searches context blocks.

    Context --tools_for--> set_context, load_context, unload_context, search_context --> turn/assemble

Made anew for every turn from the blocks there are. Whatever happens, the model reads a text: a result, or
what went wrong after `Error:`. When `set_context` says that something is written, it is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..errors import ContextUnavailable, is_for_people
from ..tools.ask import RERUN
from ..tools.json_input import JsonInput, misfits
from ..tools.tool import Origin, Tool
from .blocks import ContextBlock, usage
from .entry_keys import entry_key
from .loaded_documents import (
    LOAD,
    LOAD_FAILED,
    UNLOAD,
    loaded_name,
    not_found,
)

if TYPE_CHECKING:
    from .context import Context

__all__ = ["SEARCH", "SET", "tools_for"]

SET, SEARCH = "set_context", "search_context"
NO_RESULTS = "No results found."

log = logging.getLogger("everthink.session")

MEMORY = Origin("memory")
CONTEXT = Origin(
    "context", "Load the context you need before you rely on it, and unload what you no longer need."
)

Unload = Callable[[str, str], Awaitable[None]]
Execute = Callable[[dict[str, Any]], Awaitable[str]]


class _Anything(JsonInput):
    """Lets every object through: what does not fit is told in the result instead of failing the call."""

    def arguments(self, tool: str, value: Any) -> dict[str, Any]:
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def tools_for(context: Context, blocks: Sequence[ContextBlock], *, on_unload: Unload) -> dict[str, Tool]:
    """The tools that `blocks` of `context` have a use for. `on_unload` empties a result in the history."""
    made: list[Tool] = []
    if writable := [block for block in blocks if block.writable]:
        made.append(_set(context, writable))
    if loadable := [block for block in blocks if block.is_skill]:
        made += [_load(context, loadable), _unload(context, loadable, on_unload)]
    if searchable := [block for block in blocks if block.is_searchable]:
        made.append(_search(context, searchable))
    return {tool.name: tool for tool in made}


def _set(context: Context, blocks: Sequence[ContextBlock]) -> Tool:
    keyed = {block.label for block in blocks if block.is_keyed}
    lines = [f"- {block.label} ({_kind(block)}): {_told(block)}" for block in blocks]
    description = (
        "Remember something: write it to one of these blocks.\n"
        + "\n".join(lines)
        + "\nWhat you write is durable: it outlives this conversation's window and restarts."
        " The system prompt shows it from its next refresh on."
    )
    properties: dict[str, Any] = {
        "label": _label(blocks, "The block to write to."),
        "content": {"type": "string", "description": "What to write."},
        "action": {
            "type": "string",
            "enum": ["replace", "append"],
            "description": "Write the block anew (replace, the default) or add to its end (append).",
        },
    }
    if keyed:
        description += (
            "\nIn blocks with keyed entries each call writes one entry. Name it with"
            " metadata: { title, description }; the same title again replaces the entry."
        )
        properties["metadata"] = {
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "A short name; the entry's key is made from it."},
                "description": {"type": "string", "description": "One line on what the entry is for."},
            },
            "description": "For blocks with keyed entries.",
        }

    async def execute(given: dict[str, Any]) -> str:
        label, content = given["label"], given["content"]
        if label in keyed:
            metadata = cast("dict[str, str]", given.get("metadata") or {})
            key = entry_key(content, metadata.get("title"))
            description = metadata.get("description") or metadata.get("title")
            await context.set_entry(label, key, content, description)
            return f'Indexed "{key}" in {label}.'
        write = context.append if given.get("action") == "append" else context.replace
        return _written(await write(label, content))

    async def find_out(input: dict[str, Any]) -> Any:
        """After a crash: replacing and keyed entries can be done again, adding must not be done twice."""
        block = context.get_block(str(input.get("label")))
        if block is None or block.label in keyed or input.get("action") != "append":
            return RERUN
        added = str(input.get("content"))
        own_line = added if added.startswith("\n") else f"\n{added}"
        is_there = block.content == added or block.content.endswith(own_line)
        return _written(block) if is_there else RERUN

    return _tool(
        SET, description, properties, ["label", "content"], execute, failed="Error", on_interrupt=find_out
    )


def _load(context: Context, blocks: Sequence[ContextBlock]) -> Tool:
    async def execute(given: dict[str, Any]) -> str:
        text = await context.load_document(given["label"], given["key"])
        return not_found(given["key"]) if text is None else text

    return _tool(
        LOAD,
        "Read a document in full. The system prompt lists the keys of these blocks:\n" + _listed(blocks),
        {"label": _label(blocks, "The block that has it."), "key": {"type": "string"}},
        ["label", "key"],
        execute,
        failed=LOAD_FAILED,
        origin=CONTEXT,
    )


def _unload(context: Context, blocks: Sequence[ContextBlock], on_unload: Unload) -> Tool:
    held = ", ".join(sorted(context.loaded)) or "none"

    async def execute(given: dict[str, Any]) -> str:
        label, key = given["label"], given["key"]
        if not context.unload_document(label, key):
            return f'"{key}" is not currently loaded from {label}.'
        try:
            await on_unload(label, key)
        except Exception:
            context.loaded.add(loaded_name(label, key))  # the history still holds it
            raise
        return f'Unloaded "{key}" from {label}. Load it again when you need it.'

    return _tool(
        UNLOAD,
        "Free the room that a loaded document takes once you no longer need it. It stays available."
        f"\nCurrently loaded: {held}.",
        {"label": _label(blocks, "The block that it was loaded from."), "key": {"type": "string"}},
        ["label", "key"],
        execute,
        failed="Error",
        origin=CONTEXT,
    )


def _search(context: Context, blocks: Sequence[ContextBlock]) -> Tool:
    async def execute(given: dict[str, Any]) -> str:
        return await context.search(given["label"], given["query"]) or NO_RESULTS

    return _tool(
        SEARCH,
        "Find entries by their words. Only these blocks can be searched:\n" + _listed(blocks),
        {
            "label": _label(blocks, "The block to search."),
            "query": {"type": "string", "description": "Words that the entries must contain."},
        },
        ["label", "query"],
        execute,
        failed="Error",
    )


def _tool(
    name: str,
    description: str,
    properties: dict[str, Any],
    required: list[str],
    execute: Execute,
    *,
    failed: str,
    on_interrupt: Any = "rerun",
    origin: Origin = MEMORY,
) -> Tool:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }

    async def body(given: dict[str, Any]) -> str:
        if problems := "; ".join(misfits(given, schema)):
            return f"{failed}: {problems}."
        try:
            return await execute(given)
        except Exception as error:  # noqa: BLE001 - the model reads it
            log.warning("%s failed: %r", name, error)
            return f"{failed}: {_reason(error)}"

    return Tool(name, description, _Anything(schema), body, on_interrupt=on_interrupt, origin=origin)


def _reason(error: Exception) -> str:
    if not is_for_people(error):
        return "It could not be done because of a failure on our side."
    cause = error.__cause__
    if isinstance(error, ContextUnavailable) and cause is not None and str(cause):
        return f"{error} It said: {cause}"
    return str(error)


def _label(blocks: Sequence[ContextBlock], description: str) -> dict[str, Any]:
    return {"type": "string", "enum": [block.label for block in blocks], "description": description}


def _listed(blocks: Sequence[ContextBlock]) -> str:
    return "\n".join(f"- {block.label}: {_told(block)}" for block in blocks)


def _told(block: ContextBlock) -> str:
    return block.description or "no description"


def _kind(block: ContextBlock) -> str:
    if block.is_skill:
        return "skill collection, keyed entries"
    return "searchable, keyed entries" if block.is_searchable else "writable"


def _written(block: ContextBlock) -> str:
    return f"Written to {block.label}. Usage: {usage(block)}."
