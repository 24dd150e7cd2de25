"""The set without members, one for all who have none: each of its own weighs 216 bytes, in every live agent.

self._told: frozenset[str] = NONE        self._told |= {words}
"""

from __future__ import annotations

from typing import Any

__all__ = ["NONE"]

NONE: frozenset[Any] = frozenset()
