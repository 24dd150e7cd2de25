"""What a script cannot reach, and what it cannot take down."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import get_args

import pytest

from ....sandbox.port import Limits, Sandbox, Status
from .case import Asked, SandboxCase, bash
from .hostile import HOSTILE

__all__ = ["WallsContract"]

SECRET = "b7f3-only-the-server-knows"


class WallsContract(SandboxCase):
    """Nothing of the machine is in there, and nothing in there hurts the machine."""

    hostile_limits = Limits(wall=2, cpu=1.5)
    """What a hostile script gets before it is stopped."""

    async def test_the_servers_environment_and_files_are_out_of_reach(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EVERTHINK_TEST_SECRET", SECRET)
        place = tmp_path / "secret.txt"
        place.write_text(SECRET)
        outcome = await self.run(
            f"env; set; cat {place} /proc/self/environ /proc/*/environ; cat < {place}; ln -s {place} /l;"
            f" cat /l; source {place}; cp {place} /stolen; tar cf /t {tmp_path};"
            f" find {tmp_path} -type f -exec cat {{}} +"
        )
        shown = outcome.stdout + outcome.stderr + str(dict(outcome.changed))
        assert SECRET not in shown

    async def test_nothing_is_written_outside_of_the_tree(self, tmp_path: Path) -> None:
        outcome = await self.run(
            f"mkdir -p {tmp_path}; echo x > {tmp_path}/made; cd {tmp_path} && touch more", collect=("/none",)
        )
        assert (outcome.status, os.listdir(tmp_path)) == ("done", [])

    async def test_the_network_is_out_of_reach(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            port = listening.getsockname()[1]
            await self.run(
                f"echo hi > /dev/tcp/127.0.0.1/{port}; curl -s http://127.0.0.1:{port}/;"
                f" wget -q -O- http://127.0.0.1:{port}/; nc 127.0.0.1 {port} < /dev/null"
            )
            with pytest.raises(BlockingIOError):
                listening.accept()

    @pytest.mark.parametrize("kind", HOSTILE)
    async def test_hostile_scripts_end_at_their_limits_and_the_next_script_runs(self, kind: str) -> None:
        async with self.opened() as sandbox:
            scripts = HOSTILE[kind].items()
            outcomes = await asyncio.gather(
                *(self._ended(sandbox, f"{kind}: {name}", script) for name, script in scripts)
            )
            assert set(outcomes) <= set(get_args(Status)) - {"paused", "calls"}
            assert (await sandbox.run(bash("echo alive", limits=self.limits), Asked())).stdout == "alive\n"

    async def _ended(self, sandbox: Sandbox, name: str, script: str) -> str:
        outcome = await sandbox.run(bash(script, limits=self.hostile_limits), Asked())
        assert len(outcome.stdout) <= self.hostile_limits.output, name
        assert len(outcome.stderr) <= self.hostile_limits.output, name
        assert outcome.status == "done" or outcome.error, name
        return outcome.status
