"""Paths as a workspace understands them: one text for one place.

    what a model or a person wrote --normal--> "/notes/plan.md"

Pure. A path begins at the root whether it says so or not; `.` and doubled slashes mean nothing, `..` goes up
and stops at the root. Letters with accents have one spelling (NFC). What a path on some system could not be
(control characters, backslashes) is refused everywhere, so that files can move between backends.
"""

from __future__ import annotations

import re
import unicodedata

from .port import UNLIMITED, WorkspaceLimits
from .refusals import over, unfit

__all__ = [
    "EVICTED_FOLDER",
    "ancestors",
    "is_below",
    "name_of",
    "normal",
    "parent_of",
    "range_below",
    "target_of",
]

EVICTED_FOLDER = "/attachments/evicted"
"""Where files go that leave old messages. What is here goes with the conversation."""

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")


def normal(path: str, limits: WorkspaceLimits = UNLIMITED) -> str:
    """The one spelling of a path. Raises `EINVAL`, `ENAMETOOLONG` or `ELOOP` for what is none."""
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users and models call it
        raise unfit(f"A path is a text, not {type(path).__name__}.")
    if found := _FORBIDDEN.search(path):
        raise unfit(
            f"{shown(path)} is no path: it contains {found[0]!r}.",
            shown(path),
            next_step="Use letters, digits and signs, and / between the parts.",
        )
    if not path.isascii():
        path = unicodedata.normalize("NFC", path)
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    whole = "/" + "/".join(parts)
    if (size := _bytes(whole)) > limits.path_bytes:
        raise over(
            f"The path {shown(whole)} has {size:,} bytes", "path_bytes", limits.path_bytes, shown(whole)
        )
    if len(parts) > limits.depth:
        raise over(f"The path {shown(whole)} has {len(parts)} parts", "depth", limits.depth, whole)
    for part in parts:
        if len(part) * 4 > limits.name_bytes and (size := _bytes(part)) > limits.name_bytes:
            raise over(f"The name {shown(part)} has {size:,} bytes", "name_bytes", limits.name_bytes, whole)
    return whole


def shown(path: str) -> str:
    """A path as an error names it: not all of a very long one."""
    return repr(path if len(path) <= 120 else f"{path[:100]}…")


def parent_of(path: str) -> str:
    """The folder that a path is in. That of the root is the root."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def ancestors(path: str) -> list[str]:
    """The folders above a path, the outermost first, without the root."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]


def is_below(path: str, folder: str) -> bool:
    """True when a path is somewhere in a folder."""
    return path != folder and path.startswith(folder if folder == "/" else f"{folder}/")


def range_below(folder: str) -> tuple[str, str]:
    """What is below a folder lies between these two, in the order of bytes: `first <= path < last`."""
    return (f"{folder}/", f"{folder}0") if folder != "/" else ("/", "0")


def target_of(link: str, target: str) -> str:
    """Where a link at the path `link` leads: a relative target begins in the link's own folder."""
    return normal(target if target.startswith("/") else f"{parent_of(link)}/{target}")


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
