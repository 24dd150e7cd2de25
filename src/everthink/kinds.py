"""What a setting may be: one table, for class bodies, for constructors and for what hooks return.

    max_steps = "three"   TurnConfig(max_steps="three")   {"maxSteps": "three"}
        --check--> Assistant.max_steps is 'three', a str. It takes a whole number of at least 1.

Data and one function, pure. `tests/shape/test_kinds.py` sees to it that every setting has its kind here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike, fspath
from types import FunctionType
from typing import Any, cast
from unicodedata import category

from .errors import InvalidSettings

__all__ = [
    "CALLS",
    "KINDS",
    "RETURNS",
    "Kind",
    "check",
    "check_call",
    "check_fields",
    "check_options",
    "check_returned",
    "is_dict_of",
    "nearest",
    "nearest_zone",
    "shown",
    "with_article",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """Which values a setting takes: in words, and as a question."""

    words: str
    fits: Callable[[Any], bool]
    known: tuple[str, ...] = ()
    """The words it takes, among which a slip is looked for."""
    may_be_none: bool = False
    finds: Callable[[str], str | None] | None = None
    """Looks for a slip where the words are too many to be listed."""
    advice: Callable[[Any], str | None] | None = None
    """What to write in the place of a value that is nearly right."""

    def __or__(self, other: Kind) -> Kind:
        return Kind(
            f"{self.words}, or {other.words}",
            lambda value: self.fits(value) or other.fits(value),
            self.known + other.known,
        )

    def takes(self, value: Any) -> bool:
        """True when a setting of this kind may have this value."""
        return self.may_be_none if value is None else self.fits(value)


def check(kind: Kind, value: Any, where: str) -> None:
    """Raise `InvalidSettings` when `where` may not have this value: what it is, and what it takes."""
    if kind.takes(value):
        return
    near = (kind.finds or _among(kind.known))(value) if isinstance(value, str) else None
    takes = f"It takes {kind.words}{', or None' if kind.may_be_none else ''}."
    rather = f"Did you mean {near!r}?" if near else kind.advice(value) if kind.advice else None
    raise InvalidSettings(f"{where} is {shown(value)}.", next_step=f"{takes} {rather}" if rather else takes)


def _among(known: Collection[str]) -> Callable[[str], str | None]:
    return lambda value: nearest(value, known)


def check_fields(settings: object, of: str) -> None:
    """Check every field of a settings object that is described as `of` in the table."""
    for name, kind in KINDS[of].items():
        value = getattr(settings, name)
        if value is not None or not kind.may_be_none:  # most are not given
            check(kind, value, f"{of}.{name}")


def check_call(call: str, **given: Any) -> None:
    """Check what a method is given, as the table of calls has it."""
    for name, value in given.items():
        check(CALLS[call][name], value, f"{call}: {name}")


def check_options(of: str, options: Mapping[str, Kind], **given: Any) -> None:
    """Check what `of` is given, as a table beside it has it."""
    for name, value in given.items():
        check(options[name], value, f"{of}: {name}")


def check_returned(hook: str, value: Any) -> None:
    """Raise `InvalidSettings` when a hook returned what it may not: which hook, what it was, what it may."""
    kind = RETURNS[hook]
    if not kind.takes(value):
        rather = f"Return {kind.words}{', or None' if kind.may_be_none else ''}."
        raise InvalidSettings(
            f"{hook} returned {shown(value)}.", next_step=f"{rather}{_NOT_SO.get(hook, '')}"
        )


def shown(value: Any) -> str:
    """A value in an error: what it is, and its beginning."""
    text = repr(value)
    return f"{text[:60]}{'…' if len(text) > 60 else ''}, {with_article(type(value).__name__)}"


def with_article(noun: str) -> str:
    """`an Agent`, `a Think`."""
    return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"


def nearest(name: str, known: Collection[str], *, like: float = 0.6) -> str | None:
    """The known name that is most like `name`, if one is like it at all."""
    import difflib  # for the words of an error only

    found = difflib.get_close_matches(name, known, n=1, cutoff=like)
    return found[0] if found else None


# --- the kinds


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_one_of(value: Any, *classes: str) -> bool:
    """Whether it is an object of such a class. They stand above this module, so it knows their names only."""
    return any(base.__name__ in classes for base in type(value).__mro__)


def _is_agent_class(value: Any) -> bool:
    return isinstance(value, type) and any(base.__name__ == "Agent" for base in value.__mro__)


def _is_many(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def _are_texts(value: Any) -> bool:
    return _is_many(value) and all(isinstance(one, str) for one in value)


def _is_model(value: Any) -> bool:
    if isinstance(value, str):
        return True
    asked = getattr(value, "stream", None) or getattr(value, "request_stream", None)
    return callable(asked) and not isinstance(value, type)


def _are_messages(value: Any) -> bool:
    # By their few types: this may be a long conversation.
    kinds: set[type] = {type(one) for one in value} if _is_many(value) else {str}
    return all(any(base.__name__ in _MESSAGES for base in kind.__mro__) for kind in kinds)


def _is_json(value: Any) -> bool:
    import msgspec  # for those who say it

    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_output(value: Any) -> bool:
    if isinstance(value, type | Mapping) or _is_one_of(value, "OutputSchema", "Structured"):
        return True
    if isinstance(value, str | int | float | list | tuple | FunctionType):
        return False
    marks = ("model_fields", "__dataclass_fields__", "__struct_fields__")  # of the class it is an object of
    return not any(hasattr(type(cast("object", value)), mark) for mark in marks)


def is_dict_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether it is a dict by texts whose values fit."""

    def is_so(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        given = cast("Mapping[Any, Any]", value)
        return all(isinstance(path, str) and fits(one) for path, one in given.items())

    return is_so


def _zones() -> dict[str, str]:
    import zoneinfo  # for those who name one

    return {name.lower(): name for name in zoneinfo.available_timezones()}


def _is_zone(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in _zones()


def nearest_zone(name: str) -> str | None:
    """The time zone that was meant: a slip, or the name of its city alone."""
    zones, asked = _zones(), name.lower()
    city = next((zone for zone in sorted(zones) if zone.rpartition("/")[2] == asked), None)
    near = city or nearest(asked, zones, like=0.75)
    return zones[near] if near else None


_MESSAGES = ("SystemMessage", "UserMessage", "AssistantMessage", "ToolMessage")

ANYTHING = Kind("anything", lambda value: True, may_be_none=True)
YES_NO = Kind("True or False", lambda value: isinstance(value, bool))
TEXT = Kind("text", lambda value: isinstance(value, str))
SOME_TEXT = Kind("text with something in it", lambda value: isinstance(value, str) and bool(value.strip()))


def _rather_a_list(value: Any) -> str | None:
    return f"One text is a list of its letters: write [{value[:60]!r}]." if isinstance(value, str) else None


TEXTS = Kind(
    'a list of texts: ["one", "two"]',
    _are_texts,
    advice=_rather_a_list,
)
FUNCTION = Kind("a function", callable)
CLASSES = Kind(
    "a tuple of agent classes: (Researcher, Writer)",
    lambda value: isinstance(value, tuple | list) and all(map(_is_agent_class, cast("Any", value))),
)
DICT = Kind("a dict", lambda value: isinstance(value, Mapping))
NUMBER = Kind("a number", _is_number)
WHOLE = Kind("a whole number", _is_whole)
SECONDS = Kind("a number of seconds, 0 or more", lambda value: _is_number(value) and value >= 0)
MODEL = Kind('the name of a model ("provider:name", "demo"), or a model object', _is_model)
ZONE = Kind('the name of a time zone, such as "Europe/London"', _is_zone, finds=nearest_zone)
MESSAGES = Kind("a list of model messages, such as those in `turn.messages`", _are_messages)
NOTHING = Kind("nothing", lambda value: False, may_be_none=True)
ERROR = Kind("an exception", lambda value: isinstance(value, BaseException))
INPUT = Kind(
    "a dict, the whole input of the tool",
    lambda value: isinstance(value, Mapping) or _is_one_of(value, "Unset"),  # not given: the model's own
)
DICT_OF_TEXTS = Kind("a dict of texts", is_dict_of(lambda value: isinstance(value, str)))
STOP_WHEN = Kind(
    'a function of the steps, such as has_tool_call("done") or step_count_is(3), or a list of them',
    lambda value: callable(value) or (_is_many(value) and all(callable(one) for one in value)),
)
OUTPUT = Kind(
    "a pydantic model (the class, not one of its objects), a type, or a JSON schema as a dict", _is_output
)


_ADAPTER = ["verify", "parse", "post", "edit", "find", "typing", "withdraw", "notify", "fetch", "close"]
_ADAPTER_SAYS = ("provider", "user_name", "capabilities", "limits")


def _missing(adapter: Any) -> list[str]:
    """What an adapter of a messenger lacks."""
    methods = [name for name in _ADAPTER if not _has(adapter, name)]
    return methods + [name for name in _ADAPTER_SAYS if not hasattr(adapter, name)]


def _has(value: Any, *methods: str) -> bool:
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)


def _is_skill_source(value: Any) -> bool:
    return _has(value, "list", "load") and isinstance(getattr(value, "id", None), str)


SKILLS = Kind(
    'a source of skills or a list of them: [skills.from_directory("skills", beside=__file__)]',
    lambda value: _is_skill_source(value) or (_is_many(value) and all(map(_is_skill_source, value))),
)


def _is_extension(value: Any) -> bool:
    if isinstance(value, type):
        return any(base.__name__ == "TrustedExtension" for base in value.__mro__)
    return isinstance(value, Mapping) or _is_one_of(value, "Extension", "InstalledExtension")


EXTENSIONS = Kind(
    'a list of extensions: [installed("words"), Extension({"name": "sums", "version": "1.0.0"}, source)]',
    lambda value: _is_many(value) and all(map(_is_extension, value)),
)


def _rather_an_object(value: Any) -> str | None:
    """What somebody wrote who meant a machine, or a sandbox."""
    if isinstance(value, type):
        return f"Write {value.__name__}()."
    return "Write await strongest()." if hasattr(value, "cr_code") else None


MACHINE = Kind(
    "a machine, such as Bubblewrap()", lambda value: _has(value, "spawn"), advice=_rather_an_object
)
SANDBOX = Kind("a sandbox, such as BashSandbox()", lambda value: _has(value, "run"), advice=_rather_an_object)
SANDBOX_LIMITS = Kind(
    "Limits of a sandbox: Limits(memory=…) of everthink.sandbox.port",
    lambda value: _is_one_of(value, "Limits") and hasattr(value, "tree_bytes"),  # those of an app have none
)


INSTANT = Kind("an aware datetime", lambda value: isinstance(value, datetime))
AWARE = Kind(
    "an aware datetime: one with a tzinfo",
    lambda value: isinstance(value, datetime) and value.utcoffset() is not None,
)


def id_of(what: str, field: str) -> Kind:
    """The text that names a thing, where the thing itself is often given."""
    return Kind(f"text: the `{field}` of {what}", lambda value: isinstance(value, str))


def at_least(least: int) -> Kind:
    """Whole numbers from `least` on."""
    return Kind(f"a whole number of at least {least}", lambda value: _is_whole(value) and value >= least)


def between(low: float, high: float) -> Kind:
    """Numbers from `low` to `high`."""
    return Kind(f"a number from {low} to {high}", lambda value: _is_number(value) and low <= value <= high)


def above(low: float) -> Kind:
    """Numbers greater than `low`."""
    return Kind(
        f"a number above {low}", lambda value: _is_number(value) and low < value and math.isfinite(value)
    )


def words(*known: str) -> Kind:
    """One of these words."""
    return Kind(", ".join(map(repr, known)), lambda value: isinstance(value, str) and value in known, known)


def each_of(*known: str) -> Kind:
    """A list of some of these words."""

    def rather(value: Any) -> str | None:
        if isinstance(value, str):
            return _rather_a_list(nearest(value, known) or value)
        wrong = [one for one in value if one not in known] if _are_texts(value) else []
        near = nearest(wrong[0], known) if wrong else None
        return f"For {wrong[0]!r}, did you mean {near!r}?" if near else None

    return Kind(
        f"a list of some of {', '.join(map(repr, known))}",
        lambda value: _are_texts(value) and all(one in known for one in value),
        finds=lambda value: None,  # a word alone is no list: what is said of it is said by `rather`
        advice=rather,
    )


def many(kind: Kind) -> Kind:
    """A list of such values."""
    return Kind("a list of those", lambda value: _is_many(value) and all(map(kind.fits, value)))


def made_of(name: str) -> Kind:
    """A settings object of that class, or a dict with its fields."""
    return Kind(
        f"{with_article(name)} or a dict with its fields",
        lambda value: isinstance(value, Mapping) or _is_one_of(value, name),
    )


def optional(kind: Kind) -> Kind:
    """The same, or `None`."""
    return replace(kind, may_be_none=True)


def _optional(fields: dict[str, Kind]) -> dict[str, Kind]:
    return {name: optional(kind) for name, kind in fields.items()}


# --- the table

_AGENT = {
    "initial_state": ANYTHING,  # that it is JSON is seen where it is written, with the path to what is not
    "hung_schedule_timeout": SECONDS,
    "max_alarm_memory_limit_strikes": at_least(1),
    "retry_options": optional(made_of("Retry")),
    "fiber_recovery": made_of("FiberRecovery"),
    "sub_agents": CLASSES,
    "max_concurrent_agent_tools": at_least(0) | Kind("math.inf", lambda value: value == math.inf),
    "agent_tool_reattach_no_progress_timeout": SECONDS,
    "agent_tool_reattach_max_window": SECONDS,
}

_USED = {
    "approval": words("never", "destructive", "always") | FUNCTION,
    "tools": optional(TEXTS),
    "timeout": above(0),
    "total_timeout": above(0),
}
"""How the tools of an MCP server are used."""

_FILES = ("stat", "read_file_bytes", "write_file", "write_file_bytes", "read_dir", "glob", "mkdir", "rm")


def _is_place(value: Any) -> bool:
    verbs = ("apply", "list", "scan", "stream")
    return not isinstance(value, type) and all(callable(getattr(value, verb, None)) for verb in verbs)


def _rather_a_place(value: Any) -> str | None:
    """What somebody wrote who meant a place for files."""
    if isinstance(value, str | PathLike):
        return f"Write DiskFiles({fspath(cast('PathLike[str]', value))!r})."
    if isinstance(value, type):
        return f"Write {value.__name__}(…)."
    if not isinstance(value, Mapping):
        return None
    given = cast("Mapping[Any, Any]", value)
    wrong = next(((path, one) for path, one in given.items() if not _is_place(one)), None)
    rather = None if wrong is None else _rather_a_place(wrong[1])
    return rather and wrong and f"At {wrong[0]!r}: {rather[0].lower()}{rather[1:]}"


def _rather_a_workspace(value: Any) -> str | None:
    """The same for the workspace of a class."""
    if value is None:
        return "To offer the model no files: include_workspace_tools = False."
    if isinstance(value, str | PathLike):
        return f"Write Workspace(DiskFiles({fspath(cast('PathLike[str]', value))!r}))."
    if isinstance(value, type):
        return f"Write {value.__name__}()."
    if _is_place(value):
        return f"Write Workspace({type(value).__name__}(…))."
    missing = [name for name in _FILES if not hasattr(value, name)]
    return f"It lacks {', '.join(missing)}." if len(missing) < len(_FILES) else None


KINDS: dict[str, dict[str, Kind]] = {
    "Agent": _AGENT,
    "Think": {
        **_AGENT,
        "model": optional(MODEL),
        "system_prompt": TEXT,
        "capability_prompt": optional(YES_NO | TEXT),
        "max_steps": at_least(1),
        "send_reasoning": YES_NO,
        "model_timeout": optional(SECONDS),
        "chat_stream_stall_timeout": SECONDS,
        "chat_recovery": optional(YES_NO | made_of("ChatRecovery")),
        "context_overflow": optional(made_of("ContextOverflow")),
        "hydration_byte_budget": NUMBER,
        "media_eviction": YES_NO | made_of("MediaEviction"),
        "shorten_old_messages": YES_NO | made_of("Shortening"),
        "message_concurrency": words("queue", "latest", "merge", "drop", "debounce")
        | Kind("Debounce(seconds)", lambda value: _is_one_of(value, "Debounce")),
        "trust_client_history": YES_NO,
        "workspace": Kind(
            f"a Workspace, or an object with {', '.join(_FILES[:-1])} and {_FILES[-1]}",
            lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in _FILES),
            advice=_rather_a_workspace,
        ),
        "include_workspace_tools": YES_NO,
        "workspace_bash": YES_NO | made_of("BashOptions"),
        "skills": SKILLS,
        "skill_script_runner": optional(
            Kind("an object with a method run(request): skills.runner(…)", lambda value: _has(value, "run"))
        ),
        "messengers": Kind(
            'a dict of messengers by their ids: {"telegram": telegram_messenger(…)}',
            is_dict_of(lambda value: _is_one_of(value, "MessengerDefinition")),
        ),
        "extensions": EXTENSIONS,
        "hook_timeout": above(0),
        "include_mcp_tools": YES_NO,
        "wait_for_mcp_connections": YES_NO | SECONDS,
        "default_timezone": optional(ZONE),
    },
    "TurnConfig": _optional(
        {
            "model": MODEL,
            "system": TEXT,
            "instructions": TEXT,
            "messages": MESSAGES,
            "tools": ANYTHING,  # read where tools are gathered
            "active_tools": TEXTS,
            "tool_choice": TEXT | DICT,
            "max_steps": at_least(1),
            "stop_when": STOP_WHEN,
            "send_reasoning": YES_NO,
            "chat_stream_stall_timeout": SECONDS,
            "output": OUTPUT,
            "max_output_tokens": at_least(1),
            "temperature": NUMBER,
            "top_p": NUMBER,
            "top_k": WHOLE,
            "presence_penalty": NUMBER,
            "frequency_penalty": NUMBER,
            "stop_sequences": TEXTS,
            "seed": WHOLE,
            "max_retries": at_least(0),
            "timeout": SECONDS | made_of("Timeouts"),
            "headers": DICT_OF_TEXTS,
            "provider_options": DICT,
            "telemetry": DICT,
            "experimental_telemetry": DICT,
            "experimental_transform": FUNCTION,
            "repair_tool_call": FUNCTION,
        }
    ),
    "StepConfig": _optional(
        {
            "model": MODEL,
            "tool_choice": TEXT | DICT,
            "active_tools": TEXTS,
            "system": TEXT,
            "messages": MESSAGES,
            "context": ANYTHING,
            "provider_options": DICT,
        }
    ),
    "Timeouts": _optional({"total": SECONDS, "step": SECONDS, "chunk": SECONDS}),
    "Allow": {"input": INPUT},
    "Block": {"reason": optional(TEXT)},
    "Substitute": {"output": ANYTHING, "input": ANYTHING},
    "RecoveryDecision": {"persist": YES_NO, "continue_": YES_NO},
    # Numbers out of bounds are moved to the bound: recovery goes on in any case.
    "ChatRecovery": {
        "max_attempts": optional(NUMBER),
        "no_progress_timeout": optional(NUMBER),
        "stable_timeout": optional(NUMBER),
        "max_recovery_work": optional(NUMBER),
        "terminal_message": TEXT,
        "should_keep_recovering": optional(FUNCTION),
        "on_exhausted": optional(FUNCTION),
    },
    "ContextOverflow": {
        "reactive": YES_NO,
        "max_retries": at_least(0),
        "proactive": optional(made_of("Proactive")),
    },
    "Proactive": {"max_input_tokens": NUMBER, "headroom": between(0, 1), "max_compactions": WHOLE},
    "HttpServer": {
        **_USED,
        "url": TEXT,
        "transport": words("auto", "streamable-http", "sse"),
        "headers": DICT_OF_TEXTS,
    },
    "StdioServer": {
        **_USED,
        "command": SOME_TEXT,
        "args": TEXTS,
        "env": DICT_OF_TEXTS,
        "inherit": TEXTS,
        "cwd": optional(TEXT),
    },
    "LocalServer": {**_USED, "server": ANYTHING},
    "Detached": {
        "on_finish": optional(TEXT | FUNCTION),
        "notify": YES_NO | SOME_TEXT,
        "max_budget": optional(above(0)),
        "no_progress_budget": optional(above(0)),
        "on_milestones": TEXTS,
        "milestone_mode": words("narrate", "react"),
    },
    "MediaEviction": {
        "keep_recent_messages": WHOLE,
        "min_part_bytes": at_least(1),
        "externalize_to_workspace": YES_NO,
        "max_rows_per_pass": at_least(1),
    },
    "BashOptions": {
        "timeout": above(0),
        "network": YES_NO,
        "max_workspace_files": at_least(1),
        "max_workspace_file_bytes": at_least(1),
        "max_output_bytes": at_least(1),
    },
    "Shortening": {
        "keep_recent_messages": at_least(0),
        "max_output_chars": at_least(1),
        "max_text_chars": at_least(1),
    },
    "Retry": _optional({"max_attempts": at_least(1), "base_delay": above(0), "max_delay": above(0)}),
    "FiberRecovery": {"scan_deadline": SECONDS, "max_age": SECONDS},
    "ScheduledTask": {
        "schedule": TEXT,
        "prompt": optional(SOME_TEXT | FUNCTION),
        "handler": optional(FUNCTION | TEXT),
        "timezone": optional(TEXT),
        "retry": ANYTHING,  # read where timers are
        "metadata": optional(DICT),
    },
    "MessengerDefinition": {
        "messenger": Kind(
            "an adapter, such as those of everthink.messengers.telegram",
            lambda value: not _missing(value),
            advice=lambda value: f"It has no {', '.join(_missing(value))}.",
        ),
        "verify_webhook": optional(YES_NO | Kind("a function of the request", callable)),
        "adapter_name": optional(SOME_TEXT),
        "path": optional(TEXT),  # more is said of it with the messenger's id
        "respond_to": each_of("direct-message", "mention", "subscribed-thread", "action"),
        "subscribe_on_mention": YES_NO,
        "conversation": words("thread", "self", "agent")
        | Kind("a function of the messenger's context", callable),
        "delivery": Kind("a DeliveryPolicy", lambda value: _is_one_of(value, "DeliveryPolicy")),
        "speaker_label": optional(Kind("a function of the author", callable)),
        "commands": each_of("stop", "new"),
        "approvers": optional(
            Kind(
                "a list of the platform's ids of people (no names, no @), one at least",
                lambda value: TEXTS.takes(value) and value and not any(one.startswith("@") for one in value),
            )
        ),
        "fetch_media": each_of("image", "audio", "video", "application", "text"),
        "burst": Kind("seconds, 60 at most", lambda value: SECONDS.takes(value) and value <= 60),
        "answer_bots": YES_NO,
    },
    "DeliveryPolicy": {
        "visible_soft_limit": optional(at_least(1)),
        "split_text": optional(FUNCTION),
        "empty_response_text": SOME_TEXT,
        "error_response_text": SOME_TEXT,
        "interrupted_response_text": SOME_TEXT,
        "on_uncertain": words("repeat", "skip"),
        "give_up_after": above(0),
        "max_attempts": at_least(1),
    },
    "BlockOptions": {"description": ANYTHING, "max_tokens": ANYTHING, "provider": ANYTHING},  # they say more
}

