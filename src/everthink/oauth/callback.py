"""What people bring back from an authorization server.

    {callback}?state={nonce}.{server id}&code=… --read_callback--> Callback --> oauth.DurableOAuth.finish

Pure but for `new_state`. It needs nothing of the SDK: whether a request is such a callback is asked of every
request to an agent.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from ..words import said

__all__ = ["Callback", "new_state", "read_callback", "server_of"]

_STATE = re.compile(r"[A-Za-z0-9_-]{16,128}\.([a-z][a-z0-9_-]{0,63})")
_READ = ("state", "code", "error", "error_description", "iss")
_LONGEST_QUERY = 16_000
_MOST_FIELDS = 50


@dataclass(frozen=True, slots=True)
class Callback:
    """The answer of an authorization server, as a person's browser brought it. Nobody has checked it."""

    state: str = field(repr=False)
    code: str | None = field(default=None, repr=False)
    error: str | None = None
    description: str | None = None
    """What the authorization server says about the error."""
    issuer: str | None = None
    """Who says that it answers (`iss`)."""

    @property
    def server_id(self) -> str:
        """The server that it says it is for."""
        return server_of(self.state) or ""

    @property
    def problem(self) -> str | None:
        """Why there is no code, in the words of the authorization server. `None` when there is one."""
        if self.error is not None:
            words = self.error if not self.description else f"{self.error}: {self.description}"
            return said(words) or "the authorization server gives no reason"
        return None if self.code else "the authorization server has sent no code"


def read_callback(query: str | bytes) -> Callback | None:
    """The callback in a query. `None` when it has no state of ours: then it is somebody else's request."""
    text = query.decode("ascii", "replace") if isinstance(query, bytes) else query
    if len(text) > _LONGEST_QUERY:
        return None
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return None
    read = [(key, value) for key, value in pairs if key in _READ]
    found = dict(read)
    if len(found) != len(read) or server_of(found.get("state", "")) is None:
        return None  # what is said twice is said by two
    return Callback(
        found["state"],
        code=found.get("code") or None,
        error=found.get("error"),
        description=found.get("error_description"),
        issuer=found.get("iss"),
    )


def new_state(server_id: str) -> str:
    """A state that nobody can guess, for one visit to an authorization server."""
    return f"{secrets.token_urlsafe(32)}.{server_id}"


def server_of(state: str) -> str | None:
    """The server that a state names. `None` when it is none of ours."""
    found = _STATE.fullmatch(state)
    return found[1] if found else None
