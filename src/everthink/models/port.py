"""What the turn loop asks of a language model, and nothing else.

    turn/assemble --Request--> Model.stream --ModelEvent…--> turn/loop

`stream` is an async generator. Raising before its first event means the call never
opened (and may be retried); raising later, or a `Failed` event, breaks the answer off.
Closing the generator or cancelling the task that reads it closes the provider's connection.
Every exception that leaves an adapter is a `ModelError`, classified, the original as its cause.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from ..errors import ModelError

__all__ = [
    "ApprovalResponse",
    "AssistantContent",
    "AssistantMessage",
    "Failed",
    "FilePart",
    "Finish",
    "FinishReason",
    "GeneratedFile",
    "Model",
    "ModelEvent",
    "ModelMessage",
    "Opened",
    "OutputSchema",
    "ProviderMetadata",
    "ProviderToolResult",
    "Raw",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningPart",
    "ReasoningStart",
    "Request",
    "Settings",
    "Source",
    "SystemMessage",
    "TextDelta",
    "TextEnd",
    "TextPart",
    "TextStart",
    "ToolCallPart",
    "ToolCallReady",
    "ToolChoice",
    "ToolInputDelta",
    "ToolInputStart",
    "ToolMessage",
    "ToolResultPart",
    "ToolSpec",
    "Usage",
    "UserMessage",
]

ProviderMetadata = dict[str, dict[str, Any]]
"""Opaque provider data, keyed by provider: `{"anthropic": {"signature": "…"}}`."""

FinishReason = Literal["stop", "length", "content-filter", "tool-calls", "error", "other"]


# --- what the model is shown -------------------------------------------------------------


class TextPart(msgspec.Struct, tag_field="type", tag="text", omit_defaults=True, frozen=True):
    """Text of a person or of the model."""

    text: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningPart(msgspec.Struct, tag_field="type", tag="reasoning", omit_defaults=True, frozen=True):
    """Thinking that a provider wants back, with its signature in `provider_metadata`."""

    text: str
    provider_metadata: ProviderMetadata | None = None


class FilePart(msgspec.Struct, tag_field="type", tag="file", omit_defaults=True, frozen=True):
    """A file by URL (`https:` or `data:`)."""

    url: str
    media_type: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


class ToolCallPart(msgspec.Struct, tag_field="type", tag="tool-call", omit_defaults=True, frozen=True):
    """A call the model made earlier. `input` is a JSON object."""

    id: str
    name: str
    input: Any
    provider_executed: bool = False
    provider_metadata: ProviderMetadata | None = None


class ToolResultPart(msgspec.Struct, tag_field="type", tag="tool-result", omit_defaults=True, frozen=True):
    """What a call gave. `output` is text or any JSON value; `content` replaces it for
    models that take text and files as a tool's answer."""

    id: str
    name: str
    output: Any
    is_error: bool = False
    content: list[TextPart | FilePart] | None = None
    provider_executed: bool = False
    provider_metadata: ProviderMetadata | None = None


class ApprovalResponse(
    msgspec.Struct, tag_field="type", tag="approval-response", omit_defaults=True, frozen=True
):
    """A person's answer to a call that asked first. The loop consumes these; no model sees one."""

    approval_id: str
    call_id: str
    approved: bool
    reason: str | None = None


class SystemMessage(msgspec.Struct, tag_field="role", tag="system", omit_defaults=True):
    """Instructions in the middle of a conversation."""

    text: str


class UserMessage(msgspec.Struct, tag_field="role", tag="user", omit_defaults=True):
    """What a person said."""

    content: list[TextPart | FilePart]


AssistantContent = TextPart | ReasoningPart | FilePart | ToolCallPart | ToolResultPart


class AssistantMessage(msgspec.Struct, tag_field="role", tag="assistant", omit_defaults=True):
    """What the model said in one step. A `ToolResultPart` here was executed by the provider."""

    content: list[AssistantContent]


class ToolMessage(msgspec.Struct, tag_field="role", tag="tool", omit_defaults=True):
    """The results of the calls of the assistant message before it, in call order."""

    content: list[ToolResultPart | ApprovalResponse]


ModelMessage = SystemMessage | UserMessage | AssistantMessage | ToolMessage


