"""The names of an agent class: which are there to be filled in, and which are not to be taken.

    class body      --check_class--> a hook nobody can call, a method of ours that is gone: told here
    self.x = …      --check_assigned--> the same, for one agent
    self.x, handle.x --MissingAttribute--> the name that was meant

Pure. What everthink's own classes declare is the table: a setting is an annotation, a hook a method that
`settings.hooks_of` knows with the parameters it is given, and every other name is everthink's to use.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from types import FunctionType
from typing import Any, TypeVar, cast

from .errors import InvalidSettings
from .settings import hooks_of, is_ours, nearest, settings_of, shown, snake

__all__ = [
    "HANDLED",
    "MissingAttribute",
    "can_take",
    "chatting",
    "check_assigned",
    "check_class",
    "check_function",
    "check_method",
    "check_words",
    "is_receiver",
    "is_tool",
    "knows_its_options",
    "nearest_method",
    "note_definition",
    "parameters_of",
    "refuse_unknown",
    "refuse_unknown_to",
    "reserved_of",
    "role_of",
    "yields",
]

_MARKED = "__everthink_marked__"
"""In a class body: the functions that `@tool` and `@exposed` stand above, by name."""

HANDLED = "__everthink_handled__"
"""On a method that a handle gives: the id of the agent it reaches."""

_DECLARE = ("everthink.agent", "everthink.chat_hooks", "everthink.think")
"""Where what every agent has is declared. What a sample agent of ours adds is nobody's."""

_INSTEAD = {
    "state": "Begin with `initial_state = …` and change it with `await self.set_state(…)`",
    "name": "An agent has the name it is reached by: app.agent(cls, name)",
    "messages": "Change the conversation with `await self.add_messages(…)` or `clear_messages()`",
}
_PLAIN_HOOKS = ("validate_state_change", "repair_interrupted_tool_part")
"""Hooks whose answer is needed at once: a coroutine would count as a yes."""
_Hook = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])


def reserved_of(cls: type) -> dict[str, Any]:
    """What everthink declares for an agent class, and nobody is to replace: by name, what it is."""
    free = hooks_of(cls) | settings_of(cls)
    return {name: ours for name, ours in _declared(cls).items() if name not in free}


def _declared(cls: type) -> dict[str, Any]:
    bases = [base for base in reversed(cls.__mro__) if base.__module__ in _DECLARE]
    return {name: ours for base in bases for name, ours in vars(base).items() if not name.startswith("_")}


# --- a class body


def check_class(cls: type) -> None:
    """Refuse what a class puts in the place of everthink's own, hooks that cannot be called, and a tool that
    a later definition of the same name took away. Raises `InvalidSettings`."""
    if is_ours(cls):
        return
    hooks, settings = hooks_of(cls), settings_of(cls)
    for name, ours in _declared(cls).items():
        owner = _owner(cls, name)
        if is_ours(owner) or name in settings:
            continue
        written = vars(owner)[name]
        if name in hooks:
            _check_hook(cls, name, written, ours, settings)
        elif not _is_override(written):
            raise _taken(cls, name, written, ours)
    for base in cls.__mro__:
        for name, function in cast("Mapping[str, Any]", vars(base).get(_MARKED, {})).items():
            _check_kept(function, vars(base).get(name))


def _owner(cls: type, name: str) -> type:
    return next(base for base in cls.__mro__ if name in vars(base))


def _is_override(written: Any) -> bool:
    """True for what is marked with `typing.override`: whoever wrote that knows."""
    inner = getattr(written, "fget", None) or getattr(written, "__func__", written)
    return getattr(inner, "__override__", False) is True


def _taken(cls: type, name: str, written: Any, ours: Any) -> InvalidSettings:
    home = next(base.__name__ for base in cls.__mro__ if vars(base).get(name) is ours)
    if is_tool(written):
        rather = _renamed(written, name)
    elif name in _INSTEAD:
        rather = f"{_INSTEAD[name]}; or give yours another name."
    elif callable(written) or hasattr(written, "__get__"):
        rather = "Give it another name, or mark it with @typing.override if it does what ours does."
    else:
        rather = "Give it another name."
    return InvalidSettings(
        f"{cls.__name__}.{name} takes the place of {home}.{name}{_summary(ours)}.",
        next_step=rather,
    )


