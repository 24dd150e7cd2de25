"""The conversation that is played at every crash point, read from a YAML file.

    steps:
      - say: What is the weather in Paris?
      - answer_tool: {name: locate, output: Lisbon}
      - approve: true
      - submit: {text: Write the report., key: report-1}
      - schedule: {in: 60, prompt: Say good morning.}
      - advance: 60
      - regenerate: true

Scalars are read as text, so that `no` and `1.10` stay what they are. What makes no sense is told as a
error that names the step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from ...errors import AgentError

__all__ = [
    "Advance",
    "AnswerTool",
    "Approve",
    "Regenerate",
    "Say",
    "Schedule",
    "Script",
    "Step",
    "Submit",
    "Wait",
    "read_script",
    "script_from",
]

Until = Literal["idle", "accepted"]
"""When the next step begins: once the agent rests, or once it has accepted this one."""


@dataclass(frozen=True, slots=True)
class Say:
    """A person sends a message."""

    text: str
    until: Until = "idle"


@dataclass(frozen=True, slots=True)
class AnswerTool:
    """The browser answers a call of a client tool."""

    name: str
    output: Any
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Approve:
    """A person answers a call that asks first. Without a `name`: whichever does."""

    approved: bool
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Submit:
    """Code submits a message, once per `key`."""

    text: str
    key: str
    until: Until = "idle"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Code schedules a prompt, or a method of the agent, in so many seconds."""

    seconds: float
    prompt: str | None = None
    call: str | None = None
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Advance:
    """The agent's clock moves on by so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Regenerate:
    """A person asks for another answer to the last message."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Until the agent rests."""


Step = Say | AnswerTool | Approve | Submit | Schedule | Advance | Regenerate | Wait


@dataclass(frozen=True, slots=True)
class Script:
    """A conversation."""

    steps: tuple[Step, ...]
    client_tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    room: str = "crashtest"
    """The name of the agent."""


def read_script(path: str | os.PathLike[str]) -> Script:
    """Read a script file."""
    place = Path(path)
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise AgentError(f"The script {place} cannot be read: {said}.", next_step=_EXAMPLE) from error
    try:
        # The loader that makes nothing but text, lists and mappings.
        value = yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise AgentError(f"The script {place} is not YAML: {error}", next_step=_EXAMPLE) from error
    return script_from(value, name=str(place))


def script_from(value: Any, *, name: str = "the script") -> Script:
    """A script from what YAML says: a list of steps, or a mapping with `steps`."""
    whole: Any = {"steps": cast("list[Any]", value)} if isinstance(value, list) else value
    given = _mapping(whole, f"{name} is no list of steps")
    _only(given, {"steps", "client_tools", "room"}, name)
    steps = given.get("steps")
    if not isinstance(steps, list) or not steps:
        raise AgentError(f"{name} has no steps.", next_step=_EXAMPLE)
    tools = given.get("client_tools", [])
    if not isinstance(tools, list):
        raise AgentError(f"{name}: client_tools is no list of tools.", next_step=_EXAMPLE)
    return Script(
        tuple(_step(step, f"{name}, step {n}") for n, step in enumerate(cast("list[Any]", steps), 1)),
        [dict(_mapping(tool, f"{name}: a client tool is no mapping")) for tool in cast("list[Any]", tools)],
        str(given.get("room") or "crashtest"),
    )


_EXAMPLE = 'A script is a YAML list of steps, the simplest being "- say: Hello". See docs/durability.md.'


def _step(value: Any, where: str) -> Step:
    given = dict(_mapping(value, f"{where} is no mapping such as 'say: Hello'"))
    until = _until(given.pop("wait", "idle"), where) if len(given) > 1 else "idle"
    if len(given) != 1:
        raise AgentError(f"{where} does more than one thing: {', '.join(given)}.", next_step=_EXAMPLE)
    ((verb, what),) = given.items()
    make = _VERBS.get(verb)
    if make is None:
        raise AgentError(f"{where}: there is no step {verb!r}.", next_step=f"There are: {', '.join(_VERBS)}.")
    if until != "idle" and verb not in ("say", "submit"):
        raise AgentError(f"{where}: only say and submit can be left to themselves.", next_step=_EXAMPLE)
    return make(what, where, until)


def _say(what: Any, where: str, until: Until) -> Step:
    return Say(_text(what, where, "say"), until)


def _answer(what: Any, where: str, until: Until) -> Step:
    given = _mapping(what, f"{where}: answer_tool needs a name and an output")
    _only(given, {"name", "output", "error"}, where)
    failed = "error" in given
    return AnswerTool(
        _text(given.get("name"), where, "name"), given.get("error", given.get("output")), failed
    )


def _approve(what: Any, where: str, until: Until) -> Step:
    if not isinstance(what, dict):
        return Approve(_flag(what, where))
    given = _mapping(cast("Any", what), where)
    _only(given, {"name", "approved"}, where)
    return Approve(_flag(given.get("approved", "true"), where), _text(given.get("name"), where, "name"))


def _submit(what: Any, where: str, until: Until) -> Step:
    given = _mapping({"text": what} if isinstance(what, str) else what, f"{where}: submit needs a text")
    _only(given, {"text", "key"}, where)
    text = _text(given.get("text"), where, "text")
    return Submit(text, str(given.get("key") or where.rpartition(", ")[2]), until)


def _schedule(what: Any, where: str, until: Until) -> Step:
    given = _mapping(what, f"{where}: schedule needs `in` and a prompt")
    _only(given, {"in", "prompt", "call", "with"}, where)
    if ("prompt" in given) == ("call" in given):
        raise AgentError(f"{where}: schedule takes a prompt or a call, one of them.", next_step=_EXAMPLE)
    return Schedule(
        _seconds(given.get("in"), where), given.get("prompt"), given.get("call"), given.get("with")
    )


def _advance(what: Any, where: str, until: Until) -> Step:
    return Advance(_seconds(what, where))


def _regenerate(what: Any, where: str, until: Until) -> Step:
    if not _flag(what, where):
        raise AgentError(f"{where}: write `regenerate: true`, or leave it out.")
    return Regenerate()


def _wait(what: Any, where: str, until: Until) -> Step:
    if what != "idle":
        raise AgentError(f"{where}: one can wait until the agent is `idle`, not {what!r}.")
    return Wait()


_VERBS = {
    "say": _say,
    "answer_tool": _answer,
    "approve": _approve,
    "submit": _submit,
    "schedule": _schedule,
    "advance": _advance,
    "regenerate": _regenerate,
    "wait": _wait,
}


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise AgentError(f"{what}.", next_step=_EXAMPLE)
    return cast("dict[str, Any]", value)


def _only(given: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(given) - known):
        raise AgentError(
            f"{where}: {', '.join(unknown)} means nothing here.",
            next_step=f"Known: {', '.join(sorted(known))}.",
        )


def _text(value: Any, where: str, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise AgentError(f"{where}: {what} needs a text.", next_step=_EXAMPLE)
    return value


def _flag(value: Any, where: str) -> bool:
    answers = {"true": True, "yes": True, "false": False, "no": False}
    found = answers.get(str(value).lower())
    if found is None:
        raise AgentError(f"{where}: {value!r} is neither true nor false.", next_step=_EXAMPLE)
    return found


def _seconds(value: Any, where: str) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise AgentError(f"{where}: {value!r} is no number of seconds.", next_step=_EXAMPLE)
    return seconds


def _until(value: Any, where: str) -> Until:
    if value not in ("idle", "accepted"):
        raise AgentError(f"{where}: a step waits until `idle` or until `accepted`, not {value!r}.")
    return value
