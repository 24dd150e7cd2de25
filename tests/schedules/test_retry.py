"""Trying again: how often, how long in between, and which failures pass by themselves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink import Retry
from everthink.causes import is_superseded
from everthink.errors import (
    AgentError,
    InvalidRetry,
    LeaseLost,
    ModelError,
    StoreClosed,
    StoreFull,
    StoreUnavailable,
    TurnInterrupted,
)
from everthink.schedules.retry import (
    is_out_of_memory,
    is_retryable,
    is_transient,
    jittered,
    retrying,
)
from everthink.testing.clock import ManualClock
from tests.runtime.conftest import Open
from tests.support.agents import live
from tests.support.conversations import unhurried
from tests.support.timers import Diary

pytestmark = pytest.mark.anyio


class Calls:
    """A function that fails so often, and then returns. Remembers the attempts it was told."""

    def __init__(self, failures: int, *, is_async: bool = True) -> None:
        self.attempts: list[int] = []
        self._failures, self._is_async = failures, is_async

    def __call__(self, attempt: int) -> Any:
        self.attempts.append(attempt)
        return self._later(attempt) if self._is_async else self._now(attempt)

    async def _later(self, attempt: int) -> str:
        await asyncio.sleep(0)
        return self._now(attempt)

    def _now(self, attempt: int) -> str:
        if attempt <= self._failures:
            raise ValueError(f"attempt {attempt}")
        return "done"


class Watch(ManualClock):
    """A clock on which nobody waits, and that knows for how long they would have."""

    def __init__(self) -> None:
        super().__init__()
        self.naps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)


# --- the loop


@pytest.mark.agent_case(110)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_succeeds_at_once_is_not_tried_again(is_async: bool) -> None:
    fn, watch = Calls(0, is_async=is_async), Watch()
    assert await retrying(fn, Retry(), clock=watch) == "done"
    assert (fn.attempts, watch.naps) == ([1], [])


@pytest.mark.agent_case(110, 112)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_succeeds_later_gives_its_value_and_is_told_the_number_of_each_attempt(
    is_async: bool,
) -> None:
    fn = Calls(2, is_async=is_async)
    assert await retrying(fn, Retry(), clock=Watch()) == "done"
    assert fn.attempts == [1, 2, 3]


@pytest.mark.agent_case(111)
@pytest.mark.parametrize(("most", "last"), [(1, "attempt 1"), (3, "attempt 3"), (7, "attempt 7")])
async def test_when_attempts_are_spent_the_last_error_is_raised(most: int, last: str) -> None:
    fn, watch = Calls(99), Watch()
    with pytest.raises(ValueError, match=last):
        # The middle of each bound: chance may also say 0, which is no nap.
        await retrying(fn, Retry(max_attempts=most), clock=watch, random=lambda: 0.5)
    assert len(fn.attempts) == most
    assert len(watch.naps) == most - 1


@pytest.mark.agent_case(112)
@pytest.mark.parametrize("is_async", [True, False])
async def test_the_predicate_may_stop_early_and_knows_the_next_attempt(is_async: bool) -> None:
    asked: list[tuple[str, int]] = []

    def decide(error: Exception, attempt: int) -> Any:
        asked.append((str(error), attempt))
        if not is_async:
            return attempt < 3

        async def later() -> bool:
            return attempt < 3

        return later()

    with pytest.raises(ValueError, match="attempt 2"):
        await retrying(Calls(99), Retry(max_attempts=9), should_retry=decide, clock=Watch())
    assert asked == [("attempt 1", 2), ("attempt 2", 3)]


async def test_the_predicate_is_not_asked_when_there_is_no_attempt_left() -> None:
    asked: list[int] = []

    def decide(error: Exception, attempt: int) -> bool:
        asked.append(attempt)
        return True

    with pytest.raises(ValueError, match="attempt 2"):
        await retrying(Calls(9), Retry(max_attempts=2), should_retry=decide, clock=Watch())
    assert asked == [2]


async def test_being_cancelled_is_not_a_failure_to_try_again() -> None:
    attempts, began = list[int](), asyncio.Event()

    async def hang(attempt: int) -> None:
        attempts.append(attempt)
        began.set()
        await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(retrying(hang, Retry(), clock=Watch()))
    await began.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert attempts == [1]


async def test_the_waits_are_made_on_the_clock() -> None:
    clock, fn = ManualClock(), Calls(1)
    options = Retry(base_delay=5, max_delay=10)
    task = asyncio.create_task(retrying(fn, options, clock=clock, random=lambda: 0.5))
    await clock.until_waiting()
    await clock.advance(4.999)
    assert fn.attempts == [1]
    await clock.advance(0.001)
    assert await task == "done"


# --- how long in between


@pytest.mark.agent_case(109)
@given(
    failed=st.integers(1, 5000),
    base=st.floats(0.001, 100),
    more=st.floats(1, 1000),
    chance=st.floats(0, 1, exclude_max=True),
)
@unhurried
def test_a_wait_lies_between_nothing_and_a_bound_that_grows_up_to_the_maximum(
    failed: int, base: float, more: float, chance: float
) -> None:
    options = Retry(9, base, base * more)
    wait = jittered(failed, options, lambda: chance)
    assert 0 <= wait <= min(options.max_delay or 0, 2.0 ** min(failed, 100) * base)
    assert wait == pytest.approx(math.floor(wait * 1000 + 0.5) / 1000)
    # With the same luck the next wait is not shorter
    assert jittered(failed + 1, options, lambda: chance) >= wait


@pytest.mark.agent_case(109)
def test_the_bound_doubles_from_twice_the_base_to_the_maximum() -> None:
    almost = 1 - 1e-9
    waits = [jittered(n, Retry(9, 0.1, 3.0), lambda: almost) for n in range(1, 8)]
    assert waits == [0.199, 0.399, 0.799, 1.599, 2.999, 2.999, 2.999]
    assert {jittered(n, Retry(9, 0.1, 3.0), lambda: 0.0) for n in range(1, 8)} == {0.0}


# --- options


@pytest.mark.agent_case(113, 114)
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_attempts": 0}, "retry.max_attempts must be >= 1"),
        ({"max_attempts": -1}, "retry.max_attempts must be >= 1"),
        ({"max_attempts": math.nan}, "retry.max_attempts must be >= 1"),
        ({"max_attempts": math.inf}, "retry.max_attempts must be >= 1"),
        ({"max_attempts": "3"}, "retry.max_attempts must be >= 1"),
        ({"max_attempts": True}, "retry.max_attempts must be >= 1"),
        ({"max_attempts": 2.5}, "retry.max_attempts must be an integer"),
        ({"base_delay": 0}, "retry.base_delay must be > 0"),
        ({"base_delay": -0.1}, "retry.base_delay must be > 0"),
        ({"base_delay": math.nan}, "retry.base_delay must be > 0"),
        ({"base_delay": math.inf}, "retry.base_delay must be > 0"),
        ({"max_delay": 0}, "retry.max_delay must be > 0"),
        ({"max_delay": -1}, "retry.max_delay must be > 0"),
        ({"max_delay": math.nan}, "retry.max_delay must be > 0"),
        ({"max_delay": math.inf}, "retry.max_delay must be > 0"),
        ({"base_delay": 2.0, "max_delay": 1.0}, "retry.base_delay must be <= retry.max_delay"),
    ],
)
async def test_options_that_make_no_sense_are_refused_before_anything_is_tried(
    options: dict[str, Any], sentence: str
) -> None:
    fn = Calls(0)
    with pytest.raises(InvalidRetry, match=sentence):
        await retrying(fn, Retry(**options), clock=Watch())
    assert fn.attempts == []


@pytest.mark.agent_case(113)
def test_equal_delays_are_fine() -> None:
    assert Retry(base_delay=1.0, max_delay=1.0).max_delay == 1.0


@pytest.mark.agent_case(115)
def test_the_two_delays_are_compared_once_defaults_have_filled_in_what_is_missing() -> None:
    # By itself nobody knows yet what the other delay will be
    assert Retry(base_delay=10.0).max_delay is None
    with pytest.raises(InvalidRetry, match=r"base_delay must be <= retry\.max_delay"):
        Retry(base_delay=10.0).over(Retry(3, 0.1, 3.0))
    assert Retry(base_delay=10.0).over(Retry(3, 0.1, 30.0)) == Retry(3, 10.0, 30.0)


def test_options_come_back_from_storage_as_they_were_given() -> None:
    for options in (Retry(), Retry(5), Retry(base_delay=0.5), Retry(2, 1.0, 1.0)):
        assert Retry.from_json(options.to_json()) == options
    assert Retry(max_attempts=5).to_json() == {"max_attempts": 5}


# --- of an agent


@pytest.mark.agent_case(122)
async def test_options_of_the_class_apply_and_a_call_may_override_them(start: Open, diary: Diary) -> None:
    cls = diary.agent(retry_options=Retry(max_attempts=2, base_delay=0.002, max_delay=0.002))
    watch = Watch()
    app = await start(cls)
    agent = await live(app.agent(cls, "a"))
    agent._home.clock = watch

    spent = Calls(9)
    with pytest.raises(ValueError, match="attempt 2"):
        await agent.retry(spent)
    assert await agent.retry(Calls(3), max_attempts=4) == "done"
    assert all(nap < 0.002 for nap in watch.naps)  # the delays of the class stayed in force


@pytest.mark.agent_case(115, 122)
async def test_options_of_a_call_must_fit_those_of_the_class(start: Open, diary: Diary) -> None:
    cls = diary.agent(retry_options=Retry(max_delay=1.0))
    agent = (await start(cls)).agent(cls, "a")
    fn = Calls(0)
    with pytest.raises(InvalidRetry, match="base_delay must be <="):
        await agent.retry(fn, base_delay=2.0)
    assert fn.attempts == []


async def test_options_of_the_wrong_type_are_refused_with_an_example(start: Open, diary: Diary) -> None:
    cls = diary.agent()
    agent = (await start(cls)).agent(cls, "a")
    for refused in (agent.schedule(1, "note", retry={"attempts": 2}), agent.queue("note", retry=3)):
        with pytest.raises(InvalidRetry, match=r"Retry\(max_attempts=5\)"):
            await refused
    assert await agent.list_schedules() == []


# --- which failures pass by themselves


class Flagged(Exception):
    """An error that says something of itself."""

    def __init__(self, **flags: Any) -> None:
        super().__init__("flagged")
        self.__dict__.update(flags)


def caused(error: BaseException, depth: int) -> BaseException:
    """An application's error that goes back to this one, so many steps down."""
    for _ in range(depth):
        outer = RuntimeError("wrapped")
        outer.__cause__ = error
        error = outer
    return error


