"""Tools that a server lists badly: put right, or left out alone, before the SDK refuses the whole list.

    a transport --an answer--> mend --> the SDK's client

Only what every client would stumble over is touched; `catalogue` judges what remains.
"""

from __future__ import annotations

import logging
from typing import Any, cast

from ..words import said

__all__ = ["mend"]

log = logging.getLogger("everthink.mcp")

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def mend(result: dict[str, Any], server: str) -> None:
    """Mend the tools of an answer of a server in place, if it lists any."""
    if not isinstance(result.get("tools"), list):
        return
    tools = cast("list[Any]", result["tools"])
    kept = [tool for tool in tools if _is_usable(tool)]
    if len(kept) < len(tools):
        left = [_name(tool) for tool in tools if not _is_usable(tool)]
        log.warning(
            "tools of the MCP server %s are left out, they take no JSON object: %s",
            server,
            ", ".join(left[:20]),
        )
    for tool in kept:
        _put_right(tool)
    result["tools"] = kept


def _is_usable(tool: Any) -> bool:
    if not isinstance(tool, dict):
        return False
    found = cast("dict[str, Any]", tool)
    schema: Any = found.get("inputSchema", {})
    is_object = isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type", "object") == "object"
    return isinstance(found.get("name"), str) and is_object


def _put_right(tool: dict[str, Any]) -> None:
    tool["inputSchema"] = {"type": "object", **tool.get("inputSchema", {})}
    output: Any = tool.get("outputSchema")
    if not isinstance(output, dict) or cast("dict[str, Any]", output).get("type") != "object":
        tool.pop("outputSchema", None)
    for words in ("title", "description"):
        if not isinstance(tool.get(words), str):
            tool.pop(words, None)
    hints: Any = tool.get("annotations")
    if not isinstance(hints, dict):
        tool.pop("annotations", None)
        return
    told = cast("dict[str, Any]", hints)
    right = {name: told[name] for name in _HINTS if isinstance(told.get(name), bool)}
    if isinstance(title := told.get("title"), str):
        right["title"] = title
    tool["annotations"] = right


def _name(tool: Any) -> str:
    name: Any = cast("dict[str, Any]", tool).get("name") if isinstance(tool, dict) else None
    return said(name, 80) if isinstance(name, str) else "one without a name"
