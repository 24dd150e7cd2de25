"""Read the function behind a tool: who receives it, what it takes, where it stands.

    def --signature--> typed_input --JSON schema--> the model

Nothing here knows pydantic, so importing it is cheap. What can be refused without knowing
the types is refused at once; names in annotations may be looked up again later, because a
method can mention the class it is written in.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from ..errors import ToolDefinitionError
from .context import ToolContext

__all__ = [
    "Kind",
    "Signature",
    "definition_of",
    "enclosing_names",
    "is_context",
    "looks_like_context",
    "read_signature",
    "refuse",
    "takes",
]

Kind = Literal["function", "method", "classmethod"]

_CO_OPTIMIZED = inspect.CO_OPTIMIZED


@dataclass
class Signature:
    """A function that can become a tool, its receiver and already filled parameters left out."""

    fn: Callable[..., Any]
    kind: Kind
    parameters: list[inspect.Parameter]
    extra: inspect.Parameter | None
    """The `**kwargs`, if any."""

    reserved: frozenset[str] = frozenset()
    """Names that are filled in already: the receiver, and what a partial holds."""

    names: dict[str, Any] = field(default_factory=dict[str, Any])
    """What annotations may mention besides the module's globals. Emptied once the types are known."""

    @property
    def name(self) -> str:
        """The function's own name."""
        inner = _plain_function(self.fn)
        return type(self.fn).__name__ if inner.__name__ == "__call__" else inner.__name__

    @property
    def docstring(self) -> str | None:
        """The function's own docstring; for an object that can be called, its class's counts too."""
        inner = _plain_function(self.fn)
        return inner.__doc__ or (type(self.fn).__doc__ if inner.__name__ == "__call__" else None)

    def hints(self, owner: type | None = None) -> dict[str, Any]:
        """The type of every parameter. Raises `NameError` when an annotation names what is not there yet."""
        where = _plain_function(self.fn)
        globals_ = cast("dict[str, Any]", getattr(where, "__globals__", {}))
        names = dict(self.names)
        if "ToolContext" not in globals_:
            # Users often import it for type checkers only.
            names.setdefault("ToolContext", ToolContext)
        if owner is not None:
            names |= {owner.__name__: owner} | {k: v for k, v in vars(owner).items() if isinstance(v, type)}
        found: dict[str, Any] = {}
        for parameter in [*self.parameters, *([self.extra] if self.extra else [])]:
            if parameter.annotation is parameter.empty:
                found[parameter.name] = Any
                continue
            # One at a time, and never the return type: that one may be for type checkers only.
            holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
            try:
                hint = get_type_hints(holder, globals_, names, include_extras=True)[parameter.name]
            except NameError:
                raise
            except Exception as error:
                raise refuse(
                    self.fn,
                    f"the annotation of parameter {parameter.name!r} cannot be read: {error}",
                    "Annotate it with a type.",
                ) from error
            found[parameter.name] = hint
        return found


def read_signature(fn: Callable[..., Any], *, names: Mapping[str, Any] | None = None) -> Signature:
    """Look at `fn`, refusing what a model cannot fill in."""
    kind: Kind = "function"
    if isinstance(fn, classmethod):
        fn, kind = cast("Any", fn).__func__, "classmethod"
    elif isinstance(fn, staticmethod):
        fn = cast("Any", fn).__func__
    elif _is_written_in_a_class(fn):
        kind = "method"
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise refuse(fn, "it has no signature to read", "Wrap it in a function of your own.") from error
    reserved: set[str] = set()
    if kind != "function":
        first = parameters[0] if parameters else None
        if first is not None and first.kind is not first.KEYWORD_ONLY and _is_receiver(first):
            reserved.add(first.name)
            parameters = parameters[1:]
        elif kind == "method":
            kind = "function"  # a static method decorated from the inside
    # What a partial has filled in is not for the model to see or change.
    given: dict[str, Any] = cast("Any", fn).keywords if isinstance(cast("Any", fn), functools.partial) else {}
    reserved.update(given)
    taken = [p for p in parameters if p.name not in given]
    for parameter in taken:
        _check(fn, parameter)
    extra = next((p for p in taken if p.kind is p.VAR_KEYWORD), None)
    given_by_model = [p for p in taken if p is not extra]
    return Signature(fn, kind, given_by_model, extra, frozenset(reserved), dict(names or {}))


