"""Open what is in a directory, and nothing outside of it, whatever others do to it meanwhile.

    DiskFiles --"/notes/plan.md"--> Confined --a descriptor--> read, write, rename

No link is ever followed by the system: where links lead is decided by `DiskFiles`, as paths of the workspace.
The kernel resolves a path in one step (`openat2`, Linux 5.6); elsewhere we go part by part. In both, a folder
that becomes a link between two looks is refused, where a check of the resolved path would come too late.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
import threading

__all__ = ["Confined"]

_NO_MAGICLINKS, _NO_SYMLINKS, _IN_ROOT = 2, 4, 16
_OPENAT2 = 437
"""The number of the call on every architecture that Linux has gained it on."""
_TRIES = 64


class Confined:
    """A directory, held by its descriptor: it stays the same one when it is renamed."""

    def __init__(self, root: str | os.PathLike[str], *, openat2: bool | None = None) -> None:
        self.root = os.fspath(root)
        self._wants_openat2 = openat2
        self._opening = threading.Lock()
        self._fd = -1
        self._syscall = None

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """A descriptor of what is at a path of the workspace. Raises `OSError`; a link is `ELOOP`."""
        if self._fd < 0:
            self._begin()
        # A pipe would wait for its other end for ever; a terminal would become ours.
        flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW
        parts = [part for part in path.split("/") if part]
        if ".." in parts or "." in parts:
            raise OSError(errno.EINVAL, "no normal path", path)
        return self._at_once(parts, flags, mode) if self._syscall else self._walked(parts, flags, mode)

    def folder(self, path: str) -> int:
        """A descriptor of a folder."""
        return self.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        """Let go of the directory."""
        with self._opening:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _begin(self) -> None:
        with self._opening:
            if self._fd >= 0:
                return
            os.makedirs(self.root, exist_ok=True)
            self._fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if self._wants_openat2 is not False and sys.platform == "linux" and _has_same_numbers():
                self._syscall = ctypes.CDLL(None, use_errno=True).syscall
                try:
                    os.close(self._at_once([], os.O_RDONLY | os.O_DIRECTORY, 0))
                except OSError:  # an older kernel, or a sandbox that does not know the call
                    self._syscall = None

    def _at_once(self, parts: list[str], flags: int, mode: int) -> int:
        how = struct.pack(
            "QQQ", flags, mode if flags & os.O_CREAT else 0, _IN_ROOT | _NO_MAGICLINKS | _NO_SYMLINKS
        )
        name = os.fsencode("/".join(parts) or ".")
        assert self._syscall is not None
        for _ in range(_TRIES):
            fd = self._syscall(_OPENAT2, self._fd, name, how, len(how))
            if fd >= 0:
                return fd
            failed = ctypes.get_errno()
            if failed not in (errno.EAGAIN, errno.EINTR):  # somebody renames while the kernel looks
                raise OSError(failed, os.strerror(failed), "/".join(parts))
        raise OSError(errno.EAGAIN, "the path keeps changing", "/".join(parts))

    def _walked(self, parts: list[str], flags: int, mode: int) -> int:
        fd = os.dup(self._fd)
        try:
            for part in parts[:-1]:
                further = os.open(
                    part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd
                )
                os.close(fd)
                fd = further
            return os.open(parts[-1] if parts else ".", flags, mode, dir_fd=fd)
        finally:
            os.close(fd)


def _has_same_numbers() -> bool:
    return platform.machine() not in ("alpha", "mips", "mips64")
