"""`state.*` and `open()`: the workspace, as code in a sandbox has it.

    state.write_file(...) --Tool--> Workspace --one commit: the file, the row of the call--> durable
    open("/a").read()     --files.read--> the same

Each is a tool, so hooks and observers see it as they see any call. All of them are logged, reads as well: a
read that was made again would see what the code itself has written since.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..errors import ToolError, WorkspaceError
from ..file_tools.place import Place
from ..messages import decode_json
from ..tools.context import ToolContext
from ..tools.json_input import JsonInput
from ..tools.tool import Tool
from ..workspace.port import Entry
from .values import binary, data_of

__all__ = ["state_tools"]

Body = Callable[[Any, dict[str, Any]], Awaitable[Any]]
_PATH: Mapping[str, Any] = {"type": "string"}
_TEXT: Mapping[str, Any] = {"type": "string"}
_FLAG: Mapping[str, Any] = {"type": "boolean"}
_CONTEXT: Mapping[str, Any] = {"type": "integer", "minimum": 0, "maximum": 100}
_MATCHES: Mapping[str, Any] = {"type": "integer", "minimum": 0, "maximum": 10_000}
_SPACES: Mapping[str, Any] = {"type": "integer", "minimum": 0, "maximum": 10}
_ANY: Mapping[str, Any] = {}


MOST_READ = 4_000_000
"""Bytes of a file that is given whole: of a longer one the result would be lost."""
MOST_CHANGED = 8 * 1024 * 1024
"""Bytes of a text that is changed, compared or hashed here: this process does it, and others wait for it."""


@functools.lru_cache(maxsize=2)
def state_tools(*, is_once: bool) -> Mapping[str, Tool]:
    """The functions by full name. `is_once`: a write that a crash cut off has certainly not happened."""
    place = Place(is_once=is_once)
    made = {**_reading(place), **_writing(place), **_files(place)}
    return MappingProxyType(made)


def _reading(place: Place) -> dict[str, Tool]:
    async def read_file(files: Any, given: dict[str, Any]) -> Any:
        await _fits(files, given["path"], MOST_READ)
        return _found(given["path"], await files.read_file(given["path"]))

    async def read_file_bytes(files: Any, given: dict[str, Any]) -> Any:
        await _fits(files, given["path"], MOST_READ)
        return binary(_found(given["path"], await files.read_file_bytes(given["path"])))

    async def read_json(files: Any, given: dict[str, Any]) -> Any:
        await _fits(files, given["path"], MOST_READ)
        text = _found(given["path"], await files.read_file(given["path"]))
        try:
            return decode_json(text)
        except ValueError as error:
            raise ToolError(f"{given['path']} is no JSON: {error}") from error

    async def exists(files: Any, given: dict[str, Any]) -> bool:
        return await files.exists(given["path"])

    async def stat(files: Any, given: dict[str, Any]) -> Any:
        return _as_stat(await files.stat(given["path"]))

    async def readdir(files: Any, given: dict[str, Any]) -> list[str]:
        return [entry.name for entry in await _listed(files, given.get("path", "/"))]

    async def readdir_with_file_types(files: Any, given: dict[str, Any]) -> Any:
        return [
            {"name": entry.name, "type": entry.kind} for entry in await _listed(files, given.get("path", "/"))
        ]

    async def glob(files: Any, given: dict[str, Any]) -> list[str]:
        return [entry.path for entry in await files.glob(given["pattern"])]

    async def search_files(files: Any, given: dict[str, Any]) -> Any:
        hits = await files.grep(
            given["query"],
            given.get("path", "/"),
            include=given.get("pattern"),
            fixed=not given.get("regex", False),
            ignore_case=not given.get("case_sensitive", True),
            context=given.get("context", 0),
            limit=given.get("max_matches", 200),
        )
        return [
            {
                "path": one.path,
                "line": one.line,
                "lineText": one.text,
                "beforeLines": list(one.before),
                "afterLines": list(one.after),
            }
            for one in hits.found
        ]

    async def diff(files: Any, given: dict[str, Any]) -> str:
        await _fits(files, given["path_a"])
        await _fits(files, given["path_b"])
        return await files.diff(given["path_a"], given["path_b"])

    async def diff_content(files: Any, given: dict[str, Any]) -> str:
        await _fits(files, given["path"])
        return await files.diff_content(given["path"], given["new_content"])

    async def hash_file(files: Any, given: dict[str, Any]) -> str:
        await _fits(files, given["path"])
        data = _found(given["path"], await files.read_file_bytes(given["path"]))
        return hashlib.new(given.get("algorithm", "sha256"), data, usedforsecurity=False).hexdigest()

    kinds = {"type": "string", "enum": ["md5", "sha1", "sha256"]}
    looking = {"pattern": _TEXT, "path": _PATH, "regex": _FLAG, "case_sensitive": _FLAG, "context": _CONTEXT}
    return {
        "state.read_file": _read(place, read_file, "The text of a file.", {"path": _PATH}),
        "state.read_file_bytes": _read(place, read_file_bytes, "The bytes of a file.", {"path": _PATH}),
        "state.read_json": _read(place, read_json, "What a JSON file holds.", {"path": _PATH}),
        "state.exists": _read(place, exists, "True when there is something at a path.", {"path": _PATH}),
        "state.stat": _read(
            place, stat, "{type, size, mtime} of what is at a path; None when nothing is.", {"path": _PATH}
        ),
        "state.readdir": _read(place, readdir, "The names in a folder.", {}, {"path": _PATH}),
        "state.readdir_with_file_types": _read(
            place, readdir_with_file_types, "{name, type} of all in a folder.", {}, {"path": _PATH}
        ),
        "state.glob": _read(place, glob, "The paths that fit a pattern: **/*.md", {"pattern": _TEXT}),
        "state.search_files": _read(
            place,
            search_files,
            "Lines that hold a text, as {path, line, lineText}. pattern: of the files' names.",
            {"query": _TEXT},
            {**looking, "max_matches": _MATCHES},
        ),
        "state.diff": _read(place, diff, "The difference of two files.", {"path_a": _PATH, "path_b": _PATH}),
        "state.diff_content": _read(
            place,
            diff_content,
            "The difference of a file to a new text.",
            {"path": _PATH, "new_content": _TEXT},
        ),
        "state.hash_file": _read(
            place, hash_file, "The hash of a file, in hexadecimal.", {"path": _PATH}, {"algorithm": kinds}
        ),
    }


def _writing(place: Place) -> dict[str, Tool]:
    async def write_file(files: Any, given: dict[str, Any]) -> None:
        await files.write_file(given["path"], given["content"])

    async def write_file_bytes(files: Any, given: dict[str, Any]) -> None:
        await files.write_file_bytes(given["path"], _bytes(given["content"]))

    async def append_file(files: Any, given: dict[str, Any]) -> None:
        await _fits(files, given["path"])
        await files.append_file(given["path"], given["content"])

    async def write_json(files: Any, given: dict[str, Any]) -> None:
        text = json.dumps(given["value"], ensure_ascii=False, indent=given.get("spaces", 2))
        await files.write_file(given["path"], f"{text}\n")

    async def mkdir(files: Any, given: dict[str, Any]) -> None:
        await files.mkdir(given["path"], recursive=given.get("recursive", False))

    async def rm(files: Any, given: dict[str, Any]) -> None:
        flags = {"recursive": given.get("recursive", False), "force": given.get("force", False)}
        await files.rm(given["path"], **flags)

    async def cp(files: Any, given: dict[str, Any]) -> None:
        await files.cp(given["source"], given["destination"], recursive=given.get("recursive", False))

    async def mv(files: Any, given: dict[str, Any]) -> None:
        await files.mv(given["source"], given["destination"])

    async def symlink(files: Any, given: dict[str, Any]) -> None:
        await files.symlink(given["target"], given["link_path"])

    two = {"source": _PATH, "destination": _PATH}
    content = {"path": _PATH, "content": _TEXT}
    return {
        "state.write_file": _write(place, write_file, "Write a text to a file.", content),
        "state.write_file_bytes": _write(
            place, write_file_bytes, "Write bytes to a file.", {"path": _PATH, "content": _ANY}
        ),
        "state.append_file": _write(place, append_file, "Add a text to the end of a file.", content),
        "state.write_json": _write(
            place, write_json, "Write a value as JSON.", {"path": _PATH, "value": _ANY}, {"spaces": _SPACES}
        ),
        "state.replace_in_file": _replacing(place),
        "state.mkdir": _write(place, mkdir, "Make a folder.", {"path": _PATH}, {"recursive": _FLAG}),
        "state.rm": _write(
            place, rm, "Remove a file or folder.", {"path": _PATH}, {"recursive": _FLAG, "force": _FLAG}
        ),
        "state.cp": _write(place, cp, "Copy a file or folder.", two, {"recursive": _FLAG}),
        "state.mv": _write(place, mv, "Move a file or folder.", two),
        "state.symlink": _write(place, symlink, "Make a link.", {"target": _PATH, "link_path": _PATH}),
    }


def _replacing(place: Place) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        path, search, to = given["path"], given["search"], given["replacement"]
        if not search:
            raise ToolError("There is nothing to search for.")
        try:
            await _fits(place.of(ctx), path)
            text = _found(path, await place.of(ctx).read_file(path))
            count = text.count(search)
            told = {"replaced": count}
            length = len(text) + count * (len(to) - len(search))
            if length > MOST_CHANGED:
                raise ToolError(
                    f"EFBIG: {path} would have {length:,} characters, and {MOST_CHANGED:,} may be."
                    " Nothing was changed."
                )
            if count:
                await place.concluding(ctx, lambda: told).write_file(path, text.replace(search, to))
            return told
        except WorkspaceError as error:
            raise _shown(error) from error

    wanted = {"path": _PATH, "search": _TEXT, "replacement": _TEXT}
    return _made(
        "replace_in_file", "Replace a text in a file wherever it is; {replaced}.", body, wanted, {}, place
    )


def _files(place: Place) -> dict[str, Tool]:
    """What `open()` and `Path` come to."""

    async def read(files: Any, given: dict[str, Any]) -> Any:
        await _fits(files, given["path"], MOST_READ)
        data: bytes = _found(given["path"], await files.read_file_bytes(given["path"]))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return binary(data)

    async def stat(files: Any, given: dict[str, Any]) -> Any:
        return _as_stat(await files.stat(given["path"]))

    async def names(files: Any, given: dict[str, Any]) -> list[str]:
        return [entry.name for entry in await _listed(files, given["path"])]

    async def write(files: Any, given: dict[str, Any]) -> None:
        await files.write_file_bytes(given["path"], _bytes(given["content"]))

    async def append(files: Any, given: dict[str, Any]) -> None:
        await _fits(files, given["path"])
        before: bytes = await files.read_file_bytes(given["path"]) or b""
        await files.write_file_bytes(given["path"], before + _bytes(given["content"]))

    async def mkdir(files: Any, given: dict[str, Any]) -> None:
        await files.mkdir(given["path"], recursive=True)

    async def remove(files: Any, given: dict[str, Any]) -> None:
        await files.rm(given["path"])

    async def rename(files: Any, given: dict[str, Any]) -> None:
        await files.mv(given["path"], given["to"])

    path, content = {"path": _PATH}, {"path": _PATH, "content": _ANY}
    return {
        "files.read": _read(place, read, "open() reads.", path),
        "files.stat": _read(place, stat, "Path looks.", path),
        "files.list": _read(place, names, "Path lists.", path),
        "files.write": _write(place, write, "open() writes.", content),
        "files.append": _write(place, append, "open() writes on.", content),
        "files.mkdir": _write(place, mkdir, "Path makes a folder.", path),
        "files.remove": _write(place, remove, "Path removes.", path),
        "files.rename": _write(place, rename, "Path moves.", {"path": _PATH, "to": _PATH}),
    }


def _read(
    place: Place,
    read: Body,
    description: str,
    required: Mapping[str, Any],
    optional: Mapping[str, Any] | None = None,
) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        try:
            return await read(place.of(ctx), given)
        except WorkspaceError as error:
            raise _shown(error) from error

    return _made(read.__name__, description, body, required, optional or {}, None)


def _write(
    place: Place,
    write: Body,
    description: str,
    required: Mapping[str, Any],
    optional: Mapping[str, Any] | None = None,
) -> Tool:
    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        try:
            return await write(place.concluding(ctx, lambda: None), given)
        except WorkspaceError as error:
            raise _shown(error) from error

    return _made(write.__name__, description, body, required, optional or {}, place)


def _made(
    name: str,
    description: str,
    body: Callable[..., Any],
    required: Mapping[str, Any],
    optional: Mapping[str, Any],
    place: Place | None,
) -> Tool:
    """A function; with a place, one that writes there."""
    return Tool(
        f"state_{name}",
        description,
        JsonInput(
            {
                "type": "object",
                "properties": {**required, **optional},
                "required": list(required),
                "additionalProperties": False,
            }
        ),
        body,
        on_interrupt="rerun" if place is None or place.is_once else "report",
    )


async def _fits(files: Any, path: str, most: int = MOST_CHANGED) -> None:
    """Refuse a file that is too long, before any of it is read."""
    entry: Entry | None = await files.stat(path)
    if entry is not None and entry.size > most:
        raise ToolError(
            f"EFBIG: {path} has {entry.size:,} bytes, and code can have {most:,} of a file at once."
            " Nothing was changed. Have it written to several files."
        )


async def _listed(files: Any, path: str) -> list[Entry]:
    entry = await files.stat(path)
    if path.strip("/") and entry is None:
        raise ToolError(f"ENOENT: There is no folder {path}.")
    return await files.read_dir(path, limit=10_000)


def _found(path: str, value: Any) -> Any:
    if value is None:
        raise ToolError(f"ENOENT: There is no file {path}.")
    return value


def _as_stat(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {"type": entry.kind, "size": entry.size, "mtime": int(entry.modified_at.timestamp() * 1000)}


def _bytes(value: Any) -> bytes:
    data = data_of(value)
    if data is None:
        raise ToolError("content is neither text nor bytes.")
    return data


def _shown(error: WorkspaceError) -> ToolError:
    return ToolError(f"{error.code}: {error}")
