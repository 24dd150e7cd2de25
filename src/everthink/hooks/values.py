"""What hooks are given and what they may return.

    Think.before_turn(TurnContext) -> TurnConfig      before_step(StepContext) -> StepConfig
    before_tool_call(ToolCall) -> Allow | Block | Substitute
    after_tool_call(ToolOutcome)   on_step_finish(StepResult)   on_chunk(ChunkContext)
    on_chat_response(ChatResponse)   on_chat_error(error, ChatErrorContext)

Plain values. Every field of a config is optional; `None` keeps what the agent has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ..abort import AbortSignal
from ..errors import InvalidSettings
from ..identity import Approver
from ..messages import UNSET, Message, tool_name
from ..models import port as model
from ..settings import as_settings, check_call, check_fields, shown, snake
from ..surface import refuse_unknown
from ..tools.tool import Tool
from .given import to_read

__all__ = [
    "Allow",
    "Block",
    "CalledTool",
    "ChatErrorContext",
    "ChatResponse",
    "ChunkContext",
    "InvalidCall",
    "PendingCall",
    "Stage",
    "StepConfig",
    "StepContext",
    "StepResult",
    "StopCondition",
    "StoppedBy",
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
    "decision_of",
    "has_tool_call",
    "step_count_is",
    "tool_choice_of",
]

TurnStatus = Literal["completed", "error", "aborted", "skipped"]
StoppedBy = Literal["max_steps", "stop_when"]
Stage = Literal["parse", "persist", "turn", "stream", "recovery", "transcript"]


@to_read("Return TurnConfig({name}=…) from before_turn.")
@dataclass(slots=True, frozen=True)
class TurnContext:
    """The turn as assembled, for `before_turn`."""

    system: str
    """The system prompt, with a few lines about the tools at hand."""
    messages: list[model.ModelMessage]
    """The conversation as the model will read it."""
    tools: dict[str, Tool]
    """Every tool of this turn, by name."""
    model: model.Model
    continuation: bool
    """True when the turn goes on from an assistant message."""
    body: dict[str, Any] | None
    """Custom fields of the client's request, or those given to `continue_last_turn`."""
    request_id: str
    trigger: str
    metadata: dict[str, Any] | None = None
    """What the caller gave as `metadata=`."""
    identity: Any = None
    """Who asked, as `authenticate` said, as JSON; `None` for code of yours, and without `authenticate`."""


@dataclass(slots=True)
class Timeouts:
    """Limits in seconds; running out of one aborts the turn."""

    total: float | None = None
    """For the whole turn."""
    step: float | None = None
    """For one model call and its tools."""
    chunk: float | None = None
    """Between two pieces of an answer."""

    def __post_init__(self) -> None:
        check_fields(self, "Timeouts")


TELEMETRY = ("function_id", "metadata", "is_enabled", "record_inputs", "record_outputs")
"""What traces of a turn can be told."""


@dataclass(slots=True, kw_only=True)
class TurnConfig:
    """What one turn does differently. Return it from `before_turn`; the next turn starts afresh."""

    model: model.Model | str | None = None
    """Another model, by name or object."""
    system: str | None = None
    """Another system prompt."""
    instructions: str | None = None
    """The same as `system`, and wins over it."""
    messages: list[model.ModelMessage] | None = None
    """What the model reads instead of the conversation."""
    tools: Any = None
    """More tools, in any form `get_tools` may return. They are added; equal names win."""
    active_tools: Sequence[str] | None = None
    """The only names the model may call; `[]` for none."""
    tool_choice: model.ToolChoice | dict[str, str] | None = None
    """`"auto"`, `"none"`, `"required"`, `"tool:NAME"`, or `{"type": "tool", "toolName": "NAME"}`."""
    max_steps: int | None = None
    """How many model calls this turn may take."""
    stop_when: StopCondition | Sequence[StopCondition] | None = None
    """Reasons to stop earlier: `has_tool_call("done")`, `step_count_is(3)`, a function of the steps."""
    send_reasoning: bool | None = None
    """Whether readers see the model's thinking."""
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
    """How often a model call that never opened is tried again: 2 unless given."""
    timeout: float | Timeouts | dict[str, float] | None = None
    """Seconds for the turn, or a `Timeouts`."""
    headers: dict[str, str] | None = None
    """Extra HTTP headers of the model call."""
    provider_options: dict[str, Any] | None = None
    """Settings of the provider that have no name here."""
    telemetry: dict[str, Any] | None = None
    """For traces of this turn: `function_id`, `metadata` (a dict), `is_enabled=False` for none,
    `record_inputs` and `record_outputs` for what is said in it."""
    experimental_telemetry: dict[str, Any] | None = None
    """The older name of `telemetry`, which wins over it."""
    experimental_transform: Transform | None = None
    """Rewrites the model's events before anything else sees them."""
    repair_tool_call: RepairToolCall | None = None
    """Mends a call that names no tool or does not fit its schema, once."""

    def __post_init__(self) -> None:
        check_fields(self, "TurnConfig")
        for given in (self.telemetry, self.experimental_telemetry):
            refuse_unknown(given or (), TELEMETRY, "TurnConfig.telemetry")


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


