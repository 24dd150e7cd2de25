"""An agent that does not chat, for a server that is killed."""

from __future__ import annotations

from typing import Any

from everthink import Agent, exposed

__all__ = ["Keeper"]


class Keeper(Agent):
    """Counts, also after its process died."""

    initial_state = {"n": 0, "found": []}  # noqa: RUF012

    @exposed
    async def add(self, by: int) -> int:
        """Count."""
        return await self._add(by)

    @exposed
    async def begin(self) -> None:
        """Set a timer, and begin long work that no process lives to end."""
        await self.schedule(1, "tick", 10)

        async def work(ctx: Any) -> None:
            await ctx.stash({"by": 100})
            await self._add(1)
            await ctx.signal.wait()

        await self.start_fiber("long", work, fiber_id="long")

    @exposed
    async def timers(self) -> int:
        """How many timers there are."""
        return len(await self.list_schedules())

    async def _add(self, by: int, **more: Any) -> int:
        await self.set_state({**self.state, "n": self.state["n"] + by, **more})
        return self.state["n"]

    async def tick(self, by: int) -> None:
        """The timer is due."""
        await self._add(by)

    async def on_fiber_recovered(self, ctx: Any) -> None:
        """An earlier process left this."""
        await self._add(ctx.snapshot["by"], found=[ctx.id])
