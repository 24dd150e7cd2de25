"""A process to be killed: runs fibers in steps and says on stdout what was done.

    python fiber_child.py STORE SCENARIO EFFECTS

Each step adds a line to `EFFECTS`, keeps a checkpoint, says so, and waits for a line on stdin; when stdin is
closed it does not wait. Whoever reads decides where the process dies.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everthink import App, Think
from everthink.fibers import FiberCompleted, FiberContext, FiberRecovery, FiberRecoveryContext
from everthink.observe.events import Event
from everthink.testing.clock import ManualClock

STEPS = 4


def say(kind: str, **facts: Any) -> None:
    """One line on stdout. Whoever reads it may rely on it."""
    print(json.dumps({"kind": kind, **facts}), flush=True)


class Stage:
    """The agent and what happens to it."""

    def __init__(self, store: str, effects: Path, stdin: asyncio.StreamReader) -> None:
        self.store, self.effects, self.stdin = store, effects, stdin
        self._line = asyncio.Lock()

    async def paced(self) -> None:
        async with self._line:
            await self.stdin.readline()

    def effect(self, line: str, *, looks: bool) -> None:
        """What a step does to the world. One that looks first may be repeated."""
        done = self.effects.read_text().splitlines() if self.effects.exists() else []
        if not (looks and line in done):
            with self.effects.open("a") as file:
                file.write(f"{line}\n")

    # --- work in steps

    def worker(self, *, looks: bool) -> type[Think]:
        """An agent that does its work in steps, and goes on with it where it was."""
        stage = self

        class Worker(Think):
            async def work(self, ctx: FiberContext) -> None:
                for number in range((ctx.snapshot or {"done": 0})["done"], STEPS):
                    stage.effect(f"{ctx.name} {number}", looks=looks)
                    await ctx.stash({"done": number + 1})
                    say("step", name=ctx.name, number=number)
                    if not looks:
                        await stage.paced()

            def on_fiber_recovered(self, ctx: FiberRecoveryContext) -> None:
                say("recovered", name=ctx.name, snapshot=ctx.snapshot, status=ctx.status, agent=self.id)
                self.resume_fiber(ctx.id, self.work)

        return Worker

    def app(self, cls: type[Think]) -> App:
        """An app that says which fibers are over, once that is stored."""
        app = App(cls, store=self.store)
        app.events.subscribe(
            lambda event: say("finished", name=event.payload["fiberName"]), type="fiber:run:completed"
        )
        return app

    async def begin(self) -> None:
        """Two agents, one with two fibers."""
        async with self.app(cls := self.worker(looks=False)) as app:
            ann, ben = [await app.agent(cls, name).__aenter__() for name in ("ann", "ben")]
            ann.run_fiber("plain", ann.work)
            await ann.start_fiber("managed", ann.work, fiber_id="job", idempotency_key="key")
            ben.run_fiber("other", ben.work)
            await asyncio.Event().wait()

    async def begin_below(self) -> None:
        """A child with two fibers, and one of its own child."""
        async with self.app(cls := self.worker(looks=False)) as app:
            child = await app.agent(cls, "ann").sub_agent(cls, "kid")
            below = await child.sub_agent(cls, "deep")
            kid, deep = [await one.__aenter__() for one in (child, below)]
            kid.run_fiber("plain", kid.work)
            await kid.start_fiber("managed", kid.work, fiber_id="job", idempotency_key="key")
            deep.run_fiber("other", deep.work)
            await asyncio.Event().wait()

    async def wake(self) -> None:
        """A process that nobody asks for anything."""
        async with self.app(self.worker(looks=False)):
            await asyncio.Event().wait()

    async def ask(self) -> None:
        """Somebody asks for the work a second time and waits."""
        async with self.app(cls := self.worker(looks=False)) as app:
            ann = await app.agent(cls, "ann").__aenter__()
            found = await ann.start_fiber("again", ann.work, idempotency_key="key", wait_for_completion=True)
            say("asked", id=found.fiber_id, status=found.status, accepted=found.accepted)
            await asyncio.Event().wait()

    async def whole(self) -> None:
        """Accept the work once, whatever happened before, and see it through."""
        async with App(cls := self.worker(looks=True), store=self.store) as app:
            ann = await app.agent(cls, "ann").__aenter__()
            found = await ann.start_fiber("managed", ann.work, fiber_id="job", wait_for_completion=True)
            say("over", status=found.status, snapshot=found.snapshot)

    # --- hooks that fail, and many fibers

    def patient(self, answer: Callable[[FiberRecoveryContext], Any], **settings: float) -> type[Think]:
        class Worker(Think):
            fiber_recovery = FiberRecovery(**settings)

            async def hang(self, ctx: FiberContext) -> None:
                say("began", name=ctx.name)
                await asyncio.Event().wait()

            async def on_fiber_recovered(self, ctx: FiberRecoveryContext) -> Any:
                say("recovered", name=ctx.name)
                return await answer(ctx)

        return Worker

    async def poison(self) -> None:
        """A fiber whose hook always fails. Each line on stdin lets the time pass until the next try."""
        begun = self.effects.exists()
        clock = ManualClock(int(self.effects.read_text())) if begun else ManualClock()

        async def fail(ctx: FiberRecoveryContext) -> None:
            raise ValueError("always")

        async with App(cls := self.patient(fail, max_age=100.0), store=self.store, clock=clock) as app:
            failed = asyncio.Event()

            def tell(event: Event) -> None:
                say("told", type=event.type, reason=event.payload["reason"])
                failed.set()

            app.events.subscribe(tell, type=["fiber:recovery:failed", "fiber:recovery:skipped"])
            agent = await app.agent(cls, "ann").__aenter__()
            if not begun:
                self.effects.write_text(str(clock.now_ms()))
                agent.run_fiber("poison", agent.hang)
                await asyncio.Event().wait()
            while True:
                # The agent may have left memory meanwhile, and have been woken for the next try.
                rescue = (await app.agent(cls, "ann").__aenter__())._home.fibers.rescue
                if rescue._scan is not None:
                    await asyncio.wait([rescue._scan])
                wait = 0 if rescue.retry_at is None else rescue.retry_at - clock.now_ms()
                say("waits", seconds=wait / 1000)
                await self.paced()
                self.effects.write_text(str(clock.now_ms() + wait))
                failed.clear()
                await clock.advance(wait / 1000)
                await failed.wait()

    async def many(self) -> None:
        """Many fibers whose hook takes six seconds, where a scan takes ten. On a line it is quick."""
        clock, takes = ManualClock(), [6.0]

        async def slow(ctx: FiberRecoveryContext) -> Any:
            await clock.advance(takes[0])
            return FiberCompleted()

        async with App(cls := self.patient(slow), store=self.store, clock=clock) as app:
            agent = await app.agent(cls, "ann").__aenter__()
            if not self.effects.exists():
                self.effects.write_text("begun")
                for number in range(7):
                    await agent.start_fiber(f"work {number}", agent.hang)
                await asyncio.Event().wait()
            say("started", left=len(await agent.list_fibers(status="running")))
            await self.paced()
            takes[0] = 0.0
            await clock.advance(30)
            await agent._home.fibers.recover()
            say("later", left=len(await agent.list_fibers(status="running")))
            await asyncio.Event().wait()


async def main(store: str, scenario: str, effects: str) -> None:
    stdin = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    await getattr(Stage(store, Path(effects), stdin), scenario)()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