class ToolSpec(msgspec.Struct, omit_defaults=True):
    """A tool as the model is told about it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    strict: bool | None = None


ToolChoice = Literal["auto", "none", "required"] | str
"""`"auto"`, `"none"`, `"required"`, or the name of the one tool that must be called as `"tool:NAME"`."""


class OutputSchema(msgspec.Struct, omit_defaults=True):
    """Structured output: the JSON schema the final text must follow."""

    json_schema: dict[str, Any]
    name: str = "result"
    description: str | None = None


class Settings(msgspec.Struct, omit_defaults=True):
    """Settings of one call. Unset ones are left to the provider."""

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    headers: dict[str, str] | None = None
    provider_options: dict[str, Any] | None = None


class Request(msgspec.Struct, omit_defaults=True):
    """Everything one model call needs."""

    system: str
    messages: list[ModelMessage]
    tools: list[ToolSpec] = []
    tool_choice: ToolChoice = "auto"
    settings: Settings = msgspec.field(default_factory=Settings)
    output: OutputSchema | None = None


# --- what the model streams --------------------------------------------------------------


class Opened(msgspec.Struct):
    """The provider accepted the call. Always the first event."""

    response_id: str | None = None
    model_id: str | None = None


class TextStart(msgspec.Struct):
    """A block of text begins. Ids need to be unique within one answer only."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class TextDelta(msgspec.Struct):
    """More text of block `id`."""

    type: ClassVar[str] = "text-delta"
    id: str
    text: str


class TextEnd(msgspec.Struct):
    """Block `id` is complete."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningStart(msgspec.Struct):
    """A block of thinking begins."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningDelta(msgspec.Struct):
    """More thinking of block `id`."""

    type: ClassVar[str] = "reasoning-delta"
    id: str
    text: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningEnd(msgspec.Struct):
    """Block `id` is complete; signatures arrive here."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class ToolInputStart(msgspec.Struct):
    """The model begins to write the input of a call."""

    type: ClassVar[str] = "tool-input-start"
    id: str
    name: str
    provider_executed: bool = False
    provider_metadata: ProviderMetadata | None = None


class ToolInputDelta(msgspec.Struct):
    """More of the input's JSON text."""

    type: ClassVar[str] = "tool-input-delta"
    id: str
    delta: str


class ToolCallReady(msgspec.Struct):
    """A call is complete. `input` is the JSON text as the model wrote it (may be empty or broken)."""

    id: str
    name: str
    input: str
    provider_executed: bool = False
    provider_metadata: ProviderMetadata | None = None


class ProviderToolResult(msgspec.Struct):
    """The result of a call that the provider ran itself."""

    id: str
    name: str
    output: Any
    is_error: bool = False
    provider_metadata: ProviderMetadata | None = None


class Source(msgspec.Struct):
    """A citation: a web page (`url`) or a document (`media_type`, `title`, `filename`)."""

    type: ClassVar[str] = "source"
    id: str
    url: str | None = None
    title: str | None = None
    media_type: str | None = None
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


class GeneratedFile(msgspec.Struct):
    """A file the model made, as a `data:` or `https:` URL."""

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class Usage(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Token counts as reported. Unknown is `None`, never 0.

    `input_tokens` includes the cached ones; `output_tokens` includes the reasoning ones.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """Both together. What neither knows stays unknown."""
        both = ((getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        return Usage(*(None if a is b is None else (a or 0) + (b or 0) for a, b in both))


class Finish(msgspec.Struct):
    """The answer is complete. The last event of a stream that did not fail."""

    reason: FinishReason
    usage: Usage = msgspec.field(default_factory=Usage)
    raw_reason: str | None = None
    response_id: str | None = None
    model_id: str | None = None
    provider_metadata: ProviderMetadata | None = None
    warnings: list[str] = []
    """What of the request was left out, such as a setting that the model does not take."""


class Failed(msgspec.Struct):
    """The provider reported an error inside the stream. The last event."""

    error: ModelError


class Raw(msgspec.Struct):
    """Something of the provider that has no name here. Only `on_chunk` sees it."""

    type: ClassVar[str] = "raw"
    value: Any


ModelEvent = (
    Opened
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolCallReady
    | ProviderToolResult
    | Source
    | GeneratedFile
    | Finish
    | Failed
    | Raw
)


class Model(Protocol):
    """A language model. Adapters: `models/providers.py`, `models/demo.py`, `testing/scripted.py`."""

    name: str
    """What the model is called in events, e.g. `anthropic:claude-sonnet-5`."""

    continues: Literal["prefill", "prompt"]
    """How a cut-off answer goes on: from its text as the last assistant message, or by being asked to."""

    def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model. See the module's text for the contract."""
        ...
