"""One live agent: the instance, and the parts that it is made of.

    directory --start--> Actor --> state, timers, jobs, fibers; chat/ for one that chats

Everything of an agent happens on one event loop. The parts know each other and what is below them, never
the actor; it makes them, starts them in order and stops them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..address import Address
from ..browser.browsers import Browsers
from ..children.children import Children
from ..children.parts import Child, Kin
from ..children.parts import Parts as ChildrenParts
from ..children.runs import CLEARED, RUNS
from ..clock import Clock
from ..cluster.fence import Fence
from ..codemode.runs import Executions
from ..current import current_call, current_turn
from ..deliveries.courier import MARK
from ..deliveries.polling import OFFSETS
from ..deliveries.sending import Bots
from ..deliveries.wiring import Messaging
from ..engines.sandboxes import Sandboxes
from ..errors import StoreError
from ..fibers.fibers import Fibers
from ..fibers.parts import Parts as FiberParts
from ..fibers.values import as_json
from ..file_tools.place import is_stored
from ..holds import Hold, Holds
from ..hooks.runner import HookRunner
from ..journal import queries as turns
from ..journal.feed import AgentLeft, Feed, ServersChanged
from ..journal.read import Below
from ..keeping.sharing import whose_workspace
from ..keeping.sweeping import named_by_history
from ..limits import Limits
from ..mcp.own_server import Parts as McpParts
from ..mcp.places import Network
from ..mcp.servers import McpServers
from ..mcp.shared import SharedServers
from ..messages import bounded_json
from ..models.port import Model
from ..observe.bus import EventBus
from ..observe.events import EventBody
from ..recovery.trials import Trials
from ..schedules.alarms import Alarms
from ..schedules.callbacks import options_of
from ..schedules.jobs import Jobs
from ..schedules.parts import Parts as ScheduleParts
from ..schedules.retry import Retry, retrying
from ..schedules.tasks import Tasks
from ..settings import check_call
from ..store.borrowed import BorrowedStore
from ..store.port import AgentStore, Statement
from ..tasks import begin
from ..turn.host import Leaves
from . import queries
from .chat import Chat
from .parts import AgentParts
from .state import StateBox
from .unreadable import KeptValues, UnreadableRows

if TYPE_CHECKING:
    from ..workspace.stored import StoredFiles
    from ..workspace.workspace import Workspace

__all__ = ["Actor"]

log = logging.getLogger("everthink.runtime")

REMOVED = "The MCP server {name!r} was removed while its tool waited for a person: the call does not go on."


class Actor:
    """Where one agent lives while it is in memory."""

    # There is one for each live agent, and with a small dict it weighs a kilobyte less. Functions are in the
    # dict: a type checker would take them for methods here.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_bus",
        "_children",
        "_kin",
        "_mcp",
        "_network",
        "_own_files",
        "_shared_servers",
        "_tasks",
        "_unreadable",
        "_workspace",
        "address",
        "agent",
        "alarms",
        "browsers",
        "chat",
        "clock",
        "cls",
        "declared",
        "feed",
        "fence",
        "fibers",
        "has_runs",
        "holds",
        "hooks",
        "id",
        "idle_since",
        "jobs",
        "limits",
        "messaging",
        "name",
        "sandboxes",
        "sockets",
        "state",
        "store",
    )

    def __init__(
        self,
        cls: type[Any],
        address: Address,
        *,
        base: type[Any],
        store: AgentStore,
        fence: Fence,
        clock: Clock,
        bus: EventBus,
        new_id: Callable[[], str],
        resolve_model: Callable[[Any], Awaitable[Model]],
        limits: Limits,
        trials: Trials,
        waker: Callable[[int, str | None], None],
        network: Network,
        shared_servers: SharedServers,
        kin: Kin,
        sandboxes: Sandboxes,
        browsers: Browsers,
        bots: Bots,
    ) -> None:
        self.address, self.id = address, address.id
        self.name, self.cls = address.name, cls
        self.fence = fence
        """What `store` writes through: shut when nothing more may be written."""
        self.store, self.clock, self.limits, self._bus = store, clock, limits, bus
        self.new_id, self._waker = new_id, waker
        self._network, self._shared_servers = network, shared_servers
        self._mcp: McpServers | None = None
        self._workspace: Any = None
        self._own_files: StoredFiles | None = None
        self._kin = kin
        self.sandboxes = sandboxes
        """Where scripts of models run, for all agents of this process."""
        self.browsers = browsers
        """Where pages are read, for all agents of this process."""
        self._children: Children | None = None
        self.has_runs = False
        """True when children have run as its tools: windows are told of them."""
        self.agent: Any = cast("Any", cls).__new__(cls)
        self.hooks = HookRunner(self.agent, base, self.name)
        self.feed = Feed()
        self.holds = Holds()
        # What goes on in the background, and whether that only waits for a person.
        self._tasks: dict[asyncio.Future[Any], Callable[[], bool] | None] = {}
        # Each is one object for all parts: there may be many agents.
        emit, background, wake_at = self.emit, self.background, self.wake_at
        self._unreadable = UnreadableRows(self.id, emit)
        parts = AgentParts(
            id=self.id,
            store=store,
            clock=clock,
            limits=limits,
            hooks=self.hooks,
            feed=self.feed,
            new_id=new_id,
            emit=emit,
            save_value=self.save_value,
            background=background,
            unreadable=self._unreadable,
            own_files=self.own_files,
        )
        self.state = StateBox(parts)
        later = ScheduleParts(
            id=self.id,
            store=store,
            clock=clock,
            holds=self.holds,
            agent=self.agent,
            emit=emit,
            report=self.hooks.on_error,
            wake_at=wake_at,
            alarm_at=self.alarm_at,
        )
        self.alarms = Alarms(later)
        self.jobs = Jobs(later)
        self.fibers = Fibers(
            FiberParts(
                id=self.id,
                store=store,
                clock=clock,
                holds=self.holds,
                hooks=self.hooks,
                new_id=new_id,
                emit=emit,
                wake_at=wake_at,
                background=background,
                stash_turn=self.stash_turn,
            )
        )
        self.chat: Chat | None = None
        """Its conversation; `None` for an agent that does not chat."""
        self.declared: Tasks | None = None
        """The tasks that it declares, for one that chats."""
        self.messaging: Messaging | None = None
        """What it has to do with messengers, for one that chats."""
        if issubclass(cls, base):
            self.chat = Chat(
                parts,
                resolve_model=resolve_model,
                trials=trials,
                mcp=self.used_servers,
                sandboxes=sandboxes,
            )
            self.chat.host.below, self.chat.of_clear = self._below, self._note_clear
            self.declared = Tasks(later, self.alarms, self.chat.submissions, self.hooks)
            rests = partial(self.chat.is_resting, self._rests)
            self.messaging = Messaging(
                address,
                self.chat,
                kin=kin,
                bots=bots,
                background=background,
                rests=rests,
                stop_run=lambda run, reason: self.children.runs.cancel(run, reason),
            )
        self.idle_since: float | None = None
        """Since when nobody has needed this agent, as far as its directory has noticed."""
        self.sockets: Any = None
        """The connections, once there was one."""
        self.agent._home = self
        self.agent.__init__()

    # --- life

    async def start(self, props: Any = None) -> None:
        """Load, let the developer's start code run, and put right what an earlier process left."""
        rows = cast("list[tuple[str, str]]", await self.store.fetch(queries.VALUES))
        kept = KeptValues(dict(rows), self._unreadable)
        state, self.has_runs = kept.get("state", dict[str, Any]), RUNS in kept
        if self.chat is not None:
            self.chat.restore(kept)
        await self.state.load(state, is_lost="state" in kept and state is None)
        if self.chat is not None:
            await self.chat.load(kept)
        if "mcp" in kept:
            await self.mcp.restore()
        await self.fibers.recover()
        with self.alarms.starting():
            await self.hooks.on_start(props)
        if self.chat is not None and self.declared is not None:
            await self.chat.attempt("scheduled-task-reconcile", self.declared.reconcile())
            if self.messaging is not None:
                await self.messaging.start(is_marked=MARK in kept, offsets=kept.get(OFFSETS, dict[str, int]))
            await self.chat.wake(kept)
        await self.jobs.open()
        if self.has_runs:
            self.background(self.children.runs.reconcile())
            if kept.get(RUNS) == CLEARED:
                self.background(self.children.runs.forget())

    def cut(self) -> None:
        """Cut running turns where they are, at once. `stop` follows."""
        if self.chat is not None:
            self.chat.door.cut()

    def refuse(self) -> None:
        """Begin nothing more, from here on. `stop` follows."""
        self.fibers.refuse()
        self.jobs.refuse()
        if self.chat is not None:
            self.chat.door.refuse()

    async def stop(self, grace: float, leaves: Leaves = "process") -> None:
        """Stop serving; running turns get `grace` seconds and are then cut where they are. Whoever waits for
        them is told what the agent `leaves` memory for."""
        if self.chat is not None:
            self.chat.host.leaves = leaves
        if self._children is not None:
            self._children.runs.leave()
        is_resting = self.chat is not None and await self._note_resting(self.chat)
        stops = [self.fibers.close(grace), self.alarms.stop(grace), self.jobs.stop(grace)]
        if self.chat is not None:
            stops.insert(0, self.chat.door.close(0 if is_resting else grace))
        if self._mcp is not None:
            stops.append(self._mcp.close())
        await asyncio.gather(*stops)
        if self.chat is not None:
            self.chat.submissions.leave()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)
        if self.chat is not None:
            await self.chat.extensions.close()
        self.feed.publish(AgentLeft())

    async def _note_resting(self, chat: Chat) -> bool:
        """Keep that a turn is left which only waits for a person. True when there is one."""
        turn = None if self.fence.is_lost else chat.resting(self._rests)
        if turn is None:
            return False
        try:
            await self.store.apply([chat.rested(turn)])
        except StoreError as error:
            log.info("turn %s of %s goes on as after a crash: %s", turn.id, self.id, error)
        return True

    def left_work(self) -> list[asyncio.Future[Any]]:
        """What runs without anybody having asked: fibers and jobs, those of an earlier process among them."""
        return [*self.fibers.running, *self.jobs.running]

    @property
    def is_idle(self) -> bool:
        """True when nothing would be lost by leaving memory: no connection, nothing held, and no turn or
        other work but what waits for a person."""
        if self.holds.count or (self.sockets is not None and self.sockets.connections):
            return False
        if self.chat is not None and not self.chat.may_leave(self._rests):
            return False
        return all(rests is not None and rests() for rests in self._tasks.values())

    def _rests(self, turn_id: str, call_id: str) -> bool:
        """True when a call of a turn waits for a child that waits for a person."""
        return self._children is not None and self._children.runs.rests(turn_id, call_id)

    @property
    def executions(self) -> Executions:
        """What code of its model has done."""
        answers = None if self.chat is None else self.chat.answers
        return Executions(self.store, self.clock, self.sandboxes, answers=answers)

    # --- children

    @property
    def children(self) -> Children:
        """The agents below it."""
        if self._children is None:
            chat = self.chat
            self._children = Children(
                ChildrenParts(
                    address=self.address,
                    store=self.store,
                    clock=self.clock,
                    hooks=self.hooks,
                    feed=self.feed,
                    kin=self._kin,
                    new_id=self.new_id,
                    emit=self.emit,
                    background=self.background,
                    hold=self.hold,
                    wake_at=self.wake_at,
                    mark=self._mark_runs,
                    aborts=None if chat is None else chat.host.aborts,
                    turns=None if chat is None else chat.host.turns,
                    submit=None if chat is None else chat.submissions.accept,
                    add=None if chat is None else chat.add,
                    keeps=None if chat is None else chat.keeps,
                    forgot=lambda: self.save_value(RUNS, True),
                )
            )
        return self._children

    async def _mark_runs(self) -> None:
        """Its start looks for runs from now on."""
        if not self.has_runs:
            await self.store.apply([self.save_value(RUNS, True)])
            self.has_runs = True

    def _note_clear(self) -> list[Statement]:
        """With the conversation go the runs of its calls, be it at the next start."""
        return [self.save_value(RUNS, CLEARED)] if self.has_runs else []

    async def _below(self, turn_id: str) -> Below:
        return await self.children.runs.below(turn_id) if self.has_runs else Below()

    def as_child(self) -> Child:
        """It, as its parent looks into it. It chats."""
        chat, messaging = self.chat, self.messaging
        assert chat is not None
        assert messaging is not None
        return Child(
            address=self.address,
            store=self.store,
            hooks=self.hooks,
            feed=self.feed,
            submissions=chat.submissions,
            answers=chat.answers,
            save_value=self.save_value,
            accompany=messaging.accompany,
            expect=chat.expect,
            expected=lambda: chat.host.tool_output,
            parts_of=chat.parts_of,
            is_to_go_on=chat.is_to_go_on,
            until_stable=chat.until_stable,
            rests=lambda: chat.is_resting(self._rests),
            has_found_turns=chat.has_found_turns,
            cancel_all=chat.cancel_all,
            hold=self.hold,
        )

    # --- MCP servers

    @property
    def mcp(self) -> McpServers:
        """The MCP servers that it may use."""
        if self._mcp is None:
            self._mcp = McpServers(
                McpParts(
                    id=self.id,
                    cls_name=self.cls.__name__,
                    name=self.name,
                    store=self.store,
                    clock=self.clock,
                    emit=self.emit,
                    save_value=self.save_value,
                    background=self.background,
                    changed=self._servers_changed,
                    removed=self._server_removed,
                    network=self._network,
                    shared=self._shared_servers,
                    is_starting=lambda: self.alarms.is_starting,
                )
            )
        return self._mcp

    def used_servers(self) -> McpServers | None:
        """The same, for those to whom it matters only if there are any."""
        return self.mcp if self._mcp is not None or self._shared_servers else None

    @property
    def workspace(self) -> Any:
        """Its files: those that its class names, else rows of its own."""
        if self._workspace is None:
            from ..workspace.workspace import Workspace

            owner, defined = whose_workspace(
                self.address, {**self._kin.classes(), self.cls.__name__: self.cls}
            )
            if isinstance(defined, Workspace):
                store = self.store if owner == self.id else BorrowedStore(owner, self.store)
                defined = defined.bind(
                    store,
                    clock=self.clock,
                    emit=self.emit,
                    origin=lambda: current_call(self.id),
                    named=partial(self._named_by_history, owner),
                )
            self._workspace = defined
        return self._workspace

    def own_files(self) -> StoredFiles:
        """The files in its own rows: those of its workspace, if that has none of its own."""
        if self._own_files is None:
            from ..workspace.stored import StoredFiles

            workspace = self.workspace
            files = workspace.files if is_stored(workspace) else None
            if not isinstance(files, StoredFiles) or files.agent != self.id:
                named = partial(self._named_by_history, self.id)
                files = StoredFiles(self.store, clock=self.clock, named=named)
            self._own_files = files
        return self._own_files

    def own_workspace(self) -> Workspace:
        """The same as a workspace."""
        from ..workspace.workspace import Workspace

        workspace, files = self.workspace, self.own_files()
        is_its_own = is_stored(workspace) and workspace.files is files
        return workspace if is_its_own else Workspace(files)

    async def _named_by_history(self, owner: str, hashes: Collection[str]) -> Collection[str]:
        """Which contents are named by what was said to an agent, or to one below that may have its files."""
        database = self.store.database
        members = await database.fetch(queries.MEMBERS, owner)
        return await named_by_history(database, [row[0] for row in members], hashes)

    async def _server_removed(self, name: str, tools: Collection[str]) -> None:
        if self.chat is not None:
            await self.chat.end_questions(tools, REMOVED.format(name=name))

    def _servers_changed(self) -> None:
        self.feed.publish(ServersChanged())

    # --- what its parts ask for

    @property
    def outermost(self) -> tuple[type[Any], str]:
        """Class and name of the outermost of those above it: whom checks are asked about."""
        root = self.address.root
        return self._kin.classes()[root.cls_name], root.name

    def emit(self, event: EventBody) -> None:
        """Tell observers."""
        self._bus.emit(self.address.cls_name, self.name, event, self.address.parents)

    def save_value(self, key: str, value: Any) -> Statement:
        """A statement that keeps a small JSON value (`None` forgets it)."""
        if value is None:
            return queries.remove_value(key)
        return queries.set_value(key, bounded_json(value).decode())

    def background(self, work: Awaitable[Any], *, rests: Callable[[], bool] | None = None) -> None:
        """Keep a task alive until it ends; what it raises is logged. The agent stays in memory for it, unless
        `rests` says that it only waits for a person, and its next start takes it up."""
        task = begin(work, f"background work of {self.id}", tell=self.emit)
        self._tasks[task] = rests
        task.add_done_callback(self._tasks.pop)

    async def stash_turn(self, data: Any) -> None:
        """Keep a checkpoint of the turn this code runs in."""
        turn = current_turn()
        assert turn is not None
        await self.store.apply([turns.stashed(turn.id, data=as_json(data, "checkpoint"))])

    def hold(self) -> Hold:
        """Keep the agent in memory until the hold is released."""
        return self.holds.take()

    def wake_at(self, at_ms: int) -> None:
        """See that the agent is awake at that time."""
        self._waker(at_ms, self.id)

    def alarm_at(self, at_ms: int) -> None:
        """The same for a time that the row of an alarm says."""
        self._waker(at_ms, None)

    async def retry(self, fn: Callable[[int], Any], given: Retry, should_retry: Any) -> Any:
        """Call a function until it returns, with waits that grow."""
        check_call("retry", fn=fn, should_retry=should_retry)
        options = options_of(self.agent, given)
        return await retrying(fn, options, should_retry=should_retry, clock=self.clock)
