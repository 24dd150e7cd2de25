"""Who was sent away to an authorization server, and may still come back.

    oauth --Visit--> the secrets of a server --> waiting, is_known --> server/authorizing, McpServers

Pure, and without the SDK: whether somebody is waited for is asked before an agent is woken for them. A state
is compared to its end with every one that is known, so that time tells nothing about it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["STATE_SECONDS", "Visit", "find", "is_known", "is_redeemed", "mark_of", "pending", "waiting"]

STATE_SECONDS = 600.0
"""How long a person may take to come back."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit of a person to the authorization server, from being sent away until coming back."""

    state: str = field(repr=False)
    verifier: str = field(repr=False)
    """Belongs to this state alone."""
    at: int
    url: str = field(repr=False)
    asked: dict[str, str]
    issuer: str | None
    """Of whom it was asked: nobody else may answer."""
    protocol: str | None


def pending(kept: Mapping[str, Any]) -> list[Visit]:
    """The visits among the secrets of a server, those that have taken too long included."""
    try:
        return msgspec.convert(kept.get("pending") or [], list[Visit])
    except msgspec.ValidationError:
        return []


def waiting(kept: Mapping[str, Any], now: int) -> list[Visit]:
    """The visits that may still end."""
    return [one for one in pending(kept) if now - one.at < STATE_SECONDS * 1000]


def find(visits: list[Visit], state: str) -> Visit | None:
    """The visit with this state."""
    found = [one for one in visits if _same(one.state, state)]
    return found[0] if found else None


def is_redeemed(kept: Mapping[str, Any], state: str) -> bool:
    """True for the state that was used up last."""
    return _same(str(kept.get("redeemed", "")), mark_of(state))


def is_known(kept: Mapping[str, Any], state: str) -> bool:
    """True for a state that we have given out: in time, too late, or used up."""
    was_redeemed = is_redeemed(kept, state)
    return find(pending(kept), state) is not None or was_redeemed


def mark_of(state: str) -> str:
    """What is kept of a state that was used up."""
    return hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()


def _same(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(), other.encode("utf-8", "replace"))
