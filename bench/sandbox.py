"""What a script in a locked child costs: a child, a small script, calls of the host, a thousand files."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import median
from typing import Any

from everthink.sandbox.bash import BashSandbox
from everthink.sandbox.engine import ChildSandbox
from everthink.sandbox.javascript import JavaScriptSandbox
from everthink.sandbox.port import Job, Language, NoHost

from .measure import Row, calm

FILES = 1_000
EDIT = "sed -i s/a/b/ /src/d1/f1.py; rm /src/d2/f2.py; mkdir -p /out; grep -rl abc /src > /out/hits"


class Answering(NoHost):
    """Answers every call at once."""

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return "ok\n"


async def scripts(*, repetitions: int) -> list[Row]:
    """Wall time of scripts, medians."""
    return [*await _bash(repetitions), *await _javascript(repetitions)]


async def _bash(repetitions: int) -> list[Row]:
    sandbox, host, files = BashSandbox(jobs_each=1_000_000), Answering(), tree()

    async def run(source: str, **options: Any) -> None:
        outcome = await sandbox.run(Job(language="bash", source=source, **options), host)
        assert outcome.status == "done", outcome.error

    start = await _median(lambda: started(BashSandbox()), repetitions)
    await run("true")
    small = await _median(lambda: run("echo hi"), repetitions * 10)
    asking = await _median(lambda: run("for i in $(seq 100); do ask; done", commands=("ask",)), repetitions)
    many = await _median(lambda: run(EDIT, files=files), repetitions)
    await sandbox.aclose()
    return [
        Row("start of a child for bash, its first script and its end", "ms", {"everthink": start}),
        Row("a bash script in a warm child", "ms", {"everthink": small}),
        Row("a bash script with 100 calls of the host", "ms", {"everthink": asking}),
        Row(
            f"a bash script with {FILES:,} files in and the difference out", "ms", {"everthink": many}
        ).held_to("≤ 120 ms", many <= 120),
    ]


async def _javascript(repetitions: int) -> list[Row]:
    sandbox, host = JavaScriptSandbox(jobs_each=1_000_000), Answering()

    async def run(source: str, language: Language = "javascript", **options: Any) -> None:
        outcome = await sandbox.run(Job(language=language, source=source, **options), host)
        assert outcome.status == "done", outcome.error

    start = await _median(lambda: started(JavaScriptSandbox()), repetitions)
    await run("1")
    small = await _median(lambda: run("[1, 2].map((n) => n + 1)"), repetitions * 10)
    asks = "for (let n = 0; n < 100; n++) await tools.ask(n)"
    asking = await _median(lambda: run(asks, names={"tools.ask": ""}), repetitions)
    modules = {"b.ts": "export const b: number = 1"}
    source = "import { b } from './b'; enum A { X = 1 } export default b + A.X"
    typed = await _median(lambda: run(source, "typescript", modules=modules), repetitions * 10)
    await sandbox.aclose()
    return [
        Row("start of a child for JavaScript, its first script and its end", "ms", {"everthink": start}),
        Row("JavaScript in a warm child", "ms", {"everthink": small}).held_to("≤ 10 ms", small <= 10),
        Row("JavaScript with 100 calls of the host", "ms", {"everthink": asking}),
        Row("TypeScript of two files", "ms", {"everthink": typed}),
    ]


async def started(sandbox: ChildSandbox) -> None:
    """A sandbox from nothing to nothing."""
    assert await sandbox.check() is None
    await sandbox.aclose()


def tree() -> dict[str, bytes]:
    """A thousand files of 800 bytes in forty folders."""
    dice = random.Random(1)
    letters = string.ascii_letters + " \n"
    return {
        f"/src/d{number % 40}/f{number}.py": "".join(dice.choices(letters, k=800)).encode()
        for number in range(FILES)
    }


async def _median(work: Callable[[], Awaitable[None]], times: int) -> float:
    calm()
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        taken.append((time.perf_counter() - began) * 1_000)
    return median(taken)
