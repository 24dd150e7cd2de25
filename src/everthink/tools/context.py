"""What a tool may know about the call it serves.

    turn/calls --ToolContext--> the parameter of a tool that is annotated with it

A value for the body to read; the model never sees it and cannot fill it in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..abort import AbortSignal
from ..identity import Approver
from ..models.port import ModelMessage
from ..store.port import Statement
from .question import Answer, Given, Question

__all__ = ["AtStop", "Conclude", "ToolContext"]

Conclude = Callable[[Any, Sequence[Statement], Callable[[], object] | None], Awaitable[None]]
"""`conclude(output, statements, stored)`: ends a call with its result, in one commit with what the tool keeps
itself. It returns once all of it is durable and raises when none of it is; `stored` is called in between,
just before the result is shown. What the body returns afterwards counts no more."""

AtStop = Callable[[], tuple[Any, Sequence[Statement]]]
"""A call's result when it is stopped in the middle, and what is written with it. It waits for nothing."""


@dataclass
class ToolContext:
    """Handed to every parameter annotated `ToolContext`, whatever its name.

    Everything has a default, so a test can call a tool with `ToolContext()`.
    """

    agent: Any = None
    """The agent that runs the turn."""

    tool_name: str = ""
    tool_call_id: str = ""

    messages: Sequence[ModelMessage] = ()
    """What the model was shown before it made this call."""

    signal: AbortSignal = field(default_factory=AbortSignal)
    """Fires when the turn is cancelled. Bodies that run in a thread should look at `signal.aborted`."""

    identity: Any = None
    """Who asked for this turn, as `authenticate` said, as JSON."""

    approved_by: Approver | None = None
    """Who said yes to this call, or answered what it asked; `None`: nobody was asked, or nobody said who."""

    request_id: str = ""
    turn_id: str = ""
    step: int = 0

    context: Any = None
    """What `before_step` put there for the tools of this step: `StepConfig(context=...)`."""

    answer: Answer | None = None
    """What a person answered, when the tool had asked (`Question`) and goes on now."""

    show: Callable[[Any], Awaitable[None]] | None = field(default=None, repr=False, compare=False)
    """Where `progress` goes; without it progress is dropped."""

    ask: Callable[[Question, float], Awaitable[dict[str, Given]]] | None = field(
        default=None, repr=False, compare=False
    )
    """Ask a person while the call runs, for so many seconds; then it counts as declined. A restart loses it:
    a tool that can go on later raises the `Question` instead."""

    alive: Callable[[], object] | None = field(default=None, repr=False, compare=False)
    """Say that the call goes on, though there is nothing to show: the turn does not hang."""

    conclude: Conclude | None = field(default=None, repr=False, compare=False)
    """For tools whose own rows must be durable together with the result, or not at all. `None`: nobody keeps
    this call."""

    when_stopped: Callable[[AtStop], None] | None = field(default=None, repr=False, compare=False)
    """For tools that know how far they are: what they give when a person stops the turn while they run."""

    inner: Any = field(default=None, repr=False, compare=False)
    """For tools that call other tools: a `turn.inner.Inner`. Those calls go the way of all calls."""

    async def progress(self, value: Any) -> None:
        """Show `value` as a preliminary result. The next one, or the real result, replaces it."""
        if self.show is not None:
            await self.show(value)
