"""What a tool of an MCP server returned, as ours return it.

    link --CallToolResult--> output_of --JSON--> the ledger, the message, the screen
                                  that JSON --> shown_to_model (its `to_model_output`) --> the next prompt
    a notification of progress --> progress_of --> ctx.progress

Pure. Structured content is the output; without it, the texts are. Pictures and sounds go along as files, in
a form that a page can show and that leaves the conversation when it has aged. What is too large, or nothing
that a model takes, leaves a note in its place: nothing goes missing in silence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from ..errors import ToolError
from ..messages import encode_json
from ..words import clean, said

__all__ = ["FAILED", "MOST_MEDIA_BYTES", "MOST_TEXT", "output_of", "progress_of", "shown_to_model"]

MOST_MEDIA_BYTES = 5_000_000
"""Bytes of the pictures and sounds of one result."""
MOST_TEXT = 1_000_000
"""Characters of the texts of one result."""
LONGEST_FAILURE = 4_000
FAILED = "Tool call failed"
"""What is said of a failure that says nothing itself."""

_MEDIA = re.compile(r"(?:image|audio)/[\w.+-]{1,60}", re.ASCII)
_DATA = re.compile(r"data:((?:image|audio)/[\w.+-]{1,60});base64,[A-Za-z0-9+/]*={0,2}", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}", re.ASCII)

Part = dict[str, Any]


def output_of(result: Any) -> Any:
    """What a call returned, as JSON. Raises `ToolError` with the server's words when it failed."""
    blocks: Sequence[Any] = result.content
    if result.is_error:
        raise ToolError(clean("\n".join(_texts(blocks)), LONGEST_FAILURE) or FAILED)
    structured = result.structured_content
    files = _files(blocks)
    if not files:
        return _bounded("\n".join(_texts(blocks))) if structured is None else _fitting(structured)
    if structured is not None:
        return {"type": "content", "structured": _fitting(structured), "value": list(files.values())}
    left, value = MOST_TEXT, list[Part]()
    for place, block in enumerate(blocks):
        part = files.get(place) or _text(_bounded(_words(block), left))
        left -= len(part.get("text", ""))
        value.append(part)
    return {"type": "content", "value": value}


def shown_to_model(output: Any) -> Any:
    """What the model sees of a stored output: its `to_model_output`. Files become content parts."""
    if isinstance(output, list):
        return encode_json(output).decode()  # data, even when it looks like parts
    if not isinstance(output, dict):
        return output
    found = cast("dict[str, Any]", output)
    if found.get("type") != "content" or not set(found) <= {"type", "value", "structured"}:
        return found
    if not isinstance(found.get("value"), list):
        return found
    parts = [_shown(part) for part in cast("list[Any]", found["value"])]
    if "structured" in found:
        parts.insert(0, _text(encode_json(found["structured"]).decode()))
    return parts or found


def progress_of(progress: float, total: float | None = None, message: str | None = None) -> dict[str, Any]:
    """How far a call has come, as people are shown it."""
    told: dict[str, Any] = {}
    if math.isfinite(progress):
        told["progress"] = progress
    if total is not None and math.isfinite(total):
        told["total"] = total
    if message:
        told["message"] = said(message)
    return told


# --- texts


def _texts(blocks: Sequence[Any]) -> Iterator[str]:
    return map(_words, blocks)


def _words(block: Any) -> str:
    """A block as text: itself, or what there is to say of it."""
    match block.type:
        case "text":
            return block.text
        case "resource_link":
            about = ", ".join(filter(None, (block.mime_type, block.description and said(block.description))))
            return f"[resource {said(block.title or block.name)}: {said(block.uri)}{about and f' ({about})'}]"
        case "resource" if hasattr(block.resource, "text"):
            return f"[resource {said(block.resource.uri)}]\n{block.resource.text}"
        case "resource":
            kind = said(block.resource.mime_type or "binary", 80)
            size = _size(block.resource.blob)
            return f"[resource {said(block.resource.uri)}: {kind}, {size:,} bytes, left out]"
        case "image" | "audio":
            return _left_out(block)
        case kind:
            return f"[{said(kind, 40)}: left out, because it is no content that is known here]"


def _left_out(block: Any) -> str:
    kind = said(block.mime_type, 80)
    if _media(block) is None:
        return f"[{block.type}, {kind}: left out, because it is none]"
    return (
        f"[{block.type}, {kind}, {_size(block.data):,} bytes: left out,"
        f" because one result may have {MOST_MEDIA_BYTES:,}]"
    )


def _bounded(text: str, most: int = MOST_TEXT) -> str:
    if len(text) <= most:
        return text
    return f"{text[: max(0, most)]}\n[cut: this text has {len(text):,} characters]"


def _fitting(structured: Any) -> Any:
    """Structured content as it is; as text, when it has to be cut."""
    written = encode_json(structured)
    return structured if len(written) <= MOST_TEXT else _bounded(written.decode())


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


# --- pictures and sounds


def _files(blocks: Sequence[Any]) -> dict[int, Part]:
    """The pictures and sounds that are taken, by their place among the blocks."""
    files: dict[int, Part] = {}
    left = MOST_MEDIA_BYTES
    for place, block in enumerate(blocks):
        if block.type not in ("image", "audio") or (found := _media(block)) is None:
            continue
        kind, data = found
        if _size(data) <= left:
            left -= _size(data)
            files[place] = {"type": "file", "mediaType": kind, "url": f"data:{kind};base64,{data}"}
    return files


def _media(block: Any) -> tuple[str, str] | None:
    """Its media type and its base64. `None` when it is not what it says: both stand in an address later."""
    kind: str = block.mime_type.partition(";")[0].strip().lower()
    data = "".join(block.data.split())
    is_one = kind.startswith(f"{block.type}/") and _MEDIA.fullmatch(kind) and _BASE64.fullmatch(data)
    return (kind, data) if is_one else None


def _size(data: str) -> int:
    """The bytes that a text in base64 stands for."""
    return len(data) * 3 // 4 - data[-2:].count("=")


def _shown(part: Any) -> Part:
    match part:
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {"type": "file", "url": str(url)} if found := _DATA.fullmatch(url):
            return {"type": "file", "mediaType": found[1], "url": url}
        case {"type": "file", "url": str(url)}:
            return _text(url[:LONGEST_FAILURE])  # it has left the conversation, and this says where to
        case _:
            return _text(encode_json(part).decode())
