"""Stored messages as the model reads them.

    history (UI messages) --> convert --> list[ModelMessage]

Pure. A call and its result always travel together: what has no outcome is left out, and
`paired` enforces the same on lists that hooks put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ..messages import Message, Part, is_tool_part, normalize_input, text_of, tool_name
from ..models import port as model
from ..session.budget import KEEP_RECENT, shorten
from ..tools.output import model_output
from ..tools.tool import Tool
from .prompt import EMPTY_MESSAGE

__all__ = ["Converter", "convert", "has_approvals", "paired", "prune_tool_calls", "unshared"]

DENIED_TEXT = "Tool call execution denied."


class Converter:
    """Converts a growing history, each message once.

    Messages are never changed in place, so what was converted stays valid for the same object.
    The cost of a turn does not grow with the conversation: all but the last few messages are one
    list that only gets longer.
    """

    def __init__(self) -> None:
        # The messages of which `_older_converted` is the shortened, converted form.
        self._older: list[Message] = []
        self._older_converted: list[model.ModelMessage] = []
        self._recent: dict[str, tuple[Message, list[model.ModelMessage]]] = {}
        self._custom: frozenset[str] = frozenset()

    def unchecked(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages not seen before: those a repair has to look at."""
        known = len(self._older) if self._starts_as_before(messages) else 0
        recent = self._recent
        return [m for m in messages[known:] if (entry := recent.get(m.id)) is None or entry[0] is not m]

    def convert(self, messages: Sequence[Message], tools: Mapping[str, Tool]) -> list[model.ModelMessage]:
        """All messages, with those before the last few shortened, every call paired with its result."""
        custom = frozenset(name for name, tool in tools.items() if tool.to_model_output)
        if custom != self._custom or not self._starts_as_before(messages):
            self.forget()
            self._custom = custom
        edge = max(0, len(messages) - KEEP_RECENT)
        for message in messages[len(self._older) : edge]:
            self._older.append(message)
            self._older_converted += convert(shorten(message), tools)
            self._recent.pop(message.id, None)
        converted = list(self._older_converted)
        for message in messages[edge:]:
            entry = self._recent.get(message.id)
            if entry is None or entry[0] is not message:
                entry = self._recent[message.id] = (message, convert(message, tools))
            converted += entry[1]
        return converted

    def forget(self) -> None:
        """Start afresh (the conversation was cleared, or its beginning changed)."""
        self._older.clear()
        self._older_converted.clear()
        self._recent.clear()

    def _starts_as_before(self, messages: Sequence[Message]) -> bool:
        edge = max(0, len(messages) - KEEP_RECENT)
        return len(self._older) <= edge and messages[: len(self._older)] == self._older


def convert(message: Message, tools: Mapping[str, Tool]) -> list[model.ModelMessage]:
    """One stored message as model messages: none, one, or an assistant's steps with their results."""
    if message.role == "system":
        text = text_of(message.parts)
        return [model.SystemMessage(text)] if text else []
    if message.role == "user":
        content = [part for raw in message.parts if (part := _spoken(raw))]
        if not any(isinstance(part, model.FilePart) or part.text.strip() for part in content):
            # Providers refuse an empty message, but somebody who says nothing still wants an answer.
            wrote = any(raw.get("type") == "text" for raw in message.parts)
            content = [model.TextPart(EMPTY_MESSAGE)] if wrote else []
        return [model.UserMessage(content)] if content else []
    converted: list[model.ModelMessage] = []
    for block in _blocks(message.parts):
        converted += _step(block, tools)
    return converted


def _blocks(parts: Sequence[Part]) -> Iterable[list[Part]]:
    block: list[Part] = []
    for part in parts:
        if part.get("type") == "step-start":
            if block:
                yield block
            block = []
        else:
            block.append(part)
    if block:
        yield block


def _spoken(part: Part) -> model.TextPart | model.FilePart | None:
    match part.get("type"):
        case "text":
            return model.TextPart(part["text"], _metadata(part)) if part.get("text") else None
        case "file":
            return model.FilePart(part["url"], part["mediaType"], part.get("filename"), _metadata(part))
        case _:
            return None


def _metadata(part: Part, field: str = "providerMetadata") -> Any:
    return part.get(field) or None