def is_context(hint: Any) -> bool:
    """True for `ToolContext`, also inside `Optional` and `Annotated`."""
    origin = get_origin(hint)
    if origin is Annotated:
        return is_context(get_args(hint)[0])
    if origin is Union or origin is types.UnionType:
        rest = [arg for arg in get_args(hint) if arg is not type(None)]
        return len(rest) == 1 and is_context(rest[0])
    return isinstance(hint, type) and issubclass(hint, ToolContext)


def enclosing_names(depth: int) -> dict[str, Any]:
    """The local names around a decorated function: its class bodies and the function they stand in."""
    frame: types.FrameType | None = sys._getframe(depth + 1)  # pyright: ignore[reportPrivateUsage]
    scopes: list[Mapping[str, Any]] = []
    while frame is not None and frame.f_locals is not frame.f_globals:
        scopes.append(frame.f_locals)
        if frame.f_code.co_flags & _CO_OPTIMIZED:  # a function; what called it is no scope of ours
            break
        frame = frame.f_back
    names: dict[str, Any] = {}
    for scope in reversed(scopes):
        # A method called `list` must not hide the type from the annotations below it.
        names.update({k: v for k, v in scope.items() if isinstance(v, type) or not hasattr(v, "__get__")})
    return names


def looks_like_context(parameter: inspect.Parameter) -> bool:
    """True for a parameter that is called or annotated as the context; its type need not be known yet."""
    return parameter.name in ("ctx", "context") or ToolContext.__name__ in str(parameter.annotation)


def takes(fn: Callable[..., Any], count: int, *, unread: bool = False) -> bool:
    """True when `fn` can be called with so many positional arguments; `unread` when it has no signature."""
    try:
        inspect.signature(fn).bind(*[None] * count)
    except ValueError:
        return unread
    except TypeError:
        return False
    return True


def definition_of(fn: Callable[..., Any] | None) -> str:
    """`name (file:line)` of a function, for errors."""
    plain = _plain_function(fn)
    name = getattr(plain, "__qualname__", None) or repr(fn)
    code = getattr(plain, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else str(name)


def refuse(fn: Callable[..., Any] | None, why: str, next_step: str) -> ToolDefinitionError:
    """The error for whoever wrote `fn`."""
    return ToolDefinitionError(f"{definition_of(fn)} cannot be a tool: {why}.", next_step=next_step)


def _check(fn: Callable[..., Any], parameter: inspect.Parameter) -> None:
    name = parameter.name
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise refuse(
            fn,
            f"parameter {name!r} is positional-only, and models give arguments by name",
            "Remove the `/` from the signature.",
        )
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise refuse(
            fn,
            f"`*{name}` has no name a model could use",
            f"Take a list instead: `{name}: list[str]`.",
        )
    if parameter.annotation is parameter.empty and name in ("self", "cls"):
        raise refuse(
            fn,
            f"it takes {name!r} and is not written in a class",
            "Write it in the body of the class. A function outside of one takes `ctx: ToolContext`; "
            "`ctx.agent` is the agent.",
        )
    if parameter.annotation is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
        wanted = "ToolContext" if name in ("ctx", "context") else "str"
        raise refuse(
            fn,
            f"parameter {name!r} has no type, so no schema can be made for it",
            f"Annotate it, for example `{name}: {wanted}`.",
        )


def _is_receiver(parameter: inspect.Parameter) -> bool:
    return parameter.name in ("self", "cls") or parameter.annotation is parameter.empty


def _is_written_in_a_class(fn: Callable[..., Any]) -> bool:
    if not isinstance(fn, types.FunctionType):
        return False
    outer = fn.__qualname__.rpartition(".")[0]
    return bool(outer) and not outer.endswith("<locals>")


def _plain_function(fn: Any) -> Any:
    """The function inside partials, bound methods and wrappers, where globals and code are."""
    while True:
        if isinstance(fn, functools.partial):
            fn = cast("Any", fn).func
        elif isinstance(fn, (types.MethodType, staticmethod, classmethod)):
            fn = cast("Any", fn).__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif hasattr(fn, "__code__") or isinstance(fn, type) or not callable(fn):
            return fn
        else:
            inner = cast("Any", type(cast("Any", fn))).__call__
            if not hasattr(inner, "__code__"):
                return fn
            fn = inner
