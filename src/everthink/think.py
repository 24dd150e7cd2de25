"""`Think`: the chat agent. Declarations and hooks; the machinery is in the rooms it delegates to.

save_messages, chat, submit_messages, … --> turn/admission --> turn/perform --> session/
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .agent import Agent
from .current import current_connection
from .errors import InvalidSettings, NoModel
from .messages import UNSET, Message, MessageInput, Part, Unset
from .tools.collect import collect_tools
from .turn.prompt import DEFAULT_SYSTEM_PROMPT, capabilities

if TYPE_CHECKING:
    from .abort import AbortSignal
    from .door.chat_stream import ChatStream, StreamCallback
    from .door.concurrency import MessageConcurrency
    from .door.submissions import Status, Submission
    from .hooks.values import (
        ChatErrorContext,
        ChatResponse,
        ChunkContext,
        StepConfig,
        StepContext,
        StepResult,
        ToolCall,
        ToolDecision,
        ToolOutcome,
        TurnConfig,
        TurnContext,
        TurnResult,
    )
    from .journal.turn import InputFunction
    from .models.port import Model
    from .recovery.context import ChatRecoveryContext, RecoveryDecision
    from .recovery.incident import ChatRecovery
    from .runtime import control, stopping
    from .runtime.actor import Degradation
    from .runtime.stopping import Stop
    from .schedules.task import ScheduledTask
    from .session.media import MediaEviction
    from .session.row_size import Shortening
    from .session.session import Session
    from .session.sessions import Sessions
    from .tools.tool import Tool
    from .turn.overflow import ContextOverflow

    Input = MessageInput | Sequence[MessageInput] | InputFunction
else:

    class _OnUse:
        """The machinery is loaded with the first turn, so that declaring an agent costs little."""

        def __init__(self, module):
            self._module = module

        def __getattr__(self, name):
            from importlib import import_module

            return getattr(import_module(f".runtime.{self._module}", __package__), name)

    control, stopping = _OnUse("control"), _OnUse("stopping")

__all__ = ["Think"]

PLAIN_HOOKS = ("validate_state_change", "repair_interrupted_tool_part")
"""Hooks whose answer is needed at once: a coroutine would count as a yes."""


class Think(Agent):
    """A chat agent that remembers. Subclass it and override what you need.

        class Support(Think):
            model = "anthropic:claude-sonnet-5"

            @tool
            async def refund(self, order: str, amount: float) -> str:
                "Refund an order."

            async def before_tool_call(self, call):
                if call.name == "refund" and call.input["amount"] > 100:
                    return Block("Refunds above 100 need a person.")

    Hooks run on every turn, whichever door it came through, in the order below; each may be
    `def` or `async def`. A plain `def` hook runs on the event loop: keep it short.
    """

    model: Model | str | None = None
    """The model of this agent: `"anthropic:claude-sonnet-5"`, `"demo"`, or a model object."""

    system_prompt: str = DEFAULT_SYSTEM_PROMPT
    """What the model is told about itself."""

    capability_prompt: bool | str = True
    """What follows the system prompt: a few lines on what the model can do, made for each step from the
    tools it is offered (`True`), nothing (`False`), or a text of your own."""

    max_steps: int = 10
    """How many model calls one turn may take."""

    send_reasoning: bool = True
    """Whether readers see the model's thinking."""

    model_timeout: float | None = 300.0
    """Seconds a model may say nothing at all before its answer fails; 0 or `None`: for ever. Time in tools
    does not count, and each word begins it anew."""

    chat_stream_stall_timeout: float = 0.0
    """Seconds without a chunk after which an attempt is given up and the turn picked up again (or, with
    `chat_recovery = False`, failed); 0 never does. Time in tools counts: set it above the slowest one."""

    chat_recovery: ChatRecovery | dict[str, Any] | bool = True
    """What happens to a turn that a crash, a deploy or a stall cut off: it goes on, within the bounds of
    `ChatRecovery(max_attempts=…)`. `False`: it fails, keeping what it had said."""

    context_overflow: ContextOverflow | dict[str, Any] | None = None
    """What happens when the conversation grows too long for the model in mid-turn. Default: the
    turn fails. `ContextOverflow(reactive=True, proactive=Proactive(max_input_tokens=200_000))` makes room."""

    hydration_byte_budget: float = 24 * 1024 * 1024
    """How much of a conversation is kept in memory, at most; what is older stays in the database.
    0 or less, or `math.inf`: everything."""

    media_eviction: MediaEviction | dict[str, Any] | bool = True
    """Whether files and large tool outputs leave old messages: see `MediaEviction`."""

    shorten_old_messages: Shortening | dict[str, Any] | bool = True
    """Whether the model is shown long tool results and texts of older messages in short: see `Shortening`.
    What is stored stays whole."""

    message_concurrency: MessageConcurrency = "queue"
    """What happens to a message typed while a turn runs:
    `"queue"`, `"latest"`, `"merge"`, `"drop"`, `"debounce"` or `Debounce(seconds)`."""

    trust_client_history: bool = False
    """True: believe the transcript that a chat window sends, as the original does. Everybody who can open a
    socket can then put words into the model's mouth and results into its tools: see docs/security.md."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check the tools of a new agent class, so that a mistake shows where it was made."""
        classifier: Any = cls.__dict__.get("classify_chat_error")
        if getattr(classifier, "__name__", "") == "default_context_overflow_classifier":
            cls.classify_chat_error = staticmethod(classifier)  # assigned as it is: it wants no agent
        super().__init_subclass__(**kwargs)
        collect_tools(cls)
        for name in PLAIN_HOOKS:
            if inspect.iscoroutinefunction(cls.__dict__.get(name)):
                raise InvalidSettings(
                    f"{cls.__name__}.{name} is `async`, and its answer is needed at once.",
                    next_step="Write it with `def`, without await.",
                )

    # --- what the agent is made of

    def get_model(self) -> Model | str:
        """The model of a turn. Default: the `model` attribute. Raising fails the turn before it begins."""
        if self.model is None:
            raise NoModel(
                f"{type(self).__name__} names no model.",
                next_step='Set `model = "provider:name"` (or "demo"), or override get_model().',
            )
        return self.model

    def get_system_prompt(self) -> str | Awaitable[str]:
        """The system prompt. Default: the `system_prompt` attribute."""
        return self.system_prompt

    def get_capability_prompt(self, tools: Mapping[str, Tool]) -> str | Awaitable[str | None] | None:
        """What follows the system prompt in a step that is offered `tools`. Default: `capability_prompt`.

        `None` or an empty text: nothing. A prompt that a hook replaces gets none. Raising fails the turn.
        """
        said = self.capability_prompt
        return capabilities(tools) if said is True else said or None

    def get_tools(self) -> Any:
        """More tools than the `@tool` methods: a dict by name or a list. Default: none."""
        return {}

    def configure_session(self, session: Session) -> Session | Awaitable[Session | None] | None:
        """Set up the conversation's memory. Once per start, before `on_start`; `get_config` works here."""
        return session

    # --- hooks, in the order of a turn

    def before_turn(self, turn: TurnContext) -> TurnConfig | Awaitable[TurnConfig | None] | None:
        """Change the model, prompt, messages or tools of this one turn. `None` keeps them.

        Raising fails the turn before the model is asked.
        """

    def before_step(self, step: StepContext) -> StepConfig | Awaitable[StepConfig | None] | None:
        """Change the model, tools or messages of this one step. `None` keeps them.

        Raising breaks the answer off; what was said so far is stored.
        """

    def on_chunk(self, chunk: ChunkContext) -> Awaitable[None] | None:
        """See each piece of the answer as it arrives. A slow one slows the stream. Raising is logged."""

    def before_tool_call(self, call: ToolCall) -> ToolDecision | Awaitable[ToolDecision | None] | None:
        """Stop, answer or adjust a tool call before it runs. `None` lets it run.

        Raising becomes the tool's error, which the model reads.
        """

    def after_tool_call(self, outcome: ToolOutcome) -> Awaitable[None] | None:
        """See what came of a call: run, blocked, substituted or failed. Raising is logged."""

    def on_step_finish(self, step: StepResult) -> Awaitable[None] | None:
        """See a finished step with its usage. The next step waits for this. Raising is logged."""

    def on_chat_response(self, response: ChatResponse) -> Awaitable[None] | None:
        """React once the reply is stored. The turn is over, so this may start another one.

        Raising is logged and loses nothing.
        """

    def on_chat_error(self, error: BaseException, ctx: ChatErrorContext) -> Any:
        """Say what people read when a turn fails: return an error or a text. Once per failed turn.

        What was said before is stored already. Returning `None`, or raising, keeps the error.
        """
        return error

    def classify_chat_error(
        self, error: BaseException, ctx: ChatErrorContext
    ) -> str | Awaitable[str | None] | None:
        """Say what kind of failure this is. `"context_overflow"`: the conversation is too long for the model.

        Default: `default_context_overflow_classifier`. Any other word, `None`, or raising: just a failure.
        """
        return control.default_kind(error)

    def on_submission_status(self, submission: Submission) -> Awaitable[None] | None:
        """See a submission change its status. Raising is logged."""

    def on_chat_recovery(
        self, ctx: ChatRecoveryContext
    ) -> RecoveryDecision | Awaitable[RecoveryDecision | None] | None:
        """Decide about a turn that was cut off, before it goes on. `None` keeps what it said and goes on.

        The hook may bring the answer from elsewhere (`add_messages`) and return
        `RecoveryDecision(persist=False, continue_=False)`. Raising keeps the turn; it comes again later.
        """

    def repair_interrupted_tool_part(self, part: Part) -> Part:
        """Say what becomes of a call that was interrupted: a settled tool part, or a part of another kind.

        Default: a failed call whose error says that it was interrupted.
        """
        return control.as_interrupted(part)

    # --- declared tasks

    default_timezone: str | None = None
    """The zone of schedules that name a time of day and no zone."""

    def get_default_timezone(self) -> str | Awaitable[str | None] | None:
        """The zone of schedules that name none. Default: `default_timezone`."""
        return self.default_timezone

    def get_scheduled_tasks(
        self,
    ) -> Mapping[str, ScheduledTask] | Awaitable[Mapping[str, ScheduledTask]]:
        """What this agent does again and again, by the name of the task. Read at every start.

        Raising, or a schedule that cannot be read, keeps the timers there are; the agent serves.
        """
        return {}

    async def reconcile_scheduled_tasks(self) -> None:
        """Read the declared tasks again, because something they depend on changed. Raises their mistakes."""
        await self._home.tasks.reconcile()

    async def _run_scheduled_task(self, payload: Any) -> None:
        await self._home.tasks.run(payload)

    def get_on_start_degradations(self) -> list[Degradation]:
        """The steps of this start that failed without keeping the agent from serving."""
        return list(self._home.degradations)

    # --- turns

    async def save_messages(
        self,
        messages: Input,
        *,
        signal: AbortSignal | None = None,
        channel: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> TurnResult:
        """Add messages and answer them; returns when the turn ended.

        A function is called inside the turn with the messages at that moment. If the caller stops
        waiting, the turn goes on. A turn that could not be set up raises; an answer that broke off
        returns status `"error"`.
        """
        return await control.save(self._home, messages, signal=signal, channel=channel, metadata=metadata)

    def chat(
        self,
        input: Input,
        callback: StreamCallback | Callable[[str], Any] | None = None,
        *,
        signal: AbortSignal | None = None,
        client_tools: Sequence[Mapping[str, Any]] | None = None,
        on_client_tool_call: Callable[..., Any] | None = None,
        channel: str | None = None,
        metadata: dict[str, Any] | None = None,
        tools: Any = None,
    ) -> ChatStream:
        """Answer a message, streaming: `async for chunk in agent.chat("hi")`, or `await` it for the result.

        `client_tools` live for this turn only; with `on_client_tool_call(name, input, call_id)` they
        are answered within it. `tools` is ignored, with a warning: tools belong to the class, or to
        `TurnConfig(tools=…)`. Nothing happens until the stream is iterated or awaited.
        """
        return control.stream(
            self._home,
            input,
            callback=callback,
            signal=signal,
            client_tools=client_tools,
            on_client_tool_call=on_client_tool_call,
            channel=channel,
            metadata=metadata,
            tools=tools,
        )

    def continue_last_turn(
        self, body: dict[str, Any] | None = None, *, signal: AbortSignal | None = None
    ) -> ChatStream:
        """Let the model go on after its last message, in a new one. Skipped when the last is not its own.

        Await it, or iterate over its chunks.
        """
        return control.go_on(self._home, body, signal=signal)

    def regenerate(self, message_id: str | None = None, *, signal: AbortSignal | None = None) -> ChatStream:
        """Answer again: the new answer becomes a sibling of the old one (the last, or `message_id`).

        The old one stays in the tree; the model does not see it. Await it, or iterate over its chunks.
        """
        return control.regenerate(self._home, message_id, signal=signal)

    async def run_turn(
        self,
        input: Input | None = None,
        *,
        mode: Literal["wait", "submit", "stream"] = "wait",
        continuation: bool = False,
        callback: StreamCallback | Callable[[str], Any] | None = None,
        signal: AbortSignal | None = None,
        channel: str | None = None,
        metadata: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
        submission_id: str | None = None,
        idempotency_key: str | None = None,
        client_tools: Sequence[Mapping[str, Any]] | None = None,
        on_client_tool_call: Callable[..., Any] | None = None,
    ) -> TurnResult | Submission:
        """One method for all three ways: wait for the end, accept for later, or stream to a callback."""
        return await control.run_turn(
            self._home,
            input,
            mode=mode,
            continuation=continuation,
            callback=callback,
            signal=signal,
            channel=channel,
            metadata=metadata,
            body=body,
            submission_id=submission_id,
            idempotency_key=idempotency_key,
            client_tools=client_tools,
            on_client_tool_call=on_client_tool_call,
        )

    def cancel_chat(self, request_id: str, reason: object = None) -> Stop:
        """Stop a turn, queued or running. What it said is kept. False when there is none of that id.

        It stops at once; await the answer to know that the stop outlives a crash.
        """
        return stopping.cancel(self._home, request_id, reason)

    def abort_all_requests(self, reason: object = None) -> Stop:
        """Stop every turn of this agent, at once. Await it to know that it outlives a crash."""
        return stopping.cancel_all(self._home, reason)

    async def reset_turn_state(self) -> None:
        """Stop the running turn, skip those that wait, and start with an empty queue."""
        await control.reset(self._home)

    # --- submissions

    async def submit_messages(
        self,
        messages: MessageInput | Sequence[MessageInput],
        *,
        submission_id: str | None = None,
        idempotency_key: str | None = None,
        metadata: dict[str, Any] | None = None,
        channel: str | None = None,
    ) -> Submission:
        """Accept work now, run it later. The same id or key is accepted once."""
        return await self._home.submissions.accept(
            messages,
            submission_id=submission_id,
            idempotency_key=idempotency_key,
            metadata=metadata,
            channel=channel,
        )

    async def inspect_submission(self, submission_id: str) -> Submission | None:
        """How a submission stands."""
        return await self._home.submissions.inspect(submission_id)

    async def wait_for_submission(self, submission_id: str) -> Submission | None:
        """Return once a submission is over: how it ended, or `None` when there is none of that id.

        Inside a turn of this agent, which has to end first, it raises `NestedTurn`.
        """
        return await self._home.submissions.wait(submission_id)

    async def list_submissions(
        self, *, status: Status | Sequence[Status] | None = None, limit: int = 50
    ) -> list[Submission]:
        """Submissions, newest first, at most 100."""
        return await self._home.submissions.list(status=status, limit=limit)

    async def cancel_submission(self, submission_id: str, reason: object = None) -> None:
        """Stop a submission, whether it waits or runs. One that is over stays as it is."""
        await self._home.submissions.cancel(submission_id, reason)

    async def delete_submission(self, submission_id: str) -> bool:
        """Forget a submission that is over; its id and key are free again. The conversation stays."""
        return await self._home.submissions.delete(submission_id)

    async def delete_submissions(
        self,
        *,
        status: Status | Sequence[Status] | None = None,
        completed_before: int | None = None,
        limit: int = 100,
    ) -> int:
        """Forget submissions that are over. `completed_before` is in ms since 1970. Returns how many."""
        return await self._home.submissions.delete_many(
            status=status, completed_before=completed_before, limit=limit
        )

    # --- the conversation

    @property
    def session(self) -> Session:
        """The conversation's tree of messages."""
        return self._home.session

    @property
    def sessions(self) -> Sessions:
        """All sessions of this agent; `session` is the live one of them."""
        return self._home.sessions

    async def read_attachment(self, path: str) -> bytes | None:
        """A file that left its message: the path stands in the marker. `None` when there is none."""
        return await control.read_attachment(self._home.store, self._home.id, path)

    @property
    def messages(self) -> list[Message]:
        """The conversation, as copies."""
        return [message.copy() for message in self._home.session.path]

    async def get_messages(self) -> list[Message]:
        """The conversation, as copies."""
        return await self._home.session.get_history()

    async def add_messages(
        self,
        messages: Input,
        *,
        parent_id: str | Unset | None = UNSET,
        mode: Literal["append", "upsert"] = "append",
        broadcast: bool = True,
    ) -> tuple[str, ...]:
        """Write to the conversation without a turn. Safe inside a turn and inside tools.

        Known ids are left alone (`"append"`) or replaced in place (`"upsert"`). `parent_id`: below
        that message, `None` for a new root, omitted for the tip. Returns the ids of those that were too large
        for a row and are stored in part; usually there are none.
        """
        return await control.add(self._home, messages, parent_id=parent_id, mode=mode, broadcast=broadcast)

    async def clear_messages(self) -> None:
        """Empty the conversation; turns that run or wait are stopped."""
        await control.clear(self._home)

    async def wait_until_stable(self, *, timeout: float | None = None) -> bool:
        """True once no turn runs or waits and nothing waits for a person; False after `timeout` seconds.

        Not for use inside a turn: that turn itself runs. Without a `timeout` it raises `NestedTurn` there.
        """
        return await control.until_stable(self._home, timeout)

    def has_pending_interaction(self) -> bool:
        """True when a call waits for a person: an approval, or a tool in their browser."""
        return control.is_waiting_for_person(self._home)

    async def apply_tool_result(
        self,
        tool_call_id: str,
        output: Any = None,
        *,
        is_error: bool = False,
        error_text: str | None = None,
    ) -> bool:
        """Settle a call that ran elsewhere. False when no call waits for it."""
        return await control.apply_result(
            self._home, tool_call_id, output, is_error=is_error, error_text=error_text
        )

    async def apply_tool_approval(
        self, tool_call_id: str, approved: bool, *, reason: str | None = None
    ) -> bool:
        """Answer a call that asked for approval; `continue_last_turn` then runs it. False when none asked."""
        caller = current_connection.get()
        return await control.apply_approval(
            self._home, tool_call_id, approved, reason=reason, by=caller.who if caller else None
        )

    async def generate_text(self, prompt: str, *, system: str = "", model: Model | str | None = None) -> str:
        """Ask a model (this agent's own when none is named) something beside the conversation.

        Made for `create_compact_function(summarize=self.generate_text)`. Raises the model's error.
        """
        return await control.generate_text(self._home, prompt, system, model)

    # --- configuration

    async def configure(self, config: Any) -> None:
        """Keep a JSON value for this agent, private to the server. `None` forgets it."""
        await control.configure(self._home, config)

    def get_config(self) -> Any:
        """What `configure` kept, or `None`."""
        return control.config_of(self._home)
