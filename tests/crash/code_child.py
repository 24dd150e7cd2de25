"""Processes to be killed while code that a model wrote calls tools.

nursery --> run: a story in a room of its own, gone on with from wherever an earlier process left it

What tools do is a line in a file that no database knows of.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everthink import App, Think, tool
from everthink.codemode import Executions, create_execute_tool
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from tests.crash.nursery import fork_for_each_line

__all__ = ["STORIES", "Shop", "go_on", "shop"]

FIVE = """
import asyncio
orders = await tools.orders()

async def settle(order):
    try:
        return await tools.charge(order=order)
    except RuntimeError as e:
        if "may or may not" not in str(e):
            raise
        return await tools.find_charge(order=order) or await tools.charge(order=order)

done = await asyncio.gather(*[settle(order) for order in orders])
await state.write_file(path="/done.txt", content=", ".join(done))
await tools.send(text=f"{len(done)} orders")
print("settled", done)
done
"""
APPROVAL = """
orders = await tools.orders()
first = await tools.send(text=orders[0])
paid = await tools.refund(order=orders[0])
with open("/log.txt", "a") as log:
    log.write(paid)
await tools.send(text=paid)
paid
"""
ONCE = """
orders = await tools.orders()
await tools.charge(order=orders[0])
await tools.charge(order=orders[1])
"all"
"""
STORIES: Mapping[str, str] = {"five": FIVE, "approval": APPROVAL, "once": ONCE}


def _effect(line: str) -> str:
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())
    return line


def _effects() -> list[str]:
    path = Path(os.environ["EFFECTS"])
    return path.read_text().splitlines() if path.exists() else []


def _was_sent(text: str) -> Any:
    from everthink.tools.ask import RERUN

    return f"sent {text}" if f"sent {text}" in _effects() else RERUN


def _play(request: Request) -> Play:
    """The code, until it has a result."""
    if isinstance(request.messages[-1], ToolMessage):
        return says("Done.")
    return calls("execute", {"code": STORIES[str(getattr(request.messages[-1], "content")[0].text)]})  # noqa: B009


class Shop(Think):
    """An agent whose model writes code."""

    model: Any = ScriptedModel(_play, repeat=True, records=False)

    def get_tools(self) -> Any:
        """Code, beside the tools that it calls."""
        return [create_execute_tool()]

    @tool(on_interrupt="rerun")
    async def orders(self) -> list[str]:
        """Open orders."""
        return ["o1", "o2"]

    @tool
    async def charge(self, order: str) -> str:
        """Not to be repeated: it has to be looked up."""
        line = _effect(f"charge {order}")
        await asyncio.sleep(0)
        return line

    @tool(on_interrupt="rerun")
    async def find_charge(self, order: str) -> str | None:
        """The charge of an order."""
        return next((line for line in _effects() if line == f"charge {order}"), None)

    @tool(on_interrupt=_was_sent)
    async def send(self, text: str) -> str:
        """Finds out by itself whether it was done."""
        return _effect(f"sent {text}")

    @tool(needs_approval=True)
    async def refund(self, order: str) -> str:
        """A person must agree."""
        return _effect(f"refund {order}")


def shop(store: str) -> App:
    """The app of the stories."""
    return App(Shop, store=store, grace=0.0, idle_after=None)


async def go_on(app: App, room: str, story: str) -> Any:
    """Do what a person would who looks where things stand and does what is left."""
    agent: Any = await app.agent(Shop, room).__aenter__()
    await settled(agent)
    if not await agent.get_messages():
        await agent.save_messages(story)
    for _ in range(3):
        for pending in await Executions.of(agent).pending():
            await agent.apply_tool_approval(pending.execution, True)
        part = await call_of(agent)
        if part["state"] not in ("approval-requested", "approval-responded", "not stored yet"):
            break
        await agent.continue_last_turn()
    return agent


async def settled(agent: Any) -> None:
    """No turn runs: all is done, or a person is asked."""
    while not await agent.wait_until_stable(timeout=0.05):
        if await Executions.of(agent).pending() and (await call_of(agent))["state"] == "approval-requested":
            return


async def call_of(agent: Any) -> dict[str, Any]:
    """The call of the conversation."""
    messages = await agent.get_messages()
    parts = (part for message in messages for part in message.parts if "toolCallId" in part)
    return next(parts, {"state": "not stored yet"})


async def run(store: str, room: str, story: str) -> None:
    async with shop(store) as app:
        await go_on(app, room, story)


if __name__ == "__main__":
    fork_for_each_line(run)
