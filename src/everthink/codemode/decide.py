"""What is done about a call that code makes: the log says it, or nobody knows it yet.

    what the log has at this place, the call --decide--> Replay | Begin | Ask | FindOut | Diverged

Pure. The code is run from its beginning every time, so it makes the same calls in the same order; a call that
differs from the one in the log at its place means that it is not the same run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from .queries import CallRow

__all__ = ["Ask", "Begin", "Decision", "Diverged", "FindOut", "Replay", "decide"]


@dataclass(frozen=True, slots=True)
class Replay:
    """It has an answer, which is given again."""

    row: CallRow


@dataclass(frozen=True, slots=True)
class Begin:
    """It is to run. `is_new`: the log has nothing of it."""

    is_new: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """A person must agree. `is_new`: nobody was asked yet."""

    is_new: bool


@dataclass(frozen=True, slots=True)
class FindOut:
    """It had begun when the process died."""


@dataclass(frozen=True, slots=True)
class Diverged:
    """It is another call than the log has here."""

    words: str


Decision = Replay | Begin | Ask | FindOut | Diverged


def decide(row: CallRow | None, seq: int, tool: str, input: str, *, asks: bool) -> Decision:
    """What to do about the call number `seq`. `asks`: a person must agree to calls like this one."""
    if row is None:
        return Ask(is_new=True) if asks else Begin(is_new=True)
    if (row.tool, row.input) != (tool, input):
        return Diverged(
            f"Call {seq + 1} was {row.tool}({row.input:.200}) when the code ran before, and is now"
            f" {tool}({input:.200}). The code was stopped; what it did before stays done. Write code whose"
            " calls depend on nothing but the results of earlier calls, and run it anew."
        )
    match row.state:
        case "done" | "failed" | "unknown" | "denied":
            return Replay(row)
        case "pending":
            return Ask(is_new=False)
        case "approved":
            return Begin(is_new=False)
        case "started":
            return FindOut()
        case _:
            assert_never(row.state)
