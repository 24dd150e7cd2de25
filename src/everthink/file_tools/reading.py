"""`read`: a text by numbered lines, a picture or a PDF as the model sees them, of anything else what it is.

    file --kind--> lines | {kind: image, file, binary}       stored: compact, with the hash of what was seen
                                     --> shown (to_model_output) --> the bytes, from the workspace

Bytes never reach the journal. The model is shown those that had this hash, also when the file has changed
since; where the backend keeps no old contents, those that are there now.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import hashlib
from collections.abc import Mapping
from typing import Any, cast

from ..calling import awaited
from ..errors import WorkspaceError
from ..media_types import PDF, PDF_SIGN, SVG, signed_as, sniffed
from ..models.port import FilePart, TextPart
from ..tools.context import ToolContext
from ..workspace.port import Entry
from ..workspace.workspace import Workspace
from .operations import as_bytes, as_entry
from .place import Place, shown_error
from .sizes import in_words

__all__ = ["LARGEST_SHOWN", "lines_of", "read", "shown"]

MOST_LINES = 2_000
LONGEST_LINE = 2_000
LARGEST_SHOWN = int(3.5 * 1024 * 1024)
"""Bytes of a picture or PDF that a model is shown at most."""
QUICK = 262_144
"""Bytes of a text that are put into lines at once, and not in a thread."""
LONG = 8 * 1024 * 1024
"""Bytes of a text that is not held as a whole."""
PIECE = 1024 * 1024
_GENERIC = ("application/octet-stream", "binary/octet-stream")
SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", PDF)
"""What models take as it is. Other pictures they refuse, and then every prompt that has one."""
_TEXTS = ("json", "javascript", "typescript", "xml", "x-javascript")


async def read(place: Place, ctx: ToolContext, path: str, offset: int | None, limit: int | None) -> Any:
    """What the tool gives for a file."""
    try:
        files = await place.where(ctx, path)
        entry = as_entry(files, await awaited(files.stat(path)))
        if entry is None:
            return {"error": f"File not found: {path}"}
        if entry.kind == "directory":
            return {"error": f"{path} is a directory. Use list to see what is in it."}
        is_long = isinstance(files, Workspace) and entry.size > LONG
        reading = files.read_file_bytes(path, length=PIECE) if is_long else files.read_file_bytes(path)
        data = as_bytes(files, await awaited(reading))
        if data is None:
            return {"error": f"File not found: {path}"}
        media_type = _media_type(entry, data[: data.rfind(b"\n") + 1] or data if is_long else data)
        if is_long and _is_text(media_type):
            return await _long_lines(files, entry.size, path, offset, limit)
    except WorkspaceError as error:
        raise shown_error(error) from error
    if _is_text(media_type):
        if len(data) <= QUICK:
            return lines_of(path, data, offset, limit)
        return await asyncio.to_thread(lines_of, path, data, offset, limit)
    found: dict[str, Any] = {
        "path": path,
        "name": path.rstrip("/").rpartition("/")[2],
        "mediaType": media_type,
        "sizeBytes": entry.size if is_long else len(data),
    }
    if not media_type.startswith("image/") and media_type != PDF:
        return {"kind": "binary", **found, "unsupported": True}
    hash = entry.hash or ("" if is_long else await asyncio.to_thread(_hash, data))
    return {"kind": "file" if media_type == PDF else "image", **found, "hash": hash}


def lines_of(path: str, data: bytes, offset: int | None, limit: int | None) -> dict[str, Any]:
    """Lines with their numbers, as many as may be shown at once."""
    first = offset or 1
    lines = data.decode("utf-8", "replace").split("\n")
    shown = [_cut(line) for line in lines[first - 1 : first - 1 + _wanted(limit)]]
    return _numbered(path, shown, len(lines), offset, limit)


async def _long_lines(
    files: Workspace, size: int, path: str, offset: int | None, limit: int | None
) -> dict[str, Any]:
    """The same of a text that is too long to be held: piece by piece, so others are served meanwhile."""
    window = _Window(offset or 1, _wanted(limit))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, size, PIECE):
        data = await files.read_file_bytes(path, start=start, length=PIECE) or b""
        window.take(decoder.decode(data, start + PIECE >= size))
    return _numbered(path, window.lines(), window.number, offset, limit)


class _Window:
    """The lines of a text that are wanted, while it comes in pieces."""

    def __init__(self, first: int, most: int) -> None:
        self._first, self._last = first, first + most
        self._found: list[str] = []
        # The line that has no end yet: its number, how it begins, how long it is.
        self.number, self._begin, self._length = 1, "", 0

    def take(self, text: str) -> None:
        """What comes next."""
        breaks = text.count("\n")
        if self.number + breaks < self._first or self.number >= self._last:
            self.number += breaks  # nothing of it is wanted
            return
        for place, line in enumerate(text.split("\n")):
            if place:
                if self._is_wanted:
                    self._found.append(_cut(self._begin, self._length))
                self.number, self._begin, self._length = self.number + 1, "", 0
            self._begin = (self._begin + line[: LONGEST_LINE + 1])[: LONGEST_LINE + 1]
            self._length += len(line)

    def lines(self) -> list[str]:
        """Those that are there."""
        return [*self._found, *([_cut(self._begin, self._length)] if self._is_wanted else [])]

    @property
    def _is_wanted(self) -> bool:
        return self._first <= self.number < self._last


def _wanted(limit: int | None) -> int:
    return MOST_LINES if limit is None else min(limit, MOST_LINES)


def _numbered(
    path: str, lines: list[str], total: int, offset: int | None, limit: int | None
) -> dict[str, Any]:
    first = offset or 1
    end = total if limit is None else min(first + limit - 1, total)
    shown = [f"{number}\t{line}" for number, line in enumerate(lines, first)]
    if end - first + 1 > MOST_LINES:
        more = end - first + 1 - MOST_LINES
        shown.append(f"[{more} more lines are not shown: read on with offset {first + MOST_LINES}]")
    found: dict[str, Any] = {"path": path, "content": "\n".join(shown), "totalLines": total}
    if offset is not None or limit is not None:
        found |= {"fromLine": first, "toLine": end}
    return found


def _cut(line: str, length: int | None = None) -> str:
    length = len(line) if length is None else length
    if length <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]}… [truncated, {length - LONGEST_LINE} more characters]"


def _media_type(entry: Entry, data: bytes) -> str:
    """What a file is: what is said of it, unless its bytes show that it is something else.

    A picture that is none, or is another kind than it says, would be refused by models for ever after.
    """
    told = entry.media_type.partition(";")[0].strip().lower()
    if not told or told in _GENERIC:
        return sniffed(data)
    if told in SHOWN:
        return told if told == PDF and PDF_SIGN in data[:1024] else sniffed(data)
    if _is_text(told) and (b"\0" in data[:4096] or signed_as(data) is not None):
        return sniffed(data)
    return told


def _is_text(media_type: str) -> bool:
    kind, _, subtype = media_type.partition("/")
    if media_type == SVG:
        return False
    return kind == "text" or subtype in _TEXTS or subtype.endswith(("+json", "+xml"))


# --- what the model sees


async def shown(place: Place, output: Any, ctx: ToolContext) -> Any:
    """What the model sees of a result: the text alone, a picture as a picture."""
    if not isinstance(output, Mapping):
        return output
    told = cast("Mapping[str, Any]", output)
    if "error" in told:
        return f"Error: {told['error']}"
    if isinstance(told.get("content"), str):
        return told["content"] or _why_nothing(told)
    if told.get("kind") not in ("image", "file") or not isinstance(told.get("path"), str):
        return dict(told)
    path, media_type, size = told["path"], str(told.get("mediaType")), int(told.get("sizeBytes") or 0)
    if size > LARGEST_SHOWN:
        return (
            f"Error: {path} has {in_words(size)}; of a file of this kind at most {in_words(LARGEST_SHOWN)}"
            " can be shown."
        )
    data, is_same = await _seen(place, ctx, path, told.get("hash"))
    if data is None:
        return f"Error: {path} is not there any more."
    if len(data) > LARGEST_SHOWN:
        return f"Error: {path} has become too large to be shown: {in_words(len(data))}."
    note = f"{path} ({media_type}, {in_words(len(data))}{'' if is_same else ', as it is now'})"
    if media_type == SVG:
        return f"{note}\n{data.decode('utf-8', 'replace')}"
    if media_type not in SHOWN:
        return f"{note}: a picture of this kind cannot be shown."
    if not is_same and sniffed(data) != media_type:
        return f"Error: {path} is something else now."
    url = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    name = None if told["kind"] == "image" else str(told.get("name"))
    return [TextPart(note), FilePart(url, media_type, name)]


def _why_nothing(told: Mapping[str, Any]) -> str:
    """In the place of a text that is empty: only lines behind the last one are."""
    total, first = told.get("totalLines"), told.get("fromLine")
    return "" if first is None else f"[{told.get('path')} has {total} lines: none from line {first} on]"


async def _seen(place: Place, ctx: ToolContext, path: str, hash: Any) -> tuple[bytes | None, bool]:
    """The bytes that were seen then, else those that are there now, and which of the two."""
    try:
        files = await place.where(ctx, path)
        if isinstance(files, Workspace) and isinstance(hash, str):
            kept = await files.read_content(hash)
            if kept is not None:
                return kept, True
        data: bytes | None = await awaited(files.read_file_bytes(path))
        return data, data is not None and await asyncio.to_thread(_hash, data) == hash
    except WorkspaceError:
        return None, False  # a folder now, or a link that leads nowhere


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
