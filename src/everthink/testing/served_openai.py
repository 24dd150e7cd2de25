"""OpenAI's chat completions, read and written: one dialect of `served`.

Reasoning travels as `reasoning_content`, as the servers that show it do. Files the model makes
and tools the provider runs have no place in this dialect and are left out.
"""

from __future__ import annotations

from typing import Any

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
    ToolInputDelta,
    ToolInputStart,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    Usage,
    UserMessage,
)
from .served_wire import (
    JSON,
    each,
    error_body,
    error_headers,
    file,
    inner,
    sse,
    status_of,
    tool_choice,
    tool_input,
)

__all__ = ["OpenAIChat"]

_REASONS = {"tool-calls": "tool_calls", "content-filter": "content_filter", "length": "length"}


class OpenAIChat:
    """`POST /v1/chat/completions`."""

    def read(self, body: JSON) -> Request:
        """The request that a client sent."""
        system: list[str] = []
        messages: list[ModelMessage] = []
        names: dict[str, str] = {}
        for message in body["messages"]:
            match message["role"]:
                case "system" | "developer" if messages:
                    messages.append(SystemMessage(_text(message["content"])))
                case "system" | "developer":
                    system.append(_text(message["content"]))
                case "user":
                    messages.append(UserMessage(_content(message["content"])))
                case "assistant":
                    messages.append(AssistantMessage(_answer(message, names)))
                case _:
                    _add_result(messages, message, names)
        wanted = inner(inner(body, "response_format"), "json_schema")
        return Request(
            "\n\n".join(system),
            messages,
            [_tool(tool["function"]) for tool in each(body, "tools")],
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

    def writer(self, body: JSON) -> _Writer:
        """Writes one answer."""
        return _Writer(body["model"])

    def error(self, error: ModelError) -> tuple[int, JSON, dict[str, str]]:
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

    def _call(self, call: JSON) -> bytes:
        return self._delta({"tool_calls": [call]})

    def _delta(self, delta: JSON, reason: str | None = None) -> bytes:
        return sse({**self._head(), "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    def _head(self) -> JSON:
        return {"id": self._id, "object": "chat.completion.chunk", "created": 0, "model": self._model}


def _tool(function: JSON) -> ToolSpec:
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


def _answer(message: JSON, names: dict[str, str]) -> list[AssistantContent]:
    parts: list[AssistantContent] = []
    if thought := message.get("reasoning_content"):
        parts.append(ReasoningPart(thought))
    if text := _text(message.get("content")):
        parts.append(TextPart(text))
    for call in each(message, "tool_calls"):
        name = names[call["id"]] = call["function"]["name"]
        parts.append(ToolCallPart(call["id"], name, tool_input(call["function"]["arguments"])))
    return parts


def _add_result(messages: list[ModelMessage], message: JSON, names: dict[str, str]) -> None:
    id = message["tool_call_id"]
    result = ToolResultPart(id, names.get(id, ""), _text(message["content"]))
    if messages and isinstance(last := messages[-1], ToolMessage):
        last.content.append(result)
    else:
        messages.append(ToolMessage([result]))


def _usage(usage: Usage) -> JSON:
    counts: JSON = {
        "prompt_tokens": usage.input_tokens or 0,
        "completion_tokens": usage.output_tokens or 0,
        "total_tokens": usage.total_tokens or 0,
    }
    if usage.cached_input_tokens is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_input_tokens}
    if usage.reasoning_tokens is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return counts
