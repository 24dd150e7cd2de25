"""How a test of the contract runs a job in a machine, and looks for what it left behind."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from pathlib import Path
from typing import Any

from ....machines.port import Machine
from ....machines.sandbox import MachineSandbox
from ....sandbox.port import Host, Job, Limits, Outcome, Sandbox
from ..sandbox.case import Asked, SandboxCase

__all__ = ["MachineCase", "is_running", "marked", "python", "until_gone"]

PATIENCE = 20.0


def python(source: str, **options: Any) -> Job:
    """A job in Python."""
    return Job(language="python", source=source, **options)


def marked() -> str:
    """Seconds to sleep that nobody else sleeps: a process that does can be found. `time.sleep` takes them."""
    return f"86{secrets.randbelow(10**8):08d}"


def is_running(mark: str) -> bool:
    """Whether a process of this computer has a word in its command line."""
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (place / "cmdline").read_bytes().split(b"\0"):
                    return True
    return False


async def until_gone(mark: str) -> None:
    """Wait for its end, for a while."""
    began = time.monotonic()
    while is_running(mark):
        assert time.monotonic() - began < PATIENCE, f"sleep {mark} has outlived its run"
        await asyncio.sleep(0.01)


class MachineCase(SandboxCase):
    """How a test reaches the machine it tests."""

    hostile_limits = Limits(wall=30, cpu=10, tree_bytes=4 << 20, processes=24)
    """What a hostile job gets before it is stopped."""

    async def machine(self) -> Machine:
        """Open the machine that is tested."""
        raise NotImplementedError

    async def open(self) -> Sandbox:
        """The sandbox over it."""
        return MachineSandbox(await self.machine(), most=4)

    async def python(self, source: str, host: Host | None = None, **options: Any) -> Outcome:
        """Run one job in Python, in a machine of its own."""
        options.setdefault("limits", self.limits)
        async with self.opened() as sandbox:
            return await sandbox.run(python(source, **options), host or Asked())

    async def attacked(self, source: str, language: str = "bash", **options: Any) -> Outcome:
        """Run a hostile script; afterwards the next one runs."""
        options.setdefault("limits", self.hostile_limits)
        async with self.opened() as sandbox:
            job = Job(language=language, source=source, **options)  # pyright: ignore[reportArgumentType]
            outcome = await sandbox.run(job, Asked())
            alive = await sandbox.run(Job(language="bash", source="echo alive", limits=self.limits), Asked())
            assert alive.stdout == "alive\n", alive
        assert outcome.status == "done" or outcome.error
        return outcome
