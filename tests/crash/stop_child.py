"""Processes to be killed while somebody stops a turn.

nursery --> run: a story in a room of its own --> EFFECTS: what whoever stopped the turn was told
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from everthink import App, Think
from everthink.door import stopping
from everthink.door.chat_request import ChatRequest
from everthink.journal.feed import (
    ChunksStored,
    FeedEvent,
    TurnEnded,
)
from everthink.messages import user_message
from everthink.testing.scripted import ScriptedModel, says
from tests.crash.nursery import fork_for_each_line

__all__ = ["HALF", "REASON", "STORIES", "assistant"]

HALF, REASON = "Half an ", "enough"
STORIES = ("chat", "page", "submission", "waits", "all", "reset")


def assistant(*, is_first: bool) -> tuple[type[Think], ScriptedModel]:
    """The agent: the first process falls silent in the middle of an answer."""
    model = ScriptedModel.forever(says(HALF).then_hangs() if is_first else says("answer."))

    class Assistant(Think):
        def get_model(self) -> ScriptedModel:
            return model

    return Assistant, model


def tell(what: str) -> None:
    """Write down what somebody was told, surely."""
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(what + "\n")
        file.flush()
        os.fsync(file.fileno())


async def run(store: str, story: str, room: str) -> None:
    cls, _ = assistant(is_first=True)
    said, over = asyncio.Event(), asyncio.Event()

    def see(shown: FeedEvent) -> None:
        if isinstance(shown, ChunksStored) and any(HALF in body for body in shown.bodies):
            said.set()
        if isinstance(shown, TurnEnded):
            over.set()

    async with App(cls, store=store, grace=0.0) as app:
        agent: Any = await app.agent(cls, room).__aenter__()
        home = agent._home
        home.feed.join(see)
        if story in ("submission", "waits"):
            await agent.submit_messages("Hi", submission_id="r")
        else:
            await home.chat.requests.accept(ChatRequest("r", [user_message("Hi", id="u")]))
        await said.wait()
        match story:
            case "chat":
                await agent.cancel_chat("r", REASON)
            case "page":
                stopping.cancel(home.chat.host, "r", REASON)
                await over.wait()
            case "submission":
                await agent.cancel_submission("r", REASON)
            case "waits":
                await agent.submit_messages("Later", submission_id="later")
                await agent.cancel_submission("later", REASON)
            case "all":
                await agent.abort_all_requests(REASON)
            case _:
                await agent.reset_turn_state()
        tell("stopped")
        if story != "waits":
            await over.wait()
            tell("over")


if __name__ == "__main__":
    fork_for_each_line(run)
