"""One live agent: the instance, its conversation, its queue, its readers.

    directory --activate--> Actor --> turn/, session/, submissions

Everything of an agent happens on one event loop; this is where the rooms of the house meet.
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import msgspec

from ..abort import AbortRegistry
from ..address import Address
from ..calling import call_hook, show
from ..clock import Clock
from ..cluster.fence import Fence
from ..current import current_connection, current_turn, in_readonly_turn
from ..door.admission import Door
from ..door.concurrency import Overlaps
from ..door.continuations import Continuations, Wish
from ..door.queue import TurnQueue
from ..door.submissions import Submission, Submissions
from ..errors import AgentError, SessionBusy, StoreError
from ..fibers.fibers import Fibers
from ..fibers.values import as_json
from ..holds import Hold, Holds
from ..hooks.values import Hooks
from ..journal import queries as turns
from ..journal.feed import (
    Feed,
    HistoryChanged,
    SessionTold,
)
from ..journal.fold import Accumulator
from ..journal.tool_errors import ToolErrors
from ..journal.turn import Turn
from ..limits import Limits
from ..messages import Message, bounded_json, decode_json
from ..models.port import Model
from ..observe.bus import EventBus
from ..observe.events import (
    ChatHydrationWindowed,
    ChatOnstartDegraded,
    ChatStoredUnreadable,
    EventBody,
    MessageCut,
)
from ..recovery.recover import Recovering, Recovery
from ..recovery.trials import Trials
from ..recovery.wake import wake
from ..schedules.alarms import Alarms
from ..schedules.callbacks import as_retry, options_of
from ..schedules.jobs import Jobs
from ..schedules.retry import Retry, retrying
from ..schedules.tasks import Tasks
from ..session.compaction import SessionNews, SessionStatus
from ..session.eviction import Evictor
from ..session.path_reader import Shape
from ..session.row_size import shortening_of
from ..session.session import Session
from ..session.sessions import MAIN, Sessions
from ..settings import check_call, setting
from ..store.port import Statement, Store
from ..tasks import begin
from ..tools.collect import client_tools_from, tools_of
from ..tools.tool import Tool
from ..turn.convert import Converter
from ..turn.outcome import Failure
from . import queries
from .cleaning import Cleaning
from .configured import configured
from .state import StateBox

__all__ = ["Actor", "Degradation", "Resident"]

log = logging.getLogger("everthink.runtime")

# The classes that were told that their blocks take the place of their system prompt.
_WARNED: weakref.WeakSet[type[Any]] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Degradation:
    """A step of an agent's start that failed, and how."""

    step: str
    error: str


class Resident(Hooks, Protocol):
    """The agent as its home sees it: the hooks of a turn, and those of its life. `Think` is it."""

    _home: Actor

    @property
    def message_concurrency(self) -> Any:
        """What happens to a message typed while a turn runs."""
        ...

    @property
    def chat_recovery(self) -> Any:
        """What happens to a turn that was cut off."""
        ...

    @property
    def trust_client_history(self) -> bool:
        """Whether the transcript of a window is believed."""
        ...

    @property
    def hydration_byte_budget(self) -> float:
        """How much of a conversation is kept in memory."""
        ...

    @property
    def media_eviction(self) -> Any:
        """What happens to heavy contents of old messages."""
        ...

    @property
    def shorten_old_messages(self) -> Any:
        """How much of older messages the model is shown."""
        ...

    @property
    def capability_prompt(self) -> bool | str:
        """What follows the system prompt."""
        ...

    def configure_session(self, session: Session) -> Any:
        """See `Think.configure_session`."""
        ...

    def on_start(self, props: Any = None) -> Any:
        """See `Agent.on_start`."""
        ...

    def on_fiber_recovered(self, ctx: Any) -> Any:
        """See `Agent.on_fiber_recovered`."""
        ...

    def on_error(self, error: BaseException) -> Any:
        """See `Agent.on_error`."""
        ...

    def on_submission_status(self, submission: Submission) -> Any:
        """See `Think.on_submission_status`."""
        ...

    def should_connection_be_readonly(self, connection: Any, request: Any) -> Any:
        """See `Agent.should_connection_be_readonly`."""
        ...

    def should_send_protocol_messages(self, connection: Any, request: Any) -> Any:
        """See `Agent.should_send_protocol_messages`."""
        ...

    def on_connect(self, connection: Any, request: Any) -> Any:
        """See `Agent.on_connect`."""
        ...

    def on_message(self, connection: Any, message: str | bytes) -> Any:
        """See `Agent.on_message`."""
        ...

    def on_close(self, connection: Any, code: int, reason: str) -> Any:
        """See `Agent.on_close`."""
        ...

    def on_request(self, request: Any) -> Any:
        """See `Agent.on_request`."""
        ...


