"""Ask the functions a tool was given about one call: `needs_approval`, `on_interrupt`.

    turn/calls --> needs_approval(...) --> True: a person is asked first
               --> on_interrupt(...)   --> what became of a call that a crash cut off

Such a function names what it wants to look at: arguments of the tool by their own names, or the
whole input, or the input and the context.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import AgentError
from .context import ToolContext
from .run import run, runs_on_loop
from .signature import place

__all__ = ["REPORT", "RERUN", "ask", "ask_yes_or_no"]

_CONTEXT_NAMES = ("ctx", "context")


class _Answer:
    """What a function may say instead of giving the result."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


RERUN = _Answer("RERUN")
"""Returned by an `on_interrupt` function: it did not happen, run it (again)."""
REPORT = _Answer("REPORT")
"""Returned by an `on_interrupt` function: nobody knows, tell the model so."""


async def ask(
    function: Callable[..., Any],
    tool: str,
    input: Mapping[str, Any],
    arguments: Callable[[], Mapping[str, Any]],
    parameters: Iterable[str],
    ctx: ToolContext,
) -> Any:
    """What `function` says about this call."""
    given = _fill(function, input, arguments, set(parameters), ctx)
    return await run(
        tool,
        lambda: function(*given.args, **given.kwargs),
        is_async=runs_on_loop(function),
        timeout=None,
    )


async def ask_yes_or_no(
    predicate: Callable[..., Any],
    tool: str,
    input: Mapping[str, Any],
    arguments: Callable[[], Mapping[str, Any]],
    parameters: Iterable[str],
    ctx: ToolContext,
) -> bool:
    """What `predicate` says. Anything but True or False is an error: a forgotten `return` must not count."""
    answer = await ask(predicate, tool, input, arguments, parameters, ctx)
    if not isinstance(answer, bool):
        raise AgentError(
            f"needs_approval of tool {tool!r} answered {answer!r}, which is neither True nor False.",
            kept="The tool was not run.",
            next_step=f"Return a bool from {place(predicate)}.",
        )
    return answer


def _fill(
    predicate: Callable[..., Any],
    input: Mapping[str, Any],
    arguments: Callable[[], Mapping[str, Any]],
    parameters: set[str],
    ctx: ToolContext,
) -> inspect.BoundArguments:
    """Decide how `predicate` is called, by the names of its parameters."""
    signature = inspect.signature(predicate)
    wanted = list(signature.parameters.values())
    before: list[Any] = []
    if wanted and wanted[0].name == "self" and "self" not in parameters:
        before.append(ctx.agent)
        wanted = wanted[1:]
    named = [p for p in wanted if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in wanted)
    contexts = {p.name for p in named if _is_context(p) and p.name not in parameters}
    by_name = [p for p in named if p.name not in contexts]
    if (by_name or takes_all) and all(p.name in parameters for p in by_name):
        values = arguments()
        chosen = dict(values) if takes_all else {p.name: values[p.name] for p in by_name if p.name in values}
        return signature.bind_partial(*before, **chosen, **dict.fromkeys(contexts, ctx))
    if contexts:
        whole = [dict(input)] if by_name else []
        return signature.bind_partial(*before, *whole, **dict.fromkeys(contexts, ctx))
    return signature.bind_partial(*before, *[dict(input), ctx][: len(named)])


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    return (
        parameter.name in _CONTEXT_NAMES
        or annotation is ToolContext
        or (isinstance(annotation, str) and "ToolContext" in annotation)
    )
