"""OpenAI's responses API, read and written: one dialect of `served`.

This is what names such as `openai:gpt-5` speak. A thought is a reasoning item whose encrypted
content is the signature under `openai` in our metadata.
"""

from __future__ import annotations

import itertools
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

__all__ = ["OpenAIResponses"]

_INCOMPLETE = {"length": "max_output_tokens", "content-filter": "content_filter"}


class OpenAIResponses:
    """`POST /v1/responses`."""

    def read(self, body: JSON) -> Request:
        """The request that a client sent."""
        reader = _Reader()
        given = body["input"]
        for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
            reader.item(item)
        wanted = inner(inner(body, "text"), "format")
        system = [body["instructions"]] if body.get("instructions") else []
        return Request(
            "\n\n".join(system + reader.system),
            reader.messages,
            [
                ToolSpec(tool["name"], tool.get("description") or "", tool["parameters"], tool.get("strict"))
                for tool in each(body, "tools")
                if tool["type"] == "function"
            ],
            tool_choice(body.get("tool_choice")),
            Settings(
                max_output_tokens=body.get("max_output_tokens"),
                temperature=body.get("temperature"),
                top_p=body.get("top_p"),
            ),
            OutputSchema(wanted["schema"], wanted["name"], wanted.get("description"))
            if wanted.get("type") == "json_schema"
            else None,
        )

    def writer(self, body: JSON) -> _Writer:
        """Writes one answer."""
        return _Writer(body["model"])

    def error(self, error: ModelError) -> tuple[int, JSON, dict[str, str]]:
        """Status, body and headers of a refusal."""
        return status_of(error), {"error": error_body(error)}, error_headers(error)


class _Reader:
    """Gathers the flat list of items into messages."""

    def __init__(self) -> None:
        self.system: list[str] = []
        self.messages: list[ModelMessage] = []
        self._names: dict[str, str] = {}

    def item(self, item: JSON) -> None:
        match item.get("type", "message"):
            case "function_call":
                id = item["call_id"]
                self._names[id] = item["name"]
                self._answer(ToolCallPart(id, item["name"], tool_input(item["arguments"])))
            case "function_call_output":
                self._result(item)
            case "reasoning":
                text = "".join(part["text"] for part in each(item, "summary"))
                signature = item.get("encrypted_content")
                self._answer(ReasoningPart(text, {"openai": {"signature": signature}} if signature else None))
            case "message":
                self._message(item)
            case _:
                pass

    def _message(self, item: JSON) -> None:
        content = _content(item["content"])
        text = "".join(part.text for part in content if isinstance(part, TextPart))
        match item["role"]:
            case "assistant":
                self._answer(TextPart(text))
            case "user":
                self.messages.append(UserMessage(content))
            case _ if self.messages:
                self.messages.append(SystemMessage(text))
            case _:
                self.system.append(text)

    def _answer(self, part: AssistantContent) -> None:
        if self.messages and isinstance(last := self.messages[-1], AssistantMessage):
            last.content.append(part)
        else:
            self.messages.append(AssistantMessage([part]))

    def _result(self, item: JSON) -> None:
        id, output = item["call_id"], item["output"]
        content = None if isinstance(output, str) else _content(output)
        text = output if content is None else "".join(p.text for p in content if isinstance(p, TextPart))
        result = ToolResultPart(id, self._names.get(id, ""), text, content=content)
        if self.messages and isinstance(last := self.messages[-1], ToolMessage):
            last.content.append(result)
        else:
            self.messages.append(ToolMessage([result]))


