"""Processes to be killed while a child runs for a parent that does not wait.

nursery --> run: a parent begins a detached run, and goes on wherever an earlier process left it
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from everthink import App, Think, ToolContext, tool
from everthink.children import AgentToolResult, AgentToolRun, Detached
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from tests.crash.nursery import fork_for_each_line

__all__ = ["Boss", "go_on", "office"]


def answer(request: Request) -> Play:
    """Do the work, then say what was found."""
    return says("found") if isinstance(request.messages[-1], ToolMessage) else calls("work")


class Helper(Think):
    model: Any = ScriptedModel(answer, repeat=True, records=False)

    @tool(on_interrupt="rerun")
    async def work(self, ctx: ToolContext) -> str:
        """Work, and say how far it is."""
        await self.report_progress(fraction=0.5, milestone="half")
        return "worked"


class Boss(Think):
    model: Any = ScriptedModel(lambda request: says("Good."), repeat=True, records=False)
    sub_agents = (Helper,)

    def done(self, run: AgentToolRun, result: AgentToolResult) -> None:
        """Write down how it ended."""
        with Path(os.environ["TOLD"]).open("a") as told:
            told.write(f"{run.run_id} {result.status} {result.summary}\n")


def office(store: str) -> App:
    """The app."""
    return App(Boss, store=store, grace=0.0, idle_after=None)


async def go_on(app: App, room: str) -> None:
    """Ask for the run, as code does that is run again after a crash, and see it through."""
    async with app.agent(Boss, room) as boss:
        await boss.run_agent_tool(
            Helper,
            input="Go",
            run_id="r",
            detached=Detached(on_finish="done", notify=True, on_milestones=["half"]),
        )
        home: Any = boss._home
        while home._tasks:
            await asyncio.wait(home._tasks)
        assert await boss.wait_until_stable()


async def run(store: str, room: str) -> None:
    """One process."""
    async with office(store) as app:
        await go_on(app, room)


if __name__ == "__main__":
    fork_for_each_line(run)
