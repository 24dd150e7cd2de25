"""The demo model: offline, without a key, and always the same.

    resolve_model("demo") --> DemoModel.stream --> turn/loop

It follows a few rules and says so: it thinks aloud, calls the tool that a message asks for,
tells what the tool gave, keeps a memory, and fills in structured output. Equal conversations get
equal answers, so an answer that was cut off goes on at the very word where it stopped.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from . import demo_memory as memory
from . import demo_talk as talk
from .demo_tools import Call, calls_for, instance
from .port import (
    AssistantMessage,
    Finish,
    ModelEvent,
    ModelMessage,
    Opened,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Request,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
    ToolCallReady,
    ToolInputDelta,
    ToolInputStart,
    ToolMessage,
    ToolResultPart,
    Usage,
    UserMessage,
)

__all__ = ["DemoModel"]

_WORDS = re.compile(r"\S+\s*|\s+")
_HEARD = 4000
"""Characters of a question that are listened to: its rules on words must not hold anybody else up."""


@dataclass(frozen=True)
class _Answer:
    thought: str
    text: str = ""
    calls: tuple[Call, ...] = ()


class DemoModel:
    """A model for the first minute. `pace` is the pause after each word in seconds; 0 for tests."""

    continues: Literal["prefill", "prompt"] = "prefill"

    def __init__(self, *, pace: float = 0.03, name: str = "demo") -> None:
        self.name = name
        self._pace = pace

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Answer word by word."""
        messages, said = _without_beginning(request.messages)
        answer = _answer(request, messages)
        if said is not None:
            answer = _Answer("", _rest(answer.text, said), answer.calls)
        made = sum(isinstance(part, ToolResultPart) for part in _parts(messages))
        for event in _events(answer, made + 1):
            if self._pace and isinstance(event, TextDelta | ReasoningDelta):
                await asyncio.sleep(self._pace)
            yield event
        yield Finish("tool-calls" if answer.calls else "stop", _usage(request, answer))


def _events(answer: _Answer, number: int) -> Iterator[ModelEvent]:
    yield Opened(model_id="demo")
    if answer.thought:
        yield ReasoningStart("thought")
        for word in _WORDS.findall(answer.thought):
            yield ReasoningDelta("thought", word)
        yield ReasoningEnd("thought")
    if answer.text:
        yield TextStart("text")
        for word in _WORDS.findall(answer.text):
            yield TextDelta("text", word)
        yield TextEnd("text")
    for offset, call in enumerate(answer.calls):
        id, text = f"demo_{number + offset}", msgspec.json.encode(call.input).decode()
        yield ToolInputStart(id, call.name)
        yield ToolInputDelta(id, text)
        yield ToolCallReady(id, call.name, text)


def _answer(request: Request, messages: list[ModelMessage]) -> _Answer:
    question = _last_question(messages)
    results = _new_results(messages)
    can_call = not results and request.tool_choice != "none"
    if memory.is_summary_wanted(question):
        return _Answer("", memory.summary_of(question))
    question = question[:_HEARD]
    if can_call and (calls := _calls(question, request)):
        names = talk.listing([f"`{name}`" for name in dict.fromkeys(call.name for call in calls)])
        return _Answer(f"This asks for something I have a tool for: {names}.", calls=tuple(calls))
    if request.output is not None:
        value = instance(request.output.json_schema, question)
        return _Answer(
            "The answer must follow a schema, so I fill it in.", msgspec.json.encode(value).decode()
        )
    if results:
        return _Answer("Now I only need to say what came back.", talk.about_results(results, question))
    if said := memory.remembered(question, request.system, messages):
        return _Answer("I look into my memory.", said)
    earlier = [_said(message)[:_HEARD] for message in messages if isinstance(message, UserMessage)][:-1]
    thought, text = talk.reply(question, earlier, [tool.name for tool in request.tools])
    return _Answer(thought, text)


def _calls(question: str, request: Request) -> list[Call]:
    if request.tool_choice == "auto" and (calls := memory.remembering(question, request.tools)):
        return calls
    return calls_for(question, request.tools, request.tool_choice)


def _without_beginning(messages: list[ModelMessage]) -> tuple[list[ModelMessage], str | None]:
    """The conversation without an answer that is to be continued, and what that answer said so far."""
    if messages and isinstance(last := messages[-1], AssistantMessage):
        return messages[:-1], "".join(part.text for part in last.content if isinstance(part, TextPart))
    return messages, None


def _rest(text: str, said: str) -> str:
    if text.startswith(said):
        return text[len(said) :]
    return text[len(said.rstrip()) :] if text.startswith(said.rstrip()) else text


def _last_question(messages: list[ModelMessage]) -> str:
    return next((_said(m) for m in reversed(messages) if isinstance(m, UserMessage)), "")


def _said(message: UserMessage) -> str:
    return " ".join(part.text for part in message.content if isinstance(part, TextPart)).strip()


def _new_results(messages: list[ModelMessage]) -> list[ToolResultPart]:
    """What the tools gave since the person spoke last."""
    results: list[ToolResultPart] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            break
        if isinstance(message, ToolMessage):
            results[:0] = [part for part in message.content if isinstance(part, ToolResultPart)]
    return results


def _parts(messages: list[ModelMessage]) -> Iterator[Any]:
    for message in messages:
        if isinstance(message, ToolMessage):
            yield from message.content


def _usage(request: Request, answer: _Answer) -> Usage:
    """ToolErrors, for want of tokens."""
    shown = len(request.system.split()) + sum(
        len(part.text[:_HEARD].split())
        for message in request.messages
        if isinstance(message, UserMessage | AssistantMessage)
        for part in message.content
        if isinstance(part, TextPart)
    )
    thought = len(answer.thought.split())
    written = thought + len(answer.text.split()) + 4 * len(answer.calls)
    return Usage(shown, written, shown + written, reasoning_tokens=thought)
