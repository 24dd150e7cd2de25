"""Settings as people write them: the object, or a dict with its fields. And names that were meant otherwise.

    class body, hook's return --as_settings--> TurnConfig, ChatRecovery, Retry, …      their values: kinds.py
    class body --slip--> the hook or setting that was meant

Pure. What is not understood is refused where it was written, with the nearest name: a setting that nobody
reads is worse than an error.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

from .errors import InvalidSettings
from .kinds import KINDS, check, check_fields, nearest, shown, with_article

__all__ = [
    "as_settings",
    "check_fields",
    "hooks_of",
    "is_ours",
    "meant",
    "nearest",
    "setting",
    "settings_of",
    "shown",
    "slip",
    "snake",
]

T = TypeVar("T")


def as_settings(kind: type[T], value: Any, where: str) -> T:
    """`value` as a `kind`: itself, or made from a dict. Raises `InvalidSettings` in terms of `where`."""
    if not isinstance(value, kind) and not isinstance(value, Mapping):
        raise InvalidSettings(
            f"{where} is {shown(value)}.",
            next_step=f"It takes {with_article(kind.__name__)}, a dict with its fields, or None.",
        )
    try:
        if not isinstance(value, kind):
            return kind(**_fields_of(kind, cast("Mapping[Any, Any]", value)))
        check_fields(value, kind.__name__)  # somebody may have changed it since it was made
        return value
    except InvalidSettings as error:
        raise InvalidSettings(f"{where}: {error.what}", next_step=error.next_step) from None


def _fields_of(kind: type, written: Mapping[Any, Any]) -> dict[str, Any]:
    """A dict with the names that the fields of `kind` have. Raises for one that is none, or is missing."""
    known = {field.name.rstrip("_"): field for field in fields(cast("Any", kind)) if field.init}
    given: dict[str, Any] = {}
    for key, setting in written.items():
        field = known.get(snake(str(key)).rstrip("_"))
        if field is None:
            near = nearest(snake(str(key)), known)
            hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(known)}."
            raise InvalidSettings(f"{kind.__name__} has no field {key!r}.", next_step=hint)
        given[field.name] = setting
    for field in known.values():
        if field.name not in given and field.default is MISSING and field.default_factory is MISSING:
            raise InvalidSettings(f"{kind.__name__} needs its field {field.name!r}, which is not there.")
    return given


def setting(agent: object, name: str) -> Any:
    """A setting of an agent as it is now. Raises `InvalidSettings` when it is of another kind.

    Those of a class are checked where it is written; a property, or code, may have given it another since.
    """
    value = getattr(agent, name)
    check(KINDS["Think"][name], value, f"{type(agent).__name__}.{name}")
    return value


def snake(name: str) -> str:
    """`maxSteps` is `max_steps`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: "_" + found[1].lower(), name)


# --- names

_OTHERWISE = {
    "instruction": "system_prompt",
    "instructions": "system_prompt",
    "prompt": "system_prompt",
    "system": "system_prompt",
    "system_message": "system_prompt",
    "get_instructions": "get_system_prompt",
    "llm": "model",
    "model_name": "model",
    "models": "model",
    "tool": "get_tools",
    "tools": "get_tools",
    "max_iterations": "max_steps",
    "max_turns": "max_steps",
    "timeout": "model_timeout",
    "chat_stream_stall_timeout_ms": "chat_stream_stall_timeout",
    "stall_timeout": "chat_stream_stall_timeout",
    "scheduled_tasks": "get_scheduled_tasks",
    "timezone": "default_timezone",
}
"""What others call it."""
_SAID_BY_METHODS = ("instructions", "get_instructions", "tools")
"""Those of them that are taken for a slip as a method, too."""
_HOOK = re.compile(r"(before|after|on|should|classify|repair|validate)_")
_GIVES = (
    "configure_session",
    "get_capability_prompt",
    "get_default_timezone",
    "get_model",
    "get_scheduled_tasks",
    "get_system_prompt",
)


