"""`state.*` that looks for something: lines in texts, files by what they are, whole trees."""

from __future__ import annotations

import fnmatch
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import ToolError
from ..file_tools.place import Place
from ..media_types import sniffed, text_of
from ..workspace.glob import Glob
from ..workspace.paths import normal
from ..workspace.port import Entry
from .state_parts import (
    CONTEXT,
    FLAG,
    MATCHES,
    MOST_AT_ONCE,
    NUMBER,
    PATH,
    TEXT,
    Room,
    Schema,
    Tools,
    below,
    beside,
    bytes_at,
    read_tool,
    text_at,
)

__all__ = ["HOW", "Wanted", "is_small_file", "looking_tools", "wanted_of"]

MOST_MATCHES = 200
LARGEST_TEXT = 1 << 20
"""Bytes of a file that is looked through when many are."""
MOST_ENTRIES = 10_000
SECONDS = 5.0
"""Of one call, in all texts that it looks through."""
MOST_PATTERN, MOST_QUERY, _MOST_NAME = 1_000, 10_000, 1_000
"""Characters of a regular expression, which is compiled, of a text, and of a pattern of names."""
_LONGEST_LINE = 2_000
KINDS: Schema = {"type": "string", "enum": ["file", "directory", "symlink"]}
HOW: Schema = {"case_sensitive": FLAG, "regex": FLAG, "whole_word": FLAG}
"""How a text is looked for."""
AROUND: Schema = {"context_before": CONTEXT, "context_after": CONTEXT, "max_matches": MATCHES}


