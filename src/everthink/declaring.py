"""The settings of an agent, as they are written: are their names meant so, and do their values make sense?

    class Assistant(Think): ...   --check_settings--> InvalidSettings, where it was written
    self.max_steps = "three"      --check_setting-->  the same, for one agent

Nothing of the class runs to find out. What a property gives is looked at when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any, cast

from .errors import AgentError, InvalidSettings
from .json_values import check_json
from .kinds import KINDS, check
from .runtime.rpc import callable_of
from .runtime.state import NO_STATE
from .settings import is_ours, settings_of, slip
from .tools.tool import Tool

__all__ = ["check_setting", "check_settings"]


def check_settings(cls: type) -> None:
    """Raise `InvalidSettings` for a slip in the body of `cls`, or a setting of another kind."""
    if is_ours(cls):
        return
    for name, value in list(vars(cls).items()):
        if isinstance(value, Tool) or callable_of(cls, name) is not None:
            continue
        if (next_step := slip(name, value, cls)) is not None:
            base = next(filter(is_ours, cls.__mro__)).__name__
            raise InvalidSettings(
                f"{cls.__name__}.{name} is no hook or setting of {base}.", next_step=next_step
            )
    for name in sorted(settings_of(cls)):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if not is_ours(owner):
            _check_value(name, vars(owner)[name], f"{owner.__name__}.{name}")


def check_setting(agent: object, name: str, value: Any) -> None:
    """Raise `InvalidSettings` when `name` is a setting of an agent and may not have this value."""
    if name in KINDS["Think"] and name in settings_of(type(agent)):
        _check_value(name, value, f"{type(agent).__name__}.{name}")


def _check_value(name: str, value: Any, where: str) -> None:
    kind = KINDS["Think"][name]
    if isinstance(value, FunctionType | staticmethod | classmethod):
        raise InvalidSettings(
            f"{where} is a method, and nobody calls it.",
            next_step=f"It takes {kind.words}. To work it out, write @property above the method.",
        )
    if hasattr(cast("Any", type(value)), "__get__"):
        return
    check(kind, value, where)
    try:
        if name == "initial_state" and value is not NO_STATE:
            check_json(value, name)
        elif name in _READ_BY and value is not None and not isinstance(value, bool):
            _reader(name)(value)
    except AgentError as error:
        # Whoever reads it calls it by its name alone, or by that of its class.
        told = error.what.removeprefix(name)
        between = ": " if told == error.what else ""
        raise InvalidSettings(f"{where}{between}{told}", next_step=error.next_step) from None


_READ_BY = {
    "retry_options": ("schedules.callbacks", "defaults_of"),
    "fiber_recovery": ("fibers.values", "fiber_recovery_of"),
    "chat_recovery": ("recovery.incident", "settings_of"),
    "context_overflow": ("turn.overflow", "overflow_of"),
    "media_eviction": ("session.media", "eviction_of"),
    "shorten_old_messages": ("session.row_size", "shortening_of"),
}
"""Who reads a setting that has fields of its own. They are loaded for those who set one."""


def _reader(name: str) -> Callable[[Any], object]:
    module, function = _READ_BY[name]
    return getattr(import_module(f".{module}", __package__), function)
