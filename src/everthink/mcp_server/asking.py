"""Ask an agent for an MCP client, and follow the turn to its end; or look at its last answer.

    Visit --ChatRequest--> door/requests.py: as a chat window asks      feed --words--> progress of a request

A client is a stranger: what it says passes the same bounds, is kept with the same identity and waits in the
same queue as what a window says. The turn is the agent's: whoever stops listening does not stop it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import chunks as ui
from ..clock import Clock
from ..door.admission import Admitted
from ..door.chat_request import ChatRequest, Dropped
from ..errors import UNTOLD, AgentErased, CommitInDoubt, LeaseLost, TurnInterrupted
from ..hooks.values import PendingCall, TurnResult
from ..journal import turn_rows
from ..journal.feed import ChunksStored, FeedEvent, TurnEnded
from ..journal.turn import Turn
from ..messages import Message, user_message
from ..runtime.chat import Chat
from ..server.connections import Connection
from ..turn.ending import explain
from .in_flight import Begun

__all__ = ["Answered", "Progress", "ask", "look"]

log = logging.getLogger("everthink.mcp")

CHANNEL = "mcp"
"""What turns and messages of MCP clients are stamped with."""

Progress = Callable[[float, str | None], Awaitable[None]]
"""Tells the client how many chunks there are, and the words that are new."""

SILENCE = 1.0
"""Seconds after which a client that hears nothing is told that the agent is still at it."""

Status = Literal["completed", "waiting", "error", "aborted", "skipped", "interrupted"]

CANCELLED = "The MCP client cancelled its request."
STOPPED = "It was stopped. What was said is kept."
LEFT_OUT = "It was not answered: another message took its place."
NO_ANSWER = "There is no answer to the last message."
NOTHING = "Nothing has been said in this conversation."
IN_DOUBT = (
    "It is not known whether the message was kept. Look into the conversation, without a `message`, before"
    " you send it again."
)
ERASED = "The conversation was deleted before it could be answered. Ask again: that begins a new one."
GOES_ON = (
    "The answer was cut off here and goes on by itself, also after a restart. Ask for it again without a"
    " `message`."
)


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a question."""

    status: Status
    text: str = ""
    error: str | None = None
    waits_for: Sequence[PendingCall] = ()


async def ask(
    chat: Chat,
    caller: Connection,
    text: str,
    *,
    tell: Progress,
    begun: Begun,
) -> Answered:
    """Ask, and wait for the end. `begun` is given what stops the turn, once there is one."""
    host, id = chat.host, chat.host.new_id()
    listening = _Listening(lambda turn: turn.request_id == id, tell, host.clock)
    leave = host.feed.join(listening.take)
    try:
        accepted = await _accepted(chat, caller, id, text)
        if isinstance(accepted, Answered):
            return accepted
        if caller.may("cancel"):
            begun(lambda: chat.cancel(id, CANCELLED))
        await listening.until([accepted.ended])
        return _ended(accepted, listening)
    finally:
        leave()


async def _accepted(chat: Chat, caller: Connection, id: str, text: str) -> Admitted | Answered:
    request = ChatRequest(
        id,
        [user_message(text, id=chat.host.new_id())],
        channel=CHANNEL,
        is_readonly=caller.is_readonly,
        identity=caller.who,
        may_clear=caller.may("clear"),
    )
    try:
        accepted = await chat.requests.accept(request)
    except (CommitInDoubt, LeaseLost) as error:
        log.info("%s: a question of an MCP client may not have been kept: %s", chat.host.id, error)
        return Answered("interrupted", error=IN_DOUBT)
    except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
        said = await explain(chat.host, error, "persist", id, False, identity=caller.who)
        return Answered("error", error=said.shown)
    return Answered("skipped", error=LEFT_OUT) if isinstance(accepted, Dropped) else accepted


