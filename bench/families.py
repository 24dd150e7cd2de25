"""What children cost: a turn that asks one against turns without, and a hundred that stream at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from everthink import App, Think, agent_tool, tool
from everthink.chunks import TextDelta
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says

from .measure import PATIENCE, Row, calm, live
from .work import QUESTION, SHORT, Job

AT_ONCE = 100
STREAMED = Job("Streamed", 100, pace=0)
"""What each of a hundred says: a turn of the event loop before each word."""
BLOCK = 10
"""So many turns are measured at a time: a single one is short beside what disturbs it."""

Taken = dict[str, list[float]]
"""CPU by what was done, a value for each repetition."""


# --- one child


class Asked(Think):
    """Answers a short question: as a child, and by itself."""

    model = ScriptedModel.forever(says(*SHORT.text))


def _asking(request: Request) -> Play:
    has_result = isinstance(request.messages[-1], ToolMessage)
    return says(*SHORT.text) if has_result else calls("ask", query=QUESTION)


class Asking(Think):
    """Asks a child, then answers as well."""

    model = ScriptedModel.forever(_asking)
    ask = agent_tool(Asked, description="Ask.")


class Alone(Think):
    """The same with a tool that knows the answer."""

    model = ScriptedModel.forever(_asking)

    @tool
    async def ask(self, query: str) -> str:
        """Ask."""
        return "".join(SHORT.text)


async def delegation(folder: Path, *, repetitions: int) -> list[Row]:
    """CPU of a turn that asks a child, against a turn with a tool and a turn of an agent that is there."""
    async with App(Asking, Alone, Asked, store=f"sqlite:///{folder / 'asking.db'}") as app:

        async def delegated(room: str) -> None:
            for _ in range(BLOCK):
                await app.agent(Asking, room).save_messages(QUESTION)

        async def plain(room: str) -> None:
            for _ in range(BLOCK):
                await app.agent(Alone, room).save_messages(QUESTION)
                await app.agent(Asked, room).save_messages(QUESTION)

        taken: Taken = {"delegated": [], "plain": []}
        end = time.perf_counter() + PATIENCE
        for number in range(-1, repetitions):
            for deed, cpu in zip((delegated, plain), taken.values(), strict=True):
                calm()
                began = time.process_time()
                await deed(f"room {number}")
                if number >= 0:
                    cpu.append(time.process_time() - began)
            if number >= 0 and time.perf_counter() > end:
                break
        runs = await app.agent(Asking, "room -1").list_agent_tool_runs()
        assert [run.status for run in runs] == ["completed"] * BLOCK
    times = _times(taken, "delegated", "plain")
    row = Row("CPU of a turn that asks a child against two turns without", "×", {"everthink": times})
    return [row.held_to("≤ 1.5 ×", times <= 1.5)]


def _times(taken: Taken, one: str, other: str) -> float:
    """The median of the ratios within a repetition."""
    return median(a / b for a, b in zip(taken[one], taken[other], strict=True))


# --- many


class Gate:
    """Holds a hundred models up before their first word until all of them are there."""

    def __init__(self) -> None:
        self.all_there, self._open = asyncio.Event(), asyncio.Event()
        self._waiting = 0

    async def wait(self) -> None:
        """What the models do."""
        self._waiting += 1
        if self._waiting == AT_ONCE:
            self.all_there.set()
        await self._open.wait()

    def open(self) -> None:
        """Let them speak."""
        self._open.set()


gates: list[Gate] = []
"""The one that holds just now is the last."""


def _streamed() -> Play:
    answer = Play().waits(lambda: gates[-1].wait())
    for word in STREAMED.text:
        answer = answer.waits(STREAMED.pause).says(word)
    return answer


class Streaming(Think):
    """Says its words, as a child and by itself."""

    model = ScriptedModel.forever(_streamed())


class Parent(Think):
    """Has a hundred children that do."""

    model = ScriptedModel.forever(says("Done."))
    sub_agents = (Streaming,)


async def crowd(folder: Path, *, repetitions: int) -> list[Row]:
    """CPU per delta of a hundred children that stream at once, against a hundred agents that do."""
    async with App(Parent, Streaming, store=f"sqlite:///{folder / 'crowd.db'}") as app:
        parent: Any = await live(app.agent(Parent, "parent"))

        async def child(name: str) -> None:
            run = await parent.run_agent_tool(Streaming, input=QUESTION, run_id=name)
            assert run.status == "completed", run

        async def agent(name: str) -> None:
            heard = 0
            async for chunk in app.agent(Streaming, name).chat(QUESTION):
                heard += type(chunk) is TextDelta
            assert heard == STREAMED.words, heard

        taken: Taken = {"children": [], "agents": []}
        for number in range(-1, repetitions):
            for deed, cpu in zip((child, agent), taken.values(), strict=True):
                spent = await _at_once(deed, number)
                if number >= 0:
                    cpu.append(spent / (AT_ONCE * STREAMED.words) * 1e6)
    what = f"CPU per delta, {AT_ONCE} children of one parent at once"
    return [
        Row(what, "µs", {"everthink": median(taken["children"])}),
        Row(f"… against {AT_ONCE} agents at once", "×", {"everthink": _times(taken, "children", "agents")}),
    ]


async def _at_once(deed: Callable[[str], Awaitable[None]], number: int) -> float:
    """The CPU of a hundred from their first word on."""
    gate = Gate()
    gates.append(gate)
    work = [asyncio.ensure_future(deed(f"{number}-{one}")) for one in range(AT_ONCE)]
    await gate.all_there.wait()
    calm()
    began = time.process_time()
    gate.open()
    await asyncio.gather(*work)
    return time.process_time() - began
