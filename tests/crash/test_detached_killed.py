"""Kill the process at every commit of a detached run: its end is told at least once, all else once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.detached_child import Boss, Helper, go_on, office
from tests.crash.nursery import Nursery, commits_of

pytestmark = pytest.mark.anyio


@pytest.mark.agent_case(363)
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_detached_run_comes_to_its_end_whenever_the_process_dies(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_sqlite = engine == "sqlite"
    store = f"sqlite:///{tmp_path}/everthink.db" if is_sqlite else request.getfixturevalue("postgres_url")
    told = tmp_path / "told"
    monkeypatch.setenv("TOLD", str(told))
    nursery = Nursery("tests.crash.detached_child", tmp_path)
    counts: set[int] = set()
    try:
        first = nursery.new_folder("detached")
        told.write_text("")
        nursery.is_killed(first, None, store=store, room=first.name)
        assert told.read_text().splitlines() == ["r completed found"]
        commits = [commit["commit"] for commit in commits_of(first)]
        assert len(commits) >= 10
        times = ("before", "after") if is_sqlite else ("after",)
        for at in (f"{commit}:{when}" for commit in commits[1:] for when in times):
            told.write_text("")
            folder = nursery.new_folder("detached")
            is_killed = nursery.is_killed(folder, at, store=store, room=folder.name)
            async with office(store) as app:
                await go_on(app, folder.name)
                boss = app.agent(Boss, folder.name)
                # One run, one turn of the child, each message once
                (run,) = await boss.list_agent_tool_runs()
                assert (run.status, is_killed) == ("completed", is_killed), at
                child = await boss.sub_agent(Helper, "r")
                said = [message.role for message in await child.get_messages()]
                assert said == ["user", "assistant"], (at, said)
                heard = [message.text.split(" (")[0] for message in await boss.get_messages()]
                assert sorted(heard) == [
                    "Good.",
                    "The background run of Helper",
                    "The background run of Helper has reached 'half'.",
                ], (at, heard)
            lines = told.read_text().splitlines()
            assert set(lines) == {"r completed found"}, (at, lines)
            counts.add(len(lines))
    finally:
        nursery.close()
    # At one point it was told, and that it was, was not stored
    assert counts == {1, 2}
