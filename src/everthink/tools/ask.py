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
from ..settings import nearest
from .context import ToolContext
from .run import run, runs_on_loop
from .signature import definition_of, looks_like_context

__all__ = ["REPORT", "RERUN", "ask", "ask_yes_or_no", "why_not"]

_WHOLE = ("input", "inputs", "args", "arguments", "call", "data")
"""What the whole input is usually called: no slip of the pen."""


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
    given = _fill(function, input, arguments, parameters, ctx)
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
            next_step=f"Return a bool from {definition_of(predicate)}.",
        )
    return answer


def why_not(function: Callable[..., Any], parameters: Iterable[str]) -> str | None:
    """Why `function` cannot be asked about calls with these `parameters`; `None` when it can."""
    try:
        asked = _Asked(function, parameters)
    except (TypeError, ValueError):
        return "has no signature to read"
    strangers = [p.name for p in asked.others if p.default is p.empty]
    like = 0.6 if asked.by_name else 0.8  # alone, it may also be somebody's word for the whole input
    for name in strangers:
        near = None if name in _WHOLE else nearest(name, asked.parameters, like=like)
        if near is not None:
            return f"takes {name!r}, and the tool has no such parameter: did you mean {near!r}?"
    if strangers and asked.by_name:
        return f"takes {strangers[0]!r}, and the tool has no such parameter"
    if len(strangers) > (1 if asked.contexts else 2):
        return f"takes {', '.join(strangers)}, and is given the whole input and the context"
    return None


class _Asked:
    """The parameters of a function that is asked, by what they are given."""

    def __init__(self, function: Callable[..., Any], parameters: Iterable[str]) -> None:
        self.signature = inspect.signature(function)
        self.parameters = list(parameters)
        wanted = list(self.signature.parameters.values())
        self.wants_agent = bool(wanted) and wanted[0].name == "self" and "self" not in self.parameters
        wanted = wanted[1:] if self.wants_agent else wanted
        named = [p for p in wanted if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        self.takes_all = any(p.kind is p.VAR_KEYWORD for p in wanted)
        self.by_name = [p.name for p in named if p.name in self.parameters]
        self.contexts = {p.name for p in named if looks_like_context(p) and p.name not in self.parameters}
        self.others = [p for p in named if p.name not in self.by_name and p.name not in self.contexts]
        """What is neither: the whole input, then the context."""


def _fill(
    predicate: Callable[..., Any],
    input: Mapping[str, Any],
    arguments: Callable[[], Mapping[str, Any]],
    parameters: Iterable[str],
    ctx: ToolContext,
) -> inspect.BoundArguments:
    """Decide how `predicate` is called, by the names of its parameters."""
    asked = _Asked(predicate, parameters)
    before: list[Any] = [ctx.agent] if asked.wants_agent else []
    given: dict[str, Any] = dict.fromkeys(asked.contexts, ctx)
    # What has a default and is no parameter of the tool keeps it: `lambda amount, limit=100: …`.
    needed = [p for p in asked.others if p.default is p.empty]
    if (asked.by_name or asked.takes_all) and not needed:
        values = arguments()
        given.update(values if asked.takes_all else {k: values[k] for k in asked.by_name if k in values})
    else:
        for parameter, value in zip(needed or asked.others[:1], [dict(input), ctx], strict=False):
            if parameter.kind is parameter.POSITIONAL_ONLY:
                before.append(value)
            else:
                given[parameter.name] = value
    return asked.signature.bind_partial(*before, **given)
