"""A process to be killed: takes one submission and answers it word by word.

    python submission_child.py STORE SCENARIO EFFECTS

It says on stdout what was acknowledged and shown. The model waits for a line on stdin after each word.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from everthink import App, Think
from everthink.journal.feed import (
    ChunksStored,
    FeedEvent,
    TurnStarted,
)
from everthink.testing.scripted import ScriptedModel, hangs, says

WORDS = ["It ", "is ", "done ", "now."]


def say(kind: str, **facts: Any) -> None:
    """One line on stdout. Whoever reads it may rely on it."""
    print(json.dumps({"kind": kind, **facts}), flush=True)


def show(shown: FeedEvent) -> None:
    match shown:
        case TurnStarted(turn):
            say("started", turn=turn.id)
        case ChunksStored(turn, _, bodies):
            for body in bodies:
                say("chunk", turn=turn.id, body=body)
        case _:
            pass


async def main(store: str, scenario: str, effects: str) -> None:
    stdin = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)

    async def paced() -> None:
        await stdin.readline()

    play = says(WORDS[0])
    for word in WORDS[1:]:
        play = play.waits(paced).says(word)
    play = play.waits(paced)  # it is never over before the last word was read
    scripted = ScriptedModel(hangs() if scenario == "silent" else play)

    class Assistant(Think):
        def get_model(self) -> ScriptedModel:
            return scripted

    async with App(Assistant, store=store) as app:
        agent = await app.agent(Assistant, "room").__aenter__()
        agent._home.feed.join(show)
        if scenario == "waiting":
            agent._home.chat.door.queue.reserve("somebody else")
        await agent.submit_messages("Do it.", submission_id="job", metadata={"n": 1})
        say("submitted", id="job")
        await loop.create_future()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
