"""Code that calls functions: what every engine for a programming language does, whichever it is."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from ....sandbox.port import Host, HostRefused, Job, Language, Limits, Outcome, Pause, Sandbox, Status
from .case import Asked, SandboxCase
from .hostile_code import HOSTILE_CODE
from .languages import LANGUAGES, Programs

__all__ = ["CodeContract"]

SECRET = "b7f3-only-the-server-knows"
NAMES = {"tools.ask": "", "tools.tell": ""}


class CodeContract(SandboxCase):
    """All the tests of one language. Set `language`, override `open`."""

    language: Language
    hostile_limits = Limits(wall=4, cpu=1.5, calls=200)
    """What hostile code gets before it is stopped."""

    @property
    def programs(self) -> Programs:
        """What the tests say in this language."""
        return LANGUAGES[self.language]

    def job(self, source: str, **options: Any) -> Job:
        """A piece of code that may ask."""
        given: dict[str, Any] = {"limits": self.limits, "names": NAMES, **options}
        return Job(language=self.language, source=source, **given)

    async def run(self, source: str, host: Host | None = None, **options: Any) -> Outcome:
        """Run one piece of code in a sandbox of its own."""
        async with self.opened() as sandbox:
            return await sandbox.run(self.job(source, **options), host or Asked())

    # --- what goes in, what comes out

    async def test_an_engine_that_can_run_here_says_so(self) -> None:
        async with self.opened() as sandbox:
            assert await sandbox.check() is None
            assert self.language in sandbox.languages
            assert sandbox.isolation

    async def test_the_value_is_that_of_the_last_expression(self) -> None:
        outcome = await self.run(self.programs.value)
        assert (outcome.status, outcome.error) == ("done", None)
        assert outcome.value == {"a": [1, None, "ä"]}

    async def test_code_without_a_value_has_none(self) -> None:
        host = Asked()
        outcome = await self.run(self.programs.prints, host)
        assert (outcome.status, outcome.value) == ("done", None)
        assert outcome.stdout.splitlines() == ["one", "two 2"]
        assert host.written("stdout") == outcome.stdout

    async def test_what_is_printed_is_seen_while_it_runs(self) -> None:
        host = Asked(lambda args, kwargs: _now(host))
        outcome = await self.run(self.programs.prints_around_a_call, host)
        assert outcome.stdout.split() == ["before", "after", "before"]

    async def test_an_exception_that_nobody_catches_is_told_with_its_place(self) -> None:
        outcome = await self.run(self.programs.raises)
        assert (outcome.status, outcome.value) == ("failed", None)
        assert "out of cheese" in (outcome.error or "")
        assert "2" in (outcome.error or "")

    async def test_code_that_cannot_be_read_is_told_so(self) -> None:
        host = Asked()
        outcome = await self.run(self.programs.cannot_be_read, host)
        assert outcome.status == "failed"
        assert "syntax" in (outcome.error or "").lower() or "expected" in (outcome.error or "").lower()

    async def test_nothing_is_left_for_the_next(self) -> None:
        async with self.opened() as sandbox:
            kept = await sandbox.run(self.job(self.programs.keeps), Asked())
            found = await sandbox.run(self.job(self.programs.finds), Asked())
        assert kept.value == "kept"
        assert found.value in ("nothing", None)  # some refuse a name that is not there before they run

    async def test_pieces_of_code_that_run_at_once_do_not_meet(self) -> None:
        async with self.opened() as sandbox:
            jobs = [self.job(self.programs.asks) for _ in range(6)]
            hosts = [Asked(_answers(number)) for number in range(6)]
            outcomes = await asyncio.gather(
                *(sandbox.run(job, host) for job, host in zip(jobs, hosts, strict=True))
            )
        assert [outcome.value for outcome in outcomes] == list(range(6))

    async def test_the_same_answers_are_the_same_run_again(self) -> None:
        options: dict[str, Any] = {"now": 1_700_000_000_000, "seed": "one"}
        first = await self.run(self.programs.chance, **options)
        again = await self.run(self.programs.chance, **options)
        other = await self.run(self.programs.chance, now=1_700_000_000_000, seed="two")
        assert first.status == "done", first.error
        assert first.value[0] == 1_700_000_000
        assert first.value == again.value
        assert first.value[1:] != other.value[1:]
        assert len(set(first.value[1:])) == 3

    async def test_files_of_the_job_are_read_and_what_is_written_comes_back(self) -> None:
        outcome = await self.run(
            self.programs.reads_and_writes,
            files={"/in.txt": "ä text".encode(), "/kept.txt": b"kept"},
            folders=frozenset({"/out"}),
        )
        assert outcome.status == "done", outcome.error
        assert outcome.changed == {"/out/new.txt": "ä text more".encode()}
        assert outcome.deleted == ()

    async def test_a_job_with_too_much_in_it_is_refused_with_the_limit_in_the_words(self) -> None:
        files = {f"/{number}": b"12345" for number in range(4)}
        for limit, most in (("files", 3), ("file_bytes", 4), ("tree_bytes", 19)):
            limits = replace(self.limits, **{limit: most})
            outcome = await self.run(self.programs.prints, files=files, limits=limits)
            assert (outcome.status, outcome.stdout) == ("failed", "")
            assert f"({limit})" in (outcome.error or "")

    async def test_a_language_that_the_engine_does_not_run_is_refused(self) -> None:
        async with self.opened() as sandbox:
            missing: Language = min(frozenset[Language](get_args(Language)) - sandbox.languages)
            outcome = await sandbox.run(Job(language=missing, source="1"), Asked())
        assert outcome.status == "failed"
        assert missing in (outcome.error or "")

    async def test_a_closed_sandbox_runs_nothing_and_says_so(self) -> None:
        async with self.opened() as sandbox:
            pass
        outcome = await sandbox.run(self.job(self.programs.prints), Asked())
        assert (outcome.status, outcome.stdout) == ("failed", "")
        assert outcome.error

    # --- functions of the host

    async def test_a_function_of_the_host_gets_what_it_is_given_and_is_answered(self) -> None:
        host = Asked(_answers({"ok": ["ä", 1.5, None]}))
        outcome = await self.run(self.programs.asks, host)
        assert (outcome.value, outcome.calls) == ({"ok": ["ä", 1.5, None]}, 1)
        assert host.calls == [("tools.ask", ["two words", {"n": [1, None]}], {})]

    async def test_a_refusal_is_told_to_the_code_which_may_go_on(self) -> None:
        outcome = await self.run(self.programs.asks_and_catches, Asked(_refused))
        assert outcome.status == "done", outcome.error
        assert "not without a person" in outcome.value

    async def test_a_refusal_that_nobody_catches_is_an_exception(self) -> None:
        outcome = await self.run(self.programs.asks_without_catching, Asked(_refused))
        assert (outcome.status, outcome.value) == ("failed", None)
        assert "not without a person" in (outcome.error or "")

    async def test_a_function_that_the_job_does_not_name_cannot_be_called(self) -> None:
        host = Asked()
        outcome = await self.run(self.programs.asks_for_more, host)
        assert (outcome.status, host.calls) == ("failed", [])

    async def test_a_pause_ends_the_code_whatever_it_catches(self) -> None:
        outcome = await self.run(self.programs.asks_for_ever, Asked(_paused))
        assert (outcome.status, outcome.value, outcome.changed) == ("paused", None, {})
        assert outcome.calls == 1

    async def test_more_calls_than_allowed_end_the_code_whatever_it_catches(self) -> None:
        host = Asked()
        outcome = await self.run(self.programs.asks_for_ever, host, limits=replace(self.limits, calls=3))
        assert (outcome.status, len(host.calls)) == ("calls", 3)
        assert "(calls)" in (outcome.error or "")

    async def test_a_host_that_breaks_is_not_mistaken_for_code_that_does(self) -> None:
        async with self.opened() as sandbox:
            with pytest.raises(ZeroDivisionError):
                await sandbox.run(self.job(self.programs.asks_for_ever), Asked(_broken))
            await self._is_alive(sandbox)

    async def test_several_calls_are_answered_at_once(self) -> None:
        both = asyncio.Barrier(2)

        async def meet(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
            await both.wait()
            return f"{args[0]}!"

        outcome = await self.run(self.programs.asks_two_at_once, Asked(meet))
        assert outcome.value == ["a!", "b!"]

    async def test_a_run_that_is_cancelled_ends_the_code_and_the_next_one_runs(self) -> None:
        asked, ended = asyncio.Event(), list[str]()

        async def wait(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        async with self.opened() as sandbox:
            running = asyncio.create_task(
                sandbox.run(self.job(self.programs.asks_without_catching), Asked(wait))
            )
            await asked.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert ended == ["cancelled"]
            await self._is_alive(sandbox)

    async def test_code_that_never_waits_is_ended_when_its_run_is_cancelled(self) -> None:
        began = asyncio.Event()

        class Watching(Asked):
            def output(self, stream: Any, text: str) -> None:
                began.set()

        async with self.opened() as sandbox:
            source = f"{self.programs.prints}\n{self.programs.works}"
            limits = replace(self.limits, cpu=1_000, wall=1_000)
            running = asyncio.create_task(sandbox.run(self.job(source, limits=limits), Watching()))
            await began.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await self._is_alive(sandbox)

    # --- limits

    async def test_code_that_waits_for_too_long_is_stopped(self) -> None:
        outcome = await self.run(self.programs.waits, limits=replace(self.limits, wall=1))
        assert outcome.status == "timeout"
        assert "(wall)" in (outcome.error or "")

    async def test_code_that_works_for_too_long_is_stopped_whatever_it_catches(self) -> None:
        outcome = await self.run(self.programs.works, limits=replace(self.limits, cpu=0.5))
        assert outcome.status == "timeout"
        assert "(cpu)" in (outcome.error or "")

    async def test_code_that_takes_all_memory_is_stopped(self) -> None:
        outcome = await self.run(self.programs.grows, limits=replace(self.limits, memory=32 << 20))
        assert outcome.status == "memory"
        assert "memory" in (outcome.error or "")

    async def test_of_the_output_the_beginning_is_kept_and_the_rest_is_counted(self) -> None:
        host = Asked()
        outcome = await self.run(self.programs.prints_much, host, limits=replace(self.limits, output=25))
        assert outcome.stdout == "123456789\n123456789\n12345"
        assert (outcome.status, outcome.dropped_bytes) == ("done", 25)
        assert host.written("stdout") == outcome.stdout

    # --- walls

    async def test_the_servers_files_are_out_of_reach(self, tmp_path: Path) -> None:
        place = tmp_path / "secret.txt"
        place.write_text(SECRET)
        for path in (str(place), "/proc/self/environ", "/etc/passwd", f"/../../..{place}", "/dev/mem"):
            outcome = await self.run(self.programs.reads.replace("PATH", path))
            assert (outcome.status, outcome.value) == ("failed", None), path
            assert SECRET not in str(outcome)

    async def test_nothing_is_written_outside_of_the_tree(self, tmp_path: Path) -> None:
        before = sorted(os.listdir(tmp_path))
        source = self.programs.reads_and_writes.replace("/out/new.txt", f"{tmp_path}/made")
        await self.run(source, files={"/in.txt": b"x"}, folders=frozenset({str(tmp_path)}))
        assert sorted(os.listdir(tmp_path)) == before

    async def test_hostile_code_ends_at_its_limits_and_the_next_piece_runs(self) -> None:
        async with self.opened() as sandbox:
            hostile = HOSTILE_CODE[self.language].items()
            outcomes = await asyncio.gather(*(self._ended(sandbox, name, source) for name, source in hostile))
            assert set(outcomes) <= set(get_args(Status)) - {"paused"}
            await self._is_alive(sandbox)

    async def _ended(self, sandbox: Sandbox, name: str, source: str) -> str:
        host = Asked(_answers("an answer"))
        outcome = await sandbox.run(self.job(source, limits=self.hostile_limits), host)
        assert len(outcome.stdout) <= self.hostile_limits.output, name
        assert len(outcome.stderr) <= self.hostile_limits.output, name
        assert outcome.status == "done" or outcome.status == "paused" or outcome.error, name
        assert outcome.value != "escaped", name
        assert {called for called, _, _ in host.calls} <= NAMES.keys(), name
        assert len(host.calls) <= self.hostile_limits.calls, name
        assert SECRET not in str(outcome), name
        return outcome.status

    async def _is_alive(self, sandbox: Sandbox) -> None:
        outcome = await sandbox.run(self.job(self.programs.value), Asked())
        assert outcome.value == {"a": [1, None, "ä"]}, outcome.error


async def _now(host: Asked) -> str:
    return host.written("stdout").strip()


def _answers(value: Any) -> Any:
    async def answer(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return value

    return answer


async def _refused(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    raise HostRefused("not without a person")


async def _paused(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    raise Pause


async def _broken(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return 1 // 0
