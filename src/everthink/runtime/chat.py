"""A conversation and everything that makes it go on: what an agent has that chats.

    actor --AgentParts--> Chat --> door/, turn/ (through its TurnHost), session/, recovery/

The parts are made once and know each other, never the actor. What concerns several of them at once is here:
loading, clearing, another session, waiting until all is quiet.
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any, Literal

from ..calling import awaited
from ..children.beginning import TOOL_OUTPUT
from ..current import in_active_turn
from ..door import stopping
from ..door.admission import Door
from ..door.answers import Answers
from ..door.browser import Browser
from ..door.continuations import Continuations, StoredContinuation
from ..door.numbers import MARK
from ..door.programmatic import Programmatic
from ..door.requests import Requests
from ..door.stopping import Stop
from ..door.submissions import SKIPPED_TEXT, Submissions
from ..engines.sandboxes import Sandboxes
from ..errors import AgentError, InvalidTurn, SessionBusy, StoreError, WorkspaceError
from ..extensions.queries import HAS_EXTENSIONS
from ..extensions.wiring import AgentExtensions
from ..extensions.wiring import Parts as ExtensionsParts
from ..file_tools.bash import bash_of
from ..file_tools.place import is_stored
from ..file_tools.tools import tools_of_agents
from ..journal import queries
from ..journal.feed import Cleared, HistoryChanged, SessionTold
from ..journal.ledger import open_calls
from ..journal.tool_errors import ToolErrors
from ..journal.turn import SUBMITTED, Turn
from ..json_values import plain_json, without_objects
from ..keeping.sweeping import DONE, OWED, Sweeping, is_due
from ..keeping.sweeping import Parts as SweepingParts
from ..mcp.servers import McpServers
from ..messages import UNSET, Message, Part, Unset, as_messages, copy_json
from ..models.port import Model, OutputSchema
from ..models.timeout import Patient
from ..observe.events import ChatHydrationWindowed, ChatOnstartDegraded, MessageClear, MessageCut
from ..own import OWN_WORKSPACE
from ..prompt.convert import Converter
from ..prompt.views import Views
from ..recovery.recover import RESTED, Recovery
from ..recovery.trials import Trials
from ..recovery.wake import Waking
from ..session.compaction import SessionNews, SessionStatus
from ..session.eviction import Evictor
from ..session.eviction import Parts as EvictorParts
from ..session.path_reader import Shape
from ..session.queries import IS_KEPT
from ..session.row_size import shortening_of
from ..session.session import Session
from ..session.sessions import MAIN, Sessions
from ..session.sessions import Parts as SessionsParts
from ..session.summary import model_summarizer
from ..session.tree import Plan
from ..settings import check_call
from ..skills.wiring import TRUSTED, AgentSkills
from ..store.port import Statement
from ..tools.collect import ToolSource, client_tools_from, tools_of
from ..tools.tool import Tool
from ..turn.host import TurnHost
from ..turn.last_failure import Failure, LastFailure
from ..workspace.paths import EVICTED_FOLDER, is_below, normal
from ..workspace.port import WorkspaceLimits
from ..workspace.queries import ANY as ANY_CONTENTS
from ..workspace.workspace import ParentWorkspace
from .cleaning import Cleaning
from .configured import configured
from .parts import AgentParts
from .unreadable import KeptValues

__all__ = ["Chat", "Degradation"]

log = logging.getLogger("everthink.runtime")

Rests = Callable[[str, str], bool]
"""Whether a call of a turn only waits for a person, by their ids."""
AWAITED = ("rpc", "programmatic")
"""Turns whose caller, in this process, waits for their end."""
RESET = "Turn state reset"
WAITING = 10.0
"""Seconds that a turn waits for MCP servers unless the setting says how many."""

# The classes that were told that their blocks take the place of their system prompt.
_WARNED: weakref.WeakSet[type[Any]] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Degradation:
    """A step of an agent's start that failed, and how."""

    step: str
    error: str