@to_read("The step is over; before_step changes the next one.")
@dataclass(slots=True, frozen=True)
class StepResult:
    """One finished step: a model call and the tools it asked for."""

    step_number: int
    """From 0."""
    text: str
    reasoning: list[model.ReasoningPart]
    files: list[model.GeneratedFile]
    sources: list[model.Source]
    tool_calls: list[CalledTool]
    """The calls of this step, in the order they were made."""
    tool_results: list[ToolResult]
    """Their outcomes, in the same order; calls that wait for a person have none."""
    content: list[model.AssistantContent]
    """All the model said in this step, in order."""
    finish_reason: model.FinishReason
    raw_finish_reason: str | None
    """The provider's own word for it."""
    usage: model.Usage
    model: str
    """The name of the model that answered."""
    response_id: str | None
    response_messages: list[model.ModelMessage]
    """What this step adds to the conversation for the next one."""
    provider_metadata: model.ProviderMetadata | None
    request: model.Request
    """What was sent."""
    warnings: list[str] = field(default_factory=list[str])
    """What of the request the model does not take, such as a setting that was left out."""

    @property
    def reasoning_text(self) -> str | None:
        """All thinking of the step, or `None`."""
        return "".join(part.text for part in self.reasoning) or None


@to_read("Return StepConfig({name}=…) from before_step.")
@dataclass(slots=True, frozen=True)
class StepContext:
    """The step about to run, for `before_step`."""

    steps: list[StepResult]
    """The finished steps of this turn."""
    step_number: int
    """This step, from 0."""
    model: model.Model
    """The turn's model."""
    messages: list[model.ModelMessage]
    """What the model will read, earlier steps included."""
    context: Any = None
    """The last `StepConfig.context` of this turn."""


@dataclass(slots=True, kw_only=True)
class StepConfig:
    """What one step does differently. The next step starts from the turn's values again."""

    model: model.Model | str | None = None
    tool_choice: model.ToolChoice | dict[str, str] | None = None
    active_tools: Sequence[str] | None = None
    system: str | None = None
    messages: list[model.ModelMessage] | None = None
    context: Any = None
    """A value of your own for the tools of this step (`ToolContext.context`) and for the steps after it."""
    provider_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "StepConfig")


@to_read("Return Allow(input=…), Block(…) or Substitute(…) from before_tool_call.")
@dataclass(slots=True, frozen=True)
class ToolCall:
    """A server tool about to run, for `before_tool_call`."""

    tool_name: str
    tool_call_id: str
    input: Any
    """What the body will get, as JSON: checked, converted, with the defaults of what the model left out."""
    messages: Sequence[model.ModelMessage]
    """What the model was shown before it made the call."""
    signal: AbortSignal
    """Fires when the turn is cancelled."""
    dynamic: bool = False
    provider_metadata: model.ProviderMetadata | None = None
    step_number: int | None = None
    """Known once the call is over."""
    identity: Any = None
    """Who asked for this turn, as `authenticate` said, as JSON."""
    type: Literal["tool-call"] = "tool-call"
    approved_by: Approver | None = None
    """Who said yes to the call; `None` when nobody was asked, or nobody said who."""

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool_name


@to_read("The call is over; before_tool_call may return Substitute(output=…) in its place.")
@dataclass(slots=True, frozen=True)
class ToolOutcome(ToolCall):
    """A call and what came of it, for `after_tool_call`. `input` is what the model sent."""

    duration: float = 0.0
    """The seconds it took, `before_tool_call` included."""
    success: bool = True
    """False when the tool raised; a blocked or substituted call is a success."""
    output: Any = None
    """Its result, or what was put in its place."""
    error: BaseException | None = None
    """What it raised."""


@dataclass(slots=True, frozen=True)
class Allow:
    """Run the tool, with `input` instead of the model's if given (it is not checked again)."""

    input: Any = UNSET

    def __post_init__(self) -> None:
        check_fields(self, "Allow")


@dataclass(slots=True, frozen=True)
class Block:
    """Do not run the tool; the model reads `reason` as its result."""

    reason: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, "Block")


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


@to_read("TurnConfig(experimental_transform=…) rewrites what the model says.")
@dataclass(slots=True, frozen=True)
class ChunkContext:
    """A piece of the model's answer as it arrives, for `on_chunk`. Tell them apart by `chunk.type`."""

    chunk: OnChunk


@to_read('The answer is stored; add_messages(…, mode="upsert") replaces it.')
@dataclass(slots=True, frozen=True)
class ChatResponse:
    """How a turn ended, for `on_chat_response`."""

    message: Message
    """The stored answer; without parts when nothing was said."""
    request_id: str
    continuation: bool
    status: Literal["completed", "error", "aborted"]
    error: str | None = None
    """What people read, when it failed."""
    output: Any = None
    """The parsed value, with `TurnConfig.output`."""
    identity: Any = None
    """Who asked for this turn, as `authenticate` said, as JSON."""


