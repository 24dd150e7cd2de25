"""What one conversation has to do with messengers: what it is asked there, and what it answers.
    inbox --accept--> one commit: the turn and its delivery --> Delivery follows the turn's words
    a redelivery --accept--> known: nothing happens
    messages that follow each other --may_begin--> one turn answers them all

The conversation's rows are its own: it delivers wherever it is, and goes on delivering when it comes back
into memory. Who has the messenger is asked for the bot alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import msgspec

from ..current import current_call
from ..door import stopping
from ..door.answers import Answers
from ..door.continuations import Continuations
from ..door.submissions import AcceptedRun, Submissions
from ..journal import turn_rows
from ..journal.feed import FeedEvent, HistoryChanged, MessageUpdated, TurnAccepted
from ..journal.turn import Turn
from ..messages import Message
from ..store.port import Statement
from ..turn.host import TurnHost
from . import queries
from .delivery import STOPPED, Delivery, Following
from .port import Moved, Refused
from .queries import DeliveryRow
from .questions import QUESTION, Press, may_answer
from .rules import CONTEXT, label_of
from .sending import Bot, Sender
from .values import (
    Attachment,
    Draft,
    MessengerContext,
    MessengerEvent,
    Target,
    decode,
    encode,
    going_on,
)

__all__ = ["MARK", "Accepted", "Courier", "Parts"]

log = logging.getLogger("everthink.messengers")

MARK = "deliveries"
"""Under this name an agent keeps that there may be something to deliver."""
LONGEST_BURST = 10
"""So many times the quiet moment a message waits for one at most."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts from below that one conversation's courier works with."""

    host: TurnHost
    submissions: Submissions
    answers: Answers
    continuations: Continuations
    bots: Callable[[str], Awaitable[Mapping[str, Bot]]]
    """The messengers of an agent, by its id; it is brought into memory if need be."""
    background: Callable[..., None]
    """Keeps a task alive until it ends."""
    begin_anew: Callable[[], Awaitable[object]]
    """Begins a new conversation, and keeps the old one."""
    thread_moved: Callable[[str, str, str, str], Awaitable[None]]
    """Tells who has the messenger that a thread has another id: agent, messenger, before, after."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of an event."""

    is_new: bool
    turn: str