async def look(chat: Chat, *, tell: Progress) -> Answered:
    """The last answer of a conversation, once what runs or waits there now has ended."""
    listening = _Listening(lambda turn: True, tell, chat.host.clock)
    leave = chat.host.feed.join(listening.take)
    try:
        await listening.until(list(chat.door.running.values()))
    finally:
        leave()
    await chat.session.refresh()
    path, failure = chat.session.path, chat.host.last_failure.value
    last = path[-1] if path else None
    if last is None:
        return Answered("skipped", error=NOTHING)
    text = last.text if last.role == "assistant" else ""
    if failure is not None:
        return Answered("error", text, failure.error)
    if last.role != "assistant":
        return Answered("skipped", error=NO_ANSWER)
    turn = await turn_rows.of_answer(chat.host.store, last.id)
    if turn is not None and turn.status == "aborted":
        # A call that was cut with it looks like one that a browser is to answer, and nobody will.
        return Answered("aborted", text, STOPPED)
    return _whole(last)


def _ended(accepted: Admitted, listening: _Listening) -> Answered:
    try:
        outcome = accepted.ended.result()
    except AgentErased:
        return Answered("error", listening.text, ERASED)
    except TurnInterrupted:
        return Answered("interrupted", listening.text, GOES_ON)
    result = outcome.result()
    match outcome.status:
        case "completed":
            return _whole(result.message) if result.message else Answered("completed")
        case "aborted":
            return Answered("aborted", result.text, result.error or STOPPED)
        case "skipped":
            return Answered("skipped", result.text, LEFT_OUT)
        case "error":
            # What code may read of a failure is not for strangers: they get what people in a window get.
            return Answered("error", result.text, listening.error or UNTOLD)


def _whole(message: Message) -> Answered:
    waits_for = TurnResult("", "completed", message=message).pending
    return Answered("waiting" if waits_for else "completed", message.text, waits_for=waits_for)


class _Listening:
    """What is said in turns while somebody waits for their end."""

    def __init__(self, wants: Callable[[Turn], bool], tell: Progress, clock: Clock) -> None:
        self._wants, self._tell, self._clock = wants, tell, clock
        self._beats: int = 0
        self._arrived = asyncio.Event()
        self._count: int = 0
        self._told: int = 0
        self._new: list[str] = []
        self.text = ""
        self.error: str | None = None
        """What people read of the failure, if there was one."""

    def take(self, event: FeedEvent) -> None:
        """See what the agent shows. Never waits."""
        if isinstance(event, ChunksStored) and self._wants(event.turn):
            self._count += len(event.chunks)
            self._new += [chunk.delta for chunk in event.chunks if type(chunk) is ui.TextDelta]
            self._arrived.set()
        elif isinstance(event, TurnEnded) and self._wants(event.turn):
            self.error = event.error

    async def until(self, ended: Sequence[asyncio.Future[Any]]) -> None:
        """Tell what is said until all of these are done. They go on when this is cancelled."""
        for one in ended:
            one.add_done_callback(self._rouse)
        try:
            while not all(one.done() for one in ended):
                if await self._silent():
                    # The number has to grow, and that of the chunks is not to be overtaken.
                    self._beats += 1
                    await self._tell(self._told + 1 - 1 / (1 + self._beats), None)
                self._arrived.clear()
                await self._tell_news()
            await self._tell_news()  # what was said while the last words were on their way
        finally:
            for one in ended:
                one.remove_done_callback(self._rouse)

    async def _silent(self) -> bool:
        """Wait for something to tell. True when there was nothing for a while."""
        timer = self._clock.call_later(SILENCE, self._arrived.set)
        told = self._count
        try:
            await self._arrived.wait()
        finally:
            timer.cancel()
        return self._count == told == self._told

    def _rouse(self, _: object) -> None:
        self._arrived.set()

    async def _tell_news(self) -> None:
        if self._count == self._told:
            return
        words = "".join(self._new)
        self._told, self._beats = self._count, 0
        self._new.clear()
        self.text += words
        await self._tell(self._count, words or None)
