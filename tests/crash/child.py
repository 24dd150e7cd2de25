"""A process to be killed: runs an agent and says on stdout, line by line, what was shown and acknowledged.

    python child.py STORE SCENARIO EFFECTS

`EFFECTS` is a file to which each tool call adds a line: what a tool does to the world. The model waits for a
line on stdin between two deltas, so whoever reads decides how fast the answer comes; when stdin is closed it
does not wait.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from everthink import App, Think, tool
from everthink.door.chat_request import ChatRequest
from everthink.errors import StoreError
from everthink.journal.feed import (
    ChunksStored,
    FeedEvent,
    TurnEnded,
)
from everthink.messages import user_message
from everthink.testing.scripted import ScriptedModel, says, thinks

ANSWER = ["It ", "rains ", "in ", "Paris, ", "and ", "it ", "will ", "rain ", "tomorrow."]


def say(kind: str, **facts: Any) -> None:
    """One line on stdout. Whoever reads it may rely on it."""
    print(json.dumps({"kind": kind, **facts}), flush=True)


def show(shown: FeedEvent) -> None:
    match shown:
        case ChunksStored(turn, first, bodies):
            for number, body in enumerate(bodies, first):
                say("chunk", turn=turn.id, request=turn.request_id, seq=number, body=body)
        case TurnEnded(turn, status):
            say("ended", turn=turn.id, request=turn.request_id, status=status)
        case _:
            pass


class Stage:
    """The agent and what happens to it."""

    def __init__(self, store: str, effects: Path, stdin: asyncio.StreamReader) -> None:
        self.store, self.effects, self.stdin = store, effects, stdin

    async def paced(self) -> None:
        await self.stdin.readline()

    def agent(self, model: ScriptedModel, *, tool_hangs: bool = False) -> type[Think]:
        effects = self.effects

        class Assistant(Think):
            def get_model(self) -> ScriptedModel:
                return model

            @tool
            async def weather(self, city: str) -> str:
                """The weather."""
                with effects.open("a") as file:
                    file.write(f"weather {city}\n")
                say("tool", name="weather")
                if tool_hangs:
                    await asyncio.get_running_loop().create_future()
                return f"rain in {city}"

        return Assistant

    def said(self, *deltas: str) -> Any:
        play = says(deltas[0])
        for delta in deltas[1:]:
            play = play.waits(self.paced).says(delta)
        return play

    async def story(self) -> None:
        """A turn with a tool; while it runs, a submission and another message are accepted."""
        model = ScriptedModel(
            thinks("Let me ", "see.").waits(self.paced).calls("weather", city="Paris"),
            self.said(*ANSWER),
            self.said("Job ", "done."),
            self.said("Second ", "answer."),
        )
        async with App(cls := self.agent(model), store=self.store) as app:
            agent = await app.agent(cls, "room").__aenter__()
            home = agent._home
            home.feed.join(show)
            say("ready")
            await home.chat.requests.accept(ChatRequest("u1", [user_message("Weather in Paris?", id="u1")]))
            say("acknowledged", id="u1")
            submission = await agent.submit_messages("Do the job.", submission_id="job")
            say("submitted", id=submission.submission_id)
            await home.chat.requests.accept(ChatRequest("u2", [user_message("And then?", id="u2")]))
            say("acknowledged", id="u2")
            await home.chat.door.queue.wait_for_idle()
        say("over")

    async def tool(self) -> None:
        """A turn whose tool never returns."""
        model = ScriptedModel(says("I will look. ").calls("weather", city="Paris"))
        async with App(cls := self.agent(model, tool_hangs=True), store=self.store) as app:
            agent = await app.agent(cls, "room").__aenter__()
            agent._home.feed.join(show)
            say("ready")
            await agent.save_messages([user_message("Weather in Paris?", id="u1")])

    async def queued(self) -> None:
        """Work that is accepted and cannot start."""
        async with App(cls := self.agent(ScriptedModel()), store=self.store) as app:
            agent = await app.agent(cls, "room").__aenter__()
            agent._home.chat.door.queue.reserve("somebody else")
            say("ready")
            for number in range(3):
                await agent.submit_messages(
                    f"Job {number}.", submission_id=f"job-{number}", metadata={"n": number}
                )
                say("submitted", id=f"job-{number}")
            await agent._home.chat.requests.accept(ChatRequest("u1", [user_message("Hello?", id="u1")]))
            say("acknowledged", id="u1")
            await asyncio.get_running_loop().create_future()

    async def hold(self) -> None:
        """Opens the database and stays."""
        say("opening")
        try:
            async with App(self.agent(ScriptedModel()), store=self.store):
                say("ready", pid=os.getpid())
                await asyncio.get_running_loop().create_future()
        except StoreError as error:
            say("refused", error=type(error).__name__, text=str(error))


async def main(store: str, scenario: str, effects: str) -> None:
    stdin = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    await getattr(Stage(store, Path(effects), stdin), scenario)()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
