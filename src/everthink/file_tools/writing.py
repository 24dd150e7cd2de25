"""`write`, `edit`, `delete`: each one edit, durable with its result or not at all."""

from __future__ import annotations

from typing import Any

from ..calling import awaited
from ..errors import WorkspaceError
from ..tools.context import ToolContext
from ..workspace.workspace import Workspace
from .editing import Edited, NotEdited, edited
from .operations import as_bytes, as_entry
from .place import Place, shown_error
from .sizes import in_words

__all__ = ["delete", "edit", "write"]

LONGEST_EDITED = 8 * 1024 * 1024
"""Bytes of a text that is edited."""
_REPLACED = "\ufffd"


async def write(place: Place, ctx: ToolContext, path: str, content: str) -> dict[str, Any]:
    """Write a file."""
    told = {
        "path": path,
        "bytesWritten": len(content.encode("utf-8", "replace")),
        "lines": content.count("\n") + 1,
    }
    try:
        await awaited(place.concluding(ctx, lambda: told).write_file(path, content))
    except WorkspaceError as error:
        raise shown_error(error) from error
    return told


async def edit(place: Place, ctx: ToolContext, path: str, old: str, new: str) -> dict[str, Any]:
    """Replace one place of a file, or make a new file when there is nothing to replace."""
    try:
        if not old:
            return await _created(place, ctx, path, new)
        return await _replaced(place, ctx, path, old, new)
    except NotEdited as why:
        return {"error": str(why)}
    except WorkspaceError as error:
        if error.code == "ENOENT":
            return {"error": f"File not found: {path}"}
        raise shown_error(error) from error


async def _created(place: Place, ctx: ToolContext, path: str, text: str) -> dict[str, Any]:
    files = place.of(ctx)
    entry = as_entry(files, await awaited(files.stat(path)))
    if entry is not None:
        raise NotEdited(f"{path} is there already: say which text to replace, or use write to replace all.")
    told = {"path": path, "created": True, "lines": text.count("\n") + 1}
    await awaited(place.concluding(ctx, lambda: told).write_file(path, text))
    return told


async def _replaced(place: Place, ctx: ToolContext, path: str, old: str, new: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    is_text = False

    def changed(text: str) -> str:
        if _REPLACED in text and not is_text:
            raise _NotSure
        # Looked at here and not before: whoever came first to this file is to edit it first.
        _check_length(path, len(text))
        made: Edited = edited(path, text, old, new)
        told.clear()
        told.update({"path": path, "replaced": True, "lines": made.text.count("\n") + 1})
        if made.is_fuzzy:
            told["fuzzyMatch"] = True
        if made.text == text:
            told["note"] = "The file is as it was: new_string is what was there."
        return made.text

    files = place.concluding(ctx, lambda: told)
    if isinstance(files, Workspace):
        try:
            await files.rewrite_file(path, changed)
            return told
        except _NotSure:
            _text_of(path, await files.read_file_bytes(path))
            is_text = True
        await files.rewrite_file(path, changed)
        return told
    is_text = True
    entry = as_entry(files, await awaited(files.stat(path)))
    if entry is not None:
        _check_length(path, entry.size)
    text = _text_of(path, as_bytes(files, await awaited(files.read_file_bytes(path))))
    await awaited(files.write_file(path, changed(text)))
    return told


def _check_length(path: str, size: int) -> None:
    if size > LONGEST_EDITED:
        raise NotEdited(
            f"{path} has {in_words(size)}, and a text of more than {in_words(LONGEST_EDITED)} is not"
            " edited. Write the part that matters to a file of its own."
        )


class _NotSure(Exception):
    """A text has the sign that stands for what is no text: its bytes must be looked at."""


def _text_of(path: str, data: bytes | None) -> str:
    if data is None:
        raise NotEdited(f"File not found: {path}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise NotEdited(
            f"{path} is no text in UTF-8: an edit would spoil it. Use write to replace all of it."
        ) from None


async def delete(place: Place, ctx: ToolContext, path: str, *, recursive: bool) -> dict[str, Any]:
    """Remove a file, or a folder; what is not there is gone already."""
    told = {"deleted": path}
    try:
        await awaited(place.concluding(ctx, lambda: told).rm(path, recursive=recursive, force=True))
    except WorkspaceError as error:
        raise shown_error(error) from error
    return told
