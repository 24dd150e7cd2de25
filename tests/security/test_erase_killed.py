"""Killed in the middle of an erase: afterwards the agent is there whole, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from everthink import App

from .lives import (
    Keeper,
    anyio_backend,
    postgres_database,
    postgres_server,
    postgres_url,
    rows_of,
    traces,
    url,
)

__all__ = ["anyio_backend", "postgres_database", "postgres_server", "postgres_url", "url"]

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CHILD = Path(__file__).with_name("erase_child.py")
ROOT = CHILD.parents[2]


def run_child(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, str(CHILD), *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_kill_leaves_all_or_nothing(url: str, when: str, tmp_path: Path) -> None:
    # Given a process that dies just before, or just after, the agent is deleted
    killed = run_child(url, when)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    async with App(Keeper, store=url, grace=0.0, idle_after=None) as app:
        directory = await app.open()
        await directory.waker.idle()
        rows = await rows_of(app)
        if when == "before":
            # Then it is there as it was, with what it had to do, and can be erased
            assert {"messages", "turns", "blocks", "alarms", "jobs", "files", "contents"} <= rows.keys()
            assert await app.erase(Keeper, "ada") > 20
        else:
            # Then nothing of it is left, nobody brings it back, and what the process left undone is done
            assert rows == {}
            await directory.store.scrub(patience=60)
        assert await rows_of(app) == {}
        assert traces(tmp_path) == {}
        assert [m.text for m in await app.agent(Keeper, "bob").get_messages()] == ["hello"]
