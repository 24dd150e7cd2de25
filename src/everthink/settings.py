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
from functools import cache, cached_property
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

from .errors import InvalidSettings
from .kinds import (
    KINDS,
    check,
    check_call,
    check_fields,
    check_returned,
    nearest,
    nearest_zone,
    shown,
    with_article,
)

__all__ = [
    "as_settings",
    "check_call",
    "check_fields",
    "check_returned",
    "hooks_of",
    "is_new",
    "is_ours",
    "is_read",
    "meant",
    "near_miss",
    "nearest",
    "nearest_zone",
    "setting",
    "settings_of",
    "shown",
    "slip",
    "snake",
    "uncalled",
    "with_article",
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
        if not cast("Any", kind).__dataclass_params__.frozen:  # may have been changed since
            check_fields(value, kind.__name__)
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
    "chat_stream_stall_timeout_ms": "chat_stream_stall_timeout",
    "concurrency": "message_concurrency",
    "init_state": "initial_state",
    "instruction": "system_prompt",
    "instructions": "system_prompt",
    "llm": "model",
    "max_iterations": "max_steps",
    "max_turns": "max_steps",
    "model_name": "model",
    "models": "model",
    "prompt": "system_prompt",
    "recovery": "chat_recovery",
    "retries": "retry_options",
    "scheduled_tasks": "get_scheduled_tasks",
    "extension": "extensions",
    "skill": "skills",
    "skill_runner": "skill_script_runner",
    "skill_sources": "skills",
    "stall_timeout": "chat_stream_stall_timeout",
    "system": "system_prompt",
    "system_message": "system_prompt",
    "timeout": "model_timeout",
    "timezone": "default_timezone",
    "tools": "get_tools",
}
"""What others call it: values."""
_METHODS_OTHERWISE = {
    "after_step": "on_step_finish",
    "after_tool": "after_tool_call",
    "after_turn": "on_chat_response",
    "before_model_call": "before_step",
    "before_tool": "before_tool_call",
    "before_tools": "before_tool_call",
    "get_instructions": "get_system_prompt",
    "get_llm": "get_model",
    "get_prompt": "get_system_prompt",
    "get_extension": "get_extensions",
    "get_skill": "get_skills",
    "get_skill_runner": "get_skill_script_runner",
    "get_tool": "get_tools",
    "instructions": "get_system_prompt",
    "on_connected": "on_connect",
    "on_disconnect": "on_close",
    "on_fiber_recovery": "on_fiber_recovered",
    "on_finish": "on_chat_response",
    "on_recovery": "on_chat_recovery",
    "on_response": "on_chat_response",
    "on_started": "on_start",
    "on_startup": "on_start",
    "on_state_update": "on_state_changed",
    "on_step_end": "on_step_finish",
    "on_submission": "on_submission_status",
    "on_tool_call": "before_tool_call",
    "on_tool_result": "after_tool_call",
    "on_turn_end": "on_chat_response",
    "on_turn_start": "before_turn",
    "tools": "get_tools",
    "validate_state": "validate_state_change",
}
"""What others call it: methods."""
_LIKEST = {
    "after_message": "on_chat_response",
    "before_message": "before_turn",
    "on_approval": "before_tool_call",
    "on_chat_message": "before_turn",
    "on_delete": "on_close",
    "on_exception": "on_error",
    "on_milestone": "on_progress",
    "before_sub_agent": "on_before_sub_agent",
    "on_run_finish": "on_agent_tool_finish",
    "on_run_start": "on_agent_tool_start",
    "on_sub_agent": "on_before_sub_agent",
    "on_sub_agent_finish": "on_agent_tool_finish",
    "on_sub_agent_start": "on_agent_tool_start",
    "on_open": "on_connect",
    "on_tool_end": "after_tool_call",
    "on_tool_error": "after_tool_call",
    "on_tool_start": "before_tool_call",
    "on_user_message": "before_turn",
}
"""Hooks that do what a method of another name may have been meant for. Too far off to be sure."""
_OF_A_TURN_OTHERWISE = {"max_tokens": "max_output_tokens"}
"""What others call what a turn is given."""
_OF_THE_APP = ("authenticate", "authorize", "on_before_connect", "on_before_request")
"""Functions that the app is given: one for all of its agents."""
_HOOK = re.compile(r"(before|after|on|should|classify|repair|validate)_")
_SOUNDS_CALLED = re.compile(r"(before|after|on)_")
_GIVES = (
    "configure_session",
    "extension_policy",
    "format_agent_tool_input",
    "format_detached_completion",
    "format_detached_milestone",
    "get_agent_tool_output",
    "get_agent_tool_summary",
    "get_capability_prompt",
    "get_extensions",
    "get_skill_script_runner",
    "get_skills",
    "get_default_timezone",
    "get_messengers",
    "get_model",
    "get_scheduled_tasks",
    "get_system_prompt",
)


