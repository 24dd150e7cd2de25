"""A script is run: its words, its input, its end."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
from typing import get_args

from ....sandbox.port import Job, Language
from .case import Asked, SandboxCase, bash

__all__ = ["ScriptsContract"]


class ScriptsContract(SandboxCase):
    """What goes into a script, and what comes out of it."""

    async def test_an_engine_that_can_run_here_says_so(self) -> None:
        async with self.opened() as sandbox:
            assert await sandbox.check() is None
            assert "bash" in sandbox.languages

    async def test_a_script_says_what_it_says_and_ends_with_its_own_code(self) -> None:
        outcome = await self.run("echo out; echo err >&2; exit 3")
        assert (outcome.status, outcome.error, outcome.exit_code) == ("done", None, 3)
        assert (outcome.stdout, outcome.stderr) == ("out\n", "err\n")

    async def test_a_script_that_cannot_be_read_ends_with_2_and_says_why(self) -> None:
        outcome = await self.run("if true; then")
        assert (outcome.status, outcome.exit_code) == ("done", 2)
        assert outcome.stderr

    async def test_a_command_that_nobody_has_ends_with_127(self) -> None:
        outcome = await self.run("there-is-no-such-command")
        assert (outcome.status, outcome.exit_code) == ("done", 127)

    async def test_a_script_has_its_arguments_its_variables_its_folder_and_its_input(self) -> None:
        outcome = await self.run(
            'echo "$#:$1:$2"; echo "$GREETING"; pwd; read -r first; echo "[$first]"; cat',
            args=("one", "two words; $(echo no)"),
            env={"GREETING": "hello 'you'"},
            cwd="/notes/today",
            folders=frozenset({"/notes/today"}),
            stdin=b"line 1\nline 2\n",
        )
        said = ["2:one:two words; $(echo no)", "hello 'you'", "/notes/today", "[line 1]", "line 2"]
        assert outcome.stdout.splitlines() == said

    async def test_a_loop_reads_the_input_line_by_line(self) -> None:
        outcome = await self.run('while read -r line; do echo "<$line>"; done', stdin=b"a\nb\nc\n")
        assert outcome.stdout == "<a>\n<b>\n<c>\n"

    async def test_a_folder_that_is_not_there_is_no_place_to_begin(self) -> None:
        outcome = await self.run("echo here", cwd="/nowhere")
        assert outcome.status == "failed"
        assert "/nowhere" in (outcome.error or "")
        assert outcome.stdout == ""

    async def test_nothing_of_a_script_is_left_for_the_next(self) -> None:
        async with self.opened() as sandbox:
            await sandbox.run(bash("x=1; f() { echo old; }; cd /tmp; echo y > /tmp/y; set -e"), Asked())
            outcome = await sandbox.run(bash('echo "[$x]"; f; pwd; cat /tmp/y; false; echo end'), Asked())
        assert outcome.stdout == "[]\n/\nend\n"

    async def test_scripts_that_run_at_once_do_not_meet(self) -> None:
        async with self.opened() as sandbox:
            jobs = [bash(f"echo {number} > /tmp/n; cat /tmp/n; ls /") for number in range(4)]
            outcomes = await asyncio.gather(*(sandbox.run(job, Asked()) for job in jobs))
        assert [outcome.stdout.split()[0] for outcome in outcomes] == ["0", "1", "2", "3"]

    async def test_bytes_that_are_no_text_are_shown_as_such(self) -> None:
        outcome = await self.run("printf 'a\\xffb\\n'")
        assert outcome.stdout == "a�b\n"

    async def test_what_a_script_writes_is_seen_while_it_runs(self) -> None:
        # Given a host that looks at what was written when it is asked
        host = Asked(lambda args, kwargs: _now(host))

        # When a script writes, asks and writes again
        outcome = await self.run("echo before; ask; echo after", host, commands=("ask",))

        # Then the first line was there when it asked
        assert outcome.stdout == "before\nbefore\nafter\n"
        assert host.written("stdout") == outcome.stdout

    async def test_a_language_that_the_engine_does_not_run_is_refused(self) -> None:
        async with self.opened() as sandbox:
            missing: Language = min(frozenset[Language](get_args(Language)) - sandbox.languages)
            outcome = await sandbox.run(Job(language=missing, source="1"), Asked())
        assert outcome.status == "failed"
        assert missing in (outcome.error or "")

    async def test_a_closed_sandbox_runs_nothing_and_says_so(self) -> None:
        async with self.opened() as sandbox:
            pass
        outcome = await sandbox.run(bash("echo hi"), Asked())
        assert outcome.status == "failed"
        assert outcome.error


async def _now(host: Asked) -> str:
    return host.written("stdout")
