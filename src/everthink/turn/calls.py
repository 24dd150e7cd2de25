"""Run the tools a step asked for, and keep the ledger.

    model's call --> check --> ask a person | leave to the browser | run --> outcome

`started` is durable before a body runs, and the outcome is committed together with the chunk
that shows it, so after a crash the ledger says in which world each call is. A failing tool
is a result the model reads; only cancellation leaves this module.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import reprlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from .. import chunks as ui
from ..calling import call_hook
from ..causes import is_superseded
from ..current import InCall, enclosing_calls
from ..errors import TooDeep, ToolError, ToolInputError, ToolInterrupted, ToolOutputError
from ..hooks.values import (
    Allow,
    Block,
    CalledTool,
    InvalidCall,
    Substitute,
    ToolCall,
    ToolDecision,
    ToolOutcome,
    ToolResult,
)
from ..identity import Approver
from ..journal import queries
from ..journal.ledger import Asked, approval_of
from ..journal.queries import CallState
from ..journal.read import CallRow, Journal
from ..journal.tool_errors import HAS_RUN, MAY_HAVE_RUN, UNTOLD_TOOL, words_of
from ..messages import (
    DEEPEST_GIVEN,
    Part,
    Unset,
    copy_json,
    decode_json,
    depth_of,
    encode_json,
    is_settled,
    normalize_input,
    tool_name,
)
from ..models import port as model
from ..observe.events import ToolCallFinish, ToolCallStart
from ..prompt.convert import DENIED_TEXT
from ..session.repair import INTERRUPTED_TEXT, mended_by
from ..store.port import Statement
from ..tools.ask import REPORT, RERUN
from ..tools.context import AtStop
from ..tools.output import jsonable
from ..tools.question import Answer, Given, LiveQuestion, Question, descriptor
from ..tools.tool import Tool, ToolContext
from .inner import Blocked, Inner
from .running import Run

__all__ = ["StepCalls"]

log = logging.getLogger("everthink.turn")

MAX_INPUT = 1_000_000
"""So many characters the input of a call may have: it comes back to the model in every later prompt."""
UNCONFIRMED = "The call was not run: nobody is known to have approved it."


UNANSWERED = (
    "The call was stopped while it asked a person something. It may or may not have taken effect: check"
    " before you call it again."
)


class _HookFailed(Exception):
    """A hook raised, or returned what it may not: the tool is not run."""

    def __init__(self, hook: str, error: Exception) -> None:
        super().__init__(hook)
        self.hook, self.error = hook, error


@dataclass(slots=True)
class _Checked:
    """A call after parsing: the tool and input, or what is wrong with it."""

    name: str
    input: Any
    tool: Tool | None = None
    error: Exception | None = None
    words: str | None = None
    """What the model reads instead of the error's."""


