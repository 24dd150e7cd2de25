"""everthink in process: an `App` on a SQLite file with its defaults (FULL), read through `chat()`."""

from __future__ import annotations

import time
from pathlib import Path

from everthink import App, Think, agent_tool, tool
from everthink.chunks import TextDelta
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says

from .work import CHILDREN, FAMILY, JOBS, QUESTION, Job, add

_ADD = tool(add)


def agent_class(job: Job) -> type[Think]:
    """An agent that does this job."""
    answer = says(*job.text) if job.pace is None else Play()
    for word in job.text if job.pace is not None else ():
        answer = answer.waits(job.pause).says(word)
    asks = calls("add", a=1, b=2)

    def play(request: Request) -> Play:
        has_result = isinstance(request.messages[-1], ToolMessage)
        return asks if job.calls_tool and not has_result else answer

    members = {"model": ScriptedModel.forever(play), "__module__": __name__}
    if job.calls_tool:
        members["get_tools"] = lambda self: [_ADD]
    return type(job.name, (Think,), members)


def family_class(child: type[Think]) -> type[Think]:
    """An agent that asks many children at once."""
    asks = Play()
    for number in range(CHILDREN):
        asks = asks.calls("ask", query=f"{QUESTION} {number}")

    def play(request: Request) -> Play:
        return says("Done.") if isinstance(request.messages[-1], ToolMessage) else asks

    ask = agent_tool(child, description="Ask.", name="ask")
    members = {"model": ScriptedModel.forever(play), "ask": ask, "__module__": __name__}
    return type(FAMILY.name, (Think,), members)


class Ours:
    """Conversations in an everthink app."""

    name = "everthink"

    def __init__(self, folder: Path) -> None:
        self._classes = {job: agent_class(job) for job in JOBS}
        self._app = App(*self._classes.values(), store=f"sqlite:///{folder / 'everthink.db'}")

    async def close(self) -> None:
        await self._app.close()

    async def turn(self, agent: str, job: Job) -> None:
        heard = 0
        async for chunk in self._app.agent(self._classes[job], agent).chat(QUESTION):
            if type(chunk) is TextDelta:
                heard += 1
                if job.pace is not None:
                    job.heard.append(time.perf_counter())
        assert heard == job.words, f"{heard} of {job.words} words"
