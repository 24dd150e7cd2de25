"""OpenAI's chat completions, read and written: one dialect of `served`.

Reasoning travels as `reasoning_content`, as the servers that show it do. Files the model makes
and tools the provider runs have no place in this dialect and are left out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import ModelError
from ..models.port import (
    AssistantContent,
    AssistantMessage,
    Failed,
    FilePart,
    Finish,
    ModelEvent,
    ModelMessage,
    Opened,
    OutputSchema,
    ReasoningDelta,
    ReasoningPart,
    Request,
    Settings,
    Source,
    SystemMessage,
    TextDelta,
    TextPart,
    ToolCallPart,
    ToolChoice,
    ToolInputDelta,
    ToolInputStart,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    Usage,
    UserMessage,
)

__all__ = [
    "OpenAIChat",
    "error_body",
    "error_headers",
    "file",
    "sse",
    "status_of",
    "tool_choice",
    "tool_input",
]

_REASONS = {"tool-calls": "tool_calls", "content-filter": "content_filter", "length": "length"}


class OpenAIChat:
    """`POST /v1/chat/completions`."""

    def read(self, body: dict[str, Any]) -> Request:
        """The request that a client sent."""
        system: list[str] = []
        messages: list[ModelMessage] = []
        names: dict[str, str] = {}
        for message in body["messages"]:
            match message["role"]:
                case "system" | "developer":
                    (system.append if not messages else _add_system(messages))(_text(message["content"]))
                case "user":
                    messages.append(UserMessage(_content(message["content"])))
                case "assistant":
                    messages.append(AssistantMessage(_answer(message, names)))
                case _:
                    _add_result(messages, message, names)
        wanted = (body.get("response_format") or {}).get("json_schema")
        return Request(
            "\n\n".join(system),
            messages,
            [_tool(tool["function"]) for tool in body.get("tools") or []],
            tool_choice(body.get("tool_choice")),
            Settings(
                max_output_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
                temperature=body.get("temperature"),
                top_p=body.get("top_p"),
                stop_sequences=body.get("stop"),
                seed=body.get("seed"),
            ),
            OutputSchema(wanted["schema"], wanted["name"], wanted.get("description")) if wanted else None,
        )

    def writer(self, body: dict[str, Any]) -> _Writer:
        """Writes one answer."""
        return _Writer(body["model"])

    def error(self, error: ModelError) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Status, body and headers of a refusal."""
        return status_of(error), {"error": error_body(error)}, error_headers(error)


