"""`Agent`: an addressable thing that lives in a database and wakes when it is reached."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Never, Self, TypeVar, cast

from .current import current_connection, current_origin, in_readonly_turn, origin_of
from .declaring import check_added, check_own, check_setting, check_settings, size_of
from .errors import AgentError
from .fibers.values import FiberRecovery
from .holds import Hold, while_held
from .json_values import NO_STATE
from .messages import UNSET
from .schedules.retry import Retry
from .settings import check_call, shown
from .surface import MissingAttribute, check_assigned, check_class, reserved_of

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request

    from .abort import AbortSignal
    from .children.values import (
        AgentToolProgress,
        AgentToolResult,
        AgentToolRun,
        Detached,
        RunStatus,
        SubAgent,
    )
    from .fibers.fibers import FiberFunction
    from .fibers.values import (
        FiberInspection,
        FiberOutcome,
        FiberRecoveryContext,
        FiberStatus,
    )
    from .mcp.listing import Wanted
    from .mcp.places import McpServer, ServerState, Transport
    from .runtime.actor import Actor
    from .schedules.alarms import Schedule
    from .schedules.jobs import Job
    from .schedules.when import Kind
    from .server.connections import Connection

__all__ = ["Agent"]

log = logging.getLogger("everthink.agent")

T = TypeVar("T")
A = TypeVar("A", bound="Agent")

_ENTERED = "_entered"


class Agent:
    """An agent with a name of its own. Subclass `Think` for one that chats.

    An instance exists while the agent is in memory; what must survive belongs into its
    storage. Instances are made by the app, never by hand: `app.agent(Cls, "name")`.
    """

    _home: Actor
    _reserved: ClassVar[Mapping[str, Any]] = {}
    _own: ClassVar[set[str]] = set()
    _size: ClassVar[int] = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check the names and values of a new agent class, so that a mistake shows where it was made."""
        super().__init_subclass__(**kwargs)
        check_class(cls)
        check_settings(cls)
        cls._reserved = reserved_of(cls)
        cls._own, cls._size = set(), 0
        cls._size = size_of(cls)

    if not TYPE_CHECKING:  # a type checker knows which names there are

        def __new__(cls, *args, **kwargs):
            """Check what was added to the class since it was written."""
            cls._size = check_added(cls, cls._size)
            return super().__new__(cls)

        def __setattr__(self, name, value):
            check_assigned(self, name, self._reserved)
            check_setting(self, name, value)
            check_own(self, name, value, self._own)
            object.__setattr__(self, name, value)

        def __getattr__(self, name):
            cls = type(self)
            if any(name in vars(base) for base in cls.__mro__):
                return object.__getattribute__(self, name)  # a property that raised: its own words
            raise MissingAttribute(cls, name, lambda: [*dir(cls), *vars(self)])

    @property
    def name(self) -> str:
        """The name this agent is reached by."""
        return self._home.name

    def _bash_sandbox(self) -> Any:
        return self._home.sandboxes.bash()

    def _sandboxes(self) -> Any:
        return self._home.sandboxes

    def _executions(self) -> Any:
        return self._home.executions

    def _browser_home(self) -> Any:
        return self._home.browsers

    def _own_workspace(self) -> Any:
        return self._home.own_workspace()

    @property
    def id(self) -> str:
        """The agent's address: its class and its name, below those of its parents."""
        return self._home.id

    initial_state: Any = NO_STATE
    """The state of an agent that has none yet: any JSON value, shown to every connected client."""

    @property
    def state(self) -> Any:
        """The agent's state, as a copy. `None` when it has none."""
        return self._home.state.value

    async def set_state(self, state: Any) -> None:
        """Replace the state; it is stored, and every connected client gets it.

        Raises when the change is not valid, or when this runs for a client that may only read: in a call
        of theirs, or in a tool or hook of a turn they asked for.
        """
        caller = current_connection.get()
        is_theirs = caller is not None and caller.agent_id == self.id and caller.is_readonly
        if is_theirs or in_readonly_turn(self.id):
            raise AgentError("Connection is readonly")
        await self._home.state.set(state, source="server")

    def validate_state_change(self, state: Any, source: Any) -> None:
        """Raise to refuse a state. `source` is `"server"` or the connection it came by."""

    def on_state_changed(self, state: Any, source: Any) -> Any:
        """See a new state, after it was stored and sent. Raising is logged."""

    # --- connections

    def should_connection_be_readonly(
        self, connection: Connection, request: HTTPConnection
    ) -> bool | Awaitable[bool]:
        """True for a client that may not change the state. Default: nobody."""
        return False

    def should_send_protocol_messages(
        self, connection: Connection, request: HTTPConnection
    ) -> bool | Awaitable[bool]:
        """False for a client that wants no identity, state and MCP frames. Default: everybody does."""
        return True

    def on_connect(self, connection: Connection, request: HTTPConnection) -> Awaitable[None] | None:
        """A client connects; its greeting waits for this. Raising closes with 1011 and shows it nothing."""

    def on_message(self, connection: Connection, message: str | bytes) -> Awaitable[None] | None:
        """A client sent something that is not part of the protocol. Raising is logged."""

    def on_close(self, connection: Connection, code: int, reason: str) -> Awaitable[None] | None:
        """A client left. Raising is logged."""

    def on_request(self, request: Request) -> Any:
        """Answer an HTTP request below the agent's address: a response, a JSON value, or `None` for 404."""
        return None

    def broadcast(self, message: str, *, without: Sequence[Any] = ()) -> None:
        """Send text to every connected client except those: connections, or their ids."""
        left_out = _check_broadcast(message, without)
        if self._home.sockets is not None:
            self._home.sockets.broadcast(message, without=left_out)

    @property
    def connections(self) -> list[Connection]:
        """The connected clients."""
        return list(self._home.sockets.connections) if self._home.sockets is not None else []

    # --- timers

    hung_schedule_timeout: float = 30.0
    """Seconds after which an interval that was begun and not ended is taken for dead and begun again."""

    max_alarm_memory_limit_strikes: int = 3
    """How often a timer may run out of memory before it is given up."""

    async def schedule(
        self,
        when: datetime | float | timedelta | str,
        callback: str | Callable[..., Any],
        payload: Any = None,
        *,
        retry: Retry | None = None,
        idempotent: bool | None = None,
    ) -> Schedule:
        """Call a method later: at a time, after seconds, or whenever a cron expression says (in UTC).

        The method is called with the payload (any JSON value) and the `Schedule`, whether or not anybody is
        connected, and after a restart too. It is durable when this returns. With `idempotent` an equal timer
        (same callback and payload) is kept instead of a second one; cron does that unless you say `False`.
        """
        return await self._home.alarms.schedule(when, callback, payload, retry=retry, idempotent=idempotent)

    async def schedule_every(
        self,
        seconds: float | timedelta,
        callback: str | Callable[..., Any],
        payload: Any = None,
        *,
        retry: Retry | None = None,
    ) -> Schedule:
        """Call a method again and again, so long after it returned the time before. At most 30 days apart.

        An equal timer (same callback, interval and payload) is kept instead of a second one.
        """
        return await self._home.alarms.schedule_every(seconds, callback, payload, retry=retry)

    async def get_schedule(self, id: str) -> Schedule | None:
        """The timer with this id, or `None` when it is over or was cancelled."""
        return await self._home.alarms.get(id)

    async def list_schedules(
        self,
        *,
        id: str | None = None,
        type: Kind | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> list[Schedule]:
        """The timers of this agent, the earliest first: all, or those of a type or due in a span of time."""
        return await self._home.alarms.listed(id=id, type=type, start=start, end=end)

    async def cancel_schedule(self, id: str) -> bool:
        """Take a timer back. False when there is none of that id. A callback that runs already goes on."""
        return await self._home.alarms.cancel(id)

    # --- the queue

    async def queue(
        self, callback: str | Callable[..., Any], payload: Any = None, *, retry: Retry | None = None
    ) -> str:
        """Call a method soon, after those queued before it, one at a time. Returns the job's id.

        The method is called with the payload (any JSON value) and the `Job`. It is durable when this returns.
        A job that fails is removed as well, after its attempts and `on_error`.
        """
        return await self._home.jobs.queue(callback, payload, retry=retry)

    async def dequeue(self, id: str) -> bool:
        """Take a job back. False when there is none of that id. One that runs already goes on."""
        return await self._home.jobs.dequeue(id)

    async def dequeue_all(self) -> int:
        """Take every job back. Returns how many there were."""
        return await self._home.jobs.dequeue_all()

    async def dequeue_all_by_callback(self, callback: str | Callable[..., Any]) -> int:
        """Take the jobs of one method back, by its name or as it is. Returns how many there were."""
        return await self._home.jobs.dequeue_all_by_callback(callback)

    async def get_queue(self, id: str) -> Job | None:
        """The job with this id, or `None` when it is over or was taken back."""
        return await self._home.jobs.get(id)

    async def get_queues(self, key: str | None = None, value: Any = UNSET) -> list[Job]:
        """The jobs that wait or run, in order: all, or those whose payload holds `value` under `key`."""
        return await self._home.jobs.matching(key, value)

    # --- MCP servers

    async def add_mcp_server(
        self,
        name: str,
        url: str,
        *,
        id: str | None = None,
        transport: Transport = "auto",
        headers: Mapping[str, str] | None = None,
        approval: Literal["never", "destructive", "always"] = "never",
        tools: Sequence[str] | None = None,
        timeout: float = 60.0,
        total_timeout: float = 600.0,
        callback_host: str | None = None,
        callback_path: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        scope: str | None = None,
    ) -> McpServer:
        """Use the tools of an MCP server from now on, also after a restart.

        Returns how it stands: `ready`, or `authenticating` with the `auth_url` where a person lets the agent
        in; they come back to `callback_host` (default: where the present request came to). Raises when it
        cannot be reached; it is kept all the same and tried again. The same name and URL are the same server:
        saying it again is harmless, and other options or another `id` replace what was said before.

        `approval` says which calls a person is asked about, `tools` which tools are offered. `client_id`,
        `client_secret` and `scope` are for an authorization server at which you have registered by hand.
        """
        check_call(
            "add_mcp_server",
            name=name,
            url=url,
            id=id,
            callback_host=callback_host,
            callback_path=callback_path,
            client_id=client_id,
            client_secret=client_secret,
            scope=scope,
        )
        from .mcp.places import HttpServer, OAuthClient

        place = HttpServer(
            url,
            transport=transport,
            headers={} if headers is None else headers,
            approval=approval,
            tools=tools,
            timeout=timeout,
            total_timeout=total_timeout,
        )
        return await self._home.mcp.add(
            name,
            place,
            client=OAuthClient(client_id=client_id, client_secret=client_secret, scope=scope),
            id=id,
            host=callback_host or current_origin.get() or _origin(current_connection.get()),
            path=callback_path,
        )

    async def remove_mcp_server(self, id: str) -> bool:
        """Forget an MCP server, with its secrets, by its id or its name. False when there is none.

        What its tools ask people ends with words, which the model reads.
        """
        check_call("remove_mcp_server", id=id)
        await self._home.mcp.open()
        return await self._home.mcp.remove(id)

    async def list_mcp_servers(
        self,
        *,
        id: str | Sequence[str] | None = None,
        name: str | Sequence[str] | None = None,
        state: ServerState | Sequence[ServerState] | None = None,
    ) -> list[McpServer]:
        """The MCP servers of this agent and those of its app, and how each of them stands.

        All of them, or those with this id, name and state; several values mean any of them.
        """
        return self._home.mcp.list(await self._wanted_servers("list_mcp_servers", id, name, state))

    async def get_mcp_servers(
        self,
        *,
        id: str | Sequence[str] | None = None,
        name: str | Sequence[str] | None = None,
        state: ServerState | Sequence[ServerState] | None = None,
    ) -> dict[str, Any]:
        """The same with everything that they offer, as connected clients are told it: `servers`, `tools`,
        `prompts`, `resources`, and `resourceTemplates`.
        """
        return self._home.mcp.offers(await self._wanted_servers("get_mcp_servers", id, name, state))

    async def _wanted_servers(self, call: str, id: Any, name: Any, state: Any) -> Wanted:
        check_call(call, id=id, name=name, state=state)
        from .mcp.listing import Wanted

        await self._home.mcp.open()
        return Wanted(id, name, state)

    async def call_mcp_tool(self, server: str, tool: str, input: dict[str, Any] | None = None) -> Any:
        """Call a tool of an MCP server, by the server's id or name and the name it has there.

        Nobody is asked first: approvals are for what a model wants. Raises `ToolError` when it fails.
        """
        check_call("call_mcp_tool", server=server, tool=tool, input=input)
        return await (await self._mcp_server(server)).use(tool, input or {}, self)

    async def get_mcp_prompt(
        self, server: str, name: str, arguments: dict[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """A prompt of an MCP server, filled in: messages with `role` and `content`."""
        check_call("get_mcp_prompt", server=server, name=name, arguments=arguments)
        return await (await self._mcp_server(server)).prompt(name, arguments)

    async def read_mcp_resource(self, server: str, uri: str) -> list[dict[str, Any]]:
        """What stands behind an address of an MCP server: each with `uri`, and `text` or `blob` (base64)."""
        check_call("read_mcp_resource", server=server, uri=uri)
        return await (await self._mcp_server(server)).resource(uri)

    async def _mcp_server(self, server: str) -> Any:
        await self._home.mcp.open()
        return self._home.mcp.find(server)

    def on_mcp_authorized(self, server: McpServer, error: str | None) -> Any:
        """Somebody came back from the authorization server of an MCP server: with success, or with an error.

        Return where their browser goes now, as text, or a response. Default: the root of this site, with the
        error in its query. Raising is logged, and they go there as well.
        """
        return None

    # --- trying again, staying awake

    retry_options: Retry | dict[str, Any] | None = Retry()
    """How often `retry`, timers and jobs are tried unless they say otherwise: 3 times, 0.1 to 3 s apart."""

    async def retry(
        self,
        fn: Callable[[int], T | Awaitable[T]],
        *,
        max_attempts: int | None = None,
        base_delay: float | None = None,
        max_delay: float | None = None,
        should_retry: Callable[[Exception, int], bool | Awaitable[bool]] | None = None,
    ) -> T:
        """Call `fn(attempt)` until it returns, with waits that grow; the last error is raised.

        `should_retry(error, next_attempt)` may return False to stop at once. What is not given comes from
        `retry_options`.
        """
        return await self._home.retry(fn, Retry(max_attempts, base_delay, max_delay), should_retry)

    async def __aenter__(self) -> Self:
        """Keep this agent in memory until the block ends. A handle that is entered gives the agent itself."""
        vars(self).setdefault(_ENTERED, []).append(self._home.hold())
        return self

    async def __aexit__(self, *error: object) -> None:
        vars(self)[_ENTERED].pop().release()

    def keep_alive(self) -> Hold:
        """Keep this agent in memory until the hold is released: `async with self.keep_alive(): ...`.

        It does not survive a restart. Turns, timers, jobs and fibers hold the agent by themselves.
        """
        return self._home.hold()

    async def keep_alive_while(self, fn: Callable[[], T | Awaitable[T]]) -> T:
        """Keep this agent in memory while `fn()` runs, and return what it returns."""
        return await while_held(self._home.hold(), fn)

    # --- children

    sub_agents: Sequence[type[Agent]] = ()
    """The classes of this agent's children, as far as the app cannot know them otherwise: those named here
    are woken after a restart, and found in addresses, before anybody has used them."""

    max_concurrent_agent_tools: float = math.inf
    """So many runs of children may be under way at once; one more is refused, and nothing waits."""

    agent_tool_reattach_no_progress_timeout: float = 120.0
    """Seconds after which a child that an earlier process began and that says nothing is waited for no
    longer. It goes on by itself, and asking again joins it. Waiting for a person is no silence."""

    agent_tool_reattach_max_window: float = math.inf
    """Seconds after which such a child is stopped, whatever it says."""

    async def sub_agent(self, cls: type[A], name: str) -> A:
        """A child: an agent of its own below this one, made and started if need be, as others have it:
        `await child.save_messages(…)`, `child.chat(…)`, its own methods. It stays until it is deleted."""
        return await self._home.children.family.child(cls, name)

    async def has_sub_agent(self, cls: type[Agent] | str, name: str) -> bool:
        """True when there is such a child. `cls` may be the name of a class."""
        return await self._home.children.family.has(cls, name)

    async def list_sub_agents(self, cls: type[Agent] | str | None = None) -> list[SubAgent]:
        """The children, the oldest first; with `cls` those of that class."""
        return await self._home.children.family.list(cls)

    async def abort_sub_agent(self, cls: type[Agent] | str, name: str) -> None:
        """Drop a child from memory where it is. What it did is kept, and goes on when it is next reached."""
        await self._home.children.family.abort(cls, name)

    async def delete_sub_agent(self, cls: type[Agent] | str, name: str) -> None:
        """Delete a child, everything of it, and all below it. One that is not there is no error."""
        await self._home.children.family.delete(cls, name)

    async def destroy(self) -> None:
        """Delete this agent, everything of it, and all below it."""
        await self._home.children.family.destroy()

    def parent_agent(self, cls: type[A]) -> A:
        """The parent of this child, as others have it. Raises when it is nobody's, or of another class."""
        return self._home.children.family.parent(cls)

    @property
    def parent_path(self) -> list[tuple[str, str]]:
        """Class and name of those above, the outermost first; empty for an agent that is nobody's child."""
        return list(self._home.address.parents)

    @property
    def self_path(self) -> list[tuple[str, str]]:
        """The same with this agent at its end."""
        return list(self._home.address.path)

    async def run_agent_tool(
        self,
        cls: type[Agent],
        *,
        input: Any,
        run_id: str | None = None,
        parent_tool_call_id: str | None = None,
        signal: AbortSignal | None = None,
        input_preview: str | None = None,
        display: Mapping[str, Any] | None = None,
        display_order: int = 0,
        output: Any = None,
        detached: bool | Detached | dict[str, Any] = False,
        **unknown: Never,
    ) -> AgentToolResult:
        """Let a child of its own answer once, and wait for it. What goes wrong is told in the result.

        `run_id` names the run and the child. A run that is known is joined where it is, or its result
        returned: it is never begun twice. `output` is a type or a schema that the answer is to fit.

        With `detached` nobody waits: this returns (`status` is `"running"`) once the run is accepted, and it
        goes on after the turn that asked, and after a restart. `Detached(…)` says who is told how it ended,
        and how long it may take; `cancel_agent_tool` stops it, `signal` does not.
        """
        check_call(
            "run_agent_tool",
            run_id=run_id,
            parent_tool_call_id=parent_tool_call_id,
            signal=signal,
            input_preview=input_preview,
            display=display,
            display_order=display_order,
        )
        return await self._home.children.run(
            cls,
            unknown,
            input=input,
            run_id=run_id,
            call_id=parent_tool_call_id,
            signal=signal,
            preview=input_preview,
            display=display,
            order=display_order,
            output=output,
            detached=detached,
        )

    async def report_progress(
        self,
        *,
        fraction: float | None = None,
        message: str | None = None,
        phase: str | None = None,
        milestone: str | None = None,
        data: Any = None,
        persist: bool = False,
    ) -> None:
        """Tell the parent how far this child is with the run it is asked for: in its tools and hooks.

        Windows of the parent see it, and its `on_progress`; no message holds it. At most one in 200 ms is
        told. The latest is kept with the run, `data` only with `persist`. A `milestone` is kept for good, in
        order. Outside a run nobody is told, which is logged.
        """
        await self._home.children.reports.report(
            fraction=fraction,
            message=message,
            phase=phase,
            milestone=milestone,
            data=data,
            persist=persist,
        )

    async def cancel_agent_tool(self, run_id: str, reason: object = None) -> None:
        """Stop a run of a child. One that is over, or unknown, stays as it is."""
        check_call("cancel_agent_tool", run_id=run_id)
        await self._home.children.runs.cancel(run_id, reason)

    async def clear_agent_tool_runs(
        self,
        *,
        older_than: datetime | None = None,
        status: RunStatus | Sequence[RunStatus] | None = None,
    ) -> int:
        """Delete runs and their children: those that began before a time, or have a status. How many."""
        return await self._home.children.runs.clear(older_than=older_than, status=status)

    async def list_agent_tool_runs(self) -> list[AgentToolRun]:
        """The runs of children that are kept, the oldest first."""
        return await self._home.children.runs.list()

    def _children(self) -> Any:
        return self._home.children

    def on_before_sub_agent(self, request: HTTPConnection, cls: type[Agent], name: str) -> Any:
        """Somebody wants to reach a child by its address. Return a response (or raise) to refuse them;
        asked once for each request and socket, at each step of the way."""
        return None

    def on_agent_tool_start(self, run: AgentToolRun) -> Awaitable[None] | None:
        """A run of a child begins. Raising is logged."""

    def on_agent_tool_finish(self, run: AgentToolRun, result: AgentToolResult) -> Awaitable[None] | None:
        """A run of a child is over. Raising is logged."""

    def on_progress(self, run: AgentToolRun, progress: AgentToolProgress) -> Awaitable[None] | None:
        """A child reports how far it is, or passes a milestone. Raising is logged."""

    # --- fibers

    fiber_recovery: FiberRecovery | dict[str, Any] = FiberRecovery()
    """How long recovery of fibers may take."""

    def run_fiber(self, name: str, fn: FiberFunction[T]) -> asyncio.Task[T]:
        """Run `fn(ctx)` so that a restart does not lose it: await the result, or leave it to itself.

        Its last checkpoint (`ctx.stash`) comes to `on_fiber_recovered` if the process dies before it returns.
        """
        return self._home.fibers.run(name, fn)

    async def start_fiber(
        self,
        name: str,
        fn: FiberFunction[Any],
        *,
        fiber_id: str | None = None,
        idempotency_key: str | None = None,
        metadata: dict[str, Any] | None = None,
        wait_for_completion: bool = False,
    ) -> FiberInspection:
        """Accept a fiber once per id or key, run it in the background, and keep a record of how it went.

        The record is durable when this returns. With `wait_for_completion` it is the final one.
        """
        return await self._home.fibers.start(
            name,
            fn,
            fiber_id=fiber_id,
            idempotency_key=idempotency_key,
            metadata=metadata,
            wait_for_completion=wait_for_completion,
        )

    def resume_fiber(self, fiber_id: str, fn: FiberFunction[T]) -> asyncio.Task[T]:
        """Go on with an interrupted fiber where it was: same id, same record, `ctx.snapshot` is its last
        checkpoint. Call it in `on_fiber_recovered`, or later for one that `inspect_fiber` calls interrupted.
        """
        return self._home.fibers.resume(fiber_id, fn)

    async def stash(self, data: Any) -> None:
        """Keep a checkpoint (any JSON value) of the fiber or turn this code is part of, in place of the one
        before. It is durable when this returns. Raises outside both.
        """
        await self._home.fibers.stash(data)

    async def inspect_fiber(self, fiber_id: str) -> FiberInspection | None:
        """How a fiber of `start_fiber` stands, or `None` when there is none of that id."""
        return await self._home.fibers.inspect(fiber_id)

    async def inspect_fiber_by_key(self, idempotency_key: str) -> FiberInspection | None:
        """How the fiber with this key stands."""
        return await self._home.fibers.inspect_by_key(idempotency_key)

    async def list_fibers(
        self,
        *,
        status: FiberStatus | Sequence[FiberStatus] | None = None,
        name: str | None = None,
        limit: int = 50,
    ) -> list[FiberInspection]:
        """The fibers of `start_fiber`, newest first; at most 100."""
        return await self._home.fibers.list(status=status, name=name, limit=limit)

    async def cancel_fiber(self, fiber_id: str, reason: object = None) -> bool:
        """End a fiber that waits or runs: its record says so at once, and its `ctx.signal` fires.

        False when there is none, or when it is over.
        """
        return await self._home.fibers.cancel(fiber_id, reason)

    async def cancel_fiber_by_key(self, idempotency_key: str, reason: object = None) -> bool:
        """End the fiber with this key."""
        return await self._home.fibers.cancel_by_key(idempotency_key, reason)

    async def resolve_fiber(self, fiber_id: str, outcome: FiberOutcome) -> bool:
        """Say what became of an interrupted fiber. False when it is not interrupted."""
        return await self._home.fibers.resolve(fiber_id, outcome)

    async def delete_fibers(
        self,
        *,
        status: FiberStatus | Sequence[FiberStatus] | None = None,
        settled_before: datetime | None = None,
        limit: int = 100,
    ) -> int:
        """Forget fibers that are over, those settled first first; at most 500. Returns how many.

        Interrupted ones are kept unless `status` names them.
        """
        return await self._home.fibers.delete(status=status, settled_before=settled_before, limit=limit)

    def on_fiber_recovered(self, ctx: FiberRecoveryContext) -> Any:
        """Go on with a fiber that an earlier process left, before `on_start`. May run twice for one fiber.

        For a fiber of `start_fiber` return what became of it (`FiberCompleted()`, `FiberFailed()`, …);
        `None` leaves it interrupted, raising makes it an error. One of `run_fiber` is forgotten when this
        returns, and tried again later when it raises.
        """
        log.warning("fiber %s (%s) of %s was interrupted and is not taken up", ctx.id, ctx.name, self.id)

    # --- life

    async def on_start(self, props: Any = None) -> None:
        """Runs once each time the agent comes into memory, before it serves anybody.

        `props` are those given to `app.agent(..., props=...)` by whoever woke it. Raising fails
        that caller; the next one tries again.
        """

    def on_error(self, error: BaseException) -> Any:
        """A timer, a job or something else that nobody waits for has failed for good. Default: it is logged.

        Raising is logged too, and changes nothing.
        """
        log.error("work of %s in the background failed", self.id, exc_info=error)


def _check_broadcast(message: Any, without: Any) -> list[str]:
    """Refuse what cannot be sent, or to whom not. Returns the ids of those who are left out."""
    if not isinstance(message, str):
        raise AgentError(
            f"broadcast sends text, and is given {shown(message)}.",
            kept="Nothing was sent.",
            next_step="Write JSON yourself: self.broadcast(json.dumps(…)).",
        )
    if isinstance(without, str):
        raise AgentError(
            f"broadcast(without={without!r}) is a text, in the place of a list of connection ids.",
            kept="Nothing was sent.",
            next_step=f"Write without=[{without!r}].",
        )
    is_many = isinstance(without, Iterable)
    ids: list[Any] = [getattr(one, "id", one) for one in cast("Iterable[Any]", without if is_many else [])]
    wrong = [one for one in ids if not isinstance(one, str)] if is_many else [without]
    if wrong:
        raise AgentError(
            f"broadcast(without=…) is given {shown(wrong[0])}, which names no connection.",
            kept="Nothing was sent.",
            next_step="Give a list of connections, or of their ids: without=[connection].",
        )
    return ids


def _origin(caller: Any) -> str | None:
    """Where the present connection came to, as people see it: `https://my.page`."""
    request = getattr(caller, "request", None)
    return None if request is None else origin_of(request.url, request.scope)
