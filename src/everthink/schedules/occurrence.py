"""When a schedule is next due.

    Schedule + now --next_occurrence--> instant (ms)

Pure. An interval keeps its phase and skips what was missed. A time of day that a clock change
skips is taken at the first minute after the gap; one that comes twice is taken the first time.
"""

from __future__ import annotations

import zoneinfo
from datetime import UTC, date, datetime, time, timedelta

from ..clock import moment_of, ms_of
from ..errors import AgentError
from .phrase import Interval, Schedule, WallClock

__all__ = ["next_occurrence"]

_HORIZON = 370


def next_occurrence(schedule: Schedule, *, now: int, previous: int | None = None) -> int:
    """The next time (ms) after `now`. `previous` is the occurrence before: an interval keeps its phase."""
    match schedule:
        case Interval():
            step = schedule.minutes * 60_000
            if previous is None:
                return now + step
            return previous + step * max(1, (now - previous) // step + 1)
        case WallClock():
            return _next_time_of_day(schedule, now)


def _next_time_of_day(schedule: WallClock, now: int) -> int:
    zone = zoneinfo.ZoneInfo(schedule.zone)
    today = moment_of(now).astimezone(zone).date()
    # A zone's day may begin before that of UTC by most of a day: yesterday's may still be to come.
    for offset in range(-1, _HORIZON):
        found = _instant(today + timedelta(days=offset), time(schedule.hour, schedule.minute), zone)
        local = found.astimezone(zone)
        if local.weekday() in schedule.days and ms_of(found) > now:
            return ms_of(found)
    raise AgentError("Unable to compute next scheduled task occurrence")


def _instant(day: date, at: time, zone: zoneinfo.ZoneInfo) -> datetime:
    """The first moment at which clocks there show this time, or the first one after it that they show."""
    wanted = datetime.combine(day, at, zone)
    found = wanted.astimezone(UTC)
    gap = found.astimezone(zone).replace(tzinfo=None) - wanted.replace(tzinfo=None)
    if not gap:
        return found  # of two, the first
    # Clocks jump over it: the gap ends within its own length before that.
    minute = timedelta(minutes=1)
    instant = found - gap
    while instant.astimezone(zone).replace(tzinfo=None) < wanted.replace(tzinfo=None):
        instant += minute
    return instant
