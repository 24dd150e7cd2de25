"""What `everthink dev --verbose` says about each request and each socket, when it is over.

    14:02:11 GET /everthink/agents 200 3 ms
    14:02:12 socket /agents/helper/room open 5 ms
    14:02:40 socket /agents/helper/room closed with 1001 after 28.1 s

Queries are not shown, since a token is often among them; what looks like a secret in a path is masked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..masking import mask
from ..plain import plain

__all__ = ["Requests"]


class Requests:
    """An application whose requests are told, a line each."""

    def __init__(self, asgi: Any, tell: Callable[[str], None]) -> None:
        self._asgi, self._tell = asgi, tell

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve, and say how it went."""
        if scope["type"] == "lifespan":
            await self._asgi(scope, receive, send)
            return
        one = _Request(scope, self._tell)

        async def receiving() -> Any:
            message = await receive()
            one.heard(message)
            return message

        async def sending(message: Any) -> None:
            one.said(message)
            await send(message)

        try:
            await self._asgi(scope, receiving, sending)
        except BaseException as error:
            one.ending = one.ending or f"failed with {type(error).__name__}"
            raise
        finally:
            one.over()


class _Request:
    """One request or socket, from its beginning to its end."""

    def __init__(self, scope: Any, tell: Callable[[str], None]) -> None:
        method = "socket" if scope["type"] == "websocket" else scope["method"]
        self._what, self._tell = f"{method} {plain(mask(scope['path']))}", tell
        self._began = time.perf_counter()
        self._is_open = False
        self.ending = ""

    def heard(self, message: Any) -> None:
        """What came from the client."""
        if message["type"] == "websocket.disconnect":
            self.ending = self.ending or f"closed with {message.get('code', 1005)}"
        elif message["type"] == "http.disconnect":
            self.ending = self.ending or "left by the client"

    def said(self, message: Any) -> None:
        """What we answer."""
        match message:
            case {"type": "http.response.start" | "websocket.http.response.start", "status": status}:
                self.ending = str(status)
            case {"type": "websocket.accept"}:
                self._is_open = True
                self._say(f"open {self._took()}")
            case {"type": "websocket.close"}:
                # Before it is accepted, a close is a refusal.
                self.ending = f"closed with {message.get('code', 1000)}" if self._is_open else "403"
            case _:
                pass

    def over(self) -> None:
        """There is nothing more to come."""
        after = " after" if self._is_open else ""
        self._say(f"{self.ending or 'no answer'}{after} {self._took()}")

    def _took(self) -> str:
        seconds = time.perf_counter() - self._began
        return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:.0f} ms"

    def _say(self, how: str) -> None:
        self._tell(f"{time.strftime('%H:%M:%S')} {self._what} {how}")
