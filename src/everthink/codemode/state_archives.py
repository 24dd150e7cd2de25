"""`state.*` for archives: tar and gzip, whose bytes are the same for the same files.

What is taken out of an archive is believed in nothing: regular files and folders only, each below the folder
that was named, and no more bytes than an archive may hold.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from typing import Any

from ..errors import ToolError
from ..file_tools.place import Place
from ..workspace.port import Put
from .state_parts import PATH, Tools, batch_tool, below, beside, bytes_at, read_tool

__all__ = ["archive_tools"]

LARGEST = 32 << 20
"""Bytes that an archive holds, unpacked."""
MOST_FILES = 1_000
_LONGEST_NAME = 100


def archive_tools(place: Place) -> Tools:
    """The functions by full name."""

    async def create_archive(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        found: dict[str, bytes | None] = {}
        for source in dict.fromkeys(given["sources"]):
            await _gather(files, source, found)
        data = await beside(_packed, found)
        told = {"path": given["path"], "entries": len(found), "bytes": len(data)}
        return [Put(given["path"], data)], told

    async def list_archive(files: Any, given: dict[str, Any]) -> Any:
        found = await beside(_opened, await bytes_at(files, given["path"]))
        return [
            {"path": name, "type": "directory" if data is None else "file", "size": len(data or b"")}
            for name, data in sorted(found.items())
        ]

    async def extract_archive(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        found = await beside(_opened, await bytes_at(files, given["path"]))
        top = given["destination"].rstrip("/")
        puts = [Put(f"{top}/{name}", data) for name, data in sorted(found.items()) if data is not None]
        return puts, {"destination": given["destination"], "files": [put.path for put in puts]}

    async def compress_file(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        data = await bytes_at(files, given["path"])
        path = given.get("destination", f"{given['path']}.gz")
        packed = await beside(lambda: gzip.compress(data, mtime=0))
        return [Put(path, packed)], {"path": path, "bytes": len(packed)}

    async def decompress_file(files: Any, given: dict[str, Any]) -> tuple[list[Put], Any]:
        path = given.get("destination", given["path"].removesuffix(".gz"))
        if path == given["path"]:
            raise ToolError(f"EINVAL: {path} does not end with .gz: say the destination.")
        data = await beside(_unpacked, await bytes_at(files, given["path"]), given["path"])
        return [Put(path, data)], {"path": path, "bytes": len(data)}

    several = {"type": "array", "items": {"type": "string"}}
    return {
        "state.create_archive": batch_tool(
            place,
            create_archive,
            "Pack files and folders into a tar; {path, entries, bytes}.",
            {"path": PATH, "sources": several},
        ),
        "state.list_archive": read_tool(
            place, list_archive, "What is in a tar: [{path, type, size}].", {"path": PATH}
        ),
        "state.extract_archive": batch_tool(
            place,
            extract_archive,
            "Unpack a tar below a folder: all of its files, or none. {destination, files}",
            {"path": PATH, "destination": PATH},
        ),
        "state.compress_file": batch_tool(
            place,
            compress_file,
            "Compress a file with gzip, to path.gz; {path, bytes}.",
            {"path": PATH},
            {"destination": PATH},
        ),
        "state.decompress_file": batch_tool(
            place,
            decompress_file,
            "Unpack what gzip has compressed; {path, bytes}.",
            {"path": PATH},
            {"destination": PATH},
        ),
    }


async def _gather(files: Any, source: str, found: dict[str, bytes | None]) -> None:
    """The files of a source by the names that they have in an archive; folders are `None`."""
    entry = await files.stat(source)
    if entry is None:
        raise ToolError(f"ENOENT: There is no {source}.")
    if entry.kind == "file":
        if not _has(found, entry.path):
            _take(found, entry.path, await bytes_at(files, entry.path))
        return
    if entry.path != "/":
        _take(found, entry.path, None)
    async for inner in below(files, entry.path):
        if inner.kind != "symlink" and not _has(found, inner.path):
            _take(found, inner.path, None if inner.kind == "directory" else await bytes_at(files, inner.path))


def _has(found: Mapping[str, bytes | None], path: str) -> bool:
    """True for what another source has brought: nothing is read twice."""
    return path.lstrip("/") in found


def _take(found: dict[str, bytes | None], path: str, data: bytes | None) -> None:
    name = path.lstrip("/")
    if len(name.encode()) > _LONGEST_NAME:
        raise ToolError(
            f"ENAMETOOLONG: {path} is too long for a tar, where {_LONGEST_NAME} bytes are allowed."
        )
    found[name] = data
    _within(len(found), sum(len(data or b"") for data in found.values()))


def _within(members: int, size: int) -> None:
    if members > MOST_FILES or size > LARGEST:
        raise ToolError(
            f"EFBIG: An archive holds {MOST_FILES:,} files and {LARGEST:,} bytes at most. Take fewer at once."
        )


def _packed(found: Mapping[str, bytes | None]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(found.items()):
            told = tarfile.TarInfo(name)
            told.mode = 0o755 if data is None else 0o644
            told.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            told.size = len(data or b"")
            archive.addfile(told, None if data is None else io.BytesIO(data))
    return out.getvalue()


def _opened(data: bytes) -> dict[str, bytes | None]:
    """What an archive holds. Every member counts, also one that comes again under the same name."""
    found: dict[str, bytes | None] = {}
    members = size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                name, members = member.name.rstrip("/"), members + 1
                if name.startswith("/") or ".." in name.split("/") or not name:
                    raise ToolError(
                        f"EINVAL: {member.name[:200]!r} would leave the folder. Nothing was unpacked."
                    )
                if member.size < 0 or member.offset < 0:
                    raise ToolError(f"EINVAL: {name[:200]!r} lies about its size. Nothing was unpacked.")
                if member.isdir():
                    found[name] = None
                elif member.isreg() and not member.issparse():
                    held = archive.extractfile(member)
                    found[name] = b"" if held is None else held.read(LARGEST + 1)
                    size += len(found[name] or b"")
                else:
                    raise ToolError(
                        f"EINVAL: {name[:200]!r} is neither a file nor a folder. Nothing was unpacked."
                    )
                _within(members, size)
    except (tarfile.TarError, EOFError, ValueError, RecursionError, OverflowError) as error:
        raise ToolError(f"EINVAL: That is no tar, or a broken one: {str(error)[:200]}") from error
    return found


def _unpacked(data: bytes, path: str) -> bytes:
    unpack = zlib.decompressobj(wbits=31)
    try:
        made = unpack.decompress(data, LARGEST + 1)
    except zlib.error as error:
        raise ToolError(f"EINVAL: {path} was not compressed with gzip: {error}") from error
    if len(made) > LARGEST:
        raise ToolError(f"EFBIG: {path} holds more than {LARGEST:,} bytes.")
    if not unpack.eof:
        raise ToolError(f"EINVAL: {path} is cut off: the end of what gzip has compressed is missing.")
    return made
