"""Say to a model what is wrong with the input it wrote, so that its next try fits.

    validation errors --> ToolInputError

Every sentence names the field, what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, cast

from ..errors import ToolInputError

__all__ = ["describe", "explain", "misfit", "not_an_object", "path_text"]

_MOST = 8  # problems told at once
_LONGEST = 300  # characters of one problem, or of a path in it


def explain(
    tool: str, errors: Sequence[Mapping[str, Any]], given: Any, parameters: Sequence[str]
) -> ToolInputError:
    """The error for pydantic's `errors`."""
    problems: dict[tuple[str, str], list[str]] = {}
    for error in errors:
        subject, problem, came = _problem(error, given, parameters)
        told = problems.setdefault((subject, came), [])
        if problem not in told:
            told.append(problem)
    # A union complains once for each of its members: they are alternatives.
    return misfit(
        tool, [f"{subject} {' or '.join(told)}{came}" for (subject, came), told in problems.items()]
    )


def misfit(tool: str, problems: Sequence[str]) -> ToolInputError:
    """The error that lists `problems`."""
    told = [_clean(problem) for problem in problems[:_MOST]]
    if len(problems) > _MOST:
        told.append(f"and {len(problems) - _MOST} more")
    return ToolInputError(
        f"The input of tool {tool!r} does not fit its schema: {'; '.join(told)}.",
        kept="The tool was not run.",
        next_step="Correct the input and call it again.",
    )


def not_an_object(tool: str, given: Any) -> ToolInputError:
    """The error for input that is not a JSON object."""
    return misfit(tool, [f"expected a JSON object, got {describe(given)}"])


def describe(value: Any) -> str:
    """A JSON value in few words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {_short(value)!r}"
        case int() | float():
            return f"the number {_short(str(value))}"
        case dict():
            return f"an object with {_keys(cast('dict[Any, Any]', value))}"
        case list():
            return f"a list of {len(cast('list[Any]', value))}"
        case _:
            return f"a {type(value).__name__}"


def path_text(path: Sequence[str | int]) -> str:
    """`["items", 2, "name"]` as `items[2].name`."""
    text = ""
    for step in path:
        if len(text) > _LONGEST:
            return f"{text[:_LONGEST]}..."
        text += f"[{step}]" if isinstance(step, int) else f".{_short(step)}" if text else _short(step)
    return text


def _problem(error: Mapping[str, Any], given: Any, parameters: Sequence[str]) -> tuple[str, str, str]:
    """What the error is about, what is wrong with it, and what came instead."""
    path, is_key = _real_path(error["loc"], given, missing=error["type"] == "missing")
    where = path_text(path)
    match error["type"]:
        case "missing":
            return where, "is required but missing", ""
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = f" (it takes {', '.join(parameters)})" if len(path) == 1 and parameters else ""
            return where, "is not a known field", known
        case _:
            message = str(error["msg"])
            message = message[:1].lower() + message[1:]
            message = message.removeprefix("input ").removeprefix("value error, ")
            subject = f"a key of {path_text(path[:-1])}" if is_key else where or "the input"
            return subject, message, f" (got {describe(error.get('input'))})"


def _real_path(loc: Sequence[str | int], given: Any, *, missing: bool) -> tuple[list[str | int], bool]:
    """The part of pydantic's location that exists in the input: it also names members of unions."""
    path: list[str | int] = []
    node = given
    is_key = False
    for index, step in enumerate(loc):
        is_last = index == len(loc) - 1
        if (isinstance(node, dict) and step in node) or (
            isinstance(node, list) and isinstance(step, int) and step < len(cast("list[Any]", node))
        ):
            node = cast("Any", node[step])  # pyright: ignore[reportCallIssue, reportArgumentType]
            path.append(step)
        elif step == "[key]" and is_last:
            is_key = True
        elif missing and is_last:
            path.append(step)
    return path, is_key


def _clean(problem: str) -> str:
    """Short, and free of half characters that no encoder takes: parts of it were written by the model."""
    text = problem if len(problem) <= _LONGEST else f"{problem[: _LONGEST - 3]}..."
    return text.encode(errors="replace").decode()


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _keys(value: dict[Any, Any]) -> str:
    if not value:
        return "no keys"
    shown = ", ".join(_short(str(key)) for key in islice(value, 5))
    return f"the keys {shown}{', …' if len(value) > 5 else ''}"
