"""What the model sees of results whose `to_model_output` has to wait for something, or wants the context.

    history --> Views.learn (async) --> Views.of --> prompt/convert (pure)

Made before the prompt is, once for each result, and kept along until they are many: then they are dropped
after the turn and made again for the next prompt. A picture is named by its hash: it stays the one that was
seen wherever its bytes are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..messages import Message, is_settled, is_tool_part, tool_name
from ..models.port import FilePart
from ..tools.output import ModelOutput, awaited_output
from ..tools.tool import Tool, ToolContext

__all__ = ["MOST_BYTES", "Views"]

MOST_BYTES = 8 << 20
"""So much is kept along between turns."""


class Views:
    """The views of one conversation, by message and call."""

    def __init__(self, agent: Callable[[], Any]) -> None:
        self._agent = agent
        self._known: dict[tuple[str, str], ModelOutput] | None = None  # most conversations need none
        self._bytes = 0

    async def learn(self, messages: Iterable[Message], tools: Mapping[str, Tool]) -> None:
        """Make those of the results in `messages`."""
        waiting = {name: tool for name, tool in tools.items() if tool.view_waits or tool.has_aftermath}
        if not waiting:
            return
        for message in messages:
            if message.role != "assistant":
                continue
            for part in message.parts:
                if not is_tool_part(part) or not is_settled(part):
                    continue
                tool, call_id = waiting.get(tool_name(part)), part["toolCallId"]
                if tool is None or self.of(message.id, call_id) is not None:
                    continue
                if part["state"] != "output-available":
                    await self.after(message.id, call_id, tool)
                elif tool.view_waits:
                    await self.make(message.id, call_id, tool, part.get("output"))

    async def make(self, message_id: str, call_id: str, tool: Tool | None, output: Any) -> ModelOutput:
        """The view of one result."""
        view = await awaited_output(tool, output, self._context(tool, call_id))
        if tool is not None and tool.view_waits:
            self._keep(message_id, call_id, view)
        return view

    async def after(self, message_id: str, call_id: str, tool: Tool | None) -> str | None:
        """What is told of a call that ended without a result, beside why; `None` of most."""
        if tool is None or not tool.has_aftermath:
            return None
        told = await tool.aftermath(self._context(tool, call_id))
        self._keep(message_id, call_id, ModelOutput(told or ""))
        return told

    def _context(self, tool: Tool | None, call_id: str) -> ToolContext:
        name = "" if tool is None else tool.name
        return ToolContext(agent=self._agent(), tool_name=name, tool_call_id=call_id)

    def _keep(self, message_id: str, call_id: str, view: ModelOutput) -> None:
        self._known = self._known if self._known is not None else {}
        self._known[message_id, call_id] = view
        self._bytes += _size_of(view)

    def of(self, message_id: str, call_id: str) -> ModelOutput | None:
        """What was made; `None` where nothing had to be."""
        return None if self._known is None else self._known.get((message_id, call_id))

    @property
    def are_many(self) -> bool:
        """True when they hold more than is kept along."""
        return self._bytes > MOST_BYTES

    def forget(self) -> None:
        """Drop them all: the conversation is another one, or they are many."""
        self._known, self._bytes = None, 0


def _size_of(view: ModelOutput) -> int:
    if view.content is None:
        return len(view.output) if isinstance(view.output, str) else 0
    return sum(len(part.url if isinstance(part, FilePart) else part.text) for part in view.content)