class _Writer:
    def __init__(self, model: str) -> None:
        self._model = model
        self._id = "resp_1"
        self._numbers = itertools.count()
        self._items: dict[str, tuple[int, str]] = {}
        self._texts: dict[str, str] = {}
        self._calls: dict[str, JSON] = {}

    def event(self, event: ModelEvent) -> bytes:
        """The lines for one event."""
        match event:
            case Opened():
                self._id = event.response_id or self._id
                return self._line("response.created", response=self._response("in_progress"))
            case TextStart():
                item: JSON = {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
                part: JSON = {"type": "output_text", "text": "", "annotations": []}
                return self._add("msg", event.id, item) + self._in(
                    "response.content_part.added", event.id, part=part
                )
            case TextDelta():
                self._texts[event.id] += event.text
                return self._in("response.output_text.delta", event.id, delta=event.text)
            case TextEnd():
                return self._end_text(event.id)
            case ReasoningStart():
                item = {"type": "reasoning", "summary": []}
                part = {"type": "summary_text", "text": ""}
                return self._add("rs", event.id, item) + self._in(
                    "response.reasoning_summary_part.added", event.id, summary_index=0, part=part
                )
            case ReasoningDelta():
                self._texts[event.id] += event.text
                kind = "response.reasoning_summary_text.delta"
                return self._in(kind, event.id, summary_index=0, delta=event.text)
            case ReasoningEnd():
                return self._end_thought(event)
            case ToolInputStart(provider_executed=False):
                item = {
                    "type": "function_call",
                    "call_id": event.id,
                    "name": event.name,
                    "status": "in_progress",
                }
                self._calls[event.id] = item
                return self._add("fc", event.id, {**item, "arguments": ""})
            case ToolInputDelta() if event.id in self._calls:
                return self._in("response.function_call_arguments.delta", event.id, delta=event.delta)
            case ToolCallReady() if event.id in self._calls:
                item = {**self._calls[event.id], "arguments": event.input, "status": "completed"}
                done = self._in("response.function_call_arguments.done", event.id, arguments=event.input)
                return done + self._done(event.id, item)
            case Source(url=str()):
                note = {"type": "url_citation", "url": event.url, "title": event.title or ""}
                note |= {"start_index": 0, "end_index": 1}
                last = next(reversed(self._items))
                return self._in(
                    "response.output_text.annotation.added", last, annotation_index=0, annotation=note
                )
            case Finish():
                return self._finish(event)
            case Failed():
                error = error_body(event.error)
                failed = {"code": error["code"] or "server_error", "message": error["message"]}
                return self._line("response.failed", response={**self._response("failed"), "error": failed})
            case _:
                return b""

    def _add(self, prefix: str, id: str, item: JSON) -> bytes:
        self._items[id] = (len(self._items), f"{prefix}_{self._id}_{len(self._items)}")
        self._texts[id] = ""
        index, name = self._items[id]
        return self._line("response.output_item.added", output_index=index, item={"id": name, **item})

    def _in(self, type: str, id: str, **fields: Any) -> bytes:
        index, name = self._items[id]
        return self._line(type, item_id=name, output_index=index, content_index=0, **fields)

    def _done(self, id: str, item: JSON) -> bytes:
        index, name = self._items[id]
        return self._line("response.output_item.done", output_index=index, item={"id": name, **item})

    def _end_text(self, id: str) -> bytes:
        part: JSON = {"type": "output_text", "text": self._texts[id], "annotations": []}
        item: JSON = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
        return (
            self._in("response.output_text.done", id, text=self._texts[id])
            + self._in("response.content_part.done", id, part=part)
            + self._done(id, item)
        )

    def _end_thought(self, event: ReasoningEnd) -> bytes:
        data = (event.provider_metadata or {}).get("openai", {})
        part = {"type": "summary_text", "text": self._texts[event.id]}
        item = {"type": "reasoning", "summary": [part], "encrypted_content": data.get("signature")}
        kind = "response.reasoning_summary_part.done"
        return self._in(kind, event.id, summary_index=0, part=part) + self._done(event.id, item)

    def _finish(self, event: Finish) -> bytes:
        why = _INCOMPLETE.get(event.reason)
        response = self._response("incomplete" if why else "completed")
        if event.usage != Usage():
            response["usage"] = _usage(event.usage)
        if why:
            response["incomplete_details"] = {"reason": why}
        return self._line("response.incomplete" if why else "response.completed", response=response)

    def _response(self, status: str) -> JSON:
        return {
            "id": self._id,
            "object": "response",
            "created_at": 0,
            "status": status,
            "model": self._model,
            "output": [],
            "usage": None,
        }

    def _line(self, type: str, **fields: Any) -> bytes:
        return sse({"type": type, "sequence_number": next(self._numbers), **fields}, type)


def _content(content: Any) -> list[TextPart | FilePart]:
    if isinstance(content, str):
        return [TextPart(content)]
    parts: list[TextPart | FilePart] = []
    for part in content:
        match part["type"]:
            case "input_image":
                parts.append(file(part["image_url"], "image/*"))
            case "input_file":
                parts.append(file(part.get("file_data") or part.get("file_url") or "data:,"))
            case _:
                parts.append(TextPart(part.get("text", "")))
    return parts


def _usage(usage: Usage) -> JSON:
    return {
        "input_tokens": usage.input_tokens or 0,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens or 0},
        "output_tokens": usage.output_tokens or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.total_tokens or 0,
    }
