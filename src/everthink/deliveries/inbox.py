"""What comes from platforms, at the agent that has the messengers: who answers it, once.

    body --verified--> parse --MessengerEvent--> is it answered? --> the conversation --accept--> 200
                                                    |
                                       a thread that is subscribed, a button, a command

Only an agent without a parent has messengers: children are of the same class, and have none.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ..address import Address
from ..calling import call_hook
from ..clock import Clock
from ..errors import AgentError
from ..hooks.runner import HookRunner
from ..messages import Part
from ..messengers.definition import checked
from ..messengers.port import DeliveryError
from ..messengers.values import Arrived, Attachment, EventKind, MessengerEvent
from ..observe.events import EventBody
from ..observe.messenger_events import MessengerIgnored, MessengerReceived, MessengerRefused
from ..plain import cut
from ..store.port import AgentStore
from . import queries
from .courier import Courier
from .queries import ThreadRow
from .questions import Press
from .rules import (
    Who,
    addressed,
    as_message,
    command_in,
    context_of,
    conversation_name,
    is_answered,
    key_of,
    resolved,
)
from .sending import Bot, Bots, gone

__all__ = ["Inbox", "Parts"]

log = logging.getLogger("everthink.messengers")

KINDS: tuple[EventKind, ...] = get_args(EventKind)
MEETING = 3.0
"""Seconds for which a message waits that may name the bot, until the platform has said what it is called."""
REMEMBERED = 10_000
"""So many threads are known without asking the database."""
LARGEST_FILE = 20 * 1024 * 1024
"""Bytes of the files of one message that the model is shown."""
LONGEST_KIND = 100
"""Characters of what an update is called."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts from below that an inbox works with."""

    address: Address
    store: AgentStore
    clock: Clock
    hooks: HookRunner
    bots: Bots
    emit: Callable[[EventBody], None]
    courier: Callable[[Address], Awaitable[Courier]]
    """That of an agent, which is brought into memory."""
    child: Callable[[type[Any], str], Address]
    """The address of a child of this one."""


