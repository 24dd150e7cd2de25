"""What is shown of an execution: to people while it runs and afterwards, and to the model.

    the log, the output --calls_of, lines_of--> {status, executionId, calls, logs, …}
                        --for_model--> the same, within bounds

Pure. What people see of a call is shortened; the rows have all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ..sandbox.port import Stream
from .queries import CallRow
from .values import cut, is_deep, value_of

__all__ = ["LISTED", "MODEL_BUDGET", "calls_of", "for_model", "lines_of"]

MODEL_BUDGET = 24_000
"""Characters of a result that a model is shown, about 6,000 tokens."""
SHOWN = 2_000
"""Characters of what a call was given, and of what it gave, that are kept in the conversation."""
SHOWN_IN_ALL = 100_000
"""Characters of all calls together there: a message that is too large for a row would be cut."""
LISTED = 1_000
"""So many calls are listed there; the others are counted."""
LOGGED = 32_000
"""Characters of output there, the end of it."""


def calls_of(rows: Iterable[CallRow]) -> list[dict[str, Any]]:
    """The calls, in their order: with what they were given and gave while there is room, then their ends."""
    ordered = sorted(rows, key=lambda row: row.seq)
    shown: list[dict[str, Any]] = []
    room = SHOWN_IN_ALL
    for row in ordered[:LISTED]:
        room -= min(len(row.input), SHOWN) + min(len(row.outcome or ""), SHOWN)
        shown.append(_call(row, is_whole=room >= 0 or row.state == "pending"))
    return shown


def _call(row: CallRow, *, is_whole: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"seq": row.seq + 1, "name": row.tool, "state": row.state}
    if is_whole:
        shown["input"] = _shown(row.input)
    if is_whole and row.outcome is not None:
        shown["output" if row.state == "done" else "error"] = _shown(row.outcome)
    if row.settled_at is not None:
        shown["ms"] = max(0, row.settled_at - row.began_at)
    return shown


def _shown(text: str) -> Any:
    value = value_of(text)
    return cut(text if is_deep(value) else value, SHOWN)


def lines_of(written: Sequence[tuple[Stream, str]]) -> list[str]:
    """What code has printed, by line; lines of its standard error say so."""
    texts: dict[Stream, str] = {"stdout": "", "stderr": ""}
    lines: list[str] = []
    for stream, text in written:
        *whole, texts[stream] = (texts[stream] + text).split("\n")
        lines += [_line(stream, line) for line in whole]
    lines += [_line(stream, rest) for stream, rest in texts.items() if rest]
    size = 0
    for place in range(len(lines) - 1, -1, -1):
        size += len(lines[place]) + 1
        if size > LOGGED:
            return [f"… {place + 1:,} earlier lines are left out", *lines[place + 1 :]]
    return lines


def _line(stream: Stream, line: str) -> str:
    return line if stream == "stdout" else f"[error] {line}"


def _named(call: Any) -> Any:
    """A call in a line; what is none, as it is."""
    if not isinstance(call, Mapping):
        return call
    made = cast("Mapping[str, Any]", call)
    return (
        f"{made['seq']} {made['name']}: {made['state']}" if {"seq", "name", "state"} <= made.keys() else made
    )


def for_model(output: Any) -> Any:
    """What the model reads: the result and the output within bounds, of the calls their names and ends.

    Of an output that was shortened in an old message there may be any part: lists that end with a text.
    """
    if not isinstance(output, Mapping):
        return output
    told = dict(cast("Mapping[str, Any]", output))
    for key in ("result", "error"):
        if key in told:
            told[key] = cut(told[key], MODEL_BUDGET)
    if isinstance(told.get("logs"), list):
        told["logs"] = cut("\n".join(map(str, cast("list[Any]", told["logs"]))), MODEL_BUDGET)
    if isinstance(told.get("calls"), list):
        named = [_named(one) for one in cast("list[Any]", told["calls"])]
        count = len(named) + told.pop("callsLeftOut", 0)
        told["calls"] = named if count <= 50 else [*named[:50], f"… and {count - 50:,} more"]
    told.pop("code", None)
    return told
