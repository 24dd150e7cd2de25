"""Read a schedule written in words.

    "every weekday at 09:00 in Europe/London" --parse--> WallClock(days, 09:00, Europe/London)

Pure. What cannot be read is refused with a sentence that quotes it, before anything is stored.
"""

from __future__ import annotations

import functools
import re
import zoneinfo
from dataclasses import dataclass

from ..errors import InvalidScheduledTask
from ..settings import nearest, nearest_zone

__all__ = ["Interval", "Schedule", "WallClock", "canonical_zone", "parse"]

_SPACES = re.compile(r"\s+")
_ZONE = re.compile(r"(?P<rest>.*) in (?P<zone>[a-z_][a-z0-9_+/-]*)")
_INTERVAL = re.compile(r"every (?P<count>[1-9][0-9]*) (?P<unit>minute|minutes|hour|hours)")
_WALL = re.compile(r"every (?P<when>day|weekday|week on (?P<days>[a-z, ]+)) at (?P<time>[0-9]{2}:[0-9]{2})")
_UNDERSTOOD = (
    'Understood are "every 5 minutes", "every 2 hours", "every day at 09:00", "every weekday at 09:00" and'
    ' "every week on mon,thu at 09:00", the last three with " in Europe/London" if you like.'
)
_CRON = re.compile(r"[0-9*/,-]+( [0-9a-z*/,#-]+){4,5}")
_WORD = re.compile(r"[a-z]{2,}")
_NO_COUNT = re.compile(r"^every (minute|hour)$")
_CLOSE_HOUR = re.compile(r"\b([0-9]:[0-9]{2})\b")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = f"(?:{'|'.join(f'{day}s?|{day[:3]}' for day in _DAYS)})"
_DAYS_ALONE = re.compile(rf"^every (?:week )?({_DAY}(?: ?, ?{_DAY})*) at")
_UNITS = ("minute", "minutes", "hour", "hours")
_WORDS = ("every", "day", "weekday", "week", "on", "at", *_UNITS, *_DAYS, *(day[:3] for day in _DAYS))


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so many minutes."""

    text: str
    minutes: int


@dataclass(frozen=True, slots=True)
class WallClock:
    """On some days of the week (0 is Monday) at a time of day in a zone."""

    text: str
    days: frozenset[int]
    hour: int
    minute: int
    zone: str


Schedule = Interval | WallClock


def parse(phrase: str, *, zone: str | None = None, default_zone: str | None = None) -> Schedule:
    """The schedule that `phrase` says. A zone in the phrase, then `zone`, then `default_zone` counts.

    What the phrase says is read before its zone is looked for: who says it wrong needs no zone yet.
    """
    written = _SPACES.sub(" ", phrase.strip())
    text = written.lower()
    found = _ZONE.fullmatch(text)
    inline = written[-len(found["zone"]) :] if found else None
    text = found["rest"] if found else text
    interval = _INTERVAL.fullmatch(text)
    if interval is not None:
        return _interval(phrase, text, interval, has_zone=inline is not None or zone is not None)
    wall = _WALL.fullmatch(text)
    if wall is None:
        raise InvalidScheduledTask(f'Unsupported schedule DSL "{phrase}"', next_step=_instead(text))
    hour, minute = (int(part) for part in wall["time"].split(":"))
    if hour > 23 or minute > 59:
        raise InvalidScheduledTask(f'Invalid schedule time "{wall["time"]}"; expected HH:mm')
    if wall["days"] is None:
        days = frozenset(range(5 if wall["when"] == "weekday" else 7))
    else:
        days, names = _days(wall["days"])
        text = f"every week on {','.join(names)} at {wall['time']}"
    return WallClock(text, days, hour, minute, _zone(phrase, inline, zone, default_zone))


def _instead(text: str) -> str:
    """What may be said in the place of a phrase that is not understood."""
    if _CRON.fullmatch(text):
        return f'This is a cron expression: give it to a timer, self.schedule("{text}", …). {_UNDERSTOOD}'
    meant = _CLOSE_HOUR.sub(r"0\1", _NO_COUNT.sub(r"every 1 \1", text))
    meant = _WORD.sub(lambda word: nearest(word[0], _WORDS, like=0.75) or word[0], meant)
    meant = _DAYS_ALONE.sub(r"every week on \1 at", meant)
    is_close = _INTERVAL.fullmatch(meant) or _WALL.fullmatch(meant)
    return f'Did you mean "{meant}"? {_UNDERSTOOD}' if is_close else _UNDERSTOOD


def _interval(phrase: str, text: str, found: re.Match[str], *, has_zone: bool) -> Interval:
    count, unit = int(found["count"]), found["unit"]
    if count == 1 and unit.endswith("s"):
        raise InvalidScheduledTask(f'Use singular unit for "{phrase}"')
    if count > 1 and not unit.endswith("s"):
        raise InvalidScheduledTask(f'Use plural unit for "{phrase}"')
    if has_zone:
        raise InvalidScheduledTask("Interval schedules cannot specify a timezone")
    return Interval(text, count * (60 if unit.startswith("hour") else 1))


def _days(text: str) -> tuple[frozenset[int], list[str]]:
    names = [name.strip() for name in text.split(",")]
    days: set[int] = set()
    for name in names:
        number = next((i for i, day in enumerate(_DAYS) if name in (day, day[:3])), None)
        if number is None:
            near = nearest(name, _DAYS)
            hint = f'Did you mean "{near}"?' if near else "Days are mon, tue, wed, thu, fri, sat and sun."
            raise InvalidScheduledTask(f'Invalid schedule day "{name}"', next_step=hint)
        if number in days:
            raise InvalidScheduledTask(f'Duplicate schedule day "{name}"')
        days.add(number)
    return frozenset(days), names


def _zone(phrase: str, inline: str | None, zone: str | None, default: str | None) -> str:
    own = canonical_zone(zone) if zone is not None else None
    said = canonical_zone(inline) if inline is not None else None
    if own is not None and said is not None and own != said:
        raise InvalidScheduledTask(f'Schedule timezone "{said}" does not match task timezone "{own}"')
    chosen = said or own or (canonical_zone(default) if default is not None else None)
    if chosen is None:
        raise InvalidScheduledTask(
            f'Wall-clock schedule "{phrase}" requires a timezone or default_timezone',
            next_step='Add " in Europe/London", timezone="Europe/London", or set default_timezone.',
        )
    return chosen


def canonical_zone(name: str) -> str:
    """A zone's name as it is spelt; case does not matter."""
    known = _zones().get(name.lower())
    if known is None:
        near = nearest_zone(name)
        hint = f'Did you mean "{near}"?' if near else 'Zones are called like "Europe/London" or "UTC".'
        raise InvalidScheduledTask(f'Invalid timezone "{name}"', next_step=hint)
    return known


@functools.cache
def _zones() -> dict[str, str]:
    return {name.lower(): name for name in zoneinfo.available_timezones()}
