"""What a tool of ours returns whose own rows must be durable together with its result, or not at all.

body --Settled--> turn/calls --one commit: the ledger, the chunk, its rows--> the journal
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..store.port import Statement

__all__ = ["Settled"]


@dataclass(frozen=True, slots=True)
class Settled:
    """A result, and what is written with it."""

    output: Any
    statements: Sequence[Statement] = ()
    stored: Callable[[], object] | None = None
    """Called once all of it is durable, just before the result is shown."""
