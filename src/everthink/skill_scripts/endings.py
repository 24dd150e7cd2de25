"""How a run ended, as a result or as words for the model.

    Outcome --returned--> the value of a function, or what a program has printed
            --refused---> ToolError: what went wrong, with what the script has printed

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ToolError
from ..messages import encode_json
from ..sandbox.port import Outcome, Stream

__all__ = ["ENTRY", "failure", "lines", "printed", "program", "returned"]

ENTRY = "skill-script.mjs"
"""What stands before a script in JavaScript, in traces."""
LARGEST_VALUE = 1_000_000
"""Bytes of what a function returns."""
SHOWN = 4_000
"""Characters of what was printed that an error shows: the last ones."""


def failure(
    language: str, outcome: Outcome, written: Sequence[tuple[Stream, str]], *, timeout: float
) -> ToolError:
    """Why a script has no result."""
    if outcome.status == "timeout":
        what = f"{language} script execution timed out: it had {timeout:g} seconds."
    else:
        what = _without_ours(outcome.error or f"The {language} script ended as {outcome.status}.")
    said = printed(written)
    return ToolError(f"{what}\nIt printed:\n{said}" if said else what)


def returned(value: Any) -> Any:
    """What a function has returned, if it is not too much to be told."""
    if (size := len(encode_json(value))) > LARGEST_VALUE:
        raise ToolError(
            f"What the script returns has {size:,} bytes, and may have {LARGEST_VALUE:,}.",
            next_step="Let it return less, or write it to the workspace.",
        )
    return value


def _without_ours(words: str) -> str:
    """A trace without the lines that stand before the script."""
    return "\n".join(line for line in words.split("\n") if f"({ENTRY}:" not in line)


def lines(written: Sequence[tuple[Stream, str]], dropped: int) -> list[str]:
    """What was printed, line by line, as it came."""
    found = "".join(text for _, text in written).splitlines()
    return [*found, f"… and {dropped:,} bytes more"] if dropped else found


def printed(written: Sequence[tuple[Stream, str]]) -> str:
    """The last of what was printed."""
    text = "".join(text for _, text in written).strip()
    return text if len(text) <= SHOWN else f"…{text[-SHOWN:]}"


def program(outcome: Outcome, files: list[dict[str, str]]) -> dict[str, Any]:
    """The result of a program."""
    told: dict[str, Any] = {
        "stdout": outcome.stdout,
        "stderr": outcome.stderr,
        "exitCode": outcome.exit_code or 0,
    }
    if outcome.dropped_bytes:
        told["note"] = f"{outcome.dropped_bytes:,} bytes of its output are left out."
    return told | ({"outputFiles": files} if files else {})
