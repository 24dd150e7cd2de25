"""What happens to a message typed while a turn runs: the decisions, and the numbers behind them."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from everthink.door.concurrency import (
    Debounce,
    Drop,
    Enqueue,
    Overlaps,
    Supersede,
    decide,
)
from everthink.testing.clock import ManualClock

pytestmark = pytest.mark.anyio

POLICIES: list[Any] = ["queue", "latest", "merge", "drop", "debounce", Debounce(2)]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_message_that_overlaps_nothing_gets_its_turn_whatever_the_policy(policy: Any) -> None:
    assert decide(policy, overlaps=False) == Enqueue()


@pytest.mark.parametrize(
    ("policy", "decision"),
    [
        ("queue", Enqueue()),
        ("latest", Supersede()),
        ("merge", Supersede()),
        ("drop", Drop()),
        ("debounce", Supersede(0.75)),
        (Debounce(), Supersede(0.75)),
        (Debounce(2), Supersede(2.0)),
        (Debounce(0), Supersede(0.0)),
    ],
    ids=str,
)
def test_each_policy_decides_about_a_message_that_overlaps(policy: Any, decision: Any) -> None:
    assert decide(policy, overlaps=True) == decision


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, math.inf, -math.inf, "2", None, True, [1]])
def test_a_quiet_time_that_is_none_is_the_usual_one_and_is_told(
    seconds: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert decide(Debounce(seconds), overlaps=True) == Supersede(0.75)
    assert caplog.messages == [f"Debounce({seconds!r}) is no number of seconds, 0 or more; 0.75 is taken."]


@pytest.mark.parametrize("seconds", [0, 2, 0.5])
def test_a_quiet_time_of_seconds_is_not_worth_a_word(
    seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    assert decide(Debounce(seconds), overlaps=True) == Supersede(float(seconds))
    assert caplog.messages == []


@pytest.mark.parametrize("policy", ["newest", None, 7, {"strategy": "debounce"}])
def test_a_policy_nobody_knows_is_an_error_that_names_the_known_ones(policy: Any) -> None:
    with pytest.raises(ValueError, match=r"use 'queue', 'latest', 'merge', 'drop', 'debounce' or Debounce"):
        decide(policy, overlaps=True)


@pytest.mark.case(347)
def test_what_is_accepted_and_not_yet_queued_is_counted() -> None:
    submits = Overlaps()
    first, second = submits.take(), submits.take()
    assert submits.pending == 2
    first()
    assert submits.pending == 1
    second()
    assert submits.pending == 0


@pytest.mark.case(348)
def test_a_slot_is_given_back_once_and_not_after_a_reset() -> None:
    submits = Overlaps()
    old, twice = submits.take(), submits.take()
    twice()
    twice()
    assert submits.pending == 1
    submits.reset()
    assert submits.pending == 0
    new = submits.take()
    old()
    assert submits.pending == 1
    new()
    assert submits.pending == 0


@pytest.mark.case(349)
def test_a_message_is_superseded_by_a_higher_number_only() -> None:
    submits = Overlaps()
    first, second = submits.number(), submits.number()
    assert submits.is_superseded(first)
    assert not submits.is_superseded(second)
    third = submits.number()
    assert submits.is_superseded(second)
    assert not submits.is_superseded(third)
    # The idle first message has no number, and is never superseded
    assert not submits.is_superseded(None)


@pytest.mark.case(350)
async def test_a_reset_lets_everybody_who_waits_for_quiet_go_on() -> None:
    submits, clock = Overlaps(), ManualClock()
    waiting = [asyncio.create_task(submits.quiet(lambda: clock.sleep(60))) for _ in range(3)]
    while clock.waiting < 3:
        await clock.until_waiting()
        await asyncio.sleep(0)
    submits.reset()
    await asyncio.gather(*waiting)
    assert clock.waiting == 0
    # One that comes later waits again
    later = asyncio.create_task(submits.quiet(lambda: clock.sleep(60)))
    await clock.until_waiting()
    assert not later.done()
    await clock.advance(60)
    await later


async def test_quiet_ends_when_the_time_is_over_and_leaves_nothing_behind() -> None:
    submits, clock = Overlaps(), ManualClock()
    waiting = asyncio.create_task(submits.quiet(lambda: clock.sleep(1)))
    await clock.until_waiting()
    await clock.advance(0.99)
    assert not waiting.done()
    await clock.advance(0.01)
    await waiting
    assert clock.waiting == 0


async def test_whoever_waits_for_quiet_can_be_cancelled() -> None:
    submits, clock = Overlaps(), ManualClock()
    waiting = asyncio.create_task(submits.quiet(lambda: clock.sleep(60)))
    await clock.until_waiting()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert clock.waiting == 0