def _step(parts: Sequence[Part], tools: Mapping[str, Tool]) -> list[model.ModelMessage]:
    said: list[model.AssistantContent] = []
    results: list[model.ToolResultPart | model.ApprovalResponse] = []
    for part in parts:
        if part.get("type") == "reasoning":
            if part.get("text") or part.get("providerMetadata"):
                said.append(model.ReasoningPart(part.get("text", ""), _metadata(part)))
        elif is_tool_part(part):
            outcome = _outcome(part, tools)
            if outcome is None:
                continue
            executed = bool(part.get("providerExecuted"))
            said.append(
                model.ToolCallPart(
                    part["toolCallId"],
                    tool_name(part),
                    normalize_input(part.get("input")),
                    executed,
                    _metadata(part, "callProviderMetadata"),
                )
            )
            if executed and isinstance(outcome, model.ToolResultPart):
                said.append(msgspec.structs.replace(outcome, provider_executed=True))
            else:
                results.append(outcome)
        elif spoken := _spoken(part):
            said.append(spoken)
    if not said:
        return []
    converted: list[model.ModelMessage] = [model.AssistantMessage(said)]
    if results:
        converted.append(model.ToolMessage(results))
    return converted


def _outcome(part: Part, tools: Mapping[str, Tool]) -> model.ToolResultPart | model.ApprovalResponse | None:
    call_id, name = part["toolCallId"], tool_name(part)
    match part.get("state"):
        case "output-available" if not part.get("preliminary"):
            output, content = model_output(tools.get(name), part.get("output"))
            return model.ToolResultPart(
                call_id,
                name,
                output,
                content=content,
                provider_metadata=_metadata(part, "resultProviderMetadata"),
            )
        case "output-error":
            return model.ToolResultPart(
                call_id, name, part.get("errorText") or "Tool execution failed", is_error=True
            )
        case "output-denied":
            reason = cast("dict[str, Any]", part.get("approval") or {}).get("reason")
            return model.ToolResultPart(call_id, name, reason or DENIED_TEXT, is_error=True)
        case "approval-responded":
            approval = cast("dict[str, Any]", part.get("approval") or {})
            return model.ApprovalResponse(
                approval.get("id") or call_id, call_id, bool(approval.get("approved")), approval.get("reason")
            )
        case _:
            return None


def paired(messages: Sequence[model.ModelMessage]) -> list[model.ModelMessage]:
    """`messages` without calls that lack a result, results that lack a call, and approvals.

    What a provider would refuse cannot leave here, whatever a hook put together.
    """
    kept: list[model.ModelMessage] = []
    for index, message in enumerate(messages):
        if isinstance(message, model.AssistantMessage):
            following = messages[index + 1] if index + 1 < len(messages) else None
            answered = _results_of(following) | _results_of(message)
            calls = {p.id for p in message.content if isinstance(p, model.ToolCallPart)}
            if calls <= answered:
                kept.append(message)
                continue
            content = [
                p for p in message.content if not isinstance(p, model.ToolCallPart) or p.id in answered
            ]
            if content:
                kept.append(model.AssistantMessage(content))
        elif isinstance(message, model.ToolMessage):
            before = messages[index - 1] if index else None
            asked = _calls_of(before)
            results = [p for p in message.content if isinstance(p, model.ToolResultPart) and p.id in asked]
            if len(results) == len(message.content):
                kept.append(message)
            elif results:
                kept.append(model.ToolMessage(list(results)))
        else:
            kept.append(message)
    return kept


def has_approvals(messages: Iterable[model.ModelMessage]) -> bool:
    """True when a person's answer stands where a result should be."""
    return any(
        type(part) is model.ApprovalResponse
        for message in messages
        if type(message) is model.ToolMessage
        for part in message.content
    )


def _results_of(message: model.ModelMessage | None) -> set[str]:
    if isinstance(message, model.ToolMessage | model.AssistantMessage):
        return {p.id for p in message.content if isinstance(p, model.ToolResultPart)}
    return set()


def _calls_of(message: model.ModelMessage | None) -> set[str]:
    if isinstance(message, model.AssistantMessage):
        return {p.id for p in message.content if isinstance(p, model.ToolCallPart)}
    return set()


def unshared(messages: Iterable[model.ModelMessage]) -> list[model.ModelMessage]:
    """Messages a hook may change without changing what is remembered of them. Parts cannot be changed."""
    return [
        m if isinstance(m, model.SystemMessage) else msgspec.structs.replace(m, content=list(m.content))
        for m in messages
    ]


def prune_tool_calls(messages: Sequence[model.ModelMessage], *, keep: int = 2) -> list[model.ModelMessage]:
    """`messages` without the calls and results before the last `keep` messages: for `before_turn`."""
    edge = len(messages) - keep
    pruned: list[model.ModelMessage] = []
    for index, message in enumerate(messages):
        if index >= edge:
            pruned.append(message)
        elif isinstance(message, model.AssistantMessage):
            said: list[model.AssistantContent] = [
                p for p in message.content if not isinstance(p, model.ToolCallPart | model.ToolResultPart)
            ]
            if said:
                pruned.append(model.AssistantMessage(said))
        elif not isinstance(message, model.ToolMessage):
            pruned.append(message)
    return paired(pruned)
