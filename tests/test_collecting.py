"""Large work keeps Python's collector still, and nobody is left without it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from everthink.collecting import Uncollected


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Nobody need look through the tests themselves once this file is over, as before it."""
    was_frozen = gc.get_freeze_count() > 0
    yield
    if was_frozen:
        gc.freeze()


def test_the_collector_is_still_from_begin_to_the_end_of_the_block() -> None:
    with Uncollected() as large:
        assert gc.isenabled()
        large.begin()
        large.begin()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_comes_back_when_the_work_fails_and_when_the_last_of_several_is_over() -> None:
    with Uncollected() as first:
        first.begin()
        with suppress(KeyError), Uncollected() as second:
            second.begin()
            raise KeyError
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_runs_without_a_collector_goes_on_without() -> None:
    gc.disable()
    with Uncollected() as large:
        large.begin()
    assert not gc.isenabled()


def test_what_was_frozen_stays_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with Uncollected() as large:
        large.begin()
    assert gc.get_freeze_count() > frozen // 2


def test_what_is_left_of_it_counts_as_old() -> None:
    with Uncollected() as large:
        large.begin()
        left = [[number] for number in range(5000)]
    assert len(left) == 5000
    assert gc.get_count()[0] < 5000
