"""What one agent has to do with messengers: its own, if it has any, and what it is asked there.

actor --> Messaging: Inbox, of an agent without a parent that declares messengers; Courier, of one that chats
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..address import Address
from ..children.parts import Kin
from ..messengers import courier as couriers
from ..messengers import inbox as inboxes
from ..messengers.courier import MARK, Courier
from ..messengers.inbox import Inbox
from ..messengers.sending import Bot, Bots
from .chat import Chat
from .parts import AgentParts
from .unreadable import KeptValues

__all__ = ["Messaging"]


class Messaging:
    """The messengers of one agent that chats."""

    __slots__ = ("_address", "_background", "_bots", "_chat", "_courier", "_kin", "_parts", "inbox")

    def __init__(
        self,
        address: Address,
        parts: AgentParts,
        chat: Chat,
        *,
        kin: Kin,
        bots: Bots,
        background: Callable[..., None],
    ) -> None:
        self._address, self._parts, self._chat = address, parts, chat
        self._kin, self._bots, self._background = kin, bots, background
        self._courier: Courier | None = None
        self.inbox: Inbox | None = None
        """Where platforms send to, for an agent that has messengers."""

    async def start(self, kept: KeptValues) -> None:
        """Have the messengers that the agent declares, and deliver what an earlier process left."""
        hooks = self._parts.hooks
        if not self._address.parents and (hooks.overrides("get_messengers") or hooks.sets("messengers")):
            await self._open()
        if MARK in kept:
            await self.courier.restore(is_marked=True)

    async def _open(self) -> Inbox:
        parts = self._parts
        inbox = Inbox(
            inboxes.Parts(
                address=self._address,
                store=parts.store,
                clock=parts.clock,
                hooks=parts.hooks,
                bots=self._bots,
                emit=parts.emit,
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
            chat = self._chat
            self._courier = Courier(
                couriers.Parts(
                    host=chat.host,
                    submissions=chat.submissions,
                    answers=chat.answers,
                    continuations=chat.continuations,
                    bots=self._bots_of,
                    background=self._background,
                    begin_anew=chat.begin_anew,
                    thread_moved=self._thread_moved,
                )
            )
            chat.host.may_begin_delivered = self._courier.may_begin
            chat.host.continued = self._courier.continued
        return self._courier

    def _child(self, cls: type[Any], name: str) -> Address:
        return self._kin.address(cls, name, self._address)

    async def _courier_of(self, address: Address) -> Courier:
        if address == self._address:
            return self.courier
        return (await self._kin.reach(address)).messaging.courier

    async def _bots_of(self, root: str) -> Mapping[str, Bot]:
        """The messengers of an agent: those that are known here, else what it, or its class, declares."""
        known = self._bots.of(root)
        if known is None and self._address.parents:
            await self._kin.reach(self._address.root)
        elif known is None:
            inbox = self.inbox or await self._open()
            self._bots.know(root, {id: bot.definition for id, bot in inbox.bots.items()})
        return self._bots.of(root) or {}

    async def _thread_moved(self, root: str, messenger: str, before: str, after: str) -> None:
        """Who has the messenger keeps it: one that is elsewhere hears of it with the next message."""
        above = self._address.root
        if above.id == root:
            inbox = (await self._kin.reach(above)).messaging.inbox if self._address.parents else self.inbox
            if inbox is not None:
                await inbox.moved(messenger, before, after)