class Inbox:
    """The messengers of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # What is stored of threads, by messenger and thread: nobody else writes these rows.
        self._threads: dict[tuple[str, str], ThreadRow] = {}
        self._changes = 0
        self.bots: Mapping[str, Bot] = {}

    async def open(self) -> None:
        """Have the messengers that the agent declares. Raises `InvalidSettings` for what makes no sense."""
        definitions = checked(await self._parts.hooks.get_messengers())
        self.bots = self._parts.bots.know(self._parts.address.id, definitions) if definitions else {}
        await self._warn_of_those_gone()

    async def _warn_of_those_gone(self) -> None:
        """Say that messages wait for a messenger that is called otherwise now, or was taken away."""
        for id, count in (await queries.waiting_for(self._parts.store)).items():
            if id not in self.bots:
                log.warning("%s: %s", self._parts.address, gone(id, waiting=count, known=self.bots))

    @property
    def paths(self) -> frozenset[str]:
        """The paths that platforms send to."""
        return frozenset(bot.definition.path_of(id) for id, bot in self.bots.items())

    def at(self, path: str) -> Bot | None:
        """The messenger whose platform sends to this path."""
        return next((bot for id, bot in self.bots.items() if bot.definition.path_of(id) == path), None)

    def refuse(self, bot: Bot, reason: str) -> None:
        """Tell observers of a webhook that is not answered."""
        self._parts.emit(MessengerRefused(messenger=bot.id, reason=reason))

    def verify(self, bot: Bot, headers: Mapping[str, str], body: bytes) -> bool:
        """True when the platform has sent this."""
        return bot.definition.messenger.verify(headers, body, now=self._parts.clock.now_ms() / 1000)

    async def has_met(self, bot: Bot, arrived: Arrived) -> bool:
        """Learn at the first use what the platform calls a bot. True when what has arrived is to be read once
        more: somebody may be called by a name in it, and the bot had another one."""
        meeting, before = bot.meet(), bot.definition.messenger.user_name
        names = (event.message for event in arrived.events if event.kind != "mention")
        if meeting is None or not any(one is not None and "@" in one.text for one in names):
            return False
        await asyncio.wait([meeting], timeout=MEETING)
        return bot.definition.messenger.user_name != before

    async def take(self, bot: Bot, arrived: Arrived) -> None:
        """Accept what a webhook or a poll has brought. It is durable when this returns."""
        for before, after in arrived.moved:
            await self.moved(bot.id, before, after)
        for kind in arrived.ignored:
            self._parts.emit(MessengerIgnored(messenger=bot.id, what=cut(kind, LONGEST_KIND)))
        for event in arrived.events:
            if event.kind not in KINDS:
                log.error(
                    "messenger %s: its adapter says that something is %r, which is no kind of event. Nobody"
                    " answers it. Let parse say one of: %s.",
                    bot.id,
                    event.kind,
                    ", ".join(KINDS),
                )
            await self._take(bot, event)

    async def moved(self, messenger: str, before: str, after: str) -> None:
        """A thread has another id from now on, and the same conversation."""
        known = await self._thread(messenger, before)
        name = conversation_name(messenger, before) if known is None else known.conversation
        row = ThreadRow(
            before, name, 0 if known is None else known.subscribed, None if known is None else known.title
        )
        now = self._parts.clock.now_ms()
        await self._parts.store.apply(
            [
                queries.note_thread(messenger, row, now=now),
                queries.threads_moved(messenger, before, after),
            ]
        )
        self._forget(messenger, before, after)

    async def _thread(self, messenger: str, id: str) -> ThreadRow | None:
        """What is known of a thread."""
        known, changes = self._threads.get((messenger, id)), self._changes
        if known is not None:
            return known
        known = await queries.thread(self._parts.store, messenger, id)
        if known is not None and changes == self._changes:  # else it may be an older one by now
            self._threads[messenger, id] = known
            while len(self._threads) > REMEMBERED:
                del self._threads[next(iter(self._threads))]
        return known

    def _forget(self, messenger: str, *threads: str) -> None:
        """Their rows were written: they are read again."""
        self._changes += 1
        for thread in threads:
            self._threads.pop((messenger, thread), None)

    async def _take(self, bot: Bot, event: MessengerEvent) -> None:
        parts, definition = self._parts, bot.definition
        known = await self._thread(bot.id, event.thread.id)
        event = addressed(event, is_subscribed=known is not None and bool(known.subscribed))
        press = Press.read(event)
        wants = press is not None or is_answered(event, definition)
        is_person = not event.author.is_me and (definition.answer_bots or not event.author.is_bot)
        subscribes = is_person and definition.subscribe_on_mention and event.kind == "mention"
        name = conversation_name(bot.id, event.thread.id) if known is None else known.conversation
        if (known is None and wants) or (subscribes and not (known and known.subscribed)):
            row = ThreadRow(
                event.thread.id, name, int(subscribes), event.thread.title or event.thread.channel_name
            )
            await parts.store.apply([queries.note_thread(bot.id, row, now=parts.clock.now_ms())])
            self._forget(bot.id, row.thread)
        if not wants:
            parts.emit(MessengerIgnored(messenger=bot.id, what=event.kind))
            return
        courier = await parts.courier(await self._address(bot, event, name))
        is_new = await self._handed_over(courier, bot, event, press)
        parts.emit(
            MessengerReceived(messenger=bot.id, kind=event.kind, thread=event.thread.id, is_new=is_new)
        )

    async def _handed_over(
        self, courier: Courier, bot: Bot, event: MessengerEvent, press: Press | None
    ) -> bool:
        """Let the conversation have it. True when it had not."""
        root = self._parts.address.id
        key = key_of(bot.id, event)
        if press is not None:
            said = await courier.press(event, press, bot)
            await self._notify(bot, event, said)
            return said is None
        if (command := command_in(event, bot.definition)) is not None:
            return await courier.command(command, bot=bot, root=root, key=key, target=event.target)
        message = as_message(bot.id, event, bot.definition, await self._media(bot, event))
        accepted = await courier.accept(message, bot=bot, root=root, key=key, target=event.target)
        if event.action is not None:
            await self._notify(bot, event, None)
        return accepted.is_new

    async def _notify(self, bot: Bot, event: MessengerEvent, said: str | None) -> None:
        try:
            await bot.definition.messenger.notify(event, said)
        except DeliveryError as error:
            log.info("whoever pressed a button of %s is not told: %s", bot.id, error)
        except Exception:
            log.exception("whoever pressed a button of %s is not told: notify of the adapter raised", bot.id)

    async def _address(self, bot: Bot, event: MessengerEvent, name: str) -> Address:
        """Who answers."""
        parts, own = self._parts, self._parts.address
        who = await self._who(bot, event, name)
        if who.is_agent:
            return Address(own.cls_name, who.name)
        return own if not who.name else parts.child(who.cls or parts.hooks.cls, who.name)

    async def _who(self, bot: Bot, event: MessengerEvent, name: str) -> Who:
        match bot.definition.conversation:
            case "thread":
                return Who(name)
            case "agent":
                return Who(name, is_agent=True)
            case "self":
                return Who()
            case resolver:
                return resolved(await call_hook(resolver, context_of(bot.id, event, bot.definition)))

    async def _media(self, bot: Bot, event: MessengerEvent) -> list[Part]:
        """The files that the model is to be shown, loaded. One that cannot be is only described."""
        if not bot.definition.fetch_media or event.message is None:
            return []
        wanted = [
            one
            for one in event.message.attachments
            if (one.media_type or "").partition("/")[0] in bot.definition.fetch_media
        ]
        found, left = list[Part](), LARGEST_FILE
        for one in wanted:  # one after the other: all of them together have one file's room
            loaded = await self._loaded(bot, one, most=left)
            if loaded is not None:
                part, size = loaded
                found.append(part)
                left -= size
        return found

    async def _loaded(self, bot: Bot, attachment: Attachment, *, most: int) -> tuple[Part, int] | None:
        try:
            data = await bot.definition.messenger.fetch(attachment, most=most)
        except AgentError as error:
            log.warning("a file of %s is not shown to the model: %s", bot.id, error)
            return None
        url = f"data:{attachment.media_type};base64,{base64.b64encode(data).decode()}"
        part: Part = {"type": "file", "mediaType": attachment.media_type, "url": url}
        if attachment.name:
            part["filename"] = attachment.name
        return part, len(data)
