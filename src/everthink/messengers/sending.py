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
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..backoff import backoff
from ..clock import Clock
from ..observe.events import EventBody
from ..observe.messenger_events import MessengerDelivered, MessengerDeliveryFailed, MessengerDeliveryRetried
from ..store.port import AgentStore
from . import queries
from .definition import MessengerDefinition
from .port import DeliveryError, Moved, RateLimited, Refused, Uncertain, Unreachable
from .queries import DeliveryRow, State
from .values import Draft, Target, decode, encode

__all__ = ["Bot", "Bots", "Sender"]

log = logging.getLogger("everthink.messengers")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a platform that could not be reached is tried again: doubled each time, up to the second."""
LAST_WORD = 0.9
"""Seconds that a message which is being sent gets when its agent leaves memory."""


class Bot:
    """A messenger in this process: its definition, and when it may next send something."""

    __slots__ = ("_clock", "_next", "definition", "id")

    def __init__(self, id: str, definition: MessengerDefinition, clock: Clock) -> None:
        self.id, self.definition, self._clock = id, definition, clock
        self._next = 0.0

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
        self._known = {}
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

    def key(self, row: DeliveryRow) -> str:
        """What a message is known by on the platform, whoever sends it, and when."""
        said = f"{self.agent}\0{row.turn}\0{row.part}"
        return hashlib.sha256(said.encode()).hexdigest()[:24]

    async def put(self, row: DeliveryRow, draft: Draft) -> DeliveryRow:
        """Show `draft`, however long it takes. The row is `sent`, `done` or `failed` then."""
        while True:
            row = await self.try_once(row, draft)
            if row.state in ("done", "failed") or (row.state == "sent" and not draft.is_final):
                return row
            now = self.clock.now_ms()
            if row.not_before is not None and row.not_before > now:
                await self.clock.sleep((row.not_before - now) / 1000)

    async def try_once(self, row: DeliveryRow, draft: Draft) -> DeliveryRow:
        """Show `draft`, or find out why not: the row says when it may be tried again."""
        sending = asyncio.ensure_future(self._tried(row, draft))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            # What is on its way is better known than not: the next process would have to guess.
            await asyncio.wait([sending], timeout=LAST_WORD)
            sending.cancel()
            raise

    async def _tried(self, row: DeliveryRow, draft: Draft) -> DeliveryRow:
        messenger, target = self.bot.definition.messenger, decode(Target, row.target)
        is_open = False
        """True while it is not known whether the message is there."""
        try:
            if row.ref is None and row.state == "sending":
                is_open = True
                row = await self._find_out(row, target)
                if row.state != "planned":
                    return row
                is_open = False
            if row.ref is None:
                row = await self.save(row, state="sending", not_before=None)
                await self.bot.room()
                row = row._replace(ref=await messenger.post(target, draft, key=self.key(row)))
            else:
                await self.bot.room()
                await messenger.edit(target, row.ref, draft)
        except Refused as error:
            return await self.fail(row, error.what)
        except Moved as error:
            self.moved(target, error)
            return await self.save(row, state=_open(row), target=encode(error.to), not_before=None)
        except RateLimited as error:
            return await self._later(row, error, error.after, counts=False, is_open=is_open)
        except Uncertain as error:
            # An edit may be repeated. Of a message nobody knows whether it is there: that stays in its row.
            return await self._later(row, error, self._pause(row), is_open=row.ref is None)
        except DeliveryError as error:
            return await self._later(row, error, self._pause(row), is_open=is_open)
        except Exception as error:
            log.exception("%s: the adapter of %s raised", self.agent, row.messenger)
            return await self._later(
                row, Unreachable(f"The adapter raised {type(error).__name__}."), self._pause(row)
            )
        return await self._shown(row, draft)

    async def _shown(self, row: DeliveryRow, draft: Draft) -> DeliveryRow:
        if not draft.is_final and row.state == "sent":
            return row._replace(shown=len(draft.text))  # an edit on the way: the next one says it all again
        row = row._replace(shown=len(draft.text), attempts=0)
        if draft.is_final:
            return await self.finish(row)
        return await self.save(row, state="sent", not_before=None, error=None)

    async def finish(self, row: DeliveryRow) -> DeliveryRow:
        """A message is shown, the whole of it."""
        row = await self.save(row, state="done", not_before=None, error=None)
        self.emit(MessengerDelivered(messenger=row.messenger, turn_id=row.turn, part=row.part))
        return row

    async def _find_out(self, row: DeliveryRow, target: Target) -> DeliveryRow:
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
                    return await self._guess(row)
                if ref is None:
                    return row._replace(state="planned")
                return await self.save(row, state="sent", ref=ref)
            case "neither":
                return await self._guess(row)

    async def _guess(self, row: DeliveryRow) -> DeliveryRow:
        """Do what the developer wants done with a message of which nobody knows."""
        if self.bot.definition.delivery.on_uncertain == "repeat":
            return row._replace(state="planned")
        return await self.fail(row, "Nobody knows whether it was shown, and it is not to be repeated.")

    async def _later(
        self,
        row: DeliveryRow,
        error: DeliveryError,
        seconds: float,
        *,
        counts: bool = True,
        is_open: bool = False,
    ) -> DeliveryRow:
        state: State = "sending" if is_open else _open(row)
        attempts = row.attempts + counts
        if attempts >= self._most:
            return await self.fail(row, error.what)
        self.emit(
            MessengerDeliveryRetried(
                messenger=row.messenger, turn_id=row.turn, part=row.part, after=seconds, error=error.what
            )
        )
        at = self.clock.now_ms() + round(seconds * 1000)
        return await self.save(row, state=state, attempts=attempts, not_before=at, error=error.what)

    async def fail(self, row: DeliveryRow, why: str) -> DeliveryRow:
        """It is not shown, and nobody tries again."""
        log.warning("%s: a message to %s is not delivered: %s", self.agent, row.messenger, why)
        row = await self.save(row, state="failed", error=why, not_before=None)
        self.emit(
            MessengerDeliveryFailed(messenger=row.messenger, turn_id=row.turn, part=row.part, error=why)
        )
        return row

    async def withdraw(self, row: DeliveryRow) -> None:
        """It has nothing to say: whoever waits for it is not left waiting."""
        try:
            await self.bot.definition.messenger.withdraw(decode(Target, row.target))
        except DeliveryError as error:
            log.info("%s: %s may show that an answer comes: %s", self.agent, row.messenger, error)

    async def save(self, row: DeliveryRow, **changes: object) -> DeliveryRow:
        """Keep how a message stands."""
        row = row._replace(updated_at=self.clock.now_ms(), **changes)  # pyright: ignore[reportArgumentType]
        await self.store.apply([queries.changed(row)])
        return row

    @property
    def _most(self) -> int:
        return self.bot.definition.delivery.max_attempts

    def _pause(self, row: DeliveryRow) -> float:
        return backoff(row.attempts + 1, first=FIRST_PAUSE, most=LONGEST_PAUSE)


def _open(row: DeliveryRow) -> State:
    """The state of a message that is tried again."""
    return "planned" if row.ref is None else "sent"
