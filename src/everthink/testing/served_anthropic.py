"""Anthropic's messages, read and written: one dialect of `served`."""

from __future__ import annotations

from typing import Any, cast

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
    ProviderToolResult,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningPart,
    ReasoningStart,
    Request,
    Settings,
    Source,
    SystemMessage,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
    ToolCallPart,
    ToolCallReady,
    ToolChoice,
    ToolInputDelta,
    ToolInputStart,
    ToolMessage,
    ToolResultPart,
    ToolSpec,
    Usage,
    UserMessage,
)
from .served_wire import JSON, each, error_headers, inner, sse, status_of

__all__ = ["Anthropic"]

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool-calls": "tool_use", "content-filter": "refusal"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Anthropic:
    """`POST /v1/messages`."""

    def read(self, body: JSON) -> Request:
        """The request that a client sent."""
        names: dict[str, str] = {}
        messages: list[ModelMessage] = []
        for message in body["messages"]:
            blocks = _blocks(message["content"])
            match message["role"]:
                case "assistant":
                    messages.append(AssistantMessage([_answer(block, names) for block in blocks]))
                case "system":
                    messages.append(SystemMessage(_text(blocks)))
                case _:
                    messages.extend(_from_user(blocks, names))
        wanted = inner(inner(body, "output_config"), "format")
        return Request(
            _text(_blocks(body.get("system") or [])),
            messages,
            [
                ToolSpec(
                    tool["name"], tool.get("description") or "", tool["input_schema"], tool.get("strict")
                )
                for tool in each(body, "tools")
                if "input_schema" in tool
            ],
            _choice(body.get("tool_choice")),
            Settings(
                max_output_tokens=body.get("max_tokens"),
                temperature=body.get("temperature"),
                top_p=body.get("top_p"),
                top_k=body.get("top_k"),
                stop_sequences=body.get("stop_sequences"),
            ),
            OutputSchema(wanted["schema"]) if wanted else None,
        )

    def writer(self, body: JSON) -> _Writer:
        """Writes one answer."""
        return _Writer(body["model"])

    def error(self, error: ModelError) -> tuple[int, JSON, dict[str, str]]:
        """Status, body and headers of a refusal."""
        return status_of(error), _error(error), error_headers(error)


class _Writer:
    def __init__(self, model: str) -> None:
        self._model = model
        self._index = -1
        self._at: dict[str, int] = {}

    def event(self, event: ModelEvent) -> bytes:
        """The lines for one event."""
        match event:
            case Opened():
                message: JSON = {
                    "id": event.response_id or "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "content": [],
                    "model": self._model,
                    "stop_reason": None,
                    "stop_sequence": None,
                    "usage": {"input_tokens": 0, "output_tokens": 0},
                }
                return _line("message_start", message=message)
            case TextStart():
                return self._begin(event.id, {"type": "text", "text": ""})
            case TextDelta():
                return self._more(event.id, {"type": "text_delta", "text": event.text})
            case TextEnd() | ToolCallReady():
                return self._stop(event.id)
            case ReasoningStart():
                return b""  # what kind of block it is shows with its first delta or its end
            case ReasoningDelta():
                return self._thinking(event.id) + self._more(
                    event.id, {"type": "thinking_delta", "thinking": event.text}
                )
            case ReasoningEnd():
                return self._end_thinking(event)
            case ToolInputStart():
                kind = "server_tool_use" if event.provider_executed else "tool_use"
                return self._begin(event.id, {"type": kind, "id": event.id, "name": event.name, "input": {}})
            case ToolInputDelta():
                return self._more(event.id, {"type": "input_json_delta", "partial_json": event.delta})
            case ProviderToolResult():
                block = {
                    "type": f"{event.name}_tool_result",
                    "tool_use_id": event.id,
                    "content": event.output,
                }
                return self._begin(f"{event.id} result", block) + self._stop(f"{event.id} result")
            case Source(url=str()):
                citation = {
                    "type": "web_search_result_location",
                    "url": event.url,
                    "title": event.title,
                    "cited_text": "",
                    "encrypted_index": "",
                }
                delta = {"type": "citations_delta", "citation": citation}
                return _line("content_block_delta", index=self._index, delta=delta)
            case Finish():
                reason = event.raw_reason or _REASONS.get(event.reason, "end_turn")
                delta = {"stop_reason": reason, "stop_sequence": None}
                return _line("message_delta", delta=delta, usage=_usage(event.usage)) + _line("message_stop")
            case Failed():
                return sse(_error(event.error), "error")
            case _:
                return b""

    def _begin(self, id: str, block: JSON) -> bytes:
        self._index += 1
        self._at[id] = self._index
        return _line("content_block_start", index=self._index, content_block=block)

    def _more(self, id: str, delta: JSON) -> bytes:
        return _line("content_block_delta", index=self._at[id], delta=delta)

    def _stop(self, id: str) -> bytes:
        return _line("content_block_stop", index=self._at[id])

    def _thinking(self, id: str) -> bytes:
        return (
            b"" if id in self._at else self._begin(id, {"type": "thinking", "thinking": "", "signature": ""})
        )

    def _end_thinking(self, event: ReasoningEnd) -> bytes:
        data = (event.provider_metadata or {}).get("anthropic", {})
        if sealed := data.get("redactedData"):
            return self._begin(event.id, {"type": "redacted_thinking", "data": sealed}) + self._stop(event.id)
        lines = self._thinking(event.id)
        if signature := data.get("signature"):
            lines += self._more(event.id, {"type": "signature_delta", "signature": signature})
        return lines + self._stop(event.id)


