"""The agentic loop: step by step until the model is done.

    Assembled --> [before_step -> model -> tools -> on_step_finish]* --> finish

A step is one model call and the tools it asked for. Whatever the provider or a hook raises
in here is an error of the answer (stage `stream`); what was said before it stays.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass
from typing import Any

import msgspec

from .. import chunks as ui
from ..abort import AbortController
from ..backoff import backoff
from ..calling import ask
from ..clock import Timer
from ..errors import InvalidSettings, ModelError, StreamCut
from ..hooks.given import ReadList
from ..hooks.values import (
    HasToolCall,
    StepConfig,
    StepContext,
    StepResult,
    StopCondition,
    TurnConfig,
    tool_choice_of,
)
from ..messages import normalize_input
from ..models import port as model
from ..models.timeout import asked, patient
from ..observe.events import ChatFilesLeftOut, ChatStepFinish, ChatStepStart, ModelRetry
from ..prompt.convert import has_approvals, paired
from ..session.files import Mark, asks_with_files, may_be_about_files, without_files
from ..session.omit_results import slimmed
from ..settings import nearest
from ..tools.tool import Tool
from . import overflow
from .assemble import Assembled, as_prompt, asking, history_so_far
from .call_ids import CallIds
from .calls import StepCalls
from .rejoin import (
    CUT,
    made_again,
    rejoin,
)
from .resume import PickedUp, pick_up
from .running import Run

__all__ = ["Loop", "TimedOut"]

log = logging.getLogger("everthink.turn")

FIRST_DELAY = 2.0
LONGEST_SERVER_DELAY = 60.0


class TimedOut(Exception):
    """The reason a turn is aborted with when one of its `timeout`s runs out."""


class _Block:
    """A block of text or thinking that may still grow."""

    __slots__ = ("index", "make", "metadata", "pieces")

    def __init__(self, make: Callable[..., Any], index: int, metadata: model.ProviderMetadata | None) -> None:
        self.make, self.index, self.metadata = make, index, metadata
        self.pieces: list[str] = []


class _Answer:
    """What the model has said in this step, in order."""

    def __init__(self) -> None:
        self.content: list[model.AssistantContent] = []
        self.reasoning: list[model.ReasoningPart] = []
        self.files: list[model.GeneratedFile] = []
        self.sources: list[model.Source] = []
        self.finish: model.Finish | None = None
        self.response_id: str | None = None
        self.model_id: str | None = None
        self._open: dict[str, _Block] = {}

    def go_on(self, content: list[model.AssistantContent]) -> None:
        """Begin with what was said before the step was cut off; its last text may grow, as block `CUT`."""
        self.content = list(content)
        last = self.content[-1] if self.content else None
        if isinstance(last, model.TextPart):
            block = self._open[CUT] = _Block(model.TextPart, len(self.content) - 1, last.provider_metadata)
            block.pieces.append(last.text)

    def begin(
        self, id: str, make: Callable[..., Any], metadata: model.ProviderMetadata | None = None
    ) -> list[str]:
        block = self._open[id] = _Block(make, len(self.content), metadata)
        self.content.append(make(""))
        return block.pieces

    def grow(self, id: str, make: Callable[..., Any]) -> list[str]:
        block = self._open.get(id)
        return block.pieces if block else self.begin(id, make)

    def end(self, id: str, metadata: model.ProviderMetadata | None) -> None:
        block = self._open.pop(id, None)
        if block is not None:
            known = {**(block.metadata or {}), **(metadata or {})} or None
            self.content[block.index] = block.make("".join(block.pieces), known)

    def close(self) -> None:
        for id in list(self._open):
            self.end(id, None)
        self.content = [p for p in self.content if not isinstance(p, model.TextPart) or p.text]
        self.reasoning = [p for p in self.content if isinstance(p, model.ReasoningPart)]

    @property
    def text(self) -> str:
        return "".join(p.text for p in self.content if isinstance(p, model.TextPart))


@dataclass(slots=True)
class _StepPlan:
    """One step's share of the turn, with what `before_step` changed."""

    number: int
    model: model.Model
    request: model.Request
    tools: Mapping[str, Tool]


