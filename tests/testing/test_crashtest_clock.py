"""A clock that is put forward: what waits for the time that was skipped happens at once."""

from __future__ import annotations

import asyncio

import pytest

from everthink.clock import SystemClock
from everthink.testing.crashtest.clock import ForwardClock

pytestmark = pytest.mark.anyio


async def test_it_is_the_machines_clock_and_ahead_of_it() -> None:
    clock = ForwardClock(3600)
    assert clock.now_ms() - SystemClock().now_ms() in range(3_599_000, 3_601_000)
    before, monotonic = clock.now_ms(), clock.monotonic()
    clock.put_ahead(7200)
    assert clock.now_ms() >= before + 3_600_000
    assert clock.monotonic() >= monotonic + 3600
    clock.put_ahead(10)  # never back
    assert clock.ahead == 7200


async def test_what_is_due_on_the_way_happens_at_once() -> None:
    clock = ForwardClock()
    rang: list[str] = []
    both = asyncio.Event()
    clock.call_later(3600, lambda: rang.append("timer"))
    clock.call_later(3600, lambda: rang.append("cancelled")).cancel()
    clock.call_later(3601, both.set)
    clock.call_later(90_000, lambda: rang.append("later"))
    sleeping = asyncio.create_task(clock.sleep(3600))
    await asyncio.sleep(0)
    assert not sleeping.done()
    clock.put_ahead(3601)
    await both.wait()
    await sleeping
    assert rang == ["timer"]


async def test_time_passes_by_itself() -> None:
    await ForwardClock().sleep(0.001)


async def test_a_sleeper_can_be_stopped() -> None:
    clock = ForwardClock()
    sleeping = asyncio.create_task(clock.sleep(3600))
    await asyncio.sleep(0)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    clock.put_ahead(3600)