class Courier:
    """Accepts and delivers for one conversation."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._host = parts, parts.host
        self._followed: dict[str, Following] = {}
        self._lanes: dict[tuple[str, str, str | None], asyncio.Lock] = {}
        self._is_marked = False
        self._has_questions = False
        self._leave: Callable[[], None] | None = None

    # --- life

    async def restore(self) -> None:
        """Take up what an earlier process left."""
        self._is_marked = True
        self._join()
        self._has_questions = bool(await queries.open_questions(self._host.store))
        turns: dict[str, DeliveryRow] = {}
        for row in await queries.open_rows(self._host.store):
            turns.setdefault(row.turn, row)
        for row in turns.values():
            self._begin(row, is_new=False)

    def _join(self) -> None:
        if self._leave is None:
            self._leave = self._host.feed.join(self._see)

    def _see(self, event: FeedEvent) -> None:
        match event:
            case TurnAccepted(turn=turn) if turn.trigger == "auto-continuation":
                self._parts.background(self._take_up(turn.id))
            case MessageUpdated() if self._has_questions:
                self._parts.background(self._close_decided())
            case _:
                pass
        turn = cast("Turn | None", getattr(event, "turn", None))
        if turn is not None and (following := self._followed.get(turn.id)) is not None:
            following.see(event)

    # --- what comes in

    async def accept(self, message: Message, *, bot: Bot, root: str, key: str, target: Target) -> Accepted:
        """Accept a message once. It and where its answer goes are durable when this returns."""
        host = self._host
        self._join()
        now = host.clock.now_ms()
        rows: list[DeliveryRow] = []

        def together(turn: str) -> list[Statement]:
            row = DeliveryRow(
                turn, 0, root, bot.id, encode(target), "planned", None, 0, None, None, 0, None, None, now, now
            )
            rows.append(row)
            self._followed[turn] = Following(host, turn, root, is_new=True)
            return [queries.planned(row), *self._marked()]

        try:
            accepted = await self._parts.submissions.accept(
                message,
                idempotency_key=key,
                channel=bot.id,
                run=AcceptedRun(together, None, trigger="messenger"),
            )
        except BaseException:
            for row in rows:
                del self._followed[row.turn]
            raise
        if not rows:
            return Accepted(False, accepted.submission_id)
        self._is_marked = True
        self._begin(rows[0], is_new=True)
        return Accepted(True, rows[0].turn)

    def _marked(self) -> list[Statement]:
        return [] if self._is_marked else [self._host.save_value(MARK, True)]

    async def may_begin(self, turn: Turn) -> bool:
        """Asked when the time of a turn has come that a messenger brought: False when the next one answers
        it, too. Its message is in the conversation then."""
        host = self._host
        context = _context(turn)
        if context is None:
            return True
        burst = await self._burst(turn, context)
        most = turn.created_at + LONGEST_BURST * burst * 1000
        while burst and not turn.signal.aborted and host.generation == turn.generation:
            newest = [turn, *self._same(turn, context)][-1]
            left = min(newest.created_at + burst * 1000, most) - host.clock.now_ms()
            if left <= 0:
                break
            await _first(host.clock.sleep(left / 1000), turn.signal.wait())
        if turn.signal.aborted or host.generation != turn.generation or not self._same(turn, context):
            return True  # what becomes of a stopped turn is decided where all turns are
        await self._merge(turn)
        return False

    async def _burst(self, turn: Turn, context: MessengerContext) -> float:
        following = self._followed.get(turn.id)
        if following is None:
            return 0
        bot = (await self._parts.bots(following.root)).get(context.messenger_id)
        return 0 if bot is None else bot.definition.burst

    def _same(self, turn: Turn, context: MessengerContext) -> list[Turn]:
        """The turns that follow this one without another between them, of the same thread."""
        found: list[Turn] = []
        for other in self._host.turns:
            if other.seq <= turn.seq:
                continue
            theirs = _context(other)
            if theirs is None or (theirs.messenger_id, theirs.thread.id) != (
                context.messenger_id,
                context.thread.id,
            ):
                break
            found.append(other)
        return found

    async def _merge(self, turn: Turn) -> None:
        """The message goes into the conversation without an answer of its own: the next one answers it."""
        host = self._host
        await host.session.note_stored_ids(turn.input)
        plan = host.session.plan_append(turn.input)
        closed = queries.merged(turn.id, now=host.clock.now_ms())
        await host.session.write(plan, closed)
        host.feed.publish(HistoryChanged(turn, "input"))

    # --- commands

    async def command(
        self, command: Literal["stop", "new"], *, bot: Bot, root: str, key: str, target: Target
    ) -> bool:
        """Do what somebody has asked for with a command, and say so. False for a redelivery."""
        host = self._host
        id = f"command:{key}"
        if await queries.is_known(host.store, id):
            return False
        if command == "stop":
            running = [turn for turn in host.turns if _context(turn) is not None or turn.continuation]
            for turn in running:
                await stopping.cancel(host, turn.request_id, STOPPED)
            said = "Stopped." if running else "There is nothing to stop."
        else:
            await stopping.cancel_all(host, STOPPED)
            await self._parts.begin_anew()
            said = "Let's begin anew."
        await self.notice(said, id=id, bot=bot, root=root, target=target)
        return True

    async def notice(self, text: str, *, id: str, bot: Bot, root: str, target: Target) -> None:
        """Say something that is no turn's. It is durable when this returns, and said once for each id."""
        host, now = self._host, self._host.clock.now_ms()
        row = DeliveryRow(
            id, 0, root, bot.id, encode(target), "planned", None, 0, text, None, 0, None, None, now, now
        )
        self._join()
        [fresh, *_] = await host.store.apply([queries.planned(row), *self._marked()])
        self._is_marked = True
        if fresh:
            self._begin(row, is_new=True)

    # --- approvals

    async def press(self, event: MessengerEvent, press: Press, bot: Bot) -> str | None:
        """Somebody has pressed a button of a question. What they alone are told; `None`: nothing."""
        host = self._host
        for row in await queries.open_questions(host.store):
            sender = self._sender(row, bot)
            if row.messenger != bot.id or sender.key(row) != press.key or row.call_id is None:
                continue
            author = event.author
            if not may_answer(decode(Target, row.target), author, bot.definition.approvers):
                return QUESTION.not_yours
            ref = event.answering.get("ref")
            return await self._decide(row, press.approved, label_of(author, None), ref)
        return QUESTION.decided_before

    async def _decide(self, row: DeliveryRow, approved: bool, by: str | None, ref: str | None) -> str | None:
        parts, now = self._parts, self._host.clock.now_ms()
        assert row.call_id is not None
        body = QUESTION.decided(approved=approved, by=by)
        async with parts.continuations.lock:
            goes_on = not parts.answers.is_live(row.call_id)
            more = [queries.decided(row, body, now=now, ref=ref)]
            if goes_on:
                more.append(parts.continuations.save(None))
            if not await parts.answers.apply_approval(row.call_id, approved, more=more):
                return QUESTION.decided_before
            parts.continuations.answered(auto_continue=goes_on, owner=None)
        self._begin(row._replace(body=body), is_new=False)
        return None

    async def _close_decided(self) -> None:
        """Questions that were answered elsewhere say so."""
        host = self._host
        rows = await queries.open_questions(host.store)
        self._has_questions = bool(rows)
        for row in rows:
            holder = await host.session.find_call(row.call_id or "")
            part = (
                next((p for p in holder.parts if p.get("toolCallId") == row.call_id), None)
                if holder
                else None
            )
            if part is None or part.get("state") == "approval-requested":
                continue
            approval: Any = part.get("approval") or {}
            body = QUESTION.decided(approved=approval.get("approved") is True, by=None)
            [fresh] = await host.store.apply([queries.decided(row, body, now=host.clock.now_ms())])
            if fresh:
                self._begin(row._replace(body=body), is_new=False)

    async def continued(self, turn: Turn) -> list[Statement]:
        """What goes with the commit of a continuation: it is shown where the answer before it was."""
        leaf = self._host.session.leaf
        if not self._is_marked or leaf is None:
            return []
        before = await turn_rows.of_answer(self._host.store, leaf.id)
        if before is None:
            return []
        now = self._host.clock.now_ms()
        rows = [row for row in await queries.of_turn(self._host.store, before.id) if row.part == 0]
        return [
            queries.planned(
                row._replace(
                    turn=turn.id,
                    target=going_on(row.target),
                    state="planned",
                    ref=None,
                    shown=0,
                    body=None,
                    attempts=0,
                    not_before=None,
                    error=None,
                    created_at=now,
                    updated_at=now,
                )
            )
            for row in rows
        ]

    async def _take_up(self, turn: str) -> None:
        if turn not in self._followed and (rows := await queries.of_turn(self._host.store, turn)):
            self._begin(rows[0], is_new=False)

    # --- delivering

    def _begin(self, row: DeliveryRow, *, is_new: bool) -> None:
        """Deliver a turn, a notice, or what was decided of a question, after what goes to the same place."""
        lane = self._lanes.setdefault(_lane(row), asyncio.Lock())
        follows = row.body is None
        if follows and row.turn not in self._followed:
            self._followed[row.turn] = Following(self._host, row.turn, row.root, is_new=is_new)
        running: list[Delivery] = []
        rests: Callable[[], bool] = lambda: bool(running) and running[0].waits  # noqa: E731
        self._parts.background(self._deliver(row, lane, running), rests=rests)

    async def _deliver(self, row: DeliveryRow, lane: asyncio.Lock, running: list[Delivery]) -> None:
        try:
            async with lane:
                bot = (await self._parts.bots(row.root)).get(row.messenger)
                if bot is None:
                    log.error("%s: there is no messenger %r any more", self._host.id, row.messenger)
                    return
                sender = self._sender(row, bot)
                if row.body is not None:
                    rows = await queries.of_turn(self._host.store, row.turn)
                    fresh = next((one for one in rows if one.part == row.part), None)
                    if fresh is not None and fresh.is_open:
                        await sender.put(fresh, Draft(text=fresh.body or row.body))
                    return
                following = self._followed[row.turn]
                delivery = Delivery(
                    host=self._host, sender=sender, following=following, row=row, cancel=self._cancel
                )
                running.append(delivery)
                await delivery.run()
                self._has_questions = self._has_questions or following.words.asks
                if self._has_questions:
                    await self._close_decided()
        finally:
            if row.body is None:
                self._followed.pop(row.turn, None)
            if not lane.locked():
                self._lanes.pop(_lane(row), None)

    def _sender(self, row: DeliveryRow, bot: Bot) -> Sender:
        host = self._host
        return Sender(
            agent=host.id,
            store=host.store,
            clock=host.clock,
            bot=bot,
            emit=host.emit,
            moved=partial(self._moved, row.root, bot.id),
        )

    def _moved(self, root: str, messenger: str, before: Target, moved: Moved) -> None:
        async def note() -> None:
            await self._host.store.apply([queries.moved(messenger, encode(before), encode(moved.to))])
            await self._parts.thread_moved(root, messenger, moved.before, moved.after)

        self._parts.background(note())

    def _cancel(self, turn: str, reason: str) -> None:
        open_turn = self._host.turns.of(turn)
        if open_turn is not None:
            stopping.cancel(self._host, open_turn.request_id, reason)

    # --- files

    async def fetch(self, attachment: Attachment, *, most: int) -> bytes:
        """The bytes of a file that came with what people have said last, or with what this turn answers."""
        host = self._host
        context = self.context(current_call(host.id)[1])
        row = None if context is None else await queries.latest_of(host.store, context.messenger_id)
        bot = None if row is None else (await self._parts.bots(row.root)).get(row.messenger)
        if bot is None:
            raise Refused("Nothing came here by a messenger, so no file did.")
        return await bot.definition.messenger.fetch(attachment, most=most)

    # --- whose turn it is

    def context(self, turn_id: str | None) -> MessengerContext | None:
        """Whom an answer is for: of a turn that runs, else of what people have said last."""
        turn = None if turn_id is None else self._host.turns.of(turn_id)
        if turn is not None and (found := _context(turn)) is not None:
            return found
        last = next((m for m in reversed(self._host.session.path) if m.role == "user"), None)
        return None if last is None else _context_in([last])


def _lane(row: DeliveryRow) -> tuple[str, str, str | None]:
    """Where people read it: what goes to one place goes there in its order."""
    target = decode(Target, row.target)
    return row.messenger, target.chat, target.thread


def _context(turn: Turn) -> MessengerContext | None:
    """Whom the answer of a turn is for, if a messenger brought it."""
    return _context_in(turn.input) if turn.trigger == "messenger" else None


def _context_in(messages: Sequence[Message]) -> MessengerContext | None:
    kept = (messages[-1].metadata or {}).get(CONTEXT) if messages else None
    if kept is None:
        return None
    try:
        return msgspec.convert(kept, MessengerContext)
    except msgspec.ValidationError:
        return None  # of a release that said it otherwise


async def _first(*waits: Awaitable[Any]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