def _summary(ours: Any) -> str:
    said = re.split(r"[.:;\n]", inspect.getdoc(ours) or "")[0]
    return f" ({said})" if said else ""


def _renamed(written: Any, name: str) -> str:
    what, decorator = ("attribute", "agent_tool") if hasattr(written, "child") else ("method", "@tool")
    return f"Give the {what} another name; {decorator}(name={name!r}) keeps it for the model."


def is_tool(written: Any) -> bool:
    """True for what `@tool` made of a function."""
    inner: object = getattr(written, "__func__", written)
    return hasattr(type(inner), "input_schema")


# --- a hook


def _check_hook(cls: type, name: str, written: Any, ours: _Hook, settings: Iterable[str]) -> None:
    where, given = f"{cls.__name__}.{name}", list(inspect.signature(ours).parameters)[1:]
    example = f"def {name}({', '.join(['self', *given])})"
    if isinstance(written, property | functools.cached_property) or not _can_be_called(written):
        setting = name.removeprefix("get_")
        rather = f", or set `{setting} = …`" if name != setting in settings else ""
        what = "a property" if isinstance(written, property | functools.cached_property) else shown(written)
        raise InvalidSettings(
            f"{where} is {what}, and everthink calls it: it is a hook.",
            next_step=f"Write it as `{example}`{rather}, or leave it out.",
        )
    if is_tool(written):
        raise InvalidSettings(
            f"{where} is a tool, and everthink would call it too: it is the name of a hook.",
            next_step=_renamed(written, name),
        )
    if name in _PLAIN_HOOKS and inspect.iscoroutinefunction(getattr(written, "__func__", written)):
        raise InvalidSettings(
            f"{where} is `async`, and its answer is needed at once.",
            next_step="Write it with `def`, without await.",
        )
    _check_call(cls, name, written, given, may_yield=name == "get_tools")


_RECEIVERS = ("self", "cls", "klass", "this", "me", "agent", "app", "obj", "instance")
"""What people call the object a method belongs to; what begins with `_` is read by nobody."""


def _check_receiver(cls: type, where: str, written: Any, given: Sequence[str], example: str) -> None:
    """Refuse a method whose first parameter was meant for what it is given: it would get the object."""
    inner = getattr(written, "__func__", written)
    if isinstance(written, staticmethod) or not isinstance(inner, FunctionType) or not given:
        return
    parameters = list(inspect.signature(inner).parameters.values())
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not places or (any(p.kind is p.VAR_POSITIONAL for p in parameters) and places[0] not in given):
        return
    first = places[0]
    if first in given or (len(places) == 1 and not is_receiver(cls, first)):
        raise InvalidSettings(
            f"{where}{parameters_of(inner)} has no `self`: its {first!r} would get the object itself.",
            next_step=f"Write it as `{example}`.",
        )


def is_receiver(cls: type, first: str) -> bool:
    """True for a first parameter that is called as the object itself is."""
    return first.startswith("_") or first in (*_RECEIVERS, snake(cls.__name__).lower())


def check_method(cls: type, name: str, written: Any, given: Sequence[str]) -> None:
    """Refuse what stands in the place of a method that is called with what is `given`, and cannot be."""
    where, example = f"{cls.__name__}.{name}", f"def {name}({', '.join(['self', *given])})"
    if isinstance(written, property | functools.cached_property) or not _can_be_called(written):
        what = "a property" if isinstance(written, property | functools.cached_property) else shown(written)
        raise InvalidSettings(f"{where} is {what}.", next_step=f"Write it as `{example}`.")
    _check_call(cls, name, written, given)


def _check_call(cls: type, name: str, written: Any, given: Sequence[str], *, may_yield: bool = False) -> None:
    where, example = f"{cls.__name__}.{name}", f"def {name}({', '.join(['self', *given])})"
    inner = getattr(written, "__func__", written)
    if inspect.isasyncgenfunction(inner) or (inspect.isgeneratorfunction(inner) and not may_yield):
        raise InvalidSettings(
            f"{where} has a `yield`, so that calling it runs nothing of it.", next_step="Use `return`."
        )
    parameters = _parameters(written)
    if parameters is None:
        raise InvalidSettings(f"{where} has no `self`.", next_step=f"Write it as `{example}`.")
    _check_receiver(cls, where, written, given, example)
    _check_given(where, inner, parameters, given, example)


