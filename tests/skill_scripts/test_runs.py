"""Runs of one runner: they share nothing, and each keeps to its limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import tool
from everthink.errors import ToolError
from everthink.sandbox.port import Limits
from everthink.skill_scripts.runner import Runner
from tests.skill_scripts.scripts import asset, opened, ran, refusal, request

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WRITES = {
    "a.js": "export default async (input, ctx) => { await ctx.tools.meet({}); console.log(input);"
    " await ctx.output.writeFile(`${input}.txt`, input); return input }",
    "a.py": "async def run(input):\n    await tools.meet()\n"
    "    open(f'/output/{input}.txt', 'w').write(input)\n"
    "    return input",
    "a.sh": "tool meet; name=$(tr -d '\"' < /input.json); echo -n $name > /output/$name.txt; echo $name",
}


@pytest.mark.parametrize("path", WRITES)
async def test_runs_at_the_same_time_do_not_meet(path: str) -> None:
    both = asyncio.Barrier(2)

    @tool
    async def meet() -> None:
        """Wait for the other one."""
        await both.wait()

    async with opened(tools=[meet]) as made:
        found = await asyncio.gather(*(made.run(request(path, WRITES[path], input=name)) for name in "ab"))
    for name, one in zip("ab", found, strict=True):
        assert [file["content"] for file in one["outputFiles"]] == [name]
        assert "".join(one.get("logs", [])) == (name if path == "a.js" else "")


STANDS = {
    "a.js": "export default async (input, ctx) => { await ctx.tools.begin({}); for (;;); }",
    "a.py": "import time\nasync def run(input):\n    await tools.begin()\n    time.sleep(100)",
    "a.sh": "tool begin; while true; do sleep 1; done",
}


@pytest.mark.parametrize("path", STANDS)
async def test_a_run_that_is_cancelled_is_killed_and_the_next_one_runs(path: str) -> None:
    begun = asyncio.Event()

    @tool
    async def begin() -> None:
        """Tell that it runs."""
        begun.set()

    async with opened(tools=[begin], timeout=60) as made:
        running = asyncio.ensure_future(made.run(request(path, STANDS[path])))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await self_test(made, path)


async def self_test(made: Runner, path: str) -> Any:
    harmless = {"a.js": "export default () => 1", "a.py": "def run(i):\n    return 1", "a.sh": "echo 1"}
    return await made.run(request(path, harmless[path]))


@pytest.mark.parametrize("path", ["a.js", "a.py"])
async def test_what_a_function_returns_has_a_bound(path: str) -> None:
    source = {"a.js": "export default (n) => 'x'.repeat(n)", "a.py": "def run(n):\n    return 'x' * n"}[path]
    assert len(await ran(path, source, input=900_000)) == 900_000
    assert "bytes, and may have 1,000,000" in await refusal(path, source, input=1_000_001)


async def test_a_skill_with_large_files_runs_unless_limits_were_set() -> None:
    large = asset("assets/large.bin", b"x" * 3_000_000)
    source = "import os\ndef run(input):\n    return os.path.getsize('/skill/assets/large.bin')"
    assert await ran("a.py", source, large) == 3_000_000
    words = await refusal("a.py", source, large, limits=Limits())
    assert "1,000,000 may go in (file_bytes)" in words


async def test_bash_that_would_not_be_expanded_here_is_refused_before_it_runs() -> None:
    pytest.importorskip("bashkit")
    words = await refusal("a.sh", "echo {1..20000}")
    assert "are not expanded here" in words
    assert "Nothing was run" in words


async def test_memory_and_calls_have_their_limits() -> None:
    grows = "def run(input):\n    return len(bytearray(400 << 20))"
    assert "memory" in await refusal("a.py", grows)

    @tool
    async def ask() -> None:
        """Answer."""

    async with opened(tools=[ask], limits=Limits(calls=5)) as made:
        calls = "export default async (i, ctx) => { for (;;) { try { await ctx.tools.ask() } catch {} } }"
        with pytest.raises(ToolError, match="more than 5 times"):
            await made.run(request("a.js", calls))
