"""What one agent has to do with messengers: its own, if it has any, and what it is asked there.

actor --> Messaging: Inbox, of an agent without a parent that declares messengers
                        Courier, of one that is asked something there
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..address import Address
from ..children.parts import Kin
from ..children.queries import RunRow
from ..current import current_turn
from ..empty import NONE
from ..store.port import AgentStore, Statement
from ..turn.host import TurnHost
from . import courier as couriers
from . import inbox as inboxes
from . import queries
from .courier import Courier
from .inbox import Inbox
from .polling import Polled, Polling
from .sending import Bot, Bots

__all__ = ["Messaging"]


class Messaging:
    """The messengers of one agent that chats."""

    __slots__ = (
        "_address",
        "_background",
        "_bots",
        "_chat",
        "_courier",
        "_host",
        "_kin",
        "_offsets",
        "_polled",
        "_rests",
        "_stop_run",
        "inbox",
    )

    def __init__(
        self,
        address: Address,
        chat: Any,
        *,
        kin: Kin,
        bots: Bots,
        background: Callable[..., None],
        rests: Callable[[], bool],
        stop_run: Callable[[str, object], Awaitable[object]],
    ) -> None:
        """`chat` are the parts of its conversation: see `runtime/chat.py`. `rests`: whether it only waits for
        a person. `stop_run`: stops a run of a child, by its id, with the reason."""
        self._address, self._chat, self._kin, self._bots = address, chat, kin, bots
        self._background, self._rests, self._stop_run = background, rests, stop_run
        self._host: TurnHost = chat.host
        self._courier: Courier | None = None
        self._offsets: dict[str, int] | None = None
        self._polled: frozenset[str] = NONE
        self.inbox: Inbox | None = None
        """Where platforms send to, for an agent that has messengers."""

    async def start(self, *, is_marked: bool, offsets: dict[str, int] | None) -> None:
        """Have the messengers that the agent declares, and deliver what an earlier process left. `is_marked`:
        it may have left something. `offsets`: from where it asks next, if it has asked for what is new."""
        self._offsets = offsets
        hooks = self._host.hooks
        if not self._address.parents and (hooks.overrides("get_messengers") or hooks.sets("messengers")):
            await self._open()
        if is_marked:
            await self.courier.restore()
        if offsets is not None:
            self.poll()

    def poll(self, *, always: bool = False) -> bool:
        """Ask for what is new, where a messenger is to; `always`: where it can. True when one does."""
        inbox, host = self.inbox, self._host
        if inbox is None:
            return False
        polling = Polling(inbox, host.store, host.clock, host.save_value, self._offsets or {})
        for bot in inbox.bots.values():
            adapter = bot.definition.messenger
            if not isinstance(adapter, Polled) or bot.id in self._polled or not (adapter.polls or always):
                continue
            self._polled |= {bot.id}
            self._background(polling.run(bot, adapter))
        return bool(self._polled)

    async def _open(self) -> Inbox:
        host = self._host
        inbox = Inbox(
            inboxes.Parts(
                address=self._address,
                store=host.store,
                clock=host.clock,
                hooks=host.hooks,
                bots=self._bots,
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
            chat, host = self._chat, self._host
            self._courier = Courier(
                couriers.Parts(
                    host=host,
                    submissions=chat.submissions,
                    answers=chat.answers,
                    continuations=chat.continuations,
                    bots=self._bots_of,
                    background=self._background,
                    rests=self._rests,
                    courier=self._courier_by_id,
                    begin_anew=self._begin_anew,
                    stop_run=self._stop_run,
                    thread_moved=self._thread_moved,
                )
            )
            host.may_begin_delivered = self._courier.may_begin
            host.addressed = self._courier.addressed
            host.continued = self._courier.continued
            host.said_all = self._courier.said_all
        return self._courier

    async def accompany(self, parent: str, run: RunRow) -> list[Statement]:
        """What is written with a run that this agent is asked for by its parent, given the parent's id: what
        it asks people is shown where its parent was asked. Nothing when no messenger has asked that."""
        within = current_turn()
        turn = within.id if run.turn is None and within is not None and within.agent == parent else run.turn
        above = AgentStore(self._host.store.database, parent)
        rows = [] if turn is None else await queries.of_turn(above, turn)
        return self.courier.asks_for(rows[0], turn=run.run_id, name=run.title) if rows else []

    async def _begin_anew(self) -> None:
        """Open a new, empty session, once nothing runs any more. The old one is kept."""
        await self._chat.door.queue.wait_for_idle()
        made = await self._chat.sessions.create("")
        await self._chat.sessions.open(made.id)

    def _child(self, cls: type[Any], name: str) -> Address:
        return self._kin.address(cls, name, self._address)

    async def _courier_of(self, address: Address) -> Courier:
        if address == self._address:
            return self.courier
        return (await self._kin.reach(address)).messaging.courier

    async def _courier_by_id(self, agent: str) -> Courier | None:
        address = await self._kin.found(agent)
        return None if address is None else await self._courier_of(address)

    async def _bots_of(self, root: str) -> Mapping[str, Bot]:
        """The messengers of an agent: those that are known here, else what it, or its class, declares."""
        known = self._bots.of(root)
        if known is None and self._address.parents:
            return await (await self._kin.reach(self._address.root)).messaging._bots_of(root)
        if known is None:
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
