"""Which row of a table a request is for: a pattern of paths, methods, a handler.

    Gate --path--> Routes.find --> Found: the row, and what its pattern took from the path

A pattern is a path: a word stands for itself, `{name}` for one segment, `**` for any number of them, also
for none. Which row it is does not depend on how special a pattern looks:

1. The first row whose pattern fits is it. So the special ones stand above the general ones.
2. Methods choose no row: one that a row does not have is refused (405), and no later row is asked.
3. What fits no row is nobody's here: the application answers it, a socket gets 404.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

__all__ = ["Found", "Route", "Routes", "path_of", "segments_of"]

H = TypeVar("H")

REST = "**"


@dataclass(frozen=True, slots=True)
class Route(Generic[H]):
    """A row."""

    pattern: str
    handler: H
    methods: Sequence[str] | None = None
    """Those it has; `None` for any."""

    def has(self, method: str) -> bool:
        """True when a request with this method is answered."""
        return self.methods is None or method in self.methods


@dataclass(frozen=True, slots=True)
class Found(Generic[H]):
    """The row a path is for."""

    route: Route[H]
    values: Mapping[str, str]
    """The segments that the pattern names, as they are written in the path."""


class Routes(Generic[H]):
    """A table. The order of its rows is their precedence."""

    def __init__(self, *rows: Route[H]) -> None:
        self._rows = [(row, _segments(row.pattern)) for row in rows]
        for row, pattern in self._rows:
            assert pattern.count(REST) <= 1, f"{row.pattern} has more than one {REST}"

    def find(self, segments: Sequence[str]) -> Found[H] | None:
        """The first row whose pattern fits these segments."""
        for row, pattern in self._rows:
            values = _fitted(pattern, segments)
            if values is not None:
                return Found(row, values)
        return None


def path_of(scope: Mapping[str, Any]) -> str:
    """The whole path of a request, as it was sent."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    return raw.decode(errors="replace").partition("?")[0]


def segments_of(scope: Mapping[str, Any]) -> list[str]:
    """The path below where we are mounted, as it was sent: a name may hold what looks like a path."""
    root = quote(scope.get("root_path", ""))
    return _segments(path_of(scope).removeprefix(root))


def _segments(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment]


def _fitted(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    """What a pattern takes from a path, by name; `None` when it does not fit."""
    if REST in pattern:
        before = pattern.index(REST)
        after = len(pattern) - before - 1
        if len(segments) < before + after:
            return None
        segments = [*segments[:before], *segments[len(segments) - after :]]
        pattern = [part for part in pattern if part != REST]
    if len(pattern) != len(segments):
        return None
    values: dict[str, str] = {}
    for part, segment in zip(pattern, segments, strict=True):
        if part.startswith("{"):
            values[part[1:-1]] = segment
        elif part != segment:
            return None
    return values