def check_function(where: str, function: Any, given: Sequence[str]) -> None:
    """Refuse what is no function, or one that cannot be called with what it is `given`, or fewer."""
    example = f"{where}({', '.join(given)})"
    if not callable(function):
        raise InvalidSettings(f"{where} is {shown(function)}.", next_step=f"Give a function: {example}.")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return  # it shows when it is called
    _check_given(where, function, parameters, given, example)


def _check_given(
    where: str, function: _Hook, parameters: list[inspect.Parameter], given: Sequence[str], example: str
) -> None:
    if not _fit(parameters, len(given)):
        told = f"only {', '.join(given)}" if given else "nothing"
        raise InvalidSettings(
            f"{where}{parameters_of(function)} cannot be called: it is given {told}.",
            next_step=f"Write it as `{example}`; what else it takes needs a default.",
        )
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for name, gets in zip(places, given, strict=False):
        if name in given and name != gets:
            raise InvalidSettings(
                f"{where}{parameters_of(function)}: its {name!r} would get the {gets}, which comes there.",
                next_step=f"Write it as `{example}`; only what stands at the end may be left out.",
            )


def yields(function: Any) -> bool:
    """True for a function with a `yield`: calling it runs nothing of it."""
    inner = getattr(function, "__func__", function)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def _can_be_called(written: Any) -> bool:
    return callable(written) or hasattr(written, "__get__")


def _parameters(written: Any) -> list[inspect.Parameter] | None:
    """What is left to give once a method has its receiver. `None`: there is no place for one."""
    inner = getattr(written, "__func__", written)
    try:
        parameters = list(inspect.signature(inner).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("given", inspect.Parameter.VAR_POSITIONAL)]  # it shows when it is called
    if isinstance(written, staticmethod) or not isinstance(inner, FunctionType):
        return parameters
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return parameters
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return None
    return parameters[1:]


