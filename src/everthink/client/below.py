"""What the children of an agent ask a person, and theirs.

    Conversation.run_events --> Below --Asking--> whoever shows it --answer--> a conversation with the child

What a child asks is in what it says in its run. A child that has called a tool may have children of its own:
it is listened to as well, at its own address, for as long as its run goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .. import chunks as ui
from ..errors import AgentError, NotConnected
from ..messages import Part, tool_name
from .address import socket_address
from .conversation import Conversation
from .questions import ToolQuestion, approval_of, question_in
from .runs import ChildRun, RunEvent

__all__ = ["Asking", "Below", "as_written"]

log = logging.getLogger("everthink.client")

AGAIN = 0.5
"""Seconds after which an answer is brought again to a server that is away."""
PATIENCE = 10.0
"""Seconds for which a child is looked for that does not answer."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Something that a child asks a person."""

    whom: str
    """How the child is called, below those above it."""
    part: Part
    """The call that waits."""
    url: str
    """The address of the child's socket."""

    @property
    def tool(self) -> str:
        """The tool of the call."""
        return tool_name(self.part)

    @property
    def question(self) -> ToolQuestion | None:
        """The forms to fill in, if it asks for more than a yes or a no."""
        return question_in(self.part) if self.part["state"] == "approval-requested" else None

    @property
    def is_for_client(self) -> bool:
        """True when it waits for what a client does."""
        return self.part["state"] == "input-available"

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from all others: a call may ask again."""
        return self.url, self.part["toolCallId"], approval_of(self.part)


class Below:
    """The children of one agent that run, and theirs, as far as they ask a person."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._url, self._headers = url, headers
        self.asked: Callable[[], object] = lambda: None
        """Called when one asks that did not before."""
        self._asking: dict[tuple[str, str, str], Asking] = {}
        self._answered: set[tuple[str, str, str]] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def watch(self, room: Conversation) -> None:
        """Look at the children of the agent that `room` talks to: before it is opened, so that nothing of
        what they said is missed."""
        self._start(self._url, self._listen(room, self._url, ""))

    async def close(self) -> None:
        """Look no longer."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def asking(self) -> list[Asking]:
        """What is asked now and was not answered here."""
        return [one for key, one in self._asking.items() if key not in self._answered]

    # --- answering

    async def approve(self, asking: Asking, approved: bool) -> None:
        """Say yes or no."""
        await self._answer(asking, lambda room, call: room.approve(call, approved, asked=_shown(asking)))

    async def reply(self, asking: Asking, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Fill in what it asks for."""
        await self._answer(asking, lambda room, call: room.reply(call, answers=answers, asked=_shown(asking)))

    async def answer(self, asking: Asking, output: Any) -> None:
        """Give it what a client was to find out."""
        await self._answer(asking, lambda room, call: room.answer(call, output))

    def leave(self, asking: Asking) -> None:
        """Leave it to somebody else: it is not asked here again."""
        self._answered.add(asking.key)

    async def _answer(
        self, asking: Asking, give: Callable[[Conversation, str], Coroutine[Any, Any, object]]
    ) -> None:
        self.leave(asking)
        while True:
            try:
                async with self._conversation(asking.url) as room:
                    await give(room, asking.part["toolCallId"])
                return
            except NotConnected as error:
                if error.status is not None or error.code is not None:
                    raise
                await asyncio.sleep(AGAIN)  # the server is away, and the question with it

    def _conversation(self, url: str) -> Conversation:
        return Conversation(url, headers=self._headers, patience=PATIENCE)

    # --- looking

    def _start(self, url: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[url] = asyncio.create_task(work)

        def over(task: asyncio.Task[None]) -> None:
            if self._tasks.get(url) is task:
                del self._tasks[url]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("what is asked below %s is not heard any more", urlsplit(url).path, exc_info=error)

        task.add_done_callback(over)

    async def _listen(self, room: Conversation, url: str, above: str) -> None:
        """Hear what is told of the children of one agent."""
        is_over: set[str] = set()
        try:
            async for event in room.run_events():
                self._hear(event, url, above, is_over)
        except AgentError:
            return  # there is no coming back, which whoever opened it is told

    async def _listen_below(self, url: str, above: str) -> None:
        """The same of a child, at its own address."""
        room = self._conversation(url)
        listening = asyncio.create_task(self._listen(room, url, above))
        async with AsyncExitStack() as stack:
            stack.callback(listening.cancel)
            try:
                await stack.enter_async_context(room)
            except AgentError:
                return  # nobody may look, or it is gone: what it asks itself is told by its parent
            await listening

    def _hear(self, event: RunEvent, url: str, above: str, is_over: set[str]) -> None:
        run = event.run
        child, whom = socket_address(url, None, "", None, [run.sub]), f"{above}{_called(run)}"
        if isinstance(event.chunk, ui.Start):
            is_over.discard(run.run_id)
        elif isinstance(event.chunk, ui.Finish):
            is_over.add(run.run_id)
        goes_on = run.status == "running" or run.child_still_running
        parts = [part for part in run.message.tool_parts if goes_on]
        waits = [Asking(whom, part, child) for part in parts if _waits(part, run.run_id in is_over)]
        found = {one.key: one for one in waits}
        is_new = found.keys() - self._asking.keys()
        kept = {key: one for key, one in self._asking.items() if key[0] != child}
        self._asking = {**kept, **found}
        if is_new:
            self.asked()
        if not goes_on and (task := self._tasks.get(child)) is not None:
            task.cancel()
            self._asking = {
                key: one for key, one in self._asking.items() if not key[0].startswith(f"{child}/sub/")
            }
        elif child not in self._tasks and any(part["state"] == "input-available" for part in parts):
            self._start(child, self._listen_below(child, f"{whom} → "))


def _waits(part: Part, is_over: bool) -> bool:
    """True for a call that waits for a person; for one that a client is to do, once the turn is over."""
    return part["state"] == "approval-requested" or (is_over and part["state"] == "input-available")


def _shown(asking: Asking) -> str | None:
    return approval_of(asking.part) or None


def _called(run: ChildRun) -> str:
    shown = run.display.get("name")
    return shown if isinstance(shown, str) and shown else run.agent_type


def as_written(text: str) -> Any:
    """What a person wrote as the result of a tool: JSON if it is some, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
