"""Unpack a zip or a tar.gz of skills into memory, within bounds, or refuse it whole.

    bytes --unpacked--> path -> bytes        SkillError: what is wrong with it

Pure. The sizes that an archive tells of itself are not believed: bytes are counted as they come out. There
are no links, no devices, no path that leads out and none that is there twice.
"""

from __future__ import annotations

import io
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from ..errors import SkillError
from ..skill_values import is_safe_path
from ..words import said
from .tree import SKIPPED, Bounds

__all__ = ["LARGEST", "unpacked"]

LARGEST = 32 * 1024 * 1024
"""Bytes of an archive, packed."""
_TAR_OVERHEAD = 4 * 1024 * 1024
_PIECE = 64 * 1024
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What comes out piece by piece. Others (bzip2, LZMA) are unpacked as a whole."""


def unpacked(data: bytes, bounds: Bounds | None = None) -> dict[str, bytes]:
    """The files of an archive, by their paths. Raises `SkillError` when it is none, or none that is safe."""
    bounds = bounds or Bounds()
    if len(data) > LARGEST:
        raise _refused(f"it has {len(data):,} bytes, and {LARGEST:,} are allowed")
    room = _Room(bounds)
    try:
        if data[:2] == b"PK":
            return room.taken(_zipped(data, bounds))
        if data[:2] == b"\x1f\x8b":
            return room.taken(_tarred(_inflated(data, bounds.tree_bytes + _TAR_OVERHEAD)))
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError) as error:
        raise _refused(f"it is damaged ({said(error, 100)})") from error
    except (ValueError, OverflowError, UnicodeError, OSError, RuntimeError) as error:
        raise _refused(f"it cannot be read ({said(error, 100)})") from error
    raise _refused("it is neither a zip nor a tar.gz")


class _Room:
    """How much may still come out."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.bytes = bounds.tree_bytes

    def read(self, path: str, file: IO[bytes]) -> bytes:
        """All that comes out of one file."""
        most = min(self._bounds.file_bytes, self.bytes)
        data = file.read(most + 1)
        if len(data) > most:
            if most == self.bytes:
                raise _refused(f"it holds more than {self._bounds.tree_bytes:,} bytes")
            raise _refused(f"{path!r} has more than {self._bounds.file_bytes:,} bytes")
        self.bytes -= len(data)
        return data

    def taken(self, files: Iterator[tuple[str, IO[bytes]]]) -> dict[str, bytes]:
        """The files, by their paths."""
        found: dict[str, bytes] = {}
        seen: set[str] = set()
        for path, file in files:
            parts = path.split("/")
            if any(part in SKIPPED or part == "__MACOSX" for part in parts):
                continue
            if not is_safe_path(path) or not path.isprintable():
                raise _refused(f"{said(path, 100)!r} is no path below its root")
            # A workspace, and many a directory, take two ways to write a letter for one.
            known_as = unicodedata.normalize("NFC", path).casefold()
            if known_as in seen:
                raise _refused(f"{said(path, 100)!r} is there twice")
            if len(parts) - 1 > self._bounds.depth + 4 or len(path.encode()) > 4 * self._bounds.path_bytes:
                raise _refused(f"{said(path, 100)!r} is too deep, or too long a path")
            if len(found) >= self._bounds.entries:
                raise _refused(f"it has more than {self._bounds.entries:,} files")
            seen.add(known_as)
            found[path] = self.read(path, file)
        for path in found:
            above = path.rpartition("/")[0]
            while above:
                if unicodedata.normalize("NFC", above).casefold() in seen:
                    raise _refused(f"{said(above, 100)!r} is a file and a folder")
                above = above.rpartition("/")[0]
        return found


def _zipped(data: bytes, bounds: Bounds) -> Iterator[tuple[str, IO[bytes]]]:
    if data.count(b"PK\1\2") > bounds.entries:  # before a list of them is made
        raise _refused(f"it has more than {bounds.entries:,} files")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                continue
            if kind not in (0, stat.S_IFREG):
                raise _refused(f"{said(info.filename, 100)!r} is a link or a device")
            if info.compress_type not in _METHODS:
                raise _refused(
                    f"{said(info.filename, 100)!r} is packed in another way than deflate, which can become"
                    " gigabytes before they are counted"
                )
            if info.flag_bits & 1:
                raise _refused(f"{said(info.filename, 100)!r} is encrypted")
            with archive.open(info) as file:
                yield info.orig_filename, file


def _inflated(data: bytes, most: int) -> bytes:
    """What gzip makes of it. An archive that blows up is refused before it does."""
    out, at, stream = bytearray(), 0, zlib.decompressobj(wbits=31)
    while at < len(data):
        piece = data[at : at + _PIECE]
        at += len(piece)
        while piece and not stream.eof:
            out += stream.decompress(piece, _PIECE)
            if len(out) > most:
                raise _refused(f"it holds more than {most:,} bytes")
            piece = stream.unconsumed_tail
        if stream.eof:
            at -= len(stream.unused_data)
            if not data[at:].strip(b"\0"):
                return bytes(out)
            stream = zlib.decompressobj(wbits=31)
    raise EOFError("it ends too early")


def _tarred(data: bytes) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for info in archive:
            if info.isdir():
                continue
            if not info.isreg() or info.issparse():
                raise _refused(f"{said(info.name, 100)!r} is a link or a device")
            file = archive.extractfile(info)
            if file is not None:
                yield info.name.removeprefix("./"), file


def _refused(why: str) -> SkillError:
    return SkillError(
        f"The archive cannot be used: {why}.",
        kept="Nothing was unpacked.",
        next_step="Pack the folders of the skills themselves, as a zip or a tar.gz.",
    )