def parameters_of(function: _Hook) -> str:
    """`(self, turn, *, more)`: a signature without its types, for errors."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def can_take(function: _Hook, count: int) -> bool:
    """True when `function` can be called with at most so many arguments, or cannot be asked."""
    try:
        return _fit(list(inspect.signature(function).parameters.values()), count)
    except (TypeError, ValueError):
        return True


def _fit(parameters: list[inspect.Parameter], count: int) -> bool:
    needed = [
        p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return len(needed) <= count and not any(p.kind is p.KEYWORD_ONLY for p in needed)


# --- two definitions of one name


def note_definition(written: Any, depth: int) -> None:
    """Remember a function that a decorator marks in a class body, `depth` calls up from the decorator's.

    Refuse one whose name is defined there already: the second would replace the first.
    """
    frame = sys._getframe(depth + 1)  # pyright: ignore[reportPrivateUsage]
    function, body = _written(written), frame.f_locals
    if function is None or function.__qualname__ != f"{body.get('__qualname__')}.{function.__name__}":
        return  # not written here, or not in a class
    before = _written(body.get(function.__name__))
    if before is not None and before is not function and before.__module__ != "typing":  # an @overload
        raise _twice(before, function)
    body.setdefault(_MARKED, {})[function.__name__] = function


def _check_kept(marked: FunctionType, now: Any) -> None:
    """A plain method below a `@tool` of the same name leaves no tool."""
    function = _written(now)
    if function is not None and function is not marked and function.__qualname__ == marked.__qualname__:
        raise _twice(marked, function)


def _twice(first: FunctionType, second: FunctionType) -> InvalidSettings:
    lines = f"lines {first.__code__.co_firstlineno} and {second.__code__.co_firstlineno}"
    return InvalidSettings(
        f"{second.__qualname__} is defined twice ({second.__code__.co_filename}, {lines});"
        " the second replaces the first.",
        next_step="Give one of them another name.",
    )


def _written(found: Any) -> FunctionType | None:
    """The function as it was written, inside of what decorators made of it."""
    inner = inspect.unwrap(found)
    return inner if isinstance(inner, FunctionType) else None


# --- one agent


def check_assigned(agent: object, name: str, reserved: Mapping[str, Any]) -> None:
    """Refuse `self.state = …` and its like: what everthink needs of an agent is not to be replaced."""
    cls = type(agent)
    if name == "_home":
        if "_home" in vars(agent):
            raise AttributeError(
                f"{cls.__name__}._home is where everthink keeps this agent. Give yours another name."
            )
    elif name in reserved and is_ours(_owner(cls, name)):
        rather = _INSTEAD.get(name, "Give yours another name")
        raise AttributeError(
            f"{cls.__name__}.{name} is not to be assigned{_summary(reserved[name])}. {rather}."
        )


class MissingAttribute(AttributeError):
    """A name that is not there. Which one was meant is found out when it is read: `hasattr` never does."""

    def __init__(self, cls: type, name: str, known: Callable[[], Iterable[str]]) -> None:
        super().__init__(name=name)
        self._cls, self._known = cls, known

    def __str__(self) -> str:
        name = self.name or ""
        if name == "_home":
            return (
                "This agent was made by hand: it has no name, no storage and no app. Reach it with"
                ' app.agent(cls, "name"); the app makes it.'
            )
        cls = self._cls.__name__
        chats = chatting()
        if not issubclass(self._cls, chats) and hasattr(chats, name):
            return f"{cls} does not chat, so that it has no {name!r}: a subclass of Think has."
        known = [one for one in self._known() if not one.startswith("_")]
        near = None if name.startswith("_") else nearest(name, known, like=0.7)
        return f"{cls} has no attribute {name!r}.{f' Did you mean {near!r}?' if near else ''}"


def chatting() -> type:
    """`Think`, for those of whom it is made."""
    return import_module(".think", __package__).Think


def role_of(agent: object, name: str) -> str | None:
    """What a method is to everthink: a hook, or one of its own. `None` for one that the developer wrote."""
    cls = type(agent)
    if name in hooks_of(cls):
        return "a hook, which everthink calls"
    owner = next((base for base in cls.__mro__ if name in vars(base)), None)
    return "everthink's" if owner is not None and owner.__module__ in _DECLARE else None


def nearest_method(agent: object, name: str) -> str | None:
    """The method of an agent that a text was meant to name."""
    cls = type(agent)
    methods = [one for one in dir(cls) if not one.startswith("_") and callable(getattr(cls, one, None))]
    own = [one for one in methods if not is_ours(_owner(cls, one))]
    return nearest(name, own) or nearest(name, methods, like=0.8)


# --- options


def check_words(where: str, given: Any, known: Collection[str]) -> None:
    """Refuse a word, or one in a list of them, that is none of those `known`."""
    for word in [given] if isinstance(given, str) or not isinstance(given, Iterable) else cast("Any", given):
        if word not in known:
            near = nearest(str(word), known)
            hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(known)}."
            raise InvalidSettings(f"{where} is {shown(word)}, which is none.", next_step=hint)


def refuse_unknown_to(method: _Hook, options: Iterable[str], what: str) -> None:
    """Refuse an option that a method would not take."""
    try:
        known = list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):
        return  # it shows when it is called
    if not any(p.kind is p.VAR_KEYWORD for p in known):
        refuse_unknown(options, [p.name for p in known if p.name != "self"], what)


def refuse_unknown(
    options: Iterable[str], known: Collection[str], what: str, otherwise: Mapping[str, str] | None = None
) -> None:
    """Refuse an option that `what` does not have, with the nearest that it has. `otherwise`: what others call
    some of them."""
    for name in options:
        if name not in known:
            near = (otherwise or {}).get(snake(name)) or nearest(snake(name), known)
            hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(known)}."
            raise InvalidSettings(f"{what} has no option {name!r}.", next_step=hint)


def knows_its_options(*more: str) -> Callable[[F], F]:
    """A function, or a class of settings, that refuses an option which it does not have, with the nearest
    that it has. `more`: those that it takes besides its own."""

    def decorate(made: F) -> F:
        is_class = isinstance(made, type)
        call: Any = cast("Any", made).__init__ if is_class else made
        own = inspect.signature(call).parameters.values()
        known = (*(p.name for p in own if p.name != "self" and p.kind is not p.VAR_KEYWORD), *more)

        @functools.wraps(call)
        def checked(*given: Any, **options: Any) -> Any:
            refuse_unknown(options, known, f"{made.__name__}()")
            return call(*given, **options)

        if not is_class:
            return cast("F", checked)
        cast("Any", made).__init__ = checked
        return cast("F", made)

    return decorate