def all_kinds(error: object) -> dict[str, bool]:
    kinds: list[Callable[[object], bool]] = [is_retryable, is_superseded, is_transient, is_out_of_memory]
    return {kind.__name__: kind(error) for kind in kinds}


def only(*names: str) -> dict[str, bool]:
    every = ("is_retryable", "is_superseded", "is_transient", "is_out_of_memory")
    return {name: name in names for name in every}


@pytest.mark.agent_case(116, 120)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Flagged(retryable=True), only("is_retryable", "is_transient")),
        (Flagged(retryable=True, overloaded=False), only("is_retryable", "is_transient")),
        (Flagged(retryable=True, overloaded=True), only()),
        (Flagged(retryable="yes"), only()),
        (Flagged(retryable=False), only()),
        ("retryable", only()),
        (None, only()),
        ({"retryable": True}, only()),
        (ValueError("retryable"), only()),
    ],
)
def test_retryable_is_what_says_so_and_is_not_overloaded(error: object, expected: dict[str, bool]) -> None:
    assert all_kinds(error) == expected


@pytest.mark.agent_case(116, 120)
def test_overload_anywhere_among_the_causes_is_no_reason_to_come_back() -> None:
    outer = Flagged(overloaded=True)
    outer.__cause__ = Flagged(retryable=True)
    assert all_kinds(outer) == only()


