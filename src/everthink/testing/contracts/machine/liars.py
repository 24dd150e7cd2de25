"""A job that has reached the wire can say anything, and gets nothing for it."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from dataclasses import replace

import pytest

from .case import MachineCase, marked, until_gone

__all__ = ["LiarsContract"]

EVERYWHERE = """
import os
def everywhere(data):
    places = ["/proc/self/fd", "/proc/%d/fd" % os.getppid(), "/proc/1/fd"]
    for place in places:
        try:
            ends = os.listdir(place)
        except OSError:
            continue
        for end in ends:
            try:
                wire = os.open(place + "/" + end, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                os.write(wire, data)
            except OSError:
                pass
            os.close(wire)
    for end in range(3, 64):
        try:
            os.write(end, data)
        except OSError:
            pass
"""
"""Writes to every descriptor that can be had."""
STATUSES = ("done", "failed", "crashed", "timeout")


class LiarsContract(MachineCase):
    """Forged lines, and a runner that was killed."""

    @pytest.mark.parametrize(
        "line",
        [
            b"no JSON\n",
            b'{"t": "gimme"}\n',
            b'{"t": "call", "id": 1, "name": "tools.forged", "args": []}\n',
            b'{"t": "call", "id": 1, "name": "forged", "args": [], "stdin": ""}\n',
            b'{"t": "done", "exit": 0, "tree": "!!"}\n',
            b'{"t": "done", "exit": 0, "deleted": ["/never"]}\n',
            b'{"t": "done", "exit": 0, "folders": ["/../etc"]}\n',
            b"[" * 60_000 + b"\n",
        ],
    )
    async def test_a_forged_line_brings_nothing(self, line: bytes) -> None:
        outcome = await self.attacked(
            f"{EVERYWHERE}\neverywhere({line!r})", "python", names={"tools.real": ""}, commands=("real",)
        )
        assert outcome.status in STATUSES
        assert (outcome.calls, outcome.changed, outcome.deleted) == (0, {}, ())

    async def test_a_line_without_end_is_not_kept(self) -> None:
        outcome = await self.attacked(
            f"{EVERYWHERE}\nfor _ in range(2000): everywhere(b'x' * 65536)",
            "python",
            limits=replace(self.hostile_limits, wall=2),
        )
        assert outcome.status in STATUSES
        assert len(outcome.stdout) <= self.hostile_limits.output

    async def test_a_runner_that_is_killed_takes_the_job_along(self) -> None:
        mark = marked()
        limits = replace(self.hostile_limits, wall=2)
        outcome = await self.attacked(f"kill -9 $PPID; sleep {mark}", limits=limits)
        assert outcome.status in ("crashed", "timeout")
        await until_gone(mark)

    async def test_a_runner_that_is_stopped_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("everthink.machines.running.GRACE", 0.5)
        mark = marked()
        limits = replace(self.hostile_limits, wall=2)
        outcome = await self.attacked(f"kill -STOP $PPID; sleep {mark}", limits=limits)
        assert outcome.status == "timeout"
        assert "(wall)" in (outcome.error or "")
        await until_gone(mark)

    async def test_signals_to_all_end_the_job_at_most(self) -> None:
        outcome = await self.attacked("kill -9 -1; kill -9 0; echo alone")
        assert outcome.status in STATUSES
