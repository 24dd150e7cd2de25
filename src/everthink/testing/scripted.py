"""A language model that follows a script.

    ScriptedModel(thinks("hm").calls("weather", city="Paris"), says("It ", "rains."))

Each call of `stream` performs the next play. A play may be a function from the request to a
play. Every request is recorded before anything is streamed, the script running out is an
error that shows what was asked, and a request that real providers refuse is refused here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal, cast

import msgspec

from ..errors import InvalidSettings, ScriptExhausted
from ..models.port import (
    Failed,
    Finish,
    ModelEvent,
    Opened,
    Request,
    TextPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from ..settings import check_call, shown
from .scripted_plays import (
    OPENING,
    Play,
    attaches,
    calls,
    calls_raw,
    cites,
    fails,
    hangs,
    opens,
    overflows,
    says,
    thinks,
    waits,
)
from .scripted_rules import check

__all__ = [
    "Play",
    "ScriptedModel",
    "attaches",
    "calls",
    "calls_raw",
    "cites",
    "fails",
    "hangs",
    "opens",
    "overflows",
    "says",
    "thinks",
    "waits",
]

Scripted = Play | Callable[[Request], Play]
"""One entry of a script: a play, or a function that reads the request and returns one."""


class ScriptedModel:
    """A model for tests: answers with its plays, one per call, and remembers what it was asked.

    `requests` holds what it was shown, `cut_off` counts answers closed before their end,
    `strict=False` accepts requests that providers refuse, `alternate=True` also refuses two
    user messages in a row.
    """

    def __init__(
        self,
        *plays: Scripted,
        name: str = "scripted",
        continues: Literal["prefill", "prompt"] = "prompt",
        strict: bool = True,
        alternate: bool = False,
        repeat: bool = False,
        records: bool = True,
    ) -> None:
        _check_plays("ScriptedModel", plays)
        self.name = name
        self.continues: Literal["prefill", "prompt"] = continues
        self.requests: list[Request] = []
        self.asked = 0
        self.cut_off = 0
        self._plays = list(plays)
        self._strict, self._alternate, self._repeat, self._records = strict, alternate, repeat, records
        self._calls = 0
        self._silent = asyncio.Event()
        self._cut = asyncio.Event()

    @classmethod
    def forever(cls, *plays: Scripted, name: str = "scripted") -> ScriptedModel:
        """A model that repeats its plays without end, and records and checks nothing: for benches."""
        return cls(*plays, name=name, strict=False, repeat=True, records=False)

    @property
    def last_request(self) -> Request:
        """The newest request."""
        return self.requests[-1]

    @property
    def remaining(self) -> int:
        """How many plays have not been performed."""
        return max(0, len(self._plays) - self.asked)

    def add(self, *plays: Scripted) -> None:
        """Put more plays at the end of the script."""
        _check_plays("ScriptedModel.add", plays)
        self._plays.extend(plays)

    async def until_silent(self, *, timeout: float = 10.0) -> None:
        """Return once an answer waits or hangs. Forgotten as soon as it is seen."""
        async with asyncio.timeout(timeout):
            await self._silent.wait()
        self._silent.clear()

    async def until_cut_off(self, *, timeout: float = 10.0) -> None:
        """Return once some answer was closed or cancelled before its end."""
        async with asyncio.timeout(timeout):
            await self._cut.wait()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Perform the next play."""
        number = self.asked
        self.asked = number + 1
        if self._records:
            self.requests.append(_copy(request))
        taken: set[str] = set()
        if self._strict:
            taken = check(request, prefill=self.continues == "prefill", alternate=self._alternate)
        play = self._play(number, request)
        event: ModelEvent | None = None
        raises = False
        try:
            for cue, events in play.perform(lambda: self._new_id(taken)):
                if cue is OPENING:
                    yield Opened(f"resp_{number + 1}", self.name)
                elif cue is not None:
                    raises = cue.error is not None
                    self._silent.set()
                    await cue.take()
                for event in events:
                    yield event
        finally:
            if not raises and not isinstance(event, (Finish, Failed)):
                self.cut_off += 1
                self._cut.set()

    def _play(self, number: int, request: Request) -> Play:
        if self._repeat and self._plays:
            number %= len(self._plays)
        if number >= len(self._plays):
            raise ScriptExhausted(
                f"{self.name!r} has a script of {len(self._plays)} and was asked for answer {number + 1}: "
                f"{_question(request)}",
                next_step="Add a play, or find out why the model was asked once more.",
            )
        play = self._plays[number]
        made = play if isinstance(play, Play) else cast("Any", play(request))
        if not isinstance(made, Play):
            raise InvalidSettings(
                f"A function in the script of {self.name!r} returned {shown(made)}.",
                next_step='It returns a play: lambda request: says("…").',
            )
        return made

    def _new_id(self, taken: set[str]) -> str:
        while True:
            self._calls += 1
            id = f"call_{self._calls}"
            if id not in taken:
                return id


def _check_plays(call: str, plays: tuple[Scripted, ...]) -> None:
    for play in plays:
        check_call(call, play=play)
        if inspect.iscoroutinefunction(play):
            raise InvalidSettings(
                f"{call}: {play.__name__} is async, and nobody awaits it.",
                next_step="Write a function that returns a play. A play can wait: waits(event).says(…).",
            )


def _copy(request: Request) -> Request:
    """The request as it is now: what the loop appends or replaces later does not reach the record."""
    copy = msgspec.structs.replace(request)
    copy.messages, copy.tools = list(request.messages), list(request.tools)
    copy.settings = msgspec.structs.replace(request.settings)
    return copy


def _question(request: Request) -> str:
    """The newest thing in the conversation, for an error message."""
    if not request.messages:
        return "an empty conversation."
    match request.messages[-1]:
        case UserMessage(content):
            said = " ".join(part.text for part in content if isinstance(part, TextPart))
            return f"the user said {_short(said)}."
        case ToolMessage(content):
            results = [
                f"{p.name} gave {_short(str(p.output))}" for p in content if isinstance(p, ToolResultPart)
            ]
            return f"{', '.join(results) or 'approvals'}."
        case other:
            return f"the conversation ends with {_short(repr(other))}."


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
