"""One message to a platform, until it is there or cannot be: attempts, waits, and what nobody knows.

    Draft --Sender.put--> row `sending` --Messenger.post--> row `sent` or `done`, with the platform's id of it
                                                 |
      429: later     not reached: again, later and later     moved: there     refused: `failed`     uncertain

A row says `sending` before anything is sent. A process that finds one so does not know whether people see the
message. Where posting with the same key is the same message it posts again; where the platform can be asked,
it asks; elsewhere `DeliveryPolicy.on_uncertain` decides.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ..backoff import backoff
from ..clock import Clock
from ..messengers.definition import MessengerDefinition
from ..messengers.port import DeliveryError, Moved, RateLimited, Refused, Uncertain, Unreachable
from ..messengers.values import Draft, Target, decode, encode
from ..observe.events import EventBody
from ..observe.messenger_events import (
    MessengerDelivered,
    MessengerDeliveryChanged,
    MessengerDeliveryFailed,
    MessengerDeliveryRetried,
)
from ..store.port import AgentStore
from . import queries
from .queries import DeliveryRow, State

__all__ = ["GONE", "IN_DOUBT", "PATIENCE", "Bot", "Bots", "Sender", "gone", "is_unreadable", "key_of"]

log = logging.getLogger("everthink.messengers")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a platform that could not be reached is tried again: doubled each time, up to the second."""
GONE = "The messenger is gone: get_messengers has none of this id."
PATIENCE = 24 * 3600.0
"""Seconds for which a message waits for a messenger that is gone, before it counts as failed."""
IN_DOUBT = "Nobody knows whether it was shown, and it is not to be repeated."
MOST_WITHDRAWALS = 8
"""How often a platform is asked to stop showing that an answer comes."""
MEETS_AGAIN = 60.0
"""Seconds after which a platform is asked again what a bot is called that did not say."""
LAST_WORD = 0.9
"""Seconds that a message which is being sent gets when its agent leaves memory."""


@runtime_checkable
class Meeting(Protocol):
    """An adapter that asks its platform what the bot is called."""

    async def meet(self) -> str | None:
        """Be called what the platform says from now on. What `user_name` was, if that was another name."""
        ...


class Bot:
    """A messenger in this process: its definition, and when it may next send something."""

    __slots__ = ("_clock", "_is_met", "_meeting", "_meets_at", "_next", "definition", "id")

    def __init__(self, id: str, definition: MessengerDefinition, clock: Clock) -> None:
        self.id, self.definition, self._clock = id, definition, clock
        self._next = 0.0
        self._is_met = not isinstance(definition.messenger, Meeting)
        self._meeting: asyncio.Task[None] | None = None
        self._meets_at = 0.0

    @property
    def may_announce(self) -> bool:
        """True when it may be stored a moment early that a message is being sent. A process that finds it so
        sends it then, in whichever way that is done once; unless nobody may guess, and it would not."""
        definition = self.definition
        guesses = definition.messenger.capabilities.repeats == "neither"
        return not guesses or definition.delivery.on_uncertain == "repeat"

    async def met(self) -> None:
        """Know what the platform calls the bot, where the adapter asks. Raises what that raises."""
        adapter = self.definition.messenger
        if self._is_met or not isinstance(adapter, Meeting):
            return
        before = await adapter.meet()
        self._is_met = True
        if before is not None:
            log.warning(
                "messenger %s: user_name is %r, and %s calls the bot %r. It listens to @%s from now on: write"
                " user_name=%r.",
                *(self.id, before, adapter.provider, adapter.user_name, adapter.user_name, adapter.user_name),
            )

    def meet(self) -> asyncio.Task[None] | None:
        """The same in the background: what is under way; `None` when it is known, or not to be known now."""
        now = self._clock.monotonic()
        if self._is_met or (self._meeting is None and now < self._meets_at):
            return None
        if self._meeting is None:
            self._meets_at = now + MEETS_AGAIN
            self._meeting = asyncio.create_task(self._met())
        return self._meeting

    async def _met(self) -> None:
        try:
            await self.met()
        except DeliveryError as error:
            log.info("messenger %s does not know yet what it is called: %s", self.id, error)
        except Exception:
            log.exception("messenger %s does not know what it is called: meet of the adapter raised", self.id)
        finally:
            self._meeting = None

    def close(self) -> None:
        """Ask nobody any more."""
        if self._meeting is not None:
            self._meeting.cancel()

    async def room(self) -> None:
        """Return when the bot may send one more thing, in whichever chat."""
        now = self._clock.monotonic()
        at = max(now, self._next)
        self._next = at + 1 / self.definition.messenger.limits.sends_per_second
        if at - now > _BURST / self.definition.messenger.limits.sends_per_second:
            await self._clock.sleep(at - now)


