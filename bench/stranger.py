"""The agent that strangers talk to: it answers at once, and calls the browser's tool when asked to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, ClassVar, Literal

from starlette.requests import Request

from everthink import Think, exposed
from everthink.codemode import create_execute_tool
from everthink.models.port import (
    Finish,
    ModelEvent,
    Opened,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
    ToolCallReady,
    UserMessage,
)
from everthink.models.port import Request as Asked
from everthink.workspace import Put

SHOW = "show"
"""The browser's tool, which is called for a message that is this word."""
CALL = "call "
"""How a message begins that is a call: the name of a tool of ours and its input follow, as from a model that
somebody has talked into it."""


class _Brief:
    """Says a word. Keeps nothing, unlike a scripted model: memory is measured."""

    name = "brief"
    continues: Literal["prefill", "prompt"] = "prompt"

    def __init__(self) -> None:
        self._calls = 0

    async def stream(self, request: Asked) -> AsyncGenerator[ModelEvent, None]:
        yield Opened(model_id=self.name)
        last: Any = request.messages[-1] if request.messages else None
        said = last.content[-1] if isinstance(last, UserMessage) and last.content else None
        text = said.text if isinstance(said, TextPart) else ""
        if text == SHOW or text.startswith(CALL):
            self._calls += 1
            name, _, input = text.removeprefix(CALL).partition(" ")
            yield ToolCallReady(f"call-{self._calls}", name, input or "{}")
            yield Finish("tool-calls")
            return
        yield TextStart("text")
        yield TextDelta("text", "ok")
        yield TextEnd("text")
        yield Finish("stop")


FULL = 50_000
"""Entries of a workspace that is full."""
FOLDER = "/full"


class Child(Think):
    """Below a target, and below itself."""

    model = _Brief()


Child.sub_agents = (Child,)


class Target(Think):
    """What a public server has at least: a conversation, a state, a method; and files and children."""

    model = _Brief()
    initial_state: ClassVar[Any] = {"count": 0}
    sub_agents = (Child,)

    def get_tools(self) -> Any:
        return [create_execute_tool()]

    @exposed
    def ping(self, *args: Any) -> str:
        """Answer."""
        return "pong"

    @exposed
    async def fill(self) -> int:
        """As many files as there may be, in one folder."""
        line = "def handle_{0}(request, response):  # what line {0} of this file is good for\n"
        texts = [(line.format(number) * 10).encode() for number in range(FULL - 1)]
        puts = [Put(f"{FOLDER}/{number:05}.py", text) for number, text in enumerate(texts)]
        return len(await self.workspace.apply(puts))

    @exposed
    async def grep(self, pattern: str) -> int:
        """How many lines have it."""
        return len((await self.workspace.grep(pattern)).found)

    async def on_request(self, request: Request) -> Any:
        """Read what is sent."""
        form = await request.form()
        try:
            return {"parts": len(form)}
        finally:
            await form.close()
