"""Time: the machine's, and the one that stands still until a test moves it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.clock import SystemClock
from everthink.testing.clock import ManualClock
from tests.support.conversations import unhurried

pytestmark = pytest.mark.anyio


async def test_a_manual_clock_stands_still() -> None:
    clock = ManualClock(start_ms=1_000)
    assert (clock.now_ms(), clock.monotonic()) == (1_000, 1.0)
    await asyncio.sleep(0)
    assert clock.now_ms() == 1_000
    await clock.advance(2.5)
    assert (clock.now_ms(), clock.monotonic()) == (3_500, 3.5)


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.until_waiting()
    await clock.advance(9.999)
    assert not sleeper.done()
    await clock.advance(0.001)
    assert sleeper.done()
    assert clock.waiting == 0


async def test_what_is_due_on_the_way_happens_in_order_and_at_its_own_time() -> None:
    clock = ManualClock(start_ms=0)
    seen: list[tuple[str, int]] = []
    for name, delay in [("late", 3.0), ("soon", 1.0), ("soon too", 1.0), ("never", 9.0)]:
        clock.call_later(delay, lambda name=name: seen.append((name, clock.now_ms())))
    await clock.advance(5)
    assert seen == [("soon", 1000), ("soon too", 1000), ("late", 3000)]
    assert (clock.now_ms(), clock.waiting) == (5000, 1)


async def test_a_cancelled_timer_does_not_fire() -> None:
    clock = ManualClock()
    fired: list[int] = []
    timer = clock.call_later(1, lambda: fired.append(1))
    clock.call_later(1, lambda: fired.append(2))
    timer.cancel()
    assert clock.waiting == 1
    await clock.advance(1)
    assert fired == [2]
    timer.cancel()


async def test_housekeeping_happens_but_nobody_waits_for_it() -> None:
    clock, done = ManualClock(), []
    clock.call_later(5, lambda: done.append("swept"), housekeeping=True)
    assert clock.waiting == 0
    sleeper = asyncio.create_task(clock.sleep(1))
    await clock.until_waiting()
    assert clock.waiting == 1
    await clock.advance(5)
    await sleeper
    assert done == ["swept"]


async def test_a_timer_set_by_a_timer_counts_from_then() -> None:
    clock = ManualClock(start_ms=0)
    seen: list[int] = []

    def tick() -> None:
        seen.append(clock.now_ms())
        clock.call_later(1, tick)

    clock.call_later(1, tick)
    await clock.advance(3.5)
    assert seen == [1000, 2000, 3000]


async def test_a_sleeper_that_is_cancelled_waits_no_longer() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.until_waiting()
    sleeper.cancel()
    await asyncio.wait([sleeper])
    assert clock.waiting == 0
    await clock.advance(20)


async def test_one_who_sleeps_again_is_reached_by_one_advance() -> None:
    clock, woken = ManualClock(start_ms=0), []

    async def nap() -> None:
        for _ in range(3):
            await clock.sleep(1)
            woken.append(clock.now_ms())

    sleeper = asyncio.create_task(nap())
    await clock.until_waiting()
    await clock.advance(3)
    assert woken == [1000, 2000, 3000]
    await sleeper


@unhurried
@given(st.lists(st.floats(0, 100), max_size=12), st.lists(st.floats(0, 60), max_size=6))
def test_whatever_the_steps_timers_fire_once_and_in_order(delays: list[float], steps: list[float]) -> None:
    async def story() -> None:
        clock = ManualClock(start_ms=0)
        fired: list[float] = []
        for delay in delays:
            clock.call_later(delay, lambda delay=delay: fired.append(delay))
        for step in steps:
            await clock.advance(step)
        assert fired == sorted(fired)
        assert len(fired) + clock.waiting == len(delays)
        assert all(delay <= clock.monotonic() for delay in fired)

    asyncio.run(story())


async def test_the_machine_s_clock_goes_on_and_keeps_its_promises() -> None:
    clock = SystemClock()
    before, stamp = clock.monotonic(), clock.now_ms()
    assert stamp > 1_700_000_000_000
    await clock.sleep(0)
    fired = asyncio.Event()
    never = clock.call_later(3600, lambda: pytest.fail("cancelled"))
    never.cancel()
    clock.call_later(0, fired.set)
    await fired.wait()
    assert clock.monotonic() >= before
    assert clock.now_ms() >= stamp - 1000