@dataclass(slots=True)
class StepCalls:
    """The calls of one step."""

    run: Run
    step: int
    tools: Mapping[str, Tool]
    """The tools that may be called in this step."""
    messages: Sequence[model.ModelMessage]
    """What the model was shown."""
    system: str = ""
    context: Any = None
    """What `before_step` has for the tools."""
    asked: list[CalledTool] = field(default_factory=list[CalledTool])
    outcomes: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    # Calls that have told how far they are.
    _shown: set[str] = field(default_factory=set[str])
    _asked_live: set[str] = field(default_factory=set[str])
    _begun: set[str] = field(default_factory=set[str])
    _by: dict[str, Approver | None] = field(default_factory=dict[str, Approver | None])
    """Who approved a call: it runs in their name, whoever's turn this is."""
    _answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    """What a person answered to the questions of calls that go on."""
    _yes: dict[str, str] = field(default_factory=dict[str, str])
    """The turns in which the approved calls of this one were asked for."""
    _tasks: dict[asyncio.Task[None], str] = field(default_factory=dict[asyncio.Task[None], str])
    """What runs, and for which call."""
    _at_stop: dict[str, AtStop] = field(default_factory=dict[str, AtStop])
    """What calls give that are stopped in the middle."""
    _is_finishing: bool = False

    # --- taking a call

    async def take(self, event: model.ToolCallReady) -> CalledTool:
        """Take a call from the model; what can run starts at once."""
        if event.provider_executed:
            return await self._take_provider_call(event)
        checked = self._check(event.name, event.input)
        if checked.error is not None:
            checked = await self._repair(event, checked)
        called = CalledTool(event.id, checked.name, checked.input, invalid=checked.error is not None)
        self.asked.append(called)
        if checked.error is not None or checked.tool is None:
            self._refuse(event, checked)
            await self.run.tell(called)
        else:
            await self._place(event, called, checked.tool)
        return called

    async def _take_provider_call(self, event: model.ToolCallReady) -> CalledTool:
        try:
            given = _parsed(event.input)
        except (msgspec.DecodeError, ToolInputError) as error:
            log.warning("the input of the provider's own call %r is left out: %s", event.name, error)
            given = {}
        called = CalledTool(event.id, event.name, given, provider_executed=True)
        self.asked.append(called)
        self.run.say(
            ui.ToolInputAvailable(
                event.id, event.name, called.input, True, provider_metadata=event.provider_metadata
            )
        )
        await self.run.tell(called)
        return called

    def _check(self, name: str, text: Any) -> _Checked:
        tool = self.tools.get(name)
        try:
            value = _parsed(text)
        except msgspec.DecodeError as error:
            wrong = ToolInputError(f"The input of {name!r} is not valid JSON: {error}.")
            return _Checked(name, text, tool, wrong)
        except ToolInputError as error:
            return _Checked(name, {}, tool, ToolInputError(f"The input of {name!r} {error}"))
        if tool is None:
            known = ", ".join(sorted(self.tools)) or "none"
            return _Checked(
                name, value, None, ToolInputError(f"There is no tool {name!r}. Available tools: {known}.")
            )
        if tool.has_body or isinstance(value, dict):
            try:
                tool.arguments(value)
            except ToolInputError as error:
                return _Checked(name, value, tool, error)
        return _Checked(name, value, tool)

    async def _repair(self, event: model.ToolCallReady, checked: _Checked) -> _Checked:
        assembled = self.run.assembled
        mend = assembled.config.repair_tool_call if assembled else None
        if mend is None or checked.error is None:
            return checked
        problem = InvalidCall(
            event.id, event.name, event.input, self.tools, self.system, self.messages, checked.error
        )
        try:
            mended = await call_hook(cast("Any", mend), problem)
        except Exception as error:  # noqa: BLE001 - a failing repair is what is wrong with the call now
            self.run.host.hooks.log_error("repair_tool_call", error)
            return _Checked(
                event.name,
                checked.input,
                error=checked.error,
                words=f"Repairing the call failed: {words_of(error)}",
            )
        if mended is None:
            return checked
        pair = cast("tuple[Any, Any]", mended if isinstance(mended, tuple) else (event.name, mended))
        return self._check(str(pair[0]), pair[1])

    def _refuse(self, event: model.ToolCallReady, checked: _Checked) -> None:
        text = str(checked.error)
        self.run.say(
            ui.ToolInputError(
                event.id,
                checked.name,
                checked.input,
                text,
                provider_metadata=event.provider_metadata,
                dynamic=True,
            )
        )
        read = checked.words or text
        self.outcomes[event.id] = ToolResult(event.id, checked.name, checked.input, read, is_error=True)

    async def _place(self, event: model.ToolCallReady, called: CalledTool, tool: Tool) -> None:
        run = self.run
        context = self.context_of(called, tool)
        asks = tool.has_body and bool(tool.needs_approval)
        # Nobody has a say before it runs: its start is committed together with the call itself.
        runs_now = tool.has_body and not asks and not run.host.hooks.hears("before_tool_call")
        if runs_now:
            self._begun.add(called.tool_call_id)
        run.say(
            ui.ToolInputAvailable(
                event.id,
                called.tool_name,
                called.input,
                provider_metadata=event.provider_metadata,
                title=tool.title,
            ),
            # What a person says yes to is what will run, whatever becomes of the transcript meanwhile.
            self._ledger(called, tool, called.input if asks else None, started=runs_now),
        )
        await run.tell(called)
        if tool.has_body:
            await self._start_or_ask(called, tool, context, event.provider_metadata)

    async def _start_or_ask(
        self, called: CalledTool, tool: Tool, context: ToolContext, metadata: model.ProviderMetadata | None
    ) -> None:
        asks = bool(tool.needs_approval)
        if asks:
            try:
                asks = await tool.needs_approval_for(called.input, context)
            except Exception as error:  # noqa: BLE001 - a broken predicate must not let the call through
                self._fail(called, error, "needs_approval")
                return
        if asks:
            self.run.say(ui.ToolApprovalRequest(self.run.host.new_id(), called.tool_call_id))
            return
        self._start(called, tool, context, metadata)

    def _start(
        self, called: CalledTool, tool: Tool, context: ToolContext, metadata: model.ProviderMetadata | None
    ) -> None:
        work = self._execute(called, tool, context, metadata)
        self._tasks[asyncio.create_task(work, name=f"tool {called.tool_name}")] = called.tool_call_id

    def context_of(self, called: CalledTool, tool: Tool) -> ToolContext:
        """What the body of a call may know."""

        async def conclude(
            output: Any, statements: Sequence[Statement], stored: Callable[[], object] | None
        ) -> None:
            if self.run.is_closed:
                raise ToolInterrupted(f"The turn that called {tool.name!r} is over. Nothing was written.")
            given = jsonable(output, tool=tool.name)
            if stored is not None:
                self.run.writer.afterwards(stored)
            self._settle(called, given, own=statements)
            await self.run.writer.seen_through()

        async def show(value: Any) -> None:
            output = jsonable(value, tool=tool.name)
            self._shown.add(called.tool_call_id)
            self.run.say(ui.ToolOutputAvailable(called.tool_call_id, output, preliminary=True))
            await self.run.tell(
                ToolResult(called.tool_call_id, called.tool_name, called.input, output, preliminary=True)
            )

        return ToolContext(
            agent=self.run.host.hooks.agent,
            tool_name=called.tool_name,
            tool_call_id=called.tool_call_id,
            messages=self.messages,
            signal=self.run.signal,
            identity=self.whose(called.tool_call_id),
            approved_by=self.approver_of(called.tool_call_id),
            request_id=self.run.turn.request_id,
            turn_id=self.run.turn.id,
            step=self.step,
            context=self.context,
            answer=self._answers.get(called.tool_call_id),
            show=show,
            conclude=conclude,
            alive=self.run.note_progress,
            ask=lambda question, seconds: self._ask_live(called, question, seconds),
            when_stopped=functools.partial(self._at_stop.__setitem__, called.tool_call_id),
            inner=Inner(self, called),
        )

    def whose(self, call_id: str) -> Any:
        """In whose name a call runs."""
        if call_id not in self._by:
            return self.run.turn.identity
        approver = self._by[call_id]
        return None if approver is None else approver.identity

    def approver_of(self, call_id: str) -> Approver | None:
        """Who said yes to a call; `None` for one that asked nobody, and where nobody said who."""
        return self._by.get(call_id)

    # --- running it

    async def _execute(
        self, called: CalledTool, tool: Tool, context: ToolContext, metadata: model.ProviderMetadata | None
    ) -> None:
        host = self.run.host
        began = host.clock.monotonic()
        call = ToolCall(
            tool_name=called.tool_name,
            tool_call_id=called.tool_call_id,
            input=called.input,
            messages=self.messages,
            signal=self.run.signal,
            provider_metadata=metadata,
            identity=self.whose(called.tool_call_id),
            approved_by=self.approver_of(called.tool_call_id),
        )
        self.tell_start(called)
        failure: Exception | None = None
        raised_by: str | None = None
        output: Any = None
        try:
            given = await self._decide_and_run(called, tool, context, call)
            if called.tool_call_id not in self.outcomes:
                self._settle(called, jsonable(given, tool=tool.name))
            output = self.outcomes[called.tool_call_id].output
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            failure = ToolError(f"Something that {called.tool_name!r} waited for was cancelled.")
        except Question as question:
            self._ask(called, question)
        except _HookFailed as told:
            failure, raised_by = told.error, told.hook
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its result
            failure = error
        if failure is not None and called.tool_call_id in self.outcomes:
            log.error(
                "tool %r of %s raised after its result was stored", tool.name, host.id, exc_info=failure
            )
            failure, output = None, self.outcomes[called.tool_call_id].output
        if failure is not None:
            self._fail(called, failure, raised_by)
        duration = host.clock.monotonic() - began
        self.tell_finish(called, output, failure, duration)
        if called.tool_call_id not in self.outcomes:
            return  # it waits for a person
        await self.run.tell(self.outcomes[called.tool_call_id])
        await self.tell_hook(called, output, failure, duration, metadata)

    def tell_start(self, called: CalledTool) -> None:
        """Tell observers that a call begins."""
        self.run.host.emit(
            ToolCallStart(
                request_id=self.run.turn.request_id,
                tool_call_id=called.tool_call_id,
                tool_name=called.tool_name,
                step_number=self.step,
                input=called.input,
            )
        )

    def tell_finish(
        self, called: CalledTool, output: Any, failure: Exception | None, duration: float
    ) -> None:
        """Tell observers that a call has ended."""
        self.run.host.emit(
            ToolCallFinish(
                request_id=self.run.turn.request_id,
                tool_call_id=called.tool_call_id,
                tool_name=called.tool_name,
                step_number=self.step,
                success=failure is None,
                duration_ms=round(duration * 1000),
                error=str(failure) if failure else None,
                error_type=type(failure).__name__ if failure else None,
                output=output,
            )
        )

    def _ask(self, called: CalledTool, question: Question) -> None:
        """The tool asks a person something: it is kept with what the tool needs to go on, and shown."""
        kept = encode_json({"forms": question.forms, "state": question.state}).decode()
        if called.tool_call_id in self._answers:
            self._asks_again(called.tool_call_id)
        self.run.say(
            ui.ToolApprovalRequest(
                self.run.host.new_id(), called.tool_call_id, approval_descriptor=descriptor(question)
            ),
            queries.questioned(self.run.turn.id, called.tool_call_id, question=kept),
        )

    def _asks_again(self, call_id: str) -> None:
        host = self.run.host
        host.asked_again[call_id] = host.clock.now_ms()

    async def _ask_live(self, called: CalledTool, question: Question, seconds: float) -> dict[str, Given]:
        """Ask a person while the call runs. For the ledger it goes on running: a crash loses the question."""
        host, call_id = self.run.host, called.tool_call_id
        asked = LiveQuestion(host.new_id(), question.forms, asyncio.get_running_loop().create_future())
        host.questions = host.questions or {}
        host.questions[call_id] = asked
        if call_id in self._asked_live:
            self._asks_again(call_id)
        self._asked_live.add(call_id)
        shown = descriptor(question, seconds=seconds)
        self.run.say(ui.ToolApprovalRequest(asked.id, call_id, approval_descriptor=shown))
        limit = asyncio.ensure_future(host.clock.sleep(seconds))
        try:
            await asyncio.wait([asked.answered, limit], return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
            host.questions.pop(call_id, None)
            host.asked_again.pop(call_id, None)
        if asked.answered.done():
            return asked.answered.result()
        return {name: Given("decline") for name in question.forms}

    async def tell_hook(
        self,
        called: CalledTool,
        output: Any,
        failure: Exception | None,
        duration: float,
        metadata: model.ProviderMetadata | None = None,
    ) -> None:
        """Show `after_tool_call` how a call ended."""
        host = self.run.host
        if not host.hooks.hears("after_tool_call"):
            return
        outcome = ToolOutcome(
            tool_name=called.tool_name,
            tool_call_id=called.tool_call_id,
            input=copy_json(called.input),
            messages=self.messages,
            signal=self.run.signal,
            provider_metadata=metadata,
            step_number=self.step,
            identity=self.whose(called.tool_call_id),
            approved_by=self.approver_of(called.tool_call_id),
            duration=duration,
            success=failure is None,
            output=copy_json(output),
            error=failure,
        )
        await host.hooks.after_tool_call(outcome)

    async def _decide_and_run(
        self, called: CalledTool, tool: Tool, context: ToolContext, call: ToolCall
    ) -> Any:
        host = self.run.host

        async def begin(given: Any) -> None:
            if called.tool_call_id not in self._begun:
                start = [self._ledger(called, tool, given, started=True)]
                if (asker := self._yes.pop(called.tool_call_id, None)) is not None:
                    start.append(queries.taken(asker, called.tool_call_id, now=host.clock.now_ms()))
                self.run.writer.also(*start)
            await self.run.writer.settled()

        return await self.decide_and_run(tool, context, call, begin)

    async def decide_and_run(
        self,
        tool: Tool,
        context: ToolContext,
        call: ToolCall,
        begin: Callable[[Any], Awaitable[None]],
        *,
        is_inner: bool = False,
    ) -> Any:
        """Ask the hook about a call, make its start durable, run the body. A call from within another one
        goes the same way, but for a block: code would take the reason for a result, and it is raised.
        `begin` is given the input that a hook chose, else `None`."""
        host = self.run.host
        given, lenient = call.input, False
        if host.hooks.hears("before_tool_call"):
            # What a hook decides about is what runs; it is a copy, and Allow(input=…) changes it.
            call = replace(call, input=tool.completed(call.input))
            match await self._decision(call, tool):
                case Block(reason):
                    if reason is None:
                        reason = f'Tool "{tool.name}" was blocked by before_tool_call.'
                    if is_inner:
                        raise Blocked(reason)
                    return reason
                case Substitute(output):
                    return output
                case Allow(input) if not isinstance(input, Unset):
                    given, lenient = input, True
                case None | Allow():
                    pass
        await begin(given if lenient else None)
        within = InCall(host.id, self.run.turn.id, call.tool_call_id)
        around = enclosing_calls.set((*enclosing_calls.get(), within))
        try:
            if not tool.streams:
                return await tool.call(given, context, lenient=lenient)
            value: Any = None
            async for value in tool.iterate(given, context, lenient=lenient):
                await context.progress(value)
            return value
        finally:
            enclosing_calls.reset(around)

    @staticmethod
    def cause_of(error: Exception) -> Exception:
        """What really went wrong: of a hook that failed, its own error."""
        return error.error if isinstance(error, _HookFailed) else error

    async def _decision(self, call: ToolCall, tool: Tool) -> ToolDecision | None:
        try:
            decision = await self.run.host.hooks.before_tool_call(call)
            if isinstance(decision, Substitute):
                output = jsonable(decision.output, tool=call.tool_name, by="before_tool_call")
                decision = Substitute(output, decision.input)
            elif isinstance(decision, Allow) and not isinstance(decision.input, Unset):
                tool.check_keys(decision.input)
        except Exception as error:
            raise _HookFailed("before_tool_call", error) from error
        return decision

    def _ledger(self, called: CalledTool, tool: Tool, given: Any = None, *, started: bool = False) -> Any:
        host = self.run.host
        return (queries.called if started else queries.asked)(
            self.run.turn.id,
            call_id=called.tool_call_id,
            tool=called.tool_name,
            step=self.step,
            input=None if given is None else _ledger_text(given),
            on_interrupt=tool.interrupt_policy if tool.has_body else self._who_answers(tool),
            now=host.clock.now_ms(),
        )

    def _who_answers(self, tool: Tool) -> str:
        """Of a tool that one person's window declared, only theirs; of one of ours, any that may answer."""
        turn = self.run.turn
        is_windows = turn.client_tools.get(tool.name) is tool
        return queries.client_of(turn.tools_by) if is_windows else queries.CLIENT

    def _fail(self, called: CalledTool, error: Exception, hook: str | None = None) -> None:
        """The tool raised: the model reads its words, people only those of a `ToolError`, the log all.

        `hook`: it was this one that did, or that said something wrong, and the tool has not run.
        """
        host = self.run.host
        if host.is_stopping and is_superseded(error):
            raise error  # the turn is cut, and the call is found as a crash would leave it
        said_so = isinstance(error, ToolError)
        log.log(
            logging.INFO if said_so and not isinstance(error, ToolOutputError) else logging.ERROR,
            "%stool %s of %s%s",
            f"{hook} failed for " if hook else "",
            called.tool_name,
            host.id,
            ", which was not run" if hook else " raised",
            exc_info=error,
        )
        if said_so:
            self._settle(called, str(error) or UNTOLD_TOOL, is_error=True)
        else:
            self._settle(called, UNTOLD_TOOL, is_error=True, words=words_of(error))

    def _settle(
        self,
        called: CalledTool,
        output: Any,
        *,
        is_error: bool = False,
        state: CallState | None = None,
        words: str | None = None,
        own: Sequence[Statement] = (),
    ) -> None:
        """Say the outcome. `words` is what the model reads instead of `output`, and nobody else; `own` is
        what the tool itself stores with it."""
        host, call_id = self.run.host, called.tool_call_id
        read = output if words is None else words
        self.outcomes[call_id] = ToolResult(call_id, called.tool_name, called.input, read, is_error=is_error)
        if words is not None:
            host.words.keep(self.run.turn.message_id, call_id, words)
        ledger = queries.settled(
            call_id,
            state=state or ("failed" if is_error else "done"),
            words=words,
            now=host.clock.now_ms(),
        )
        chunk = ui.ToolOutputError(call_id, output) if is_error else ui.ToolOutputAvailable(call_id, output)
        if isinstance(chunk, ui.ToolOutputAvailable) and call_id in self._shown:
            chunk.preliminary = False  # windows that watch keep the mark of what came before otherwise
        self.run.say(chunk, ledger, *own)

    # --- calls that a crash or a stall cut off

    async def take_over(self, part: Part, journal: Journal) -> None:
        """Take over a call from before the turn was cut off. The ledger says in which world it is."""
        input, is_provider = normalize_input(part.get("input")), bool(part.get("providerExecuted"))
        called = CalledTool(part["toolCallId"], tool_name(part), input, is_provider)
        self.asked.append(called)
        if is_settled(part):
            if called.tool_call_id not in journal.outcomes:
                return  # answered from outside: a continuation goes on from that, as without the cut
            failed = part.get("state") != "output-available"
            output = part.get("errorText", DENIED_TEXT) if failed else part.get("output")
            row = journal.calls.get(called.tool_call_id)
            if failed and row is not None and row.words is not None:
                output = row.words
            self.outcomes[called.tool_call_id] = ToolResult(
                called.tool_call_id, called.tool_name, input, output, is_error=failed
            )
            return
        tool, row = self.tools.get(called.tool_name), journal.calls.get(called.tool_call_id)
        runs = row is not None and row.state == "started"  # it asked while it ran, and nobody waits there now
        if part.get("state") in ("approval-requested", "approval-responded") and not runs:
            return  # a person answers, or has: the continuation takes it from there
        if is_provider or tool is None or part.get("state") == "input-streaming":
            self._report(called, part, began=runs)
        elif not tool.has_body:
            return  # the browser answers
        elif row is None or row.state == "asked":
            await self._start_or_ask(called, tool, self.context_of(called, tool), None)
        else:
            await self._ask_tool(called, tool, part, row)

    def give_up(self, half_made: Sequence[Part]) -> None:
        """The model did not make these calls again: they are over."""
        for part in half_made:
            called = CalledTool(part["toolCallId"], tool_name(part), normalize_input(part.get("input")))
            self._report(called, part, began=False)
            del self.outcomes[called.tool_call_id]  # nothing the model asked for in this step

    async def _ask_tool(self, called: CalledTool, tool: Tool, part: Part | None, row: CallRow) -> None:
        """Find out what became of a call; where a function is asked, the others do not wait for it."""
        finding = self._find_out(called, tool, part, row)
        if not callable(tool.on_interrupt):
            return await finding
        self._tasks[asyncio.create_task(finding, name=f"on_interrupt of {tool.name}")] = called.tool_call_id

    async def _find_out(self, called: CalledTool, tool: Tool, part: Part | None, row: CallRow) -> None:
        """The body had begun when it was cut off: what does the tool say became of it?"""
        context = self.context_of(called, tool)
        try:
            # A hook may have given it another input than the model did.
            given = called.input if row.input is None else decode_json(row.input)
            found = await tool.find_out(given, context)
            if found is RERUN:
                self._start(called, tool, context, None)
                return
            if found is REPORT:
                self._report(called, part, began=True)
            else:
                self._settle(called, jsonable(found, tool=tool.name))
        except Exception as error:
            if self.run.host.is_stopping and is_superseded(error):
                raise
            self.run.host.hooks.log_error(f"on_interrupt of tool {tool.name}", error)
            self._report(called, part, began=True)
        outcome = self.outcomes[called.tool_call_id]
        failure = ToolInterrupted(str(outcome.output)) if outcome.is_error else None
        await self.tell_hook(called, None if failure else outcome.output, failure, duration=0.0)

    def _report(self, called: CalledTool, part: Part | None, *, began: bool) -> None:
        """Tell the model (and readers) that the call was cut off, in the agent's own words if it has any."""
        host, text, mended = self.run.host, MAY_HAVE_RUN if began else INTERRUPTED_TEXT, None
        if part is not None and host.hooks.overrides("repair_interrupted_tool_part"):
            mended = mended_by(host.hooks.agent.repair_interrupted_tool_part, part)
        if mended is not None and mended.get("state") == "output-available" and is_settled(mended):
            self._settle(called, mended.get("output"), state="unknown")
            return
        if mended is not None and mended.get("state") == "output-error":
            text = mended.get("errorText") or text
        self._settle(called, text, is_error=True, state="unknown")

    # --- approvals given in an earlier turn

    async def take_approvals(self, said: model.AssistantMessage, answers: model.ToolMessage) -> None:
        """Run the calls a person said yes to, refuse the others. Called before the first step."""
        # This turn may have begun one of them before it was cut off.
        rows = self.run.turn.journal.calls if self.run.turn.journal else {}
        begun = {row.call_id: row for row in rows.values() if row.state in ("started", "unknown")}
        calls = {p.id: p for p in said.content if isinstance(p, model.ToolCallPart)}
        for answer in answers.content:
            if not isinstance(answer, model.ApprovalResponse) or answer.call_id not in calls:
                continue
            part = calls[answer.call_id]
            asked = await approval_of(self.run.host.store, part.id, running=self.run.turn.id)
            input = part.input if asked is None or asked.input is None else asked.input
            called = CalledTool(part.id, part.name, input)
            self.asked.append(called)
            if asked is not None:
                self._by[part.id] = asked.by
                if asked.question is not None and asked.question.answer is not None:
                    self._answers[part.id] = asked.question.answer
                if answer.approved and part.id not in begun and self._is_refused(called, asked):
                    continue
            checked = self._check(part.name, input)
            if checked.error is not None or checked.tool is None:
                self._settle(called, str(checked.error), is_error=True)
                continue
            tool, context = checked.tool, self.context_of(called, checked.tool)
            if not answer.approved:
                self._deny(called, answer.reason)
                continue
            try:
                # What the tool itself has asked, it asks no more once there is an answer.
                still_asks = part.id in self._answers or await tool.needs_approval_for(called.input, context)
            except Exception as error:  # noqa: BLE001 - a broken predicate must not let the call through
                self._fail(called, error, "needs_approval")
                continue
            # A yes to a question that is not asked any more is not a yes to whatever the tool is now.
            if called.tool_call_id in begun:
                await self._ask_tool(called, tool, None, begun[called.tool_call_id])
            elif still_asks:
                if asked is not None:
                    self._yes[part.id] = asked.turn
                self._start(called, tool, context, part.provider_metadata)
            else:
                self._deny(called, None)
        await self.finished()

    def _is_refused(self, called: CalledTool, asked: Asked) -> bool:
        """Settle a call that the transcript shows as approved and that may not run."""
        if asked.tool != called.tool_name or asked.state in ("open", "denied"):
            self._settle(called, UNCONFIRMED, is_error=True)
        elif asked.state == "over":
            self._settle(called, HAS_RUN, is_error=True)
        elif asked.state == "taken":
            self._settle(called, MAY_HAVE_RUN, is_error=True, state="unknown")
        else:
            return False
        return True

    def _deny(self, called: CalledTool, reason: str | None) -> None:
        host, call_id = self.run.host, called.tool_call_id
        text = reason or DENIED_TEXT
        self.outcomes[call_id] = ToolResult(call_id, called.tool_name, called.input, text, is_error=True)
        self.run.say(
            ui.ToolOutputDenied(call_id),
            queries.settled(call_id, state="denied", now=host.clock.now_ms()),
        )

    # --- ending the step

    async def finished(self) -> None:
        """Wait for every call that runs. Cancelled here, they go on until `abandon`."""
        self._is_finishing = True
        # Not gather: cancelled, it would wait for tools that do not let themselves be stopped.
        while running := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(running)  # one that was to find something out may have begun another
        self._is_finishing = False
        for task in self._tasks:
            task.result()

    @property
    def awaited(self) -> list[str]:
        """The calls that the turn waits for; none while it does anything else."""
        return [id for task, id in self._tasks.items() if not task.done()] if self._is_finishing else []

    def abandon(self) -> bool:
        """Stop what still runs. True when something did."""
        running = [task for task in self._tasks if not task.done()]
        if self.run.turn.signal.aborted:
            # Nobody waits for an answer any more: a form that is still shown would take one for nothing.
            for called in [one for one in self.own if one.tool_call_id in (self.run.host.questions or {})]:
                self._settle(called, UNANSWERED, is_error=True, state="unknown")
            for called in self.own:
                self._stop(called)
        for task in running:
            task.cancel()
            self.run.host.background(task)
        return bool(running)

    def _stop(self, called: CalledTool) -> None:
        """Settle a call with what it has to say for itself, now that it is stopped."""
        at_stop = self._at_stop.get(called.tool_call_id)
        if at_stop is None or called.tool_call_id in self.outcomes:
            return
        try:
            output, statements = at_stop()
            self._settle(called, jsonable(output, tool=called.tool_name), own=statements)
        except Exception:  # the turn is stopped all the same, and the call is found as interrupted
            log.exception("what %s had done until it was stopped cannot be shown", called.tool_name)

    def provider_result(self, event: model.ProviderToolResult) -> None:
        """The provider ran a call itself."""
        self.outcomes[event.id] = ToolResult(
            event.id, event.name, None, event.output, is_error=event.is_error
        )
        if event.is_error:
            text = event.output if isinstance(event.output, str) else encode_json(event.output).decode()
            self.run.say(ui.ToolOutputError(event.id, text, True, event.provider_metadata))
        else:
            self.run.say(ui.ToolOutputAvailable(event.id, event.output, True, event.provider_metadata))

    @property
    def results(self) -> list[ToolResult]:
        """The outcomes, in call order."""
        return [self.outcomes[c.tool_call_id] for c in self.asked if c.tool_call_id in self.outcomes]

    @property
    def own(self) -> list[CalledTool]:
        """The calls that are ours to run, not the provider's."""
        return [call for call in self.asked if not call.provider_executed]

    @property
    def is_waiting(self) -> bool:
        """True when a call has no outcome yet: a browser or a person must answer."""
        return any(call.tool_call_id not in self.outcomes for call in self.own)

    async def message(self) -> model.ToolMessage | None:
        """The outcomes of our own calls for the next prompt, in call order."""
        parts: list[model.ToolResultPart | model.ApprovalResponse] = []
        for call in self.own:
            outcome = self.outcomes.get(call.tool_call_id)
            if outcome is None:
                continue
            output, content = outcome.output, None
            if not outcome.is_error:
                views, tool = self.run.host.views, self.tools.get(call.tool_name)
                output, content = await views.make(self.run.turn.message_id, call.tool_call_id, tool, output)
            elif after := await self._aftermath(call):
                output = f"{output}\n{after}"
            parts.append(
                model.ToolResultPart(call.tool_call_id, call.tool_name, output, outcome.is_error, content)
            )
        return model.ToolMessage(parts) if parts else None

    async def _aftermath(self, call: CalledTool) -> str | None:
        """What a call that has failed had done before."""
        message_id, tool = self.run.turn.message_id, self.tools.get(call.tool_name)
        return await self.run.host.views.after(message_id, call.tool_call_id, tool)


def _parsed(given: Any) -> Any:
    """The input that a model gave. Raises when it is no JSON, or more than a conversation can hold."""
    try:
        text = given if isinstance(given, str) else encode_json(given)
        is_flat = depth_of(text) <= DEEPEST_GIVEN
    except TooDeep:
        text, is_flat = "", False
    if len(text) > MAX_INPUT:
        raise ToolInputError(f"has {len(text)} characters, more than the {MAX_INPUT} that one call may have.")
    if not is_flat:
        raise ToolInputError(f"is nested more than {DEEPEST_GIVEN} levels deep.")
    if not isinstance(given, str):
        return given
    return decode_json(given) if given.strip() else {}


def _ledger_text(value: Any) -> str:
    try:
        return encode_json(value).decode()
    except (TypeError, ValueError):  # also what is nested too deep
        return encode_json(reprlib.repr(value)).decode()
