"""Kill the process at every commit while an agent waits for two children: nobody can tell afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.recovery.aside import SET_ASIDE_TEXT
from everthink.recovery.suspects import STRIKES
from everthink.recovery.trials import WINDOW
from everthink.runtime.erasing import TABLES
from tests.crash.family_child import (
    ANSWER,
    DIES_PAYING,
    HEARD,
    PAID,
    TALK,
    Desk,
    Payer,
    Talker,
    family,
    go_on,
)
from tests.crash.nursery import Nursery, commits_of
from tests.support.agents import live
from tests.support.hooks import until

pytestmark = pytest.mark.anyio

HEARD_OF = {"Payer began", "Payer completed", "Talker began", "Talker completed"}
CHILDREN = {"Payer": Payer, "Talker": Talker}


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_sqlite = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/everthink.db" if is_sqlite else request.getfixturevalue("postgres_url")


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery("tests.crash.family_child", tmp_path)
    yield found
    found.close()


@pytest.mark.case(663, 665)
@pytest.mark.agent_case(254, 334, 348, 349, 359, 360, 361)
async def test_two_children_work_once_each_whenever_the_process_dies(
    nursery: Nursery, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = nursery.new_folder("whole")
    nursery.is_killed(whole, None, store=store, room=whole.name)
    commits = [commit["commit"] for commit in commits_of(whole)]
    assert len(commits) >= 12
    outcomes: list[str] = []
    for at in (f"{commit}:{when}" for commit in commits[1:] for when in ("before", "after")):
        folder = nursery.new_folder("desk")
        nursery.is_killed(folder, at, store=store, room=folder.name)
        monkeypatch.setenv("EFFECTS", str(folder / "effects"))
        async with family(store) as app:
            await go_on(app, folder.name)
            outcomes.append(await check(app, at, folder))
    # Whether one fell into the tool itself depends on what the sibling said meanwhile.
    assert "done" in outcomes


async def test_a_child_that_died_in_its_tool_says_so_and_its_parent_answers(
    nursery: Nursery, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = nursery.new_folder("desk")
    (folder / DIES_PAYING).touch()
    assert nursery.is_killed(folder, "9999:after", store=store, room=folder.name)
    (folder / DIES_PAYING).unlink()
    monkeypatch.setenv("EFFECTS", str(folder / "effects"))
    async with family(store) as app:
        await go_on(app, folder.name)
        assert await check(app, "in the tool", folder) == "unknown"


async def test_a_family_that_was_killed_twice_does_not_wait_for_itself(
    nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parent and child are suspects then, which are tried one by one; and the parent waits for the child."""
    store = f"sqlite:///{tmp_path}/everthink.db"
    for first, second in ((5, 9), (9, 11), (11, 9), (12, 10), (12, 13), (13, 14)):
        folder = nursery.new_folder("desk")
        assert nursery.is_killed(folder, f"{first}:after", store=store, room=folder.name)
        assert nursery.is_killed(folder, f"{second}:after", store=store, room=folder.name)
        monkeypatch.setenv("EFFECTS", str(folder / "effects"))
        async with asyncio.timeout(WINDOW / 2), family(store) as app:
            await go_on(app, folder.name)
            await check(app, f"{first}, {second}", folder)


async def test_a_deadly_child_is_set_aside_and_its_parent_answers(nursery: Nursery, store: str) -> None:
    folder = nursery.new_folder("desk")
    deaths = 0
    while nursery.is_killed(folder, "9999:after", store=store, room=folder.name, ask="The deadly one"):
        deaths += 1
        assert deaths < 6
    assert deaths == STRIKES + 1
    async with family(store) as app:
        desk: Any = app.agent(Desk, folder.name)
        await live(desk)
        messages = await desk.get_messages()
        assert messages[1].text == ANSWER
        parts = {part["type"]: part for part in messages[1].parts if "toolCallId" in part}
        assert parts["tool-pays"]["output"] == {
            "ok": False,
            "status": "error",
            "error": SET_ASIDE_TEXT,
            "retryable": False,
        }
        assert parts["tool-talks"]["output"] == TALK
        assert [(aside.agent, bool(aside.turn)) for aside in await app.set_aside()] == [
            (f"{desk.id}/sub/Payer/agent-tool:call_1", True)
        ]


