"""Pull the plug on timers and jobs: what was acknowledged happens in the next process, without a client."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.testing.clock import ManualClock
from tests.crash.process import Child
from tests.crash.timer_child import keeper
from tests.crash.wreck import Wreck
from tests.support.agents import live

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("timer_child.py")
BOTH = ["sqlite", "postgres"]
ROWS = "SELECT payload, type, starts, started_at FROM alarms ORDER BY payload"


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    return tmp_path / "effects"


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/everthink.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def child(url: str, scenario: str, effects: Path) -> Child:
    return Child(url, scenario, effects, script=SCRIPT)


def mended(effects: Path) -> type[Any]:
    """The agent once what hung has been mended."""
    cls = keeper(effects)
    cls.hang = cls.effect
    return cls


def lines_of(effects: Path) -> list[str]:
    """What callbacks did to the world: the payload, and how often it was begun."""
    return sorted(effects.read_text().splitlines()) if effects.exists() else []


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_timers_of_a_killed_process_fire_in_the_next_without_a_client_and_cancelled_ones_never(
    url: str, effects: Path
) -> None:
    with child(url, "plan", effects) as first:
        first.until("planned")
        first.kill()
    assert lines_of(effects) == []

    with child(url, "wake", effects) as second:
        ran = {second.until("ran")["payload"] for _ in range(3)}
        second.kill()
    assert ran == {"once", "interval", "cron"}
    # The second one may have died before it wrote that down; then the third does it once more, and says so
    with child(url, "wake", effects) as third:
        third.until("awake")
        third.kill()
    happened = lines_of(effects)
    assert {line.split()[0] for line in happened} == {"once", "interval", "cron"}
    for payload in ran:
        starts = [int(line.split()[1]) for line in happened if line.startswith(payload)]
        assert starts == list(range(1, len(starts) + 1))


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_callback_that_ran_when_the_process_died_runs_again_and_knows_it(
    url: str, effects: Path
) -> None:
    with child(url, "cut", effects) as first:
        assert {first.until("ran")["payload"] for _ in range(2)} == {"once", "interval"}
        first.kill()

    wreck = await Wreck.inspect(url)
    rows = [(row[0], row[2], row[3] is not None) for row in await wreck.rows(ROWS)]
    assert rows == [('"behind"', 0, False), ('"interval"', 1, True), ('"once"', 1, True)]
    await wreck.close()

    # The one-shot runs at once; so does the interval, whose hung time is long over
    with child(url, "wake", effects) as second:
        assert {second.until("ran")["payload"] for _ in range(2)} == {"once", "interval"}
        second.kill()
    assert lines_of(effects) == ["interval 1", "interval 2", "once 1", "once 2"]


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_an_interval_that_was_cut_off_is_not_begun_again_before_it_counts_as_hung(
    url: str, effects: Path
) -> None:
    with child(url, "cut", effects) as first:
        for _ in range(2):
            first.until("ran")
        first.kill()
    wreck = await Wreck.inspect(url)
    began = max(row[3] for row in await wreck.rows(ROWS) if row[1] == "interval")
    await wreck.close()

    clock, cls = ManualClock(start_ms=began + 29_999), mended(effects)
    async with App(cls, store=url, clock=clock, grace=0.0) as app:
        await (await app.open()).waker.idle()
        assert lines_of(effects) == ["behind 1", "interval 1", "once 1", "once 2"]
        await clock.advance(0.001)
        await (await app.open()).waker.idle()
    assert lines_of(effects) == ["behind 1", "interval 1", "interval 2", "once 1", "once 2"]


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_timer_that_has_run_and_was_written_down_does_not_run_again(url: str, effects: Path) -> None:
    with child(url, "over", effects) as first:
        assert first.until("over")["left"] == 0
        first.kill()
    clock = ManualClock(start_ms=time.time_ns() // 1_000_000)
    async with App(keeper(effects), store=url, clock=clock) as app:
        await (await app.open()).waker.idle()
    assert lines_of(effects) == ["once 1"]


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_jobs_of_a_killed_process_are_done_by_the_next_without_a_client(
    url: str, effects: Path
) -> None:
    with child(url, "jobs", effects) as first:
        first.until("ran")
        first.until("queued")
        first.kill()
    wreck = await Wreck.inspect(url)
    rows = await wreck.rows("SELECT payload, starts FROM jobs ORDER BY seq")
    assert [tuple(row) for row in rows] == [('"begun"', 1), ('"waiting"', 0)]
    await wreck.close()

    clock, cls = ManualClock(start_ms=time.time_ns() // 1_000_000), mended(effects)
    async with App(cls, store=url, clock=clock) as app:
        await (await app.open()).waker.idle()
        await (await live(app.agent(cls, "room")))._home.jobs.idle()
    assert lines_of(effects) == ["begun 1", "begun 2", "waiting 1"]