class Loop:
    """Runs the steps of one turn."""

    def __init__(self, run: Run, assembled: Assembled, abort: AbortController) -> None:
        self._run, self._assembled, self._abort = run, assembled, abort
        self._specs = {name: tool.spec() for name, tool in assembled.tools.items()}
        journal = run.turn.journal
        self._used_ids: set[str] = set(journal.block_ids) if journal else set()
        self._call_ids = CallIds(run.host)
        self._call_ids.meet(run.fold.parts)
        # Where the turn goes on, until its first step begins.
        self._picked_up = PickedUp()
        self._context: Any = None
        self.steps: list[StepResult] = []
        self.is_waiting = False
        self._calls: StepCalls | None = None
        self._compactions = 0

    async def run(self) -> None:
        """Go through the steps. Raises what broke the answer off."""
        run, limits = self._run, self._assembled.timeouts
        if not run.writer.streamed:
            run.say(ui.Start(message_id=None if run.turn.continuation else run.turn.message_id))
        with self._limit("turn", limits.total), run.watched(self._assembled.stall_timeout):
            head = await self._head()
            # A tool that went on with an answer may have asked something else: nobody speaks before that.
            self.is_waiting = self.is_waiting or self._asked_again()
            goes_on = not self.is_waiting and await self._pick_up(head)
            produced = self._picked_up.produced
            while goes_on:
                head = await self._with_room(head)
                with self._limit("step", limits.step):
                    step = await self._step([*head, *produced])
                self.steps.append(step)
                self._use(step.usage)
                produced += step.response_messages
                goes_on = await self._goes_on()
        if self._assembled.output is not None and not self.is_waiting:
            run.output = self._assembled.output.parse(self.steps[-1].text)
        run.say(ui.Finish(self.steps[-1].finish_reason if self.steps else "tool-calls", self._marks()))

    def _asked_again(self) -> bool:
        """True when this turn, before it was cut off, let a call of an earlier message ask a person."""
        journal, history = self._run.turn.journal, self._assembled.history
        if journal is None:
            return False
        asked = {
            chunk.tool_call_id
            for _, chunks in journal.segments
            for chunk in chunks
            if isinstance(chunk, ui.ToolApprovalRequest) and journal.fold.call(chunk.tool_call_id) is None
        }
        parts = [part for message in history for part in message.parts if part.get("toolCallId") in asked]
        return any(part.get("state") == "approval-requested" for part in parts)

    def _marks(self) -> dict[str, Any] | None:
        """What the message says of its end: that the model had not come to one by itself."""
        if self._run.stopped_by != "max_steps":
            return None
        return {"stoppedBy": "max_steps", "steps": len(self.steps)}

    async def _pick_up(self, head: list[model.ModelMessage]) -> bool:
        """Settle what an interrupted turn left open. False: there is nothing left to say."""
        journal = self._run.turn.journal
        if journal is None or not self._run.fold.parts:
            return True
        number = sum(part.get("type") == "step-start" for part in self._run.fold.parts)
        calls = self._calls = StepCalls(
            self._run, max(0, number - 1), self._assembled.tools, head, self._assembled.system
        )
        found = self._picked_up = await pick_up(self._run, journal, calls)
        self._call_ids.allow(found.half_made)
        self.steps, self.is_waiting = found.steps, found.is_waiting
        if found.is_over or found.is_waiting:
            return False
        ended_with_calls = bool(found.steps) and not found.has_begun and not found.cut
        return await self._goes_on() if ended_with_calls else True

    async def _with_room(self, head: list[model.ModelMessage]) -> list[model.ModelMessage]:
        """The conversation so far; a shorter one when the last step came near the model's limit."""
        run, settings = self._run, overflow.overflow_of(self._run.host.hooks.agent.context_overflow).proactive
        usage = self.steps[-1].usage if self.steps else None
        if settings is None or not overflow.is_near(settings, usage):
            return head
        if self._compactions >= max(1, settings.max_compactions):
            return head
        self._compactions += 1  # also when it shortens nothing: the next step would ask again in vain
        if not await overflow.before_step(run.host, run.turn):
            return head
        try:
            history = await history_so_far(run.host, run.turn)
            fresh = await as_prompt(run.host, history, self._assembled.tools)
        except Exception as error:  # noqa: BLE001 - the longer one may still fit
            run.host.hooks.log_error("context_overflow", error)
            return head
        return asking(fresh) if fresh else head

    def _use(self, usage: model.Usage) -> None:
        self._run.usage += usage
        self._run.turn.usage += usage

    def waits_for(self) -> list[str]:
        """The calls that it waits for; none while it does anything else."""
        return self._calls.awaited if self._calls else []

    def abandon(self) -> bool:
        """Stop tools that still run. True when something did."""
        return self._calls.abandon() if self._calls else False

    async def _head(self) -> list[model.ModelMessage]:
        """The conversation so far, after running what a person has approved meanwhile.

        Somebody may have said something since: an approval is not lost because of that.
        """
        messages = self._assembled.messages
        for index in range(1, len(messages)):
            said, answers = messages[index - 1], messages[index]
            if (
                isinstance(answers, model.ToolMessage)
                and isinstance(said, model.AssistantMessage)
                and any(isinstance(part, model.ApprovalResponse) for part in answers.content)
            ):
                done = await self._approved(said, answers, messages[: index - 1])
                messages = [*messages[:index], done, *messages[index + 1 :]]
        # Converted history pairs calls and results by itself; a hook's own list may not.
        is_ours = self._assembled.config.messages is None and not has_approvals(messages)
        return messages if is_ours else asking(paired(messages))

    async def _approved(
        self, said: model.AssistantMessage, answers: model.ToolMessage, before: list[model.ModelMessage]
    ) -> model.ToolMessage:
        calls = self._calls = StepCalls(self._run, 0, self._assembled.tools, before)
        await calls.take_approvals(said, answers)
        self.is_waiting = self.is_waiting or calls.is_waiting
        done = await calls.message()
        given = {p.id: p for p in answers.content if isinstance(p, model.ToolResultPart)}
        given |= {p.id: p for p in (done.content if done else []) if isinstance(p, model.ToolResultPart)}
        order = [p.id for p in said.content if isinstance(p, model.ToolCallPart)]
        return model.ToolMessage([given[id] for id in order if id in given])

    # --- one step

    async def _step(self, messages: list[model.ModelMessage]) -> StepResult:
        run = self._run
        picked_up, self._picked_up = self._picked_up, PickedUp()
        plan = await self._plan([*messages, *picked_up.asking(self._assembled.model)])
        began = run.host.clock.monotonic()
        run.host.emit(
            ChatStepStart(
                request_id=run.turn.request_id,
                step_number=plan.number,
                model=plan.model.name,
                request=plan.request,
                telemetry=self._assembled.config.telemetry or self._assembled.config.experimental_telemetry,
            )
        )
        answer = _Answer()
        answer.go_on(picked_up.cut)
        calls = self._calls = StepCalls(
            run, plan.number, plan.tools, plan.request.messages, plan.request.system, self._context
        )
        failure: BaseException | None = None
        try:
            await self._listen(plan, answer, calls, picked_up)
            calls.give_up(picked_up.half_made)
        except Exception as error:
            failure = error
            raise
        finally:
            if failure is not None or not run.signal.aborted:
                await calls.finished()
            answer.close()
            self._tell_step(plan, answer, began, failure)
        result = await self._result(plan, answer, calls)
        run.say(ui.FinishStep())
        self.is_waiting = calls.is_waiting
        await run.host.hooks.on_step_finish(result)
        return result

    async def _plan(self, messages: list[model.ModelMessage]) -> _StepPlan:
        run, assembled, number = self._run, self._assembled, len(self.steps)
        config = assembled.config
        change = StepConfig()
        if run.host.hooks.overrides("before_step"):
            shown = ReadList(messages, "step.messages", "Return StepConfig(messages=[…]) from before_step.")
            context = StepContext(list(self.steps), number, assembled.model, shown, self._context)
            change = await run.host.hooks.before_step(context) or change
            self._context = change.context if change.context is not None else self._context
        if change.messages is not None:
            messages = paired(change.messages)
        session = run.host.session
        messages = without_files(slimmed(messages, omitted=session.omitted), session.files.refused)
        run.asked = messages
        hook, active = "before_step", change.active_tools
        if active is None:
            hook, active = "before_turn", config.active_tools
        tools = assembled.tools if active is None else _only(assembled.tools, active, hook)
        choice = _chosen(change, config, tools)
        if not number:
            _check_awaited(assembled.stop_when, assembled.tools)
        settings = assembled.settings
        if change.provider_options is not None:
            settings = msgspec.structs.replace(settings, provider_options=change.provider_options)
        request = model.Request(
            system=change.system
            if change.system is not None
            else await assembled.system_for(run.host, tools),
            messages=messages,
            tools=[self._specs[name] for name in tools],
            tool_choice=(choice or "auto") if tools else "auto",
            settings=settings,
            output=assembled.output.schema if assembled.output else None,
        )
        chosen = await run.host.resolve_model(change.model) if change.model is not None else assembled.model
        return _StepPlan(number, chosen, request, tools)

    async def _listen(self, plan: _StepPlan, answer: _Answer, calls: StepCalls, picked_up: PickedUp) -> None:
        run, writer = self._run, self._run.writer
        reasons = self._assembled.send_reasoning
        chunk_limit = self._assembled.timeouts.chunk
        ids: dict[str, str] = {CUT: picked_up.open_block} if picked_up.open_block is not None else {}
        has_begun = picked_up.has_begun
        async with contextlib.aclosing(self._open(plan)) as opened:
            events = self._rejoined(opened, plan, picked_up)
            timer = self._arm(chunk_limit)
            try:
                async for event in events:
                    if not has_begun:
                        run.say(ui.StartStep())
                        has_begun = True
                    if timer is not None:
                        timer.cancel()
                        timer = self._arm(chunk_limit)
                    match event:
                        case model.TextDelta(id, text):
                            if not text:
                                continue
                            answer.grow(id, model.TextPart).append(text)
                            run.say(ui.TextDelta(ids.get(id) or self._unique(id, ids), text))
                            if run.watches_chunks:
                                await run.tell(event)
                        case model.ReasoningDelta(id, text, metadata):
                            answer.grow("r" + id, model.ReasoningPart).append(text)
                            if reasons:
                                key = "r" + id
                                run.say(
                                    ui.ReasoningDelta(
                                        ids.get(key) or self._unique(id, ids, key), text, metadata
                                    )
                                )
                            if run.watches_chunks:
                                await run.tell(event)
                        case _:
                            await self._take(event, answer, calls, ids)
                    if writer.is_full:
                        await writer.settled()
            finally:
                if timer is not None:
                    timer.cancel()
        if answer.finish is None:
            raise StreamCut(plan.model.name)

    async def _take(
        self, event: model.ModelEvent, answer: _Answer, calls: StepCalls, ids: dict[str, str]
    ) -> None:
        run, reasons = self._run, self._assembled.send_reasoning
        event = await self._call_ids.own(event)
        match event:
            case model.TextStart(id, metadata):
                answer.begin(id, model.TextPart, metadata)
                run.say(ui.TextStart(self._unique(id, ids), metadata))
            case model.TextEnd(id, metadata):
                answer.end(id, metadata)
                run.say(ui.TextEnd(ids.get(id, id), metadata))
            case model.ReasoningStart(id, metadata):
                answer.begin("r" + id, model.ReasoningPart, metadata)
                if reasons:
                    run.say(ui.ReasoningStart(self._unique(id, ids, "r" + id), metadata))
            case model.ReasoningEnd(id, metadata):
                answer.end("r" + id, metadata)
                if reasons:
                    run.say(ui.ReasoningEnd(ids.get("r" + id, id), metadata))
            case model.ToolInputStart(id, name, executed, metadata):
                tool = self._assembled.tools.get(name)
                title = tool.title if tool else None
                run.say(ui.ToolInputStart(id, name, executed, metadata, title=title))
                await run.tell(event)
            case model.ToolInputDelta(id, delta):
                run.say(ui.ToolInputDelta(id, delta))
                await run.tell(event)
            case model.ToolCallReady():
                called = await calls.take(event)
                answer.content.append(
                    model.ToolCallPart(
                        called.tool_call_id,
                        called.tool_name,
                        normalize_input(called.input),
                        called.provider_executed,
                        event.provider_metadata,
                    )
                )
            case model.ProviderToolResult():
                calls.provider_result(event)
                answer.content.append(
                    model.ToolResultPart(
                        event.id,
                        event.name,
                        event.output,
                        event.is_error,
                        provider_executed=True,
                        provider_metadata=event.provider_metadata,
                    )
                )
                await run.tell(calls.outcomes[event.id])
            case model.GeneratedFile(url, media_type, metadata):
                answer.files.append(event)
                answer.content.append(model.FilePart(url, media_type, provider_metadata=metadata))
                run.say(ui.File(url, media_type, metadata))
            case model.Source():
                answer.sources.append(event)
                run.say(_cited(event))
                await run.tell(event)
            case model.Raw():
                await run.tell(event)
            case model.Opened(response_id, model_id):
                answer.response_id, answer.model_id = response_id, model_id
            case model.Finish():
                answer.finish = event
            case model.Failed(error):
                raise error
            case model.TextDelta() | model.ReasoningDelta():
                pass  # taken by `_listen`

    def _rejoined(
        self, events: AsyncGenerator[model.ModelEvent, None], plan: _StepPlan, picked_up: PickedUp
    ) -> AsyncGenerator[model.ModelEvent, None]:
        if picked_up.half_made:
            events = made_again(events, picked_up.half_made, heard=self._run.note_progress)
        if picked_up.open_block is None and not picked_up.said:
            return events
        return rejoin(
            events,
            picked_up.said,
            is_open=picked_up.open_block is not None,
            trims=plan.model.continues == "prompt",
            heard=self._run.note_progress,
        )

    def _unique(self, id: str, ids: dict[str, str], key: str | None = None) -> str:
        """An id for readers that no other block of this turn has."""
        unique, count = id, len(self.steps)
        while unique in self._used_ids:
            unique = f"{id}-{count}"
            count += 1
        self._used_ids.add(unique)
        ids[key or id] = unique
        return unique

    # --- opening the model's stream

    async def _open(self, plan: _StepPlan) -> AsyncGenerator[model.ModelEvent, None]:
        """The model's events. A call that is refused is made again without the older files in its prompt."""
        refusal: ModelError | None = None
        for left_out, request in self._requests(plan.request):
            async with contextlib.aclosing(self._tried(plan.model, request)) as events:
                try:
                    first = await anext(events, None)
                except ModelError as error:
                    refusal = refusal or error
                    if not may_be_about_files(error):
                        break
                    continue
                plan.request = request
                self._opened(request, left_out, refusal)
                if first is not None:
                    yield first
                async for event in events:
                    yield event
                return
        if refusal is not None:
            raise _about_files(refusal, plan.request)

    def _requests(self, whole: model.Request) -> Iterator[tuple[Set[Mark], model.Request]]:
        yield frozenset(), whole
        for marks in self._run.host.session.files.suspects(whole.messages):
            messages = without_files(whole.messages, marks)
            yield marks, msgspec.structs.replace(whole, messages=messages)

    def _opened(self, request: model.Request, left_out: Set[Mark], refusal: ModelError | None) -> None:
        run = self._run
        run.host.session.files.opened(request.messages, left_out)
        if refusal is not None:
            run.host.emit(
                ChatFilesLeftOut(request_id=run.turn.request_id, files=len(left_out), error=str(refusal))
            )

    async def _tried(
        self, asked: model.Model, request: model.Request
    ) -> AsyncGenerator[model.ModelEvent, None]:
        """The model's events. A call that never opened is tried again while that may help."""
        attempts = self._assembled.max_retries + 1
        for attempt in range(1, attempts + 1):
            events = self._events(asked, request)
            try:
                try:
                    first = await anext(events)
                except StopAsyncIteration:
                    return
                except ModelError as error:
                    if not error.is_retryable or attempts == 1:
                        raise
                    if attempt == attempts:
                        raise ModelError(
                            f"Failed after {attempt} attempts. Last error: {error}",
                            kind=error.kind,
                            status=error.status,
                            retry_after=error.retry_after,
                        ) from error
                    await self._back_off(attempt, error)
                    continue
                yield first
                async for event in events:
                    yield event
                return
            finally:
                await events.aclose()

    def _events(self, chosen: model.Model, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        host = self._run.host
        limit = host.hooks.setting("model_timeout")
        events = patient(asked(chosen, request), limit, clock=host.clock, name=chosen.name)
        transform = self._assembled.config.experimental_transform
        if transform is None:
            return events
        return _generator(transform(events), events)

    async def _back_off(self, attempt: int, error: ModelError) -> None:
        delay = backoff(attempt, first=FIRST_DELAY, most=math.inf)
        asked = error.retry_after
        if asked is not None and asked >= 0 and (asked < LONGEST_SERVER_DELAY or asked < delay):
            delay = asked
        run = self._run
        run.host.emit(
            ModelRetry(
                request_id=run.turn.request_id,
                attempt=attempt,
                delay_ms=round(delay * 1000),
                error=str(error),
                error_type=type(error).__name__,
            )
        )
        await run.host.clock.sleep(delay)

    # --- ending a step

    async def _result(self, plan: _StepPlan, answer: _Answer, calls: StepCalls) -> StepResult:
        finish = answer.finish or model.Finish("other")
        messages: list[model.ModelMessage] = (
            [model.AssistantMessage(answer.content)] if answer.content else []
        )
        results = await calls.message()
        if results is not None:
            messages.append(results)
        return StepResult(
            step_number=plan.number,
            text=answer.text,
            reasoning=answer.reasoning,
            files=answer.files,
            sources=answer.sources,
            tool_calls=list(calls.asked),
            tool_results=calls.results,
            content=answer.content,
            finish_reason=finish.reason,
            raw_finish_reason=finish.raw_reason,
            usage=finish.usage,
            model=finish.model_id or answer.model_id or plan.model.name,
            response_id=finish.response_id or answer.response_id,
            response_messages=messages,
            provider_metadata=finish.provider_metadata,
            request=plan.request,
            warnings=finish.warnings,
        )

    def _tell_step(
        self, plan: _StepPlan, answer: _Answer, began: float, failure: BaseException | None
    ) -> None:
        host, finish = self._run.host, answer.finish
        host.emit(
            ChatStepFinish(
                request_id=self._run.turn.request_id,
                step_number=plan.number,
                model=plan.model.name,
                finish_reason=finish.reason if finish else "error" if failure else "other",
                usage=finish.usage if finish else None,
                duration_ms=round((host.clock.monotonic() - began) * 1000),
                response_id=finish.response_id if finish else None,
                response_model=finish.model_id if finish else None,
                error_type=type(failure).__name__ if failure else None,
                answer=model.AssistantMessage(answer.content),
            )
        )

    async def _goes_on(self) -> bool:
        last = self.steps[-1]
        if self.is_waiting or not any(not call.provider_executed for call in last.tool_calls):
            return False
        if len(self.steps) >= self._assembled.max_steps:
            self._run.stopped_by = "max_steps"
            return False
        for condition in self._assembled.stop_when:
            if await ask("stop_when", condition, list(self.steps)):
                self._run.stopped_by = "stop_when"
                return False
        return True

    # --- limits

    def _arm(self, seconds: float | None, what: str = "chunk") -> Timer | None:
        if not seconds or seconds <= 0:
            return None
        reason = TimedOut(f"No end of the {what} within {seconds:g} seconds.")
        return self._run.host.clock.call_later(seconds, lambda: self._abort.abort(reason))

    @contextlib.contextmanager
    def _limit(self, what: str, seconds: float | None):
        timer = self._arm(seconds, what)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()


def _chosen(change: StepConfig, config: TurnConfig, tools: Mapping[str, Tool]) -> str | None:
    """The tool choice of a step. Raises when it names a tool that is not there."""
    hook, given = "before_step", change.tool_choice
    if given is None:
        hook, given = "before_turn", config.tool_choice
    choice = tool_choice_of(given, hook)
    name = (choice or "").removeprefix("tool:")
    if choice is None or name == choice or name in tools:
        return choice
    near = nearest(name, tools)
    raise InvalidSettings(
        f"{hook}: tool_choice names {name!r}, and there is no such tool in this step.",
        next_step=f"Did you mean {near!r}?" if near else f"There are: {', '.join(tools) or 'none'}.",
    )


def _check_awaited(conditions: Sequence[StopCondition], tools: Mapping[str, Tool]) -> None:
    """Tell a `has_tool_call` of what is no tool of the turn. Raises for what is nearly one; a name that is
    far from all may be a tool of the provider's own."""
    for condition in conditions:
        if isinstance(condition, HasToolCall) and condition.tool_name not in tools:
            name, near = condition.tool_name, nearest(condition.tool_name, tools)
            error = InvalidSettings(
                f"before_turn: stop_when waits for a call of {name!r}, which is no tool of this turn.",
                next_step=f"Did you mean {near!r}?" if near else f"There are: {', '.join(tools) or 'none'}.",
            )
            if near:
                raise error
            log.warning("%s", error)


def _cited(source: model.Source) -> ui.SourceUrl | ui.SourceDocument:
    """A source as people are shown it: a web page by its address, anything else by its name."""
    if source.url is not None:
        return ui.SourceUrl(source.id, source.url, source.title, source.provider_metadata)
    kind = source.media_type or "application/octet-stream"
    title = source.title or source.filename or source.id
    return ui.SourceDocument(source.id, kind, title, source.filename, source.provider_metadata)


def _only(tools: Mapping[str, Tool], names: Collection[str], hook: str) -> dict[str, Tool]:
    """The tools that a hook leaves to a step. A name that is none is told; raises when none of them is."""
    unknown = [name for name in names if name not in tools]
    if unknown:
        name, near = unknown[0], nearest(str(unknown[0]), tools)
        error = InvalidSettings(
            f"{hook}: active_tools names {name!r}, and there is no such tool in this turn.",
            next_step=f"Did you mean {near!r}?" if near else f"There are: {', '.join(tools) or 'none'}.",
        )
        if len(unknown) == len(names):
            raise error
        log.warning("%s", error)
    return {name: tool for name, tool in tools.items() if name in set(names)}


def _about_files(error: ModelError, request: model.Request) -> ModelError:
    """The refusal of a call; where a file that was just sent may be why, it says so."""
    if error.next_step or not may_be_about_files(error) or not asks_with_files(request.messages):
        return error
    explained = ModelError(
        str(error).rstrip(".") + ".",
        kind=error.kind,
        status=error.status,
        retry_after=error.retry_after,
        next_step="The message holds a file, which this model may not take: send it in another form.",
    )
    explained.__cause__ = error.__cause__ or error
    return explained


async def _generator(
    changed: AsyncIterator[model.ModelEvent], source: AsyncGenerator[model.ModelEvent, None]
) -> AsyncGenerator[model.ModelEvent, None]:
    try:
        async for event in changed:
            yield event
    finally:
        await source.aclose()
