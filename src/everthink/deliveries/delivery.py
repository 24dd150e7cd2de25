"""The words of one turn, shown on a platform while they are said, and whole when it is over.

    the turn's journal --Following--> text --Delivery--> one message that is edited --> those that follow it
                                                                                    --> questions with buttons

It reads what every reader reads, so a turn that goes on after a crash goes on in the same message.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..errors import Unreadable
from ..hooks.values import TurnStatus
from ..journal import turn_rows
from ..journal.feed import ChunksStored, FeedEvent, RecoveryChanged, TurnEnded, TurnRewound
from ..journal.read import texts_of
from ..journal.segments import readable
from ..messages import Message, Part
from ..messengers.port import DeliveryError
from ..messengers.values import Draft, Target, decode, going_on
from ..store.port import Statement
from ..turn.host import TurnHost
from . import queries
from .queries import DeliveryRow
from .questions import QUESTION, asked_by
from .sending import IN_DOUBT, Sender, is_unreadable
from .spoken import Words, pieces, visible_part

__all__ = ["STOPPED", "Delivery", "Following"]

log = logging.getLogger("everthink.messengers")

STOPPED = "Stopped in the messenger"
"""Why a turn was stopped by `/stop`: whoever did that has been told."""
BLOCKED = "Its answer cannot be delivered"
FIRST_AFTER = 0.3
"""Seconds for which an answer is written before it is shown. One that is whole by then is sent once."""
TYPING_AFTER = 0.3
"""Seconds of silence after which people are shown that somebody writes."""


class Following:
    """What one turn has said so far, and whether it is over."""

    def __init__(self, host: TurnHost, turn: str, root: str, *, is_new: bool) -> None:
        self._host, self.turn, self.is_new = host, turn, is_new
        self.root = root
        """The id of the agent that has the messenger."""
        self.words = Words()
        self.status: TurnStatus | None = None
        """How it has ended; `None` while it has not."""
        self.was_cut = False
        """True when it was cut off and went on, or was to."""
        self.moved = asyncio.Event()
        self.planned: DeliveryRow | None = None
        """The message that is to show it, while nothing was tried and its being sent may be announced."""
        self.announced: DeliveryRow | None = None
        """The same, as the commit leaves it with which the turn ends."""
        # What was said before we came is not read yet.
        self._is_behind = not is_new

    def see(self, event: FeedEvent) -> None:
        """Something happens in the turn."""
        match event:
            case ChunksStored(first_seq=first, chunks=chunks):
                known = self.words.chunks
                if first > known:
                    self._is_behind = True
                else:
                    self.words.take(chunks[known - first :])
            case TurnRewound():
                self.words = Words()
            case RecoveryChanged(recovering=True):
                self.was_cut = True
            case TurnEnded(status=status):
                self.status = status
            case _:
                return
        self.moved.set()

    def announce(self) -> list[Statement]:
        """Say with the end of the turn that its answer is being sent, if nothing of it was."""
        row, self.planned = self.planned, None
        if row is None:
            return []
        self.announced = row._replace(state="sending", updated_at=self._host.clock.now_ms())
        return [queries.changed(self.announced)]

    async def catch_up(self) -> None:
        """Have all that was said, and know whether it is over."""
        store = self._host.store
        while self._is_behind:
            self._is_behind = False
            words = Words()
            words.take(readable(await texts_of(store, self.turn)))
            if words.chunks >= self.words.chunks:
                self.words = words
            row = await turn_rows.one(store, self.turn)
            if row is None or row.ended_at is not None:
                self.status = "skipped" if row is None else _status(row.status)
                self.was_cut = self.was_cut or (row is not None and row.status == "error" and row.rewound > 0)
            if self.status is not None and not self.words.chunks and row is not None:
                self._read_answer(await self._answer(row.message_id))

    async def _answer(self, message_id: str | None) -> Message | None:
        return None if message_id is None else await self._host.session.get_message(message_id)

    def _read_answer(self, answer: Message | None) -> None:
        """Its chunks are not kept any more: the message says the same."""
        parts: list[Part] = [] if answer is None else answer.parts
        texts = [str(part.get("text", "")) for part in parts if part.get("type") == "text"]
        self.words.asks = True  # it may: the message says
        self.words.text = " ".join(text.strip() for text in texts if text.strip())

    @property
    def text(self) -> str:
        """What it has said."""
        return self.words.text.lstrip()


@dataclass(slots=True, kw_only=True)
class Delivery:
    """Shows one turn. `cancel` stops the turn, when nobody can read it; `rests` says whether it only waits
    for a person's answer, so that nobody writes."""

    host: TurnHost
    sender: Sender
    following: Following
    row: DeliveryRow
    """The streamed message."""
    cancel: Callable[[str, str], object]
    rests: Callable[[], bool]
    waits: bool = False
    """True while there is nothing to show."""
    _shown: str = ""
    _next: float = -math.inf

    async def run(self) -> None:
        """Show it to its end."""
        following = self.following
        rows = [self.row]
        if not following.is_new:
            await following.catch_up()
            rows = await queries.of_turn(self.host.store, self.row.turn)
        if not rows:
            return  # the conversation was deleted
        self.row = rows[0]
        if self.row.is_open and following.status is None:
            await (self._stream() if self._asks_for is None else self._wait(None, until_over=True))
        if is_unreadable(self.row):
            self.cancel(self.row.turn, BLOCKED)
            await self._wait(None, until_over=True)
            await self._give_up()
            return
        await self._finish(rows[1:])

    @property
    def _asks_for(self) -> str | None:
        """Whose questions alone are shown: see `Target.asks_for`."""
        return decode(Target, self.row.target).asks_for

    # --- while it is said

    async def _stream(self) -> None:
        """Show what is said, until the turn is over or nobody can read it."""
        definition = self.sender.bot.definition
        messenger, limits = definition.messenger, definition.messenger.limits
        target = decode(Target, self.row.target)
        spacing = limits.edit_every if target.is_direct else limits.edit_every_in_groups
        visible = self._visible
        streams = messenger.capabilities.stream and messenger.capabilities.edit_messages
        clock, following = self.host.clock, self.following
        typing_at = clock.monotonic() + TYPING_AFTER
        typing: asyncio.Task[None] | None = None
        first_at: float | None = None
        self._next = clock.monotonic() + self.sender.left(self.row)
        try:
            while following.status is None:
                following.moved.clear()
                now = clock.monotonic()
                text = visible_part(following.text, visible, length=limits.length).rstrip()
                is_first = self.row.ref is None
                is_due = streams and text != self._shown and (not is_first or len(text) >= limits.first_words)
                if is_due and is_first:
                    first_at = now + FIRST_AFTER if first_at is None else first_at
                    self._next = max(self._next, first_at)
                if is_due and now >= self._next:
                    await self._show(text, spacing)
                    if self.row.state == "failed":
                        return
                    if self.row.error == IN_DOUBT:
                        await self._wait(None, until_over=True)
                    continue
                wait = self._next - now if is_due else math.inf
                if is_first:
                    if now >= typing_at:
                        typing_at = now + limits.typing_for
                        if not self.rests() and (typing is None or typing.done()):
                            typing = asyncio.create_task(self._typing(target))
                        continue
                    wait = min(wait, typing_at - now)
                await self._wait(wait)
                await following.catch_up()
        finally:
            if typing is not None:
                typing.cancel()  # it is not waited for: what is said comes first

    async def _show(self, text: str, spacing: float) -> None:
        clock = self.host.clock
        self.following.planned = None
        self.row = await self.sender.try_once(self.row, Draft(text=text, is_final=False))
        self._next = clock.monotonic() + max(spacing, self.sender.left(self.row))
        if self.row.shown == len(text) and self.row.error is None:
            self._shown = text

    async def _typing(self, target: Target) -> None:
        try:
            await self.sender.bot.definition.messenger.typing(target)
        except DeliveryError as error:
            log.info("%s: nobody sees that the bot writes: %s", self.host.id, error)
        except Exception:
            log.exception("%s: typing of the adapter raised. The answer is shown all the same.", self.host.id)

    async def _wait(self, seconds: float | None, *, until_over: bool = False) -> None:
        """Wait until the turn says more, or so many seconds."""
        self.waits = True
        try:
            while until_over and self.following.status is None:
                self.following.moved.clear()
                await self.following.moved.wait()
            if until_over:
                return
            moved = self.following.moved
            if seconds is None or math.isinf(seconds):
                await moved.wait()
                return
            timer = self.host.clock.call_later(max(0.0, seconds), moved.set)
            try:
                await moved.wait()
            finally:
                timer.cancel()
        finally:
            self.waits = False

    # --- when it is over

    async def _finish(self, known: list[DeliveryRow]) -> None:
        """Show the whole of it: the streamed message as it ends, what follows it, what is asked."""
        await self.following.catch_up()
        asked = await self._asked()
        texts = await self._texts(has_questions=bool(asked))
        # A turn that ended in another way has not stored it.
        announced = self.following.announced if self.following.status == "completed" else None
        self.row = announced or self.row
        rows = [self.row, *await self._planned(known, texts, asked)]
        if not texts and self.row.is_open and self.row.ref is None:
            if self._asks_for is None:
                rows[0] = await self.sender.withdraw(self.row)
            else:
                rows[0] = await self.sender.save(self.row, state="done")
        for row in rows:
            if not row.is_open:
                continue
            if row.part == 0 and row.state == "sent" and texts[:1] == [self._shown]:
                await self.sender.finish(row)  # it is shown as it ends
                continue
            is_question = row.part >= queries.QUESTIONS
            has_words = row.part < len(texts) or (is_question and (row.ref or row.call_id in asked))
            if row.body is None and not has_words:
                await self.sender.finish(row)  # what people have read of it stays
                continue
            if row.body is not None:
                draft = Draft(text=row.body)
            elif is_question:
                part = asked.get(row.call_id or "")
                key, by = self.sender.key(row), self._asks_for
                can_press = self.sender.bot.definition.messenger.capabilities.actions
                draft = Draft(text=QUESTION.closed)
                if part:
                    draft = QUESTION.ask(part, key, by=by, can_press=can_press)
            else:
                draft = Draft(text=texts[row.part])
            if is_unreadable(await self.sender.put(row, draft, is_announced=row is announced)):
                await self._give_up()
                return

    async def _planned(
        self, known: list[DeliveryRow], texts: list[str], asked: dict[str, Part]
    ) -> list[DeliveryRow]:
        """The rows of what follows the streamed message, written before any of it is sent."""
        places = [(part, None) for part in range(1, len(texts))]
        places += [(queries.QUESTIONS + number, call) for number, call in enumerate(asked)]
        before = {row.part: row for row in known}
        now = self.host.clock.now_ms()
        rows = [
            before.get(part)
            or self.row.anew(now=now, part=part, target=going_on(self.row.target), call_id=call)
            for part, call in places
        ]
        fresh = [queries.planned(row) for row in rows if row.part not in before]
        if fresh:
            await self.host.store.apply(fresh)
        rows += [row for part, row in before.items() if all(part != place for place, _ in places)]
        return sorted(rows, key=lambda row: row.part)

    async def _give_up(self) -> None:
        """Nobody reads there: what was to follow is not shown either."""
        for row in await queries.of_turn(self.host.store, self.row.turn):
            if row.is_open:
                await self.sender.fail(row, "What comes before it could not be delivered.")

    async def _texts(self, *, has_questions: bool) -> list[str]:
        if self._asks_for is not None:
            return []
        policy, following = self.sender.bot.definition.delivery, self.following
        texts = self._pieces(following.text.rstrip())
        match following.status:
            case "error":
                said = policy.interrupted_response_text if following.was_cut else policy.error_response_text
                return [*texts, said]
            case "skipped":
                return []
            case "aborted" if not texts and await self._was_stopped():
                return []
            case _:
                return texts or ([] if has_questions else [policy.empty_response_text])

    def _pieces(self, text: str) -> list[str]:
        """What was said, as messages, as the developer splits it where that does not fail."""
        definition = self.sender.bot.definition
        limits = definition.messenger.limits
        cut = partial(
            pieces,
            text,
            visible=self._visible,
            follow_up=limits.follow_up,
            most=limits.longest,
            length=limits.length,
        )
        if definition.delivery.split_text is not None:
            try:
                return cut(split=definition.delivery.split_text)
            except Exception:
                log.exception(
                    "%s: DeliveryPolicy.split_text raised. The answer is shown all the same, split as if"
                    " there were none. Let it return a list of texts.",
                    self.host.id,
                )
        return cut()

    @property
    def _visible(self) -> int:
        """Characters of the streamed message."""
        definition = self.sender.bot.definition
        limits = definition.messenger.limits
        return min(definition.delivery.visible_soft_limit or limits.visible, limits.longest)

    async def _was_stopped(self) -> bool:
        row = await turn_rows.one(self.host.store, self.row.turn)
        return row is not None and row.stop == STOPPED

    async def _asked(self) -> dict[str, Part]:
        """The calls of the turn that wait for a person, as the conversation shows them."""
        if self.following.status != "completed" or not self.following.words.asks:
            return {}
        row = await turn_rows.one(self.host.store, self.row.turn)
        if row is None or row.message_id is None:
            return {}
        await self.host.session.refresh()
        answer = await self.host.session.get_message(row.message_id)
        return {} if answer is None else asked_by(answer)


def _status(status: str) -> TurnStatus:
    if status not in ("completed", "error", "aborted", "skipped"):
        raise Unreadable("How a turn ended", f"it says {status!r}")
    return status
