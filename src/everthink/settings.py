"""Settings as people write them: the object, or a dict with its fields. And names that were meant otherwise.

    class body, hook's return --as_settings--> TurnConfig, ChatRecovery, Retry, …
    class body --misspelt--> the hook or setting that was meant

Pure. What is not understood is refused where it was written, with the nearest name: a setting that nobody
reads is worse than an error.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast

from .errors import InvalidSettings

__all__ = ["as_settings", "hooks_of", "meant", "nearest", "settings_of", "shown", "snake"]

T = TypeVar("T")


def as_settings(kind: type[T], value: Any, where: str) -> T:
    """`value` as a `kind`: itself, or made from a dict. Raises `InvalidSettings` in terms of `where`."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise InvalidSettings(
            f"{where} is {shown(value)}.",
            next_step=f"It takes {_a(kind.__name__)}, a dict with its fields, or None.",
        )
    known = {field.name.rstrip("_"): field.name for field in fields(cast("Any", kind)) if field.init}
    given: dict[str, Any] = {}
    for key, setting in cast("Mapping[Any, Any]", value).items():
        name = known.get(snake(str(key)).rstrip("_"))
        if name is None:
            near = nearest(snake(str(key)), known)
            hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(known)}."
            raise InvalidSettings(f"{where}: {kind.__name__} has no field {key!r}.", next_step=hint)
        given[name] = setting
    return kind(**given)


def shown(value: Any) -> str:
    """A value in a letter: what it is, and its beginning."""
    text = repr(value)
    return f"{text[:60]}{'…' if len(text) > 60 else ''}, {_a(type(value).__name__)}"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"


def snake(name: str) -> str:
    """`maxSteps` is `max_steps`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: "_" + found[1].lower(), name)


def nearest(name: str, known: Collection[str], *, like: float = 0.6) -> str | None:
    """The known name that is most like `name`, if one is like it at all."""
    import difflib  # for letters only

    found = difflib.get_close_matches(name, known, n=1, cutoff=like)
    return found[0] if found else None


_OTHERWISE = {
    "instructions": "system_prompt",
    "get_instructions": "get_system_prompt",
    "tools": "get_tools",
    "chat_stream_stall_timeout_ms": "chat_stream_stall_timeout",
}
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
    names = (name for base in _ours(cls) for name in vars(base))
    return frozenset({"get_tools", *_GIVES, *filter(_HOOK.match, names)})


def settings_of(cls: type) -> frozenset[str]:
    """The attributes of an agent class that are there to be set."""
    declared = (name for base in _ours(cls) for name in inspect.get_annotations(base))
    return frozenset(name for name in declared if not name.startswith("_"))


def _ours(cls: type) -> list[type]:
    """The bases of a class that are everthink's: what others declare is theirs to spell."""
    return [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "everthink"]


def meant(name: str, value: Any, cls: type) -> str | None:
    """The hook or setting of `cls` that a name in a class body was meant to be; `None` for one of its own.

    Its name in camelCase, another framework's word for it, or a slip: `before_tool_calls`, `max_step`.
    """
    if name.startswith("_") or hasattr(cls, name):
        return None
    ours, hooks, settings = snake(name), hooks_of(cls), settings_of(cls)
    if any(name in inspect.get_annotations(base) for base in cls.__mro__):
        return None  # a class before this one declares it
    if ours != name and ours in hooks | settings:
        return ours
    if ours in _OTHERWISE:
        return _OTHERWISE[ours]
    if callable(value):
        # A method of one's own may well be called get_models.
        return nearest(ours, hooks, like=0.92 if _HOOK.match(ours) else 0.95)
    return nearest(ours, settings, like=0.92) or _untwisted(ours, settings)


def _untwisted(name: str, known: Collection[str]) -> str | None:
    """The known name in which two neighbours stand the other way round: `modle`."""
    twists = (f"{name[:i]}{name[i + 1]}{name[i]}{name[i + 2 :]}" for i in range(len(name) - 1))
    return next((twist for twist in twists if twist in known and twist != name), None)
