"""`@exposed`: methods that a connected client may call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast, overload

from ..errors import InvalidSettings
from ..settings import check_call, hooks_of, shown
from ..surface import is_receiver, note_definition, refuse_unknown, yields
from ..tools.tool import Tool

__all__ = [
    "ExposedMethod",
    "Fitting",
    "StreamingResponse",
    "check_exposed",
    "exposed",
    "exposed_method",
    "fitting",
    "has_method",
]

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__everthink_exposed__"


@dataclass(frozen=True, slots=True)
class ExposedMethod:
    """What is known of a method a client may call."""

    description: str | None = None
    streaming: bool = False
    reads: bool = False


@overload
def exposed(fn: F, /) -> F: ...
@overload
def exposed(
    *, description: str | None = None, streaming: bool = False, reads: bool = False
) -> Callable[[F], F]: ...
def exposed(fn: Any = None, /, **options: Any) -> Any:
    """Let clients call this method. With `streaming` it gets a `StreamingResponse` as its first argument.

    `reads` says that it changes nothing: then those who may only read may call it too.
    """

    refuse_unknown(options, ExposedMethod.__dataclass_fields__, "exposed()")
    check_call("@exposed", **options)

    def mark(method: Any) -> Any:
        note_definition(method, 1)
        return _marked(method, **options)

    if fn is None:
        return mark
    note_definition(fn, 1)
    return _marked(fn)


def _marked(
    method: Any, *, description: str | None = None, streaming: bool = False, reads: bool = False
) -> Any:
    if not hasattr(method, "__get__") or isinstance(method, property):
        raise InvalidSettings(
            f"@exposed is given {shown(method)}, in the place of a method.",
            next_step="Decorate a method; options have names: @exposed(description=…).",
        )
    if streaming and yields(method):
        raise InvalidSettings(
            f"{getattr(method, '__qualname__', 'it')} is @exposed(streaming=True) and has a `yield`, so that"
            " calling it runs nothing of it.",
            next_step="Send each piece: stream.send(piece), and at the end stream.end(). The stream is the"
            " first argument after self.",
        )
    setattr(method, _MARK, ExposedMethod(description or method.__doc__, streaming, reads))
    return method


def exposed_method(cls: type, name: str) -> ExposedMethod | None:
    """What is known of the method `name`, if clients may call it; the most derived definition decides.

    Nothing of the agent runs to find out.
    """
    return _info(inspect.getattr_static(cls, name, None))


def _info(found: Any) -> ExposedMethod | None:
    """The mark of a method; below `@tool`, that of the function inside."""
    info = getattr(found, _MARK, None)
    if info is None and isinstance(found, Tool):
        info = getattr(getattr(cast("Any", found), "__wrapped__", None), _MARK, None)
    return info if isinstance(info, ExposedMethod) else None


def check_exposed(cls: type, name: str, written: Any, info: ExposedMethod) -> None:
    """Refuse a method that no client could call, or should. Arguments come in order, after the agent."""
    where = f"{cls.__name__}.{name}"
    if name in hooks_of(cls) or name.startswith("_"):
        what = "a hook, which everthink calls" if name in hooks_of(cls) else "private by its name"
        raise InvalidSettings(
            f"@exposed {where} is {what}, and every client could call it.",
            next_step="Expose a method of your own that does what clients may ask for.",
        )
    function = inspect.unwrap(getattr(written, "__func__", written))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return  # it shows when it is called
    places = [p for p in parameters if p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD]
    rest = any(p.kind is p.VAR_POSITIONAL for p in places)
    if isinstance(written, Tool | FunctionType) and not places:
        raise InvalidSettings(
            f"@exposed {where} has no `self`.", next_step="Write `self` as its first parameter."
        )
    if isinstance(written, Tool | FunctionType) and _lacks_self(cls, places):
        raise InvalidSettings(
            f"@exposed {where} has no `self`: its {places[0].name!r} would get the agent itself.",
            next_step="Write `self` as its first parameter.",
        )
    needed = (0 if isinstance(written, staticmethod) else 1) + info.streaming
    if not rest and len(places) < needed:
        raise InvalidSettings(
            f"@exposed {where} streams, and takes no stream.",
            next_step="Its first parameter after `self` is the StreamingResponse.",
        )
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise InvalidSettings(
                f"@exposed {where} needs {parameter.name!r} by name, and clients give arguments in order.",
                next_step="Leave out the `*`, or give it a default.",
            )


def _lacks_self(cls: type, places: list[inspect.Parameter]) -> bool:
    """True when the first parameter was meant for what a client sends: it has a type, or is the only one."""
    first = places[0]
    if first.kind is first.VAR_POSITIONAL or is_receiver(cls, first.name):
        return False
    return len(places) == 1 or first.annotation is not first.empty


class Fitting(NamedTuple):
    """What a client may send to a method: how many arguments, and what they are called."""

    how_many: str
    names: str


def fitting(method: Any, info: ExposedMethod) -> Fitting:
    """What a client may send to this method of an agent. Of a default only that there is one."""
    try:
        found = list(inspect.signature(method).parameters.values())[info.streaming :]
    except (TypeError, ValueError):
        return Fitting("others", "(…)")
    places = [p for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [f"*{p.name}" for p in found if p.kind is p.VAR_POSITIONAL]
    names = [f"{p.name}{'' if p.default is p.empty else '=…'}" for p in places]
    least = sum(p.default is p.empty for p in places)
    count = (
        f"{least} or more" if rest else str(least) if least == len(places) else f"{least} to {len(places)}"
    )
    return Fitting(count, f"({', '.join([*names, *rest])})")


def has_method(cls: type, name: str) -> bool:
    """True when the class has a method of that name, for anybody. Properties are not asked."""
    found = inspect.getattr_static(cls, name, None)
    return isinstance(found, FunctionType | staticmethod | classmethod)


class StreamingResponse:
    """Where a streaming method sends its pieces. Closed after `end` or `error`; then nothing more is sent."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self.is_closed = False

    def send(self, chunk: Any) -> bool:
        """Send a piece. False when closed."""
        return self._say({"success": True, "done": False, "result": chunk})

    def end(self, final: Any = None) -> bool:
        """Send the last piece and close. False when closed."""
        frame: dict[str, Any] = {"success": True, "done": True}
        if final is not None:
            frame["result"] = final
        said = self._say(frame)
        self.is_closed = True
        return said

    def error(self, message: str) -> bool:
        """Tell that it failed and close. False when closed."""
        said = self._say({"success": False, "error": message})
        self.is_closed = True
        return said

    def _say(self, frame: dict[str, Any]) -> bool:
        if self.is_closed:
            return False
        self._send(frame)
        return True
