"""What a JavaScript function has loaded and keeps for its next job."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from everthink.sandbox.contexts import MOST_KEPT
from everthink.sandbox.javascript import JavaScriptSandbox
from everthink.sandbox.port import HostRefused, Job, Limits, Outcome
from everthink.testing.contracts.sandbox.case import Asked
from tests.mcp.serving import children
from tests.sandbox.flat import stays_flat
from tests.support.samples import sample

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
pytest.importorskip("quickjs_rs")

LIMITS = Limits(wall=20, cpu=5, memory=16 * 1024 * 1024, tree_bytes=1_000_000)
SOURCE = """
let n = 0;
export default async function (what, { bridge }) {
  n++;
  switch (what) {
    case 'count': return n;
    case 'throw': throw new TypeError('nope');
    case 'ask': return [n, await bridge.call('first', n)];
    case 'leave': bridge.call('late').catch(() => {}); setTimeout(() => { n += 1000 }, 50); return n;
    case 'hang': await new Promise(() => {});
    case 'spin': for (;;);
    case 'deep': { const f = () => f() + 1; return f(); }
    case 'eat': { const eat = []; for (;;) eat.push(new Uint8Array(1e6)); }
    case 'input': return typeof input;
    case 'module': return (await import('./other.js')).default;
    case 'exit': return typeof process;
  }
}
"""


@pytest.fixture
async def sandbox() -> AsyncIterator[JavaScriptSandbox]:
    before = children()
    opened = JavaScriptSandbox(most=1)
    yield opened
    await opened.aclose()
    assert children() == before


def job(what: str, keep: str | None = "a", **options: Any) -> Job:
    return Job(
        **{
            "language": "javascript",
            "style": "function",
            "path": "entry.mjs",
            "source": SOURCE,
            "modules": {"other.js": "export default 'other'"},
            "input": what,
            "names": {"bridge.call": ""},
            "keep": keep,
            "limits": LIMITS,
            **options,
        }
    )


async def ran(sandbox: JavaScriptSandbox, what: str, keep: str | None = "a", **options: Any) -> Outcome:
    return await sandbox.run(job(what, keep, **options), Asked(_answered))


async def _answered(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if args[0] == "late":
        raise HostRefused("too late")
    return args[1]


async def values(sandbox: JavaScriptSandbox, *asked: str, keep: str = "a") -> list[Any]:
    return [(await ran(sandbox, what, keep)).value for what in asked]


async def test_what_was_loaded_is_there_for_the_next_job_of_the_same_name(
    sandbox: JavaScriptSandbox,
) -> None:
    assert await values(sandbox, "count", "count", "ask", "module", "count") == [1, 2, [3, 3], "other", 5]
    assert await values(sandbox, "count", "count", keep="b") == [1, 2]
    assert await values(sandbox, "count") == [6]


async def test_without_a_name_nothing_is_kept(sandbox: JavaScriptSandbox) -> None:
    assert [(await ran(sandbox, "count", None)).value for _ in range(2)] == [1, 1]


async def test_another_source_under_the_same_name_begins_anew(sandbox: JavaScriptSandbox) -> None:
    await values(sandbox, "count", "count")

    assert (await ran(sandbox, "count", source=f"{SOURCE}\n// other")).value == 1
    other = {"other.js": "export default 'changed'"}
    assert (await ran(sandbox, "module", modules=other)).value == "changed"


async def test_an_exception_is_an_end_like_any_other(sandbox: JavaScriptSandbox) -> None:
    await values(sandbox, "count")
    failed = await ran(sandbox, "throw")

    assert (failed.status, "TypeError: nope" in (failed.error or "")) == ("failed", True)
    assert await values(sandbox, "count") == [3]


@pytest.mark.parametrize(
    ("what", "status"),
    [("hang", "failed"), ("spin", "timeout"), ("deep", "failed"), ("eat", "failed")],
)
async def test_a_context_that_did_not_come_to_its_end_is_not_used_again_and_harms_no_other(
    sandbox: JavaScriptSandbox, what: str, status: str
) -> None:
    await values(sandbox, "count", "count")
    await values(sandbox, "count", keep="b")

    ended = await ran(sandbox, what, limits=Limits(wall=20, cpu=1, memory=16 * 1024 * 1024))

    assert ended.status in (status, "memory"), ended
    assert (await ran(sandbox, "count")).status == "done"
    assert await values(sandbox, "count", keep="b") == [2]


async def test_what_an_earlier_job_left_does_not_reach_into_the_next(sandbox: JavaScriptSandbox) -> None:
    assert await values(sandbox, "leave") == [1]
    await asyncio.sleep(0.1)  # the timer would be due
    assert await values(sandbox, "ask", "count", "leave", "count") == [[2, 2], 3, 4, 5]


async def test_what_a_job_is_given_is_no_variable_that_stays(sandbox: JavaScriptSandbox) -> None:
    assert await values(sandbox, "input", "exit") == ["undefined", "undefined"]


async def test_only_functions_with_a_clock_that_goes_are_kept(sandbox: JavaScriptSandbox) -> None:
    for wrong in ({"style": "snippet"}, {"now": 1}, {"seed": "s"}):
        assert "Only what was loaded of a function is kept" in (
            (await ran(sandbox, "count", **wrong)).error or ""
        )


async def test_of_many_contexts_the_one_goes_that_rested_longest(sandbox: JavaScriptSandbox) -> None:
    for number in range(MOST_KEPT + 1):
        await values(sandbox, "count", keep=f"{number}")

    assert await values(sandbox, "count", keep="1") == [2]
    assert await values(sandbox, "count", keep="0") == [1]


async def test_one_that_takes_all_memory_leaves_the_others_theirs(sandbox: JavaScriptSandbox) -> None:
    eats = (
        "export default () => { const eat = []; try { for (;;) eat.push(new Uint8Array(1e6)) }"
        " catch { globalThis.kept = eat; return eat.length } }"
    )
    for number in range(6):
        eaten = await ran(sandbox, "eat", keep=f"eater {number}", source=eats)
        assert eaten.status == "done", eaten
        assert 1 <= eaten.value <= 17
    assert await values(sandbox, "count", "count", keep="other") == [1, 2]
    [pid] = sandbox.pids
    assert _resident(pid) < 300 * 1024 * 1024


async def test_a_child_that_is_killed_takes_its_contexts_along(sandbox: JavaScriptSandbox) -> None:
    await values(sandbox, "count", "count")
    [pid] = sandbox.pids
    os.kill(pid, signal.SIGKILL)

    assert await values(sandbox, "count") == [1]


async def test_a_job_goes_to_the_child_that_keeps_its_context() -> None:
    sandbox = JavaScriptSandbox(most=2)
    try:
        await asyncio.gather(values(sandbox, "ask", keep="a"), values(sandbox, "ask", keep="b"))
        assert len(sandbox.pids) == 2
        for number in range(2, 6):
            assert await values(sandbox, "count", keep="a") == [number]
            assert await values(sandbox, "count", keep="b") == [number]
    finally:
        await sandbox.aclose()


async def test_many_jobs_in_kept_contexts_leave_memory_and_descriptors_flat() -> None:
    sandbox = JavaScriptSandbox(most=1, jobs_each=10_000)
    jobs = [job("ask", f"{number}") for number in range(MOST_KEPT + 4)]
    try:
        await stays_flat(sandbox, jobs, warm=2, times=sample(100, 1_500))
    finally:
        await sandbox.aclose()


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096
