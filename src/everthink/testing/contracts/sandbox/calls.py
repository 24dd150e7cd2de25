"""A script asks the host: functions as commands."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ....sandbox.port import HostRefused, Pause
from .case import Asked, SandboxCase, bash

__all__ = ["CallsContract"]


class CallsContract(SandboxCase):
    """Commands that the host carries out."""

    async def test_a_command_of_the_host_gets_its_arguments_its_input_and_its_folder(self) -> None:
        host = Asked()
        await self.run("echo given | ask 'two words' --flag", host, commands=("ask",), cwd="/")
        assert host.calls == [("ask", ["two words", "--flag"], {"stdin": "given\n", "cwd": "/"})]

    async def test_an_answer_is_text_or_json_or_a_whole_result(self) -> None:
        host = Asked(_answered)
        outcome = await self.run(
            "ask text; ask json | cat; ask nothing; ask result; echo $?", host, commands=("ask",)
        )
        assert outcome.stdout == 'a text{"n":[1,null]}\nout4\n'
        assert outcome.stderr == "err"
        assert outcome.calls == 4

    async def test_a_refusal_is_told_to_the_script_which_may_go_on(self) -> None:
        host = Asked(_refused)
        outcome = await self.run("ask || echo refused with $?", host, commands=("ask",))
        assert (outcome.status, outcome.stdout) == ("done", "refused with 1\n")
        assert "not without a person" in outcome.stderr

    async def test_a_function_that_the_job_does_not_name_is_no_command(self) -> None:
        host = Asked()
        outcome = await self.run("ask; other", host, commands=("ask",))
        assert outcome.exit_code == 127
        assert [name for name, _, _ in host.calls] == ["ask"]

    async def test_a_pause_ends_the_script_whatever_it_catches(self) -> None:
        host = Asked(_paused)
        outcome = await self.run(
            "echo x > /made; ask || echo caught; trap 'echo caught' EXIT", host, commands=("ask",)
        )
        assert (outcome.status, outcome.stdout, outcome.changed) == ("paused", "", {})
        assert outcome.calls == 1

    async def test_more_calls_than_allowed_end_the_script_whatever_it_catches(self) -> None:
        host = Asked()
        outcome = await self.run(
            "while true; do ask || true; done",
            host,
            commands=("ask",),
            limits=replace(self.limits, calls=3),
        )
        assert (outcome.status, outcome.calls, len(host.calls)) == ("calls", 3, 3)
        assert "(calls)" in (outcome.error or "")

    async def test_a_host_that_breaks_is_not_mistaken_for_a_script_that_does(self) -> None:
        async with self.opened() as sandbox:
            with pytest.raises(ZeroDivisionError):
                await sandbox.run(bash("ask || echo caught", commands=("ask",)), Asked(_broken))
            assert (await sandbox.run(bash("echo next"), Asked())).stdout == "next\n"

    async def test_several_calls_are_answered_at_once(self) -> None:
        # Given a host that answers when two have asked
        both = asyncio.Barrier(2)

        async def meet(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
            await both.wait()
            return f"{args[0]}\n"

        outcome = await self.run("ask a > a & ask b > b & wait; cat a b", Asked(meet), commands=("ask",))
        assert outcome.stdout == "a\nb\n"

    async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(self) -> None:
        # Given a host that never answers
        ended: list[str] = []

        async def never(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        outcome = await self.run("ask", Asked(never), commands=("ask",), limits=replace(self.limits, wall=2))
        assert (outcome.status, ended) == ("timeout", ["cancelled"])

    async def test_a_run_that_is_cancelled_ends_the_script_and_the_next_one_runs(self) -> None:
        # Given a script that waits for the host
        asked = asyncio.Event()

        async def wait(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
            asked.set()
            await asyncio.Event().wait()

        async with self.opened() as sandbox:
            running = asyncio.create_task(sandbox.run(bash("ask", commands=("ask",)), Asked(wait)))
            await asked.wait()

            # When the run is cancelled
            running.cancel()

            # Then it raises, and the sandbox is as good as before
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (await sandbox.run(bash("echo next"), Asked())).stdout == "next\n"


async def _answered(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    answers = {
        "text": "a text",
        "json": {"n": [1, None]},
        "result": {"stdout": "out", "stderr": "err", "exit_code": 4},
    }
    return answers.get(args[0])


async def _refused(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    raise HostRefused("not without a person")


async def _paused(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    raise Pause


async def _broken(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return 1 // 0
