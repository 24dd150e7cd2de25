"""Methods of an agent that are called later, by name: what timers and the queue have in common.

    schedule, queue --name--> row --name--> method(payload, item), tried again as the options say

The name is checked when it is stored, with the retry options, so a mistake shows where it was made.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec

from ..calling import awaited
from ..causes import is_superseded
from ..clock import Clock
from ..errors import AgentError, InvalidCallback, InvalidRetry, InvalidSettings
from ..json_values import check_payload
from ..messages import bounded_json, decode_json, encode_json
from ..observe.events import QueueRetry, ScheduleRetry
from ..settings import as_settings
from ..surface import HANDLED, can_take, is_tool, nearest_method, parameters_of, role_of, yields
from .alarm_queries import AlarmRow
from .job_queries import JobRow
from .parts import Parts
from .retry import DEFAULTS, Retry, is_out_of_memory, retrying

__all__ = [
    "CallbackOutcome",
    "as_retry",
    "callback_name",
    "defaults_of",
    "find",
    "options_of",
    "packed",
    "read_retry",
    "run_stored",
    "short_id",
    "unpacked",
    "write_retry",
]

log = logging.getLogger("everthink.runtime")

Stored = TypeVar("Stored", AlarmRow, JobRow)


@dataclass(frozen=True, slots=True)
class CallbackOutcome:
    """How it went: how often it was tried, and the last error if it failed."""

    attempts: int
    error: BaseException | None = None


def short_id() -> str:
    """Nine random characters."""
    return secrets.token_urlsafe(7)[:9]


# --- when it is stored


def callback_name(agent: Any, callback: Any, takes: tuple[str, str] = ("payload", "item")) -> str:
    """The name to store for a callback: that of a method, or the agent's own method itself.

    `takes` is what it is called with, in words of its parameters.
    """
    name = callback if isinstance(callback, str) else _own_name(agent, callback)
    if not isinstance(name, str):
        raise InvalidCallback(
            f"Callback must be a string, not {type(callback).__name__}.",
            kept="Nothing was stored.",
            next_step='Name a method of the agent ("remind"), or pass the method (self.remind).',
        )
    method = getattr(agent, name, None)
    if not callable(method):
        raise InvalidCallback(
            f"self.{name} is not a function.",
            kept="Nothing was stored.",
            next_step=_rather(agent, name, takes),
        )
    if (what := role_of(agent, name)) is not None:
        raise InvalidCallback(
            f"self.{name} is {what}, and no method of your own.",
            kept="Nothing was stored.",
            next_step=f"Write one that does it: `async def {name.strip('_')}_later(self, {takes[0]})`.",
        )
    _check_called(method, name, *takes)
    return name


def _own_name(agent: Any, callback: Any) -> str | None:
    """The name of a method that is passed as it is, its own or a handle's. Raises when it is another's."""
    name = getattr(callback, "__name__", None)
    if (through := getattr(callback, HANDLED, None)) is not None:
        if through == agent.id:
            return name
        owner = through
    elif not inspect.ismethod(callback):
        return None
    elif callback.__self__ is agent:
        return name
    else:
        owner = getattr(callback.__self__, "id", None) or type(callback.__self__).__name__
    raise InvalidCallback(
        f"{name} is a method of {owner}, and this is {agent.id}.",
        kept="Nothing was stored.",
        next_step="An agent calls its own methods later: ask the other one, or write a method that does.",
    )


def _rather(agent: Any, name: str, takes: tuple[str, str]) -> str:
    given = takes[0] if takes[1] == "item" else ", ".join(takes)  # the second may be left out
    near = nearest_method(agent, name)
    meant = f"Did you mean {near!r}? " if near else ""
    return f"{meant}Add a method {name}(self, {given}) to {type(agent).__name__}."


def _check_called(method: Callable[..., Any], name: str, first: str, second: str) -> None:
    if is_tool(method):
        raise InvalidCallback(
            f"self.{name} is a tool, which is called with its own arguments and not with a {first}.",
            kept="Nothing was stored.",
            next_step=f"Write a method that calls it: `async def {name}_later(self, {first})`.",
        )
    if yields(method):
        raise InvalidCallback(
            f"self.{name} has a `yield`, so that calling it runs nothing of it.",
            kept="Nothing was stored.",
            next_step="Write it without.",
        )
    if can_take(method, 2):
        return
    raise InvalidCallback(
        f"{name}{parameters_of(method)} cannot be called later: it gets the {first}, and the {second}.",
        kept="Nothing was stored.",
        next_step=f"Write it as {name}(self, {first}) or {name}(self, {first}, {second}).",
    )


def options_of(agent: Any, given: Any) -> Retry:
    """The options of a call over those of the agent's class. Raises when they make no sense together."""
    return (as_retry(given) or Retry()).over(defaults_of(agent.retry_options))


