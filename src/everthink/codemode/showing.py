"""What is shown of an execution: to people while it runs and afterwards, and to the model.

    the log, the output --calls_of, lines_of--> {status, executionId, calls, logs, …}
                        --for_model--> the same, within bounds

Pure. What people see of a call is shortened; the rows have all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from ..journal.tool_errors import UNTOLD_TOOL
from ..sandbox.port import Stream
from .queries import CallRow, told_words
from .values import cut, is_deep, shown_int, value_of

__all__ = ["LISTED", "MODEL_BUDGET", "calls_of", "for_model", "lines_of"]

MODEL_BUDGET = 24_000
"""Characters of a result that a model is shown, about 6,000 tokens."""
SHOWN = 2_000
"""Characters of what a call was given, and of what it gave, that are kept in the conversation."""
SHOWN_IN_ALL = 100_000
"""Characters of all calls together there: a message that is too large for a row would be cut."""
_LONG = 4 * SHOWN
LISTED = 1_000
"""So many calls are listed there; the others are counted."""
REASON = 500
"""Characters of the reason of a call that failed, in the line that the model reads of it."""
NO_WORDS: Mapping[int, str] = MappingProxyType({})
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
    if row.outcome is not None and row.state != "done":
        words = told_words(row, UNTOLD_TOOL)
        if is_whole or words == UNTOLD_TOOL:
            shown["error"] = cut(words, SHOWN)
    elif is_whole and row.outcome is not None:
        shown["output"] = _shown(row.outcome)
    if row.settled_at is not None:
        shown["ms"] = max(0, row.settled_at - row.began_at)
    return shown


def _shown(text: str) -> Any:
    if len(text) > _LONG and text[0] in "[{":  # its text is what is shown: nobody has to read it
        return f"{text[:SHOWN]}\n--- TRUNCATED --- ({len(text):,} characters in all)"
    value = shown_int(value_of(text))
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
        if size > LOGGED and place == len(lines) - 1:  # the last one alone is too long: the end of it
            more = size - 1 - LOGGED
            note = f"… {more:,} characters of this line, and {place:,} lines before it are left out"
            return [note, lines[place][-LOGGED:]]
        if size > LOGGED:
            return [f"… {place + 1:,} earlier lines are left out", *lines[place + 1 :]]
    return lines


def _line(stream: Stream, line: str) -> str:
    return line if stream == "stdout" else f"[error] {line}"


def _named(call: Any, words: Mapping[int, str]) -> Any:
    """A call in a line, with the reason of one that failed; what is none, as it is."""
    if not isinstance(call, Mapping):
        return call
    made = cast("Mapping[str, Any]", call)
    if not {"seq", "name", "state"} <= made.keys():
        return made
    why = words.get(made["seq"]) or made.get("error")
    line = f"{made['seq']} {made['name']}: {made['state']}"
    return f"{line} ({cut(str(why), REASON)})" if why and made["state"] in ("failed", "denied") else line


def for_model(output: Any, words: Mapping[int, str] = NO_WORDS) -> Any:
    """What the model reads: the result and the output within bounds, of the calls their names and ends.

    `words` are those of calls, by their number, that people do not read. Of an output that was shortened in
    an old message there may be any part: lists that end with a text.
    """
    if not isinstance(output, Mapping):
        return output
    told = dict(cast("Mapping[str, Any]", output))
    for key in ("result", "error"):
        if key in told:
            told[key] = cut(told[key], MODEL_BUDGET)
    if isinstance(told.get("logs"), list):
        logs = "\n".join(map(str, cast("list[Any]", told["logs"])))
        more = len(logs) - MODEL_BUDGET
        told["logs"] = logs if more <= 0 else f"… {more:,} characters are left out\n{logs[-MODEL_BUDGET:]}"
    if isinstance(told.get("calls"), list):
        named = [_named(one, words) for one in cast("list[Any]", told["calls"])]
        count = len(named) + told.pop("callsLeftOut", 0)
        told["calls"] = named if count <= 50 else [*named[:50], f"… and {count - 50:,} more"]
    told.pop("code", None)
    return told