class Actor:
    """Where one agent lives while it is in memory."""

    # There is one for each live agent, and with a small dict it weighs a kilobyte less. Functions are in the
    # dict: a type checker would take them for methods here.
    # fmt: off
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_base",
        "_bus",
        "_evictor",
        "_sessions",
        "_tasks",
        "_tools",
        "_unreadable",
        "_windowed",
        "aborts",
        "agent",
        "alarms",
        "body_by",
        "cleaning",
        "clock",
        "cls",
        "config",
        "continuations",
        "converter",
        "degradations",
        "door",
        "feed",
        "fence",
        "fibers",
        "hall",
        "holds",
        "id",
        "idle_since",
        "inflight",
        "jobs",
        "last_body",
        "last_failure",
        "limits",
        "name",
        "next_turn_seq",
        "open_tools",
        "overlaps",
        "prunes_at",
        "queue",
        "recovering",
        "recovery",
        "session",
        "state_box",
        "store",
        "submissions",
        "tasks",
        "tools_by",
        "trials",
        "words",
    )
    # fmt: on

    def __init__(
        self,
        cls: type[Resident],
        name: str,
        *,
        base: type[Resident],
        store: Store,
        fence: Fence,
        clock: Clock,
        bus: EventBus,
        new_id: Callable[[], str],
        resolve_model: Callable[[Any], Awaitable[Model]],
        limits: Limits,
        trials: Trials,
    ) -> None:
        self.id = Address(cls.__name__, name).id
        self.name, self.cls, self._base = name, cls, base
        self.cleaning = Cleaning(self)
        self.fence = fence
        """What `store` writes through: shut when nothing more may be written."""
        self.store = store
        self.clock, self._bus = clock, bus
        self.new_id, self.resolve_model, self.limits = new_id, resolve_model, limits
        self.trials = trials
        self.session = Session(self.store, self.id, now=clock.now_ms)
        self.session.tell_cut = self._tell_cut
        self._sessions: Sessions | None = None
        self._evictor: Evictor | None = None
        self._windowed: tuple[int, int] | None = None
        # What was told to be unreadable: once is enough.
        self._unreadable: set[tuple[str, str | None]] = set()
        self.feed = Feed()
        self.words = ToolErrors(self)
        self.converter = Converter(self.words.of, lambda: shortening_of(self.agent.shorten_old_messages))
        self.converter.left_out = self._message_unreadable
        self.aborts = AbortRegistry()
        self.queue = TurnQueue()
        self.overlaps = Overlaps()
        self.door = Door(self)
        self.submissions = Submissions(self)
        self.continuations = Continuations(self)
        self.recovery = Recovery(self)
        self.recovering: Recovering | None = None
        """The turn that was cut off and is to go on, if any."""
        self.inflight: Accumulator | None = None
        # Grows with every turn; starting from the time keeps it growing across restarts without a look-up.
        self.next_turn_seq = clock.now_ms() << 10
        self.prunes_at = 0
        self.last_failure: dict[str, Any] | None = None
        self.open_tools: list[dict[str, Any]] = []
        """The browser's tools of the last turn that a window asked for: what continues it has them too."""
        self.tools_by: str | None = None
        """The mark of the person whose window declared them."""
        self.last_body: dict[str, Any] | None = None
        self.body_by: str | None = None
        """The mark of the person who sent it."""
        self.config: Any = None
        self.state_box = StateBox(self)
        self.holds = Holds()
        self.waker: Callable[[int, str | None], None] | None = None
        """Tells the node when this agent must be awake."""
        self.alarms = Alarms(self)
        self.jobs = Jobs(self)
        self.fibers = Fibers(self)
        self.tasks = Tasks(self)
        self.degradations: list[Degradation] = []
        """What went wrong at the start without keeping the agent from serving."""
        self.idle_since: float | None = None
        """Since when nobody has needed this agent, as far as its directory has noticed."""
        self.hall: Any = None
        """The connections, once there was one."""
        self._tools: dict[str, Tool] | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self.agent = cls.__new__(cls)
        self.agent._home = self  # pyright: ignore[reportPrivateUsage] - the agent's one link to its home
        self.agent.__init__()

    # --- life

    async def start(self, props: Any = None) -> None:
        """Load, let the developer's start code run, and put right what an earlier process left."""
        values = dict(cast("list[tuple[str, str]]", await self.store.fetch(queries.VALUES, self.id)))
        self.config = self._kept(values, "config")
        self.open_tools = self._kept_tools(values)
        self.tools_by = self._kept(values, "openToolsBy", str)
        self.last_body = self._kept(values, "lastBody", dict[str, Any])
        self.body_by = self._kept(values, "lastBodyBy", str)
        failure = self._kept(values, "lastFailure", Failure)
        self.last_failure = None if failure is None else msgspec.to_builtins(failure)
        state = self._kept(values, "state", dict[str, Any])
        await self.state_box.load(state, is_lost="state" in values and state is None)
        self._adopt(await self.make_session(self._kept(values, "session", str) or MAIN))
        self._warn_of_two_prompts()
        await self._try("transcript-hydration", self._hydrate())
        await self.fibers.recover()
        with self.alarms.starting():
            await call_hook(self.agent.on_start, props)
        await self._try("scheduled-task-reconcile", self.tasks.reconcile())
        await self._try("durable-work-recovery", wake(self))
        self.continuations.restore(self._kept(values, "continuation", Wish))
        await self.jobs.open()

    def _kept(self, values: Mapping[str, str], name: str, type: Any = Any) -> Any:
        """A kept value. `None`: there is none, or none that we wrote; then it is told, and its row stays."""
        if name not in values:
            return None
        try:
            return decode_json(values[name], type)
        except (msgspec.DecodeError, TypeError) as error:
            self._tell_unreadable(name, None, error)
            return None

    def _kept_tools(self, values: Mapping[str, str]) -> list[dict[str, Any]]:
        schemas: list[dict[str, Any]] = self._kept(values, "openTools", list[dict[str, Any]]) or []
        try:
            client_tools_from(schemas)
        except AgentError as error:
            self._tell_unreadable("openTools", None, error)
            return []
        return schemas

    def _message_unreadable(self, id: str, error: Exception) -> None:
        self._tell_unreadable("message", id, error)

    def _tell_unreadable(self, what: str, id: str | None, error: Exception) -> None:
        if (what, id) in self._unreadable:
            return
        self._unreadable.add((what, id))
        named = what if id is None else f"{what} {id}"
        log.warning(
            "%s: the stored %s cannot be read and is left out; its row stays: %s", self.id, named, error
        )
        self.emit(ChatStoredUnreadable(what=what, id=id, error=str(error) or type(error).__name__))

    def _warn_of_two_prompts(self) -> None:
        written, given = (getattr(cls, "system_prompt", None) for cls in (self.cls, self._base))
        is_own = self.overrides("get_system_prompt") or written is not given
        if is_own and self.session.has_context and self.cls not in _WARNED:
            _WARNED.add(self.cls)
            log.warning(
                "%s has context blocks, and its system prompt is made of those alone: what system_prompt or"
                ' get_system_prompt() say is not used. Make it a block: with_context("soul", provider=…).',
                self.cls.__name__,
            )

    async def _hydrate(self) -> None:
        try:
            await self.session.load()
        except Exception:
            self.session.fail()  # empty for now: whoever needs it reads it again
            raise

    # --- sessions

    @property
    def sessions(self) -> Sessions:
        """Every session of this agent."""
        self._sessions = self._sessions or Sessions(self)
        return self._sessions

    @property
    def evictor(self) -> Evictor:
        """Takes heavy contents out of old messages."""
        self._evictor = self._evictor or Evictor(self)
        return self._evictor

    def now(self) -> int:
        """The time in ms."""
        return self.clock.now_ms()

    async def make_session(self, id: str) -> Session:
        """A session set up by `configure_session`."""
        session = Session(self.store, self.id, now=self.clock.now_ms, id=id)
        session.tell_cut = self._tell_cut
        budget = setting(self.agent, "hydration_byte_budget")
        session.limit_hydration(budget if math.isfinite(budget) and budget > 0 else math.inf)
        return await configured(self.agent, session)

    def _adopt(self, session: Session) -> None:
        self.session = session
        session.listener = self._session_told
        session.hydrated = self._hydrated
        session.unreadable = self._message_unreadable

    def _session_told(self, news: SessionNews) -> None:
        self.feed.publish(SessionTold(news))
        if isinstance(news, SessionStatus) and news.tokens_before is not None and self.is_at_rest:
            self.feed.publish(HistoryChanged())

    def _hydrated(self, shape: Shape) -> None:
        """Tell when only the end of a large conversation is in memory, and when that changes."""
        windowed = (shape.total_bytes, len(shape.steps)) if shape.is_truncated else None
        if windowed is not None and windowed != self._windowed:
            if self._windowed is None:
                log.warning(
                    "%s: %d of %d bytes of the conversation are kept in memory (hydration_byte_budget)",
                    self.id,
                    self.agent.hydration_byte_budget,
                    shape.total_bytes,
                )
            self.emit(
                ChatHydrationWindowed(
                    total_content_bytes=shape.total_bytes,
                    budget_bytes=round(self.agent.hydration_byte_budget),
                    hydrated_messages=len(shape.steps),
                )
            )
        self._windowed = windowed

    async def switch_session(self, session: Session) -> None:
        """Make a session the live one. Raises `SessionBusy` while a turn runs or waits."""
        if not self.is_at_rest:
            raise SessionBusy(
                "Another session cannot be opened while a turn runs or waits.",
                kept="The live session stays.",
                next_step="Wait for its end with wait_until_stable(), or stop it with cancel_chat().",
            )
        before = self.session
        self._adopt(session)
        before.listener = before.hydrated = None
        # Asked for in the same breath: what is accepted from here on is stored after it.
        applied = self.store.apply(
            [self.save_value("session", session.id or None), self.save_value("lastFailure", None)]
        )
        self.last_failure = None
        self.converter.forget()
        try:
            await applied
        except BaseException:
            session.listener = session.hydrated = None
            self._adopt(before)
            raise
        self.feed.publish(HistoryChanged())

    async def _try(self, step: str, work: Awaitable[None]) -> None:
        """Do what the agent can serve without. A database that fails is not among that."""
        try:
            await work
        except StoreError:
            raise
        except Exception as error:
            log.exception("%s starts without %s", self.id, step)
            self.degradations.append(Degradation(step, str(error) or type(error).__name__))
            self.emit(ChatOnstartDegraded(step=step, error=self.degradations[-1].error))

    async def stop(self, grace: float) -> None:
        """Stop serving; running turns get `grace` seconds and are then cut where they are."""
        await asyncio.gather(
            self.door.close(grace), self.fibers.close(grace), self.alarms.stop(grace), self.jobs.stop(grace)
        )
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    def left_work(self) -> list[asyncio.Future[Any]]:
        """What runs without anybody having asked: fibers and jobs, those of an earlier process among them."""
        return [*self.fibers.running, *self.jobs.running]

    @property
    def is_idle(self) -> bool:
        """True when nothing would be lost by leaving memory: no turn, no connection, nothing held."""
        is_alone = self.hall is None or not self.hall.connections
        return is_alone and self.is_at_rest and not (self.holds.count or self._tasks)

    @property
    def is_at_rest(self) -> bool:
        """True when no turn runs, waits or is about to."""
        is_quiet = self.queue.is_idle and not self.door.has_turns and not self.overlaps.pending
        return is_quiet and self.continuations.is_at_rest

    # --- state

    @property
    def has_state(self) -> bool:
        """True when the agent has a state."""
        return self.state_box.exists

    @property
    def state(self) -> Any:
        """The agent's state."""
        return self.state_box.value

    @property
    def is_in_readonly_turn(self) -> bool:
        """True inside a turn of this agent which may not change its state."""
        return in_readonly_turn(self.id)

    @property
    def asker(self) -> Any:
        """Who this code runs for: the identity of the client that is served, as JSON."""
        caller = current_connection.get()
        return caller.who if caller is not None and caller.agent_id == self.id else None

    async def set_state(self, state: Any, *, source: Any) -> None:
        """Replace the state."""
        await self.state_box.set(state, source=source)

    # --- what turns ask for

    @property
    def generation(self) -> int:
        """The queue's generation: a turn of an older one belongs to a cleared conversation."""
        return self.queue.generation

    @property
    def message_concurrency(self) -> Any:
        """The agent's policy for overlapping messages."""
        return setting(self.agent, "message_concurrency")

    @property
    def trusts_clients(self) -> bool:
        """True when the agent believes the transcript of a window."""
        return setting(self.agent, "trust_client_history")

    @property
    def chat_recovery(self) -> Any:
        """The agent's setting for turns that were cut off."""
        return self.agent.chat_recovery

    @property
    def media_eviction(self) -> Any:
        """The agent's setting for heavy contents of old messages."""
        return self.agent.media_eviction

    def emit(self, event: EventBody) -> None:
        """Tell observers."""
        self._bus.emit(self.cls.__name__, self.name, event)

    def _tell_cut(self, message: Message, size: int) -> None:
        self.emit(MessageCut(message_id=message.id, role=message.role, bytes=size))

    def log_hook_error(self, hook: str, error: BaseException) -> None:
        """Log that a hook raised where raising changes nothing."""
        log.error("%s.%s of %s raised", self.cls.__name__, hook, self.name, exc_info=error)

    def overrides(self, hook: str) -> bool:
        """True when the developer wrote that hook, in the class or on the instance."""
        # Not remembered: a hook may be assigned to a live agent at any time.
        written = getattr(self.agent, hook)
        return getattr(written, "__func__", written) is not getattr(self._base, hook)

    def waiting_messages(self, turn: Turn) -> Sequence[str]:
        """The messages that are stored and wait for turns which come after this one, in that order."""
        return self.door.waiting_messages(turn)

    def own_tools(self) -> Mapping[str, Tool]:
        """The `@tool` methods, bound to the agent."""
        if self._tools is None:
            found = tools_of(self.cls)
            self._tools = {name: tool.bind(self.agent) for name, tool in found.items()}
        return self._tools

    def save_value(self, key: str, value: Any) -> Statement:
        """A statement that keeps a small JSON value (`None` forgets it)."""
        if value is None:
            return queries.removed(self.id, key)
        return queries.put(self.id, key, bounded_json(value).decode())

    async def stash_turn(self, data: Any) -> None:
        """Keep a checkpoint of the turn this code runs in."""
        turn = current_turn()
        assert turn is not None
        await self.store.apply([turns.stashed(self.id, turn.id, data=as_json(data, "The checkpoint"))])

    def hold(self) -> Hold:
        """Keep the agent in memory until the hold is released."""
        return self.holds.take()

    def wake_at(self, at_ms: int, *, is_stored: bool = False) -> None:
        """See that the agent is awake at that time. `is_stored`: an alarm's row says so too."""
        if self.waker is not None:
            self.waker(at_ms, None if is_stored else self.id)

    async def retry(self, fn: Callable[[int], Any], given: Retry, should_retry: Any) -> Any:
        """See `Agent.retry`."""
        check_call("retry", fn=fn, should_retry=should_retry)
        options = options_of(self.agent, given)
        return await retrying(fn, options, should_retry=should_retry, clock=self.clock)

    def as_retry(self, given: Any, where: str) -> Retry | None:
        """Retry options, also when they are written as a dict. Raises `InvalidRetry`."""
        return as_retry(given, where)

    async def report(self, error: BaseException) -> None:
        """Give a failure that nobody waits for to the agent's `on_error`. What that raises is logged."""
        try:
            await show(self.agent, "on_error", error)
        except Exception as raised:  # noqa: BLE001 - there is nobody to give it to
            self.log_hook_error("on_error", raised)

    def background(self, work: Awaitable[Any]) -> None:
        """Keep a task alive until it ends; what it raises is logged."""
        task = begin(work, f"background work of {self.id}", tell=self.emit)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def submission_changed(self, submission: Submission) -> None:
        """Call the agent's `on_submission_status`."""
        await show(self.agent, "on_submission_status", submission)
