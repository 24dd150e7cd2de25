"""Real processes where namespaces are forbidden, as in most containers: Landlock, seccomp and limits.

    spawn --> jail.py gives up all rights --exec--> our runner --> the job
      ^ kill: the group, which nobody in there can leave; then the folder

Weaker than `Bubblewrap`: a job sees the names and sizes of files whose paths it guesses, though none of their
contents, and its folder is on the disk. It reads the system's programs, writes its own folder, opens no
socket, signals nobody but itself, and does not outlive its run.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..kinds import check_options
from ..sandbox import lock
from ..sandbox.lock import NOBODY, landlock_version, may_become_another, unsupported
from ..sandbox.port import Isolation, Limits
from ..words import said as on_one_line
from .filters import bare
from .port import CannotSpawn
from .process import Process, first_of
from .pythons import OPTIONS, found_python, named_paths

__all__ = ["Locked"]

_BOOT = """
import sys, types
places = {"jailed": [], "jailed.machines": [sys.argv.pop(1)], "jailed.sandbox": [sys.argv.pop(1)]}
for name, path in places.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from jailed.machines.jail import main
main()
"""
"""Loads two folders of ours as packages under other names, so that nothing else is imported."""
_HERE, _SANDBOX = str(Path(__file__).parent), str(Path(lock.__file__).parent)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")
_SIGNALS_STAY = 6
"""The version of Landlock that keeps signals among the processes of a run (Linux 6.12)."""


class Locked:
    """A `Machine`. Each job is a locked group of processes in a folder of its own."""

    isolation: Isolation = "landlock"

    def __init__(
        self,
        *,
        python: str | None = None,
        read_only: Sequence[str | os.PathLike[str]] = (),
        user: int | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """`user` runs the jobs of a server that is root, nobody if it is not said; below `folder` their files
        are, which is best a place of limited size."""
        check_options("Locked", OPTIONS, python=python, read_only=read_only, user=user, folder=folder)
        if user is None and os.geteuid() == 0:
            user = NOBODY
        self._named, self._user = python, user
        self._read_only = named_paths("Locked", read_only)
        self._folder = folder

    async def check(self) -> str | None:
        """Why no process can be locked in here; `None` when one just was."""
        try:
            process = await self.spawn(["python3", "-I", "-S", "-c", "print(42)"], Limits())
        except CannotSpawn as error:
            return str(error)
        try:
            async with asyncio.timeout(20):
                said = await process.read()
        except TimeoutError:
            said = b"it does not end"
        finally:
            await process.kill()
        if said == b"42\n":
            return None
        why = on_one_line(" ".join([*process.said, said.decode(errors="replace")]), 300)
        return f"A process cannot be locked in here: {why or 'it ended without a word'}."

    async def spawn(self, argv: Sequence[str], limits: Limits) -> Process:
        """Start a program in a folder of its own, with nothing else."""
        if (problem := unsupported()) is not None:
            raise CannotSpawn(problem)
        if (version := landlock_version()) == 0:
            raise CannotSpawn(
                "This kernel has no Landlock.",
                next_step="Use Linux 5.13 or newer with Landlock switched on, or Bubblewrap().",
            )
        if self._user is not None and self._user != os.geteuid() and not may_become_another():
            raise CannotSpawn(f"This server may not run anything as user {self._user}.")
        python = found_python(self._named, self._user, self._read_only)
        base = await asyncio.to_thread(self._made)
        home, scratch = f"{base}/work", f"{base}/tmp"
        asked = {
            "user": self._user,
            "home": home,
            "processes": limits.processes,
            "read": list(python.read_only),
            "write": [home, scratch, *_devices()],
            "filter": base64.b64encode(
                bare(version=version, is_own_user=self._user in (None, os.geteuid()))
            ).decode(),
            "argv": [python.path, *argv[1:]],
            "env": {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "TMPDIR": scratch},
            "setup": {
                "alone": version >= _SIGNALS_STAY,
                "own_group": True,
                "guarded": version >= _SIGNALS_STAY,
                "watched": [home, scratch],
                "disk": 2 * limits.tree_bytes,
            },
        }
        said: list[str] = []
        try:
            process = await Process.start(
                [sys.executable, "-I", "-S", "-c", _BOOT, _HERE, _SANDBOX, json.dumps(asked)],
                name="locked",
                env={"LANG": "C.UTF-8"},
                said=first_of(said),
            )
        except BaseException:
            await asyncio.to_thread(_removed, base)
            raise
        process.said, process.place = said, base
        process.after = lambda: asyncio.to_thread(_removed, base)
        return process

    def _made(self) -> str:
        """Two empty folders of the user who runs the job."""
        try:
            base = tempfile.mkdtemp(prefix="everthink-machine-", dir=self._folder)
            for path in (base, f"{base}/work", f"{base}/tmp"):
                if path != base:
                    os.mkdir(path, 0o700)
                if self._user is not None:
                    os.chown(path, self._user, self._user)
        except OSError as error:
            raise CannotSpawn(f"No folder for the job can be made: {error}.") from error
        return base

    async def aclose(self) -> None:
        """Nothing is kept between jobs."""


def _devices() -> list[str]:
    """What every program may write to, or read random bytes from."""
    return [path for path in _DEVICES if os.path.exists(path)]


def _removed(base: str) -> None:
    """Remove a folder, however deep: by a program, which is not stopped by the longest path there is."""
    for _ in range(3):
        # What was killed may still be at its last write.
        if subprocess.run(["rm", "-rf", "--", base], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return
        subprocess.run(["chmod", "-R", "u+rwX", "--", base], stderr=subprocess.DEVNULL, check=False)
