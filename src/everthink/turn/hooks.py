"""What hooks are given and what they may return.

    Think.before_turn(TurnContext) -> TurnConfig      before_step(StepContext) -> StepConfig
    before_tool_call(ToolCall) -> Allow | Block | Substitute
    after_tool_call(ToolOutcome)   on_step_finish(StepResult)   on_chunk(ChunkContext)
    on_chat_response(ChatResponse)   on_chat_error(error, ChatErrorContext)

Plain values. Every field of a config is optional; `None` keeps what the agent has.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar, cast

from ..abort import AbortSignal
from ..errors import ErrorKind
from ..messages import Message, tool_name
from ..models import port as model
from ..session.tree import UNSET
from ..tools.tool import Tool

__all__ = [
    "Allow",
    "Block",
    "CalledTool",
    "ChatErrorContext",
    "ChatResponse",
    "ChunkContext",
    "Hooks",
    "InvalidCall",
    "PendingCall",
    "Stage",
    "StepConfig",
    "StepContext",
    "StepResult",
    "StopCondition",
    "Substitute",
    "Timeouts",
    "ToolCall",
    "ToolDecision",
    "ToolOutcome",
    "ToolResult",
    "TurnConfig",
    "TurnContext",
    "TurnResult",
    "TurnStatus",
    "call_hook",
    "has_tool_call",
    "step_count_is",
]

TurnStatus = Literal["completed", "error", "aborted", "skipped"]
Stage = Literal["parse", "persist", "turn", "stream", "recovery", "transcript"]


@dataclass(slots=True)
class TurnContext:
    """The turn as assembled, for `before_turn`."""

    system: str
    messages: list[model.ModelMessage]
    tools: dict[str, Tool]
    model: model.Model
    continuation: bool
    body: dict[str, Any] | None
    request_id: str
    trigger: str
    metadata: dict[str, Any] | None = None


@dataclass(slots=True)
class Timeouts:
    """Limits in seconds; running out of one aborts the turn."""

    total: float | None = None
    step: float | None = None
    chunk: float | None = None


@dataclass(slots=True, kw_only=True)
class TurnConfig:
    """What one turn does differently. Return it from `before_turn`; the next turn starts afresh."""

    model: model.Model | str | None = None
    system: str | None = None
    instructions: str | None = None
    """The same as `system`, and wins over it."""
    messages: list[model.ModelMessage] | None = None
    tools: Any = None
    """More tools, in any form `get_tools` may return. They are added; equal names win."""
    active_tools: Sequence[str] | None = None
    tool_choice: model.ToolChoice | None = None
    max_steps: int | None = None
    stop_when: StopCondition | Sequence[StopCondition] | None = None
    send_reasoning: bool | None = None
    chat_stream_stall_timeout: float | None = None
    """Seconds of silence after which this turn is given up; 0 switches the watchdog off."""
    output: Any = None
    """A pydantic model, any type pydantic understands, or a JSON schema: the final text must follow it."""
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    max_retries: int | None = None
    timeout: float | Timeouts | None = None
    headers: dict[str, str] | None = None
    provider_options: dict[str, Any] | None = None
    telemetry: dict[str, Any] | None = None
    """For traces of this turn: `function_id`, `metadata` (a dict), `is_enabled=False` for none."""
    experimental_telemetry: dict[str, Any] | None = None
    """The older name of `telemetry`, which wins over it."""
    experimental_transform: Transform | None = None
    """Rewrites the model's events before anything else sees them."""
    repair_tool_call: RepairToolCall | None = None
    """Mends a call that names no tool or does not fit its schema, once."""


@dataclass(slots=True, frozen=True)
class CalledTool:
    """A call as the model made it, with its input parsed."""

    tool_call_id: str
    tool_name: str
    input: Any
    provider_executed: bool = False
    invalid: bool = False
    type: Literal["tool-call"] = "tool-call"


@dataclass(slots=True, frozen=True)
class ToolResult:
    """What a call gave: `output`, or the text of its error."""

    tool_call_id: str
    tool_name: str
    input: Any
    output: Any
    is_error: bool = False
    preliminary: bool = False
    type: Literal["tool-result"] = "tool-result"


