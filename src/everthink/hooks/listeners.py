"""Who hears the hooks of a turn besides the agent itself: its extensions.

    HookRunner, after what the developer wrote --> Listeners: only what they say to before_turn counts

None of these raises, whatever an extension does.
"""

from __future__ import annotations

from typing import Protocol

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


class Listeners(Protocol):
    """The extensions of one agent, as its hooks see them."""

    def hears(self, hook: str) -> bool:
        """True when one of them hears it."""
        ...

    async def before_turn(self, context: TurnContext, config: TurnConfig | None) -> TurnConfig | None:
        """What is to change in a turn, after what the agent changes."""
        ...

    async def before_tool_call(self, call: ToolCall, decision: ToolDecision | None) -> None:
        """Show a call, with what the agent decided."""
        ...

    async def after_tool_call(self, outcome: ToolOutcome) -> None:
        """Show what came of a call."""
        ...

    async def on_step_finish(self, step: StepResult) -> None:
        """Show a step that has ended."""
        ...

    def on_chunk(self, context: ChunkContext) -> None:
        """Show a piece of the answer. It is not waited for."""
        ...
