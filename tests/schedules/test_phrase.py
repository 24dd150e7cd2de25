"""Schedules in words: what is understood, and how the rest is refused."""

from __future__ import annotations

import pytest

from everthink import ScheduledTask, Think
from everthink.errors import InvalidScheduledTask, InvalidSettings
from everthink.schedules.declared import declare
from everthink.schedules.phrase import Interval, WallClock, parse

LONDON = {"default_zone": "Europe/London"}


@pytest.mark.parametrize(
    ("phrase", "minutes"),
    [
        ("every 1 minute", 1),
        ("every 5 minutes", 5),
        ("every 1 hour", 60),
        ("  Every   2\tHOURS ", 120),
    ],
)
def test_an_interval_is_a_number_of_minutes(phrase: str, minutes: int) -> None:
    found = parse(phrase, **LONDON)
    assert isinstance(found, Interval)
    assert found.minutes == minutes


@pytest.mark.parametrize(
    ("phrase", "days", "text"),
    [
        ("every day at 09:00", range(7), "every day at 09:00"),
        ("every weekday at 23:59", range(5), "every weekday at 23:59"),
        ("every week on mon at 00:00", [0], "every week on mon at 00:00"),
        ("Every week on Sunday , wed at 07:05", [2, 6], "every week on sunday,wed at 07:05"),
    ],
)
def test_a_time_of_day_has_days_and_a_zone(phrase: str, days: list[int], text: str) -> None:
    found = parse(phrase, **LONDON)
    assert isinstance(found, WallClock)
    assert (found.days, found.text, found.zone) == (frozenset(days), text, "Europe/London")


@pytest.mark.case(641)
def test_case_does_not_matter_in_zones_and_their_own_spelling_is_kept() -> None:
    found = parse("every day at 09:00 in europe/LONDON", zone="EUROPE/london")
    assert isinstance(found, WallClock)
    assert found.zone == "Europe/London"


def test_the_zone_of_the_phrase_counts_before_the_default() -> None:
    found = parse("every day at 09:00 in Asia/Tokyo", **LONDON)
    assert isinstance(found, WallClock)
    assert found.zone == "Asia/Tokyo"


@pytest.mark.case(621, 622, 623, 624, 625)
@pytest.mark.parametrize(
    ("phrase", "zones", "error"),
    [
        ("every 5 days", LONDON, 'Unsupported schedule DSL "every 5 days"'),
        ("*/5 * * * *", LONDON, 'Unsupported schedule DSL "*/5 * * * *"'),
        ("every 0 minutes", LONDON, 'Unsupported schedule DSL "every 0 minutes"'),
        ("every 05 minutes", LONDON, 'Unsupported schedule DSL "every 05 minutes"'),
        ("every day at 9:00", LONDON, 'Unsupported schedule DSL "every day at 9:00"'),
        ("every 1 minutes", {}, 'Use singular unit for "every 1 minutes"'),
        ("every 2 minute", {}, 'Use plural unit for "every 2 minute"'),
        ("every day at 09:00", {}, 'Wall-clock schedule "every day at 09:00" requires a timezone'),
        ("every 5 days", {}, 'Unsupported schedule DSL "every 5 days"'),
        ("every 5 days in Moon/Sea", {}, 'Unsupported schedule DSL "every 5 days in Moon/Sea"'),
        ("every day at 09:00", {"default_zone": "Moon/Sea"}, 'Invalid timezone "Moon/Sea"'),
        ("every day at 09:00 in moon/sea", {}, 'Invalid timezone "moon/sea"'),
        ("every 5 minutes in Europe/London", {}, "Interval schedules cannot specify a timezone"),
        ("every 5 minutes", {"zone": "Europe/London"}, "Interval schedules cannot specify a timezone"),
        (
            "every day at 09:00 in europe/london",
            {"zone": "asia/tokyo"},
            'Schedule timezone "Europe/London" does not match task timezone "Asia/Tokyo"',
        ),
        ("every day at 24:00", LONDON, 'Invalid schedule time "24:00"; expected HH:mm'),
        ("every day at 12:60", LONDON, 'Invalid schedule time "12:60"; expected HH:mm'),
        ("every week on moonday at 09:00", LONDON, 'Invalid schedule day "moonday"'),
        ("every week on mon,monday at 09:00", LONDON, 'Duplicate schedule day "monday"'),
    ],
)
def test_what_cannot_be_read_is_quoted(phrase: str, zones: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidScheduledTask) as raised:
        parse(phrase, **zones)
    assert raised.value.what.startswith(error)


