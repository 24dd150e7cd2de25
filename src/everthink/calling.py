"""Call what a developer wrote: plain or async, with as many arguments as it takes.

call_hook(agent.before_turn, context) --> before_turn(self) | before_turn(self, turn) | async def …
ask("stop_when", function, steps)     --> what it says, or InvalidSettings when it may not say that
show(agent, "on_chunk", context)      --> nothing: the hook looks on, and an answer of it is told in the log
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from .errors import InvalidSettings
from .kinds import check_returned

__all__ = ["ask", "awaited", "call_hook", "fitted", "show"]

log = logging.getLogger("everthink.agent")

T = TypeVar("T")


async def call_hook(hook: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """Call a hook that may be `def` or `async def`, and may take fewer arguments than there are."""
    return await awaited(hook(*fitted(hook, *args)))


async def awaited(value: T | Awaitable[T]) -> T:
    """What a function returned that may be `def` or `async def`."""
    return await cast("Awaitable[T]", value) if inspect.isawaitable(value) else cast("T", value)


async def ask(name: str, hook: Callable[..., Any], *args: Any) -> Any:
    """What the hook of that name says. Raises `InvalidSettings` when it may not say that."""
    answer = await call_hook(hook, *args)
    check_returned(name, answer)
    return answer


async def show(agent: object, name: str, *args: Any) -> None:
    """Let a hook look on. What it returns is read by nobody, which is told once for its class."""
    answer = await call_hook(getattr(agent, name), *args)
    if answer is not None:
        _tell_unread(type(agent), name, answer)


_TOLD: WeakKeyDictionary[type, set[str]] = WeakKeyDictionary()


def _tell_unread(cls: type, name: str, answer: Any) -> None:
    told = _TOLD.setdefault(cls, set())
    if name in told:
        return
    told.add(name)
    try:
        check_returned(name, answer)
    except InvalidSettings as unread:
        log.error("%s.%s It has no effect.", cls.__name__, unread)


def fitted(hook: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """As many of the arguments as a hook takes."""
    return args[: _taken(hook)]


_TAKEN: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()


def _taken(hook: Callable[..., Any]) -> int | None:
    """How many arguments a hook takes; `None`: as many as there are."""
    written = getattr(hook, "__func__", hook)
    try:
        return _TAKEN[written]
    except (KeyError, TypeError):
        pass
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        return None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    count = None if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(places)
    with contextlib.suppress(TypeError):  # not everything that can be called can be remembered
        _TAKEN[written] = count
    return count
