"""The states of a turn, and every way from one to the next.

    accepted --> running --> completed | error | aborted | skipped          the whole of it: MOVES, drawn()

Data, and what follows from it. The statements of `queries.py` take their conditions from here, so that a row
goes no other way; docs/turns.md has the drawing that `drawn()` makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

__all__ = ["MOVES", "OPEN", "OVER", "Move", "MoveName", "State", "drawn", "may", "states_before"]

State = Literal["accepted", "running", "interrupted", "failing", "completed", "error", "aborted", "skipped"]
OVER: frozenset[State] = frozenset({"completed", "error", "aborted", "skipped"})
"""What is over stays so, unless it was set aside and is released."""
OPEN: tuple[State, ...] = tuple(state for state in get_args(State) if state not in OVER)

MoveName = Literal["start", "cut", "pick up", "fail", "end", "drop", "set aside", "release"]


@dataclass(frozen=True, slots=True)
class Move:
    """From which states to which, and when."""

    sources: tuple[State, ...]
    targets: tuple[State, ...]
    when: str


MOVES: dict[MoveName, Move] = {
    "start": Move(("accepted",), ("running",), "its time has come: its input is in the conversation"),
    "cut": Move(
        ("running",), ("interrupted",), "it stalled, or its model broke off (a crash changes no row)"
    ),
    "pick up": Move(("interrupted", "running"), ("running",), "it goes on from what it had said"),
    "fail": Move(
        ("accepted", "running", "interrupted"),
        ("failing",),
        "what it said is stored; on_chat_error is asked for the words",
    ),
    "end": Move(OPEN, tuple(sorted(OVER)), "its answer, or the words for its failure, are stored with this"),
    "drop": Move(("accepted",), ("aborted", "skipped"), "it was cancelled or reset before it began"),
    "set aside": Move(OPEN, ("error",), "it took the process down too often, or cannot be read"),
    "release": Move(
        ("error",), ("accepted", "interrupted", "failing"), "somebody has what was set aside tried again"
    ),
}


@cache
def states_before(move: MoveName) -> str:
    """The states a move begins in, as a list for SQL."""
    return ", ".join(f"'{state}'" for state in MOVES[move].sources)


def may(before: State, after: State) -> bool:
    """True when some move leads from one state to the other."""
    return any(before in move.sources and after in move.targets for move in MOVES.values())


def drawn() -> str:
    """The moves as a table of text, one line each."""
    lines = [
        (name, " | ".join(move.sources), " | ".join(move.targets), move.when) for name, move in MOVES.items()
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {sources:<{widths[1]}}  →  {targets:<{widths[2]}}  {when}"
        for name, sources, targets, when in lines
    )
