"""Heavy contents of old messages, taken out of their rows.

    row stats --> aged --> (the row) --> evicted --> files to keep, then the lighter message

Pure: nothing is read or written here. A file somebody attached and a long text a tool gave leave
a marker in their place that says how large they were and where they went. Whoever carries it out
writes the files first and the row after, so that nothing is ever gone from both.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from ..context.activated_skills import is_activation
from ..messages import Message, Part, encode_json, is_tool_part
from ..settings import as_settings, check_fields
from ..workspace.paths import EVICTED_FOLDER

__all__ = ["Blob", "Evicted", "MediaEviction", "aged", "evicted", "eviction_of"]

_FEWEST_RECENT = 4
_DEEPEST = 8
_LONGEST_NAME = 100
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)
_MARKER = re.compile(r"\[evicted (?:[\w.+/-]+, )?\d+ bytes(?:; preserved at [^\]\n]+)?\]", re.ASCII)


@dataclass(frozen=True, slots=True)
class MediaEviction:
    """When old contents leave their messages, and where they go."""

    keep_recent_messages: int = 8
    """The latest messages are left alone; never fewer than 4."""
    min_part_bytes: int = 32 * 1024
    """What is smaller stays."""
    externalize_to_workspace: bool = True
    """Keep what is taken out as files of the workspace. Otherwise it is dropped."""
    max_rows_per_pass: int = 64
    """How many rows are looked at before others get a turn."""

    def __post_init__(self) -> None:
        check_fields(self, "MediaEviction")
        object.__setattr__(self, "keep_recent_messages", max(_FEWEST_RECENT, self.keep_recent_messages))


_USUAL = MediaEviction()


def eviction_of(setting: bool | MediaEviction | Mapping[str, Any]) -> MediaEviction | None:
    """What `media_eviction` asks for: `None` when it is off; what is not said has its default."""
    if isinstance(setting, bool):
        return _USUAL if setting else None
    return as_settings(MediaEviction, setting, "media_eviction")


@dataclass(frozen=True, slots=True)
class Blob:
    """A file to keep: what was taken out, as bytes."""

    path: str
    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """A message that became lighter."""

    message: Message
    """With markers in place of what was taken out. To be stored after `blobs`."""
    blobs: tuple[Blob, ...]
    parts: int
    """How many contents were taken out."""
    bytes: int
    """What they weighed in the row."""

    @property
    def externalized_bytes(self) -> int:
        """What the files weigh."""
        return sum(len(blob.data) for blob in self.blobs)


def aged(
    stats: Iterable[tuple[str, int]], eviction: MediaEviction, *, seen: Collection[str] = ()
) -> list[str]:
    """The messages of a path (id and bytes of each, oldest first) that may hold something to take out.

    `seen` are those known to hold nothing: a long text stays a long text, and need not be read again.
    """
    rows = list(stats)
    old = rows[: max(0, len(rows) - eviction.keep_recent_messages)]
    return [id for id, size in old if size >= eviction.min_part_bytes and id not in seen]


def evicted(
    message: Message,
    *,
    min_part_bytes: int,
    externalize: bool = True,
    folder: str = EVICTED_FOLDER,
    number: int = 0,
) -> Evicted | None:
    """`message` without its heavy contents, or `None` when it has none. The argument is left as it was.

    Files with a `data:` URL and texts inside tool outputs are taken out from `min_part_bytes` on;
    what somebody wrote never is. Without `externalize` there are no blobs, and the markers name no path.
    With a `number` other names are chosen: something else is at the usual ones.
    """
    stem = f"{folder}/{_safe(message.id)}{f'~n{number}' if number else ''}"
    pass_ = _Pass(message, min_part_bytes, stem if externalize else None)
    parts = [pass_.part(part) for part in message.parts]
    if not pass_.taken:
        return None
    lighter = message.with_parts(parts)
    return Evicted(lighter, tuple(pass_.blobs), pass_.taken, pass_.bytes)


class _Pass:
    """One message on its way through."""

    def __init__(self, message: Message, least: int, stem: str | None) -> None:
        self._message, self._least, self._stem = message, least, stem
        self._number: int | None = None
        self.blobs: list[Blob] = []
        self.taken = self.bytes = 0

    def part(self, part: Part) -> Part:
        if part.get("type") == "file":
            url = part.get("url")
            if isinstance(url, str) and url[:5].lower() == "data:":
                marker = self._taken(url, part.get("mediaType"))
                return part if marker is None else {"type": "text", "text": marker}
        elif is_tool_part(part) and "output" in part and not is_activation(part):
            output = self._walked(part["output"], 0)
            return part if output is part["output"] else {**part, "output": output}
        return part

    def _walked(self, value: Any, depth: int) -> Any:
        """`value` with markers for its long texts; the very same when it has none."""
        if isinstance(value, str):
            marker = self._taken(value, None)
            return value if marker is None else marker
        if depth >= _DEEPEST:
            return value
        walk: Callable[[Any], Any] = lambda inner: self._walked(inner, depth + 1)  # noqa: E731 - used twice
        if isinstance(value, list):
            items = cast("list[Any]", value)
            walked = [walk(item) for item in items]
            return walked if any(a is not b for a, b in zip(walked, items, strict=True)) else items
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            made = {key: walk(item) for key, item in members.items()}
            return made if any(made[key] is not members[key] for key in members) else members
        return value

    def _taken(self, text: str, media_type: Any) -> str | None:
        """Take `text` out and return its marker; `None` leaves it where it is."""
        if len(text) * 4 < self._least or (size := _weight(text)) < self._least or _MARKER.fullmatch(text):
            return None
        found = _decoded(text)
        data, kind = found or (text.encode("utf-8", "replace"), None)
        if isinstance(media_type, str) and _MEDIA_TYPE.fullmatch(media_type):
            kind = media_type
        path = None
        if self._stem is not None:
            # A file that says it is a picture and cannot be decoded is kept as the text it is.
            path = f"{self._stem}-{self._next_number()}.{_extension(kind) if found else 'txt'}"
        where = f"; preserved at {path}" if path else ""
        marker = f"[evicted {f'{kind}, ' if kind else ''}{len(data)} bytes{where}]"
        if len(marker) >= size:
            return None
        if path:
            self.blobs.append(Blob(path, data, kind if found and kind else "text/plain"))
        self.taken += 1
        self.bytes += size
        return marker

    def _next_number(self) -> int:
        if self._number is None:
            # What an earlier pass kept must not be written over.
            content = encode_json(self._message.parts).decode()
            used = re.findall(re.escape(f"{self._stem}-") + r"(\d+)\.", content)
            self._number = max(map(int, used), default=-1) + 1
        return self._number + len(self.blobs)


def _weight(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _decoded(text: str) -> tuple[bytes, str] | None:
    """What a `data:` URL holds, with its media type. `None` when the text is no such URL."""
    if text[:5].lower() != "data:":
        return None
    comma = text.find(",", 5, 300)
    if comma < 0:
        return None
    kind, *options = text[5:comma].split(";")
    kind = kind.strip().lower() or "text/plain"
    if not _MEDIA_TYPE.fullmatch(kind):
        return None
    body = unquote_to_bytes(text[comma + 1 :])
    if not options or options[-1].strip().lower() != "base64":
        return body, kind
    body = b"".join(body.split())
    try:
        return base64.b64decode(body + b"=" * (-len(body) % 4), validate=True), kind
    except binascii.Error:
        return None


def _extension(media_type: str | None) -> str:
    subtype = (media_type or "").partition("/")[2].partition(";")[0]
    return re.sub(r"[^a-z0-9]", "", subtype.lower())[:16] or "bin"


def _safe(id: str) -> str:
    """A message id as part of a file's name. Different ids stay different."""
    name = re.sub(rb"[^A-Za-z0-9._-]", lambda found: b"~%02x" % found[0][0], id.encode("utf-8", "replace"))
    if len(name) <= _LONGEST_NAME:
        return name.decode()
    return f"{name[:60].decode()}~~{hashlib.sha256(name).hexdigest()[:32]}"
