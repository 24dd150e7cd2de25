"""`list`, `find`, `grep`: what is there, by folder, by pattern of paths, by content."""

from __future__ import annotations

import asyncio
from typing import Any

from ..calling import awaited
from ..errors import WorkspaceError
from ..tools.context import ToolContext
from ..workspace.grep import Found, Hits, Search
from ..workspace.port import Entry
from ..workspace.workspace import Workspace
from .operations import as_bytes, as_entries, as_entry
from .place import Place, shown_error
from .sizes import in_words

__all__ = ["find_files", "grep", "list_folder"]

MOST_FOUND = 200
LARGEST_SEARCHED = 1_048_576
LONGEST_LINE = 2_000
_PAGE = 100


async def list_folder(place: Place, ctx: ToolContext, path: str, limit: int, offset: int) -> dict[str, Any]:
    """What is in a folder."""
    files = place.of(ctx)
    try:
        given = await awaited(files.read_dir(path, limit=limit, offset=offset))
        entries = as_entries(files, "read_dir", given)
        note = None if entries or offset else await _why_empty(files, path)
    except WorkspaceError as error:
        raise shown_error(error) from error
    told = {"path": path, "count": len(entries), "entries": [_line(entry) for entry in entries]}
    return told if note is None else {**told, "note": note}


async def _why_empty(files: Any, path: str) -> str | None:
    """Why nothing is listed, unless it is a folder with nothing in it."""
    if path.strip("/") in ("", ".") or not callable(getattr(files, "stat", None)):
        return None
    entry = as_entry(files, await awaited(files.stat(path)))
    if entry is None:
        return f"There is no folder {path}."
    return None if entry.kind == "directory" else f"{path} is a file: read it."


def _line(entry: Entry) -> str:
    match entry.kind:
        case "directory":
            return f"{entry.name}/"
        case "file":
            return f"{entry.name} ({in_words(entry.size)})"
        case _:
            return entry.name


async def find_files(place: Place, ctx: ToolContext, pattern: str) -> dict[str, Any]:
    """What has a path like this."""
    files = place.of(ctx)
    try:
        entries = as_entries(files, "glob", await awaited(files.glob(pattern)))
    except WorkspaceError as error:
        return {"error": str(error)}
    paths = [
        f"{entry.path}/" if entry.kind == "directory" else entry.path
        for entry in entries
        if entry.path != "/"
    ]
    found: dict[str, Any] = {"pattern": pattern, "count": len(paths), "files": paths[:MOST_FOUND]}
    if len(paths) > MOST_FOUND:
        found |= {"truncated": True, "showing": MOST_FOUND}
    if not paths and "/" not in pattern and "**" not in pattern:
        found["note"] = f"That is for what is in the root folder: **/{pattern} looks in all of them."
    return found


async def grep(
    place: Place,
    ctx: ToolContext,
    query: str,
    include: str,
    *,
    fixed: bool,
    case_sensitive: bool,
    context: int,
) -> dict[str, Any]:
    """Lines that a pattern is found in."""
    files = place.of(ctx)
    try:
        if isinstance(files, Workspace):
            hits = await files.grep(
                query,
                include=include,
                fixed=fixed,
                ignore_case=not case_sensitive,
                context=context,
                limit=MOST_FOUND,
                most_bytes=LARGEST_SEARCHED,
            )
        else:
            search = Search(
                query, fixed=fixed, ignore_case=not case_sensitive, context=context, limit=MOST_FOUND
            )
            hits = await _searched(files, search, include)
    except WorkspaceError as error:
        return {"error": str(error)}
    return _told(query, hits, context)


async def _searched(files: Any, search: Search, include: str) -> Hits:
    """Search the files of a backend of somebody's own."""
    pattern = include if "/" in include else f"**/{include}"
    entries = as_entries(files, "glob", await awaited(files.glob(pattern)))
    meant = [entry for entry in entries if entry.kind == "file"]
    for start in range(0, len(meant), _PAGE):
        page: list[tuple[str, bytes | None]] = []
        for entry in meant[start : start + _PAGE]:
            is_small = entry.size <= LARGEST_SEARCHED
            data = as_bytes(files, await awaited(files.read_file_bytes(entry.path))) if is_small else None
            page.append((entry.path, data if data is None or len(data) <= LARGEST_SEARCHED else None))
        await asyncio.to_thread(search.look, page)
        if search.is_over:
            break
    return search.hits()


def _told(query: str, hits: Hits, context: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "query": query,
        "filesSearched": hits.files_searched,
        "filesWithMatches": len({found.path for found in hits.found}),
        "totalMatches": len(hits.found),
        "matches": [_match(found, context) for found in hits.found],
    }
    if hits.is_cut:
        told["truncated"] = True
    if hits.files_skipped:
        told["filesSkipped"] = hits.files_skipped
        told["note"] = f"Files of more than {in_words(LARGEST_SEARCHED)}, or that are no text, were skipped."
    return told


def _match(found: Found, context: int) -> Any:
    if not context:
        return f"{found.path}:{found.line}: {found.text}"
    first = found.line - len(found.before)
    lines = [*found.before, found.text, *found.after]
    marked = [
        f"{'>' if number == found.line else ' '} {number}\t{line[:LONGEST_LINE]}"
        for number, line in enumerate(lines, first)
    ]
    return {"file": found.path, "line": found.line, "context": "\n".join(marked)}
