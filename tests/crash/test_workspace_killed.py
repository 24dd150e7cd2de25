"""Kill the process at every commit while tools edit files: after a restart each call was made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from everthink.clock import SystemClock
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import AgentStore
from everthink.workspace import Workspace
from tests.crash.nursery import Nursery, commits_of
from tests.crash.workspace_child import AGENT, STORY

pytestmark = pytest.mark.anyio


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery("tests.crash.workspace_child", tmp_path)
    yield found
    found.close()


async def test_an_edit_and_the_end_of_its_call_are_there_together_whenever_the_process_dies(
    nursery: Nursery,
) -> None:
    whole = nursery.new_folder("whole")
    nursery.is_killed(whole, None, **_places(whole))
    expected = await _seen(whole)
    assert expected["tree"]["/notes/a.md"] == b"one\ntwo\nthree\nfour\n"
    commits = len(commits_of(whole))
    assert commits == len(STORY)  # what is swept afterwards is nothing
    for commit in range(1, commits + 1):
        for when in ("before", "after"):
            folder = nursery.new_folder(when)
            assert nursery.is_killed(folder, f"{commit}:{when}", **_places(folder))
            cut = await _seen(folder)
            assert len(cut["calls"]) == min(commit - (when == "before"), len(STORY))
            # A restart makes the calls that were not made, and nothing twice
            nursery.is_killed(folder, None, **_places(folder))
            assert await _seen(folder) == expected, (commit, when)


def _places(folder: Path) -> dict[str, str]:
    return {"store": f"sqlite:///{folder}/everthink.db", "bucket": str(folder / "bucket")}


async def _seen(folder: Path) -> dict[str, Any]:
    """The files, the log, the ledger, and what is in the bucket."""
    places = _places(folder)
    database = await open_store(places["store"], MIGRATIONS)
    mine = AgentStore(database, AGENT)
    bucket = LocalStore(places["bucket"], mkdir=True)
    files = Workspace(objects=bucket, spill_from=40).bind(mine, clock=SystemClock())
    try:
        changes = await files.changes()
        assert [change.seq for change in changes] == list(range(1, len(changes) + 1))
        return {
            "tree": {entry.path: data async for entry, data in files.files.scan(contents=True)},
            "changes": [(change.path, change.change, change.hash, change.was) for change in changes],
            "calls": await mine.fetch("SELECT name FROM kv WHERE agent = :agent ORDER BY name"),
            "objects": sorted(meta["path"] for page in bucket.list() for meta in page),
        }
    finally:
        await database.close()