def hooks_of(cls: type) -> frozenset[str]:
    """The methods of an agent class that are there to be overridden."""
    names = [name for base in _ours(cls) for name in vars(base)]
    return frozenset({name for name in names if name in ("get_tools", *_GIVES) or _HOOK.match(name)})


def settings_of(cls: type) -> frozenset[str]:
    """The attributes of an agent class that are there to be set."""
    declared = (name for base in _ours(cls) for name in inspect.get_annotations(base))
    return frozenset(name for name in declared if not name.startswith("_"))


def _ours(cls: type) -> list[type]:
    """The bases of a class that are everthink's: what others declare is theirs to spell."""
    return list(filter(is_ours, cls.__mro__))


def is_ours(cls: type) -> bool:
    """True for a class of everthink itself."""
    return cls.__module__.partition(".")[0] == "everthink"


def slip(name: str, value: Any, cls: type) -> str | None:
    """What to do about a name in the body of `cls` that was meant otherwise; `None` for one of its own."""
    if (ours := meant(name, value, cls)) is not None:
        return f"Did you mean {ours!r}? Otherwise give it another name."
    ours = snake(name)
    kind = KINDS["TurnConfig"].get(ours)
    if kind is None or not _is_new(name, cls) or "before_turn" not in hooks_of(cls):
        return None
    if _is_read(name, cls) or (callable(value) and not kind.takes(value)):
        return None
    return f"It is one of a turn: return TurnConfig({ours}=…) from before_turn(). Or give it another name."


def meant(name: str, value: Any, cls: type) -> str | None:
    """The hook or setting that a name in the body of `cls` was meant to be; `None` for one of its own.

    Its name in camelCase, another framework's word for it, or a slip: `before_tool_calls`, `max_step`. What
    is no method and is read in the class is its own, whatever it is called.
    """
    if not _is_new(name, cls):
        return None
    ours, hooks, settings = snake(name), hooks_of(cls), settings_of(cls)
    if ours != name and ours in hooks | settings:
        return ours
    if (not callable(value) or ours in _SAID_BY_METHODS) and _is_read(name, cls):
        return None
    other = _OTHERWISE.get(ours)
    if other in hooks | settings and (not callable(value) or ours in _SAID_BY_METHODS):
        return other
    if callable(value):
        # A method of one's own may well be called get_models.
        return nearest(ours, hooks, like=0.92 if _HOOK.match(ours) else 0.95)
    return nearest(ours, settings, like=0.92) or _untwisted(ours, settings)


def _is_new(name: str, cls: type) -> bool:
    """True for a name that no class before this one has or declares."""
    before = cls.__mro__[1:]
    return not name.startswith("_") and not any(
        name in vars(base) or name in inspect.get_annotations(base) for base in before
    )


def _untwisted(name: str, known: Collection[str]) -> str | None:
    """The known name in which two neighbours stand the other way round: `modle`."""
    twists = (f"{name[:i]}{name[i + 1]}{name[i]}{name[i + 2 :]}" for i in range(len(name) - 1))
    return next((twist for twist in twists if twist in known and twist != name), None)


def _is_read(name: str, cls: type) -> bool:
    """True when a method of the class, or of a base that is not everthink's, has this name in its code."""
    theirs = set(cls.__mro__) - set(_ours(cls)) - {object}
    bodies = (value for base in theirs for value in vars(base).values())
    return any(name in code.co_names for value in bodies for code in _codes(value))


def _codes(value: Any) -> Iterator[CodeType]:
    """The code of a function, and of those inside it; decorators are looked through."""
    if isinstance(value, CodeType):
        yield value
        for inner in value.co_consts:
            yield from _codes(inner)
    elif isinstance(value, FunctionType):
        yield from _codes(value.__code__)
    elif isinstance(value, property):
        yield from _codes(value.fget)
    elif isinstance(value, cached_property):
        yield from _codes(cast("Any", value).func)
    # Looked up without asking the object: some have an answer to every name.
    elif (inside := inspect.getattr_static(value, "__wrapped__", None)) is not None:
        yield from _codes(inside)
