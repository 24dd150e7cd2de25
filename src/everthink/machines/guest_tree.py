"""In a machine: files of the job are put into its folder, and what differs is found at the end.

    a tar --filled--> a folder --the job--> collected --> a tar, and what is gone

One of the texts that are sent into a machine: Python 3.8 or newer, the standard library, nothing of ours.
What it leaves out or says is for the script to read; the host checks all of it.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import io
import os
import stat

TYPE_CHECKING = False  # importing typing takes longer than most jobs begin
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

__all__ = ["Tree", "taken"]

LONGEST_PATH = 4096


class Tree:
    """The folder of a job."""

    def __init__(self, root: str, said: dict[str, Any]) -> None:
        self.root, self._said = root, said
        self.sent: dict[str, bytes] = {}
        """The files of the job, as they were sent."""

    def place(self, path: str) -> str:
        """Where a path of the job is."""
        return os.path.normpath(os.path.join(self.root, path.lstrip("/")))

    def fill(self) -> str | None:
        """Put the files of the job into the folder; what is wrong with them."""
        if self._said["tree"]:
            self._unpack(binascii.a2b_base64(self._said["tree"]))
        if not os.path.isdir(self.place(self._said["cwd"])):
            return "There is no folder " + self._said["cwd"]
        return None

    def _unpack(self, tree: bytes) -> None:
        import tarfile

        with tarfile.open(fileobj=io.BytesIO(tree), mode="r:") as tar:
            for entry in tar:
                place = os.path.join(self.root, entry.name)
                read = tar.extractfile(entry)
                if read is None:
                    os.makedirs(place, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(place), exist_ok=True)
                data = read.read()
                with open(place, "wb") as file:
                    file.write(data)
                os.chmod(place, entry.mode)
                self.sent["/" + entry.name] = data

    def collected(self) -> dict[str, Any]:
        """What differs from what was sent, or which limit it is over."""
        limits = self._said["limits"]
        most_folders = limits["files"] + len(self._said["folders"])
        total = 0
        changed: dict[str, bytes] = {}
        found: set[str] = set()
        folders: list[str] = []
        for path, seen in self._entries():
            if stat.S_ISDIR(seen.st_mode):
                if not _is_text(path):
                    return {"over": "name", "path": _printable(path)}
                folders.append(path)
                if len(folders) > most_folders:
                    return {"over": "files"}
                continue
            place = self._plain(self.root + path, seen)
            if place is None:
                continue
            size = os.stat(place).st_size
            if size > limits["file_bytes"]:
                return {"over": "file_bytes", "path": _printable(path)}
            with open(place, "rb") as file:
                data = file.read(size)
            found.add(path)
            if self.sent.get(path) == data:
                continue
            if not _is_text(path):
                return {"over": "name", "path": _printable(path)}
            changed[path] = data
            total += len(data)
            if len(changed) > limits["files"]:
                return {"over": "files"}
            if total > limits["tree_bytes"]:
                return {"over": "tree_bytes"}
        return {
            "tree": _packed(changed) if changed else "",
            "deleted": [path for path in self.sent if path not in found and self._is_collected(path)],
            "folders": folders,
        }

    def _is_collected(self, path: str) -> bool:
        tops = self._said["collect"]
        return any(top == "/" or path == top or path.startswith(top + "/") for top in tops)

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Every path below what is to be collected, once. No recursion: it may be deep."""
        todo: list[str] = ["" if top == "/" else top for top in self._said["collect"]]
        done: set[str] = set()
        while todo:
            path = todo.pop()
            if path in done:
                continue
            done.add(path)
            place = self.root + path
            try:
                seen = os.lstat(place)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    yield path, os.stat_result((stat.S_IFDIR, 0, 0, 0, 0, 0, 0, 0, 0, 0))
                continue
            if path:
                yield path, seen
            if stat.S_ISDIR(seen.st_mode):
                if seen.st_mode & 0o700 != 0o700:
                    os.chmod(place, 0o700)
                todo.extend(path + "/" + name for name in os.listdir(place))

    def _plain(self, place: str, seen: os.stat_result) -> str | None:
        """Where the content of a file is: in itself, or, of a link that stays in here, where that leads."""
        if stat.S_ISLNK(seen.st_mode):
            place = os.path.realpath(place)
            if not place.startswith(self.root + "/"):
                return None
            try:
                seen = os.stat(place)
            except OSError:
                return None  # it leads nowhere
        if not stat.S_ISREG(seen.st_mode):
            return None
        if not seen.st_mode & 0o400:
            os.chmod(place, 0o600)
        return place


def _packed(files: dict[str, bytes]) -> str:
    import tarfile

    tree = io.BytesIO()
    with tarfile.open(fileobj=tree, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path[1:])
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return binascii.b2a_base64(tree.getvalue(), newline=False).decode()


def _is_text(path: str) -> bool:
    """Whether a path is one that the host can have."""
    try:
        return len(path.encode()) <= LONGEST_PATH
    except UnicodeEncodeError:
        return False


def _printable(path: str) -> str:
    return path.encode(errors="replace").decode()[:200]


def taken(places: Iterable[str]) -> int:
    """Bytes on the disk below some folders."""
    total, todo = 0, list(places)
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total
