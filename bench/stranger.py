"""The agent that strangers talk to: it answers at once, and calls the browser's tool when asked to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, ClassVar, Literal

from everthink import Think, exposed
from everthink.models.port import (
    Finish,
    ModelEvent,
    Opened,
    Request,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
    ToolCallReady,
    UserMessage,
)

SHOW = "show"
"""The browser's tool, which is called for a message that is this word."""


class _Brief:
    """Says a word. Keeps nothing, unlike a scripted model: memory is measured."""

    name = "brief"
    continues: Literal["prefill", "prompt"] = "prompt"

    def __init__(self) -> None:
        self._calls = 0

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        yield Opened(model_id=self.name)
        last: Any = request.messages[-1] if request.messages else None
        said = last.content[-1] if isinstance(last, UserMessage) and last.content else None
        if isinstance(said, TextPart) and said.text == SHOW:
            self._calls += 1
            yield ToolCallReady(f"call-{self._calls}", SHOW, "{}")
            yield Finish("tool-calls")
            return
        yield TextStart("text")
        yield TextDelta("text", "ok")
        yield TextEnd("text")
        yield Finish("stop")


class Target(Think):
    """What a public server has at least: a conversation, a state, a method."""

    model = _Brief()
    initial_state: ClassVar[Any] = {"count": 0}

    @exposed
    def ping(self, *args: Any) -> str:
        """Answer."""
        return "pong"
