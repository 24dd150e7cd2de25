"""Processes to be killed while somebody stops an agent that waits for a child, which waits for one as well.

nursery --> run: a story in a room of its own --> EFFECTS: what whoever stopped the turn was told
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from everthink import App, Think, agent_tool
from everthink.journal.feed import ChunksStored, FeedEvent
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from tests.crash.nursery import fork_for_each_line

__all__ = ["REASON", "at_rest", "three"]

OPEN = (
    "SELECT (SELECT COUNT(*) FROM turns WHERE ended_at IS NULL),"
    " (SELECT COUNT(*) FROM child_runs WHERE ended_at IS NULL)"
)
HALF, REASON = "Half an ", "enough"


def three(*, is_first: bool) -> type[Think]:
    """The outermost of three agents. In the first process the innermost falls silent in mid-sentence."""

    def above(name: str) -> ScriptedModel:
        def play(request: Request) -> Play:
            is_answered = any(isinstance(message, ToolMessage) for message in request.messages)
            return says(f"{name} is done.") if is_answered else calls("ask", query="go on")

        return ScriptedModel(play, repeat=True, records=False)

    class Low(Think):
        model: Any = ScriptedModel.forever(says(HALF).then_hangs() if is_first else says("answer."))

    class Middle(Think):
        model: Any = above("Middle")
        ask = agent_tool(Low, description="Ask.")

    class Top(Think):
        model: Any = above("Top")
        ask = agent_tool(Middle, description="Ask.")

    return Top


def tell(what: str) -> None:
    """Write down what somebody was told, surely."""
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(what + "\n")
        file.flush()
        os.fsync(file.fileno())


async def until_low_speaks(app: App, cls: type[Think], room: str) -> None:
    """Ask the outermost, and return once the innermost has said something."""
    said = asyncio.Event()

    def see(shown: FeedEvent) -> None:
        if isinstance(shown, ChunksStored) and any(HALF in body for body in shown.bodies):
            said.set()

    middle: Any = cls.ask.child  # type: ignore[attr-defined]
    low = middle.ask.child

    def on_start(agent: Any, props: Any = None) -> None:
        agent._home.feed.join(see)

    low.on_start = on_start
    top: Any = await app.agent(cls, room).__aenter__()
    await top.submit_messages("Go", submission_id="go")
    await said.wait()


async def at_rest(app: App) -> None:
    """Return once no turn and no run is open, of anybody."""
    directory = await app.open()
    while (await directory.store.fetch(OPEN))[0] != (0, 0):
        for task in list(directory._live.values()):
            actor = await task
            await actor.chat.door.queue.wait_for_idle()
            await asyncio.gather(*actor._tasks, return_exceptions=True)
        await asyncio.sleep(0)


async def run(store: str, story: str, room: str) -> None:
    cls = three(is_first=True)
    async with App(cls, store=store, grace=0.0, idle_after=None) as app:
        await until_low_speaks(app, cls, room)
        top: Any = await app.agent(cls, room).__aenter__()
        if story == "submission":
            await top.cancel_submission("go", REASON)
        else:
            await top.abort_all_requests(REASON)
        tell("stopped")
        await at_rest(app)
        tell("over")


if __name__ == "__main__":
    fork_for_each_line(run)