@pytest.mark.parametrize(
    ("id", "task", "error"),
    [
        ("no spaces", ScheduledTask(schedule="every 5 minutes", prompt="x"), "Invalid scheduled task id"),
        ("", ScheduledTask(schedule="every 5 minutes", prompt="x"), "Invalid scheduled task id"),
        ("both", ScheduledTask(schedule="every 5 minutes", prompt="x", handler=print), "exactly one of"),
        ("none", ScheduledTask(schedule="every 5 minutes"), "exactly one of prompt or handler"),
        ("wrong", "every 5 minutes", "is not a ScheduledTask"),
        ("unset", {"prompt": "x"}, "needs its field 'schedule', which is not there"),
        ("slip", {"schedule": "every 5 minutes", "promt": "x"}, "no field 'promt'. Did you mean 'prompt'"),
        ("order", ScheduledTask(schedule="every 5 moons"), 'DSL "every 5 moons"'),
        ("where", ScheduledTask(schedule="every 5 moons"), r'\(scheduled task "where"\)'),
        ("key", {"shedule": "every 5 minutes", "prompt": "x"}, "no field 'shedule'. Did you mean 'schedule'"),
        (
            "five",
            {"schedule": 5, "prompt": "x"},
            '"five": ScheduledTask.schedule is 5, an int. It takes',
        ),
        (
            "zone",
            {"schedule": "every day at 09:00", "prompt": "x", "timezone": 1},
            "timezone is 1, an int. It takes text",
        ),
        (5, ScheduledTask(schedule="every 5 minutes", prompt="x"), "Invalid scheduled task id"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(id: str, task: object, error: str) -> None:
    with pytest.raises(InvalidScheduledTask, match=error):
        declare({id: task}, None)


def test_tasks_and_zones_of_a_wrong_kind_say_what_they_take() -> None:
    daily = ScheduledTask(schedule="every day at 09:00", prompt="x")
    with pytest.raises(InvalidScheduledTask, match=r"get_scheduled_tasks returned .*It returns a dict"):
        declare([daily], None)  # type: ignore[arg-type]
    with pytest.raises(InvalidScheduledTask, match=r"default_timezone is 2, an int. It takes the name"):
        declare({"t": daily}, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phrase", "hint"),
    [
        ("every day at 9:00", 'Did you mean "every day at 09:00"?'),
        ("every wekday at 09:00", 'Did you mean "every weekday at 09:00"?'),
        ("evry 5 minuts", 'Did you mean "every 5 minutes"?'),
        ("every monday at 09:00", 'Did you mean "every week on monday at 09:00"?'),
        ("every mon, thursday at 9:00", 'Did you mean "every week on mon, thursday at 09:00"?'),
        ("every hour", 'Did you mean "every 1 hour"?'),
        ("every week on mondy at 9:30 in Europe/London", 'Did you mean "every week on monday at 09:30"?'),
        ("0 9 * * 1-5", 'This is a cron expression: give it to a timer, self.schedule("0 9 * * 1-5", …).'),
        ("now and then", 'Understood are "every 5 minutes"'),
    ],
)
def test_a_phrase_that_is_not_understood_is_told_with_what_is(phrase: str, hint: str) -> None:
    with pytest.raises(InvalidScheduledTask) as told:
        parse(phrase)
    assert told.value.what == f'Unsupported schedule DSL "{phrase}"'
    assert told.value.next_step.startswith(hint)
    assert '"every week on mon,thu at 09:00"' in told.value.next_step


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Berln", 'Did you mean "Europe/Berlin"?'),
        ("berlin", 'Did you mean "Europe/Berlin"?'),
        ("Amerika/New_York", 'Did you mean "America/New_York"?'),
        ("Nowhere", 'Zones are called like "Europe/London" or "UTC".'),
    ],
)
@pytest.mark.parametrize("place", ["phrase", "zone", "default_zone"])
def test_a_zone_that_does_not_exist_is_told_with_the_nearest(zone: str, hint: str, place: str) -> None:
    phrase, given = "every day at 09:00", {place: zone}
    if place == "phrase":
        phrase, given = f"{phrase} in {zone}", {}
    with pytest.raises(InvalidScheduledTask, match=f'^Invalid timezone "{zone}"') as told:
        parse(phrase, **given)
    assert told.value.next_step == hint


def test_a_zone_of_a_class_that_does_not_exist_is_told_there_with_the_nearest() -> None:
    with pytest.raises(InvalidSettings, match=r"default_timezone is 'Europe/Berln'.*'Europe/Berlin'\?"):
        type("Clerk", (Think,), {"default_timezone": "Europe/Berln"})


def test_a_day_that_does_not_exist_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidScheduledTask, match='Invalid schedule day "thrusday" Did you mean "thursday"'):
        parse("every week on mon,thrusday at 09:00")


def test_the_hash_of_a_schedule_is_about_when_and_that_of_a_task_about_what_too() -> None:
    def hashes(**changes: object) -> tuple[str, str]:
        fields = {"schedule": "every day at 09:00", "prompt": "Hi", "metadata": {"a": 1, "b": 2}} | changes
        found = declare({"t": ScheduledTask(**fields)}, "Europe/London")["t"]  # type: ignore[arg-type]
        return found.schedule_hash, found.task_hash

    known = hashes()
    assert hashes(metadata={"b": 2, "a": 1}, schedule="Every  day at 09:00") == known
    assert hashes(prompt="Hello")[0] == known[0]
    assert hashes(prompt="Hello")[1] != known[1]
    assert hashes(schedule="every day at 09:01")[0] != known[0]
    assert hashes(timezone="Asia/Tokyo")[0] != known[0]
