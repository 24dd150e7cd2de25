"""What runs while an app closes: it reaches the agents in memory, and loses nothing a kill would keep."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Agent, App, Think, tool
from everthink.errors import StoreClosed, TurnInterrupted
from everthink.fibers import FiberContext
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio


class Bell(Agent):
    async def ring(self, who: str) -> str:
        await self.set_state({"rung": who})
        return f"rung by {who}"

    async def rung(self) -> Any:
        return self.state


class Porter(Think):
    """Rings the bell once it is let, however it was asked to."""

    model = ScriptedModel(calls("ring_it", id="c1"), says("Rung."))
    app: App
    heard: list[Any]
    begun: asyncio.Event
    may_go_on: asyncio.Event
    bell = "front"

    async def walk(self, ctx: FiberContext) -> None:
        self.begun.set()
        await self.may_go_on.wait()
        self.heard.append(await self.app.agent(Bell, self.bell).ring("fiber"))

    @tool(on_interrupt="rerun")
    async def ring_it(self) -> str:
        """Ring."""
        self.begun.set()
        await self.may_go_on.wait()
        return await self.app.agent(Bell, self.bell).ring("tool")

    async def on_fiber_recovered(self, ctx: Any) -> None:
        self.heard.append("recovered")
        self.resume_fiber(ctx.id, self.walk)

    async def start_walk(self) -> None:
        await self.start_fiber("walk", self.walk, fiber_id="f1")


def porter(bell: str) -> type[Porter]:
    """A class of its own, with what a test tells it and hears from it."""
    model = ScriptedModel(calls("ring_it", id="c1"), says("Rung."))
    parts: dict[str, Any] = {
        "heard": [],
        "begun": asyncio.Event(),
        "may_go_on": asyncio.Event(),
        "bell": bell,
        "model": model,
    }
    return type("Porter", (Porter,), parts)


async def closed_while_it_waits(app: App, cls: type[Porter]) -> None:
    """Begin to close the app, and let what runs go on only then."""
    await cls.begun.wait()
    closing = asyncio.create_task(app.close())
    for _ in range(50):  # so that it has got as far as waiting for what runs
        await asyncio.sleep(0)
    cls.may_go_on.set()
    await closing


async def test_a_fiber_reaches_an_agent_in_memory_while_the_app_closes(open_app: OpenApp) -> None:
    # Given a fiber that will ring a bell which is in memory
    cls = porter("front")
    cls.app = app = await open_app(cls, Bell, grace=5.0)
    await app.agent(Bell, "front").rung()
    await app.agent(cls, "p").start_walk()

    # When it does so in the grace period
    await closed_while_it_waits(app, cls)

    # Then the bell was rung, and the fiber is over
    assert cls.heard == ["rung by fiber"]
    again = await open_app(cls, Bell, grace=5.0)
    assert await again.agent(Bell, "front").rung() == {"rung": "fiber"}
    record = await again.agent(cls, "p").inspect_fiber("f1")
    assert record is not None
    assert record.status == "completed"


async def test_a_fiber_that_meets_the_closing_app_goes_on_at_the_next_start(open_app: OpenApp) -> None:
    # Given a fiber that will ring a bell which is not in memory
    cls = porter("back")
    cls.app = app = await open_app(cls, Bell, grace=5.0)
    await app.agent(cls, "p").start_walk()

    # When it is refused in the grace period, and the app comes back
    await closed_while_it_waits(app, cls)
    assert cls.heard == []
    cls.app = again = await open_app(cls, Bell, grace=5.0)
    handle = again.agent(cls, "p")
    record = await handle.start_fiber("walk", handle.walk, fiber_id="f1", wait_for_completion=True)

    # Then it was interrupted as by a kill, and is finished
    assert cls.heard == ["recovered", "rung by fiber"]
    assert record.status == "completed"


async def test_a_turn_whose_tool_meets_the_closing_app_is_cut_and_goes_on(open_app: OpenApp) -> None:
    # Given a turn whose tool will ring a bell which is not in memory
    cls = porter("back")
    cls.app = app = await open_app(cls, Bell, grace=5.0)
    asking = asyncio.create_task(app.agent(cls, "p").save_messages("Ring it."))

    # When the tool is refused in the grace period
    await closed_while_it_waits(app, cls)
    with pytest.raises(TurnInterrupted):
        await asking

    # Then the turn goes on at the next start, with what the tool says there
    cls.app = again = await open_app(cls, Bell, grace=5.0)
    await again.agent(cls, "p").wait_until_stable()
    (question, answer) = await again.agent(cls, "p").get_messages()
    assert question.text == "Ring it."
    assert [part.get("output") for part in answer.parts if "output" in part] == ["rung by tool"]
    assert answer.text == "Rung."


async def test_a_tool_reaches_an_agent_in_memory_while_the_app_closes(open_app: OpenApp) -> None:
    cls = porter("front")
    cls.app = app = await open_app(cls, Bell, grace=5.0)
    await app.agent(Bell, "front").rung()
    asking = asyncio.create_task(app.agent(cls, "p").save_messages("Ring it."))
    await closed_while_it_waits(app, cls)
    assert (await asking).text == "Rung."


class Counter(Agent):
    async def count(self, ctx: FiberContext) -> None:
        for number in range(ctx.snapshot or 0, 3):
            await ctx.stash(number + 1)


async def test_a_fiber_that_a_handle_starts_is_run_although_the_app_closes_at_once(open_app: OpenApp) -> None:
    app = await open_app(Counter, grace=5.0)
    handle = app.agent(Counter)
    await handle.start_fiber("count", handle.count, fiber_id="f1")
    await app.close()

    record = await (await open_app(Counter)).agent(Counter).inspect_fiber("f1")
    assert record is not None
    assert (record.status, record.snapshot) == ("completed", 3)


async def test_a_closed_app_is_reached_by_nobody(open_app: OpenApp) -> None:
    app = await open_app(Bell)
    handle = app.agent(Bell)
    await handle.rung()
    await app.close()
    with pytest.raises(StoreClosed, match="The app is closed"):
        await handle.rung()