def _line(type: str, **fields: Any) -> bytes:
    return sse({"type": type, **fields}, type)


def _error(error: ModelError) -> JSON:
    status = status_of(error)
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": str(error)}}


def _usage(usage: Usage) -> JSON:
    cached, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
    counts: JSON = {"output_tokens": usage.output_tokens or 0}
    if usage.input_tokens is not None:
        counts["input_tokens"] = usage.input_tokens - cached - written  # reported without the cached ones
        counts["cache_read_input_tokens"] = cached
        counts["cache_creation_input_tokens"] = written
    if usage.reasoning_tokens is not None:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return counts


def _choice(choice: JSON | None) -> ToolChoice:
    kind = (choice or {}).get("type", "auto")
    return f"tool:{(choice or {})['name']}" if kind == "tool" else "required" if kind == "any" else kind


def _blocks(content: Any) -> list[JSON]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast("list[JSON]", content)


def _text(blocks: list[JSON]) -> str:
    return "\n\n".join(block["text"] for block in blocks if block["type"] == "text")


def _from_user(blocks: list[JSON], names: dict[str, str]) -> list[ModelMessage]:
    """A user turn holds the results of the calls before it and what the person said."""
    results: list[Any] = []
    content: list[TextPart | FilePart] = []
    for block in blocks:
        if block["type"] == "tool_result":
            id = block["tool_use_id"]
            inner = _content(_blocks(block.get("content") or []))
            texts = "".join(part.text for part in inner if isinstance(part, TextPart))
            has_files = any(isinstance(part, FilePart) for part in inner)
            results.append(
                ToolResultPart(
                    id, names.get(id, ""), texts, bool(block.get("is_error")), inner if has_files else None
                )
            )
        else:
            content.extend(_content([block]))
    messages: list[ModelMessage] = [ToolMessage(results)] if results else []
    return [*messages, UserMessage(content)] if content else messages


def _content(blocks: list[JSON]) -> list[TextPart | FilePart]:
    parts: list[TextPart | FilePart] = []
    for block in blocks:
        source = inner(block, "source")
        match (block["type"], source.get("type")):
            case ("text", _):
                parts.append(TextPart(block["text"]))
            case (_, "base64"):
                url = f"data:{source['media_type']};base64,{source['data']}"
                parts.append(FilePart(url, source["media_type"]))
            case (kind, "url"):
                parts.append(FilePart(source["url"], "image/*" if kind == "image" else "application/pdf"))
            case (kind, _):
                parts.append(FilePart(f"data:,{source.get('data', kind)}", source.get("media_type", kind)))
    return parts


def _answer(block: JSON, names: dict[str, str]) -> AssistantContent:
    match block["type"]:
        case "text":
            return TextPart(block["text"])
        case "thinking":
            return ReasoningPart(block["thinking"], {"anthropic": {"signature": block["signature"]}})
        case "redacted_thinking":
            return ReasoningPart("", {"anthropic": {"redactedData": block["data"]}})
        case "tool_use" | "server_tool_use" as kind:
            names[block["id"]] = block["name"]
            return ToolCallPart(block["id"], block["name"], block["input"], kind == "server_tool_use")
        case _:
            id = block["tool_use_id"]
            return ToolResultPart(id, names.get(id, ""), block.get("content"), provider_executed=True)
