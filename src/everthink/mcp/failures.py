"""What went wrong with an MCP server, in words: the SDK's errors, groups of errors, cancellations.

    an exception, what its request met (Sent) --failure_of--> Failure: the cause, a sentence, what is lost

The SDK tells whoever asked that the connection is closed, and keeps the reason to itself. So the HTTP client
notes what a request met where the one who asked can read it: `sending`, which the SDK carries along.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import cast

from ..errors import AgentError
from ..masking import mask
from ..words import said

__all__ = ["Failure", "Sent", "failure_of", "sending"]

LOST = "The connection was lost."
_CLOSED = "Connection closed"
_CUT = (_CLOSED, "SSE stream ended", "SSE stream failed")
"""How the SDK begins to tell that an answer cannot come any more. A server's own errors say other things."""
_UNTOLD = ("Server returned an error response", "Session terminated", "Not Found")
"""What the SDK says of an answer that was no JSON-RPC."""
_CLOSED_STREAMS = ("ClosedResourceError", "BrokenResourceError", "EndOfStream")


@dataclass(slots=True, eq=False)
class Sent:
    """What the HTTP request of one question met. The HTTP client writes it, the link reads it."""

    error: BaseException | None = None
    status: int | None = None
    was_not_run: bool = False
    """True when the server has certainly not begun with it."""
    is_over: bool = False
    """True when nothing else can be asked over this connection."""

    def take(self, other: Sent) -> None:
        """Be what a further request met."""
        self.error, self.status = other.error, other.status
        self.was_not_run, self.is_over = other.was_not_run, other.is_over


sending: ContextVar[Sent | None] = ContextVar("everthink_mcp_sending", default=None)
"""Where the requests of a task note what they met."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed."""

    error: BaseException
    """The cause itself, out of the groups around it."""
    words: str
    is_loss: bool = False
    """True when the answer went missing, not when the server said no."""
    is_over: bool = False
    """True when a new connection is needed before anything else is asked."""
    was_not_run: bool = False
    """True when the server has certainly not begun with what was asked."""


def failure_of(error: BaseException, sent: Sent | None = None) -> Failure:
    """What an error of the SDK, or of what is below it, means."""
    if sent is not None and sent.error is not None:
        is_loss = sent.is_over or not sent.was_not_run
        return Failure(sent.error, _words(sent.error), is_loss, sent.is_over, sent.was_not_run)
    cause = _cause(error)
    if isinstance(cause, AgentError):
        return Failure(cause, cause.what)
    if isinstance(cause, asyncio.CancelledError):
        return Failure(cause, LOST, is_loss=True, is_over=True)
    return _foreign(cause, None if sent is None else sent.status)


def _foreign(cause: BaseException, status: int | None) -> Failure:
    import httpx2
    from mcp.shared.exceptions import MCPError
    from mcp_types import REQUEST_TIMEOUT
    from pydantic import ValidationError

    words = _words(cause)
    if isinstance(cause, ValidationError):
        wrong = cause.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, wrong["loc"]))
        why = said(f"{place}: {wrong['msg']}", 200)
        return Failure(cause, f"Its answer is none of the protocol's: {why}.")
    if isinstance(cause, MCPError):
        message = cause.error.message
        if message.startswith(_CUT):
            return Failure(cause, LOST, is_loss=True, is_over=message == _CLOSED)
        if status is not None and status >= 400 and message in _UNTOLD:
            return Failure(cause, f"It answered {status}.", is_loss=status >= 500, was_not_run=status < 500)
        return Failure(cause, words, is_loss=cause.code == REQUEST_TIMEOUT)
    if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Failure(cause, words, is_loss=True, is_over=True, was_not_run=True)
    is_over = isinstance(cause, OSError | EOFError | httpx2.TransportError)
    is_over = is_over or type(cause).__name__ in _CLOSED_STREAMS
    return Failure(cause, words, is_loss=is_over, is_over=is_over)


def _cause(error: BaseException) -> BaseException:
    """The first real error inside groups of errors; cancellations that came along with it do not count."""
    while isinstance(error, BaseExceptionGroup):
        inside = cast("tuple[BaseException, ...]", error.exceptions)
        error = next((one for one in inside if not isinstance(one, asyncio.CancelledError)), inside[0])
    return error


def _words(error: BaseException) -> str:
    if isinstance(error, AgentError):
        return error.what
    if isinstance(error, UnicodeEncodeError) or "header" in str(error).lower():
        return "A header cannot be sent, or read, as it is."  # libraries quote its value, which is a secret
    words = mask(said(error)) or type(error).__name__
    return words if words.endswith((".", "!", "?", "…")) else f"{words}."
