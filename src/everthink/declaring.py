"""The settings of an agent, as they are written: are their names meant so, and do their values make sense?

    class Assistant(Think): ...   --check_settings--> InvalidSettings, where it was written
    self.max_steps = "three"      --check_setting-->  the same, for one agent
    self.max_step = 3             --check_own-->      the same: nobody would read it
    Assistant.max_step = 3        --check_added-->    the same, when the next agent of the class starts

Nothing of the class runs to find out. What a property gives is looked at when it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any, cast

from .errors import AgentError, InvalidSettings
from .json_values import NO_STATE, check_json
from .kinds import KINDS, check
from .runtime.rpc import check_exposed, exposed_method
from .settings import (
    hooks_of,
    is_new,
    is_ours,
    is_read,
    near_miss,
    settings_of,
    slip,
    snake,
    uncalled,
)
from .surface import chatting
from .tools.tool import Tool

__all__ = ["check_added", "check_own", "check_setting", "check_settings", "size_of"]

log = logging.getLogger("everthink.agent")


def check_settings(cls: type) -> None:
    """Raise `InvalidSettings` for a slip in the body of `cls`, or a setting of another kind."""
    if is_ours(cls):
        return
    for name, value in list(vars(cls).items()):
        if (info := exposed_method(cls, name)) is not None:
            check_exposed(cls, name, value, info)
            continue
        if (what := _of_chats(cls, name, value)) is not None:
            raise InvalidSettings(
                f"{cls.__name__}.{name} is {what}, and {cls.__name__} does not chat.",
                next_step=f"Write `class {cls.__name__}(Think)`; or give it another name, if it is your own.",
            )
        if isinstance(value, Tool):
            continue
        if name == "mcp_servers":
            raise InvalidSettings(
                _none_of_ours(cls, name),
                next_step="Servers that all agents use are the app's: App(…, mcp_servers={…}). One agent adds"
                " its own with add_mcp_server(). Otherwise give it another name.",
            )
        if (next_step := slip(name, value, cls)) is not None:
            raise InvalidSettings(_none_of_ours(cls, name), next_step=next_step)
        if (advice := uncalled(name, value, cls)) is not None:
            log.warning("%s Nobody calls it. %s", _none_of_ours(cls, name, "hook"), advice)
    for name in sorted(settings_of(cls)):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if not is_ours(owner):
            _check_value(name, vars(owner)[name], f"{owner.__name__}.{name}")


def _of_chats(cls: type, name: str, value: Any) -> str | None:
    """What a name in the body of a plain agent would be in one that chats; `None` for its own."""
    chats = chatting()
    if issubclass(cls, chats) or is_read(name, cls):
        return None
    if isinstance(value, Tool):
        return "a tool"
    ours = snake(name)
    if not is_new(name, cls):
        return None
    if ours in hooks_of(chats) - hooks_of(cls):
        return f"{'a hook' if ours == name else f'the hook {ours}'} of Think"
    if ours in settings_of(chats) - settings_of(cls):
        return f"{'a setting' if ours == name else f'the setting {ours}'} of Think"
    return None


def check_added(cls: type, size: int) -> int:
    """Look at a class again when names were added to it since it had this `size_of`. Returns what it has."""
    now = size_of(cls)
    if now != size:
        for base in cls.__mro__:
            if issubclass(base, _agents(cls)):
                check_settings(base)
    return now


def size_of(cls: type) -> int:
    """How many names a class and its bases have."""
    return sum(len(vars(base)) for base in cls.__mro__)


def _agents(cls: type) -> type:
    """The first class of everthink's that `cls` is one of: what every agent is."""
    return [base for base in cls.__mro__ if is_ours(base)][-1]


def check_own(agent: object, name: str, value: Any, own: set[str]) -> None:
    """Raise `InvalidSettings` when a new attribute of an agent was meant to be a setting or hook.

    `own` are the names that were looked at before.
    """
    if name in own or name.startswith("_"):
        return
    cls = type(agent)
    if (near := near_miss(name, value, cls)) is not None:
        raise InvalidSettings(
            _none_of_ours(cls, name), next_step=f"Did you mean {near!r}? Otherwise give it another name."
        )
    own.add(name)


def _none_of_ours(cls: type, name: str, what: str = "hook or setting") -> str:
    base = next(filter(is_ours, cls.__mro__)).__name__
    return f"{cls.__name__}.{name} is no {what} of {base}."


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
    "workspace_bash": ("file_tools.bash", "bash_of"),
    "shorten_old_messages": ("session.row_size", "shortening_of"),
}
"""Who reads a setting that has fields of its own. They are loaded for those who set one."""


def _reader(name: str) -> Callable[[Any], object]:
    module, function = _READ_BY[name]
    return getattr(import_module(f".{module}", __package__), function)