@pytest.mark.agent_case(117, 120)
@pytest.mark.parametrize("error", [LeaseLost("gone"), TurnInterrupted("r1"), StoreClosed("closed")])
@pytest.mark.parametrize("depth", [0, 1, 7])
def test_a_process_that_goes_away_is_recognised_by_type_through_causes(
    error: BaseException, depth: int
) -> None:
    assert all_kinds(caused(error, depth)) == only("is_superseded", "is_transient")


@pytest.mark.agent_case(117)
@pytest.mark.parametrize(
    "error",
    [
        AgentError("This process no longer owns the agent"),
        ValueError("The app is closed."),
        RuntimeError("was interrupted because the process is stopping"),
        ModelError("the model was upgraded", kind="transient"),
    ],
)
def test_words_that_look_alike_are_not_enough(error: BaseException) -> None:
    assert all_kinds(error) == only()


@pytest.mark.agent_case(118, 120)
@pytest.mark.parametrize(
    "error", [StoreUnavailable("away"), ConnectionResetError(), ConnectionAbortedError(), BrokenPipeError()]
)
@pytest.mark.parametrize("depth", [0, 3])
def test_a_database_or_a_connection_that_went_away_passes(error: BaseException, depth: int) -> None:
    assert all_kinds(caused(error, depth)) == only("is_transient")


@pytest.mark.agent_case(120)
@pytest.mark.parametrize(
    "error", [StoreFull("full"), ConnectionRefusedError(), KeyError("x"), AgentError("no")]
)
def test_errors_of_the_application_do_not_pass(error: BaseException) -> None:
    assert all_kinds(error) == only()


@pytest.mark.agent_case(119)
@pytest.mark.parametrize("error", [MemoryError(), MemoryError("out"), caused(MemoryError(), 5)])
def test_running_out_of_memory_is_recognised_and_never_passes(error: BaseException) -> None:
    assert all_kinds(error) == only("is_out_of_memory")


@pytest.mark.agent_case(119)
def test_running_out_of_memory_outweighs_what_an_error_says_of_itself() -> None:
    outer = Flagged(retryable=True)
    outer.__cause__ = MemoryError()
    assert not is_transient(outer)


@pytest.mark.agent_case(117, 121)
def test_causes_are_followed_eight_deep_and_a_ring_of_them_ends() -> None:
    assert is_superseded(caused(LeaseLost("gone"), 7))
    assert not is_superseded(caused(LeaseLost("gone"), 8))
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert all_kinds(first) == only()


def test_a_group_is_what_all_of_it_is() -> None:
    assert is_transient(ExceptionGroup("both", [StoreUnavailable("x"), caused(LeaseLost("gone"), 2)]))
    assert not is_transient(ExceptionGroup("one", [StoreUnavailable("x"), ValueError("mine")]))
    assert not is_transient(ValueError("raised while handling another"))


def test_what_was_being_handled_is_not_a_cause() -> None:
    def mishandle() -> None:
        try:
            raise StoreUnavailable("away")
        except StoreUnavailable:
            raise KeyError("a mistake in the handler")

    with pytest.raises(KeyError) as raised:
        mishandle()
    assert isinstance(raised.value.__context__, StoreUnavailable)
    assert not is_transient(raised.value)