@dataclass(slots=True)
class StepResult:
    """One finished step: a model call and the tools it asked for."""

    step_number: int
    text: str
    reasoning: list[model.ReasoningPart]
    files: list[model.GeneratedFile]
    sources: list[model.Source]
    tool_calls: list[CalledTool]
    tool_results: list[ToolResult]
    content: list[model.AssistantContent]
    """All the model said in this step, in order."""
    finish_reason: model.FinishReason
    raw_finish_reason: str | None
    usage: model.Usage
    model: str
    response_id: str | None
    response_messages: list[model.ModelMessage]
    provider_metadata: model.ProviderMetadata | None
    request: model.Request
    warnings: list[str] = field(default_factory=list[str])

    @property
    def reasoning_text(self) -> str | None:
        """All thinking of the step, or `None`."""
        return "".join(part.text for part in self.reasoning) or None


@dataclass(slots=True)
class StepContext:
    """The step about to run, for `before_step`."""

    steps: list[StepResult]
    step_number: int
    model: model.Model
    messages: list[model.ModelMessage]
    context: Any = None


@dataclass(slots=True, kw_only=True)
class StepConfig:
    """What one step does differently. The next step starts from the turn's values again."""

    model: model.Model | str | None = None
    tool_choice: model.ToolChoice | None = None
    active_tools: Sequence[str] | None = None
    system: str | None = None
    messages: list[model.ModelMessage] | None = None
    context: Any = None
    """A value of your own for the tools of this step (`ToolContext.context`) and for the steps after it."""
    provider_options: dict[str, Any] | None = None


@dataclass(slots=True)
class ToolCall:
    """A server tool about to run, for `before_tool_call`."""

    tool_name: str
    tool_call_id: str
    input: Any
    messages: Sequence[model.ModelMessage]
    signal: AbortSignal
    dynamic: bool = False
    provider_metadata: model.ProviderMetadata | None = None
    step_number: int | None = None
    type: Literal["tool-call"] = "tool-call"

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool_name


@dataclass(slots=True)
class ToolOutcome(ToolCall):
    """A call and what came of it, for `after_tool_call`. `input` is what the model sent."""

    duration_ms: float = 0.0
    success: bool = True
    output: Any = None
    error: BaseException | None = None


@dataclass(slots=True, frozen=True)
class Allow:
    """Run the tool, with `input` instead of the model's if given (it is not checked again)."""

    input: Any = UNSET


@dataclass(slots=True, frozen=True)
class Block:
    """Do not run the tool; the model reads `reason` as its result."""

    reason: str | None = None


@dataclass(slots=True, frozen=True)
class Substitute:
    """Do not run the tool; the model reads `output` as its result."""

    output: Any
    input: Any = UNSET


ToolDecision = Allow | Block | Substitute

OnChunk = (
    model.TextDelta
    | model.ReasoningDelta
    | model.Source
    | CalledTool
    | model.ToolInputStart
    | model.ToolInputDelta
    | ToolResult
    | model.Raw
)


@dataclass(slots=True)
class ChunkContext:
    """A piece of the model's answer as it arrives, for `on_chunk`. Tell them apart by `chunk.type`."""

    chunk: OnChunk


@dataclass(slots=True)
class ChatResponse:
    """How a turn ended, for `on_chat_response`."""

    message: Message
    request_id: str
    continuation: bool
    status: Literal["completed", "error", "aborted"]
    error: str | None = None
    output: Any = None


@dataclass(slots=True)
class ChatErrorContext:
    """Where a turn failed, for `on_chat_error`."""

    stage: Stage
    messages_persisted: bool
    request_id: str | None = None
    classification: ErrorKind | None = None


@dataclass(slots=True, frozen=True)
class PendingCall:
    """A call that waits for a person: `"approval"`, or `"client"` for a tool in their browser."""

    tool_call_id: str
    tool_name: str
    input: Any
    kind: Literal["approval", "client"]


