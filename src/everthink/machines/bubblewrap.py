"""Real processes behind namespaces: bubblewrap gives each job a machine of its own, on this kernel.

    spawn --bwrap--> init of a namespace --> our runner --> the job
      ^ kill: the init, and with it, for sure, everything in there

A process in there sees the system's programs read-only, an empty home in memory, no process but its own, no
network and no user of this machine. It needs bubblewrap 0.8 and the right to make user namespaces, which a
container often has not: `check` says so, and `Locked` is for there.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import re
import select
import shutil
import signal
from collections.abc import Iterable, Sequence

from ..errors import InvalidSettings
from ..kinds import TEXTS, check, check_options
from ..sandbox.lock import NOBODY
from ..sandbox.port import Isolation, Limits
from ..words import said as on_one_line
from .filters import walled
from .port import CannotSpawn
from .process import Process, answer, first_of
from .pythons import OPTIONS, SYSTEM, Python, found_python, named_paths

__all__ = ["Bubblewrap"]

OLDEST = (0, 8)
BESIDE = 8
"""Processes and threads that are not the job's: an init, the runner and its threads."""
HOME, SCRATCH = "/work", "/tmp"
_OWN = (HOME, "/dev", "/proc")
"""Places that are a machine's own, so that nothing of this computer is seen in there."""
_NAME = re.compile(r"[^/\0]{1,255}")
SHARED_MEMORY = 16 * 1024 * 1024
ROOM = 1024 * 1024
"""Bytes of both that are not for files of the job."""
_INSTALL = "apt install bubblewrap, or your system's way"
_FORBIDDEN = (
    "In a container use Locked(), which needs no namespaces, or let the container make user namespaces"
    " (Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt"
    " systempaths=unconfined). On Ubuntu an AppArmor profile has to allow it for bwrap."
)