@to_read("Return from on_chat_error what people are to read.")
@dataclass(slots=True, frozen=True)
class ChatErrorContext:
    """Where a turn failed, for `on_chat_error`."""

    stage: Stage
    """How far the turn had come."""
    messages_persisted: bool
    """Whether the person's messages are stored."""
    request_id: str | None = None
    classification: str | None = None
    """What `classify_chat_error` said: `"context_overflow"` when the conversation is too long."""
    identity: Any = None
    """Who asked for this turn, as `authenticate` said, as JSON."""


@dataclass(slots=True, frozen=True)
class PendingCall:
    """A call that waits for a person: `"approval"`, or `"client"` for a tool in their browser."""

    tool_call_id: str
    tool_name: str
    input: Any
    kind: Literal["approval", "client"]
    asked: str | None = None
    """The id of the question, for `apply_tool_approval(…, asked=…)`: a call may ask again."""


@dataclass(slots=True, frozen=True)
class TurnResult:
    """What a turn API gives back once the turn ended.

    `interrupted` is for a `chat()` callback that left when the turn stalled: it goes on without it.
    """

    request_id: str
    status: TurnStatus | Literal["interrupted"]
    """`"aborted"`: somebody stopped it, or a time limit ran out. `"skipped"`: it never ran."""
    continuation: bool = False
    error: str | None = None
    """What people may read of the failure."""
    message: Message | None = None
    """The stored answer with all its parts."""
    output: Any = None
    """The parsed value, with `TurnConfig.output`."""
    stopped_by: StoppedBy | None = None
    """Why a turn ended that the model would have gone on with: `max_steps`, or a condition of `stop_when`."""

    usage: model.Usage = field(default_factory=model.Usage)
    """What the provider reported for all steps of the turn, added up. Unknown is `None`; steps of a process
    that has ended since are not in it."""

    cut: tuple[str, ...] = ()
    """The messages of this turn, what was asked and the answer, that were too large to be stored whole: what
    `message` and the conversation hold of them says how much was left out."""

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
            PendingCall(
                part["toolCallId"], tool_name(part), part.get("input"), kinds[part["state"]], _asked(part)
            )
            for part in parts
            if part.get("state") in kinds
        ]


def _asked(part: Mapping[str, Any]) -> str | None:
    approval = part.get("approval")
    return cast("dict[str, Any]", approval).get("id") if isinstance(approval, dict) else None


# --- stop conditions, repair, transform

StopCondition = Callable[[list[StepResult]], bool | Awaitable[bool]]
Transform = Callable[[AsyncIterator[model.ModelEvent]], AsyncIterator[model.ModelEvent]]


@to_read("Return the mended input from repair_tool_call.")
@dataclass(slots=True, frozen=True)
class InvalidCall:
    """A call that cannot run, for `repair_tool_call`."""

    tool_call_id: str
    tool_name: str
    input: str
    """As the model wrote it."""
    tools: Mapping[str, Tool]
    system: str
    messages: Sequence[model.ModelMessage]
    error: Exception


Repaired = tuple[str, Any] | Mapping[str, Any] | str | None
RepairToolCall = Callable[[InvalidCall], Repaired | Awaitable[Repaired]]
"""Returns the mended input, or `(tool_name, input)`, or `None` to keep the error."""


def step_count_is(count: int) -> StopCondition:
    """Stop after exactly `count` steps."""
    check_call("step_count_is", count=count)
    return lambda steps: len(steps) == count


def has_tool_call(name: str) -> StopCondition:
    """Stop after a step that called `name`."""
    check_call("has_tool_call", name=name)
    return HasToolCall(name)


@dataclass(slots=True, frozen=True)
class HasToolCall:
    """What `has_tool_call` returns: a condition that can be asked which tool it waits for."""

    tool_name: str

    def __call__(self, steps: list[StepResult]) -> bool:
        return any(call.tool_name == self.tool_name for call in steps[-1].tool_calls)


# --- what hooks return


def tool_choice_of(choice: Any, where: str) -> str | None:
    """A tool choice, also one that is written as `{"type": "tool", "toolName": …}`."""
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    if isinstance(choice, str) and choice.startswith("tool:"):
        return choice
    if isinstance(choice, Mapping):
        given = {snake(str(key)): value for key, value in cast("Mapping[Any, Any]", choice).items()}
        if given.get("type") == "tool" and isinstance(given.get("tool_name"), str) and len(given) == 2:
            return f"tool:{given['tool_name']}"
    raise InvalidSettings(
        f"{where}: tool_choice is {shown(choice)}.",
        next_step='It is "auto", "none", "required", or "tool:NAME".',
    )


def decision_of(answer: Any) -> ToolDecision | None:
    """What `before_tool_call` returned: a decision, the same as `{"action": "block", …}`, or nothing."""
    if answer is None or isinstance(answer, Allow | Block | Substitute):
        return answer
    kinds = {"allow": Allow, "block": Block, "substitute": Substitute}
    if isinstance(answer, Mapping):
        given = dict(cast("Mapping[str, Any]", answer))
        kind = kinds.get(given.pop("action", ""))
        if kind is not None:
            return as_settings(kind, given, "before_tool_call")
    raise InvalidSettings(
        f"before_tool_call returned {shown(answer)}.", next_step="Return Allow, Block, Substitute or None."
    )
