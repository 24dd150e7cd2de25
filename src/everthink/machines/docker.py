"""Real processes in containers: Docker gives each job one, through its command line.

    spawn --docker run--> a container --> our runner --> the job
      ^ kill: docker rm --force, by the name that we gave it

A container is limited by control groups: memory and processes of all that is in it, together. Its root is the
image, read-only; it has no network, no capability, and a home in memory. Whoever may speak to Docker is root
on this computer, so the server has to be kept safe from the model as well, and not only the container.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Sequence

from ..kinds import SOME_TEXT, Kind, at_least, check_options, optional
from ..sandbox.lock import NOBODY
from ..sandbox.port import Isolation, Limits
from ..words import said as on_one_line
from .port import CannotSpawn
from .process import Process, answer, first_of

__all__ = ["Docker"]

log = logging.getLogger("everthink.machines")

IMAGE = "python:3.12-slim"
BESIDE = 16
"""Processes and threads that are not the job's: an init, the runner and its threads."""
INTERPRETER = 96 * 1024 * 1024
"""Bytes of memory that the container has for the runner, and the job's interpreter."""
HOME, SCRATCH = "/work", "/tmp"
SHARED_MEMORY = 16 * 1024 * 1024
ROOM = 1024 * 1024
"""Bytes of both that are not for files of the job."""
NOT_RUN = 125
"""The exit code of `docker run` when it could not run a container: its words are in the job's outcome."""
ENDING = 30.0
"""Seconds that Docker gets to remove a container."""
_OPTIONS = {
    "image": SOME_TEXT,
    "python": SOME_TEXT,
    "runtime": optional(SOME_TEXT),
    "user": Kind("the number of a user", at_least(0).fits),
    "command": SOME_TEXT,
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]*")


class Docker:
    """A `Machine`. Each job is in a container of its own."""

    isolation: Isolation = "container"

    def __init__(
        self,
        image: str = IMAGE,
        *,
        python: str = "python3",
        runtime: str | None = None,
        user: int = NOBODY,
        command: str = "docker",
    ) -> None:
        """`image` has a Python 3.8 or newer, and bash; it is never pulled by a job. `runtime` is one of the
        daemon's, `runsc` for instance. `command` may be `podman`."""
        check_options(
            "Docker", _OPTIONS, image=image, python=python, runtime=runtime, user=user, command=command
        )
        if not _NAME.fullmatch(image):
            raise CannotSpawn(f"{image!r} is no name of an image.", next_step=f"Say Docker({IMAGE!r}).")
        self._image, self._python, self._runtime = image, python, runtime
        self._user, self._command = user, command
        self._label = secrets.token_hex(8)
        self._has_run = False

    async def check(self) -> str | None:
        """Why no container can be run here, and the way out; `None` when the daemon has the image."""
        if shutil.which(self._command) is None:
            return f"The command {self._command} is not there: https://docs.docker.com/engine/install"
        code, said = await self._asked("version", "--format", "{{.Server.Version}}")
        if code != 0:
            return (
                f"No Docker daemon answers ({on_one_line(said, 200)}). Start it, or name it in DOCKER_HOST;"
                " whoever runs this server has to be allowed to use it."
            )
        code, said = await self._asked("image", "inspect", "--format", "{{.Id}}", self._image)
        if code != 0:
            return f"The image {self._image} is not there: {self._command} pull {self._image}"
        return None

    async def spawn(self, argv: Sequence[str], limits: Limits) -> Process:
        """Start a program in a container of its own."""
        program = shutil.which(self._command)
        if program is None:
            raise CannotSpawn(
                f"The command {self._command} is not there.",
                next_step="See https://docs.docker.com/engine/install",
            )
        name = f"everthink-{secrets.token_hex(8)}"
        said: list[str] = []
        process = await Process.start(
            [program, "run", "--name", name, *self.options(limits), self._image, *argv[1:]],
            name="docker",
            env=_environment(),
            said=first_of(said),
        )
        self._has_run = True
        process.said = said
        process.after = lambda: self._removed(name, process)
        return process

    def options(self, limits: Limits) -> list[str]:
        """What `docker run` is told."""
        home, scratch = 2 * limits.tree_bytes + ROOM, limits.tree_bytes + ROOM
        # What is in memory for files counts as memory of the container as well.
        memory = limits.memory + INTERPRETER + home + scratch + SHARED_MEMORY
        setup = json.dumps({"alone": True, "counted": True})
        options = ["--rm", "--interactive", "--init", "--pull", "never", "--log-driver", "none"]
        options += ["--network", "none", "--read-only", "--ipc", "private", "--hostname", "machine"]
        options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        options += ["--user", f"{self._user}:{self._user}"]
        options += ["--pids-limit", str(limits.processes + BESIDE)]
        options += ["--memory", str(memory), "--memory-swap", str(memory), "--shm-size", str(SHARED_MEMORY)]
        options += ["--tmpfs", f"{HOME}:rw,exec,nosuid,nodev,mode=1777,size={home}"]
        options += ["--tmpfs", f"{SCRATCH}:rw,exec,nosuid,nodev,mode=1777,size={scratch}"]
        options += ["--workdir", HOME, "--env", "LANG=C.UTF-8", "--env", f"TMPDIR={SCRATCH}"]
        options += ["--env", f"EVERTHINK_MACHINE={setup}", "--label", f"everthink={self._label}"]
        if self._runtime is not None:
            options += ["--runtime", self._runtime]
        return [*options, "--entrypoint", self._python]

    async def _removed(self, name: str, process: Process | None = None) -> None:
        """Remove a container with all that is in it; it may have ended by itself, or not have begun."""
        code, said = await self._asked("rm", "--force", "--volumes", name)
        if code != 0 and process is not None and process.exit_code == NOT_RUN:
            log.debug("Docker did not run the container %s: %s", name, on_one_line(said, 200))
        elif code != 0 and "no such container" not in said.lower() and "in progress" not in said.lower():
            log.warning(
                "Docker did not remove the container %s (%s). Its job has no input any more, so it ends by"
                " itself. Look with: %s ps --all --filter label=everthink",
                name,
                on_one_line(said, 200),
                self._command,
            )

    async def _asked(self, *words: str) -> tuple[int, str]:
        """What a command of Docker says, and its exit code."""
        program = shutil.which(self._command) or self._command
        return await answer([program, *words], name="docker", env=_environment(), within=ENDING)

    async def aclose(self) -> None:
        """Remove what was made and never begun: its command was ended in between."""
        if not self._has_run:
            return
        label = f"label=everthink={self._label}"
        code, left = await self._asked("ps", "--all", "--quiet", "--filter", label)
        if code != 0:
            log.warning(
                "Docker does not say whether containers are left (%s). When it answers again, look with:"
                " %s ps --all --filter %s",
                on_one_line(left, 200),
                self._command,
                label,
            )
            return
        for name in left.split():
            if _NAME.fullmatch(name):
                await self._removed(name)


def _environment() -> dict[str, str]:
    """What the command has to know to find its daemon."""
    known = ("PATH", "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH")
    more = ("DOCKER_TLS_VERIFY", "XDG_RUNTIME_DIR", "CONTAINER_HOST")
    return {name: os.environ[name] for name in (*known, *more) if name in os.environ}
