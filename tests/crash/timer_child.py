"""A process to be killed while it has timers and jobs. Says on stdout, line by line, what it did.

    python timer_child.py STORE SCENARIO EFFECTS

`EFFECTS` is a file to which each callback adds a line. The first process lives an hour in the past, so what
it plans for half an hour later is overdue for the next one.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from everthink import App, Think
from everthink.clock import SystemClock
from everthink.testing.clock import ManualClock

HOUR = 3600


def say(kind: str, **facts: Any) -> None:
    """One line on stdout. Whoever reads it may rely on it."""
    print(json.dumps({"kind": kind, **facts}), flush=True)


def keeper(effects: Path) -> type[Any]:
    class Keeper(Think):
        def effect(self, payload: Any, item: Any) -> None:
            with effects.open("a") as file:
                file.write(f"{payload} {item.starts}\n")
            say("ran", payload=payload, starts=item.starts)

        async def hang(self, payload: Any, item: Any) -> None:
            self.effect(payload, item)
            await asyncio.get_running_loop().create_future()

    return Keeper


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def plan(app: App, cls: type[Any], clock: ManualClock) -> None:
    """Timers for later, one of them cancelled."""
    agent = app.agent(cls, "room")
    once = await agent.schedule(60, "effect", "once")
    cancelled = await agent.schedule(60, "effect", "cancelled")
    await agent.schedule_every(HOUR / 2, "effect", "interval")
    half_past = time.gmtime(clock.now_ms() / 1000 + HOUR / 2)
    await agent.schedule(f"{half_past.tm_min} {half_past.tm_hour} * * *", "effect", "cron")
    await agent.cancel_schedule(cancelled.id)
    say("planned", id=once.id)
    await forever()


async def cut(app: App, cls: type[Any], clock: ManualClock) -> None:
    """Timers whose callbacks never return, and one behind them."""
    agent = app.agent(cls, "room")
    await app.agent(cls, "other").schedule_every(1, "hang", "interval")
    await agent.schedule(1, "hang", "once")
    await agent.schedule(2, "effect", "behind")
    say("planned")
    await clock.advance(30)
    await forever()


async def over(app: App, cls: type[Any], clock: ManualClock) -> None:
    """A timer that has run and is written down."""
    await app.agent(cls, "room").schedule(1, "effect", "once")
    await clock.advance(5)
    await (await app.open()).waker.idle()
    say("over", left=len(await app.agent(cls, "room").list_schedules()))
    await forever()


async def jobs(app: App, cls: type[Any], clock: ManualClock) -> None:
    """A job that never returns, and two behind it, one of them taken back."""
    agent = app.agent(cls, "room")
    await agent.queue("hang", "begun")
    await agent.queue("effect", "waiting")
    await agent.dequeue(await agent.queue("effect", "taken back"))
    say("queued")
    await forever()


async def main(store: str, scenario: str, effects: str) -> None:
    cls = keeper(Path(effects))
    if scenario == "wake":  # the next process: nobody asks for anything
        async with App(cls, store=store, clock=SystemClock()):
            say("awake")
            await forever()
    clock = ManualClock(start_ms=time.time_ns() // 1_000_000 - HOUR * 1000)
    async with App(cls, store=store, clock=clock, grace=0.0) as app:
        await {"plan": plan, "cut": cut, "over": over, "jobs": jobs}[scenario](app, cls, clock)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
