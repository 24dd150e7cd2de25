"""What went wrong with an MCP server, in words: the SDK's errors, groups of errors, cancellations.

an exception --failure_of--> Failure: the cause, a sentence, and whether the connection is gone
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

from ..errors import AgentError
from ..masking import mask
from .words import said

__all__ = ["Failure", "failure_of"]

_GONE = frozenset({"closed", "exhausted", "terminated", "disconnected", "broken"})
"""Words by which the SDK tells that a connection is over."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed."""

    error: BaseException
    """The cause itself, out of the groups around it."""
    words: str
    is_loss: bool
    """True when the connection is gone, and a new one is needed."""
    was_not_sent: bool = False
    """True when the server has certainly not seen what was asked."""


def failure_of(error: BaseException) -> Failure:
    """What an error of the SDK, or of what is below it, means."""
    import httpx2
    from mcp.shared.exceptions import MCPError

    cause = _cause(error)
    if isinstance(cause, asyncio.CancelledError):
        return Failure(cause, "The connection was lost.", is_loss=True)
    words = _words(cause)
    if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Failure(cause, words, is_loss=True, was_not_sent=True)
    if isinstance(cause, OSError | EOFError | httpx2.TransportError):
        return Failure(cause, words, is_loss=True)
    if isinstance(cause, MCPError):
        said = str(cause).lower()
        return Failure(cause, words, is_loss=any(word in said for word in _GONE))
    name = type(cause).__name__
    return Failure(
        cause, words, is_loss=name in ("ClosedResourceError", "BrokenResourceError", "EndOfStream")
    )


def _cause(error: BaseException) -> BaseException:
    """The first real error inside groups of errors; cancellations that came along with it do not count."""
    while isinstance(error, BaseExceptionGroup):
        inside = cast("tuple[BaseException, ...]", error.exceptions)
        error = next((one for one in inside if not isinstance(one, asyncio.CancelledError)), inside[0])
    return error


def _words(error: BaseException) -> str:
    if isinstance(error, AgentError):
        return error.what
    words = mask(said(error)) or type(error).__name__
    return words if words.endswith((".", "!", "?", "…")) else f"{words}."
