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

from ..children import queries as runs
from ..children.family import BELOW
from ..children.telling import OPEN
from ..current import current_call
from ..door import stopping
from ..door.answers import Answers
from ..door.continuations import Continuations
from ..door.submissions import AcceptedRun, Submissions
from ..identity import Approver
from ..journal import turn_rows
from ..journal.feed import Cleared, FeedEvent, HistoryChanged, MessageUpdated, RunTold, TurnAccepted
from ..journal.read import is_asking
from ..journal.turn import Turn
from ..messages import Message, Part
from ..messengers.port import Moved, Refused
from ..messengers.values import (
    Attachment,
    Author,
    Draft,
    MessengerContext,
    MessengerEvent,
    Target,
    decode,
    encode,
    going_on,
)
from ..observe.events import Audit
from ..observe.messenger_events import MessengerDeliveryFailed, MessengerRefused
from ..store.port import AgentStore, Statement
from ..turn.host import TurnHost
from . import queries
from .crowd import TOO_MANY, Crowd
from .delivery import STOPPED, Delivery, Following
from .queries import DeliveryRow
from .questions import QUESTION, Press, may_answer
from .rules import CONTEXT, label_of
from .sending import GONE, IN_DOUBT, PATIENCE, Bot, Sender, key_of

__all__ = ["MARK", "Accepted", "Courier", "Parts"]

log = logging.getLogger("everthink.messengers")

