"""Play a script against a real process that dies where it is told to, and start it again each time.

    Script --step by step--> Node (stage) --frames--> Reader          at the end: Story

A person who loses the connection sends again what the server does not know; so does the player.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from ...client.connection import chat_request
from ...errors import NotConnected
from ...messages import Message, user_message
from ...store.crashpoints import COUNT_COMMITS, CRASH_AT
from ...wire import frames as wire
from ..node import Node, NodeFailed
from .effects import EFFECTS
from .reader import PAUSE, Reader
from .script import Advance, AnswerTool, Approve, Regenerate, Say, Schedule, Script, Step, Submit, Wait
from .stage import SETTINGS
from .story import Cut, Member, Point, Story

__all__ = ["Venue", "play"]

_TARGET = "everthink.testing.crashtest.stage:app"


@dataclass(frozen=True, slots=True)
class Venue:
    """Where a script is played: which agent, in which database, with which files."""

    agent: str
    """`module:Agent`"""
    path: str
    """The agent's address: `/agents/assistant/room`."""
    store: str
    folder: Path
    """Where effects, counts and refusals are written."""
    home: Path
    """The working directory of the processes."""
    patience: float = 30.0
    """Seconds that one step may take."""
    env: dict[str, str] = field(default_factory=dict[str, str])


class _Broken(Exception):
    """The script cannot be played on."""


async def play(script: Script, venue: Venue, point: Point = ()) -> Story:
    """Play `script` from an empty database to its end. Each cut of `point` kills one process."""
    player = _Player(script, venue, point)
    try:
        await player.play()
    except (_Broken, NodeFailed) as error:
        player.story.broken = str(error)
    player.collect()
    return player.story


