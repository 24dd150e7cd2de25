"""everthink in process: an `App` on a SQLite file with its defaults (FULL), read through `chat()`."""

from __future__ import annotations

import time
from pathlib import Path

from everthink import App, Think, tool
from everthink.chunks import TextDelta
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says

from .work import JOBS, QUESTION, Job, add

__all__ = ["Ours", "agent_class"]


def agent_class(job: Job) -> type[Think]:
    """An agent that does this job."""
    members = {"model": ScriptedModel.forever(_script(job)), "__module__": __name__}
    if job.calls_tool:
        members["get_tools"] = lambda self: [_ADD]
    return type(job.name, (Think,), members)


_ADD = tool(add)


def _script(job: Job):
    answer = _answer(job)
    if not job.calls_tool:
        return answer
    asks = calls("add", a=1, b=2)

    def next_play(request: Request) -> Play:
        return answer if isinstance(request.messages[-1], ToolMessage) else asks

    return next_play


def _answer(job: Job) -> Play:
    if job.pace is None:
        return says(*job.text)
    play = Play()
    for word in job.text:
        play = play.waits(job.pause).says(word)
    return play


class Ours:
    """Conversations in an everthink app."""

    name = "everthink"

    def __init__(self, folder: Path) -> None:
        self._classes = {job: agent_class(job) for job in JOBS}
        self.app = App(*self._classes.values(), store=f"sqlite:///{folder / 'everthink.db'}")

    async def close(self) -> None:
        await self.app.close()

    async def turn(self, agent: str, job: Job) -> None:
        heard = 0
        async for chunk in self.app.agent(self._classes[job], agent).chat(QUESTION):
            if type(chunk) is TextDelta:
                heard += 1
                if job.pace is not None:
                    job.heard.append(time.perf_counter())
        assert heard == job.words, f"{heard} of {job.words} words"