def defaults_of(setting: Any) -> Retry:
    """What `retry_options` asks for; what is not said has its default."""
    return (as_retry(setting, "retry_options") or Retry()).over(DEFAULTS)


def as_retry(given: Any, where: str = "retry") -> Retry | None:
    """Retry options: a `Retry`, the same as a dict, or `None`. Raises `InvalidRetry`."""
    try:
        return None if given is None else as_settings(Retry, given, where)
    except InvalidSettings as error:
        raise InvalidRetry(
            error.what,
            kept="Nothing was stored.",
            next_step=f"{error.next_step} For example: Retry(max_attempts=5).",
        ) from error


def packed(payload: Any) -> str:
    """A payload as JSON text. Equal payloads are equal texts, whatever the order of their keys."""
    check_payload(payload)
    try:
        return _sorted(msgspec.json.decode(bounded_json(payload))).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise AgentError(
            f"The payload is not JSON: {error}.",
            kept="Nothing was stored.",
            next_step="Store plain values: text, numbers, lists, dicts.",
        ) from error


_sorted = msgspec.json.Encoder(order="deterministic").encode


def unpacked(text: str) -> Any:
    """The payload again. Raises `msgspec.DecodeError` when somebody else wrote the row."""
    return decode_json(text)


def write_retry(given: Retry | None) -> str | None:
    """Retry options as they are stored."""
    return None if given is None else encode_json(given.to_json()).decode()


def read_retry(text: str | None) -> Retry | None:
    """Stored options; such as nobody can read count as none given."""
    if text is None:
        return None
    try:
        return Retry.from_json(decode_json(text, dict[str, Any]))
    except (msgspec.MsgspecError, InvalidRetry):
        log.warning("stored retry options are not readable and are ignored: %.80s", text)
        return None


# --- when its time has come


def _options_now(agent: Any, stored: Retry | None) -> Retry:
    """The options for a call whose time has come. What was stored may not fit the class any more."""
    try:
        return options_of(agent, stored)
    except InvalidRetry as error:
        log.warning("%s; the default is used instead", error)
        return DEFAULTS


def find(agent: Any, name: str) -> Callable[..., Any] | None:
    """The method of that name, if there still is one."""
    method = getattr(agent, name, None)
    return cast("Callable[..., Any]", method) if callable(method) else None


async def run_stored(
    parts: Parts,
    row: Stored,
    read: Callable[[Stored], Any],
    retried: type[ScheduleRetry] | type[QueueRetry],
    *,
    otherwise: str,
) -> CallbackOutcome:
    """Call the method that a row names, with its payload and what `read` makes of the row.

    Observers are told of each further attempt with `retried`. Without such a method it counts as done, and
    the log says what happens `otherwise`.
    """
    method = find(parts.agent, row.callback)
    if method is None:
        log.error("%s has no method %r; %s", parts.id, row.callback, otherwise)
        return CallbackOutcome(0)
    try:
        item = read(row)
    except msgspec.DecodeError as error:
        return CallbackOutcome(0, error)
    options = _options_now(parts.agent, item.retry)

    def again(attempt: int) -> None:
        most = cast("int", options.max_attempts)
        parts.emit(retried(callback=row.callback, id=row.id, attempt=attempt, max_attempts=most))

    return await _run(method, item.payload, item, options, again, clock=parts.clock)


async def _run(
    method: Callable[..., Any],
    payload: Any,
    item: Any,
    options: Retry,
    again: Callable[[int], None],
    *,
    clock: Clock,
) -> CallbackOutcome:
    """Call it until it returns or its attempts are spent; `again` is told of each attempt after the first.

    Being stopped goes through as a cancellation. A process that is going away, and memory that ran
    out, are not tried again here.
    """
    attempts = 0

    async def once(attempt: int) -> None:
        nonlocal attempts
        attempts = attempt
        if attempt > 1:
            again(attempt)
        await awaited(method(*_fitting(method, payload, item)))

    def may_retry(error: Exception, _: int) -> bool:
        return not (is_superseded(error) or is_out_of_memory(error))

    try:
        await retrying(once, options, should_retry=may_retry, clock=clock)
    except Exception as error:  # noqa: BLE001 - whoever called decides what this means
        return CallbackOutcome(attempts, error)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Something that the callback waited for was cancelled; nobody asked us to stop.
        return CallbackOutcome(attempts, error)
    return CallbackOutcome(attempts)


def _fitting(method: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """As many of the arguments as the method takes."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return arguments
    for count in range(len(arguments), 0, -1):
        try:
            signature.bind(*arguments[:count])
        except TypeError:
            continue
        return arguments[:count]
    return ()
