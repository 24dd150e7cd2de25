"""Kill the process at every commit around its memory: what was remembered is remembered, nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.messages import Message
from everthink.models.port import ToolMessage
from everthink.workspace.paths import EVICTED_FOLDER
from tests.crash.memory_child import FACT, PICTURE, SUMMARY, assistant, conversation
from tests.crash.nursery import Nursery, commits_of
from tests.support.agents import live
from tests.support.turns import Database

pytestmark = pytest.mark.anyio

OLD = [message.text for message in conversation()]


class Stories(Nursery):
    """Plays stories, each on a database of its own."""

    def play(self, story: str, *, cached: bool = False, at: str | None = None) -> Path:
        """Play a story, to its end or to the commit `at`. Returns the folder with its database."""
        folder = self.new_folder(story)
        is_killed = self.is_killed(folder, at, store=store_of(folder), story=story, is_cached=cached)
        assert is_killed is (at is not None), (story, at)
        return folder

    def wrecks(self, story: str, *, cached: bool = False, since: str = "") -> Iterator[tuple[str, Path]]:
        """One database for each commit of a story at which its process died, before it and after it.

        `since` leaves out the commits before the first that writes to that table.
        """
        commits = commits_of(self.play(story, cached=cached))
        first = next(n for n, commit in enumerate(commits) if not since or since in str(commit["writes"]))
        assert len(commits) - first >= 1
        for commit in commits[first:]:
            for when in ("before", "after"):
                at = f"{commit['commit']}:{when}"
                yield at, self.play(story, cached=cached, at=at)


def store_of(folder: Path) -> str:
    return f"sqlite:///{folder}/everthink.db"


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Stories]:
    found = Stories("tests.crash.memory_child", tmp_path)
    yield found
    found.close()


@asynccontextmanager
async def survivor(folder: Path, story: str, *, cached: bool = False) -> Any:
    """The agent in the next process, once it has finished what the dead one left: (agent, model)."""
    cls, model = assistant(story, is_first=False, is_cached=cached)
    async with App(cls, store=store_of(folder), grace=0.0, idle_after=None) as app:
        agent: Any = await live(app.agent(cls, "room"))
        home = agent._home
        while not home.chat.door.queue.is_idle or home.chat.door._open:
            await home.chat.door.queue.wait_for_idle()
            await asyncio.sleep(0)
        yield agent, model


def results(messages: list[Message]) -> list[str]:
    """What `set_context` said, in a conversation."""
    parts = [part for message in messages for part in message.tool_parts]
    return [part["output"] for part in parts if part["state"] == "output-available"]


@pytest.mark.parametrize("cached", [False, True], ids=["fresh prompt", "cached prompt"])
@pytest.mark.parametrize("story", ["remembers", "adds"])
async def test_a_fact_is_remembered_exactly_when_the_model_was_told_so(
    nursery: Stories, story: str, cached: bool
) -> None:
    seen: set[bool] = set()
    for at, folder in nursery.wrecks(story, cached=cached, since="turns"):
        # When the next process has ended the turn that was cut off, and in the one after it somebody asks
        async with survivor(folder, story, cached=cached) as (agent, _):
            said = results(agent.messages)
            assert len(said) <= 1, at
        async with survivor(folder, story, cached=cached) as (agent, model):
            await agent.save_messages("What is my cat called?")
            system = model.last_request.system

            # Then the fact is in the prompt, whole and once, if its result was said, and else nothing of it
            if cached and said and FACT not in system:
                # The prompt is older than the fact: the conversation holds it, and the next refresh shows it
                assert any(isinstance(m, ToolMessage) for m in model.last_request.messages), at
                assert await agent.session.compact() is not None, at
                await agent.save_messages("What is my cat called?")
                system = model.last_request.system
            assert system.count(FACT) == len(said), (at, said, system)
            assert ("Mo" in system) == bool(said), at
            if story == "adds":
                assert ("The dog is called Bo." in system) == (
                    agent.session.get_context_block("memory").content != ""
                ), at
            seen.add(bool(said))
    assert seen == {False, True}


@pytest.mark.case(395)
@pytest.mark.parametrize("cached", [False, True], ids=["fresh prompt", "cached prompt"])
@pytest.mark.parametrize("story", ["threshold", "reactive", "proactive"])
async def test_nothing_is_lost_around_a_compaction_and_the_turn_is_finished(
    nursery: Stories, story: str, cached: bool
) -> None:
    covered: set[bool] = set()
    for at, folder in nursery.wrecks(story, cached=cached, since="messages"):
        # Given what the dead process left: the overlay is there, or it is not; the prompt is never older
        wreck = Database(folder)
        rows = wreck.rows("SELECT id, content FROM messages WHERE id LIKE 'old%' ORDER BY seq")
        overlays = wreck.rows("SELECT * FROM compactions")
        prompts = wreck.rows("SELECT content FROM blocks WHERE label = ''")
        covered.add(bool(overlays))
        if overlays:
            assert all(FACT in row["content"] for row in prompts), at
            assert wreck.rows("SELECT id FROM messages WHERE id = ?", overlays[0]["to_message"]), at

        # When the next process has finished the turn
        async with survivor(folder, story, cached=cached) as (agent, model):
            asked = "And a wasp?" in wreck.texts()
            if asked:
                assert wreck.texts() == [*OLD, "And a wasp?", "A cousin."], at
                assert set(wreck.statuses()) == {"completed"}, at
            # Then each row is as it was, on every page of history
            now = wreck.rows("SELECT id, content FROM messages WHERE id LIKE 'old%' ORDER BY seq")
            assert now[: len(rows)] == rows, at
            assert [m.text for m in await agent.session.get_stored_path()] == wreck.texts(), at
            if wreck.rows("SELECT * FROM compactions"):
                assert agent.messages[0].text == SUMMARY, at
                await agent.save_messages("Hi.")
                assert FACT in model.last_request.system, at
            if story == "proactive" and asked:
                effects = (folder / "effects").read_text() if (folder / "effects").exists() else ""
                assert effects.count("buzz") <= 1, at
    assert covered == {False, True}


@pytest.mark.case(395)
async def test_a_prompt_that_stays_too_long_ends_with_an_error_in_whichever_process(nursery: Stories) -> None:
    for at, folder in nursery.wrecks("exhausted", since="turns"):
        async with survivor(folder, "exhausted") as (agent, model):
            wreck = Database(folder)
            if "And a wasp?" not in wreck.texts():
                continue
            # Then it was asked no more often than one process may, and what was shown is kept once
            assert model.asked <= 2, at
            assert wreck.statuses() == ["error"], at
            assert wreck.texts() == [*OLD, "And a wasp?", "A cous"], at
            assert agent._home.chat.host.last_failure.value is not None, at
            assert len(wreck.rows("SELECT * FROM compactions")) <= 2, at


async def test_a_file_is_in_its_message_or_beside_it(nursery: Stories) -> None:
    seen: set[int] = set()
    for at, folder in nursery.wrecks("evicts", since="contents"):
        wreck = Database(folder)
        files = {row["path"]: row for row in wreck.rows("SELECT * FROM files WHERE kind = 'file'")}
        moved = 0
        for message in wreck.messages():
            if not message["id"].startswith("pic"):
                continue
            text = json.dumps(message["parts"])
            if PICTURE in text:
                continue
            moved += 1
            assert any(path in text for path in files), (at, text)
        assert moved == len(files), at
        seen.add(moved)

        # And the next process finds every byte
        async with survivor(folder, "evicts") as (agent, _):
            for path in files:
                assert path.startswith(EVICTED_FOLDER)
                data = await agent.read_attachment(path)
                assert data is not None
                assert len(data) == files[path]["size"], at
    assert {0, 3} <= seen


@pytest.mark.parametrize("story", ["forks", "splits"])
async def test_a_forked_session_is_whole_or_not_there(nursery: Stories, story: str) -> None:
    seen: set[bool] = set()
    for at, folder in nursery.wrecks(story, since="messages"):
        wreck = Database(folder)
        made = wreck.rows("SELECT id FROM sessions WHERE id != ''")
        others = wreck.rows(
            "SELECT session, COUNT(*) AS n FROM messages WHERE session != '' GROUP BY session"
        )
        expected = 4 if story == "forks" else 1
        assert [(row["session"], row["n"]) for row in others] == [(row["id"], expected) for row in made], at
        if story == "splits":
            ended = wreck.rows("SELECT end_reason FROM sessions WHERE end_reason IS NOT NULL")
            assert len(ended) == len(made), at
        seen.add(bool(made))
    assert seen == {False, True}


async def test_a_session_is_deleted_whole_or_not_at_all(nursery: Stories) -> None:
    seen: set[str] = set()
    for at, folder in nursery.wrecks("deletes", since="compactions"):
        wreck = Database(folder)
        left = {
            table: len(wreck.rows(f"SELECT 1 FROM {table} WHERE {column} != ''"))
            for table, column in {
                "sessions": "id",
                "messages": "session",
                "compactions": "session",
                "blocks": "session",
            }.items()
        }
        if left["sessions"]:
            assert left["messages"] == len(OLD), (at, left)
            assert left["blocks"] >= 1, (at, left)
            seen.add("whole")
        else:
            assert set(left.values()) == {0}, (at, left)
            seen.add("gone")
    assert seen == {"whole", "gone"}
