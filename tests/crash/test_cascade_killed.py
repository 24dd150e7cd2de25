"""Kill the process at every commit while a stop goes down through three levels: all stop, or all go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from tests.crash.cascade_child import REASON, at_rest, three
from tests.crash.nursery import Nursery, commits_of
from tests.crash.wreck import Wreck
from tests.support.agents import live

pytestmark = pytest.mark.anyio


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery("tests.crash.cascade_child", tmp_path)
    yield found
    found.close()


@pytest.mark.agent_case(312, 331, 350)
@pytest.mark.parametrize(
    ("engine", "story"), [("sqlite", "submission"), ("sqlite", "all"), ("postgres", "submission")]
)
async def test_a_stop_reaches_the_innermost_whenever_the_process_dies(
    nursery: Nursery, engine: str, story: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_sqlite = engine == "sqlite"
    store = f"sqlite:///{tmp_path}/everthink.db" if is_sqlite else request.getfixturevalue("postgres_url")
    whole = nursery.new_folder("whole")
    nursery.is_killed(whole, None, store=store, story=story, room=whole.name)
    seen = {await check(store, whole, "at its end")}
    commits = commits_of(whole)
    first = next(c["commit"] for c in commits if "insert child_runs" in c["writes"])
    for commit in range(first, len(commits) + 1):
        for when in ("before", "after"):
            folder = nursery.new_folder("top")
            nursery.is_killed(folder, f"{commit}:{when}", store=store, story=story, room=folder.name)
            seen.add(await check(store, folder, f"{commit}:{when}"))
    assert seen == {"stopped", "went on"}


async def check(store: str, folder: Path, at: str) -> str:
    """How the three turns ended, and the runs: alike."""
    # Where it was stopped the innermost would never end by itself
    cls = three(is_first=await was_stopped(store, folder.name))
    effects = folder / "effects"
    told = effects.read_text() if effects.exists() else ""
    async with App(cls, store=store, grace=0.0, idle_after=None) as app:
        top: Any = await live(app.agent(cls, folder.name))
        async with asyncio.timeout(30):
            await at_rest(app)
        turns = await rows(app, top.id, "SELECT status, error FROM turns")
        runs = await rows(app, top.id, "SELECT status, error FROM child_runs")
        texts = [message.text for message in await top.get_messages()]
    outcomes = {status for status, _ in turns}
    if "completed" in outcomes:
        assert "stopped" not in told, (at, turns)
        assert (len(turns), outcomes) == (3, {"completed"}), (at, turns, runs)
        assert (len(runs), {status for status, _ in runs}) == (2, {"completed"}), (at, runs)
        assert texts[-1] == "Top is done.", (at, texts)
        return "went on"
    assert len(turns) == 1 + len(runs), (at, turns, runs)
    assert set(turns) <= {("aborted", REASON), ("skipped", REASON)}, (at, turns)
    assert {status for status, _ in runs} <= {"aborted"}, (at, runs)
    return "stopped"


async def was_stopped(store: str, room: str) -> bool:
    """True when the stop of the outermost is stored."""
    wreck = await Wreck.inspect(store)
    try:
        sql = "SELECT 1 FROM turns WHERE agent = ? AND (stop IS NOT NULL OR status = 'aborted')"
        return bool(await wreck.rows(sql, f"Top/{room}"))
    finally:
        await wreck.close()


async def rows(app: App, root: str, sql: str) -> list[Any]:
    """Rows of all three."""
    ours = "agent IN (SELECT agent FROM agents WHERE agent = ? OR root = ?) ORDER BY agent"
    return [tuple(row) for row in await (await app.open()).store.fetch(f"{sql} WHERE {ours}", root, root)]
