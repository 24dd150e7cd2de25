"""Two windows do what comes to their minds: nothing that was said is lost, and the model hears each of it.

    seed --> say · have it answered again · change · stop · approve · reload · let the model go on · restart
         --> what is shown, what is stored and what the model was asked, held against what was said

`WALKS=1000 pytest tests/server/test_walks.py` takes a thousand of them; `make walks` does.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Literal

import pytest

from everthink import Message, Think, tool
from everthink.models.port import Request, ToolMessage
from everthink.testing import Play, ScriptedModel, calls, says
from everthink.testing.client import Client
from everthink.turn.assemble import CONTINUE_NUDGE
from tests.support.agents import live

from ..support.server import Served, open_app, served
from ..support.turns import Database, all_over, prompt

pytestmark = pytest.mark.anyio

WALKS = int(os.environ.get("WALKS", "16"))
STEPS = 14
POLICIES: list[Literal["queue", "latest", "merge"]] = [
    "queue",
    "queue",
    "latest",
    "merge",
]
ACTIONS = [*["say"] * 4, *["go"] * 3, "again", "again", "stop", "approve", "approve", "change", "reload"]


class Walk:
    """One conversation, two windows, and a model that waits until it is told to go on."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.policy = POLICIES[seed // 2 % len(POLICIES)]
        self.log: list[str] = []
        self.said: dict[str, str] = {}
        self.asked: dict[str, str] = {}
        """The message of each request."""
        self.back: dict[str, set[str]] = {}
        """The requests that went back, and what stays in sight after each."""
        self.stopped = set[str]()
        self.prompts: list[list[str]] = []
        self.errors: list[str] = []
        self._gates: list[asyncio.Event] = []
        self._is_open = False
        self._server: Served
        self._windows: list[Client] = []

        class Room(Think):
            model = ScriptedModel.forever(self._answer)
            message_concurrency = self.policy

            @tool(needs_approval=True)
            async def pay(self, amount: int) -> str:
                """Pay."""
                return f"paid {amount}"

        self.cls = Room

    def _answer(self, request: Request) -> Play:
        asked = prompt(request)[-1][1]
        self.prompts.append([text for _, text in prompt(request)])
        if asked.startswith("pay"):
            return calls("pay", id=f"call-{len(self.prompts)}", amount=1)
        self._gates.append(gate := asyncio.Event())
        if self._is_open:
            gate.set()
        about = "the payment" if isinstance(request.messages[-1], ToolMessage) else asked
        return says(f"To {about}: ").waits(gate).says("done.")

    def go(self) -> None:
        """Let the answers that wait end."""
        for gate in self._gates:
            gate.set()

    async def enter(self, server: Served) -> None:
        """Open two windows."""
        self._server, self._is_open = server, False
        self._windows = [await server.connect(self.cls, id=f"window-{n}") for n in range(2)]
        await self.settled()

    async def settled(self) -> None:
        """Wait until the server has handled what the windows sent."""
        for window in self._windows:
            await window.settled()

    async def leave(self) -> None:
        """Let everything end."""
        await self.settled()
        self._is_open = True
        self.go()
        await all_over(self._server.app, self.cls, "room")
        await self.settled()
        for window in self._windows:
            self._note(window)

    async def leave_at_once(self) -> None:
        """The server is about to be stopped."""
        await self.settled()
        for window in self._windows:
            self._note(window)
        self.log.append("restart")

    @property
    def screens(self) -> list[list[str]]:
        """The ids of the messages in each window."""
        return [[message.id for message in window.messages] for window in self._windows]

    async def step(self) -> None:
        """Do something in one of the windows."""
        number = self.random.randrange(2)
        what = self.random.choice(ACTIONS)
        self.log.append(f"{number} {what}")
        await self._do(what, number)
        if self.random.random() < 0.5:
            await self._windows[number].settled()

    async def _do(self, what: str, number: int) -> None:
        window = self._windows[number]
        match what:
            case "say":
                id = f"u{len(self.said)}"
                self.said[id] = f"{'pay' if self.random.random() < 0.2 else 'word'} {len(self.said)}"
                self.asked[await window.say(self.said[id], message_id=id)] = id
            case "go":
                self.go()
            case "again" | "change":
                await self._go_back(window, changes=what == "change")
            case "stop":
                running = [f["id"] for f in window.of("use_chat_response") if not window.is_done(f["id"])]
                if running:
                    self.stopped.add(running[-1])
                    await window.cancel(running[-1])
            case "approve":
                for part in [part for message in window.messages for part in message.parts]:
                    if part.get("state") == "approval-requested":
                        await window.approve(part["toolCallId"], self.random.random() < 0.5)
            case _:
                await window.settled()
                self._note(window)
                await window.drop()
                self._windows[number] = await self._server.connect(self.cls, id=f"window-{number}")
                await self._windows[number].settled()

    async def _go_back(self, window: Client, *, changes: bool) -> None:
        kept = list(window.messages)
        while kept and kept[-1].role == "assistant":
            kept.pop()
        if not kept:
            return
        if changes:
            last = kept.pop()
            changed = Message(last.id, "user", [{"type": "text", "text": f"{last.text}, changed"}])
            request = await window.request([*kept, changed])
        else:
            request = await window.request(kept, trigger="regenerate-message")
        self.back[request] = {message.id for message in kept}

    def _note(self, window: Client) -> None:
        """Remember what failed. Going back may be refused: others have done something meanwhile."""
        failed = [frame for frame in window.of("use_chat_response") if frame.get("error")]
        self.errors += [frame["body"] for frame in failed if frame["id"] not in self.back]

    def lost(self, shown: set[str], order: list[str]) -> list[str]:
        """What is neither shown nor left behind by somebody who went back, and what the model never heard."""
        heard = {texts[-1] for texts in self.prompts}
        lost: list[str] = []
        for request, id in self.asked.items():
            later = order[order.index(request) :] if request in order else []
            is_left = any(id not in self.back[one] for one in later if one in self.back)
            if id not in shown and not is_left:
                lost.append(f"{self.said[id]} is not shown")
            is_heard = self.said[id] in heard or request in self.stopped
            if self.policy == "queue" and not is_heard:
                lost.append(f"{self.said[id]} was not heard")
        return lost

    def story(self, shown: list[str]) -> str:
        """What happened, for whoever reads a failure."""
        return "\n".join([*self.log, "", *shown, "", *map(str, self.prompts)])