@dataclass(slots=True, frozen=True)
class TurnResult:
    """What a turn API gives back once the turn ended."""

    request_id: str
    status: TurnStatus
    continuation: bool = False
    error: str | None = None
    message: Message | None = None
    output: Any = None

    @property
    def text(self) -> str:
        """The answer's text; empty when there is none."""
        return self.message.text if self.message else ""

    @property
    def pending(self) -> list[PendingCall]:
        """The calls of the answer that wait for a person; the turn ended to ask."""
        kinds: dict[Any, Literal["approval", "client"]] = {
            "approval-requested": "approval",
            "input-available": "client",
        }
        parts = self.message.tool_parts if self.message and self.status == "completed" else []
        return [
            PendingCall(part["toolCallId"], tool_name(part), part.get("input"), kinds[part["state"]])
            for part in parts
            if part.get("state") in kinds
        ]


# --- stop conditions, repair, transform

StopCondition = Callable[[list[StepResult]], bool | Awaitable[bool]]
Transform = Callable[[AsyncIterator[model.ModelEvent]], AsyncIterator[model.ModelEvent]]


@dataclass(slots=True)
class InvalidCall:
    """A call that cannot run, for `repair_tool_call`."""

    tool_call_id: str
    tool_name: str
    input: str
    tools: Mapping[str, Tool]
    system: str
    messages: Sequence[model.ModelMessage]
    error: Exception


Repaired = tuple[str, Any] | Mapping[str, Any] | str | None
RepairToolCall = Callable[[InvalidCall], Repaired | Awaitable[Repaired]]
"""Returns the mended input, or `(tool_name, input)`, or `None` to keep the error."""


def step_count_is(count: int) -> StopCondition:
    """Stop after exactly `count` steps."""
    return lambda steps: len(steps) == count


def has_tool_call(name: str) -> StopCondition:
    """Stop after a step that called `name`."""
    return lambda steps: any(call.tool_name == name for call in steps[-1].tool_calls)


# --- calling hooks

T = TypeVar("T")


async def call_hook(hook: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """Call a hook that may be `def` or `async def`."""
    result = hook(*args)
    if inspect.isawaitable(result):
        return await cast("Awaitable[T]", result)
    return cast("T", result)


class Hooks(Protocol):
    """The part of `Think` that a turn calls. See `think.py` for what each one means."""

    @property
    def max_steps(self) -> int:
        """How many model calls a turn may take."""
        ...

    @property
    def send_reasoning(self) -> bool:
        """Whether readers see thinking."""
        ...

    @property
    def chat_stream_stall_timeout(self) -> float:
        """Seconds of silence after which a turn is given up; 0 never."""
        ...

    def get_model(self) -> Any:
        """The model of a turn that names none."""
        ...

    def get_system_prompt(self) -> Any:
        """The system prompt."""
        ...

    def get_tools(self) -> Any:
        """Tools besides the `@tool` methods."""
        ...

    def before_turn(self, turn: TurnContext) -> Any:
        """See `Think.before_turn`."""
        ...

    def before_step(self, step: StepContext) -> Any:
        """See `Think.before_step`."""
        ...

    def before_tool_call(self, call: ToolCall) -> Any:
        """See `Think.before_tool_call`."""
        ...

    def after_tool_call(self, outcome: ToolOutcome) -> Any:
        """See `Think.after_tool_call`."""
        ...

    def on_step_finish(self, step: StepResult) -> Any:
        """See `Think.on_step_finish`."""
        ...

    def on_chunk(self, chunk: ChunkContext) -> Any:
        """See `Think.on_chunk`."""
        ...

    def on_chat_response(self, response: ChatResponse) -> Any:
        """See `Think.on_chat_response`."""
        ...

    def on_chat_error(self, error: BaseException, ctx: ChatErrorContext) -> Any:
        """See `Think.on_chat_error`."""
        ...

    def repair_interrupted_tool_part(self, part: dict[str, Any]) -> dict[str, Any]:
        """See `Think.repair_interrupted_tool_part`."""
        ...