class _Writer:
    def __init__(self, model: str) -> None:
        self._model = model
        self._id = "chatcmpl_1"
        self._calls: dict[str, int] = {}

    def event(self, event: ModelEvent) -> bytes:
        """The lines for one event."""
        match event:
            case Opened():
                self._id = event.response_id or self._id
                return self._delta({"role": "assistant", "content": ""})
            case TextDelta():
                return self._delta({"content": event.text})
            case ReasoningDelta():
                return self._delta({"reasoning_content": event.text})
            case ToolInputStart(provider_executed=False):
                index = self._calls[event.id] = len(self._calls)
                function = {"name": event.name, "arguments": ""}
                return self._call({"index": index, "id": event.id, "type": "function", "function": function})
            case ToolInputDelta() if event.id in self._calls:
                return self._call({"index": self._calls[event.id], "function": {"arguments": event.delta}})
            case Source(url=str()):
                place = {"url": event.url, "title": event.title or "", "start_index": 0, "end_index": 1}
                return self._delta({"annotations": [{"type": "url_citation", "url_citation": place}]})
            case Finish():
                reason = event.raw_reason or _REASONS.get(event.reason, "stop")
                end = self._delta({}, reason)
                if event.usage != Usage():
                    end += sse({**self._head(), "choices": [], "usage": _usage(event.usage)})
                return end + b"data: [DONE]\n\n"
            case Failed():
                return sse({"error": error_body(event.error)})
            case _:
                return b""

    def _call(self, call: dict[str, Any]) -> bytes:
        return self._delta({"tool_calls": [call]})

    def _delta(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        return sse({**self._head(), "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    def _head(self) -> dict[str, Any]:
        return {"id": self._id, "object": "chat.completion.chunk", "created": 0, "model": self._model}


def sse(data: dict[str, Any], event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


def status_of(error: ModelError) -> int:
    """The HTTP status a provider gives such an error."""
    by_kind = {"rate_limit": 429, "transient": 500, "unknown": 500}
    return error.status or by_kind.get(error.kind, 400)


def error_headers(error: ModelError) -> dict[str, str]:
    """How long to wait, as providers say it."""
    if error.retry_after is None:
        return {}
    return {
        "retry-after-ms": str(round(error.retry_after * 1000)),
        "retry-after": str(round(error.retry_after)),
    }


def error_body(error: ModelError) -> dict[str, Any]:
    """OpenAI's error object."""
    status = status_of(error)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    code = {"context_overflow": "context_length_exceeded", "rate_limit": "rate_limit_exceeded"}.get(
        error.kind
    )
    return {
        "message": str(error),
        "type": kind,
        "param": None,
        "code": code or ("server_error" if status >= 500 else None),
    }


def tool_choice(choice: Any) -> ToolChoice:
    """Our tool choice for OpenAI's, of either API."""
    if isinstance(choice, dict):
        given: dict[str, Any] = choice  # pyright: ignore[reportUnknownVariableType] - JSON from the wire
        name = given.get("name") or (given.get("function") or {}).get("name")
        return f"tool:{name}" if name else str(given.get("mode", "auto"))
    return choice or "auto"


def tool_input(arguments: str) -> Any:
    """The input of a call, from its JSON text."""
    try:
        return msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return arguments


def file(url: str, media_type: str = "application/octet-stream") -> FilePart:
    """A file by its URL; a `data:` URL says its own media type."""
    if url.startswith("data:"):
        media_type = url[5:].partition(";")[0].partition(",")[0] or media_type
    return FilePart(url, media_type)


def _tool(function: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        function["name"], function.get("description") or "", function["parameters"], function.get("strict")
    )


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def _content(content: Any) -> list[TextPart | FilePart]:
    if isinstance(content, str):
        return [TextPart(content)]
    parts: list[TextPart | FilePart] = []
    for part in content:
        match part["type"]:
            case "text":
                parts.append(TextPart(part["text"]))
            case "image_url":
                parts.append(file(part["image_url"]["url"], "image/*"))
            case "file":
                parts.append(file(part["file"]["file_data"]))
            case kind:
                parts.append(FilePart(f"data:,{kind}", kind))
    return parts


def _answer(message: dict[str, Any], names: dict[str, str]) -> list[AssistantContent]:
    parts: list[AssistantContent] = []
    if thought := message.get("reasoning_content"):
        parts.append(ReasoningPart(thought))
    if text := _text(message.get("content")):
        parts.append(TextPart(text))
    for call in message.get("tool_calls") or []:
        name = names[call["id"]] = call["function"]["name"]
        parts.append(ToolCallPart(call["id"], name, tool_input(call["function"]["arguments"])))
    return parts


def _add_system(messages: list[ModelMessage]) -> Any:
    return lambda text: messages.append(SystemMessage(text))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - text


def _add_result(messages: list[ModelMessage], message: dict[str, Any], names: dict[str, str]) -> None:
    id = message["tool_call_id"]
    result = ToolResultPart(id, names.get(id, ""), _text(message["content"]))
    if messages and isinstance(last := messages[-1], ToolMessage):
        last.content.append(result)
    else:
        messages.append(ToolMessage([result]))


def _usage(usage: Usage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens or 0,
        "completion_tokens": usage.output_tokens or 0,
        "total_tokens": usage.total_tokens or 0,
    }
    if usage.cached_input_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    if usage.reasoning_tokens is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return counts
