"""Agents to pull the plug on, with a bit of everything: `everthink crashtest` without arguments.

Its model keeps no notes. It reads from the prompt what was asked, what is said and which calls are
answered, and goes on from there, so that a process that is started again gives the same answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...children.tool import agent_tool
from ...models.port import (
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
    ToolCallPart,
    ToolCallReady,
    ToolInputDelta,
    ToolInputStart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from ...think import Think
from ...tools.tool import tool
from .effects import effect

__all__ = [
    "FAMILY_SCRIPT",
    "SCRIPT",
    "Agency",
    "AskedAgency",
    "AskedTraveller",
    "Guide",
    "Innkeeper",
    "TravelModel",
    "Traveller",
]

SCRIPT = Path(__file__).with_name("sample.yaml")
"""The conversation that goes with `Traveller`."""
FAMILY_SCRIPT = Path(__file__).with_name("sample_family.yaml")
"""The one that goes with `Agency`."""

_WORDS = re.compile(r"\S+\s*")
_REPEATS = 14
"""So many characters does a model that is asked to go on say twice, as they do."""


@dataclass(frozen=True, slots=True)
class _Scene:
    """One step of an answer."""

    text: str
    thought: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


_ANSWERS: dict[str, tuple[_Scene, ...]] = {
    "Is it warm in Oslo, and when is the train?": (
        _Scene(
            "Let me look. ",
            "Two questions, so two tools.",
            (("weather", {"city": "Oslo"}), ("trains", {"city": "Oslo"})),
        ),
        _Scene("It snows in Oslo, and the train leaves at noon."),
    ),
    "Where am I?": (
        _Scene("", "The browser knows.", (("locate", {}),)),
        _Scene("You are in Lisbon, near the river."),
    ),
    "Book the hotel.": (
        _Scene("I will ask you first. ", "", (("book", {"hotel": "Alfama"}),)),
        _Scene("The hotel Alfama is booked for you."),
    ),
    "Write the report.": (_Scene("The report has three parts and no conclusion.", "Three parts will do."),),
    "Tell me a story.": (_Scene("Once there was a train that never stopped."),),
    "And a poem.": (_Scene("Rails in the snow, a whistle, then nothing."),),
    "Say good morning.": (_Scene("Good morning, it is time to pack."),),
    "Plan the weekend.": (
        _Scene(
            "I ask two colleagues. ",
            "",
            (("inn", {"query": "A room for two nights."}), ("walk", {"query": "A walk for Sunday."})),
        ),
        _Scene("You have a room, and a walk along the river."),
    ),
    "A room for two nights.": (
        _Scene("One moment. ", "", (("reserve", {"nights": 2}),)),
        _Scene("The room is yours."),
    ),
    "A walk for Sunday.": (_Scene("Along the river, past the old mill, and back.", "It will be sunny."),),
    "And a room on the way back.": (
        _Scene("", "", (("inn", {"query": "A room for one night."}),)),
        _Scene("There is one for you."),
    ),
    "A room for one night.": (
        _Scene("", "", (("reserve", {"nights": 1}),)),
        _Scene("It is small."),
    ),
}
_SORRY = "Something was interrupted, and I cannot tell whether it happened."


class TravelModel:
    """Answers the questions it knows. `pace` is the pause between two pieces, in seconds."""

    def __init__(self, *, continues: Literal["prefill", "prompt"] = "prefill", pace: float = 0.001) -> None:
        self.name = f"travel-{continues}"
        self.continues: Literal["prefill", "prompt"] = continues
        self._pace = pace

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Say what is left to say."""
        for event in self._events(request.messages):
            await asyncio.sleep(self._pace)
            yield event

    def _events(self, messages: Sequence[ModelMessage]) -> Iterator[ModelEvent]:
        question, since = _question(messages)
        scenes = list(_ANSWERS[question])
        said = "".join(p.text for m in since for p in _parts(m) if isinstance(p, TextPart))
        answers = [p for m in since for p in _parts(m) if isinstance(p, ToolResultPart)]
        asked = [(p.name, p.input) for m in since for p in _parts(m) if isinstance(p, ToolCallPart)]
        before = ""
        while scenes[0].calls and all(call in asked for call in scenes[0].calls):
            before += scenes.pop(0).text
        scene = scenes[0]
        if any(answer.is_error for answer in answers) and not scene.calls:
            scene = _Scene(_SORRY)
        is_cut = isinstance(messages[-1], AssistantMessage) or _is_nudge(messages[-1])
        rest = _rest(before, scene.text, said, repeats=is_cut and self.continues == "prompt")
        yield Opened(model_id=self.name)
        if scene.thought and not is_cut and not any(call in asked for call in scene.calls):
            yield from _thought(scene.thought)
        if rest:
            yield TextStart("text")
            for word in _WORDS.findall(rest):
                yield TextDelta("text", word)
            yield TextEnd("text")
        calls = [call for call in scene.calls if call not in asked]
        for name, given in calls:
            id, text = f"call_{secrets.token_hex(6)}", json.dumps(given)
            yield ToolInputStart(id, name)
            yield ToolInputDelta(id, text)
            yield ToolCallReady(id, name, text)
        yield Finish("tool-calls" if calls else "stop")


