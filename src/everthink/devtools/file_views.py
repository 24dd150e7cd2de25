"""Files and their changes as the page shows them: what a file is by its bytes, changes by turns, differences.

    Entry, bytes, Change --> dictionaries for files.py

Pure. What a browser would run is never given a type under which it would: HTML and SVG are text here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal
from urllib.parse import quote

from .. import text_diff
from ..clock import ms_of
from ..workspace.port import Change, Entry

__all__ = ["HEAD_BYTES", "Net", "Shape", "disposition", "entry", "groups", "net", "shape_of", "unified"]

HEAD_BYTES = 4096
"""So many bytes say what a file is."""
PATHS = 200
"""Of so many paths the changes of one group are listed."""

_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a file is to a browser, by its bytes alone: its name may say anything."""

    kind: Literal["text", "image", "pdf", "binary"]
    content_type: str

    @property
    def is_shown(self) -> bool:
        """True when a browser may show it. Everything else is saved."""
        return self.kind != "binary"


TEXT = Shape("text", "text/plain; charset=utf-8")
BINARY = Shape("binary", "application/octet-stream")


def shape_of(head: bytes) -> Shape:
    """What a file is that begins so."""
    for mark, content_type in _PICTURES.items():
        if head.startswith(mark):
            return Shape("image", content_type)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return Shape("image", "image/webp")
    if head.startswith(b"%PDF-"):
        return Shape("pdf", "application/pdf")
    return TEXT if _is_text(head) else BINARY


def _is_text(head: bytes) -> bool:
    """UTF-8 without NUL, as far as it goes: the last character may be cut."""
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and len(head) == HEAD_BYTES
    return True


def disposition(name: str, *, is_saved: bool) -> str:
    """How a browser treats a file of this name: shows it, or saves it."""
    return f"{'attachment' if is_saved else 'inline'}; filename*=UTF-8''{quote(name, safe='')}"


def entry(found: Entry) -> Json:
    """A file, a folder or a link."""
    return {
        "path": found.path,
        "name": found.name,
        "kind": found.kind,
        "size": found.size,
        "media_type": found.media_type,
        "created_at": ms_of(found.created_at),
        "modified_at": ms_of(found.modified_at),
        "target": found.target,
    }


# --- what changed


@dataclass(frozen=True, slots=True)
class Net:
    """What some changes in a row came to for one path."""

    path: str
    kind: str
    change: Literal["create", "update", "delete"]
    was: str | None
    """SHA-256 of the file before, if there was one."""
    hash: str | None
    """SHA-256 of the file after, if there is one."""


def net(changes: Iterable[Change]) -> list[Net]:
    """What each path was before the first of these changes and after the last, without what came and went."""
    by_path: dict[str, list[Change]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    found: list[Net] = []
    for path, steps in sorted(by_path.items()):
        first, last = steps[0], steps[-1]
        was_there, is_there = first.change != "create", last.change != "delete"
        is_same = was_there and is_there and first.was == last.hash and first.kind == last.kind
        if not (was_there or is_there) or is_same:
            continue
        change = "update" if was_there and is_there else "create" if is_there else "delete"
        found.append(Net(path, last.kind, change, first.was, last.hash))
    return found


def groups(changes: Sequence[Change]) -> list[Json]:
    """Changes in a row of one turn, or of one edit outside of any, newest first."""
    together = groupby(changes, key=lambda one: (one.turn, _moment(one)))
    return [_group(turn, list(some)) for (turn, _), some in together][::-1]


def _moment(change: Change) -> int:
    """Changes of a turn belong together; others only when they were made in one edit."""
    return 0 if change.turn is not None else ms_of(change.at)


def _group(turn: str | None, changes: Sequence[Change]) -> Json:
    paths = net(changes)
    return {
        "turn": turn,
        "first": changes[0].seq,
        "last": changes[-1].seq,
        "at": ms_of(changes[-1].at),
        "paths": [{"path": one.path, "kind": one.kind, "change": one.change} for one in paths[:PATHS]],
        "more": max(0, len(paths) - PATHS),
    }


def unified(path: str, before: str, after: str) -> str:
    """The difference of two texts. Raises `EFBIG` when they are too long to be compared."""
    if before and after:
        return text_diff.unified(before, after, old=path, new=path)
    sign, lines = ("+", after.splitlines()) if after else ("-", before.splitlines())
    return "\n".join(f"{sign}{line}" for line in lines)
