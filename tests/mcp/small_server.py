"""An MCP server in a few lines, in the test's own loop: it does exactly what a test wants, at HTTP too.

async with Listening(server := SmallServer()) as place: …            # protocol of 2026, no sessions
SmallServer(sessions=True)                                           # of 2025, with sessions and a stream
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

__all__ = ["SmallServer"]

MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}


class SmallServer:
    """One tool, `act`."""

    def __init__(self, *, sessions: bool = False) -> None:
        self.tools: list[dict[str, Any]] = [{"name": "act", "inputSchema": {"type": "object"}}]
        self.result: dict[str, Any] = {"content": [{"type": "text", "text": "acted"}]}
        self.capabilities: dict[str, Any] = {"tools": {}}
        self.error: dict[str, Any] | None = None
        """The error of JSON-RPC that a call is answered with."""
        self.status = 200
        """The status of HTTP that a call is answered with."""
        self.is_cut = False
        """True: an answer to a call ends in the middle."""
        self.before: list[dict[str, Any]] | None = None
        """What it says before it answers a call, with the answer, in a stream of events."""
        self.has_stream = sessions
        """False: what asks for a stream is told that there is no such place."""
        self.gate = asyncio.Event()
        """Calls wait for it before they are answered, or refused."""
        self.gate.set()
        self.asked: list[str] = []
        """What it was asked, in order: methods of HTTP but for POST, of which those of JSON-RPC."""
        self._sessions: set[str] | None = set() if sessions else None
        self._number = 0
        self._end = asyncio.Event()

    def forget(self) -> None:
        """Know no session any more, as after a restart."""
        assert self._sessions is not None
        self._sessions.clear()

    def end_streams(self) -> None:
        """End the streams that clients listen to."""
        self._end.set()
        self._end = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = b""
        while (part := await receive())["type"] == "http.request":
            body += part["body"]
            if not part.get("more_body"):
                break
        asked = json.loads(body) if scope["method"] == "POST" else {}
        self.asked.append(asked.get("method") or scope["method"])
        session = headers.get("mcp-session-id")
        if asked.get("method") == "tools/call":
            await self.gate.wait()
        if self._sessions is not None and session is not None and session not in self._sessions:
            await answer(send, 404)
        elif scope["method"] == "GET":
            await self._stream(receive, send)
        elif scope["method"] == "DELETE":
            await answer(send, 200)
        elif "id" not in asked or "method" not in asked:
            await answer(send, 202)
        else:
            await self._reply(asked, send)

    async def _stream(self, receive: Any, send: Any) -> None:
        if not self.has_stream:
            await answer(send, 404)
            return
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
        ends = [asyncio.ensure_future(self._end.wait()), asyncio.ensure_future(gone(receive))]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _reply(self, asked: dict[str, Any], send: Any) -> None:
        is_call = asked["method"] == "tools/call"
        result = self._result(asked["method"])
        if is_call and self.status != 200:
            await answer(send, self.status)
            return
        error = self.error if is_call else None
        if result is None:
            error = {"code": -32601, "message": "Method not found"}
        if error is not None:
            await answer(send, 200, written(asked, error=error))
            return
        if is_call and self.before is not None:
            said = [json.dumps(one).encode() for one in self.before]
            events = [b"data: " + one + b"\n\n" for one in [*said, written(asked, result=result)]]
            await answer(send, 200, b"".join(events))
            return
        extra = []
        if asked["method"] == "initialize" and self._sessions is not None:
            self._number += 1
            self._sessions.add(f"session-{self._number}")
            extra = [(b"mcp-session-id", f"session-{self._number}".encode())]
        await answer(send, 200, written(asked, result=result), extra, cut=is_call and self.is_cut)

    def _result(self, method: str) -> dict[str, Any] | None:
        is_modern = self._sessions is None
        can = {"capabilities": self.capabilities}
        match method:
            case "server/discover" if is_modern:
                return {"supportedVersions": ["2026-07-28"], **can, **MODERN}
            case "initialize" if not is_modern:
                info = {"name": "small", "version": "1"}
                return {"protocolVersion": "2025-11-25", "serverInfo": info, **can}
            case "tools/list":
                return {"tools": self.tools, **(MODERN if is_modern else {})}
            case "tools/call":
                return {**self.result, **({"resultType": "complete"} if is_modern else {})}
            case _:
                return None


def written(asked: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **rest}).encode()


async def answer(send: Any, status: int, body: bytes = b"", extra: Any = (), *, cut: bool = False) -> None:
    kind = b"application/json" if body else b"text/plain"
    if body.startswith(b"data: "):
        kind = b"text/event-stream"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    sent = body[: len(body) // 2] if cut else body
    await send({"type": "http.response.body", "body": sent, "more_body": cut})
    if cut:
        raise ConnectionError("gone in the middle of an answer")


async def gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
