"""What a script opens of the web: one request, through `guard/`, with every address checked on the way.

    fetch(url, options) --Rules--> GuardedTransport --> {"status", "headers", "body", "url"}

A redirect is a request like any other: its address is checked by the same rules. Scripts have no sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..errors import ToolError
from ..guard.rules import Rules
from ..words import said as on_one_line

__all__ = ["fetch"]

LARGEST = 1_000_000
"""Bytes of an answer."""
MOST_REDIRECTS = 5
PATIENCE = 30.0
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OWN_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade"})


async def fetch(rules: Rules, url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Open an address. Raises `BlockedAddress` for one that is closed, `ToolError` for what went wrong."""
    import httpx2

    from ..guard.transport import GuardedTransport

    method, headers, body = _read(options)
    transport = GuardedTransport(allow=sorted(rules.allow))
    async with httpx2.AsyncClient(
        transport=transport, timeout=PATIENCE, trust_env=False, follow_redirects=False
    ) as client:
        try:
            for _ in range(MOST_REDIRECTS + 1):
                rules.check_url(url)
                async with client.stream(method, url, headers=headers, content=body) as answer:
                    target = answer.next_request
                    if target is None:
                        return await _told(answer, url)
                    if _origin(target.url) != _origin(answer.url):
                        headers.pop("authorization", None)
                        headers.pop("cookie", None)
                    if target.method != method:
                        method, body = target.method, None
                    url = str(target.url)
        except httpx2.HTTPError as error:
            raise ToolError(
                f"{on_one_line(url, 200)} was not opened: {on_one_line(str(error) or type(error).__name__)}."
            ) from error
        except httpx2.InvalidURL as error:
            raise ToolError(f"{on_one_line(url, 200)} is no address.") from error
    raise ToolError(f"{on_one_line(url, 200)} leads on and on: more than {MOST_REDIRECTS} redirects.")


def _origin(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _told(answer: Any, url: str) -> dict[str, Any]:
    data = bytearray()
    async for part in answer.aiter_bytes():
        data += part
        if len(data) > LARGEST:
            raise ToolError(f"{on_one_line(url, 200)} answers with more than {LARGEST:,} bytes.")
    return {
        "url": url,
        "status": answer.status_code,
        "ok": 200 <= answer.status_code < 300,
        "headers": {name.lower(): value for name, value in answer.headers.items()},
        "body": bytes(data).decode(answer.charset_encoding or "utf-8", "replace"),
    }


def _read(options: Any) -> tuple[str, dict[str, str], bytes | None]:
    """What a script asks for, in words that the client understands."""
    if not isinstance(options, Mapping):
        raise ToolError("fetch takes an address, and options as an object: method, headers, body.")
    given = cast("Mapping[str, Any]", options)
    method = str(given.get("method") or "GET").upper()
    if method not in _METHODS:
        raise ToolError(f"{on_one_line(method, 40)!r} is no method: {', '.join(sorted(_METHODS))}.")
    found: Any = given.get("headers") or {}
    if not isinstance(found, Mapping):
        raise ToolError("headers are an object of names and texts.")
    headers = {"accept-encoding": "identity"}
    for name, value in cast("Mapping[Any, Any]", found).items():
        if str(name).lower() in _OWN_HEADERS:
            raise ToolError(f"The header {on_one_line(name, 40)!r} is not a script's to set.")
        headers[str(name).lower()] = str(value)
    body = given.get("body")
    if body is not None and not isinstance(body, str):
        raise ToolError("body is a text; objects are written as JSON first.")
    return method, headers, None if body is None else body.encode("utf-8", "replace")