class _Player:
    def __init__(self, script: Script, venue: Venue, point: Point) -> None:
        self._script, self._venue = script, venue
        self._cuts, self._deaths = list(point), len(point)
        self._ahead = 0.0
        self._now = ""
        self._state: dict[str, Any] = {}
        self._failure: Exception | None = None
        self.story = Story()
        self._node = Node(_TARGET, folder=venue.home, patience=venue.patience)
        self._reader = Reader("")

    async def play(self) -> None:
        self._now = "start"
        try:
            await self._start()
            self._reader = Reader(self._node.address(self._venue.path))
            keeping = asyncio.create_task(self._keep())
            try:
                async with self._reader:
                    await self._perform()
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
        finally:
            await self._node.close()

    # --- the process

    async def _start(self) -> None:
        """Start the process; one that dies on the way is started again."""
        while True:
            cut = self._cuts.pop(0) if self._cuts else None
            try:
                await self._node.start(**self._environment(cut))
                return
            except NodeFailed:
                if cut is None or self._node.exit_code != -signal.SIGKILL:
                    raise
                self._died()

    async def _keep(self) -> None:
        """Start the process again each time it dies at a cut."""
        try:
            while True:
                code = await self._node.wait()
                if code != -signal.SIGKILL or self.story.deaths >= self._deaths:
                    raise _Broken(f"The server ended by itself with code {code}.")
                self._died()
                await self._start()
        except (_Broken, NodeFailed) as error:
            self._failure = error

    def _died(self) -> None:
        self.story.deaths += 1
        self.story.step = self.story.step or self._now

    def _environment(self, cut: Cut | None) -> dict[str, str]:
        venue = self._venue
        settings = {
            "agent": venue.agent,
            "store": venue.store,
            "room": self._script.room,
            "ahead": self._ahead,
            "refusals": str(venue.folder / "refusals"),
        }
        env = {SETTINGS: json.dumps(settings), EFFECTS: str(venue.folder / "effects"), **venue.env}
        if self._node.starts == 0:
            env[COUNT_COMMITS] = str(venue.folder / "commits")
        if cut is not None:
            env[CRASH_AT] = str(cut)
        return env

    # --- the script

    async def _perform(self) -> None:
        await self._within("connect", self._reader.settled)
        for number, step in enumerate(self._script.steps, 1):
            self._now = f"{number} {_named(step)}"
            await self._within(self._now, lambda n=number, s=step: self._step(n, s))
        self._now = "end"
        await self._within("end", self._tell)

    async def _within(self, what: str, deed: Callable[[], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(self._venue.patience):
                await deed()
        except TimeoutError:
            raise self._failure or _Broken(
                f"Step {what!r} was not over after {self._venue.patience:g} s; the agent said: {self._state}"
            ) from None

    async def _step(self, number: int, step: Step) -> None:
        until = "idle"
        match step:
            case Say(text, until):
                await self._say(number, text)
            case Regenerate():
                await self._regenerate(number)
            case AnswerTool(name, output, is_error):
                await self._answer(name, output, is_error)
            case Approve(approved, name):
                await self._approve(approved, name)
            case Submit(text, key, until):
                await self._ask("submit", text=text, key=key)
            case Schedule(seconds, prompt, call, payload):
                key = f"schedule-{number}"
                await self._ask(
                    "schedule", **{"in": seconds, "with": payload}, prompt=prompt, call=call, key=key
                )
            case Advance(seconds):
                # Kept first: a process that dies of this starts at the new time.
                self._ahead += seconds
                await self._ask("advance", ahead=self._ahead)
            case Wait():
                pass
            case _:
                assert_never(step)
        if until == "idle":
            await self._rest()

    async def _say(self, number: int, text: str) -> None:
        message = user_message(text, id=f"user-{number}")
        body: dict[str, Any] = {"clientTools": self._script.client_tools} if self._script.client_tools else {}

        def messages() -> list[Message]:
            self._reader.screen.said(message)
            return self._shown

        await self._request(f"request-{number}", messages, **body)

    async def _regenerate(self, number: int) -> None:
        kept = self._shown
        while kept and kept[-1].role == "assistant":
            self._reader.screen.may_leave(kept.pop().id)
        if not kept:
            raise _Broken("There is no answer to make again.")
        await self._request(f"request-{number}", lambda: kept, trigger="regenerate-message")

    @property
    def _shown(self) -> list[Message]:
        return self._reader.screen.messages

    async def _request(self, id: str, messages: Callable[[], list[Message]], **body: Any) -> None:
        """Send a request until the server knows it."""

        async def is_known() -> bool:
            return id in (await self._look())["requests"]

        async def send() -> None:
            await self._reader.settled()
            await self._reader.send(chat_request(id, messages(), **body))

        await self._until(is_known, send)

    async def _answer(self, name: str, output: Any, is_error: bool) -> None:
        call = await self._call(name, "input-available")
        answer = wire.ToolAnswered(call, name, None if is_error else output, auto_continue=True)
        if is_error:
            answer.state, answer.error_text = "output-error", output
        await self._until(lambda: self._is_answered(call), lambda: self._reader.send(answer))

    async def _approve(self, approved: bool, name: str | None) -> None:
        call = await self._call(name, "approval-requested")
        answer = wire.ApprovalAnswered(call, approved, auto_continue=True)
        await self._until(lambda: self._is_answered(call), lambda: self._reader.send(answer))

    async def _call(self, name: str | None, state: str) -> str:
        """The call that waits, as the person sees it."""
        await self._reader.settled()
        parts = [part for message in self._shown for part in message.tool_parts if part["state"] == state]
        for part in parts:
            if name is None or part.get("toolName", part["type"].removeprefix("tool-")) == name:
                return str(part["toolCallId"])
        raise _Broken(f"No call of {name or 'a tool'!r} is {state} on the screen.")

    async def _is_answered(self, call: str) -> bool:
        return all(waiting["id"] != call for waiting in (await self._look())["waiting"])

    # --- asking the server

    async def _until(
        self, is_done: Callable[[], Awaitable[bool]], send: Callable[[], Awaitable[None]]
    ) -> None:
        """Send once per connection until it is done."""
        sent = 0
        while not await is_done():
            if self._reader.connections != sent:
                try:
                    await send()
                    sent = self._reader.connections
                except NotConnected:
                    pass
            await asyncio.sleep(PAUSE)

    async def _rest(self) -> None:
        """Return once the agent will do nothing by itself, and the reader has seen it."""
        while True:
            if (await self._look())["resting"]:
                await self._reader.settled()
                return
            await asyncio.sleep(PAUSE)

    async def _look(self) -> dict[str, Any]:
        self._state = await self._ask("state")
        return self._state

    async def _ask(self, what: str, **given: Any) -> Any:
        body = json.dumps(given).encode() if given else b""
        while True:
            if self._failure is not None:
                raise self._failure
            try:
                method = "POST" if given else "GET"
                answer = await self._node.http(f"/crashtest/{what}", method=method, body=body)
                told = answer.json
            except (OSError, ValueError):
                await asyncio.sleep(PAUSE)  # It is down, or went down while it answered.
                continue
            if answer.status != 200:
                raise _Broken(f"The agent refused to {what}: {told.get('refused', told)}")
            return told

    # --- at the end

    async def _tell(self) -> None:
        story = self.story
        await self._rest()
        report = await self._ask("report")
        story.messages, story.turns, story.calls = report["messages"], report["turns"], report["calls"]
        story.family = [Member(**told) for told in report["family"]]
        path = await self._node.http(f"{self._venue.path}/get-messages")
        story.path = path.json
        story.screen = [message.to_json() for message in self._shown]
        if story.family:
            async with Reader(self._node.address(self._venue.path), id="late") as late:
                await late.settled()
                story.late_runs = late.screen.runs.seen
                story.faults += late.screen.faults

    def collect(self) -> None:
        """What is known however the script ended."""
        story, screen, folder = self.story, self._reader.screen, self._venue.folder
        story.faults, story.errors = [*screen.faults, *story.faults], screen.errors
        story.runs = screen.runs.seen
        story.effects = _lines(folder / "effects")
        story.refusals = [json.loads(line) for line in _lines(folder / "refusals")]
        story.commits = [json.loads(line) for line in _lines(folder / "commits")]
        story.log = self._node.log


def _named(step: Step) -> str:
    match step:
        case Say(text) | Submit(text):
            said = text if len(text) <= 30 else text[:29] + "…"
            return f"{type(step).__name__.lower()} {said!r}"
        case AnswerTool(name):
            return f"answer_tool {name}"
        case _:
            return type(step).__name__.lower()


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
