"""Many idle agents in a process of its own: `python -m bench.idle rss|traced|talked COUNT FILE` prints JSON.

rss and talked read the resident memory of the process; traced asks tracemalloc, which sees what
Python allocated and nothing else. `talked` lets each agent have one short turn first.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tracemalloc
from pathlib import Path

from everthink import App

from .ours import agent_class
from .work import QUESTION, SHORT


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def traced() -> int:
    """Bytes Python has allocated since tracing began."""
    return tracemalloc.get_traced_memory()[0]


async def measure(how: str, count: int, path: Path) -> dict[str, float]:
    cls = agent_class(SHORT)
    used = traced if how == "traced" else resident

    async def reach(name: str) -> None:
        agent = app.agent(cls, name)
        await (agent.save_messages(QUESTION) if how == "talked" else agent.instance())

    async with App(cls, store=f"sqlite:///{path}") as app:
        await asyncio.gather(*(reach(f"first {n}") for n in range(100)))  # caches, threads, statements
        gc.collect()
        if how == "traced":
            tracemalloc.start()
        before = used()
        for start in range(0, count, 100):
            await asyncio.gather(*(reach(f"agent {start + n}") for n in range(100)))
        gc.collect()
        after = used()
    found = {how: (after - before) / count}
    if how == "rss":
        async with App(cls, store=f"sqlite:///{path.with_suffix('.empty')}") as app:
            await app.open()
        empty = path.with_suffix(".empty").stat().st_size
        found["disk"] = (path.stat().st_size - empty) / (count + 100)
    return found


if __name__ == "__main__":
    how, count, file = sys.argv[1:]
    print(json.dumps(asyncio.run(measure(how, int(count), Path(file)))))
