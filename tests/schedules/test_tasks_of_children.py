"""Tasks that children declare: each has its own, and they are due whether its parent is there or not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from everthink import App, ScheduledTask, Think
from everthink.schedules import queries
from everthink.testing import ManualClock, ScriptedModel, says
from everthink.timers import TaskContext
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio

MORNING = round(datetime(2026, 1, 5, 8, 0, tzinfo=UTC).timestamp() * 1000)  # a Monday


class Family:
    """A parent and its children, who all declare tasks under the same ids."""

    def __init__(self, open_app: OpenApp) -> None:
        self._open_app, self.clock = open_app, ManualClock(MORNING)
        self.handled: list[tuple[Any, TaskContext]] = []
        self.without: set[str] = set()
        family = self

        def declared(self: Any) -> dict[str, ScheduledTask]:
            if self.name in family.without:
                return {}
            return {
                "news": ScheduledTask(schedule="every 1 hour", prompt=f"What is new, {self.name}?"),
                "tick": ScheduledTask(schedule="every 2 hours", handler="tick"),
            }

        def tick(self: Any, context: TaskContext) -> None:
            family.handled.append((self.parent_path, context))

        class Member(Think):
            model = ScriptedModel(lambda request: says("Nothing."), repeat=True)

        members = {"get_scheduled_tasks": declared, "tick": tick, "__module__": __name__}
        self.child = type("Child", (Member,), members)
        self.parent: Any = type("Parent", (Member,), {**members, "sub_agents": (self.child,)})
        self.app: App

    async def start(self, *names: str) -> None:
        """Begin a process, and reach the children."""
        self.app = await self._open_app(self.parent, clock=self.clock)
        await self.app.agent(self.parent, "p").get_messages()
        for name in names:
            await (await self.kid(name)).get_messages()

    async def restart(self, *names: str) -> None:
        await self.app.close()
        await self.start(*names)

    async def kid(self, name: str) -> Any:
        return await self.app.agent(self.parent, "p").sub_agent(self.child, name)

    async def passes(self, hours: int) -> None:
        for _ in range(hours):
            await self.clock.advance(3600)
            await (await self.app.open()).waker.idle()

    async def said(self, name: str) -> list[str]:
        kid = await self.kid(name)
        await kid.wait_until_stable()
        return [message.text for message in await kid.get_messages()]

    async def rows(self) -> dict[str, list[str]]:
        """The ids of tasks in the ledger of each."""
        found: dict[str, list[str]] = {}
        for one in (self.app.agent(self.parent, "p"), await self.kid("a"), await self.kid("b")):
            async with one as agent:
                found[agent.name] = sorted(row[0] for row in await agent._home.store.fetch(queries.ALL))
        return found


@pytest.mark.case(636, 637)
@pytest.mark.agent_case(600)
async def test_tasks_of_a_child_are_done_in_the_child_also_after_a_restart(open_app: OpenApp) -> None:
    # Given a child that declares a prompt and a handler, and a process that nobody asks for either
    family = Family(open_app)
    await family.start("a")
    family.without.add("p")
    await family.restart()

    # When both are due
    await family.passes(2)

    # Then the child has been asked, its handler has run, and its parent has heard of neither
    assert await family.said("a") == ["What is new, a?", "Nothing."] * 2
    ((path, context),) = family.handled
    assert path == [("Parent", "p")]
    assert context.task_id == "tick"
    assert context.idempotency_key.startswith("think-schedule:Parent/p/sub/Child/a:tick:")
    assert await family.app.agent(family.parent, "p").get_messages() == []


@pytest.mark.case(638)
@pytest.mark.agent_case(600)
async def test_members_of_a_family_keep_tasks_of_one_id_apart(open_app: OpenApp) -> None:
    # Given a parent and two children with the same ids
    family = Family(open_app)
    await family.start("a", "b")
    both = ["news", "tick"]
    assert await family.rows() == {"p": both, "a": both, "b": both}

    # When one of them declares none any more
    family.without.add("a")
    await family.restart("a", "b")

    # Then the others have theirs, and each is due once
    assert await family.rows() == {"p": both, "a": [], "b": both}
    await family.passes(2)
    assert await family.said("a") == []
    assert await family.said("b") == ["What is new, b?", "Nothing."] * 2
    assert sorted(context.idempotency_key.split(":")[1] for _, context in family.handled) == [
        "Parent/p",
        "Parent/p/sub/Child/b",
    ]
