"""Kill the process at every commit while somebody stops a turn: what was said to be stopped stays stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from tests.crash.nursery import Nursery, commits_of
from tests.crash.stop_child import HALF, REASON, STORIES, assistant
from tests.support.agents import live

pytestmark = pytest.mark.anyio


class Stories(Nursery):
    """Plays stories on one database, each in a room of its own."""

    def __init__(self, folder: Path, store: str) -> None:
        super().__init__("tests.crash.stop_child", folder)
        self.store = store

    def play(self, story: str, at: str | None = None) -> Path:
        """Play a story to its end, or to the commit `at`. Its folder is called like its room."""
        folder = self.new_folder(story)
        self.is_killed(folder, at, store=self.store, story=story, room=folder.name)
        return folder

    def wrecks(self, story: str) -> Iterator[tuple[str, str, str]]:
        """The story told to its end, and for each commit at which its process died: when, its room, what was
        told. What one leaves behind must be over before the next begins: they share a database, and a process
        that takes up what another one left makes commits that nobody counts."""
        whole = self.play(story)
        commits = [commit["commit"] for commit in commits_of(whole)]
        assert len(commits) >= 3
        yield "at its end", whole.name, _told(whole)
        for commit in commits[1:]:
            for when in ("before", "after"):
                folder = self.play(story, f"{commit}:{when}")
                yield f"{commit}:{when}", folder.name, _told(folder)


def _told(folder: Path) -> str:
    effects = folder / "effects"
    return effects.read_text() if effects.exists() else ""


@pytest.fixture(params=["sqlite", "postgres"])
def nursery(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stories]:
    is_sqlite = request.param == "sqlite"
    store = f"sqlite:///{tmp_path}/everthink.db" if is_sqlite else request.getfixturevalue("postgres_url")
    found = Stories(tmp_path, store)
    yield found
    found.close()


@pytest.mark.parametrize("story", STORIES)
async def test_what_was_said_to_be_stopped_stays_stopped_and_keeps_its_words(
    nursery: Stories, story: str
) -> None:
    seen: set[str] = set()
    for at, room, told in nursery.wrecks(story):
        cls, _ = assistant(is_first=False)
        async with App(cls, store=nursery.store, grace=0.0, idle_after=None) as app:
            agent: Any = await live(app.agent(cls, room))
            home = agent._home
            while home.chat.door._open:
                await home.chat.door.queue.wait_for_idle()
                await asyncio.sleep(0)
            turns = {row[0]: (row[1], row[2]) for row in await home.store.fetch(TURNS, home.id)}
            texts = [message.text for message in await agent.get_messages()]
        seen |= check(at, story, told, turns, texts)
    # Each story has been cut off before the stop counted, and after it
    assert seen == {"went on", "stopped"}


TURNS = "SELECT id, status, error FROM turns WHERE agent = ? ORDER BY seq"


def check(
    at: str, story: str, told: str, turns: dict[str, tuple[str, str | None]], texts: list[str]
) -> set[str]:
    """What became of the turn that somebody stopped, or was about to."""
    if not turns:
        return set()  # it was not even accepted
    id = "later" if story == "waits" else next(iter(turns))
    if id not in turns:
        return set()
    status, error = turns[id]
    if "stopped" in told:
        assert status in ("aborted", "skipped"), (at, turns)
    if story == "waits":
        assert "Later" not in texts or status == "completed", (at, texts)
        return {"stopped" if status == "aborted" else "went on"}
    if status == "completed":
        assert "".join(texts[1:]).endswith("answer."), (at, texts)
        return {"went on"}
    assert status in ("aborted", "skipped"), (at, turns)
    if story != "reset":  # which takes what was being said away
        assert (error, texts) == (REASON, ["Hi", HALF]), (at, turns, texts)
    return {"stopped"}
