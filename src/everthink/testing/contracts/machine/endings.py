"""Nothing outlives its run: not a daemon, not a cancelled job, not a closed sandbox."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..sandbox.case import Asked, bash
from .case import MachineCase, is_running, marked, until_gone

__all__ = ["EndingsContract"]

DAEMON = """
import os, subprocess, sys
for leave in (os.setsid, lambda: os.setpgid(0, 0), lambda: None):
    if os.fork() == 0:
        try:
            leave()
        except OSError:
            pass
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for end in range(3): os.dup2(null, end)
            os.execvp("sleep", ["sleep", "{mark}"])
        os._exit(0)
print("started")
"""


class EndingsContract(MachineCase):
    """Whatever was started is gone."""

    async def test_a_daemon_does_not_outlive_the_run(self) -> None:
        mark = marked()
        outcome = await self.attacked(DAEMON.format(mark=mark), "python")
        assert (outcome.status, outcome.stdout) == ("done", "started\n"), outcome
        await until_gone(mark)

    async def test_what_runs_in_the_background_does_not_hold_the_end(self) -> None:
        mark = marked()
        outcome = await self.run(f"sleep {mark} & setsid nohup sleep {mark} > /dev/null 2>&1 & echo end")
        assert (outcome.status, outcome.stdout) == ("done", "end\n")
        await until_gone(mark)

    async def test_a_cancelled_run_has_ended_every_process_when_it_raises(self) -> None:
        asked = asyncio.Event()

        async def wait(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
            asked.set()
            await asyncio.Event().wait()

        mark = marked()
        async with self.opened() as sandbox:
            script = f"(trap '' TERM HUP INT; sleep {mark}) & (sleep {mark} | cat) & ask"
            running = asyncio.create_task(sandbox.run(bash(script, commands=("ask",)), Asked(wait)))
            await asked.wait()
            assert is_running(mark)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await until_gone(mark)
            assert (await sandbox.run(bash("echo next"), Asked())).stdout == "next\n"

    async def test_closing_ends_what_runs_and_says_so(self) -> None:
        asked = asyncio.Event()

        async def wait(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
            asked.set()
            await asyncio.Event().wait()

        mark = marked()
        sandbox = await self.open()
        running = asyncio.create_task(
            sandbox.run(bash(f"sleep {mark} & ask", commands=("ask",)), Asked(wait))
        )
        await asked.wait()
        await sandbox.aclose()
        outcome = await running
        assert outcome.status == "crashed"
        assert "closed" in (outcome.error or "")
        await until_gone(mark)

    async def test_many_jobs_leave_processes_descriptors_and_memory_flat(self) -> None:
        async with self.opened() as sandbox:
            job = bash(
                "ask > made; echo $1 | cat", commands=("ask",), files={"/a": b"a" * 1_000}, args=("x",)
            )
            host = Asked()
            for _ in range(5):
                await sandbox.run(job, host)
            before = _held()
            for _ in range(self.many):
                outcome = await sandbox.run(job, host)
                assert (outcome.status, outcome.stdout) == ("done", "x\n"), outcome
            after = _held()
        assert after[0] <= before[0], "it holds descriptors"
        assert after[1] <= before[1], "it holds processes"
        assert after[2] - before[2] < 24, "it holds memory"

    many = 20
    """Jobs of the last test; 1,500 show what twenty do not."""


def _held() -> tuple[int, int, int]:
    """Descriptors, children and MiB of this process."""
    own = os.getpid()
    children = 0
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                children += (place / "stat").read_text().rpartition(")")[2].split()[1] == str(own)
            except OSError:
                continue  # it has just ended
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)
    return len(os.listdir("/proc/self/fd")), children, int(line.split()[1]) // 1024
