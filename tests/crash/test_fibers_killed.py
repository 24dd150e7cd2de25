"""Fibers whose process is killed: another process goes on with them where they were.

What was said on stdout was done: none of it may be lost or done again.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash.process import Child
from tests.crash.wreck import Wreck
from tests.support.fibers import waiting_agents

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).with_name("fiber_child.py")
FIBERS = ("plain", "managed", "other")
STEPS = 4


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    return tmp_path / "effects"


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/everthink.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def lines_of(effects: Path) -> list[str]:
    """What the steps did to the world."""
    return effects.read_text().splitlines()


def child(url: str, scenario: str, effects: Path) -> Child:
    return Child(url, scenario, effects, script=SCRIPT)


def steps_of(lines: list[dict[str, Any]]) -> Counter[str]:
    """How many steps each fiber has said it did."""
    return Counter(line["name"] for line in lines if line["kind"] == "step")


def read(process: Child, kind: str, count: int) -> None:
    """Read on until the child has said this so often."""
    while sum(line["kind"] == kind for line in process.lines) < count:
        process.until(kind)


async def open_fibers(url: str) -> list[str]:
    wreck = await Wreck.inspect(url)
    try:
        return [agent for agent, _ in await waiting_agents(wreck._store)]
    finally:
        await wreck.close()


@pytest.mark.agent_case(187)
@pytest.mark.parametrize(
    ("url", "more"), [*(("sqlite", n) for n in (0, 1, 4)), ("postgres", 2)], indirect=["url"]
)
async def test_killed_fibers_go_on_by_themselves_and_do_each_step_once(
    url: str, effects: Path, more: int
) -> None:
    # Given three fibers of two agents, killed when each waits after a step
    with child(url, "begin", effects) as first:
        read(first, "step", 3)
        for number in range(more):
            first.go_on()
            read(first, "step", 4 + number)
        done = steps_of(first.kill())
    assert set(done) == set(FIBERS)
    assert sorted(await open_fibers(url)) == ["Worker/ann", "Worker/ben"]

    # When a process starts and nobody asks for them, then each goes on from its last checkpoint
    with child(url, "wake", effects) as second:
        read(second, "recovered", 3)
        found = {line["name"]: line for line in second.lines if line["kind"] == "recovered"}
        assert {name: line["snapshot"]["done"] for name, line in found.items()} == dict(done)
        assert {name: line["status"] for name, line in found.items()} == {
            "plain": None,
            "managed": "interrupted",
            "other": None,
        }
        # killed again, in the middle of it
        read(second, "step", sum(count < STEPS for count in done.values()))
        done += steps_of(second.kill())

    # and again, until all is done
    with child(url, "wake", effects) as third:
        while sum(line["kind"] == "finished" for line in third.lines) < 3:
            third.go_on()
            assert third.read() is not None
        done += steps_of(third.kill())
    assert done == Counter(dict.fromkeys(FIBERS, STEPS))
    lines = lines_of(effects)
    assert sorted(lines) == sorted(f"{name} {number}" for name in FIBERS for number in range(STEPS))
    for name in FIBERS:
        assert [line for line in lines if line.startswith(name)] == [f"{name} {n}" for n in range(STEPS)]

    # Nothing is left to recover
    with child(url, "ask", effects) as last:
        asked = last.until("asked")
        assert asked == {"kind": "asked", "id": "job", "status": "completed", "accepted": False}
        assert [line["kind"] for line in last.kill()] == ["asked"]
    assert lines_of(effects) == lines


@pytest.mark.agent_case(191, 270)
@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_killed_fibers_of_children_go_on_by_themselves(url: str, effects: Path) -> None:
    # Given fibers of a child and of its child, killed when each waits after a step
    with child(url, "begin_below", effects) as first:
        read(first, "step", 3)
        done = steps_of(first.kill())
    kid = "Worker/ann/sub/Worker/kid"
    assert sorted(await open_fibers(url)) == [kid, f"{kid}/sub/Worker/deep"]

    # When process after process starts and dies, and nobody asks for them
    agents = dict[str, str]()
    while done != Counter(dict.fromkeys(FIBERS, STEPS)):
        with child(url, "wake", effects) as process:
            left = [name for name in FIBERS if done[name] < STEPS]
            read(process, "recovered", len(left))
            read(process, "step", len(left))
            agents |= {line["name"]: line["agent"] for line in process.lines if line["kind"] == "recovered"}
            done += steps_of(process.kill())

    # Then each went on in its own child, and did each step once
    assert agents == {"plain": kid, "managed": kid, "other": f"{kid}/sub/Worker/deep"}
    assert sorted(lines_of(effects)) == sorted(f"{name} {n}" for name in FIBERS for n in range(STEPS))


@pytest.mark.agent_case(190)
async def test_waiting_for_a_killed_fiber_in_another_process_ends(url: str, effects: Path) -> None:
    with child(url, "begin", effects) as first:
        read(first, "step", 3)
    with child(url, "ask", effects) as second:
        while (line := second.read()) is not None and line["kind"] != "asked":
            if line["kind"] == "step":
                second.go_on()
        assert line == {"kind": "asked", "id": "job", "status": "completed", "accepted": False}
    lines = lines_of(effects)
    assert [line for line in lines if line.startswith("managed")] == [f"managed {n}" for n in range(STEPS)]


# --- at each commit


def count_commits(url: str, effects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    counts = tmp_path / "commits"
    monkeypatch.setenv("EVERTHINK_COUNT_COMMITS", str(counts))
    with child(url, "whole", effects) as process:
        assert process.until("over")["status"] == "completed"
    monkeypatch.delenv("EVERTHINK_COUNT_COMMITS")
    return [json.loads(line) for line in counts.read_text().splitlines()]


COMMITS = 8
"""The start, the record and with it the agent, its begin, four checkpoints, its end."""


def test_the_work_has_as_many_commits_as_we_kill_it_at(
    url: str, effects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = count_commits(url, effects, tmp_path, monkeypatch)
    assert [commit["writes"] for commit in commits] == [
        ["insert suspects"],
        ["insert fibers", "insert agents"],
        *[["update fibers"]] * 6,
    ]
    assert len(commits) == COMMITS


@pytest.mark.parametrize(
    ("at", "when"), [*((n, "after") for n in range(1, COMMITS + 1)), *((n, "before") for n in (2, 3, 5, 8))]
)
def test_work_killed_at_a_commit_is_finished_by_the_next_process(
    url: str, effects: Path, monkeypatch: pytest.MonkeyPatch, at: int, when: str
) -> None:
    monkeypatch.setenv("EVERTHINK_CRASH_AT", f"{at}:{when}")
    with child(url, "whole", effects) as first:
        while first.read() is not None:
            pass
        assert not any(line["kind"] == "over" for line in first.lines)
    # The second process dies too, in the middle of what it goes on with
    monkeypatch.setenv("EVERTHINK_CRASH_AT", f"{min(at, 4)}:{when}")
    with child(url, "whole", effects) as second:
        while second.read() is not None:
            pass
    monkeypatch.delenv("EVERTHINK_CRASH_AT")
    with child(url, "whole", effects) as third:
        assert third.until("over") == {"kind": "over", "status": "completed", "snapshot": {"done": STEPS}}
    assert lines_of(effects) == [f"managed {number}" for number in range(STEPS)]
    # What was said to be done was not done again
    said = [
        line["number"] for process in (first, second, third) for line in process.lines if "number" in line
    ]
    assert said == sorted(set(said))


# --- failing and slow hooks


@pytest.mark.agent_case(188)
def test_a_fiber_whose_hook_always_fails_is_tried_ever_later_and_dropped_when_it_is_old(
    url: str, effects: Path
) -> None:
    with child(url, "poison", effects) as first:
        first.until("began")
    with child(url, "poison", effects) as second:
        for seconds in (30, 60, 120):
            assert second.until("waits")["seconds"] == seconds
            if seconds < 120:
                second.go_on()
        assert sum(line["kind"] == "recovered" for line in second.kill()) == 3
    # Ninety seconds old, and the next process knows how often it has failed
    with child(url, "poison", effects) as third:
        assert third.until("waits")["seconds"] == 240
        third.go_on()
        assert third.until("waits")["seconds"] == 0
        told = [(line["type"], line["reason"]) for line in third.kill() if line["kind"] == "told"]
    assert told == [
        ("fiber:recovery:failed", "handler_error"),
        ("fiber:recovery:failed", "handler_error"),
        ("fiber:recovery:skipped", "max_age_exceeded"),
    ]
    with child(url, "poison", effects) as last:
        assert last.until("waits")["seconds"] == 0
        assert [line["kind"] for line in last.kill()] == ["waits"]


@pytest.mark.agent_case(189)
def test_a_large_batch_is_recovered_in_several_passes_of_several_processes(url: str, effects: Path) -> None:
    with child(url, "many", effects) as first:
        read(first, "began", 7)
    names: list[str] = []
    for left in (5, 3):
        with child(url, "many", effects) as process:
            assert process.until("started")["left"] == left
            names += [line["name"] for line in process.kill() if line["kind"] == "recovered"]
    with child(url, "many", effects) as last:
        assert last.until("started")["left"] == 1
        last.go_on()
        assert last.until("later")["left"] == 0
        names += [line["name"] for line in last.kill() if line["kind"] == "recovered"]
    assert names == [f"work {number}" for number in range(7)]