_FIBER_ID = id_of("a FiberInspection", "fiber_id")
_RUN_ID = Kind(
    "text of 1 to 512 characters with something in it and no control character",
    lambda value: (
        isinstance(value, str)
        and bool(value.strip())
        and len(value) <= 512
        and not any(category(letter) in ("Cc", "Cs") for letter in value)
    ),
)
_SHOWN = Kind("a dict of JSON values", lambda value: isinstance(value, Mapping) and _is_json(value))
_SUBMISSION_ID = id_of("a Submission", "submission_id")

_SERVER = id_of("an McpServer", "id` or `name")
_STATE = words("not-connected", "connecting", "discovering", "ready", "failed", "authenticating")
_SERVERS = _optional({"id": TEXT | TEXTS, "name": TEXT | TEXTS, "state": _STATE | many(_STATE)})

_ASKED = optional(id_of("the part's approval", "id"))
_PLAY = Kind(
    'plays one after the other, as in ScriptedModel(says("Hi."), says("Bye.")), or functions that return one',
    lambda value: callable(value) or _is_one_of(value, "Play"),
)

_PLACE = Kind(
    "a place for files, such as DiskFiles or MemoryFiles (not a Workspace)", _is_place, advice=_rather_a_place
)


CALLS: dict[str, dict[str, Kind]] = {
    "Workspace": _optional(
        {
            "files": _PLACE,
            "limits": Kind("a WorkspaceLimits", lambda value: _is_one_of(value, "WorkspaceLimits")),
            "objects": Kind("a store of obstore, such as S3Store", lambda v: not isinstance(v, str | type)),
            "prefix": TEXT,
            "spill_from": at_least(1),
            "on_change": Kind("a function", lambda value: callable(value) and not isinstance(value, type)),
        }
    ),
    "runner": {
        "timeout": above(0),
        "network": YES_NO
        | Kind("a list of hosts", _are_texts)
        | Kind("a Rules", lambda value: _is_one_of(value, "Rules")),
        "workspace": optional(words("none", "read", "read-write")),
        "workspace_instance": optional(
            Kind(
                "a workspace: agent.workspace, or an object with its methods",
                lambda value: (
                    not isinstance(value, type)
                    and all(hasattr(value, name) for name in ("read_file", "read_dir", "glob", "stat"))
                ),
            )
        ),
        "machine": optional(MACHINE),
        "python": optional(SOME_TEXT),
        "limits": optional(SANDBOX_LIMITS),
    },
    "MountedFiles": {
        "mounts": Kind(
            f"a dict of paths, each with {_PLACE.words}", is_dict_of(_PLACE.fits), advice=_rather_a_place
        ),
    },
    "ReadOnly": {"files": _PLACE},
    "DiskFiles": {
        "root": Kind(
            "the path of a directory", lambda value: isinstance(value, str | PathLike) and value != ""
        ),
        "most_bytes": at_least(1),
    },
    "MemoryFiles": {
        "files": optional(
            Kind("a dict of paths and texts or bytes", is_dict_of(lambda v: isinstance(v, str | bytes)))
        ),
    },
    "restore": {"seq": at_least(0)},
    "read_file_bytes": {"start": at_least(0), "length": optional(at_least(0))},
    "tool": _optional({"description": TEXT, "title": TEXT, "strict": YES_NO}),
    "@exposed": {"description": optional(TEXT), "streaming": YES_NO, "reads": YES_NO},
    "connect": {
        "server": Kind("an address, as text: http://host:port", lambda value: isinstance(value, str)),
        "agent": optional(
            Kind("a class of agents, or its name in addresses", lambda value: isinstance(value, str | type))
        ),
        "name": SOME_TEXT,
        "patience": optional(SECONDS),
    },
    "has_tool_call": {"name": TEXT},
    "step_count_is": {"count": at_least(1)},
    "compact_after": {"threshold": at_least(1), "token_counter": optional(FUNCTION)},
    "create_compact_function": {"summarize": FUNCTION, "token_counter": optional(FUNCTION)},
    "delete_messages": {"ids": Kind('a list of message ids: ["m1"]', _are_texts)},
    "session.search": {"query": TEXT, "limit": WHOLE},
    "get_schedule": {"id": id_of("a Schedule", "id")},
    "cancel_schedule": {"id": id_of("a Schedule", "id")},
    "list_schedules": {
        "id": optional(id_of("a Schedule", "id")),
        "start": optional(INSTANT),
        "end": optional(INSTANT),
    },
    "get_queue": {"id": id_of("a Job", "id")},
    "dequeue": {"id": id_of("a Job", "id")},
    "retry": {"fn": FUNCTION, "should_retry": optional(FUNCTION)},
    "start_fiber": {"fiber_id": optional(TEXT), "idempotency_key": optional(TEXT)},
    "inspect_fiber": {"fiber_id": _FIBER_ID},
    "cancel_fiber": {"fiber_id": _FIBER_ID},
    "list_fibers": {"limit": WHOLE},
    "delete_fibers": {"settled_before": optional(AWARE), "limit": WHOLE},
    "chat": {"channel": optional(TEXT)},
    "save_messages": {"channel": optional(TEXT)},
    "submit_messages": {
        "submission_id": optional(SOME_TEXT),
        "idempotency_key": optional(SOME_TEXT),
        "channel": optional(TEXT),
    },
    "inspect_submission": {"submission_id": _SUBMISSION_ID},
    "wait_for_submission": {"submission_id": _SUBMISSION_ID},
    "cancel_submission": {"submission_id": _SUBMISSION_ID},
    "delete_submission": {"submission_id": _SUBMISSION_ID},
    "list_submissions": {"limit": WHOLE},
    "delete_submissions": {"completed_before": optional(AWARE), "limit": WHOLE},
    "wait_until_stable": {"timeout": optional(NUMBER)},
    "apply_tool_result": {"tool_call_id": id_of("a call", "tool_call_id"), "asked": _ASKED},
    "ScriptedModel": {"play": _PLAY},
    "ScriptedModel.add": {"play": _PLAY},
    "says": {"text": TEXT},
    "calls": {
        "name": Kind('the name of a tool, as text: calls("weather")', lambda value: isinstance(value, str)),
        "input": optional(
            Kind(
                'a dict; or give the arguments by name: calls("weather", city="Paris")',
                lambda value: isinstance(value, Mapping),
            )
        ),
    },
    "waits": {
        "gate": Kind(
            "an asyncio.Event, or a function that returns something to await",
            lambda value: callable(value) or callable(getattr(value, "wait", None)),
        )
    },
    "run_agent_tool": {
        "run_id": optional(_RUN_ID),
        "parent_tool_call_id": optional(TEXT),
        "signal": optional(Kind("an AbortSignal", lambda value: _is_one_of(value, "AbortSignal"))),
        "input_preview": optional(TEXT),
        "display": optional(_SHOWN),
        "display_order": WHOLE,
    },
    "agent_tool": {
        "description": SOME_TEXT,
        "name": optional(SOME_TEXT),
        "display_name": optional(SOME_TEXT),
        "icon": optional(TEXT),
        "display": optional(_SHOWN),
    },
    "clear_agent_tool_runs": {"older_than": optional(AWARE)},
    "cancel_agent_tool": {"run_id": id_of("an AgentToolRun", "run_id")},
    "report_progress": {
        "fraction": optional(
            Kind("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
        ),
        "message": optional(TEXT),
        "phase": optional(TEXT),
        "milestone": optional(SOME_TEXT),
        "persist": YES_NO,
    },
    "apply_tool_approval": {"tool_call_id": id_of("a call", "tool_call_id"), "asked": _ASKED},
    "add_mcp_server": {
        "name": SOME_TEXT,
        "url": TEXT,
        "id": optional(TEXT),
        "callback_host": optional(SOME_TEXT),
        "callback_path": optional(SOME_TEXT),
        "client_id": optional(SOME_TEXT),
        "client_secret": optional(SOME_TEXT),
        "scope": optional(SOME_TEXT),
    },
    "remove_mcp_server": {"id": id_of("an McpServer", "id")},
    "list_mcp_servers": _SERVERS,
    "get_mcp_servers": _SERVERS,
    "call_mcp_tool": {"server": _SERVER, "tool": SOME_TEXT, "input": optional(DICT)},
    "get_mcp_prompt": {"server": _SERVER, "name": SOME_TEXT, "arguments": optional(DICT_OF_TEXTS)},
    "read_mcp_resource": {"server": _SERVER, "uri": SOME_TEXT},
}
"""What methods of an agent are given, where another kind of it would fail far from here, or do nothing."""

_LOOKING_ON = {
    "on_agent_tool_start": "",
    "on_agent_tool_finish": " The run is over.",
    "on_progress": "",
    "after_tool_call": " To answer in the place of a tool, return Substitute(…) from before_tool_call.",
    "on_chat_response": " The answer is stored already.",
    "on_chunk": " What is said is shown as it is.",
    "on_close": "",
    "on_connect": ' To refuse somebody, use App(authorize=…), or connection.close(4003, "why").',
    "on_error": "",
    "on_message": " To answer, use connection.send(…).",
    "on_state_changed": " To refuse a state, raise in validate_state_change.",
    "on_step_finish": " To change a step, return StepConfig(…) from before_step; stop_when ends a turn.",
    "on_submission_status": "",
}
"""Hooks that only look on, and what to do instead of returning something."""

RETURNS: dict[str, Kind] = {
    **dict.fromkeys(_LOOKING_ON, NOTHING),
    "validate_state_change": NOTHING,
    "should_connection_be_readonly": optional(YES_NO),
    "should_send_protocol_messages": optional(YES_NO),
    "on_chat_error": optional(TEXT | ERROR),
    "classify_chat_error": optional(TEXT),
    "should_keep_recovering": optional(YES_NO),
    "should_retry": optional(YES_NO),
    "stop_when": YES_NO,
}
"""What hooks and functions may return, where it is one value and no settings."""

_NOT_SO = {**_LOOKING_ON, "validate_state_change": " To refuse the state, raise."}
"""What is done otherwise than by returning it."""
