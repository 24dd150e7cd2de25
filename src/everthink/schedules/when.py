"""When: what a developer wrote as a time, turned into an instant.

    datetime | seconds | timedelta | cron text --> Moment(type, time in ms, ...)

Pure: the present is an argument. Cron expressions are read in UTC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from ..clock import moment_of, ms_of
from ..errors import InvalidSchedule

__all__ = [
    "LONGEST_INTERVAL",
    "Kind",
    "Moment",
    "as_ms",
    "cron_after",
    "every",
    "moment",
]

Kind = Literal["scheduled", "delayed", "cron", "interval"]

LONGEST_INTERVAL = 30 * 24 * 3600
LONGEST_CRON = 256
LONGEST_DELAY = 10 * 365 * 24 * 3600
"""Seconds. Nobody waits for longer by a number; seconds since 1970 have been more since 1980."""
LAST_MS = 253_402_300_799_000
"""The last second of the year 9999, where `datetime` ends."""
KEPT = "Nothing was scheduled."


@dataclass(frozen=True, slots=True)
class Moment:
    """When something is due first, and what decides when it is due again."""

    type: Kind
    time: int
    delay_ms: int | None = None
    cron: str | None = None
    interval_ms: int | None = None


def moment(when: Any, *, now: int, callback: str = "a callback") -> Moment:
    """The moment that `when` names: an aware datetime, seconds from now, a timedelta, or a cron text."""
    match when:
        case datetime():
            return Moment("scheduled", _bounded(as_ms(when)))
        case timedelta():
            return _delayed(when.total_seconds(), now)
        case str():
            cron = " ".join(when.split())
            _refuse_seconds(cron)
            return Moment("cron", cron_after(cron, now), cron=cron)
        case bool():
            pass
        case int() | float():
            _refuse_epoch(when)
            return _delayed(when, now)
        case _:
            pass
    raise InvalidSchedule(
        f"Invalid schedule type: {str(when)[:80]!r} ({type(when).__name__}) trying to schedule {callback}.",
        kept=KEPT,
        next_step='Give an aware datetime, seconds from now, a timedelta, or a cron text like "0 9 * * 1-5".',
    )


def _refuse_epoch(seconds: float) -> None:
    if LONGEST_DELAY < seconds < 1e15:  # milliseconds since 1970 as well
        raise InvalidSchedule(
            f"schedule({seconds}, …) is a delay of {seconds / 31_557_600:.0f} years: a number is read as"
            " seconds from now.",
            kept=KEPT,
            next_step="For a moment, give a datetime: datetime.fromtimestamp(moment, UTC). For a wait that"
            " long, a timedelta.",
        )


def every(seconds: Any, *, now: int) -> Moment:
    """The first moment of something that happens every so many seconds."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidSchedule(
            f"schedule_every: seconds must be a positive number, not {str(seconds)[:80]}.",
            kept=KEPT,
            next_step="schedule_every(60, ...) is once a minute.",
        )
    if seconds > LONGEST_INTERVAL:
        raise InvalidSchedule(
            f"schedule_every: seconds cannot exceed {LONGEST_INTERVAL} seconds (30 days); it is {seconds}.",
            kept=KEPT,
            next_step='For rarer things use a cron expression: schedule("0 9 1 */3 *", ...).',
        )
    interval = max(1, round(seconds * 1000))
    return Moment("interval", now + interval, interval_ms=interval)


def cron_after(cron: str, after: int) -> int:
    """The first time of a cron expression after `after`. Raises `InvalidSchedule` when it has none."""
    from cronsim import CronSim, CronSimError  # only those who use cron pay for it

    if len(cron) > LONGEST_CRON:
        raise InvalidSchedule(f"A cron expression of {len(cron)} characters is too long.", kept=KEPT)
    try:
        return as_ms(next(CronSim(cron, moment_of(after))))
    except (CronSimError, StopIteration, ValueError, OverflowError, AssertionError) as error:
        raise InvalidSchedule(
            f"Invalid cron expression {cron!r}: {_trouble(cron, str(error))}.",
            kept=KEPT,
            next_step='The fields are minute, hour, day of month, month, day of week: "0 9 * * 1-5".'
            + (_PHRASE if cron.lower().startswith("every ") else ""),
        ) from error


def _refuse_seconds(cron: str) -> None:
    """Refuse a sixth field: some read seconds before the five, some a year behind them."""
    fields = cron.split()
    if len(fields) == 6:
        raise InvalidSchedule(
            f"Invalid cron expression {cron!r}: it has 6 fields, and needs 5; there are none for seconds"
            " and years.",
            kept=KEPT,
            next_step="The fields are minute, hour, day of month, month, day of week:"
            f' "{" ".join(fields[:5])}" or "{" ".join(fields[1:])}". For seconds there is schedule_every.',
        )


_PHRASE = " A phrase such as this one is for the tasks that get_scheduled_tasks returns."
_FIELDS = {
    "second": "0-59",  # of timers that were made when a sixth field was taken
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, a day that the month has",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT, 0 and 7 are Sunday",
}


def _trouble(cron: str, reason: str) -> str:
    """What is wrong in a cron expression: the field, what stands there, what it takes."""
    fields = cron.split()
    if len(fields) not in (5, 6):
        return f"it has {len(fields)} field{'s' * (len(fields) != 1)}, and needs 5"
    name = reason.removeprefix("Bad ")
    if name not in _FIELDS:
        return reason[:80] or "it names no moment"
    names = list(_FIELDS)[-len(fields) :]
    return f"the {name.replace('-', ' ')} is {fields[names.index(name)]!r}, and takes {_FIELDS[name]}"


def _delayed(seconds: float, now: int) -> Moment:
    if not abs(seconds) <= LAST_MS / 1000:
        raise InvalidSchedule(f"A delay of {seconds:g} seconds never ends.", kept=KEPT)
    delay = round(seconds * 1000)
    return Moment("delayed", _bounded(now + delay), delay_ms=delay)


def _bounded(time: int) -> int:
    if time > LAST_MS:
        raise InvalidSchedule("The time lies beyond the year 9999.", kept=KEPT)
    return max(0, time)


def as_ms(instant: datetime, *, kept: str = KEPT) -> int:
    """An aware datetime as milliseconds since 1970."""
    if instant.utcoffset() is None:
        raise InvalidSchedule(
            f"The time {instant.isoformat()} has no time zone.",
            kept=kept,
            next_step="Give an aware datetime: datetime(2027, 1, 1, 9, tzinfo=ZoneInfo('Europe/London')).",
        )
    return ms_of(instant)
