"""Ask a tool's `needs_approval` about one call.

    turn/calls --> needs_approval(...) --> True: a person is asked first

A predicate names what it wants to look at: arguments of the tool by their own names, or the
whole input, or the input and the context. Anything but True or False is an error, because a
forgotten `return` must not wave a call through.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import AgentError
from .context import ToolContext
from .run import run, runs_on_loop
from .signature import place

__all__ = ["ask"]

_CONTEXT_NAMES = ("ctx", "context")


async def ask(
    predicate: Callable[..., Any],
    tool: str,
    input: Mapping[str, Any],
    arguments: Callable[[], Mapping[str, Any]],
    parameters: Iterable[str],
    ctx: ToolContext,
) -> bool:
    """What `predicate` says about this call."""
    given = _fill(predicate, input, arguments, set(parameters), ctx)
    answer = await run(
        tool,
        lambda: predicate(*given.args, **given.kwargs),
        is_async=runs_on_loop(predicate),
        timeout=None,
    )
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
