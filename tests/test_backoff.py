"""How long is waited before the next attempt."""

from __future__ import annotations

import pytest

from everthink.backoff import backoff


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 5.0), (10_000, 5.0)]
)
def test_each_failure_in_a_row_doubles_the_wait_up_to_a_bound(failures: int, seconds: float) -> None:
    assert backoff(failures, first=0.5, most=5.0) == seconds


def test_the_wait_may_grow_more_slowly_or_not_at_all() -> None:
    assert [backoff(n, first=1.0, most=9.0, growth=1.5) for n in (1, 2, 3)] == [1.0, 1.5, 2.25]
    assert [backoff(n, first=0.1, most=9.0, growth=1.0) for n in (1, 2, 30)] == [0.1, 0.1, 0.1]


def test_the_first_wait_keeps_the_bound_too() -> None:
    assert backoff(1, first=10.0, most=3.0) == 3.0
