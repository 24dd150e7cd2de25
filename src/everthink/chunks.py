"""Chunks: the UI message stream, one small JSON object at a time.

    turn/loop --Chunk--> journal/fold (message) and journal/writer (storage, readers)

The vocabulary and the field names are the browser's; optional fields are absent, never null.
A chunk of a type we do not know is carried as it is (`Other`), so nothing is lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .messages import encode_json

__all__ = [
    "NOTHING_NEW",
    "Abort",
    "Chunk",
    "Data",
    "Error",
    "File",
    "Finish",
    "FinishStep",
    "MessageMetadata",
    "Other",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningStart",
    "SourceDocument",
    "SourceUrl",
    "Start",
    "StartStep",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ToolApprovalRequest",
    "ToolInputAvailable",
    "ToolInputDelta",
    "ToolInputError",
    "ToolInputStart",
    "ToolOutputAvailable",
    "ToolOutputDenied",
    "ToolOutputError",
    "decode",
    "encode",
]

Metadata = dict[str, Any]


class _Chunk(msgspec.Struct, tag_field="type", rename="camel", omit_defaults=True):
    @property
    def type(self) -> str:
        """The wire name, e.g. `text-delta`."""
        return self.__struct_config__.tag  # type: ignore[return-value]


class Start(_Chunk, tag="start"):
    """The answer begins; carries the id its message will be stored under."""

    message_id: str | None = None
    message_metadata: Metadata | None = None


class StartStep(_Chunk, tag="start-step"):
    """A model call begins."""


class FinishStep(_Chunk, tag="finish-step"):
    """A model call and its tools are done."""


class TextStart(_Chunk, tag="text-start"):
    """A block of text begins."""

    id: str
    provider_metadata: Metadata | None = None


class TextDelta(_Chunk, tag="text-delta"):
    """More text."""

    id: str
    delta: str
    provider_metadata: Metadata | None = None


class TextEnd(_Chunk, tag="text-end"):
    """A block of text is complete."""

    id: str
    provider_metadata: Metadata | None = None


class ReasoningStart(_Chunk, tag="reasoning-start"):
    """A block of thinking begins."""

    id: str
    provider_metadata: Metadata | None = None


class ReasoningDelta(_Chunk, tag="reasoning-delta"):
    """More thinking."""

    id: str
    delta: str
    provider_metadata: Metadata | None = None


class ReasoningEnd(_Chunk, tag="reasoning-end"):
    """A block of thinking is complete; signatures arrive here."""

    id: str
    provider_metadata: Metadata | None = None


class ToolInputStart(_Chunk, tag="tool-input-start"):
    """The model begins to write a call."""

    tool_call_id: str
    tool_name: str
    provider_executed: bool = False
    provider_metadata: Metadata | None = None
    tool_metadata: Metadata | None = None
    dynamic: bool = False
    title: str | None = None


class ToolInputDelta(_Chunk, tag="tool-input-delta"):
    """More of a call's input, as JSON text."""

    tool_call_id: str
    input_text_delta: str


class ToolInputAvailable(_Chunk, tag="tool-input-available"):
    """A call is complete."""

    tool_call_id: str
    tool_name: str
    input: Any
    provider_executed: bool = False
    provider_metadata: Metadata | None = None
    tool_metadata: Metadata | None = None
    dynamic: bool = False
    title: str | None = None


class ToolInputError(_Chunk, tag="tool-input-error"):
    """A call names no tool, or its input does not fit."""

    tool_call_id: str
    tool_name: str
    input: Any
    error_text: str
    provider_executed: bool = False
    provider_metadata: Metadata | None = None
    tool_metadata: Metadata | None = None
    dynamic: bool = False
    title: str | None = None


class ToolApprovalRequest(_Chunk, tag="tool-approval-request"):
    """A call waits for a person's yes or no."""

    approval_id: str
    tool_call_id: str
    signature: str | None = None
    approval_descriptor: Metadata | None = None


class ToolOutputAvailable(_Chunk, tag="tool-output-available"):
    """A tool's result; `preliminary` while it is still working, `False` when there were such before it."""

    tool_call_id: str
    output: Any
    provider_executed: bool = False
    provider_metadata: Metadata | None = None
    tool_metadata: Metadata | None = None
    dynamic: bool = False
    preliminary: bool | None = None


class ToolOutputError(_Chunk, tag="tool-output-error"):
    """A tool failed; the model reads the text."""

    tool_call_id: str
    error_text: str
    provider_executed: bool = False
    provider_metadata: Metadata | None = None
    dynamic: bool = False


class ToolOutputDenied(_Chunk, tag="tool-output-denied"):
    """A person said no to a call."""

    tool_call_id: str


class SourceUrl(_Chunk, tag="source-url"):
    """A web page the answer rests on."""

    source_id: str
    url: str
    title: str | None = None
    provider_metadata: Metadata | None = None


class SourceDocument(_Chunk, tag="source-document"):
    """A document the answer rests on."""

    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: Metadata | None = None


class File(_Chunk, tag="file"):
    """A file the model made."""

    url: str
    media_type: str
    provider_metadata: Metadata | None = None


class MessageMetadata(_Chunk, tag="message-metadata"):
    """Metadata to merge into the message."""

    message_metadata: Metadata


class Error(_Chunk, tag="error"):
    """The answer broke off."""

    error_text: str | None = None


class Abort(_Chunk, tag="abort"):
    """Somebody stopped the answer."""

    reason: str | None = None


class Finish(_Chunk, tag="finish"):
    """The answer is complete."""

    finish_reason: str | None = None
    message_metadata: Metadata | None = None


class Data(msgspec.Struct, omit_defaults=True):
    """Application data; `type` is `data-<name>`. A later one with the same type and id replaces it."""

    type: str
    data: Any
    id: str | None = None
    transient: bool = False


class Other(msgspec.Struct):
    """A chunk of a type we do not know, as it came."""

    value: dict[str, Any]

    @property
    def type(self) -> str:
        """The wire name, or empty when the chunk has none."""
        kind = self.value.get("type")
        return kind if isinstance(kind, str) else ""


_Known = (
    Start
    | StartStep
    | FinishStep
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolInputAvailable
    | ToolInputError
    | ToolApprovalRequest
    | ToolOutputAvailable
    | ToolOutputError
    | ToolOutputDenied
    | SourceUrl
    | SourceDocument
    | File
    | MessageMetadata
    | Error
    | Abort
    | Finish
)
Chunk = _Known | Data | Other
"""Any of them; tell them apart by `type`."""

NOTHING_NEW = '{"type":"message-metadata","messageMetadata":{}}'
"""A chunk that changes nothing, as JSON text: it stands where one is left out, so that none is missing."""

_decode_known = msgspec.json.Decoder(_Known).decode
_decode_data = msgspec.json.Decoder(Data).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode


def encode(chunk: Chunk) -> str:
    """The chunk as compact JSON text."""
    return encode_json(chunk.value if type(chunk) is Other else chunk).decode()


def decode(text: str | bytes) -> Chunk:
    """The chunk in `text`. Raises `msgspec.DecodeError` when it is not a JSON object."""
    try:
        return _decode_known(text)
    except msgspec.ValidationError:
        value = _decode_any(text)
        if str(value.get("type", "")).startswith("data-") and "data" in value:
            try:
                return _decode_data(text)
            except msgspec.ValidationError:
                pass
        return Other(value)
