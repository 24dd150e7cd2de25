"""How a run ended, as a result or as words for the model.

    Outcome --returned--> the value of a function, or what a program has printed
            --refused---> ToolError: what went wrong, with what the script has printed

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from ..errors import ToolError
from ..messages import encode_json
from ..sandbox.port import Outcome, Stream

__all__ = ["ENTRY", "failure", "lines", "plainly", "printed", "program", "returned", "without_place"]

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


def plainly(place: str, value: Any) -> Any:
    """What a script has said, with its own paths where programs have named a folder of this computer."""
    if not place:
        return value
    match value:
        case str():
            named = re.sub(
                re.escape(f"{place}/work") + r"(?=/(?:skill|output|input\.json|context\.json)\b)", "", value
            )
            return named.replace(f"{place}/work", "~").replace(f"{place}/tmp", "/tmp")
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            return {plainly(place, name): plainly(place, one) for name, one in pairs}
        case list():
            return [plainly(place, one) for one in cast("list[Any]", value)]
        case _:
            return value


def without_place(outcome: Outcome) -> Outcome:
    """An outcome that does not say where on this computer its files were."""
    place = outcome.place
    if not place:
        return outcome
    return replace(
        outcome,
        value=plainly(place, outcome.value),
        error=plainly(place, outcome.error),
        stdout=plainly(place, outcome.stdout),
        stderr=plainly(place, outcome.stderr),
        changed={plainly(place, path): _without(place, data) for path, data in outcome.changed.items()},
    )


def _without(place: str, data: bytes) -> bytes:
    try:
        return plainly(place, data.decode()).encode() if place.encode() in data else data
    except UnicodeDecodeError:
        return data


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
