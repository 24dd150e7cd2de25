"""MCP clients for tests: the published one, and bare requests."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from everthink.testing.server_address import Answer, Place
from mcp import Client

__all__ = ["ERAS", "Words", "client_of", "in_answer", "post", "texts"]

ERAS = ["2026-07-28", "legacy"]
"""How a client speaks: each request for itself, or after a handshake."""
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-06-18",
}


@asynccontextmanager
async def client_of(
    server: Place, *, mode: str = "auto", headers: Mapping[str, str] | None = None, path: str = "/mcp"
) -> AsyncGenerator[Client]:
    """The published Python client, connected."""
    async with (
        httpx2.AsyncClient(headers=dict(headers or {}), timeout=30) as http,
        Client(streamable_http_client(f"http://{server.host}{path}", http_client=http), mode=mode) as client,
    ):
        yield client


def texts(result: CallToolResult) -> list[str]:
    """The texts of a result."""
    return [part.text for part in result.content if isinstance(part, TextContent)]


class Words:
    """Collects the progress of a call: `progress_callback=Words()`."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.said = ""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.numbers.append(progress)
        self.said += message or ""


async def post(
    server: Place,
    method: str = "tools/list",
    params: Any = None,
    *,
    id: Any = 1,
    path: str = "/mcp",
    **headers: str,
) -> Answer:
    """One message, as a client of an older revision posts it."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    body = json.dumps(message if id is None else {**message, "id": id}).encode()
    fields = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await server.http(path, method="POST", headers=fields, body=body)


def in_answer(answer: Answer) -> Any:
    """The message in an answer: its body, or the last event of its stream."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        events = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        return json.loads(events[-1].removeprefix("data: "))
    return answer.json
