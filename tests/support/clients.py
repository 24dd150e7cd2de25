"""Platforms' own Python clients, each in an environment of its own: the judges of our stand-ins.

python = own_python("slack", "slack-sdk>=3.40,<4")
heard = await judged(python, SCRIPT, slack.api_url)
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

__all__ = ["judged", "own_python"]

ROOT = Path(__file__).parents[2]


def own_python(name: str, *packages: str) -> str:
    """A Python in which these packages are. Skips where they cannot be had; never in CI."""
    with (ROOT / ".venv" / f"client-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(
            [ROOT / "scripts" / "ensure-client", name, *packages], capture_output=True, text=True, check=False
        )
    if made.returncode and not os.environ.get("CI"):
        pytest.skip(f"{' '.join(packages)} cannot be installed here: {made.stderr.strip()[-200:]}")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


async def judged(python: str, script: str, *args: str, timeout: float = 60.0) -> Any:
    """What the script prints as JSON. It fails with what the script says when that breaks."""
    process = await asyncio.create_subprocess_exec(
        python,
        "-c",
        script,
        *args,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()[-2000:]
    return json.loads(out)