async def test_a_child_is_deleted_whole_or_not_at_all(
    nursery: Nursery, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = nursery.new_folder("whole")
    nursery.is_killed(whole, None, store=store, room=whole.name, deletes=True)
    commits = commits_of(whole)
    # The one that deletes: what is below it, found by the database, has no name in a list of deeds
    deleting = next(c["commit"] for c in reversed(commits) if (c["agent"] or "").endswith("/gone"))
    outcomes: list[str] = []
    for commit in range(deleting - 2, len(commits) + 3):  # an attempt may be noted sooner, or later
        for when in ("before", "after"):
            folder = nursery.new_folder("desk")
            nursery.is_killed(folder, f"{commit}:{when}", store=store, room=folder.name, deletes=True)
            monkeypatch.setenv("EFFECTS", str(folder / "effects"))
            outcomes.append(await check_deleted(store, folder))
    assert set(outcomes) == {"kept", "deleted"}


async def check_deleted(store: str, folder: Path) -> str:
    """All of the child is there, or nothing of it in any table; of its sibling everything is."""
    async with family(store) as app:
        desk: Any = app.agent(Desk, folder.name)
        await live(desk)
        database, gone = (await app.open()).store, f"{desk.id}/sub/Payer/gone"
        left: dict[str, int] = {}
        for table in TABLES:
            sql = f"SELECT COUNT(*) FROM {table.name} WHERE agent = ? OR agent = ?"
            [(left[table.name],)] = await database.fetch(sql, gone, f"{gone}/sub/Talker/below")
        told = (folder / "effects").read_text().splitlines()
        is_there = any(left.values())
        if "deleted" in told:
            assert not is_there, left
        if is_there:
            assert left["agents"] == 2, left
        kept = await (await desk.sub_agent(Payer, "kept")).get_messages()
        assert [message.text for message in kept] == ["Keep this."]
        again = await desk.sub_agent(Payer, "gone")
        await again.wait_until_stable()  # it may have been about to answer yet
        messages = await again.get_messages()
        assert len(messages) == (2 if is_there else 0)
        assert len(await again.list_sub_agents()) == (1 if is_there else 0)
        return "kept" if is_there else "deleted"


async def check(app: App, at: str, folder: Path) -> str:
    """What became of a story: all of it is there once, or it is said that nobody knows."""
    desk: Any = app.agent(Desk, folder.name)
    messages = await desk.get_messages()
    assert [message.role for message in messages] == ["user", "assistant"], at
    parts = {part["type"]: part for part in messages[1].parts if "toolCallId" in part}
    assert messages[1].text == ANSWER, at
    assert parts["tool-pays"]["output"] == PAID, (at, parts)
    assert parts["tool-talks"]["output"] == TALK, (at, parts)
    runs = await desk.list_agent_tool_runs()
    assert sorted((run.agent_type, run.status) for run in runs) == [
        ("Payer", "completed"),
        ("Talker", "completed"),
    ], (at, runs)
    await until(lambda: heard(folder) == HEARD_OF)
    state = ""
    for run in runs:
        child = await desk.sub_agent(CHILDREN[run.agent_type], run.run_id)
        said = await child.get_messages()
        assert [message.role for message in said] == ["user", "assistant"], (at, said)
        assert said[1].text == (PAID if run.agent_type == "Payer" else TALK), (at, said)
        if run.agent_type == "Payer":
            (part,) = [part for part in said[1].parts if "toolCallId" in part]
            state = part["state"]
            if state != "output-available":
                assert "may or may not" in part["errorText"], (at, part)
    effects = folder / "effects"
    paid = effects.read_text().splitlines() if effects.exists() else []
    assert paid == ["paid 7"] if state == "output-available" else paid in ([], ["paid 7"]), (at, state, paid)
    rows = await rows_of(app, desk.id)
    assert rows["turns"] == [("agent-tool", "completed")] * 2 + [("programmatic", "completed")], (at, rows)
    assert rows["calls"] in (["done"] * 3, ["done", "done", "unknown"]), (at, rows)
    assert rows["agents"] == 3, (at, rows)
    assert rows["incidents"] == 0, (at, rows)
    return "done" if state == "output-available" else "unknown"


def heard(folder: Path) -> set[str]:
    """What the hooks of the parent heard: each thing, however often."""
    found = folder / HEARD
    return set(found.read_text().splitlines()) if found.exists() else set()


async def rows_of(app: App, root: str) -> dict[str, Any]:
    """What is stored of a family."""
    store = (await app.open()).store
    ours = "agent IN (SELECT agent FROM agents WHERE agent = ? OR root = ?)"

    async def fetch(sql: str) -> list[Any]:
        return list(await store.fetch(f"{sql} WHERE {ours}", root, root))

    return {
        "turns": sorted((row[0], row[1]) for row in await fetch("SELECT trigger, status FROM turns")),
        "calls": sorted(row[0] for row in await fetch("SELECT state FROM calls")),
        "agents": len(await fetch("SELECT agent FROM agents")),
        "incidents": len(await fetch("SELECT agent FROM incidents")),
    }