class Chat:
    """The conversation of one agent."""

    __slots__ = (
        "_evictor",
        "_mcp",
        "_parts",
        "_sessions",
        "_sources",
        "_sweeping",
        "_tools",
        "_windowed",
        "answers",
        "browser",
        "cleaning",
        "config",
        "continuations",
        "degradations",
        "door",
        "extensions",
        "host",
        "of_clear",
        "programmatic",
        "recovery",
        "requests",
        "skills",
        "submissions",
        "trials",
    )

    def __init__(
        self,
        parts: AgentParts,
        *,
        resolve_model: Callable[[Any], Awaitable[Model]],
        trials: Trials,
        mcp: Callable[[], McpServers | None],
        sandboxes: Sandboxes,
    ) -> None:
        self._parts, self.trials, self._mcp = parts, trials, mcp
        self.of_clear: Callable[[], list[Statement]] = list
        """What others store when the conversation is cleared."""
        words = ToolErrors(parts.store)
        views = Views(lambda: parts.hooks.agent)
        converter = Converter(
            words.of, lambda: shortening_of(parts.hooks.agent.shorten_old_messages), views.of
        )
        converter.left_out = parts.unreadable.tell_message
        self.host = TurnHost(
            id=parts.id,
            store=parts.store,
            clock=parts.clock,
            limits=parts.limits,
            hooks=parts.hooks,
            new_id=parts.new_id,
            emit=parts.emit,
            save_value=parts.save_value,
            background=parts.background,
            resolve_model=resolve_model,
            own_tools=self.own_tools,
            tool_sources=self._tool_sources,
            start_eviction=self._start_eviction,
            feed=parts.feed,
            words=words,
            views=views,
            converter=converter,
            last_failure=LastFailure(parts.save_value),
        )
        self.recovery = self.host.recovery = Recovery(self.host, trials)
        self.door = Door(self.host)
        self.browser = Browser(parts.save_value)
        self.answers = Answers(self.host, self.browser)
        self.requests = Requests(self.host, self.door, self.browser)
        self.submissions = Submissions(self.host, self.door, self.browser)
        self.continuations = Continuations(self.host, self.door, self.browser)
        self.programmatic = Programmatic(self.host, self.door, self.browser, self.answers, self.submissions)
        self.skills = AgentSkills(parts.hooks, parts.store, parts.save_value)
        self.extensions = AgentExtensions(
            ExtensionsParts(
                store=parts.store,
                hooks=parts.hooks,
                now=parts.clock.now_ms,
                save_value=parts.save_value,
                background=parts.background,
                engines=lambda: sandboxes,
                live=lambda: getattr(self.host, "session", None),
                add_message=self._add_text,
            )
        )
        self.cleaning = Cleaning(parts.store, parts.background)
        self._sweeping: Sweeping | None = None
        self.config: Any = None
        self.degradations: list[Degradation] = []
        """What went wrong at the start without keeping the agent from serving."""
        self._sessions: Sessions | None = None
        self._evictor: Evictor | None = None
        self._tools: dict[str, Tool] | None = None
        self._sources: Sequence[ToolSource] | None = None
        self._windowed: tuple[int, int] | None = None

    # --- life

    def restore(self, kept: KeptValues) -> None:
        """Take what is kept beside the conversation."""
        self.config = kept.get("config")
        self.browser.restore(
            {
                "openTools": self._kept_tools(kept),
                "openToolsBy": kept.get("openToolsBy", str),
                "lastBody": kept.get("lastBody", dict[str, Any]),
                "lastBodyBy": kept.get("lastBodyBy", str),
            }
        )
        self.host.last_failure.value = kept.get("lastFailure", Failure)
        if (output := kept.get(TOOL_OUTPUT, OutputSchema)) is not None:
            self.expect(output)

    async def load(self, kept: KeptValues) -> None:
        """Read the conversation. Before the agent's own start code, which may send turns already."""
        await self.door.load(kept.get(MARK, int))
        await self.attempt("skills", self.skills.start(kept.get(TRUSTED, dict[str, str])))
        await self.extensions.start(HAS_EXTENSIONS in kept, self.attempt)
        self._adopt(await self.make_session(kept.get("session", str) or MAIN))
        self._warn_of_two_prompts()
        await self.attempt("transcript-hydration", self._hydrate())

    async def wake(self, kept: KeptValues) -> None:
        """Take up what an earlier process left. After the agent's own start code."""
        rested: list[str] = kept.get(RESTED, list[str]) or []
        await self.attempt("durable-work-recovery", self._waking(rested).wake())
        self.continuations.restore(kept.get("continuation", StoredContinuation))
        if OWED in kept or (
            is_due(kept.get(DONE, int), self.host.clock.now_ms()) and await self._has_files()
        ):
            self.sweeping.start(is_owed=OWED in kept)

    async def take_up(self, turn_id: str) -> None:
        """Take up one turn, which was released."""
        await self._waking().take_up(turn_id)

    def _waking(self, rested: Sequence[str] = ()) -> Waking:
        return Waking(
            self.host,
            self.door,
            self.submissions,
            self.browser,
            self.recovery,
            self.trials,
            self.programmatic.still_goes_on,
            rested,
        )

    def _kept_tools(self, kept: KeptValues) -> list[dict[str, Any]]:
        schemas: list[dict[str, Any]] = kept.get("openTools", list[dict[str, Any]]) or []
        try:
            client_tools_from(schemas)
        except AgentError as error:
            self._parts.unreadable.tell("openTools", None, error)
            return []
        return schemas

    async def attempt(self, step: str, work: Awaitable[None]) -> None:
        """Do what the agent can serve without. A database that fails is not among that."""
        try:
            await work
        except StoreError:
            raise
        except Exception as error:
            log.exception("%s starts without %s", self.host.id, step)
            self.degradations.append(Degradation(step, str(error) or type(error).__name__))
            self.host.emit(ChatOnstartDegraded(step=step, error=self.degradations[-1].error))

    @property
    def is_at_rest(self) -> bool:
        """True when no turn runs, waits or is about to."""
        return self.door.queue.is_idle and not self.host.turns and self._is_quiet

    @property
    def _is_quiet(self) -> bool:
        """True when no turn is about to be asked for."""
        return not self.requests.overlaps.pending and self.continuations.is_at_rest

    # --- waiting for a person

    def is_resting(self, rests: Rests) -> bool:
        """True when nothing goes on before a person answers: in its own conversation, or below it."""
        if self.resting(rests) is not None:
            return self._is_quiet
        return self.is_at_rest and self.answers.is_waiting_for_person()

    def resting(self, rests: Rests) -> Turn | None:
        """The turn that runs, if it only waits for calls, and they for a person."""
        turn = self.host.turns.streaming
        calls = () if turn is None or turn.waits_for is None else turn.waits_for()
        return turn if turn is not None and calls and all(rests(turn.id, call) for call in calls) else None

    def may_leave(self, rests: Rests) -> bool:
        """True when leaving memory changes nothing: no turn runs, or the one that does only waits for a
        person, and nobody in this process waits for it or for those behind it."""
        if self.is_at_rest:
            return True
        last = self.door.last_found
        is_awaited = any(turn.trigger in AWAITED and turn.seq > last for turn in self.host.turns)
        return self._is_quiet and not is_awaited and self.resting(rests) is not None

    def rested(self, turn: Turn) -> Statement:
        """What keeps that this turn left memory while it waited for a person: nothing has cut it off."""
        return self.host.save_value(RESTED, [turn.id])

    # ---

    async def until_stable(self, timeout: float | None) -> bool:
        """True once nothing runs, waits, or waits for a person; False after so many seconds."""
        check_call("wait_until_stable", timeout=timeout)
        if timeout is None:
            self.door.refuse_waiting("wait_until_stable")
        changed = asyncio.Event()
        leave = self.host.feed.join(lambda _: changed.set())
        settled = asyncio.ensure_future(self._settled(changed))
        limits = [] if timeout is None else [asyncio.ensure_future(self.host.clock.sleep(max(0.0, timeout)))]
        try:
            await asyncio.wait([settled, *limits], return_when=asyncio.FIRST_COMPLETED)
            return settled.done()
        finally:
            leave()
            for task in (settled, *limits):
                task.cancel()

    async def _settled(self, changed: asyncio.Event) -> None:
        while True:
            changed.clear()
            await self.door.queue.wait_for_idle()
            waits = self.continuations.pending is not None or bool(self.host.turns)
            if not waits and not self.answers.is_waiting_for_person():
                return
            await changed.wait()

    def has_found_turns(self) -> bool:
        """True while a turn is open that was cut off, or accepted, before this agent came into memory."""
        last = self.door.last_found
        return any(turn.seq <= last and not turn.has_rested for turn in self.host.turns)

    def is_to_go_on(self) -> bool:
        """True while it waits for a person, or goes on because of an answer."""
        return (
            self.answers.is_waiting_for_person() or not self.continuations.is_at_rest or bool(self.host.turns)
        )

    # --- as a tool of a parent

    def expect(self, output: OutputSchema) -> None:
        """Its answers are to be of this shape."""
        self.host.tool_output = output

    async def parts_of(self, message_id: str) -> list[Part]:
        """The parts of a message; none when there is no such message."""
        message = await self.session.get_message(message_id)
        return [] if message is None else message.parts

    # --- stopping and clearing

    def cancel(self, request_id: str, reason: object = None) -> Stop:
        """Stop one turn, queued or running."""
        return stopping.cancel(self.host, request_id, reason)

    def cancel_all(self, reason: object = None) -> Stop:
        """Stop every turn."""
        return stopping.cancel_all(self.host, reason)

    async def reset(self) -> None:
        """Stop the running turn, skip those that wait, and start with an empty queue."""
        stopped = queries.all_stopped(reason=RESET)
        rows = await self.host.store.apply([self._stop(), stopped, self.continuations.forget()])
        await self.submissions.skipped([row[0] for row in rows[0] if row[1] in SUBMITTED])

    def _stop(self) -> Statement:
        """Stop what runs and what waits. The statement ends the rows of the latter."""
        self.door.reset()
        self.host.aborts.abort_all(RESET)
        self.requests.overlaps.reset()
        return queries.skipped(error=SKIPPED_TEXT, now=self.host.clock.now_ms())

    async def clear(self) -> None:
        """Empty the conversation; turns that run or wait are stopped."""
        rows = await self._cleared()
        host = self.host
        host.session.confirm_clear()
        host.converter.forget()
        host.words.forget()
        host.views.forget()
        await host.session.refresh_system_prompt("cleared")
        host.feed.publish(Cleared())
        host.emit(MessageClear())
        await self._after_clear()
        await self.submissions.skipped([row[0] for row in rows[0] if row[1] in SUBMITTED])

    async def _cleared(self) -> list[Any]:
        """The one commit that clears. It is asked for without an await: what was accepted before it goes."""
        host, running = self.host, self.door.running
        commit = [
            self._stop(),
            self.continuations.forget(),
            *self.host.session.plan_clear(),
            *queries.forgotten(),
            *host.last_failure.forget(),
            *self.browser.forget(),
            *self.trials.dropping(host.id),
            *self.of_clear(),
        ]
        try:
            rows = await host.store.apply(commit)
        except BaseException:
            host.session.roll_back()
            raise
        self.cleaning.ask(running)
        return rows

    async def keeps(self, message_id: str) -> bool:
        """True when a message is kept, in whichever session."""
        return bool(await self.host.store.fetch(IS_KEPT, message_id))

    async def end_questions(self, tools: Collection[str], words: str) -> None:
        """End what calls of these tools ask people: nobody takes an answer any more. The model hears so."""
        async with self.continuations.lock:
            for call_id in await open_calls(self.host.store, tools):
                more = [self.continuations.save(None)]
                if await self.answers.apply_result(call_id, None, is_error=True, error_text=words, more=more):
                    self.continuations.answered(auto_continue=True, owner=None)

    # --- sessions

    @property
    def sweeping(self) -> Sweeping:
        """Deletes bytes of files that nothing names any more."""
        parts = self._parts
        self._sweeping = self._sweeping or Sweeping(
            SweepingParts(
                id=parts.id,
                store=parts.store,
                now=parts.clock.now_ms,
                files=parts.own_files,
                limits=self._limits,
                save_value=parts.save_value,
                background=parts.background,
                scrub=lambda: self.cleaning.ask({}),
            )
        )
        return self._sweeping

    async def _has_files(self) -> bool:
        return bool(await self.host.store.fetch(ANY_CONTENTS))

    def _owes_sweep(self) -> Sequence[Statement]:
        return self.sweeping.owed()

    async def _after_clear(self) -> None:
        await self.sweeping.after_clear()

    @property
    def evictor(self) -> Evictor:
        """Takes heavy contents out of old messages."""
        host = self.host
        self._evictor = self._evictor or Evictor(
            EvictorParts(
                files=self._parts.own_files,
                live=lambda: host.session,
                setting=lambda: host.hooks.agent.media_eviction,
                emit=host.emit,
                background=host.background,
            )
        )
        return self._evictor

    def _start_eviction(self) -> None:
        self.evictor.start_pass()

    @property
    def sessions(self) -> Sessions:
        """Every session of this agent."""
        host = self.host
        self._sessions = self._sessions or Sessions(
            SessionsParts(
                store=host.store,
                new_id=host.new_id,
                now=host.clock.now_ms,
                live=lambda: host.session,
                make=self.make_session,
                switch=self.switch_session,
                cleared=self._after_clear,
            )
        )
        return self._sessions

    @property
    def session(self) -> Session:
        """The live session."""
        return self.host.session

    async def make_session(self, id: str) -> Session:
        """A session set up by `configure_session`."""
        host = self.host
        session = Session(host.store, now=host.clock.now_ms, id=id)
        session.tell_cut = self._tell_cut
        session.when_cleared = self._owes_sweep
        budget = host.hooks.setting("hydration_byte_budget")
        session.limit_hydration(budget if math.isfinite(budget) and budget > 0 else math.inf)
        return self.extensions.declare(self.skills.declare(await configured(host.hooks, session)))

    def _adopt(self, session: Session) -> None:
        self.host.session = session
        session.listener = self._session_told
        session.hydrated = self._hydrated
        session.unreadable = self._parts.unreadable.tell_message

    async def _hydrate(self) -> None:
        try:
            await self.host.session.load()
        except Exception:
            self.host.session.roll_back()  # empty for now: whoever needs it reads it again
            raise

    def _session_told(self, news: SessionNews) -> None:
        self.host.feed.publish(SessionTold(news))
        if isinstance(news, SessionStatus) and news.tokens_before is not None and self.is_at_rest:
            self.host.feed.publish(HistoryChanged())

    def _tell_cut(self, message: Message, size: int) -> None:
        self.host.emit(MessageCut(message_id=message.id, role=message.role, bytes=size))

    def _hydrated(self, shape: Shape) -> None:
        """Tell when only the end of a large conversation is in memory, and when that changes."""
        windowed = (shape.total_bytes, len(shape.steps)) if shape.is_truncated else None
        if windowed is not None and windowed != self._windowed:
            budget = self.host.hooks.agent.hydration_byte_budget
            if self._windowed is None:
                log.warning(
                    "%s: %d of %d bytes of the conversation are kept in memory (hydration_byte_budget)",
                    self.host.id,
                    budget,
                    shape.total_bytes,
                )
            self.host.emit(
                ChatHydrationWindowed(
                    total_content_bytes=shape.total_bytes,
                    budget_bytes=round(budget),
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
        before = self.host.session
        self._adopt(session)
        before.listener = before.hydrated = None
        # Nothing is awaited before this is asked for: what is accepted from here on is stored after it.
        applied = self.host.store.apply(
            [self.host.save_value("session", session.id or None), *self.host.last_failure.forget()]
        )
        self.host.converter.forget()
        self.host.views.forget()
        try:
            await applied
        except BaseException:
            session.listener = session.hydrated = None
            self._adopt(before)
            raise
        self.host.feed.publish(HistoryChanged())

    def _warn_of_two_prompts(self) -> None:
        hooks, cls = self.host.hooks, self.host.hooks.cls
        if not (hooks.overrides("get_system_prompt") or hooks.sets("system_prompt")):
            return
        session = self.host.session
        if session.has_context and not session.context.is_beside and cls not in _WARNED:
            _WARNED.add(cls)
            log.warning(
                "%s has %s, and its system prompt is made of those alone: what system_prompt or"
                ' get_system_prompt() say is not used. Make it a block: with_context("soul", provider=…).',
                cls.__name__,
                "context blocks" if self.skills.registry is None else "skills, which are a context block",
            )

    # --- the conversation without a turn

    async def add(
        self,
        messages: Any,
        *,
        parent_id: str | Unset | None = UNSET,
        mode: Literal["append", "upsert"] = "append",
        broadcast: bool = True,
    ) -> tuple[str, ...]:
        """Write to the conversation without a turn."""
        if mode not in ("append", "upsert"):
            raise InvalidTurn(f"add_messages: mode must be 'append' or 'upsert', not {mode!r}.")
        session = self.host.session
        await session.refresh()
        if callable(messages):
            messages = await awaited(messages([message.copy() for message in session.path]))
        given = as_messages(messages, new_id=self.host.new_id)
        if isinstance(parent_id, str):
            await session.require(parent_id, what="add_messages: parent_id")
        if not given:
            return ()
        known = {message.id for message in given if await session.has(message.id)}
        plan = _planned(session, given, known, parent_id, updates=mode == "upsert")
        if plan.statements:
            await session.write(plan)
            self._start_eviction()
            await session.compact_if_due()
        if broadcast and not in_active_turn(self.host.id):
            self.host.feed.publish(HistoryChanged())
        return tuple(plan.cut)

    async def _add_text(self, text: str) -> None:
        await self.add(text)

    def own_tools(self) -> Mapping[str, Tool]:
        """The `@tool` methods, bound to the agent."""
        if self._tools is None:
            hooks = self.host.hooks
            self._tools = {name: tool.bind(hooks.agent) for name, tool in tools_of(hooks.cls).items()}
        return self._tools

    def _tool_sources(self) -> Sequence[ToolSource]:
        if self._sources is None:
            self._sources = (
                ToolSource("memory", lambda: self.host.session.tools()),
                ToolSource("skills", lambda: self.skills.tools(self.host.session)),
                ToolSource("get_tools", self.host.hooks.get_tools),
                ToolSource("methods", self._methods),
                ToolSource("workspace", self._workspace_tools),
                ToolSource("mcp", self._mcp_tools, self._hidden_mcp_tools),
                ToolSource("extensions", self.extensions.tools, self.extensions.hidden),
            )
        return self._sources

    async def _methods(self) -> Mapping[str, Tool]:
        return self.own_tools()

    async def _workspace_tools(self) -> Mapping[str, Tool]:
        hooks = self.host.hooks
        if not hooks.setting("include_workspace_tools"):
            return {}
        named = getattr_static(hooks.cls, "workspace", OWN_WORKSPACE)
        if isinstance(named, ParentWorkspace):
            named = hooks.agent.workspace
        return tools_of_agents(
            bash_of(hooks.setting("workspace_bash")), is_once=named is OWN_WORKSPACE or is_stored(named)
        )

    async def _mcp_tools(self) -> Mapping[str, Tool]:
        servers, hooks = self._mcp(), self.host.hooks
        if servers is None or not hooks.setting("include_mcp_tools"):
            return {}
        wait = hooks.setting("wait_for_mcp_connections")
        if wait is not False:
            await servers.wait(WAITING if wait is True else wait)
        return await servers.tools()

    def _hidden_mcp_tools(self, names: Sequence[str]) -> None:
        if (servers := self._mcp()) is not None:
            servers.hidden(names)

    async def generate_text(self, prompt: str, system: str, model: Any) -> str:
        """Ask a model something beside the conversation."""
        hooks = self.host.hooks
        chosen = await self.host.resolve_model(await hooks.get_model() if model is None else model)
        asked = Patient(chosen, hooks.setting("model_timeout"), self.host.clock)
        return await model_summarizer(asked, system=system)(prompt)

    async def read_attachment(self, path: str) -> bytes | None:
        """A file that left its message."""
        try:
            where = normal(path)
            return await self._parts.own_files().read(where) if is_below(where, EVICTED_FOLDER) else None
        except WorkspaceError:
            return None  # no path, or a folder

    def _limits(self) -> WorkspaceLimits:
        workspace = self.host.hooks.agent.workspace
        return workspace.limits if is_stored(workspace) else WorkspaceLimits()

    # --- configuration

    async def configure(self, config: Any) -> None:
        """Keep a JSON value for this agent."""
        config = plain_json(without_objects(config), "config", "configure")
        await self.host.store.apply([self.host.save_value("config", config)])
        self.config = config

    def get_config(self) -> Any:
        """What `configure` kept, or `None`."""
        return copy_json(self.config)


def _planned(
    session: Session, given: list[Message], known: set[str], above: str | Unset | None, *, updates: bool
) -> Plan:
    """What stores messages one below the other. A known one keeps its place; the next hangs below it."""
    plan = Plan()
    for message in given:
        if message.id in known:
            step = session.plan_update(message) if updates else Plan()
        else:
            step = session.plan_append([message], above)
        plan.statements += step.statements
        plan.writes += step.writes
        above = message.id
    return plan
