"""Files as a tar: how they go into a machine, and how they come back.

    Job.files --packed--> base64 in a line --> a machine --> bytes --unpacked--> paths and bytes

Pure. What comes back was written by whoever has the machine: only plain files are taken, and nothing of it is
believed before `sandbox.checks` has compared it with the job.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping

from ..sandbox.child import Gone
from ..sandbox.port import Limits

__all__ = ["packed", "unpacked"]


def packed(files: Mapping[str, bytes], folders: Iterable[str]) -> bytes:
    """A tree. Scripts that name their program may be run."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, data in files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(data), 0o755 if data.startswith(b"#!") else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return written.getvalue()


def unpacked(data: bytes, limits: Limits) -> list[tuple[str, bytes]]:
    """Plain files by absolute path, as they are named. Raises `Gone` for what no job can have sent."""
    found: list[tuple[str, bytes]] = []
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for entry in tar:
                if not entry.isreg() or entry.issparse():
                    raise Gone("an entry that is no plain file")
                total += entry.size
                if len(found) >= limits.files or entry.size < 0 or total > limits.tree_bytes:
                    raise Gone("more than may come back")
                read = tar.extractfile(entry)
                content = b"" if read is None else read.read()
                if len(content) != entry.size:
                    raise Gone("a file that is shorter than it says")
                found.append((f"/{entry.name}", content))
    except (tarfile.TarError, EOFError, ValueError, KeyError, UnicodeError, OverflowError) as error:
        raise Gone(f"a tree that is none: {error}") from None
    return found
