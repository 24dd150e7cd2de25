"""Agents whose conversation can be shortened, and what their prompts said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everthink import Message, Think
from everthink.models.port import AssistantMessage, Request, ToolCallPart, ToolMessage, ToolResultPart
from everthink.prompt.wording import EARLIER
from everthink.session.summary import CompactContext, Compaction
from everthink.turn.overflow import ContextOverflow

from .agents import assistant

__all__ = ["NOTE", "SUMMARY", "Shortener", "pairs", "roomy", "talk"]

SUMMARY = "In short: much was said."
NOTE = ("user", EARLIER)
"""What stands before a summary in a prompt."""


class Shortener:
    """A compaction function: all but the last `tail` messages become one summary. It counts its calls."""

    def __init__(self, *, tail: int = 1, summary: str = SUMMARY) -> None:
        self.tail, self.summary, self.asked = tail, summary, 0

    async def __call__(self, messages: list[Message], context: CompactContext) -> Compaction | None:
        self.asked += 1
        covered = messages[: len(messages) - self.tail]
        if not covered:
            return None
        summary = self.summary if self.asked == 1 else f"{self.summary} ({self.asked})"
        return Compaction(covered[0].id, covered[-1].id, summary)


def roomy(
    model: Any,
    fn: Callable[..., Any] | None = None,
    *,
    overflow: Any = ContextOverflow(reactive=True),  # noqa: B008 - a frozen value
    **members: Any,
) -> type[Think]:
    """An agent that makes room when its prompt is too long."""

    def configure_session(self: Think, session: Any) -> Any:
        return session if fn is None else session.on_compaction(fn)

    members.setdefault("configure_session", configure_session)
    return assistant(model, context_overflow=overflow, **members)


def talk(*texts: str) -> list[Message]:
    """Messages said before: a person and the assistant in turns."""
    return [
        Message(f"old{place}", ("user", "assistant")[place % 2], [{"type": "text", "text": text}])
        for place, text in enumerate(texts)
    ]


def pairs(request: Request) -> list[tuple[str, str, Any]]:
    """(kind, call id, input or output) of each call and result in a prompt, in order."""
    found: list[tuple[str, str, Any]] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage | ToolMessage):
            for part in message.content:
                if isinstance(part, ToolCallPart):
                    found.append(("call", part.id, part.input))
                elif isinstance(part, ToolResultPart):
                    found.append(("result", part.id, part.output))
    return found
