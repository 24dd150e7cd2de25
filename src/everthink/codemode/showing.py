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
from .values import cut, value_of

__all__ = ["MODEL_BUDGET", "calls_of", "for_model", "lines_of"]

MODEL_BUDGET = 24_000
"""Characters of a result that a model is shown, about 6,000 tokens."""
SHOWN = 2_000
"""Characters of what a call was given, and of what it gave, that are kept in the conversation."""
LOGGED = 32_000
"""Characters of output there, the end of it."""


def calls_of(rows: Iterable[CallRow]) -> list[dict[str, Any]]:
    """The calls, in their order."""
    return [_call(row) for row in sorted(rows, key=lambda row: row.seq)]


def _call(row: CallRow) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "seq": row.seq + 1,
        "name": row.tool,
        "state": row.state,
        "input": cut(value_of(row.input), SHOWN),
    }
    if row.outcome is not None:
        shown["output" if row.state == "done" else "error"] = cut(value_of(row.outcome), SHOWN)
    if row.settled_at is not None:
        shown["ms"] = max(0, row.settled_at - row.began_at)
    return shown


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


def for_model(output: Any) -> Any:
    """What the model reads: the result and the output within bounds, of the calls their names and ends."""
    if not isinstance(output, Mapping):
        return output
    told = dict(cast("Mapping[str, Any]", output))
    for key in ("result", "error"):
        if key in told:
            told[key] = cut(told[key], MODEL_BUDGET)
    if "logs" in told:
        told["logs"] = cut("\n".join(cast("list[str]", told["logs"])), MODEL_BUDGET)
    calls = cast("list[dict[str, Any]]", told.get("calls", ()))
    named = [f"{one['seq']} {one['name']}: {one['state']}" for one in calls]
    told["calls"] = named if len(named) <= 50 else [*named[:50], f"… and {len(named) - 50:,} more"]
    told.pop("code", None)
    return told
