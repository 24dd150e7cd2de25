"""What one agent has to do with messengers: its own, if it has any, and what it is asked there.

actor --> Messaging: Inbox, of an agent without a parent that declares messengers
                        Courier, of one that is asked something there
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..address import Address
from ..children.parts import Kin
from ..door.answers import Answers
from ..door.continuations import Continuations
from ..door.submissions import Submissions
from ..turn.host import TurnHost
from . import courier as couriers
from . import inbox as inboxes
from .courier import Courier
from .inbox import Inbox
from .polling import Polled, Polling
from .sending import Bot, Bots

__all__ = ["Messaging", "Parts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts from below that one agent's messaging works with."""

    address: Address
    host: TurnHost
    submissions: Submissions
    answers: Answers
    continuations: Continuations
    kin: Kin
    bots: Bots
    background: Callable[..., None]
    """Keeps a task alive until it ends."""
    begin_anew: Callable[[], Awaitable[object]]
    """Begins a new conversation, and keeps the old one."""


class Messaging:
    """The messengers of one agent that chats."""

    __slots__ = ("_courier", "_offsets", "_parts", "_polled", "inbox")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._courier: Courier | None = None
        self._offsets: dict[str, int] | None = None
        self._polled: set[str] = set()
        self.inbox: Inbox | None = None
        """Where platforms send to, for an agent that has messengers."""

    async def start(self, *, is_marked: bool, offsets: dict[str, int] | None) -> None:
        """Have the messengers that the agent declares, and deliver what an earlier process left. `is_marked`:
        it may have left something. `offsets`: from where it asks next, if it has asked for what is new."""
        self._offsets = offsets
        hooks = self._parts.host.hooks
        if not self._parts.address.parents and (
            hooks.overrides("get_messengers") or hooks.sets("messengers")
        ):
            await self._open()
        if is_marked:
            await self.courier.restore()
        if offsets is not None:
            self.poll()

    def poll(self, *, always: bool = False) -> bool:
        """Ask for what is new, where a messenger is to; `always`: where it can. True when one does."""
        inbox, host = self.inbox, self._parts.host
        if inbox is None:
            return False
        polling = Polling(inbox, host.store, host.clock, host.save_value, self._offsets or {})
        for bot in inbox.bots.values():
            adapter = bot.definition.messenger
            is_to = isinstance(adapter, Polled) and (adapter.polls or always)
            if is_to and bot.id not in self._polled:
                self._polled.add(bot.id)
                self._parts.background(polling.run(bot, adapter))
        return bool(self._polled)

    async def _open(self) -> Inbox:
        parts, host = self._parts, self._parts.host
        inbox = Inbox(
            inboxes.Parts(
                address=parts.address,
                store=host.store,
                clock=host.clock,
                hooks=host.hooks,
                bots=parts.bots,
                emit=host.emit,
                courier=self._courier_of,
                child=self._child,
            )
        )
        await inbox.open()
        self.inbox = inbox
        return inbox

    @property
    def courier(self) -> Courier:
        """What accepts and delivers for this conversation."""
        if self._courier is None:
            parts = self._parts
            self._courier = Courier(
                couriers.Parts(
                    host=parts.host,
                    submissions=parts.submissions,
                    answers=parts.answers,
                    continuations=parts.continuations,
                    bots=self._bots_of,
                    background=parts.background,
                    begin_anew=parts.begin_anew,
                    thread_moved=self._thread_moved,
                )
            )
            parts.host.may_begin_delivered = self._courier.may_begin
            parts.host.continued = self._courier.continued
        return self._courier

    def _child(self, cls: type[Any], name: str) -> Address:
        return self._parts.kin.address(cls, name, self._parts.address)

    async def _courier_of(self, address: Address) -> Courier:
        if address == self._parts.address:
            return self.courier
        return (await self._parts.kin.reach(address)).messaging.courier

    async def _bots_of(self, root: str) -> Mapping[str, Bot]:
        """The messengers of an agent: those that are known here, else what it, or its class, declares."""
        known = self._parts.bots.of(root)
        if known is None and self._parts.address.parents:
            await self._parts.kin.reach(self._parts.address.root)
        elif known is None:
            inbox = self.inbox or await self._open()
            self._parts.bots.know(root, {id: bot.definition for id, bot in inbox.bots.items()})
        return self._parts.bots.of(root) or {}

    async def _thread_moved(self, root: str, messenger: str, before: str, after: str) -> None:
        """Who has the messenger keeps it: one that is elsewhere hears of it with the next message."""
        above = self._parts.address.root
        if above.id == root:
            inbox = (
                (await self._parts.kin.reach(above)).messaging.inbox
                if self._parts.address.parents
                else self.inbox
            )
            if inbox is not None:
                await inbox.moved(messenger, before, after)
