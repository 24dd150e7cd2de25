"""Processes to be killed while an agent waits for its children, or is told to stop or to delete them.

nursery --> run: a story in a room of its own, gone on with from wherever an earlier process left it

Two children work at once for one answer: one pays something, the other talks. The models read from the prompt
where they are, so a process that comes later says what the dead one would have said.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

from everthink import App, Think, agent_tool, tool
from everthink.children import AgentToolResult, AgentToolRun
from everthink.models.port import Request, ToolMessage, ToolResultPart
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from tests.crash.nursery import fork_for_each_line
from tests.support.agents import live

__all__ = ["ANSWER", "DIES_PAYING", "HEARD", "PAID", "TALK", "Desk", "Payer", "Talker", "family", "go_on"]

ANSWER, PAID, TALK = "Both are done.", "The bill is paid.", "One word after the other."
DIES_PAYING = "dies-paying"
"""A file of this name beside the effects: the process ends when it has paid."""


HEARD = "heard"
"""What the hooks of the parent heard is in a file of this name, beside the effects."""


def note(what: str, beside: str | None = None) -> None:
    """Do something to the world that can be counted, surely."""
    file_name = Path(os.environ["EFFECTS"])
    with open(file_name.with_name(beside) if beside else file_name, "a") as file:
        file.write(what + "\n")
        file.flush()
        os.fsync(file.fileno())


def is_answered(request: Request) -> bool:
    """True once there are results of tools."""
    return any(isinstance(message, ToolMessage) for message in request.messages)


def asked_for(request: Request) -> Play:
    """The tool that the payer was sent for."""
    return calls("bite") if "deadly" in str(request.messages) else calls("pay", amount=7)


class Payer(Think):
    """A child with a tool that must not run twice."""

    model: Any = ScriptedModel(
        lambda request: says(PAID) if is_answered(request) else asked_for(request), repeat=True, records=False
    )

    @tool(on_interrupt="rerun")
    async def bite(self) -> str:
        """End the process, each time."""
        os.kill(os.getpid(), signal.SIGKILL)
        return "not reached"

    @tool
    async def pay(self, amount: int) -> str:
        """Pay; and die of it where a test has said so."""
        note(f"paid {amount}")
        if Path(os.environ["EFFECTS"]).with_name(DIES_PAYING).exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return f"Paid {amount}."


class Talker(Think):
    """A child that takes some words to answer."""

    model: Any = ScriptedModel(says(*re.findall(r"\S+\s*", TALK)), repeat=True, records=False)


def delegated(request: Request) -> Play:
    """Ask both children at once, then answer. One that was not asked before a crash is asked then."""
    said = [message for message in request.messages if isinstance(message, ToolMessage)]
    asked = {part.name for message in said for part in message.content if isinstance(part, ToolResultPart)}
    if not asked:
        what = "the deadly one" if "deadly" in str(request.messages) else "the bill"
        return calls("pays", query=what).calls("talks", query="a little")
    return says("Both ", "are ", "done.") if "talks" in asked else calls("talks", query="a little")


class Desk(Think):
    """The parent."""

    model: Any = ScriptedModel(delegated, repeat=True, records=False)
    pays = agent_tool(Payer, description="Pays.")
    talks = agent_tool(Talker, description="Talks.")

    def on_agent_tool_start(self, run: AgentToolRun) -> None:
        note(f"{run.agent_type} began", HEARD)

    def on_agent_tool_finish(self, run: AgentToolRun, result: AgentToolResult) -> None:
        note(f"{run.agent_type} {result.status}", HEARD)


def family(store: str) -> App:
    """The app of the stories."""
    return App(Desk, store=store, grace=0.0, idle_after=None)


async def go_on(app: App, room: str, ask: str = "Go") -> None:
    """Do what a person would who asks once and waits."""
    desk: Any = await live(app.agent(Desk, room))
    await desk.wait_until_stable()
    if not await desk.get_messages():
        await desk.save_messages(ask)
    await desk.wait_until_stable()


async def run(store: str, room: str, ask: str = "Go", deletes: bool = False) -> None:
    async with family(store) as app:
        await go_on(app, room, ask)
        if deletes:
            desk = app.agent(Desk, room)
            await (await desk.sub_agent(Payer, "kept")).add_messages(["Keep this."])
            child = await desk.sub_agent(Payer, "gone")
            await (await child.sub_agent(Talker, "below")).save_messages("Talk.")
            await child.save_messages("Pay.")
            note("deleting")
            await desk.delete_sub_agent(Payer, "gone")
            note("deleted")


if __name__ == "__main__":
    fork_for_each_line(run)
