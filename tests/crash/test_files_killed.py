"""Kill the process at every commit while a model works in files: they are as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.crash.files_child import TURNS, UPLOAD, Clerk, files, go_on
from tests.crash.nursery import Nursery, commits_of
from tests.support.samples import sample

pytestmark = pytest.mark.anyio

THOROUGH = sample(0, 1)
PARTS = sample(1, 5)
"""No test takes longer than one may."""


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_sqlite = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/everthink.db" if is_sqlite else request.getfixturevalue("postgres_url")


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery("tests.crash.files_child", tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("part", range(PARTS))
async def test_files_are_the_same_whenever_the_process_dies(nursery: Nursery, store: str, part: int) -> None:
    whole = nursery.new_folder("whole")
    nursery.is_killed(whole, None, store=store, room=whole.name, undoes=False)
    expected = await found_in(store, whole.name)
    assert [change[:2] for change in expected["log"]].count(("/notes/plan.md", "update")) == 3
    assert UPLOAD in expected["files"]
    commits = [commit["commit"] for commit in commits_of(whole)]
    assert len(commits) >= 12
    assert {state for _, state in expected["calls"]} == {"done"}
    deaths = 0
    points = chosen([f"{commit}:{when}" for commit in commits[1:] for when in ("before", "after")], 12)
    for at in points[part::PARTS]:
        folder = nursery.new_folder("clerk")
        deaths += nursery.is_killed(folder, at, store=store, room=folder.name, undoes=False)
        assert await found_in(store, folder.name) == expected, at
    assert deaths >= len(points[part::PARTS]) - 2  # what a script prints may make it a commit less


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_turn_is_taken_back_and_brought_back_once_whenever_the_process_dies(
    nursery: Nursery, store: str, part: int
) -> None:
    whole = nursery.new_folder("whole")
    nursery.is_killed(whole, None, store=store, room=whole.name, undoes=True)
    expected = await found_in(store, whole.name, undoes=True)
    commits = commits_of(whole)
    wrote = [commit["commit"] for commit in commits if "insert file_changes" in commit["writes"]]
    points = [f"{commit['commit']}:{when}" for commit in commits[1:] for when in ("before", "after")]
    of_undoing = [point for point in points if int(point.partition(":")[0]) in wrote[-2:]]
    worked = await found_in(store, await worked_room(nursery, store))
    assert expected["files"] == worked["files"]
    assert len(expected["log"]) > len(worked["log"])
    for at in (points if THOROUGH else of_undoing)[part::PARTS]:
        folder = nursery.new_folder("clerk")
        nursery.is_killed(folder, at, store=store, room=folder.name, undoes=True)
        assert await found_in(store, folder.name, undoes=True) == expected, at


async def worked_room(nursery: Nursery, store: str) -> str:
    folder = nursery.new_folder("worked")
    nursery.is_killed(folder, None, store=store, room=folder.name, undoes=False)
    return folder.name


def chosen(points: Sequence[str], few: int) -> Sequence[str]:
    """All of the points, or so many from the first to the last."""
    count = sample(few, len(points))
    return [points[n * len(points) // count] for n in range(min(count, len(points)))]


async def found_in(store: str, room: str, *, undoes: bool = False) -> dict[str, Any]:
    """What the next process has when the story is over: all of it but times and ids."""
    async with files(store) as app:
        await go_on(app, room, undoes=undoes)
        clerk: Any = await app.agent(Clerk, room).__aenter__()
        workspace, agent = clerk.workspace, clerk._home.store
        turns = [
            row[0] for row in await agent.fetch("SELECT id FROM turns WHERE agent = :agent ORDER BY seq")
        ]
        messages = await clerk.get_messages()
        assert [message.text for message in messages] == [text for ask in TURNS for text in (ask, "Done.")]
        changes = await workspace.changes()
        assert [change.seq for change in changes] == list(range(1, len(changes) + 1))
        named = "SELECT hash FROM files WHERE agent = :agent UNION SELECT hash FROM file_changes"
        orphans = await agent.fetch(
            f"SELECT hash FROM contents WHERE agent = :agent AND hash NOT IN (SELECT hash FROM ({named}"
            " WHERE agent = :agent UNION SELECT was_hash FROM file_changes WHERE agent = :agent) AS named"
            " WHERE hash IS NOT NULL)"
        )
        assert not orphans
        kept = {change.hash for change in changes if change.hash} | {c.was for c in changes if c.was}
        return {
            "files": {
                entry.path: (entry.kind, entry.size, entry.media_type, data)
                async for entry, data in workspace.files.scan("/", contents=True)
            },
            "log": [
                (
                    one.path,
                    one.change,
                    one.kind,
                    one.hash,
                    one.was,
                    turns.index(one.turn) if one.turn else None,
                )
                for one in changes
            ],
            "kept": {hash: await workspace.read_content(hash) for hash in sorted(kept)},
            "results": [
                (part["type"], part["state"], part["input"], part["output"])
                for message in messages
                for part in message.parts
                if "toolCallId" in part
            ],
            "calls": sorted(
                tuple(row) for row in await agent.fetch("SELECT tool, state FROM calls WHERE agent = :agent")
            ),
            "turns": await agent.fetch("SELECT status FROM turns WHERE agent = :agent"),
        }
