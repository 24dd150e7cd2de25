"""Kill the process at every commit of a turn with a skill, its script and two extensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.crash.extension_child import calls_of, go_on, lines_of, smithy
from tests.crash.nursery import Nursery, commits_of
from tests.support.samples import sample

pytestmark = pytest.mark.anyio
pytest.importorskip("quickjs_rs")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_sqlite = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/everthink.db" if is_sqlite else request.getfixturevalue("postgres_url")


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery("tests.crash.extension_child", tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("part", range(4))
async def test_what_an_agent_learns_is_learned_once_whenever_the_process_dies(
    nursery: Nursery, store: str, part: int
) -> None:
    whole = nursery.new_folder("whole")
    assert nursery.is_killed(whole, None, store=store, room=whole.name) is False
    commits = [commit["commit"] for commit in commits_of(whole)]
    assert len(commits) >= 15
    points = [f"{commit}:{when}" for commit in commits[1:] for when in ("before", "after")]
    deaths = doubts = 0
    few = chosen(points[part::4], 2)
    for at in few:
        folder = nursery.new_folder("learn")
        deaths += nursery.is_killed(folder, at, store=store, room=folder.name)
        doubts += await doubt_in_the_end(store, folder.name, at)
    assert deaths >= len(few) - 1  # what is shown meanwhile may make it a commit less
    print(f"{len(few)} of {len(points)} points, {deaths} deaths, {doubts} doubts")


async def doubt_in_the_end(store: str, room: str, at: str) -> bool:
    """Look that everything is as it should be. True when the ledger's call could not be told."""
    async with smithy(store) as app:
        agent = await go_on(app, room)
        made = await calls_of(agent)
        assert list(made) == [
            "activate_skill", "run_skill_script", "ledger_add", "load_extension", "words_count"
        ], (at, list(made))  # fmt: skip
        assert made["activate_skill"]["output"].startswith("<skill_content"), (at, made)
        assert made["run_skill_script"]["output"] == 2, (at, made)
        assert made["load_extension"]["output"]["tools"] == ["words_count", "words_shout"], (at, made)
        assert made["words_count"]["output"] == {"words": 3}, (at, made)
        names = [(info.name, info.origin) for info in agent.extension_manager.list()]
        assert names == [("ledger", "declared"), ("words", "model")], (at, names)
        added, lines = made["ledger_add"], await lines_of(agent)
        if added["state"] == "output-available":
            assert (added["output"], lines) == (1, ["one"]), (at, added, lines)
            return False
        assert "may or may not have taken effect" in added["errorText"], (at, added)
        assert lines in ([], ["one"]), (at, lines)
        return True


def chosen(points: Sequence[str], few: int) -> Sequence[str]:
    """All of the points, or so many from the first to the last."""
    count = min(sample(few, len(points)), len(points))
    return [points[n * len(points) // count] for n in range(count)]
