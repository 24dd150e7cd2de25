"""Go on by itself after a browser tool's result or a person's answer.

    result, approval (auto_continue) --50 ms quiet--> nothing streams, nothing open? --> one turn

However many results of a step arrive, in whatever order, one continuation follows, once the last of
them is in. Which calls are open is read from the conversation. That one is to follow is kept in the commit
of the answer and forgotten in the one that accepts the turn, so a restart cannot lose it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from ..clock import Timer
from ..identity import mark_of
from ..journal.feed import (
    Cleared,
    ContinuationDropped,
    FeedEvent,
    TurnAccepted,
    TurnEnded,
    TurnStarted,
)
from ..journal.turn import Turn
from ..messages import Message, is_tool_part, steps
from ..store.port import Statement
from ..turn.host import TurnHost
from .admission import Door
from .browser import Browser

__all__ = ["Continuation", "Continuations", "StoredContinuation", "is_incomplete"]

QUIET = 0.05
_OPEN = frozenset({"input-available", "approval-requested"})


@dataclass(slots=True)
class Continuation:
    """A continuation that will run: its id is on the wire before it begins."""

    request_id: str
    owner: str | None
    """The connection that answered."""
    is_readonly: bool = False
    """True when that connection may not change the state."""
    identity: Any = None
    """Who answered, as JSON, when the application knows."""
    is_behind: bool = False
    """True when another window's turn ran while the answer came: its tools are not those of the question."""


class StoredContinuation(msgspec.Struct):
    """A continuation that is to run, as its row keeps it."""

    owner: str | None = None
    isReadonly: bool = False
    identity: Any = None
    isBehind: bool = False


def is_incomplete(message: Message | None) -> bool:
    """True when some calls of the last step wait for an answer while others have theirs."""
    if message is None or message.role != "assistant":
        return False
    last = steps(message.parts)[-1:]
    return any(is_tool_part(part) and part.get("state") in _OPEN for step in last for part in step)


