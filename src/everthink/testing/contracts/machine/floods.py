"""Too much of anything: every limit holds, and the outcome says which one it was."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from dataclasses import replace

from ..sandbox.case import Asked
from .case import MachineCase, marked, until_gone

__all__ = ["FloodsContract"]

BOMB = """
import os, sys, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep({mark})
        count += 1
except OSError as error:
    print(count, type(error).__name__)
"""


class FloodsContract(MachineCase):
    """Time, memory, processes, disk, output, calls."""

    async def test_a_script_that_does_not_end_is_stopped_and_keeps_what_it_wrote(self) -> None:
        mark = marked()
        outcome = await self.run(
            f"echo begun; echo x > made; sleep {mark}; echo never", limits=replace(self.limits, wall=3)
        )
        assert (outcome.status, outcome.exit_code, outcome.stdout) == ("timeout", 124, "begun\n")
        assert "(wall)" in (outcome.error or "")
        assert outcome.changed == {"/made": b"x\n"}
        await until_gone(mark)

    async def test_a_script_that_works_for_too_long_is_stopped_and_keeps_what_it_wrote(self) -> None:
        for language, source in (
            ("bash", "echo x > made; while :; do :; done"),
            (
                "python",
                "open('made', 'w').write('x\\n')\nwhile True:\n    try: x = 1\n    except BaseException: 1",
            ),
        ):
            outcome = await self.attacked(source, language, limits=replace(self.limits, cpu=0.5))
            assert (outcome.status, outcome.exit_code) == ("timeout", 124)
            assert "(cpu)" in (outcome.error or "")
            assert outcome.changed == {"/made": b"x\n"}

    async def test_waiting_is_no_work(self) -> None:
        outcome = await self.run("sleep 1; echo end", limits=replace(self.limits, cpu=0.5))
        assert (outcome.status, outcome.stdout) == ("done", "end\n")

    async def test_more_memory_than_allowed_is_not_given(self) -> None:
        outcome = await self.attacked("len(bytearray(4 << 30))", "python")
        assert outcome.status == "memory"
        assert "(memory" in (outcome.error or "")

    async def test_memory_that_processes_share_is_counted_or_not_given(self) -> None:
        outcome = await self.attacked(
            "import mmap\nparts = []\n"
            "for number in range(40):\n    part = mmap.mmap(-1, 100 << 20)\n    parts.append(part)\n"
            "    for place in range(0, len(part), 4096): part[place] = 1\nprint('got it')",
            "python",
        )
        assert "got it" not in outcome.stdout

    async def test_files_in_memory_are_bounded(self) -> None:
        outcome = await self.attacked(
            "import ctypes, os\nlibc = ctypes.CDLL(None)\nheld = []\n"
            "for number in range(200):\n    held.append(libc.memfd_create(b'x', 0))\n"
            "    for _ in range(4): os.write(held[-1], bytes(1 << 20))\nprint('got it')",
            "python",
        )
        assert "got it" not in outcome.stdout

    async def test_a_fork_bomb_has_no_more_processes_than_allowed(self) -> None:
        mark = marked()
        outcome = await self.attacked(BOMB.format(mark=mark), "python")
        assert outcome.stdout, outcome
        count, error = outcome.stdout.split()
        assert error == "BlockingIOError"
        assert int(count) <= self.hostile_limits.processes + 8
        await until_gone(mark)

    async def test_a_fork_bomb_that_does_not_give_up_is_stopped(self) -> None:
        outcome = await self.attacked(
            "bomb() { bomb | bomb & }; bomb 2> /dev/null; sleep 1; echo survived",
            limits=replace(self.hostile_limits, wall=4),
        )
        assert outcome.status in ("done", "timeout", "failed", "crashed")

    async def test_the_disk_has_an_end(self) -> None:
        outcome = await self.attacked(
            "i=0; while head -c 1000000 /dev/zero > f$i; do i=$((i + 1)); done; rm -f f*; exit 7"
        )
        assert outcome.exit_code == 7 or "(tree_bytes)" in (outcome.error or ""), outcome
        assert outcome.changed == {}

    async def test_what_is_for_all_processes_to_write_has_an_end_too(self) -> None:
        outcome = await self.attacked(
            'for d in "$TMPDIR" /tmp /dev/shm /dev/mqueue /var/tmp /run /dev; do i=0;'
            " while [ $i -lt 200 ] && head -c 4000000 /dev/zero > $d/f$i; do i=$((i + 1)); done;"
            ' [ $i -lt 200 ] || echo "$d has no end"; rm -f $d/f*; done 2> /dev/null'
        )
        assert "has no end" not in outcome.stdout

    async def test_output_without_end_is_read_counted_and_dropped(self) -> None:
        limits = replace(self.hostile_limits, wall=2, output=1_000)
        outcome = await self.attacked("echo begun; yes", limits=limits)
        assert (outcome.status, len(outcome.stdout)) == ("timeout", 1_000)
        assert outcome.dropped_bytes > 0

    async def test_of_each_stream_the_beginning_is_kept(self) -> None:
        host = Asked()
        outcome = await self.run(
            "for i in 1 2 3 4 5; do echo 123456789; done; echo error number one >&2",
            host,
            limits=replace(self.limits, output=25),
        )
        assert (outcome.stdout, outcome.stderr) == ("123456789\n123456789\n12345", "error number one\n")
        assert (outcome.status, outcome.dropped_bytes) == ("done", 25)
        assert host.written("stdout") == outcome.stdout

    async def test_calls_without_end_end_the_job_and_keep_what_it_wrote(self) -> None:
        outcome = await self.attacked(
            "open('made', 'w').write('x')\nwhile True:\n    try: tools.ask()\n    except BaseException: pass",
            "python",
            names={"tools.ask": ""},
            limits=replace(self.hostile_limits, calls=3),
        )
        assert (outcome.status, outcome.calls) == ("calls", 3)
        assert "(calls)" in (outcome.error or "")
        assert outcome.changed == {"/made": b"x"}