_BURST = 10
"""So many messages may go out at once; what is more is spaced."""


class Bots:
    """The messengers of one process, by the agent that has them. One of each, whoever sends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, dict[str, Bot]] = {}

    def know(self, root: str, definitions: Mapping[str, MessengerDefinition]) -> dict[str, Bot]:
        """These are the messengers of an agent from now on."""
        before = self._known.get(root, {})
        found = {
            id: before[id]
            if id in before and before[id].definition is definition
            else Bot(id, definition, self._clock)
            for id, definition in definitions.items()
        }
        self._known[root] = found
        return found

    def of(self, root: str) -> dict[str, Bot] | None:
        """The messengers of an agent, if it was here."""
        return self._known.get(root)

    async def close(self) -> None:
        """Close what speaks with the platforms."""
        adapters = {
            id(bot.definition.messenger): bot for bots in self._known.values() for bot in bots.values()
        }
        known, self._known = self._known, {}
        for bots in known.values():
            for bot in bots.values():
                bot.close()
        for bot in adapters.values():
            await bot.definition.messenger.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Sends the messages of one conversation by one bot."""

    agent: str
    store: AgentStore
    clock: Clock
    bot: Bot
    emit: Callable[[EventBody], None]
    moved: Callable[[Target, Moved], None]
    """Told when a chat has become another one: what went there before."""
    _tries: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """How often a message was tried in this process with nobody knowing what came of it."""

    def key(self, row: DeliveryRow) -> str:
        """What a message is known by on the platform, whoever sends it, and when."""
        return key_of(self.agent, row)

    async def put(self, row: DeliveryRow, draft: Draft, *, is_announced: bool = False) -> DeliveryRow:
        """Show `draft`, however long it takes. The row is `sent`, `done` or `failed` then.

        `is_announced`: we have just stored that it is being sent, and have not begun.
        """
        while True:
            if (left := self.left(row)) > 0:
                await self.clock.sleep(left)
            row = await self.try_once(row, draft, is_announced=is_announced)
            is_announced = False
            if row.state in ("done", "failed") or (row.state == "sent" and not draft.is_final):
                return row

    def left(self, row: DeliveryRow) -> float:
        """Seconds for which a message is not to be tried again."""
        return 0.0 if row.not_before is None else max(0.0, (row.not_before - self.clock.now_ms()) / 1000)

    async def try_once(self, row: DeliveryRow, draft: Draft, *, is_announced: bool = False) -> DeliveryRow:
        """Show `draft`, or find out why not: the row says when it may be tried again."""
        sending = asyncio.ensure_future(self._tried(row, draft, is_announced))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            # What is on its way is better known than not: the next process would have to guess.
            await asyncio.wait([sending], timeout=LAST_WORD)
            sending.cancel()
            raise

    async def _tried(self, row: DeliveryRow, draft: Draft, is_announced: bool) -> DeliveryRow:
        messenger, target = self.bot.definition.messenger, decode(Target, row.target)
        is_open = False
        """True while it is not known whether the message is there."""
        try:
            if row.ref is None and row.state == "sending" and not is_announced:
                is_open = True
                row = await self._find_out(row, target, draft)
                if row.state != "planned":
                    return row
                is_open = False
            if row.ref is None:
                if not is_announced:
                    row = await self.save(row, state="sending", not_before=None)
                self._tell(row)
                await self.bot.room()
                row = row._replace(ref=await messenger.post(target, draft, key=self.key(row)))
            elif messenger.capabilities.edit_messages:
                await self.bot.room()
                await messenger.edit(target, row.ref, draft)
            else:
                await self.bot.room()
                row = row._replace(ref=await messenger.post(target, draft, key=f"{self.key(row)}d"))
        except Refused as error:
            return await self.fail(row, error.what)
        except Moved as error:
            self.moved(target, error)
            # What was shown stays where it is: it is not there that people read on.
            anew = row._replace(state="planned", ref=None, shown=0)
            return await self.save(anew, target=encode(error.to), not_before=None)
        except RateLimited as error:
            return await self._later(row, error, error.after, counts=False, is_open=is_open)
        except Uncertain as error:
            # An edit may be repeated. Of a message nobody knows whether it is there: that stays in its row.
            guesses = row.ref is None and messenger.capabilities.repeats == "neither"
            return await self._later(
                row, error, self._pause(row), is_open=row.ref is None, is_doubtful=guesses
            )
        except DeliveryError as error:
            return await self._later(row, error, self._pause(row), is_open=is_open)
        except Exception as error:
            log.exception("%s: the adapter of %s raised", self.agent, row.messenger)
            raised = Uncertain(f"The adapter raised {type(error).__name__}.")
            is_open = row.ref is None and row.state == "sending"  # it may have sent it before
            return await self._later(row, raised, self._pause(row), is_open=is_open, is_doubtful=True)
        return await self._shown(row, draft)

    async def _shown(self, row: DeliveryRow, draft: Draft) -> DeliveryRow:
        if not draft.is_final and row.state == "sent":
            return row._replace(shown=len(draft.text))  # an edit on the way: the next one says it all again
        row = row._replace(shown=len(draft.text), attempts=0)
        if draft.is_final:
            return await self.finish(row)
        row = await self.save(row, state="sent", not_before=None, error=None)
        self._tell(row)
        return row

    def _tell(self, row: DeliveryRow) -> None:
        """Let those who look see where a message is."""
        self.emit(
            MessengerDeliveryChanged(
                messenger=row.messenger, turn_id=row.turn, part=row.part, state=row.state
            )
        )

    async def finish(self, row: DeliveryRow) -> DeliveryRow:
        """A message is shown, the whole of it."""
        row = await self.save(row, state="done", not_before=None, error=None)
        self.emit(MessengerDelivered(messenger=row.messenger, turn_id=row.turn, part=row.part))
        return row

    async def _find_out(self, row: DeliveryRow, target: Target, draft: Draft) -> DeliveryRow:
        """Whether a message was shown of which nobody knows. `planned`: it is to be sent, again or not."""
        definition = self.bot.definition
        match definition.messenger.capabilities.repeats:
            case "keyed":
                return row._replace(state="planned")
            case "findable":
                since = row.created_at / 1000
                try:
                    ref = await definition.messenger.find(target, self.key(row), since=since)
                except Refused as error:
                    log.info("%s: nobody can look whether a message was shown: %s", self.agent, error)
                    return await self._guess(row, draft)
                if ref is None:
                    return row._replace(state="planned")
                return await self.save(row, state="sent", ref=ref)
            case "neither":
                return await self._guess(row, draft)

    async def _guess(self, row: DeliveryRow, draft: Draft) -> DeliveryRow:
        """Do what the developer wants done with a message of which nobody knows. One that is not to be
        repeated is given up when its turn is over: what follows it is planned by then."""
        if self.bot.definition.delivery.on_uncertain == "repeat":
            return row._replace(state="planned")
        return await (self.fail(row, IN_DOUBT) if draft.is_final else self.save(row, error=IN_DOUBT))

    async def _later(
        self,
        row: DeliveryRow,
        error: DeliveryError,
        seconds: float,
        *,
        counts: bool = True,
        is_open: bool = False,
        is_doubtful: bool = False,
    ) -> DeliveryRow:
        """Try it again in so many seconds, unless that was done for long enough. `is_doubtful`: it may be
        seen each time, or may fail for ever."""
        state: State = "sending" if is_open else _open(row)
        attempts, policy = row.attempts + counts, self.bot.definition.delivery
        tries = self._tries[row.turn, row.part] = self._tries.get((row.turn, row.part), 0) + is_doubtful
        if tries >= policy.max_attempts or _waited(attempts) >= policy.give_up_after:
            return await self.fail(row, error.what)
        at = self.clock.now_ms() + round(seconds * 1000)
        row = await self.save(row, state=state, attempts=attempts, not_before=at, error=error.what)
        self.emit(
            MessengerDeliveryRetried(
                messenger=row.messenger, turn_id=row.turn, part=row.part, after=seconds, error=error.what
            )
        )
        return row

    async def fail(self, row: DeliveryRow, why: str) -> DeliveryRow:
        """It is not shown, and nobody tries again."""
        again = "" if why == IN_DOUBT else " It is kept: deliver_again() sends it once more."
        log.warning("%s: a message to %s is not delivered: %s%s", self.agent, row.messenger, why, again)
        row = await self.save(row, state="failed", error=why, not_before=None)
        self.emit(
            MessengerDeliveryFailed(messenger=row.messenger, turn_id=row.turn, part=row.part, error=why)
        )
        return row

    async def put_off(self, row: DeliveryRow, error: Exception) -> DeliveryRow:
        """Showing a message has raised what nobody expects: it is tried again, some times."""
        raised = Unreachable(f"Showing it raised {type(error).__name__}.")
        is_open = row.state == "sending"
        return await self._later(row, raised, self._pause(row), is_open=is_open, is_doubtful=True)

    async def withdraw(self, row: DeliveryRow) -> DeliveryRow:
        """It has nothing to say: whoever waits for it is not left waiting. The row is `done` then."""
        messenger, target = self.bot.definition.messenger, decode(Target, row.target)
        while True:
            if (left := self.left(row)) > 0:
                await self.clock.sleep(left)
            try:
                await messenger.withdraw(target)
                break
            except Exception as error:
                trace = None if isinstance(error, DeliveryError) else error
                is_last = isinstance(error, Refused) or row.attempts + 1 >= MOST_WITHDRAWALS
                level = logging.WARNING if is_last or trace else logging.INFO
                what = f"{row.messenger} {'may go on showing' if is_last else 'shows'} that an answer comes"
                log.log(level, "%s: %s: %s", self.agent, what, error, exc_info=trace)
                if is_last:
                    break
                pause = error.after if isinstance(error, RateLimited) else self._pause(row)
                at = self.clock.now_ms() + round(pause * 1000)
                row = await self.save(row, attempts=row.attempts + 1, not_before=at)
        return await self.save(row, state="done", not_before=None)

    async def save(self, row: DeliveryRow, **changes: object) -> DeliveryRow:
        """Keep how a message stands."""
        row = row._replace(updated_at=self.clock.now_ms(), **changes)  # pyright: ignore[reportArgumentType]
        await self.store.apply([queries.changed(row)])
        return row

    def _pause(self, row: DeliveryRow) -> float:
        return backoff(row.attempts + 1, first=FIRST_PAUSE, most=LONGEST_PAUSE)


