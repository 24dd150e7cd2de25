"""Who hears the hooks of a turn besides the agent itself: its extensions.

    HookRunner, after what the developer wrote --> Listeners: only what they say to before_turn counts

Functions that are handed in, since hooks know nothing of what is loaded. None of them raises, whatever an
extension does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .values import (
    ChunkContext,
    StepResult,
    ToolCall,
    ToolDecision,
    ToolOutcome,
    TurnConfig,
    TurnContext,
)

__all__ = ["Listeners"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The extensions of one agent, as its hooks see them."""

    hears: Callable[[str], bool]
    """True when one of them hears that hook."""
    before_turn: Callable[[TurnContext, TurnConfig | None], Awaitable[TurnConfig | None]]
    """What is to change in a turn, after what the agent changes."""
    before_tool_call: Callable[[ToolCall, ToolDecision | None], Awaitable[None]]
    """Shows a call, with what the agent decided."""
    after_tool_call: Callable[[ToolOutcome], Awaitable[None]]
    """Shows what came of a call."""
    on_step_finish: Callable[[StepResult], Awaitable[None]]
    """Shows a step that has ended."""
    on_chunk: Callable[[ChunkContext], None]
    """Shows a piece of the answer. It is not waited for."""
