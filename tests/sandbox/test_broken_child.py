"""A child that has been taken over can say anything, and gets nothing for it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from everthink.sandbox.bash import BashRun
from everthink.sandbox.child import Child
from everthink.sandbox.javascript import JavaScriptRun
from everthink.sandbox.port import Job, Limits, NoHost, Outcome
from everthink.sandbox.running import MORE_CALLS, NotBegun, Run
from tests.mcp.serving import children

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


JOBS: dict[type[Run], Job] = {
    BashRun: Job(language="bash", source="echo"),
    JavaScriptRun: Job(language="javascript", source="1", names={"tools.ask": ""}),
}


async def lied_to(kind: str, limits: Limits, run: type[Run] = BashRun) -> tuple[Outcome, Child]:
    """The outcome of a job in a child that lies."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.sandbox.liar", kind),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    child = Child(process, ExitStack(), deque())
    try:
        outcome = await run(child, replace(JOBS[run], limits=limits), NoHost()).outcome()
        return outcome, child
    finally:
        is_idle = child.is_idle
        await child.end()
        child.is_idle = is_idle


@pytest.mark.parametrize("run", JOBS)
@pytest.mark.parametrize(
    "kind",
    [
        "nothing",
        "no frame",
        "no JSON",
        "another type",
        "another word",
        "deep",
        "a head without end",
        "a body without end",
        "ready again",
        "a command that is not the job's",
        "a file elsewhere",
        "a file that is not sent",
        "a large file",
        "a deletion of what is not there",
        "a value that is not sent",
        "a value below nothing",
        "an end for no reason",
    ],
)
async def test_a_lie_is_a_crash_and_the_child_is_used_no_more(kind: str, run: type[Run]) -> None:
    before = children()
    outcome, child = await lied_to(kind, Limits(), run)
    assert outcome.status == "crashed"
    assert (outcome.error or "").endswith("Nothing was written.")
    assert (outcome.changed, outcome.deleted, child.is_idle) == ({}, (), False)
    assert children() == before


async def test_a_child_that_dies_before_it_has_the_job_did_not_crash_by_it() -> None:
    with pytest.raises(NotBegun):
        await lied_to("not even a beginning", Limits())


async def test_output_without_end_is_read_and_dropped() -> None:
    outcome, _ = await lied_to("output without end", Limits(output=1_000))
    assert (outcome.status, len(outcome.stdout)) == ("done", 1_000)
    assert (outcome.dropped_bytes, outcome.exit_code) == (400 * 65_536 - 1_000, 4_000 & 255)


async def test_a_child_that_does_not_stop_is_killed_and_nothing_of_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("everthink.sandbox.running.GRACE", 0.1)
    outcome, child = await lied_to("no end at all", Limits(wall=0.1))
    assert (outcome.status, outcome.exit_code, child.is_idle) == ("timeout", 124, False)
    assert "(wall)" in (outcome.error or "")
    assert (outcome.error or "").endswith("It was killed. Nothing was written.")


async def test_a_value_that_no_code_can_have_is_no_value() -> None:
    for kind in ("a deep value", "a value that is no JSON"):
        outcome, child = await lied_to(kind, Limits(), JavaScriptRun)
        assert (outcome.status, outcome.value, child.is_idle) == ("failed", None, True)
        assert "nested too deep, or is no JSON" in (outcome.error or "")


async def test_a_child_that_asks_without_end_is_killed() -> None:
    outcome, child = await lied_to("calls without end", Limits(calls=5), JavaScriptRun)
    assert (outcome.status, outcome.calls, child.is_idle) == ("calls", 5, False)
    assert "(calls)" in (outcome.error or "")
    assert MORE_CALLS >= 5


async def test_arguments_that_are_none_are_refused_and_the_host_never_sees_them() -> None:
    outcome, _ = await lied_to("arguments that are none", Limits(), JavaScriptRun)
    assert (outcome.status, outcome.stdout) == ("done", "refused refused refused ")
