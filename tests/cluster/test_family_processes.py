"""Families and real server processes on one real database: one has all of a family, or the other has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from everthink.client.runs import ChildRun, Runs
from everthink.testing.client import Client
from everthink.testing.node import Node
from everthink.wire.frames import AgentToolEvent
from tests.cluster.household import DONE, FILED, Head
from tests.cluster.seen import PATIENCE, Database, let_in
from tests.cluster.talker import ANSWER, HELD_AFTER, WORDS

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
FIRST = "".join(WORDS[:HELD_AFTER]).strip()
ALL_OVER = "SELECT count(*) = 3 FROM turns WHERE status = 'completed'"


class Pair:
    """Two servers. The one that is asked first has the family, and its talker is held up."""

    def __init__(self, store: str, folder: Path, **env: str) -> None:
        self._folder = folder
        env = {"HOUSEHOLD_STORE": store, "HOUSEHOLD_NOTES": str(folder / "notes"), **env}
        gate = {"TALKER_GATE": str(folder / "gate")}
        self.owner = Node("tests.cluster.household:app", folder=ROOT, env={**env, **gate})
        self.other = Node("tests.cluster.household:app", folder=ROOT, env=env)

    def let_talk(self) -> None:
        """Open the gate of the talker."""
        (self._folder / "gate").touch()

    @property
    def notes(self) -> list[str]:
        """What tools did, whichever process it was."""
        return sorted(line.split()[0] for line in (self._folder / "notes").read_text().splitlines())

    async def ask(self) -> Client:
        """Ask the parent, and return once one child is done and the other is held up in its words."""
        chat = await self.owner.connect(Head, "room")
        await chat.say("Go.")

        def is_held_up() -> bool:
            is_done = [run.status for run in _runs(chat)].count("completed") == 1
            return is_done and _stand(chat) == {"Clerk": FILED, "Talker": FIRST}

        await chat.until(is_held_up, timeout=PATIENCE)
        return chat


@pytest.fixture
async def pair(request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path) -> AsyncIterator[Pair]:
    lease: str | None = getattr(request, "param", None)
    made = Pair(postgres_url, tmp_path, **({} if lease is None else {"HOUSEHOLD_LEASE": lease}))
    async with made.owner, made.other:
        yield made


def _runs(chat: Client) -> list[ChildRun]:
    """The runs of the children, as a window of the parent was told of them."""
    runs = Runs()
    for frame in chat.of("agent-tool-event"):
        runs.take(AgentToolEvent(frame["sequence"], frame["event"], frame.get("parentToolCallId")))
    return runs.all


def _stand(chat: Client) -> dict[str, str]:
    """What each child has said."""
    return {run.agent_type: run.text.strip() for run in _runs(chat)}


def _paths(chat: Client) -> list[str]:
    """The addresses of the family."""
    children = [f"/sub/{run.agent_type.lower()}/{quote(run.run_id, safe='')}" for run in _runs(chat)]
    return [f"/agents/head/room{child}" for child in ("", *children)]


async def _is_refused(node: Node, paths: list[str]) -> None:
    """Parent and children alike are said to be with another process."""
    for path in paths:
        answer = await node.http(f"{path}/get-messages")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1"), path
        assert "Another server process has this conversation" in answer.text
        assert (await (await node.connect(path)).until_closed())[0] == 1013, path


async def _is_whole(pair: Pair, database: Database, paths: list[str]) -> None:
    """Everything was said and done once, and the other process has all of the family."""
    assert sorted(await database.answers()) == sorted([ANSWER, DONE, FILED])
    assert sorted(await database.rows("SELECT trigger, status FROM turns")) == [
        ("agent-tool", "completed"),
        ("agent-tool", "completed"),
        ("ws-chat", "completed"),
    ]
    assert sorted(await database.rows("SELECT class, status FROM child_runs")) == [
        ("Clerk", "completed"),
        ("Talker", "completed"),
    ]
    assert await database.rows("SELECT DISTINCT state FROM calls") == [("done",)]
    assert await database.value("SELECT count(*) FROM agents") == 3
    assert await database.value("SELECT count(*) FROM incidents") == 0
    assert pair.notes == ["filed", "stamped"]
    chat = await let_in(pair.other, Head, "room")
    await chat.until_text(DONE)
    await chat.until(lambda: [run.status for run in _runs(chat)] == ["completed"] * 2)
    assert _stand(chat) == {"Clerk": FILED, "Talker": ANSWER}
    for run in _runs(chat):
        frames = [f for f in chat.of("agent-tool-event") if f["event"]["runId"] == run.run_id]
        assert [frame["sequence"] for frame in frames] == list(range(len(frames)))
    for path in paths[1:]:
        answer = await pair.other.http(f"{path}/get-messages")
        assert [message["role"] for message in answer.json] == ["user", "assistant"]
    live = "SELECT c.agent FROM claims c JOIN nodes n ON n.id = c.owner WHERE n.state = 'live'"
    assert await database.rows(live) == [("Head/room",)]


async def test_a_family_is_with_one_process_and_the_other_says_so_of_each_of_its_members(
    pair: Pair, database: Database
) -> None:
    chat = await pair.ask()
    paths = _paths(chat)
    assert len(paths) == 3
    await _is_refused(pair.other, paths)
    assert await database.rows("SELECT agent FROM claims") == [("Head/room",)]
    # Another family may be with the other one meanwhile
    stranger = await pair.other.connect("/agents/head/elsewhere/sub/clerk/x")
    await stranger.until_frame("identity")
    await _is_refused(pair.owner, ["/agents/head/elsewhere", "/agents/head/elsewhere/sub/clerk/x"])
    # and nothing of that has disturbed anybody
    pair.let_talk()
    await chat.until_text(DONE)
    assert sorted(await database.answers()) == sorted([ANSWER, DONE, FILED])
    await _is_refused(pair.other, paths)


async def test_a_family_whose_process_is_killed_is_taken_over_whole_and_finished_once(
    pair: Pair, database: Database
) -> None:
    # Given a parent that waits, a child in the middle of its words and one that is done
    paths = _paths(await pair.ask())
    await _is_refused(pair.other, paths)
    # When their process dies, and nobody asks for them
    await pair.owner.kill()
    await database.until(ALL_OVER)
    # Then the other one has found out, and gone on with both where they were
    assert "is dead" in pair.other.log
    await _is_whole(pair, database, paths)


async def test_a_family_whose_process_is_told_to_stop_goes_on_in_the_other(
    pair: Pair, database: Database
) -> None:
    paths = _paths(await pair.ask())
    assert await pair.owner.term() == 0
    await database.until(ALL_OVER)
    assert "is dead" not in pair.other.log
    await _is_whole(pair, database, paths)


@pytest.mark.parametrize("pair", ["3"], indirect=True, ids=["a short lease"])
async def test_a_process_that_stood_still_has_no_member_of_its_family_any_more(
    pair: Pair, database: Database
) -> None:
    chat = await pair.ask()
    paths = _paths(chat)
    # When it stands still for longer than its lease, and goes on in the middle of a child's words
    await pair.owner.pause()
    await database.until(ALL_OVER)
    pair.let_talk()
    pair.owner.resume()
    # Then nothing of what it says is stored or shown
    assert (await chat.until_closed())[0] in (1006, 1012)
    assert _stand(chat)["Talker"] == FIRST
    await database.until("SELECT count(*) = 2 FROM nodes WHERE state = 'live'")
    await _is_whole(pair, database, paths)
    await _is_refused(pair.owner, paths)
