"""The turn queue by itself: first come, first served, one at a time, and generations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everthink.door.queue import (
    Completed,
    Stale,
    TurnQueue,
)

pytestmark = pytest.mark.anyio


class Work:
    """Functions for the queue that note when they run and end when told."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}

    def __call__(self, name: str, *, held: bool = False) -> Callable[[], Awaitable[str]]:
        self._gates[name] = asyncio.Event()
        if not held:
            self._gates[name].set()

        async def run() -> str:
            self.trace.append(f"{name} begins")
            await self._gates[name].wait()
            self.trace.append(f"{name} ends")
            return f"value of {name}"

        return run

    def let_go(self, name: str) -> None:
        self._gates[name].set()


async def steps(count: int = 5) -> None:
    """Let whatever can run, run."""
    for _ in range(count):
        await asyncio.sleep(0)


def running_id(queue: TurnQueue) -> str | None:
    """The request that runs."""
    return None if queue.active is None else queue.active.request_id


@pytest.mark.case(79)
async def test_the_second_waits_for_the_first_and_each_gets_its_own_value() -> None:
    queue, work = TurnQueue(), Work()
    first = asyncio.create_task(queue.enqueue("a", work("a", held=True)))
    second = asyncio.create_task(queue.enqueue("b", work("b")))
    await steps()
    assert work.trace == ["a begins"]
    work.let_go("a")
    assert await asyncio.gather(first, second) == [Completed("value of a"), Completed("value of b")]
    assert work.trace == ["a begins", "a ends", "b begins", "b ends"]


@pytest.mark.case(80)
async def test_many_run_in_the_order_they_came() -> None:
    queue, order = TurnQueue(), []

    async def note(number: int) -> None:
        await asyncio.sleep(0)
        order.append(number)

    await asyncio.gather(*(queue.enqueue(str(n), lambda n=n: note(n)) for n in range(50)))
    assert order == list(range(50))


@pytest.mark.case(81)
async def test_places_of_old_generations_are_skipped_without_running() -> None:
    # Given one that runs and two that wait, with a reset between them
    queue, work = TurnQueue(), Work()
    running = asyncio.create_task(queue.enqueue("a", work("a", held=True)))
    old = asyncio.create_task(queue.enqueue("b", work("b")))
    await steps()
    queue.reset()
    older = asyncio.create_task(queue.enqueue("c", work("c")))
    await steps()
    queue.reset()
    new = asyncio.create_task(queue.enqueue("d", work("d")))
    await steps()
    assert [queue.count(g) for g in range(3)] == [2, 1, 1]

    # When the first ends
    work.let_go("a")

    # Then those of both old generations never ran, and nothing of them is counted
    assert await asyncio.gather(running, old, older, new) == [
        Completed("value of a"),
        Stale(),
        Stale(),
        Completed("value of d"),
    ]
    assert work.trace == ["a begins", "a ends", "d begins", "d ends"]
    assert [queue.count(g) for g in range(3)] == [0, 0, 0]


@pytest.mark.case(82)
async def test_a_reset_lets_the_running_one_finish_and_adds_one_to_the_generation() -> None:
    queue, work = TurnQueue(), Work()
    running = asyncio.create_task(queue.enqueue("a", work("a", held=True)))
    waiting = asyncio.create_task(queue.enqueue("b", work("b")))
    await steps()
    assert queue.generation == 0
    queue.reset()
    queue.reset()
    assert queue.generation == 2
    assert running_id(queue) == "a"
    work.let_go("a")
    assert await asyncio.gather(running, waiting) == [Completed("value of a"), Stale()]


@pytest.mark.case(83)
async def test_a_place_may_be_bound_to_a_generation() -> None:
    queue, work = TurnQueue(), Work()
    queue.reset()
    assert await queue.enqueue("a", work("a"), generation=1) == Completed("value of a")
    assert await queue.enqueue("b", work("b"), generation=0) == Stale()
    assert work.trace == ["a begins", "a ends"]
    assert queue.is_idle


@pytest.mark.case(84)
async def test_counts_and_the_running_request_are_right_while_it_runs() -> None:
    queue, seen = TurnQueue(), []

    async def look() -> None:
        await asyncio.sleep(0)
        seen.append((running_id(queue), queue.count(), queue.count(0), queue.count(7)))

    await asyncio.gather(*(queue.enqueue(id, look) for id in "abc"))
    assert seen == [("a", 3, 3, 0), ("b", 2, 2, 0), ("c", 1, 1, 0)]
    assert (running_id(queue), queue.count()) == (None, 0)


@pytest.mark.case(85)
async def test_one_that_raises_fails_its_caller_only() -> None:
    queue, work = TurnQueue(), Work()

    async def fall() -> None:
        raise LookupError("fell")

    results = await asyncio.gather(
        queue.enqueue("a", fall), queue.enqueue("b", work("b")), return_exceptions=True
    )
    assert isinstance(results[0], LookupError)
    assert results[1] == Completed("value of b")
    assert queue.is_idle


@pytest.mark.case(86)
async def test_waiting_for_idle_returns_at_once_when_idle() -> None:
    queue = TurnQueue()
    idle: Any = queue.wait_for_idle()
    with pytest.raises(StopIteration):
        idle.send(None)


@pytest.mark.case(86)
async def test_waiting_for_idle_includes_what_is_added_meanwhile() -> None:
    queue, work, idle = TurnQueue(), Work(), asyncio.Event()

    async def wait() -> None:
        await queue.wait_for_idle()
        idle.set()

    first = asyncio.create_task(queue.enqueue("a", work("a", held=True)))
    await steps()
    waiting = asyncio.create_task(wait())
    await steps()
    second = asyncio.create_task(queue.enqueue("b", work("b", held=True)))
    await steps()
    work.let_go("a")
    await first
    await steps()
    assert not idle.is_set()
    work.let_go("b")
    await asyncio.gather(second, waiting)
    assert idle.is_set()


async def test_somebody_who_gives_up_waiting_gives_up_the_place() -> None:
    queue, work = TurnQueue(), Work()
    running = asyncio.create_task(queue.enqueue("a", work("a", held=True)))
    leaving = asyncio.create_task(queue.enqueue("b", work("b")))
    staying = asyncio.create_task(queue.enqueue("c", work("c")))
    await steps()
    leaving.cancel()
    await steps()
    assert queue.count() == 2
    work.let_go("a")
    await asyncio.gather(running, staying)
    assert work.trace == ["a begins", "a ends", "c begins", "c ends"]


async def test_a_place_can_be_reserved_before_it_is_used() -> None:
    queue = TurnQueue()
    first, second = queue.reserve("a"), queue.reserve("b")
    assert (first.is_front, second.is_front) == (True, False)
    first.release()
    first.release()
    assert second.is_front
    assert await second.front() is True
    second.release()
    assert queue.is_idle


async def test_giving_up_at_the_very_moment_the_place_comes_to_the_front_does_not_block_the_queue() -> None:
    queue, work = TurnQueue(), Work()
    running = asyncio.create_task(queue.enqueue("a", work("a", held=True)))
    leaving = asyncio.create_task(queue.enqueue("b", work("b")))
    last = asyncio.create_task(queue.enqueue("c", work("c")))
    await steps()
    work.let_go("a")
    await running
    leaving.cancel()  # its place is at the front already, but it has not noticed
    assert await last == Completed("value of c")
    assert queue.is_idle
