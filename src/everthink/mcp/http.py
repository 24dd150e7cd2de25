"""The HTTP client of one connection to a server: guarded, bounded, and what its requests met is noted.

    the SDK's transport --request--> Requests --> GuardedTransport --> the server
                                        |--> Sent: was it run?       --> lost: it cannot be reached any more

The SDK lets an exception in one request end the connection and every other call on it. So once a connection
stands, a request that fails is answered here, as a server in trouble would answer it: only that call fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2

from ..errors import AgentError, AuthorizationFailed, BlockedAddress, NeedsAuthorization
from ..guard.bounded import bounded
from ..guard.transport import GuardedTransport
from ..limits import Limits
from .failures import Sent, sending
from .link import Lost

__all__ = ["MAX_ANSWER", "READING", "Requests", "Watch"]

CONNECTING = 10.0
READING = 300.0
"""Seconds between two pieces of a stream of events; there may be nothing to say for long."""
MAX_ANSWER = 32 * 1024 * 1024
"""So many bytes one answer, or one event, of a server may have."""
_ANSWER = Limits(frame_bytes=MAX_ANSWER, frame_nodes=80_000)
_SESSION = "mcp-session-id"
_FAILED = 502
_UNREACHABLE = (httpx2.ConnectError, httpx2.ConnectTimeout)
_UNSENT = (*_UNREACHABLE, httpx2.PoolTimeout, BlockedAddress, NeedsAuthorization)


class Watch:
    """Tells when a connection ends by itself. Until the server has said hello, connecting fails instead."""

    def __init__(self, lost: Lost) -> None:
        self.lost = lost
        self.is_standing = False
        """True once the server has said hello."""

    def ended(self, error: BaseException | None = None) -> None:
        """Nothing more comes from the server."""
        if self.is_standing:
            self.lost(error)


class Requests(httpx2.AsyncClient):
    """What one connection asks with."""

    def __init__(
        self,
        *,
        headers: dict[str, str],
        auth: httpx2.Auth | None,
        loopback: bool,
        allow: Sequence[str],
        watch: Watch,
        silence: float = 0.0,
        has_one_way_back: bool = False,
    ) -> None:
        guard = GuardedTransport(loopback=loopback, allow=allow)
        # A call that may be silent for longer is ended by its link.
        timeout = httpx2.Timeout(CONNECTING, read=max(READING, silence + CONNECTING))
        super().__init__(transport=guard, headers=headers, auth=auth, timeout=timeout, trust_env=False)
        self._watch = watch
        self._has_one_way_back = has_one_way_back
        """True when answers come by another request than the one that asked: without that nobody is told."""
        self._has_streamed = False
        self.status: int | None = None
        """What the last message to the server was answered with."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send one request of the SDK's, with whatever authorization takes."""
        sent = Sent()
        try:
            response = await bounded(await super().send(request, **options), _ANSWER)
        except Exception as error:
            is_elsewhere = _is_elsewhere(error, request)
            sent.error = error
            sent.was_not_run = is_elsewhere or isinstance(error, _UNSENT)
            sent.is_over = isinstance(error, NeedsAuthorization)
            sent.is_over = sent.is_over or (isinstance(error, _UNREACHABLE) and not is_elsewhere)
            self._note(request, sent)
            if not self._watch.is_standing or request.method != "POST" or self._has_one_way_back:
                raise
            return httpx2.Response(_FAILED, request=request)
        sent.status = response.status_code
        self._has_streamed = self._has_streamed or (request.method == "GET" and sent.status < 400)
        if self._is_stale(request, response):
            sent.error = AgentError("It does not know our session any more.")
            sent.was_not_run = sent.is_over = True
        self._note(request, sent)
        return response

    def _note(self, request: httpx2.Request, sent: Sent) -> None:
        if request.method == "POST":
            self.status = sent.status
            if (note := sending.get()) is not None:
                note.take(sent)
            if self._has_one_way_back and (sent.error is not None or (sent.status or 0) >= 400):
                self._watch.lost(sent.error or AgentError(f"It answered {sent.status}."))
        if sent.is_over and request.method != "DELETE":
            self._watch.ended(sent.error)

    def _is_stale(self, request: httpx2.Request, response: httpx2.Response) -> bool:
        """True when a server has forgotten our session: 404 says so, and 400 does in the words of many."""
        if _SESSION not in request.headers or request.method == "DELETE":
            return False
        if request.method == "GET" and not self._has_streamed:
            return False  # it has no stream to listen to, and says so in its own way
        if response.status_code != 400:
            return response.status_code == 404
        return b"session" in response.content[:2_000].lower()


def _is_elsewhere(error: Exception, request: httpx2.Request) -> bool:
    """True when a request for authorization failed: this one was not sent, or was refused for lack of it."""
    if isinstance(error, httpx2.RequestError):
        return error.request is not request
    return isinstance(error, AuthorizationFailed)
