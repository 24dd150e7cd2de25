"""Times as a developer writes them: what is wrong in one is named."""

from __future__ import annotations

import pytest

from everthink.errors import InvalidSchedule
from everthink.schedules.when import moment


@pytest.mark.parametrize(
    ("cron", "trouble"),
    [
        ("61 * * * *", "the minute is '61', and takes 0-59"),
        ("* 9am * * *", "the hour is '9am', and takes 0-23"),
        ("* * 31 2 *", "the day of month is '31', and takes 1-31, a day that the month has"),
        ("0 9 1 JNA *", "the month is 'JNA', and takes 1-12 or JAN-DEC"),
        ("0 9 * * 8", "the day of week is '8', and takes 0-7 or SUN-SAT"),
        ("0 9 * * * *", "it has 6 fields, and needs 5; there are none for seconds and years"),
        ("* * *", "it has 3 fields, and needs 5"),
        ("@daily", "it has 1 field, and needs 5"),
    ],
)
def test_the_field_of_a_cron_expression_that_is_wrong_is_named(cron: str, trouble: str) -> None:
    with pytest.raises(InvalidSchedule) as told:
        moment(cron, now=0)
    assert told.value.what.startswith(f"Invalid cron expression {cron!r}: {trouble}")
    assert "The fields are minute, hour, day of month, month, day of week" in told.value.next_step
    assert "get_scheduled_tasks" not in told.value.next_step


def test_a_phrase_in_the_place_of_a_cron_expression_is_told_where_it_belongs() -> None:
    with pytest.raises(InvalidSchedule, match="A phrase such as this one is for the tasks"):
        moment("every weekday at 09:00", now=0)