def hooks_of(cls: type) -> frozenset[str]:
    """The methods of an agent class that are there to be overridden."""
    return _hooks(_ours(cls))


def settings_of(cls: type) -> frozenset[str]:
    """The attributes of an agent class that are there to be set."""
    return _settings(_ours(cls))


@cache
def _hooks(ours: tuple[type, ...]) -> frozenset[str]:
    names = [name for base in ours for name in vars(base)]
    return frozenset(name for name in names if name in ("get_tools", *_GIVES) or _HOOK.match(name))


@cache
def _settings(ours: tuple[type, ...]) -> frozenset[str]:
    declared = (name for base in ours for name in inspect.get_annotations(base))
    return frozenset(name for name in declared if not name.startswith("_"))


def _ours(cls: type) -> tuple[type, ...]:
    """The bases of a class that are everthink's: what others declare is theirs to spell."""
    return tuple(filter(is_ours, cls.__mro__))


def is_ours(cls: type) -> bool:
    """True for a class of everthink itself."""
    return cls.__module__.partition(".")[0] == "everthink"


def slip(name: str, value: Any, cls: type) -> str | None:
    """What to do about a name in the body of `cls` that was meant otherwise; `None` for one of its own."""
    if (ours := meant(name, value, cls)) is not None:
        return f"Did you mean {ours!r}? Otherwise give it another name."
    elsewhere = _elsewhere(snake(name), value, cls)
    return None if elsewhere is None or not is_new(name, cls) or is_read(name, cls) else elsewhere


def _elsewhere(name: str, value: Any, cls: type) -> str | None:
    """Where a name that is none of an agent's belongs: to a turn, or to the app."""
    if name in _OF_THE_APP and callable(value):
        return f"It is an option of the app: App({name}=…). Or give it another name."
    if "before_turn" not in hooks_of(cls):
        return None
    turn = KINDS["TurnConfig"]
    ours = _OF_A_TURN_OTHERWISE.get(name, name)
    if ours not in turn and not callable(value):
        ours = nearest(name, turn, like=0.92)
    if ours not in turn or (callable(value) and not turn[ours].takes(value)):
        return None
    return f"It is one of a turn: return TurnConfig({ours}=…) from before_turn(). Or give it another name."


def meant(name: str, value: Any, cls: type) -> str | None:
    """The hook or setting that a name in the body of `cls` was meant to be; `None` for one of its own.

    Its name in camelCase, another framework's word for it, or a slip: `before_tool_calls`, `max_step`. What
    a method of the class reads or calls is its own, whatever it is called.
    """
    if not is_new(name, cls):
        return None
    ours, hooks, settings = snake(name), hooks_of(cls), settings_of(cls)
    if ours != name and ours in hooks | settings:
        return ours
    # A method of one's own may well be called get_models.
    known, others, like = (
        (hooks, _METHODS_OTHERWISE, 0.92 if _HOOK.match(ours) else 0.95)
        if callable(value)
        else (settings, _OTHERWISE, 0.92)
    )
    found = others.get(ours)
    if found not in hooks | settings:
        found = _slipped(ours, known, like)
    return None if found is None or is_read(name, cls) else found


