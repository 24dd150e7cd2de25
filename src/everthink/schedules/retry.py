"""Try again: the options, the loop, and which failures pass by themselves.

    Agent.retry, jobs, alarms --> retrying(fn) --> fn(1), wait, fn(2), ...

Full jitter: each wait is a random part of a bound that doubles up to a maximum, so callers that
failed together do not come back together. The last error is raised as it was.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ..backoff import backoff
from ..calling import awaited
from ..causes import has_cause, is_superseded
from ..clock import Clock
from ..errors import InvalidRetry, StoreUnavailable
from ..settings import check_returned

__all__ = [
    "DEFAULTS",
    "Retry",
    "is_out_of_memory",
    "is_retryable",
    "is_transient",
    "jittered",
    "retrying",
]

T = TypeVar("T")

LOST = (StoreUnavailable, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
"""A connection that was there and broke. One that was refused is the application's to think about."""


# --- options


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to try, and how long to wait in between (seconds).

        Retry(max_attempts=5)                  the rest as the agent's `retry_options` say
        Retry(base_delay=1.0, max_delay=60.0)

    What is left out comes from the agent's `retry_options`, and then from 3 attempts, 0.1 and
    3 seconds. Raises `InvalidRetry` for values that make no sense.
    """

    max_attempts: int | None = None
    base_delay: float | None = None
    max_delay: float | None = None

    def __post_init__(self) -> None:
        if (count := cast("Any", self.max_attempts)) is not None:
            if not _is_number(count) or count < 1:
                raise _refused("retry.max_attempts must be >= 1", count)
            if not isinstance(count, int):
                raise _refused("retry.max_attempts must be an integer", count)
        for name in ("base_delay", "max_delay"):
            delay = getattr(self, name)
            if delay is not None and (not _is_number(delay) or delay <= 0):
                raise _refused(f"retry.{name} must be > 0", delay)
        if self.base_delay is not None and self.max_delay is not None and self.base_delay > self.max_delay:
            raise _refused("retry.base_delay must be <= retry.max_delay", self.base_delay, self.max_delay)

    def over(self, defaults: Retry) -> Retry:
        """These options, with what they leave open taken from `defaults`."""
        return Retry(
            defaults.max_attempts if self.max_attempts is None else self.max_attempts,
            defaults.base_delay if self.base_delay is None else self.base_delay,
            defaults.max_delay if self.max_delay is None else self.max_delay,
        )

    def to_json(self) -> dict[str, Any]:
        """What was given, as JSON."""
        values = {name: getattr(self, name) for name in ("max_attempts", "base_delay", "max_delay")}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Retry:
        """The options that `to_json` wrote."""
        return cls(stored.get("max_attempts"), stored.get("base_delay"), stored.get("max_delay"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _refused(sentence: str, *values: Any) -> InvalidRetry:
    given = " and ".join(repr(value) for value in values)
    return InvalidRetry(f"{sentence} (it is {given}).", kept="Nothing was stored.")


DEFAULTS = Retry(3, 0.1, 3.0)


# --- the loop


async def retrying(
    fn: Callable[[int], T | Awaitable[T]],
    options: Retry,
    *,
    should_retry: Callable[[Exception, int], bool | Awaitable[bool]] | None = None,
    clock: Clock,
    random: Callable[[], float] = random.random,
) -> T:
    """Call `fn(attempt)`, with 1 and up, until it returns; the last error is raised when it never does.

    `should_retry(error, next_attempt)` may return False to stop at once with that error.
    """
    complete = options.over(DEFAULTS)
    attempt = 1
    while True:
        try:
            return await awaited(fn(attempt))
        except Exception as error:
            if attempt >= cast("int", complete.max_attempts):
                raise
            if not await _wants_more(should_retry, error, attempt + 1):
                raise
        if (wait := jittered(attempt, complete, random)) > 0:
            await clock.sleep(wait)
        attempt += 1


async def _wants_more(
    should_retry: Callable[[Exception, int], bool | Awaitable[bool]] | None, error: Exception, attempt: int
) -> bool:
    if should_retry is None:
        return True
    answer = await awaited(should_retry(error, attempt))
    check_returned("should_retry", answer)
    return answer is True


def jittered(failed: int, options: Retry, random: Callable[[], float]) -> float:
    """Seconds to wait after attempt number `failed`: whole milliseconds, from 0 to below the bound."""
    complete = options.over(DEFAULTS)
    # The first bound is twice the base: half of it is waited on the average.
    bound = backoff(
        failed + 1, first=cast("float", complete.base_delay), most=cast("float", complete.max_delay)
    )
    return math.floor(random() * bound * 1000) / 1000


# --- which failures pass by themselves


def is_out_of_memory(error: object) -> bool:
    """True when memory ran out. Trying the same again at once would run out again."""
    return has_cause(error, lambda e: isinstance(e, MemoryError))


def is_retryable(error: object) -> bool:
    """True for an error that says of itself `retryable = True`, and not `overloaded = True`."""
    return has_cause(error, lambda e: getattr(e, "retryable", False) is True) and not has_cause(
        error, lambda e: getattr(e, "overloaded", False) is True
    )


def is_transient(error: object) -> bool:
    """True when the failure lies around the application and not in it: a restart, a connection that broke,
    a database that is away, or an error that says so of itself. The same work may succeed later."""
    if isinstance(error, BaseExceptionGroup):
        # Each of it may pass in a way of its own.
        return all(is_transient(member) for member in cast("BaseExceptionGroup[Any]", error).exceptions)
    if is_out_of_memory(error):
        return False
    return is_superseded(error) or is_retryable(error) or has_cause(error, lambda e: isinstance(e, LOST))
