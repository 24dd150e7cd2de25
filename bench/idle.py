"""Many idle agents, in a process of its own: `python -m bench.idle fresh|talked|child|run COUNT FILE`.

Prints the bytes of resident memory and of disk per agent. `talked`: each has had one short turn. `child`:
they are children of one parent; `run`: each has had one short turn for it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from everthink import App

from .measure import live
from .ours import agent_class
from .work import QUESTION, SHORT


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(how: str, count: int, path: str) -> list[float]:
    """Memory and disk per agent."""
    cls = agent_class(SHORT)

    def one(number: int) -> Awaitable[Any]:
        name = f"agent {number}"
        if how == "child":
            return parent.sub_agent(cls, name)
        if how == "run":
            return parent.run_agent_tool(cls, input=QUESTION, run_id=name)
        agent = app.agent(cls, name)
        return agent.save_messages(QUESTION) if how == "talked" else live(agent)

    async def reach(start: int, end: int) -> tuple[int, int]:
        for first in range(start, end, 100):
            await asyncio.gather(*map(one, range(first, first + 100)))
        gc.collect()
        [(pages,)] = await store.fetch("PRAGMA page_count")
        [(page,)] = await store.fetch("PRAGMA page_size")
        return resident(), pages * page

    async with App(cls, store=f"sqlite:///{path}") as app:
        store = (await app.open()).store
        parent = await live(app.agent(cls, "parent"))
        before = await reach(0, 200)  # caches, threads and statements are there after these
        after = await reach(200, 200 + count)
    return [(late - early) / count for early, late in zip(before, after, strict=True)]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3]))))
