"""Every limit holds, and the outcome says which one it was."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from dataclasses import replace

import pytest

from ....errors import InvalidSettings
from ....sandbox.port import Limits
from .case import Asked, SandboxCase

__all__ = ["LimitsContract"]

WORK = "for ((i = 0; i < 90000; i++)); do x=$((i * i)); done; "


class LimitsContract(SandboxCase):
    """Time, memory, output and files."""

    async def test_a_script_that_does_not_end_is_stopped_and_keeps_what_it_wrote(self) -> None:
        outcome = await self.run(
            "echo begun; echo x > /made; sleep 1000; echo never", limits=replace(self.limits, wall=2)
        )
        assert (outcome.status, outcome.exit_code, outcome.stdout) == ("timeout", 124, "begun\n")
        assert "(wall)" in (outcome.error or "")
        assert outcome.stderr
        assert outcome.changed == {"/made": b"x\n"}

    async def test_a_script_that_works_for_too_long_is_stopped(self) -> None:
        outcome = await self.run(WORK * 10, limits=replace(self.limits, cpu=0.01))
        assert (outcome.status, outcome.exit_code) == ("timeout", 124)
        assert "(cpu)" in (outcome.error or "")

    async def test_waiting_is_no_work(self) -> None:
        outcome = await self.run("sleep 1; echo end", limits=replace(self.limits, cpu=0.5))
        assert (outcome.status, outcome.stdout) == ("done", "end\n")

    async def test_a_script_that_takes_all_memory_is_stopped(self) -> None:
        outcome = await self.run("x=0123456789; while true; do x=$x$x; done")
        assert outcome.status == "memory"
        assert "memory" in (outcome.error or "")

    async def test_of_each_stream_the_beginning_is_kept_and_the_rest_is_counted(self) -> None:
        host = Asked()
        outcome = await self.run(
            "for i in 1 2 3 4 5; do echo 123456789; done; echo error number one >&2",
            host,
            limits=replace(self.limits, output=25),
        )
        assert (outcome.stdout, outcome.stderr) == ("123456789\n123456789\n12345", "error number one\n")
        assert (outcome.status, outcome.dropped_bytes) == ("done", 25)
        assert host.written("stdout") == outcome.stdout

    async def test_a_letter_is_not_cut_in_two(self) -> None:
        outcome = await self.run("echo äöü", limits=replace(self.limits, output=3))
        assert (outcome.stdout, outcome.dropped_bytes) == ("ä", 4)

    @pytest.mark.parametrize(
        ("limit", "most", "script"),
        [
            ("files", 3, "for i in 1 2 3 4; do echo x > /f$i; done"),
            ("files", 3, "mkdir /a /b /c /d"),
            ("file_bytes", 9, "echo 1234567890 > /f"),
            ("tree_bytes", 19, "for i in 1 2 3 4; do echo 12345 > /f$i; done"),
        ],
    )
    async def test_more_than_may_come_back_does_not_come_back_at_all(
        self, limit: str, most: int, script: str
    ) -> None:
        outcome = await self.run(script, limits=replace(self.limits, **{limit: most}))
        assert outcome.status == "failed"
        assert f"({limit})" in (outcome.error or "")
        assert "Nothing was written" in (outcome.error or "")
        assert (outcome.changed, outcome.deleted) == ({}, ())

    async def test_what_a_script_throws_away_again_does_not_count(self) -> None:
        outcome = await self.run(
            "for i in 1 2 3 4 5 6; do echo x > /tmp/f$i; echo y > /g; done; echo 1234567890123 > /h; rm /h",
            limits=replace(self.limits, files=1, file_bytes=9),
        )
        assert (outcome.status, outcome.changed) == ("done", {"/g": b"y\n"})

    @pytest.mark.parametrize("wrong", [0, -1, "5", None, float("nan"), float("inf"), True])
    async def test_a_limit_is_a_number_above_zero(self, wrong: object) -> None:
        with pytest.raises(InvalidSettings):
            Limits(wall=wrong)  # pyright: ignore[reportArgumentType]
