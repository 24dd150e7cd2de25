"""What real providers refuse to be asked.

    ScriptedModel.stream --Request--> check --> call ids the conversation holds, or ModelError

Each rule is one that OpenAI or Anthropic enforces with HTTP 400, so a prompt that passes
here is one that they accept. Pure.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ..errors import ModelError
from ..models.port import (
    AssistantMessage,
    ModelMessage,
    Request,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)

__all__ = ["check"]

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check(request: Request, *, prefill: bool = False, alternate: bool = False) -> set[str]:
    """Refuse what a provider would; otherwise return the ids of every call in the conversation."""
    _check_tools(request)
    messages = [m for m in request.messages if not _is_only_approvals(m)]
    if not messages:
        _refuse("there must be at least one message")
    conversation = _Conversation()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        match message:
            case SystemMessage():
                if not message.text.strip():
                    _refuse(f"{where} is an empty system message")
            case UserMessage():
                if alternate and index and isinstance(messages[index - 1], UserMessage):
                    _refuse(f"{where} follows another user message; roles must alternate")
                conversation.user(message, where)
            case AssistantMessage():
                conversation.assistant(message, where)
            case ToolMessage():
                conversation.tool(message, where)
    conversation.every_call_has_its_result("the end of the conversation")
    if isinstance(messages[-1], AssistantMessage) and not prefill:
        _refuse("the conversation must end with a user or tool message, not with the assistant's")
    return conversation.seen


def _check_tools(request: Request) -> None:
    names: set[str] = set()
    for tool in request.tools:
        if tool.name in names:
            _refuse(f"two tools are called {tool.name!r}; tool names must be unique")
        if not _TOOL_NAME.fullmatch(tool.name):
            _refuse(f"tool name {tool.name!r} must match {_TOOL_NAME.pattern}")
        if tool.input_schema.get("type") != "object":
            _refuse(f'the input schema of tool {tool.name!r} must have "type": "object"')
        names.add(tool.name)
    choice = request.tool_choice
    if choice == "required" and not names:
        _refuse("tool_choice is 'required' but no tools are offered")
    if choice.startswith("tool:") and choice.removeprefix("tool:") not in names:
        _refuse(f"tool_choice {choice!r} names a tool that is not offered")


def _is_only_approvals(message: ModelMessage) -> bool:
    """Adapters leave approval answers out, so a message of nothing else does not exist for a provider."""
    return isinstance(message, ToolMessage) and not any(
        isinstance(p, ToolResultPart) for p in message.content
    )


class _Conversation:
    """Which calls were made and which still miss their result."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.open: dict[str, str] = {}
        self.open_at_provider: dict[str, str] = {}
        self.answerable: set[str] = set()

    def every_call_has_its_result(self, before: str) -> None:
        for id, name in self.open.items():
            _refuse(f"tool call {id!r} ({name}) has no result before {before}")

    def user(self, message: UserMessage, where: str) -> None:
        self.every_call_has_its_result(where)
        for id, name in self.open_at_provider.items():
            _refuse(f"provider-executed call {id!r} ({name}) has no result before {where}")
        self.answerable = set()
        if not any(not isinstance(p, TextPart) or p.text.strip() for p in message.content):
            _refuse(f"{where} is an empty user message")

    def assistant(self, message: AssistantMessage, where: str) -> None:
        self.every_call_has_its_result(where)
        self.answerable = set()
        if not any(not isinstance(p, TextPart) or p.text.strip() for p in message.content):
            _refuse(f"{where} is an empty assistant message")
        for part in message.content:
            if isinstance(part, ToolCallPart):
                self._call(part, where)
            elif isinstance(part, ToolResultPart):
                if part.id not in self.open_at_provider:
                    _refuse(
                        f"{where} holds a result for {part.id!r}, which the provider was not asked to run"
                    )
                del self.open_at_provider[part.id]

    def _call(self, part: ToolCallPart, where: str) -> None:
        if part.id in self.answerable or part.id in self.open_at_provider:
            _refuse(f"{where} holds two tool calls with id {part.id!r}")
        if not isinstance(part.input, dict):
            _refuse(f"{where}: the input of tool call {part.id!r} must be a JSON object, not {part.input!r}")
        self.seen.add(part.id)
        if part.provider_executed:
            self.open_at_provider[part.id] = part.name
        else:
            self.open[part.id] = part.name
            self.answerable.add(part.id)

    def tool(self, message: ToolMessage, where: str) -> None:
        for part in message.content:
            if not isinstance(part, ToolResultPart):
                continue
            if part.id not in self.answerable:
                _refuse(f"{where} holds a result for {part.id!r}, which the message before it did not call")
            if part.id not in self.open:
                _refuse(f"{where} holds a second result for tool call {part.id!r}")
            del self.open[part.id]


def _refuse(rule: str) -> NoReturn:
    raise ModelError(
        f"A provider would refuse this request: {rule}.",
        kind="fatal",
        status=400,
        next_step="Mend what builds the prompt, or pass strict=False to the ScriptedModel.",
    )