MARK = "deliveries"
"""Under this name an agent keeps that there may be something to deliver."""
NOTHING_TO_STOP = "There is nothing to stop."
UNDECIDED = "The question was closed before anybody decided."
"""What the model reads of a call that waits for nobody any more."""
PER_THREAD = ("thread", "agent")
"""Who answers is another one in each thread."""
TAKEN_UP = ("auto-continuation", "agent-tool", "submission")
"""Turns that others bring: what they say may be planned to be shown."""
ENDS = ("finished", "aborted", "error")
"""What a parent is told of a run that is over for good."""
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
    rests: Callable[[], bool]
    """True while nothing goes on before a person answers."""
    courier: Callable[[str], Awaitable[Courier | None]]
    """That of another agent, by the id of its rows; `None` when there is no such agent any more."""
    begin_anew: Callable[[], Awaitable[object]]
    """Begins a new conversation, and keeps the old one."""
    stop_run: Callable[[str, object], Awaitable[object]]
    """Stops a run of a child, by its id, with the reason."""
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
        self._crowd = Crowd(self._host.limits.waiting_turns)
        self._is_marked = False
        self._has_questions = False
        self._leave: Callable[[], None] | None = None

    # --- life

    async def restore(self) -> None:
        """Take up what an earlier process left."""
        self._is_marked = True
        self._join()
        self._has_questions = bool(await queries.open_questions(self._host.store))
        await self._begin_all(await queries.open_rows(self._host.store))

    async def deliver_again(self) -> int:
        """Send what could not be shown, however often it was tried. How many messages that are."""
        store, now = self._host.store, self._host.clock.now_ms()
        found = [row for row in await queries.failed_rows(store) if row.error != IN_DOUBT]
        found = [row for row in found if row.turn not in self._followed]
        if found:
            self._join()
            await store.apply([*(queries.again(row, now=now) for row in found), *self._marked()])
            self._is_marked = True
            # A turn's words are followed from its first message on, which may be shown.
            firsts = [
                (await queries.of_turn(store, row.turn))[0] if row.body is None else row for row in found
            ]
            await self._begin_all(firsts)
        return len(found)

    async def _begin_all(self, rows: Sequence[DeliveryRow]) -> None:
        turns: dict[object, DeliveryRow] = {}
        for row in rows:
            # What a turn says is one delivery; what says something of its own is one each.
            turns.setdefault(row.turn if row.body is None else (row.turn, row.part), row)
        for row in turns.values():
            self._begin(row, is_new=False)
            following = self._followed.get(row.turn)
            turn = None if following is None else await turn_rows.one(self._host.store, row.turn)
            if following is not None and turn is not None:  # nothing has gone on yet
                following.was_cut = turn.started_at is not None and turn.ended_at is None

    def _join(self) -> None:
        if self._leave is None:
            self._leave = self._host.feed.join(self._see)

    def _see(self, event: FeedEvent) -> None:
        match event:
            case TurnAccepted(turn=turn) if turn.trigger in TAKEN_UP:
                self._parts.background(self._take_up(turn.id))
            case RunTold(run_id=run, event=told) if told.get("kind") in ENDS:
                self._parts.background(self._close_below(run))
            case Cleared():
                self._parts.background(self.close_questions())
            case MessageUpdated() | HistoryChanged() if self._has_questions:
                self._parts.background(self._close_decided())
            case _:
                pass
        turn = cast("Turn | None", getattr(event, "turn", None))
        if turn is not None and (following := self._followed.get(turn.id)) is not None:
            following.see(event)

    # --- what comes in

    async def accept(self, message: Message, *, bot: Bot, root: str, key: str, target: Target) -> Accepted:
        """Accept a message once. It and where its answer goes are durable when this returns."""
        context = _context_in([message])
        if context is None:
            return await self._accept(message, bot=bot, root=root, key=key, target=target)
        person = self._crowd.person(context)
        waiting = (found for turn in self._host.turns if (found := _context(turn)) is not None)
        most = self._crowd.too_many(person, waiting, together=bool(bot.definition.burst))
        if most is not None and await turn_rows.of_key(self._host.store, key) is None:
            self._host.emit(MessengerRefused(messenger=bot.id, reason=f"{most} messages of its author wait"))
            # Told once for each that was taken before; where the platform shows that we think, each time.
            newest = max((turn.id for turn in self._host.turns), default="")
            id = key if target.more.get("waits") else f"{person[1]}:{newest}"
            await self.notice(TOO_MANY.format(most), id=f"crowd:{id}", bot=bot, root=root, target=target)
            return Accepted(False, "")
        with self._crowd.arriving(person):
            return await self._accept(message, bot=bot, root=root, key=key, target=target)

    async def _accept(self, message: Message, *, bot: Bot, root: str, key: str, target: Target) -> Accepted:
        host = self._host
        self._join()
        now = host.clock.now_ms()
        rows: list[DeliveryRow] = []

        def together(turn: str) -> list[Statement]:
            row = DeliveryRow(
                turn, 0, root, bot.id, encode(target), "planned", None, 0, None, None, 0, None, None, now, now
            )
            rows.append(row)
            following = self._followed[turn] = Following(host, turn, root, is_new=True)
            following.planned = row if bot.may_announce else None
            return [queries.planned(row), *self._marked()]

        try:
            accepted = await self._parts.submissions.accept(
                message,
                idempotency_key=key,
                channel=bot.id,
                run=AcceptedRun(together, None, trigger="messenger", at_once=not bot.definition.burst),
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
        if not burst:
            return True  # one by one, also what came while another was answered
        most = turn.created_at + LONGEST_BURST * burst * 1000
        while not turn.signal.aborted and host.generation == turn.generation:
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
            ended = await self._end_waiting(QUESTION.stopped)
            said = "Stopped." if running or ended else NOTHING_TO_STOP
        else:
            await stopping.cancel_all(host, STOPPED)
            await self._end_waiting(QUESTION.closed)
            await self._parts.begin_anew()
            await self.close_questions()
            said = "Let's begin anew."
        if target.more.get("is_slash") and said != "Stopped." and bot.definition.conversation in PER_THREAD:
            handle = bot.definition.messenger.user_name
            said += f" A slash command tells me of no thread: to mean one, write there: @{handle} /{command}"
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

    def asks_for(self, above: DeliveryRow, *, turn: str, name: str) -> list[Statement]:
        """What goes with the commit that accepts a turn for an agent above: what the turn asks is shown where
        `above` is. `name`: what people call who asks."""
        self._join()
        target = msgspec.structs.replace(decode(Target, going_on(above.target)), asks_for=name)
        now = self._host.clock.now_ms()
        return [
            queries.planned(above.anew(now=now, turn=turn, part=0, target=encode(target))),
            *self._marked(),
        ]

    async def press(self, event: MessengerEvent, press: Press, bot: Bot) -> str | None:
        """Somebody has pressed a button of a question. What they alone are told; `None`: nothing."""
        row = await self._asked(press, bot)
        if row is None:
            return await self._pressed_below(event, press, bot)
        ref = event.answering.get("ref")
        if row.body is None:
            if not may_answer(decode(Target, row.target), event.author, bot.definition.approvers):
                self._audit(event, bot, press, row, "not theirs to decide")
                return QUESTION.not_yours
            if await self._is_over(row):
                await self.close_questions()
            elif await self._decide(row, press.approved, approver_of(event.author, bot), event.author, ref):
                self._audit(event, bot, press, row)
                return None
            await self._close_decided()
            row = await self._asked(press, bot) or row
        if row.body is not None and ref is not None:
            await self._take_buttons(row, row.body, ref)
        return QUESTION.decided_before(row.body)

    async def _asked(self, press: Press, bot: Bot) -> DeliveryRow | None:
        """The question that a button belongs to, if this conversation has asked it."""
        host = self._host
        asked = await queries.questions(host.store, bot.id)
        return next((row for row in asked if key_of(host.id, row) == press.key), None)

    async def _pressed_below(self, event: MessengerEvent, press: Press, bot: Bot) -> str | None:
        """An agent that works for this one may have asked: it is told."""
        below = await queries.questions_below(self._host.store, bot.id)
        agent = next((agent for agent, row in below if key_of(agent, row) == press.key), None)
        courier = None if agent is None else await self._parts.courier(agent)
        return QUESTION.closed if courier is None else await courier.press(event, press, bot)

    async def _take_buttons(self, row: DeliveryRow, body: str, ref: str) -> None:
        """A message with the buttons of a decided question says so, be it one of which nobody knows: one that
        was sent twice, or could not be edited."""
        host, now = self._host, self._host.clock.now_ms()
        rows = await queries.of_turn(host.store, row.turn)
        known = next((one for one in rows if one.ref == ref), None)
        if known is None:
            known = _copy(rows, row, body, ref, now=now)
            change = queries.planned(known)
        elif known.state == "failed" and known.ref is not None:
            change = queries.again(known, now=now)
        else:
            return
        await host.store.apply([change])
        self._begin(known._replace(body=body), is_new=False)

    def _audit(
        self, event: MessengerEvent, bot: Bot, press: Press, row: DeliveryRow, refused: str | None = None
    ) -> None:
        """Tell who has said yes or no, or was kept from it."""
        self._host.emit(
            Audit(
                action="approval" if press.approved else "denial",
                allowed=refused is None,
                person=approver_of(event.author, bot).person,
                target=row.call_id,
                reason=refused,
            )
        )

    async def _decide(
        self, row: DeliveryRow, approved: bool, approver: Approver, author: Author, ref: str | None
    ) -> bool:
        """Say yes or no to a call. False when somebody has before."""
        parts, now = self._parts, self._host.clock.now_ms()
        assert row.call_id is not None
        body = await self._body(row, QUESTION.decided(approved=approved, by=label_of(author, None)))
        shown = [row._replace(body=body)]
        if ref is not None and ref != row.ref:
            # The message that was pressed is one of which nobody knew: another may be on its way.
            rows = await queries.of_turn(self._host.store, row.turn)
            shown.append(_copy(rows, row, body, ref, now=now))
        async with parts.continuations.lock:
            goes_on = not parts.answers.is_live(row.call_id)
            more = [queries.decided(row, body, now=now, ref=ref), *map(queries.planned, shown[1:])]
            if goes_on:
                more.append(parts.continuations.save(None))
            if not await parts.answers.apply_approval(row.call_id, approved, more=more, approver=approver):
                return False
            parts.continuations.answered(auto_continue=goes_on, owner=None)
        for one in shown:
            self._begin(one, is_new=False)
        return True

    async def _close_decided(self) -> None:
        """Questions that were answered elsewhere say so."""
        host = self._host
        rows = await queries.open_questions(host.store)
        self._has_questions = bool(rows)
        for row in rows:
            part = await self._part(row)
            if part is None or part.get("state") == "approval-requested":
                continue
            body = await self._body(row, QUESTION.became(part))
            [fresh] = await host.store.apply([queries.decided(row, body, now=host.clock.now_ms())])
            if fresh:
                self._begin(row._replace(body=body), is_new=False)

    async def _part(self, row: DeliveryRow) -> Part | None:
        """The call that a question is about, as the conversation has it."""
        holder = await self._host.session.find_call(row.call_id or "")
        parts = [] if holder is None else holder.parts
        return next((part for part in parts if part.get("toolCallId") == row.call_id), None)

    async def _body(self, row: DeliveryRow, outcome: str) -> str:
        """What a question says from now on: what was asked, and what became of it."""
        part = await self._part(row)
        return outcome if part is None else QUESTION.with_outcome(part, outcome, by=_asks_for(row))

    async def _is_over(self, row: DeliveryRow) -> bool:
        """True for what was asked in a run that nobody waits for any more."""
        host = self._host
        if _asks_for(row) is None:
            return False
        run = (await runs.of_children(host.store.database, [host.id])).get(host.id)
        return run is None or run.status not in OPEN

    async def close_questions(self, why: str = QUESTION.closed) -> None:
        """Nobody is to decide any more what was asked here, wherever they look. `why`: what people read."""
        for row in await queries.open_questions(self._host.store):
            await self._close(row, why)

    async def _close(self, row: DeliveryRow, why: str) -> None:
        """The call waits for nobody any more, and the question says so: one commit, where it still waits."""
        host, answers = self._host, self._parts.answers
        body = await self._body(row, why) if why == QUESTION.stopped else why
        closed = queries.decided(row, body, now=host.clock.now_ms())
        assert row.call_id is not None
        async with self._parts.continuations.lock:
            if not await answers.apply_approval(row.call_id, False, reason=UNDECIDED, more=[closed]):
                await host.store.apply([closed])  # the conversation has gone on, or is another one
        rows = await queries.of_turn(host.store, row.turn)
        fresh = next((one for one in rows if one.part == row.part), row)
        if fresh.body == body:
            self._begin(fresh, is_new=False)

    async def _end_waiting(self, why: str) -> bool:
        """End what waits for a person who was asked here: calls of this conversation, and runs of children
        that nothing here waits for. False when nothing does."""
        store, continuations = self._host.store, self._parts.continuations
        asked = await queries.open_questions(store)
        await self.close_questions(why)
        if asked and continuations.pending is not None:
            async with continuations.lock:  # another call of the batch had its answer
                await store.apply([continuations.forget()])
        waiting = [run for run in await runs.open_runs(store) if await self._asks_here(run)]
        for run in waiting:
            await self._parts.stop_run(run.run_id, STOPPED)
        return bool(asked or waiting)

    async def _asks_here(self, run: runs.RunRow) -> bool:
        """True for a run that is shown in a chat, and waits for a person's answer: it, or one below it."""
        store = self._host.store
        if not await queries.is_known(AgentStore(store.database, run.child), run.run_id):
            return False
        below = [AgentStore(store.database, agent) for (agent,) in await store.fetch(BELOW, run.child)]
        return any([await is_asking(one) for one in below])

    async def _close_below(self, run_id: str) -> None:
        """A run is over: what it has asked and nobody has decided is closed."""
        store = self._host.store
        run = await runs.one(store, run_id)
        if run is None or not await queries.open_questions(AgentStore(store.database, run.child)):
            return
        courier = await self._parts.courier(run.child)
        if courier is not None:
            await courier.close_questions()

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
            queries.planned(row.anew(now=now, turn=turn.id, target=going_on(row.target)))
            for row in rows
            if not await self._is_over(row)
        ]

    async def addressed(self, turn: Turn) -> list[Statement]:
        """What goes with the commit that accepts a turn which code submits to a messenger: it is shown where
        people have talked with this conversation last."""
        before = None if turn.channel is None else await queries.latest_of(self._host.store, turn.channel)
        if before is None or _asks_for(before) is not None:
            return []
        self._join()
        target = msgspec.structs.replace(decode(Target, going_on(before.target)), reply_to=None)
        now = self._host.clock.now_ms()
        row = before.anew(now=now, turn=turn.id, part=0, target=encode(target))
        return [queries.planned(row), *self._marked()]

    def said_all(self, turn: Turn) -> list[Statement]:
        """What goes with the last commit of a turn whose answer is sent next."""
        following = self._followed.get(turn.id)
        return [] if following is None else following.announce()

    async def _take_up(self, turn: str) -> None:
        if turn not in self._followed and (rows := await queries.of_turn(self._host.store, turn)):
            self._is_marked = True
            self._begin(rows[0], is_new=False)

    # --- delivering

    def _begin(self, row: DeliveryRow, *, is_new: bool) -> None:
        """Deliver a turn, a notice, or what was decided of a question, after what goes to the same place."""
        lane = self._lanes.setdefault(_lane(row), asyncio.Lock())
        follows = row.body is None
        if follows and row.turn not in self._followed:
            self._followed[row.turn] = Following(self._host, row.turn, row.root, is_new=is_new)
        running: list[Delivery | _Waiting] = []
        rests: Callable[[], bool] = lambda: bool(running) and running[0].waits  # noqa: E731
        self._parts.background(self._deliver(row, lane, running), rests=rests)

    async def _deliver(
        self, row: DeliveryRow, lane: asyncio.Lock, running: list[Delivery | _Waiting]
    ) -> None:
        try:
            async with lane:
                bot = (await self._parts.bots(row.root)).get(row.messenger)
                if bot is None:
                    running[:] = [_WAITS]
                    await self._without_messenger(row)
                    return
                sender = self._sender(row, bot)
                while (failure := await self._tried(row, sender, running)) is not None:
                    if not await self._put_off(row, sender, failure):
                        return
        finally:
            if row.body is None:
                self._followed.pop(row.turn, None)
            if not lane.locked():
                self._lanes.pop(_lane(row), None)

    async def _without_messenger(self, row: DeliveryRow) -> None:
        """Its messenger is called otherwise now, or was taken away. It is tried when that comes back, in
        another process, and counts as failed when it has not within a day of when that was seen first."""
        host = self._host
        rows = [one for one in await queries.of_turn(host.store, row.turn) if one.is_open]
        if row.body is not None:
            rows = [one for one in rows if one.part == row.part]
        if not rows:
            return
        log.info("%s: there is no messenger %r any more", host.id, row.messenger)  # who has it warns
        now = host.clock.now_ms()
        since = min((one.updated_at for one in rows if one.error == GONE), default=now)
        seen = [one._replace(error=GONE, updated_at=since) for one in rows]
        await host.store.apply([queries.changed(one) for one in seen if one not in rows])
        await host.clock.sleep(max(0.0, since / 1000 + PATIENCE - now / 1000))
        for one in await queries.of_turn(host.store, row.turn):
            if one.is_open and one.part in {known.part for known in seen}:
                now = host.clock.now_ms()
                failed = one._replace(state="failed", error=GONE, not_before=None, updated_at=now)
                await host.store.apply([queries.changed(failed)])
                host.emit(
                    MessengerDeliveryFailed(
                        messenger=one.messenger, turn_id=one.turn, part=one.part, error=GONE
                    )
                )

    async def _tried(
        self, row: DeliveryRow, sender: Sender, running: list[Delivery | _Waiting]
    ) -> Exception | None:
        """Show it to its end. What was raised, if that is nothing that a platform does."""
        try:
            if row.body is not None:
                rows = await queries.of_turn(self._host.store, row.turn)
                fresh = next((one for one in rows if one.part == row.part), None)
                if fresh is not None and fresh.is_open:
                    await sender.put(fresh, Draft(text=fresh.body or row.body))
                return None
            following = self._followed[row.turn]
            delivery = Delivery(
                host=self._host,
                sender=sender,
                following=following,
                row=row,
                cancel=self._cancel,
                rests=self._parts.rests,
            )
            running[:] = [delivery]
            await delivery.run()
            self._has_questions = self._has_questions or following.words.asks
            if self._has_questions:
                await self._close_decided()
        except Exception as error:
            log.exception(
                "%s: showing a message on %s failed. It is stored, and tried again, %s times at most.",
                self._host.id,
                row.messenger,
                sender.bot.definition.delivery.max_attempts,
            )
            return error
        return None

    async def _put_off(self, row: DeliveryRow, sender: Sender, failure: Exception) -> bool:
        """Wait until it may be tried again. False when it is given up."""
        host = self._host
        rows = [one for one in await queries.of_turn(host.store, row.turn) if one.is_open]
        if row.body is not None:
            rows = [one for one in rows if one.part == row.part]
        if not rows:
            return False
        first = await sender.put_off(rows[0], failure)
        if not first.is_open:
            for one in rows[1:]:
                await sender.fail(one, "What comes before it could not be delivered.")
            return False
        await host.clock.sleep(sender.left(first))
        if row.body is None:
            self._followed[row.turn] = Following(host, row.turn, row.root, is_new=False)
        return True

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
            return _with_those_before(found, self._host.session.path, turn.input[-1].id)
        said = [message for message in self._host.session.path if message.role == "user"]
        if turn is not None and turn.trigger == "submission" and turn.channel is not None:
            found = (_context_in([message]) for message in reversed(said))
            return next((one for one in found if one and one.messenger_id == turn.channel), None)
        return _context_in(said[-1:])


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A delivery that has nothing to do now."""

    waits: bool = True


_WAITS = _Waiting()


def _asks_for(row: DeliveryRow) -> str | None:
    return decode(Target, row.target).asks_for


def _lane(row: DeliveryRow) -> tuple[str, str, str | None]:
    """Where people read it: what goes to one place goes there in its order."""
    target = decode(Target, row.target)
    return row.messenger, target.chat, target.thread


def _copy(rows: Sequence[DeliveryRow], asked: DeliveryRow, body: str, ref: str, *, now: int) -> DeliveryRow:
    """Another message with the same question, which says what became of it. `rows`: those of its turn."""
    part = 1 + max(row.part for row in rows)
    return asked.anew(now=now, part=part, body=body, ref=ref)


def _context(turn: Turn) -> MessengerContext | None:
    """Whom the answer of a turn is for, if a messenger brought it."""
    return _context_in(turn.input) if turn.trigger == "messenger" else None


def _with_those_before(context: MessengerContext, path: Sequence[Message], id: str) -> MessengerContext:
    """The context of the message `id` with the files of those that it answers together: what was said before
    it in the same thread, and has no answer of its own."""
    if context.message is None:
        return context
    at = next((number for number in range(len(path) - 1, -1, -1) if path[number].id == id), len(path))
    files = list(context.message.attachments)
    for message in reversed(path[:at]):
        said = _context_in([message]) if message.role == "user" else None
        if said is None or said.message is None:
            break
        if (said.messenger_id, said.thread.id) != (context.messenger_id, context.thread.id):
            break
        files[:0] = said.message.attachments
    if len(files) == len(context.message.attachments):
        return context
    message = msgspec.structs.replace(context.message, attachments=tuple(files))
    return msgspec.structs.replace(context, message=message)


def _context_in(messages: Sequence[Message]) -> MessengerContext | None:
    kept = (messages[-1].metadata or {}).get(CONTEXT) if messages else None
    if kept is None:
        return None
    try:
        return msgspec.convert(kept, MessengerContext)
    except msgspec.ValidationError:
        return None  # of a release that said it otherwise


def approver_of(author: Author, bot: Bot) -> Approver:
    """Who has pressed a button, as the call is told."""
    return Approver(
        messenger=bot.id,
        provider=bot.definition.messenger.provider,
        user_id=author.user_id,
        user_name=author.user_name,
        full_name=author.full_name,
    )


async def _first(*waits: Awaitable[Any]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
