"""Whether a sandbox stays as it is, however much runs in it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from everthink.sandbox.engine import ChildSandbox
from everthink.sandbox.port import Job
from everthink.testing.contracts.sandbox.case import Asked
from tests.mcp.serving import until


async def stays_flat(sandbox: ChildSandbox, jobs: list[Job], *, warm: int, times: int) -> None:
    """Run jobs in one child, over and over: neither it nor we take more memory or descriptors."""
    host = Asked()
    for _ in range(warm):
        for job in jobs:
            await sandbox.run(job, host)
    (pid,) = sandbox.pids
    first = [(_memory(one), _descriptors(one)) for one in (pid, os.getpid())]
    for number in range(times):
        await sandbox.run(jobs[number % len(jobs)], host)
        host.calls.clear()
        host.seen.clear()
    assert sandbox.pids == [pid]
    for one, (memory, descriptors) in zip((pid, os.getpid()), first, strict=True):
        assert _memory(one) - memory < 16
        await until(lambda one=one, most=descriptors: _descriptors(one) <= most, "it holds descriptors")


def _memory(pid: int) -> int:
    """MiB that a process has in memory."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) // 1024


def _descriptors(pid: int) -> int:
    """How many it has open; 0 when we may not look, as with a locked process of anybody but root."""
    with contextlib.suppress(PermissionError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0