def near_miss(name: str, value: Any, cls: type) -> str | None:
    """The hook or setting that `self.name = …` was meant to be; `None` for an attribute of its own.

    Slips of the pen only: what others call a setting (`self.tools`) may well be something of one's own. So is
    what the class declares, or reads somewhere.
    """
    if not is_new(name, cls) or name in vars(cls) or name in inspect.get_annotations(cls):
        return None
    ours, hooks, settings = snake(name), hooks_of(cls), settings_of(cls)
    if ours != name and ours in hooks | settings:
        found = ours
    else:
        found = _slipped(ours, hooks if callable(value) else settings, 0.92)
    return None if found is None or _is_loaded(name, cls) else found


def uncalled(name: str, value: Any, cls: type) -> str | None:
    """What to do about a method in the body of `cls` that is called as hooks are, and is none.

    `None` for what the class itself mentions, and for what a decorator or a later class has a use for.
    """
    function: Any = getattr(value, "__func__", value)
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return None
    if not _SOUNDS_CALLED.match(name) or not is_new(name, cls) or name in hooks_of(cls):
        return None
    if getattr(function, "__isabstractmethod__", False) or is_read(name, cls):
        return None
    likest = _LIKEST.get(name)
    near = likest if likest in hooks_of(cls) else nearest(name, hooks_of(cls))
    hint = f"The nearest hook is {near}(). " if near else ""
    return (
        f"{hint}If your own code calls it, give it a name that does not begin with {name.partition('_')[0]}_."
    )


def _slipped(name: str, known: Collection[str], like: float) -> str | None:
    return _run_together(name, known) or nearest(name, known, like=like) or _untwisted(name, known)


def is_new(name: str, cls: type) -> bool:
    """True for a name that no class before this one has or declares."""
    before = cls.__mro__[1:]
    return not name.startswith("_") and not any(
        name in vars(base) or name in inspect.get_annotations(base) for base in before
    )


def _run_together(name: str, known: Collection[str]) -> str | None:
    """The known name of the same letters: `beforeturn`, `SYSTEM_PROMPT`."""
    letters = name.replace("_", "").lower()
    return next((one for one in known if one.replace("_", "") == letters), None)


def _untwisted(name: str, known: Collection[str]) -> str | None:
    """The known name in which two neighbours stand the other way round: `modle`."""
    twists = (f"{name[:i]}{name[i + 1]}{name[i]}{name[i + 2 :]}" for i in range(len(name) - 1))
    return next((twist for twist in twists if twist in known and twist != name), None)


def is_read(name: str, cls: type) -> bool:
    """True when a method of the class, or of a base that is not everthink's, has this name in its code.

    As an attribute (`self.timeout`), or as a text (`self.schedule(60, "after_turn")`).
    """
    return any(name in code.co_names or name in code.co_consts for code in _written(cls))


def _is_loaded(name: str, cls: type) -> bool:
    """The same, where writing it (`self.max_step = 2`) is no use of it."""
    import dis  # for what looks like a slip only

    return any(
        one.argval == name and not one.opname.startswith(("STORE", "DELETE"))
        for code in _written(cls)
        for one in dis.get_instructions(code)
    )


def _written(cls: type) -> Iterator[CodeType]:
    """The code of a class, and of its bases that are not everthink's."""
    theirs = set(cls.__mro__) - set(_ours(cls)) - {object}
    return (code for base in theirs for value in vars(base).values() for code in _codes(value))


def _codes(value: Any) -> Iterator[CodeType]:
    """The code of a function, and of those inside it; decorators are looked through."""
    if isinstance(value, CodeType):
        yield value
        for inner in value.co_consts:
            yield from _codes(inner)
    elif isinstance(value, FunctionType):
        yield from _codes(value.__code__)
    elif isinstance(value, staticmethod | classmethod):
        yield from _codes(cast("Any", value).__func__)
    elif isinstance(value, property):
        yield from _codes(value.fget)
    elif isinstance(value, cached_property):
        yield from _codes(cast("Any", value).func)
    # Looked up without asking the object: some have an answer to every name.
    elif (inside := inspect.getattr_static(value, "__wrapped__", None)) is not None:
        yield from _codes(inside)