class Bubblewrap:
    """A `Machine`. Each job is in namespaces of its own."""

    isolation: Isolation = "namespaces"

    def __init__(
        self,
        *,
        python: str | None = None,
        read_only: Sequence[str | os.PathLike[str]] = (),
        user: int | None = None,
        command: str = "bwrap",
    ) -> None:
        """`python` is this one, where `user` may read it; `read_only` are more paths that jobs see. A server
        that is root runs jobs as nobody: root is exempt from the limit of processes."""
        check_options("Bubblewrap", OPTIONS, python=python, read_only=read_only, user=user, command=command)
        if user is None and os.geteuid() == 0:
            user = NOBODY
        self._named, self._read_only = python, named_paths("Bubblewrap", read_only, _OWN, SCRATCH)
        self._user, self._command = user, command
        self._at_root: tuple[str, ...] = ()
        self._python: Python | None = None

    def with_root(self, names: Iterable[str]) -> Bubblewrap:
        """The same machine, in which these names in the home of a job are found at the root as well: what is
        `~/skill` is also `/skill`."""
        given = tuple(names) if not isinstance(names, str) else names
        check(TEXTS, given, "Bubblewrap.with_root: names")
        taken = {path.split("/")[1] for path in (*SYSTEM, *self._read_only, *_OWN, SCRATCH)}
        for name in given:
            if _NAME.fullmatch(name) is None or name in (".", ".."):
                raise InvalidSettings(
                    f"Bubblewrap.with_root: {name!r} is no name of a folder.",
                    next_step='Write one without a slash: with_root(["data"]).',
                )
            if name in taken:
                raise InvalidSettings(
                    f"Bubblewrap.with_root: the machine has a /{name} of its own.",
                    next_step="Give the folder another name.",
                )
        made = copy.copy(self)
        made._at_root = tuple(given)
        return made

    async def check(self) -> str | None:
        """Why no namespace can be made here, and the way out; `None` when one just was."""
        program = shutil.which(self._command)
        if program is None:
            return f"bubblewrap is not installed: {_INSTALL}."
        code, said = await self._tried([program, "--version"])
        found = re.search(r"(\d+)\.(\d+)", said)
        if code != 0 or found is None or (int(found[1]), int(found[2])) < OLDEST:
            version = on_one_line(said, 60) or "none"
            oldest = ".".join(map(str, OLDEST))
            return f"bubblewrap {oldest} or newer is needed, and this is {version}: {_INSTALL}."
        try:
            argv = [*self._wrapped(Limits()), "--", self._found().path, "-I", "-S", "-c", "print(42)"]
        except CannotSpawn as error:
            return str(error)
        code, said = await self._tried(argv)
        if said == "42\n":
            return None
        why = on_one_line(said, 200) or f"exit code {code}"
        return f"bubblewrap cannot make a machine here ({why}). {_FORBIDDEN}"

    async def _tried(self, argv: Sequence[str]) -> tuple[int, str]:
        return await answer(argv, name="bubblewrap", env=_ENVIRONMENT, user=self._user)

    async def spawn(self, argv: Sequence[str], limits: Limits) -> Process:
        """Start a program in a machine of its own."""
        program = shutil.which(self._command)
        if program is None:
            raise CannotSpawn("bubblewrap is not installed.", next_step=f"{_INSTALL}.")
        python = self._found()
        setup = {"alone": True, "counted": True, "processes": limits.processes + BESIDE}
        told, telling = os.pipe()
        filtered = _readable(walled())
        passed = [telling, *filtered]
        said: list[str] = []
        try:
            wrapped = self._wrapped(limits)
            wrapped += ["--info-fd", str(telling)]
            for place in filtered:
                wrapped += ["--seccomp", str(place)]
            wrapped += ["--setenv", "EVERTHINK_MACHINE", json.dumps(setup), "--chdir", HOME, "--"]
            process = await Process.start(
                [*wrapped, python.path, *argv[1:]],
                name="bubblewrap",
                env=_ENVIRONMENT,
                user=self._user,
                pass_fds=passed,
                said=first_of(said),
            )
        except BaseException:
            os.close(told)
            raise
        finally:
            for place in passed:
                os.close(place)
        process.said = said
        init = _Init(told)
        process.before, process.after = init.kill, init.gone
        return process

    def _found(self) -> Python:
        if self._python is None:
            self._python = found_python(self._named, self._user, self._read_only)
        return self._python

    def _wrapped(self, limits: Limits) -> list[str]:
        """bubblewrap, and what is to be seen in the machine."""
        argv = [shutil.which(self._command) or self._command]
        argv += ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
        argv += ["--cap-drop", "ALL", "--hostname", "machine", "--uid", "1000", "--gid", "1000", "--clearenv"]
        late: list[str] = []
        for path in self._found().read_only:
            if os.path.islink(path) and path in SYSTEM:
                argv += ["--symlink", os.readlink(path), path]
            elif path.startswith(f"{SCRATCH}/"):
                late += ["--ro-bind", path, path]
            else:
                argv += ["--ro-bind", path, path]
        argv += ["--proc", "/proc", "--dev", "/dev"]
        argv += [
            "--size",
            str(SHARED_MEMORY),
            "--perms",
            "1777",
            "--tmpfs",
            "/dev/shm",
            "--remount-ro",
            "/dev",
        ]
        argv += ["--size", str(2 * limits.tree_bytes + ROOM), "--tmpfs", HOME]
        argv += ["--size", str(limits.tree_bytes + ROOM), "--perms", "1777", "--tmpfs", SCRATCH]
        argv += late
        for name in self._at_root:
            argv += ["--symlink", f"{HOME}/{name}", f"/{name}"]
        argv += ["--remount-ro", "/"]
        argv += [
            "--setenv",
            "LANG",
            "C.UTF-8",
            "--setenv",
            "PATH",
            "/usr/bin:/bin",
            "--setenv",
            "TMPDIR",
            SCRATCH,
        ]
        return argv

    async def aclose(self) -> None:
        """Nothing is kept between jobs."""


_ENVIRONMENT = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}


class _Init:
    """The first process of a machine: when it is gone, so is everything that was in there."""

    def __init__(self, told: int) -> None:
        """`told` is where bubblewrap writes its number."""
        self._told = told
        self._held: int | None = None

    def kill(self) -> None:
        """By a descriptor, which never means another process. Nobody has waited for bubblewrap yet."""
        said = b""
        with os.fdopen(self._told, "rb") as told:
            # It is written at once, after the namespaces are made; who dies before has written nothing.
            os.set_blocking(self._told, False)
            said = told.read() or b""
        try:
            self._held = os.pidfd_open(int(json.loads(said)["child-pid"]))
        except (ValueError, KeyError, TypeError, OSError):
            return  # there is none yet: it dies with bubblewrap
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._held, signal.SIGKILL)

    async def gone(self) -> None:
        """Wait for its end."""
        if self._held is not None:
            await asyncio.to_thread(select.select, [self._held], [], [], 10.0)
            os.close(self._held)


def _readable(program: bytes | None) -> list[int]:
    """A descriptor with a filter in it."""
    if program is None:
        return []
    reading, writing = os.pipe()
    os.write(writing, program)
    os.close(writing)
    return [reading]