def _waited(attempts: int) -> float:
    """Seconds between the first of so many tries and the last."""
    return sum(backoff(tried, first=FIRST_PAUSE, most=LONGEST_PAUSE) for tried in range(1, attempts))


def gone(id: str, *, waiting: int, asked: int = 0, known: Collection[str]) -> str:
    """What waits for a messenger that is not there any more, and what may be done about it."""
    what = [f"{waiting} {'message waits' if waiting == 1 else 'messages wait'} for it"] if waiting else []
    if asked:
        words = "question waits" if asked == 1 else "questions wait"
        what.append(f"{asked} {words} for a button that nobody hears")
    there = ", ".join(sorted(known)) or "none"
    return (
        f"there is no messenger {id!r} any more (there is: {there}), and {' and '.join(what)}. Call"
        " one of get_messengers by that id again: else what waits counts as failed after a day, and whoever"
        " asked hears nothing."
    )


def is_unreadable(row: DeliveryRow) -> bool:
    """True when a message cannot be shown, so that what follows it cannot be either. Of one in doubt nobody
    says so: people may well read it."""
    return row.state == "failed" and row.error != IN_DOUBT


def key_of(agent: str, row: DeliveryRow) -> str:
    """The same of a message of any agent, by the id of its rows."""
    said = f"{agent}\0{row.turn}\0{row.part}"
    return hashlib.sha256(said.encode()).hexdigest()[:24]


def _open(row: DeliveryRow) -> State:
    """The state of a message that is tried again."""
    return "planned" if row.ref is None else "sent"
