"""A process that erases an agent with work in hand, and is killed while it deletes it.

python erase_child.py STORE before|after
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from everthink import App
from tests.security.lives import Keeper, live_through


def die(_: Any = None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, when: str) -> None:
    async with App(Keeper, store=url, grace=0.0, idle_after=None) as app:
        await live_through(app)
        await app.agent(Keeper, "bob").add_messages("hello")
        store: Any = (await app.open()).store
        apply = store.apply

        def apply_and_die(commit: Any, *, agent: str = "") -> Any:
            if not any("DELETE FROM agents" in statement.sql for statement in commit):
                return apply(commit, agent=agent)
            if when == "before":
                die()
            applied = apply(commit, agent=agent)
            applied.add_done_callback(die)
            return applied

        store.apply = apply_and_die
        await app.erase(Keeper, "ada")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