def _thought(text: str) -> Iterator[ModelEvent]:
    yield ReasoningStart("thought")
    for word in _WORDS.findall(text):
        yield ReasoningDelta("thought", word)
    yield ReasoningEnd("thought")


def _question(messages: Sequence[ModelMessage]) -> tuple[str, Sequence[ModelMessage]]:
    """The last question it knows, and all that came after it."""
    for number in range(len(messages) - 1, -1, -1):
        if (text := _said(messages[number])) in _ANSWERS:
            return text, messages[number + 1 :]
    raise LookupError(f"TravelModel knows no answer to {_said(messages[-1]) or messages[-1]!r}.")


def _said(message: ModelMessage) -> str:
    if not isinstance(message, UserMessage):
        return ""
    return "".join(part.text for part in message.content if isinstance(part, TextPart))


def _is_nudge(message: ModelMessage) -> bool:
    """A user message that nobody wrote: the agent asks its model to go on."""
    return isinstance(message, UserMessage) and _said(message) not in _ANSWERS


def _parts(message: ModelMessage) -> Sequence[Any]:
    return message.content if isinstance(message, AssistantMessage | ToolMessage) else ()


def _rest(before: str, text: str, said: str, *, repeats: bool) -> str:
    """What is left to say of `text`, which follows `before`. The white space at a cut may be missing."""
    whole = before + text
    for known in (said, said.rstrip()):
        if whole.startswith(known) and len(known) >= len(before.rstrip()):
            back = min(_REPEATS, len(known) - len(before)) if repeats else 0
            return whole[len(known) - max(0, back) :]
    return text


class Traveller(Think):
    """Plans a journey: thinks, calls two tools at once, asks the browser and the person."""

    model = TravelModel()

    @tool
    async def weather(self, city: str) -> str:
        """The weather in a city."""
        effect(f"weather {city}")
        return f"Snow in {city}."

    @tool
    async def trains(self, city: str) -> str:
        """When the next train to a city leaves."""
        effect(f"trains {city}")
        return "At noon."

    @tool(needs_approval=True)
    async def book(self, hotel: str) -> str:
        """Book a hotel, for money."""
        effect(f"book {hotel}")
        return f"{hotel}: booked."


class AskedTraveller(Traveller):
    """The same with a model that must be asked to go on, and says a few words twice when it is."""

    model = TravelModel(continues="prompt")


class _Colleague(Think):
    """A child, which is asked in the words of its parent."""

    model = TravelModel()

    def format_agent_tool_input(self, input: Any) -> str:
        """Those words."""
        return input["query"]


class Innkeeper(_Colleague):
    """A child that does something to the world."""

    @tool
    async def reserve(self, nights: int) -> str:
        """Keep a room for somebody."""
        effect(f"reserve {nights} nights")
        return "Room 7."


class Guide(_Colleague):
    """A child that thinks, and takes some words to answer."""


class Agency(Think):
    """Lets two children work at once for one answer."""

    model = TravelModel()
    inn = agent_tool(Innkeeper, description="Keeps rooms.")
    walk = agent_tool(Guide, description="Knows walks.")


class AskedInnkeeper(Innkeeper):
    """The same with a model that must be asked to go on."""

    model = TravelModel(continues="prompt")


class AskedGuide(Guide):
    """The same with such a model."""

    model = TravelModel(continues="prompt")


class AskedAgency(Think):
    """The family with such models."""

    model = TravelModel(continues="prompt")
    inn = agent_tool(AskedInnkeeper, description="Keeps rooms.")
    walk = agent_tool(AskedGuide, description="Knows walks.")
