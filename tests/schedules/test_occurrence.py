"""When a schedule is next due, also on the days when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.schedules.occurrence import next_occurrence
from everthink.schedules.phrase import WallClock, parse


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def after(phrase: str, now: str, previous: str | None = None) -> str:
    at = next_occurrence(parse(phrase), now=ms(now), previous=None if previous is None else ms(previous))
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


@pytest.mark.case(627, 628)
@pytest.mark.parametrize(
    ("phrase", "now", "due"),
    [
        # Spring: the time does not exist, and the first minute after the gap is taken.
        ("every day at 01:30 in Europe/London", "2026-03-28T12:00Z", "2026-03-29T01:00Z"),
        ("every day at 02:30 in Europe/London", "2026-03-28T12:00Z", "2026-03-29T01:30Z"),
        ("every day at 02:30 in America/New_York", "2026-03-07T12:00Z", "2026-03-08T07:00Z"),
        # Autumn: the time comes twice, and the first is taken.
        ("every day at 01:30 in Europe/London", "2026-10-24T12:00Z", "2026-10-25T00:30Z"),
        ("every day at 02:30 in Europe/London", "2026-10-24T12:00Z", "2026-10-25T02:30Z"),
        ("every day at 01:30 in America/New_York", "2026-10-31T12:00Z", "2026-11-01T05:30Z"),
        ("every day at 02:30 in America/New_York", "2026-10-31T12:00Z", "2026-11-01T07:30Z"),
        # Between the two, the second does not count.
        ("every day at 01:30 in Europe/London", "2026-10-25T00:45Z", "2026-10-26T01:30Z"),
        # Half an hour of change.
        ("every week on sun at 02:15 in Australia/Lord_Howe", "2026-10-01T00:00Z", "2026-10-03T15:30Z"),
    ],
)
def test_a_time_of_day_on_the_days_when_clocks_change(phrase: str, now: str, due: str) -> None:
    assert after(phrase, now) == due


@pytest.mark.parametrize("zone", ["Europe/London", "America/New_York"])
@pytest.mark.parametrize("year", [2026, 2027])
def test_half_past_two_comes_once_on_every_day_of_a_year(zone: str, year: int) -> None:
    schedule = parse(f"every day at 02:30 in {zone}")
    now, days = ms(f"{year}-01-01T12:00Z"), []
    while (now := next_occurrence(schedule, now=now)) < ms(f"{year + 1}-01-01T00:00Z"):
        days.append(datetime.fromtimestamp(now / 1000, ZoneInfo(zone)).date())
    first = datetime(year, 1, 2, tzinfo=UTC).date()
    assert days == [first + timedelta(days=n) for n in range(len(days))]
    assert len(days) == 364


@pytest.mark.parametrize(
    ("phrase", "now", "due"),
    [
        ("every day at 09:00 in Europe/London", "2026-01-05T09:00Z", "2026-01-06T09:00Z"),
        ("every day at 09:00 in Europe/London", "2026-01-05T08:59Z", "2026-01-05T09:00Z"),
        ("every weekday at 09:00 in Europe/London", "2026-01-09T09:00Z", "2026-01-12T09:00Z"),
        ("every week on sat at 09:00 in Asia/Tokyo", "2026-01-09T23:00Z", "2026-01-10T00:00Z"),
        ("every day at 00:30 in Pacific/Kiritimati", "2026-01-05T12:00Z", "2026-01-06T10:30Z"),
        ("every day at 23:30 in Pacific/Pago_Pago", "2026-01-05T09:00Z", "2026-01-05T10:30Z"),
    ],
)
def test_a_time_of_day_is_strictly_later_and_on_an_allowed_day(phrase: str, now: str, due: str) -> None:
    assert after(phrase, now) == due


@pytest.mark.case(626)
@pytest.mark.parametrize(
    ("now", "previous", "due"),
    [
        ("2026-01-05T09:03Z", None, "2026-01-05T09:08Z"),
        ("2026-01-05T09:00Z", "2026-01-05T09:00Z", "2026-01-05T09:05Z"),
        ("2026-01-05T09:04Z", "2026-01-05T09:00Z", "2026-01-05T09:05Z"),
        ("2026-01-05T09:05Z", "2026-01-05T09:00Z", "2026-01-05T09:10Z"),
        ("2026-01-05T12:01Z", "2026-01-05T09:00Z", "2026-01-05T12:05Z"),
        # A clock that was set back does not repeat what has been.
        ("2026-01-05T08:00Z", "2026-01-05T09:00Z", "2026-01-05T09:05Z"),
    ],
)
def test_an_interval_keeps_its_phase_and_skips_what_was_missed(
    now: str, previous: str | None, due: str
) -> None:
    assert after("every 5 minutes", now, previous) == due


@given(
    now=st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    zone=st.sampled_from(["Europe/London", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]),
)
def test_the_next_time_of_day_is_later_within_two_days_and_shows_that_time_or_the_end_of_a_gap(
    now: datetime, hour: int, minute: int, zone: str
) -> None:
    at = now.replace(tzinfo=UTC)
    schedule = WallClock("", frozenset(range(7)), hour, minute, zone)
    due = datetime.fromtimestamp(next_occurrence(schedule, now=ms(at.isoformat())) / 1000, UTC)
    assert timedelta(0) < due - at.replace(microsecond=0) <= timedelta(hours=49)
    shown, before = due.astimezone(ZoneInfo(zone)), (due - timedelta(minutes=1)).astimezone(ZoneInfo(zone))
    is_gap = (shown.replace(tzinfo=None) - before.replace(tzinfo=None)) > timedelta(minutes=1)
    assert (shown.hour, shown.minute) == (hour, minute) or is_gap