class Wanted:
    """What is looked for in texts."""

    def __init__(self, compiled: Any, words: str) -> None:
        self._compiled, self._words = compiled, words if len(words) <= 200 else f"{words[:200]}…"
        self._left = SECONDS
        self._room = Room("What was found", "Ask for fewer matches, or for fewer lines around them.")

    def lines(self, text: str, given: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
        """Each place where it is: line and column from 1 on. Belongs in a thread."""
        return self._timed(lambda: self._lines(text, given, most))

    def _lines(self, text: str, given: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        before: deque[str] = deque(maxlen=given.get("context_before", 0))
        after, ends = given.get("context_after", 0), time.monotonic() + self._left
        for number, (start, end) in enumerate(_rows(text), 1):
            if number % 1_000 == 0 and time.monotonic() > ends:
                raise TimeoutError
            row = text[start:end]
            for match in self._compiled.finditer(row, timeout=self._left, concurrent=True):
                if len(found) >= most:
                    return found
                told: dict[str, Any] = {"line": number, "column": match.start() + 1}
                told |= {"match": match[0][:_LONGEST_LINE], "lineText": row[:_LONGEST_LINE]}
                if before.maxlen:
                    told["beforeLines"] = list(before)
                if after:
                    told["afterLines"] = [text[a:b][:_LONGEST_LINE] for a, b in _rows(text, end + 1, after)]
                around = (*before, *told.get("afterLines", ()))
                self._room.take(told["match"], told["lineText"], *around)
                found.append(told)
            before.append(row[:_LONGEST_LINE])
        return found

    def replaced(self, text: str, replacement: str) -> tuple[str, int]:
        """The text with something else in each of its places, as it is written. Belongs in a thread."""
        literal = replacement.replace("\\", "\\\\")  # nothing in it means anything
        most = MOST_AT_ONCE // max(len(replacement), 1)
        made, count = self._timed(
            lambda: self._compiled.subn(literal, text, most + 1, timeout=self._left, concurrent=True)
        )
        if count > most:
            raise ToolError("EFBIG: It would have more than 8 MiB of the replacement. Nothing was changed.")
        return made, count

    def _timed(self, look: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            return look()
        except TimeoutError:
            raise ToolError(
                f"EINVAL: Looking for {self._words!r} took longer than {SECONDS:g} seconds."
                " Use a simpler pattern, or look through less at once."
            ) from None
        finally:
            self._left = max(self._left - (time.monotonic() - began), 0.001)


def _rows(text: str, start: int = 0, most: int = -1) -> Iterator[tuple[int, int]]:
    """Where each line of a text begins and ends; of millions of lines no list is made."""
    while start <= len(text) and most != 0:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield start, end
        start, most = end + 1, most - 1


def wanted_of(text: str, given: Mapping[str, Any]) -> Wanted:
    """What code looks for, read."""
    import regex

    if not text:
        raise ToolError("EINVAL: There is nothing to look for.")
    is_regex = given.get("regex", False)
    if len(text) > (most := MOST_PATTERN if is_regex else MOST_QUERY):
        what = "A regular expression" if is_regex else "A text that is looked for"
        raise ToolError(f"EINVAL: {what} has {most:,} characters at most, not {len(text):,}.")
    pattern = text if is_regex else regex.escape(text)
    if given.get("whole_word", False):
        pattern = rf"(?<!\w)(?:{pattern})(?!\w)"
    flags = 0 if given.get("case_sensitive", True) else regex.IGNORECASE
    try:
        return Wanted(regex.compile(pattern, flags), text)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ToolError(f"EINVAL: {text[:200]!r} is no regular expression: {error}.") from error


def looking_tools(place: Place) -> Tools:
    """The functions by full name."""

    async def search_text(files: Any, given: dict[str, Any]) -> Any:
        wanted, most = wanted_of(given["query"], given), given.get("max_matches", MOST_MATCHES)
        return await beside(wanted.lines, await text_at(files, given["path"]), given, most)

    async def search_files(files: Any, given: dict[str, Any]) -> Any:
        wanted, most = wanted_of(given["query"], given), given.get("max_matches", MOST_MATCHES)
        found: list[dict[str, Any]] = []
        for entry in await files.glob(given.get("pattern", "**/*")):
            if most <= 0:
                break
            text = await _text_if_any(files, entry)
            if text is not None and (lines := await beside(wanted.lines, text, given, most)):
                found.append({"path": entry.path, "matches": lines})
                most -= len(lines)
        return found

    async def find(files: Any, given: dict[str, Any]) -> Any:
        fits = await _fitting(files, given)
        return [_told(entry, given.get("path", "/")) for entry in fits]

    async def walk_tree(files: Any, given: dict[str, Any]) -> Any:
        path = given.get("path", "/")
        top: dict[str, Any] = {"path": normal(path), "name": normal(path).rpartition("/")[2]}
        top |= {"type": "directory", "children": []}
        known = {top["path"]: top}
        async for entry in _bounded(files, path):
            if _depth(entry, path) > given.get("max_depth", MOST_ENTRIES):
                continue
            one: dict[str, Any] = {"path": entry.path, "name": entry.name, "type": entry.kind}
            if entry.kind == "directory":
                known[entry.path] = one
                one["children"] = []
            else:
                one["size"] = entry.size
            known[entry.path.rpartition("/")[0] or "/"]["children"].append(one)
        return top

    async def summarize_tree(files: Any, given: dict[str, Any]) -> Any:
        path = given.get("path", "/")
        told = {"files": 0, "directories": 0, "symlinks": 0, "totalBytes": 0, "maxDepth": 0}
        names = {"file": "files", "directory": "directories", "symlink": "symlinks"}
        async for entry in below(files, path):
            told[names[entry.kind]] += 1
            told["totalBytes"] += entry.size
            told["maxDepth"] = max(told["maxDepth"], _depth(entry, path))
        return told

    async def detect_file(files: Any, given: dict[str, Any]) -> Any:
        data = await bytes_at(files, given["path"])
        mime = _detected(data)
        ending = {
            "image/jpeg": "jpg",
            "text/plain": "txt",
            "application/gzip": "gz",
            "application/zip": "zip",
        }
        ending |= {"application/x-tar": "tar", "image/svg+xml": "svg"}
        told = {"mime": mime, "description": _DESCRIBED.get(mime, "bytes"), "binary": text_of(data) is None}
        if mime != "application/octet-stream":
            told["extension"] = ending.get(mime) or mime.rpartition("/")[2]
        return told

    async def get_capabilities(files: Any, given: dict[str, Any]) -> Any:
        return {"chmod": False, "utimes": False, "hardLinks": False}

    sizes = {"size_min": NUMBER, "size_max": NUMBER, "mtime_after": NUMBER, "mtime_before": NUMBER}
    wanted: Schema = {"name": TEXT, "path_pattern": TEXT, "type": KINDS, "empty": FLAG}
    depths: Schema = {"min_depth": NUMBER, "max_depth": NUMBER}
    return {
        "state.search_text": read_tool(
            place,
            search_text,
            "Places of a text in a file: [{line, column, match, lineText}].",
            {"path": PATH, "query": TEXT},
            {**HOW, **AROUND},
        ),
        "state.search_files": read_tool(
            place,
            search_files,
            "Places of a text in files: [{path, matches}]. pattern: of their paths, such as **/*.md",
            {"query": TEXT},
            {"pattern": TEXT, **HOW, **AROUND},
        ),
        "state.find": read_tool(
            place,
            find,
            "What is below a folder, as {path, name, type, depth, size, mtime}. name and path_pattern are"
            " patterns, depth counts from 1 on, mtime is in milliseconds.",
            {},
            {"path": PATH, **wanted, **depths, **sizes},
        ),
        "state.walk_tree": read_tool(
            place,
            walk_tree,
            "A folder as {path, name, type, children}, and so on.",
            {},
            {"path": PATH, "max_depth": NUMBER},
        ),
        "state.summarize_tree": read_tool(
            place,
            summarize_tree,
            "{files, directories, symlinks, totalBytes, maxDepth} of all below a folder.",
            {},
            {"path": PATH},
        ),
        "state.detect_file": read_tool(
            place,
            detect_file,
            "What a file is by its bytes: {mime, description, extension, binary}.",
            {"path": PATH},
        ),
        "state.get_capabilities": read_tool(
            place, get_capabilities, "{chmod, utimes, hardLinks}: none of them is there.", {}
        ),
    }


def is_small_file(entry: Entry) -> bool:
    """True for what is looked through when many are."""
    return entry.kind == "file" and entry.size <= LARGEST_TEXT


async def _text_if_any(files: Any, entry: Entry) -> str | None:
    if not is_small_file(entry):
        return None
    data = await files.read_file_bytes(entry.path)
    return None if data is None else text_of(data)


async def _fitting(files: Any, given: Mapping[str, Any]) -> list[Entry]:
    path = given.get("path", "/")
    found: list[Entry] = []
    folders: set[str] = set()
    async for entry in below(files, path):
        folders.add(entry.path.rpartition("/")[0] or "/")
        at = int(entry.modified_at.timestamp() * 1000)
        if (
            given.get("type", entry.kind) == entry.kind
            and given.get("min_depth", 1) <= _depth(entry, path) <= given.get("max_depth", MOST_ENTRIES)
            and given.get("size_min", 0) <= entry.size <= given.get("size_max", entry.size)
            and given.get("mtime_after", at) <= at <= given.get("mtime_before", at)
        ):
            found.append(entry)
    if (empty := given.get("empty")) is not None:
        found = [one for one in found if one.kind != "symlink" and empty == _is_empty(one, folders)]
    if (name := given.get("name")) is not None:
        found = await beside(_named, found, name)
    if (pattern := given.get("path_pattern")) is not None:
        meant = await beside(Glob(pattern).matching, [entry.path for entry in found])
        found = [entry for entry in found if entry.path in meant]
    if len(found) > MOST_ENTRIES:
        raise ToolError(f"EFBIG: More than {MOST_ENTRIES:,} entries fit. Ask for fewer of them.")
    return found


def _named(entries: Sequence[Entry], pattern: str) -> list[Entry]:
    """Those whose names fit a pattern. Belongs in a thread."""
    import regex

    if len(pattern) > _MOST_NAME:
        raise ToolError(
            f"EINVAL: A pattern of names has {_MOST_NAME:,} characters at most, not {len(pattern):,}."
        )
    wanted, ends = regex.compile(fnmatch.translate(pattern)), time.monotonic() + SECONDS
    try:
        return [
            entry
            for entry in entries
            if wanted.match(entry.name, timeout=max(ends - time.monotonic(), 0.001), concurrent=True)
        ]
    except TimeoutError:
        raise ToolError(
            f"EINVAL: Looking for {pattern[:200]!r} took longer than {SECONDS:g} seconds."
            " Use a pattern with fewer * in it."
        ) from None


def _is_empty(entry: Entry, folders: set[str]) -> bool:
    return entry.path not in folders if entry.kind == "directory" else entry.size == 0


async def _bounded(files: Any, path: str) -> AsyncIterator[Entry]:
    count = 0
    async for entry in below(files, path):
        count += 1
        if count > MOST_ENTRIES:
            raise ToolError(f"EFBIG: There are more than {MOST_ENTRIES:,} entries. Walk a folder below.")
        yield entry


def _told(entry: Entry, path: str) -> dict[str, Any]:
    return {
        "path": entry.path,
        "name": entry.name,
        "type": entry.kind,
        "depth": _depth(entry, path),
        "size": entry.size,
        "mtime": int(entry.modified_at.timestamp() * 1000),
    }


def _depth(entry: Entry, path: str) -> int:
    return entry.path.count("/") - normal(path).rstrip("/").count("/")


_SIGNS = (
    (b"\x1f\x8b", "application/gzip"),
    (b"PK\x03\x04", "application/zip"),
)
_DESCRIBED = {
    "image/png": "PNG image",
    "image/jpeg": "JPEG image",
    "image/gif": "GIF image",
    "image/webp": "WebP image",
    "image/svg+xml": "SVG image",
    "application/pdf": "PDF document",
    "application/gzip": "gzip-compressed data",
    "application/zip": "ZIP archive",
    "application/x-tar": "tar archive",
    "text/plain": "text",
}


def _detected(data: bytes) -> str:
    for sign, mime in _SIGNS:
        if data.startswith(sign):
            return mime
    return "application/x-tar" if data[257:262] == b"ustar" else sniffed(data)