class Continuations:
    """The continuation an agent is about to make, if any."""

    __slots__ = ("_browser", "_door", "_host", "_leave", "_starting", "_timer", "_waits", "armed", "lock")

    def __init__(self, host: TurnHost, door: Door, browser: Browser) -> None:
        self._host, self._door, self._browser = host, door, browser
        self.lock = asyncio.Lock()
        """Held while an answer is stored: continuations are kept and admitted one after the other."""
        self.armed: Continuation | None = None
        self._starting: Continuation | None = None
        self._timer: Timer | None = None
        # Other answers of the batch are missing: nothing happens until one of them, or a new turn, comes.
        self._waits = False
        self._leave: Callable[[], None] | None = None

    @property
    def pending(self) -> Continuation | None:
        """The continuation that will run and is not accepted yet."""
        return self._starting or self.armed

    @property
    def is_at_rest(self) -> bool:
        """True when none will begin by itself: none is expected, or its batch waits for more answers."""
        return self._starting is None and (self.armed is None or self._waits)

    # --- expecting one

    def save(self, owner: str | None, *, is_readonly: bool = False, identity: Any = None) -> Statement:
        """The statement that keeps that a continuation is to run, for the commit of the answer before it."""
        kept = {
            "owner": owner,
            "isReadonly": is_readonly,
            "identity": identity,
            "isBehind": self._is_behind(),
        }
        return self._host.save_value("continuation", kept)

    def restore(self, kept: StoredContinuation | None) -> None:
        """Expect the continuation that an earlier process left, if any."""
        if kept is not None:
            self.answered(
                auto_continue=True, owner=kept.owner, is_readonly=kept.isReadonly, identity=kept.identity
            )
            if self.armed is not None:
                self.armed.is_behind = kept.isBehind

    def answered(
        self, *, auto_continue: bool, owner: str | None, is_readonly: bool = False, identity: Any = None
    ) -> None:
        """A call was answered. Without `auto_continue` it may only complete a batch that wants to go on."""
        if auto_continue:
            if self.armed is None:
                self.armed = Continuation(self._host.new_id(), owner)
                self._leave = self._host.feed.join(self._see)
            self.armed.owner, self.armed.is_readonly = owner or self.armed.owner, is_readonly
            self.armed.identity = identity
            self.armed.is_behind = self.armed.is_behind or self._is_behind()
        if self.armed is None:
            return
        self._waits = False
        self._stop_timer()
        self._timer = self._host.clock.call_later(QUIET, self.check)

    def _is_behind(self) -> bool:
        """True while a turn of a window runs: the tools that are open are its own."""
        return any(turn.is_started and turn.trigger == "ws-chat" for turn in self._host.turns)

    def forget(self) -> Statement:
        """Give up what was wished for (the conversation is cleared or reset)."""
        self._give_up()
        return self._host.save_value("continuation", None)

    # --- fulfilling them

    def check(self) -> None:
        """Start the continuation unless something streams or a call is open. Asked again when a turn ends."""
        if self._is_due():
            self._host.background(self._go_on())

    def _is_due(self) -> bool:
        if self.armed is None or self._door.is_closed or not self._door.queue.is_idle:
            return False
        self._waits = is_incomplete(self._host.session.leaf)
        return not self._waits

    def _see(self, shown: FeedEvent) -> None:
        match shown:
            case TurnEnded():
                self._host.background(self._check_when_idle())
            case TurnAccepted(turn) if self._waits and turn.trigger != "auto-continuation":
                # Somebody says something instead of the missing answers: that turn goes on from here.
                self._leave_it()
            case TurnStarted(turn) if turn.trigger != "auto-continuation" and turn.journal is None:
                # The model hears of the answers in this turn: there is nothing left to go on with.
                self._leave_it()
            case Cleared():
                self._give_up()
            case _:
                pass

    def _leave_it(self) -> None:
        self._give_up()
        self._host.background(self._drop())

    async def _drop(self) -> None:
        async with self.lock:
            if self.pending is None:
                await self._host.store.apply([self._host.save_value("continuation", None)])

    async def _check_when_idle(self) -> None:
        await self._door.queue.wait_for_idle()
        self.check()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _disarm(self) -> None:
        self.armed, self._waits = None, False
        self._stop_timer()
        if self._leave is not None:
            self._leave()
            self._leave = None

    def _give_up(self) -> None:
        expected = self.armed
        self._disarm()
        if expected is not None:
            self._host.feed.publish(ContinuationDropped())

    async def _go_on(self) -> None:
        # An answer that is being stored belongs to this batch: it must be in, and not begin another.
        async with self.lock:
            armed = self.armed
            if armed is None or not self._is_due():
                return
            self._disarm()
            self._starting = armed
            try:
                await self._admit(armed)
            except asyncio.CancelledError:
                raise
            except Exception:
                self._host.feed.publish(ContinuationDropped())
                raise
            finally:
                self._starting = None

    async def _admit(self, armed: Continuation) -> None:
        browser, by = self._browser, mark_of(armed.identity)
        # It runs in the name of who answered: fields that another person sent are no part of it, nor are the
        # tools of a window that has spoken since.
        has_tools = bool(browser.tools) and (browser.tools_by == by or not armed.is_behind)
        turn: Turn = self._door.new_turn(
            "auto-continuation",
            request_id=armed.request_id,
            continuation=True,
            body=browser.body if browser.body_by == by else None,
            client_tools=browser.client_tools() if has_tools else None,
        )
        turn.origin, turn.is_readonly, turn.identity = armed.owner, armed.is_readonly, armed.identity
        turn.tools_by = browser.tools_by if has_tools else None
        more = await self._host.continued(turn) if self._host.continued is not None else ()
        # What was kept goes with the commit that admits it. Nobody keeps another: we hold the lock.
        await self._door.admit(turn, more=[self._host.save_value("continuation", None), *more])
