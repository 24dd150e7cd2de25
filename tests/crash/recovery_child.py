"""A process to be killed: one turn that goes on in each process that follows.

    python recovery_child.py STORE SCENARIO EFFECTS

The first process of a story begins the turn; each later one, started with the scenario `SCENARIO-again`, only
opens the app: nobody reaches the agent. Each says on stdout what was shown, what its tools did, and when the
turn is over. The model answers by what it is shown; most stories get one step further in each process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from everthink import App, Think, tool
from everthink.door.chat_request import ChatRequest
from everthink.journal.feed import ChunksStored, FeedEvent
from everthink.messages import user_message
from everthink.models.port import AssistantMessage, Request, ToolMessage
from everthink.recovery import ChatRecoveryContext, RecoveryDecision
from everthink.testing.scripted import Play, ScriptedModel, calls, opens, says

WORDS = ["One ", "word ", "after ", "the ", "other."]
HOLES = 4


def say(kind: str, **facts: Any) -> None:
    """One line on stdout. Whoever reads it may rely on it."""
    print(json.dumps({"kind": kind, **facts}), flush=True)


def show(shown: FeedEvent) -> None:
    if isinstance(shown, ChunksStored):
        for number, body in enumerate(shown.bodies, shown.first_seq):
            say("chunk", turn=shown.turn.id, seq=number, body=body)


class Stage:
    """The stories. Each is a model, and whether this process is the one that begins it."""

    def __init__(self, store: str, scenario: str, effects: Path) -> None:
        self.store, self.effects = store, effects
        self.story, _, again = scenario.partition("-")
        self.begins, self.calls = not again, 0

    def play(self, request: Request) -> Play:
        """What the model says to a request."""
        results = sum(len(m.content) for m in request.messages if isinstance(m, ToolMessage))
        match self.story:
            case "words" | "regenerates" | "below":
                # Asked to go on it begins from the start, as models do, and falls silent after a new word.
                last = next((m for m in reversed(request.messages) if isinstance(m, AssistantMessage)), None)
                said = "".join(getattr(part, "text", "") for part in last.content) if last else ""
                known = len(said.split()) + 1
                play = says("".join(WORDS[:known]))
                return play if known >= len(WORDS) else play.then_hangs()
            case "digs" | "holds" if results < HOLES:
                self.calls += 1
                return calls("dig", n=results) if self.calls == 1 else opens().then_hangs()
            case "forgets" if results < 1:
                return calls("dig", n=0)
            case "forgets" if self.begins:
                return says("There ").then_hangs()
            case "silent" if self.begins:
                return opens().then_hangs()
            case "stalls" if self.begins:
                return says("The rest ").then_hangs()
            case _:
                return says("is done.")

    def agent(self) -> type[Think]:
        stage, model = self, ScriptedModel(self.play, repeat=True)

        class Assistant(Think):
            chat_stream_stall_timeout = 0.05 if stage.story == "stalls" else 0.0

            def get_model(self) -> ScriptedModel:
                return model

            async def on_start(self, props: Any = None) -> None:
                self._home.feed.join(show)

            async def on_chat_recovery(self, ctx: ChatRecoveryContext) -> RecoveryDecision | None:
                say("recovers", attempt=ctx.attempt, text=ctx.partial_text, kind_=ctx.recovery_kind)
                if stage.story == "stalls" and stage.begins:
                    raise RuntimeError("not in this process")
                return RecoveryDecision(persist=False) if stage.story == "forgets" else None

            @tool
            async def dig(self, n: int) -> str:
                """Dig a hole."""
                with stage.effects.open("a") as file:
                    file.write(f"hole {n}\n")
                say("tool", n=n)
                if stage.story == "holds":
                    await asyncio.get_running_loop().create_future()
                return f"hole {n}"

        return Assistant

    async def run(self) -> None:
        over = asyncio.Event()
        cls, is_below = self.agent(), self.story == "below"
        parent = type("Parent", (Think,), {"sub_agents": (cls,)})
        app = App(parent if is_below else cls, store=self.store)
        app.events.subscribe(lambda event: over.set(), type="chat:turn:finish")
        async with app:
            if self.begins:
                agent = (
                    await app.agent(parent, "room").sub_agent(cls, "kid")
                    if is_below
                    else app.agent(cls, "room")
                )
                home = (await agent.__aenter__())._home
                question = user_message("Go on, then.", id="u1")
                if self.story == "regenerates":
                    await app.agent(cls, "room").add_messages(
                        [
                            question,
                            {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "Old."}]},
                        ]
                    )
                    request = ChatRequest("r", [question], trigger="regenerate-message")
                else:
                    request = ChatRequest("r", [question])
                await home.chat.requests.accept(request)
            elif not await (await app.open()).store.fetch("SELECT id FROM turns WHERE ended_at IS NULL"):
                over.set()  # the last one died after the end of the turn
            await over.wait()
        say("over")


if __name__ == "__main__":
    asyncio.run(Stage(sys.argv[1], sys.argv[2], Path(sys.argv[3])).run())
