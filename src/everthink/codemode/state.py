"""`state.*` and `open()`: the workspace, as code in a sandbox has it.

    state.write_file(...) --Tool--> Workspace --one commit: the file, the row of the call--> durable
    open("/a").read()     --files.read--> the same

Each is a tool, so hooks and observers see it as they see any call. All of them are logged, reads as well: a
read that was made again would see what the code itself has written since.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..errors import ToolError
from ..file_tools.place import Place
from ..tools.tool import Tool
from ..workspace.paths import normal
from ..workspace.port import Entry
from .state_archives import archive_tools
from .state_edits import edit_tools, json_at
from .state_looking import looking_tools
from .state_parts import ANY, FLAG, PATH, TEXT, bytes_at, bytes_of, fits, read_tool, text_at, write_tool
from .values import binary

__all__ = ["state_tools"]


@functools.lru_cache(maxsize=2)
def state_tools(*, is_once: bool) -> Mapping[str, Tool]:
    """The functions by full name. `is_once`: a write that a crash cut off has certainly not happened."""
    place = Place(is_once=is_once)
    looking, edits = {**_reading(place), **looking_tools(place)}, {**_writing(place), **edit_tools(place)}
    return MappingProxyType({**looking, **edits, **archive_tools(place), **_files(place)})


def _reading(place: Place) -> dict[str, Tool]:
    async def read_file(files: Any, given: dict[str, Any]) -> Any:
        return await text_at(files, given["path"])

    async def read_file_bytes(files: Any, given: dict[str, Any]) -> Any:
        return binary(await bytes_at(files, given["path"]))

    async def read_json(files: Any, given: dict[str, Any]) -> Any:
        return await json_at(files, given["path"])

    async def exists(files: Any, given: dict[str, Any]) -> bool:
        return await files.exists(given["path"])

    async def stat(files: Any, given: dict[str, Any]) -> Any:
        return _as_stat(await files.stat(given["path"]))

    async def lstat(files: Any, given: dict[str, Any]) -> Any:
        return _as_stat(await files.lstat(given["path"]))

    async def readlink(files: Any, given: dict[str, Any]) -> str:
        return await files.readlink(given["path"])

    async def realpath(files: Any, given: dict[str, Any]) -> str:
        entry = await files.stat(given["path"])
        if entry is None:
            raise ToolError(f"ENOENT: There is no {given['path']}.")
        return entry.path

    async def resolve_path(files: Any, given: dict[str, Any]) -> str:
        base, path = given["base"], given["path"]
        return normal(path if path.startswith("/") else f"{base}/{path}")

    async def readdir(files: Any, given: dict[str, Any]) -> list[str]:
        return [entry.name for entry in await _listed(files, given.get("path", "/"))]

    async def readdir_with_file_types(files: Any, given: dict[str, Any]) -> Any:
        return [
            {"name": entry.name, "type": entry.kind} for entry in await _listed(files, given.get("path", "/"))
        ]

    async def glob(files: Any, given: dict[str, Any]) -> list[str]:
        return [entry.path for entry in await files.glob(given["pattern"])]

    async def diff(files: Any, given: dict[str, Any]) -> str:
        await fits(files, given["path_a"])
        await fits(files, given["path_b"])
        return await files.diff(given["path_a"], given["path_b"])

    async def diff_content(files: Any, given: dict[str, Any]) -> str:
        await fits(files, given["path"])
        return await files.diff_content(given["path"], given["new_content"])

    async def hash_file(files: Any, given: dict[str, Any]) -> str:
        data = await bytes_at(files, given["path"])
        return hashlib.new(given.get("algorithm", "sha256"), data, usedforsecurity=False).hexdigest()

    kinds = {"type": "string", "enum": ["md5", "sha1", "sha256"]}
    return {
        "state.read_file": read_tool(place, read_file, "The text of a file.", {"path": PATH}),
        "state.read_file_bytes": read_tool(place, read_file_bytes, "The bytes of a file.", {"path": PATH}),
        "state.read_json": read_tool(place, read_json, "What a JSON file holds.", {"path": PATH}),
        "state.exists": read_tool(place, exists, "True when there is something at a path.", {"path": PATH}),
        "state.stat": read_tool(
            place, stat, "{type, size, mtime} of what is at a path; None when nothing is.", {"path": PATH}
        ),
        "state.lstat": read_tool(place, lstat, "The same of a link itself.", {"path": PATH}),
        "state.readlink": read_tool(place, readlink, "Where a link leads, as written.", {"path": PATH}),
        "state.realpath": read_tool(
            place, realpath, "The path of what is there, with the link followed.", {"path": PATH}
        ),
        "state.resolve_path": read_tool(
            place, resolve_path, "A path as seen from a folder.", {"base": PATH, "path": PATH}
        ),
        "state.readdir": read_tool(place, readdir, "The names in a folder.", {}, {"path": PATH}),
        "state.readdir_with_file_types": read_tool(
            place, readdir_with_file_types, "{name, type} of all in a folder.", {}, {"path": PATH}
        ),
        "state.glob": read_tool(place, glob, "The paths that fit a pattern: **/*.md", {"pattern": TEXT}),
        "state.diff": read_tool(
            place, diff, "The difference of two files.", {"path_a": PATH, "path_b": PATH}
        ),
        "state.diff_content": read_tool(
            place,
            diff_content,
            "The difference of a file to a new text.",
            {"path": PATH, "new_content": TEXT},
        ),
        "state.hash_file": read_tool(
            place, hash_file, "The hash of a file, in hexadecimal.", {"path": PATH}, {"algorithm": kinds}
        ),
    }


def _writing(place: Place) -> dict[str, Tool]:
    async def write_file(files: Any, given: dict[str, Any]) -> None:
        await files.write_file(given["path"], given["content"])

    async def write_file_bytes(files: Any, given: dict[str, Any]) -> None:
        await files.write_file_bytes(given["path"], bytes_of(given["content"]))

    async def append_file(files: Any, given: dict[str, Any]) -> None:
        await fits(files, given["path"])
        await files.append_file(given["path"], given["content"])

    async def mkdir(files: Any, given: dict[str, Any]) -> None:
        await files.mkdir(given["path"], recursive=given.get("recursive", False))

    async def rm(files: Any, given: dict[str, Any]) -> None:
        flags = {"recursive": given.get("recursive", False), "force": given.get("force", False)}
        await files.rm(given["path"], **flags)

    async def cp(files: Any, given: dict[str, Any]) -> None:
        await files.cp(given["source"], given["destination"], recursive=given.get("recursive", False))

    async def mv(files: Any, given: dict[str, Any]) -> None:
        await files.mv(given["source"], given["destination"])

    async def remove_tree(files: Any, given: dict[str, Any]) -> None:
        await files.rm(given["path"], recursive=True)

    async def copy_tree(files: Any, given: dict[str, Any]) -> None:
        await files.cp(given["source"], given["destination"], recursive=True)

    async def move_tree(files: Any, given: dict[str, Any]) -> None:
        await files.mv(given["source"], given["destination"])

    async def symlink(files: Any, given: dict[str, Any]) -> None:
        await files.symlink(given["target"], given["link_path"])

    two = {"source": PATH, "destination": PATH}
    content = {"path": PATH, "content": TEXT}
    return {
        "state.write_file": write_tool(place, write_file, "Write a text to a file.", content),
        "state.write_file_bytes": write_tool(
            place, write_file_bytes, "Write bytes to a file.", {"path": PATH, "content": ANY}
        ),
        "state.append_file": write_tool(place, append_file, "Add a text to the end of a file.", content),
        "state.mkdir": write_tool(place, mkdir, "Make a folder.", {"path": PATH}, {"recursive": FLAG}),
        "state.rm": write_tool(
            place, rm, "Remove a file or folder.", {"path": PATH}, {"recursive": FLAG, "force": FLAG}
        ),
        "state.cp": write_tool(place, cp, "Copy a file or folder.", two, {"recursive": FLAG}),
        "state.mv": write_tool(place, mv, "Move a file or folder.", two),
        "state.remove_tree": write_tool(
            place, remove_tree, "Remove a folder with all in it.", {"path": PATH}
        ),
        "state.copy_tree": write_tool(place, copy_tree, "Copy a folder with all in it.", two),
        "state.move_tree": write_tool(place, move_tree, "Move a folder with all in it.", two),
        "state.symlink": write_tool(place, symlink, "Make a link.", {"target": PATH, "link_path": PATH}),
    }


def _files(place: Place) -> dict[str, Tool]:
    """What `open()` and `Path` come to."""

    async def read(files: Any, given: dict[str, Any]) -> Any:
        data: bytes = await bytes_at(files, given["path"])
        try:
            return data.decode()
        except UnicodeDecodeError:
            return binary(data)

    async def stat(files: Any, given: dict[str, Any]) -> Any:
        return _as_stat(await files.stat(given["path"]))

    async def names(files: Any, given: dict[str, Any]) -> list[str]:
        return [entry.name for entry in await _listed(files, given["path"])]

    async def write(files: Any, given: dict[str, Any]) -> None:
        await files.write_file_bytes(given["path"], bytes_of(given["content"]))

    async def append(files: Any, given: dict[str, Any]) -> None:
        await fits(files, given["path"])
        before: bytes = await files.read_file_bytes(given["path"]) or b""
        await files.write_file_bytes(given["path"], before + bytes_of(given["content"]))

    async def mkdir(files: Any, given: dict[str, Any]) -> None:
        await files.mkdir(given["path"], recursive=True)

    async def remove(files: Any, given: dict[str, Any]) -> None:
        await files.rm(given["path"])

    async def rename(files: Any, given: dict[str, Any]) -> None:
        await files.mv(given["path"], given["to"])

    path, content = {"path": PATH}, {"path": PATH, "content": ANY}
    return {
        "files.read": read_tool(place, read, "open() reads.", path),
        "files.stat": read_tool(place, stat, "Path looks.", path),
        "files.list": read_tool(place, names, "Path lists.", path),
        "files.write": write_tool(place, write, "open() writes.", content),
        "files.append": write_tool(place, append, "open() writes on.", content),
        "files.mkdir": write_tool(place, mkdir, "Path makes a folder.", path),
        "files.remove": write_tool(place, remove, "Path removes.", path),
        "files.rename": write_tool(place, rename, "Path moves.", {"path": PATH, "to": PATH}),
    }


async def _listed(files: Any, path: str) -> list[Entry]:
    entry = await files.stat(path)
    if path.strip("/") and entry is None:
        raise ToolError(f"ENOENT: There is no folder {path}.")
    return await files.read_dir(path, limit=10_000)


def _as_stat(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {"type": entry.kind, "size": entry.size, "mtime": int(entry.modified_at.timestamp() * 1000)}