@pytest.mark.parametrize("seed", range(WALKS))
async def test_nothing_that_was_said_is_lost(tmp_path: Path, seed: int) -> None:
    walk = Walk(seed)
    restarts = seed % 2
    for _ in range(restarts):
        async with served(open_app(tmp_path, walk.cls)) as server:
            await walk.enter(server)
            for _ in range(STEPS):
                await walk.step()
            await walk.leave_at_once()
    async with served(open_app(tmp_path, walk.cls)) as server:
        await walk.enter(server)
        for _ in range(STEPS):
            await walk.step()
        await walk.leave()
        agent = await live(server.app.agent(walk.cls, "room"))
        in_memory = [(m.id, m.role, m.text) for m in agent.messages]
        await agent.session.load()
        shown = [(m.id, m.role, m.text) for m in agent.messages]
        screens = walk.screens
    rows = sorted(Database(tmp_path).turns(), key=lambda row: row["seq"])
    story = walk.story([f"{role}: {text}" for _, role, text in shown])
    assert walk.lost({id for id, _, _ in shown}, [row["request_id"] for row in rows]) == [], story
    assert walk.errors == [], story
    assert in_memory == shown, story
    assert screens == [[id for id, _, _ in shown]] * 2, story
    if not restarts and not any("approve" in done for done in walk.log):
        assert not [texts for texts in walk.prompts if texts[-1] == CONTINUE_NUDGE], story
