"""What the dialects of `served` share: JSON, server-sent events, and how errors are reported."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from ..errors import ModelError
from ..models.port import FilePart, ToolChoice

__all__ = [
    "JSON",
    "each",
    "error_body",
    "error_headers",
    "file",
    "inner",
    "sse",
    "status_of",
    "tool_choice",
    "tool_input",
]

JSON = dict[str, Any]


def inner(body: JSON, key: str) -> JSON:
    """The object under `key`, empty when there is none."""
    return body.get(key) or cast("JSON", {})


def each(body: JSON, key: str) -> list[JSON]:
    """The objects in the list under `key`, none when there is no list."""
    return body.get(key) or cast("list[JSON]", [])


def sse(data: JSON, event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


def status_of(error: ModelError) -> int:
    """The HTTP status a provider gives such an error."""
    by_kind = {"rate_limit": 429, "transient": 500, "unknown": 500}
    return error.status or by_kind.get(error.kind, 400)


def error_headers(error: ModelError) -> dict[str, str]:
    """How long to wait, as providers say it."""
    if error.retry_after is None:
        return {}
    return {
        "retry-after-ms": str(round(error.retry_after * 1000)),
        "retry-after": str(round(error.retry_after)),
    }


def error_body(error: ModelError) -> JSON:
    """OpenAI's error object."""
    status = status_of(error)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    code = {"context_overflow": "context_length_exceeded", "rate_limit": "rate_limit_exceeded"}.get(
        error.kind
    )
    return {
        "message": str(error),
        "type": kind,
        "param": None,
        "code": code or ("server_error" if status >= 500 else None),
    }


def tool_choice(choice: Any) -> ToolChoice:
    """Our tool choice for OpenAI's, of either API."""
    if not isinstance(choice, dict):
        return choice or "auto"
    given = cast("JSON", choice)
    name = given.get("name") or inner(given, "function").get("name")
    return f"tool:{name}" if name else str(given.get("mode", "auto"))


def tool_input(arguments: str) -> Any:
    """The input of a call, from its JSON text."""
    try:
        return msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return arguments


def file(url: str, media_type: str = "application/octet-stream") -> FilePart:
    """A file by its URL; a `data:` URL says its own media type."""
    if url.startswith("data:"):
        media_type = url[5:].partition(";")[0].partition(",")[0] or media_type
    return FilePart(url, media_type)
