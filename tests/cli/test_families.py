"""Agents with children in the terminal: seen, exported, erased, released, talked to."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everthink import App, Think, agent_tool
from everthink.cli.chat import address_of
from everthink.cli.main import cli
from everthink.errors import AgentError
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.testing import ScriptedModel, calls, says
from tests.support.server import served

SECRET = "Zanzibarquokka"


class Scout(Think):
    model = ScriptedModel(says("Nothing there."), repeat=True)


class Researcher(Think):
    model = ScriptedModel(says(f"I found {SECRET}."), repeat=True)
    sub_agents = (Scout,)

    async def send_out(self) -> None:
        """Have a child of its own."""
        await (await self.sub_agent(Scout, "far")).save_messages("Go")


class Assistant(Think):
    model = ScriptedModel()
    sub_agents = (Researcher,)
    research = agent_tool(Researcher, description="Research.")


@pytest.fixture
def store(database: str) -> str:
    """A database with a family, and an agent whose name looks like a child's."""
    asyncio.run(fill(database))
    return database


async def fill(url: str) -> None:
    Assistant.model = ScriptedModel(calls("research", query=f"Where is {SECRET}?"), says("There."))
    async with App(Assistant, store=url, grace=0.0) as app:
        room = app.agent(Assistant, "room-1")
        await room.save_messages("Find it")
        for name in ("notes", "a/b"):
            child = await room.sub_agent(Researcher, name)
            await child.save_messages(f"Remember {SECRET}")
        await child.send_out()
        await app.agent(Assistant, "room-2").add_messages("Hello")


def told(run: CliRunner, *arguments: str) -> Any:
    shown = run.invoke(cli, [*arguments, "--json"])
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


def test_children_are_shown_below_their_parent(run: CliRunner, store: str) -> None:
    shown = run.invoke(cli, ["inspect", "--store", store]).stdout
    table = [line[1:] for line in shown.partition("Latest turns")[0].splitlines()]
    names = [line[: line.find("  ", 4)].rstrip() for line in table[4:-1]]
    [tool_run] = [name for name in names if "agent-tool:" in name]
    assert names[names.index("Assistant/room-1") :][:5] == [
        "Assistant/room-1",
        "  Researcher/a/b",
        "    Scout/far",
        "  Researcher/notes",
        tool_run,
    ]
    assert "Latest runs of children" in shown
    assert "Researcher/agent-tool:" in shown


def test_inspect_tells_families_and_runs_to_scripts(run: CliRunner, store: str) -> None:
    found = told(run, "inspect", "--store", store, "--agent", "assistant/room-1")
    assert [(one["class"], len(one["parents"])) for one in found["agents"]].count(("Researcher", 1)) == 3
    [scout] = [one for one in found["agents"] if one["class"] == "Scout"]
    assert (scout["parents"], scout["turns"]) == ([["Assistant", "room-1"], ["Researcher", "a/b"]], 1)
    [run_] = found["runs"]
    assert (run_["class"], run_["name"], run_["child_class"], run_["status"]) == (
        "Assistant",
        "room-1",
        "Researcher",
        "completed",
    )
    assert run_["started_at"] <= run_["ended_at"]
    assert len(found["turns"]) == 5
    # All of a class, wherever they are
    assert len(told(run, "inspect", "--store", store, "--agent", "scout")["turns"]) == 1
    assert {
        one["class"] for one in told(run, "inspect", "--store", store, "--agent", "Researcher")["agents"]
    } == {
        "Researcher",
        "Scout",
    }


@pytest.mark.parametrize(
    "written",
    [
        "assistant/room-1/sub/researcher/a%2Fb/sub/scout/far",
        "assistant/room-1/sub/researcher/a/b/sub/scout/far",
        "Assistant/room-1/sub/Researcher/a%2Fb/sub/Scout/far",
    ],
    ids=["as in an address", "as it is called", "as its id"],
)
def test_a_child_is_called_as_in_addresses(run: CliRunner, store: str, written: str) -> None:
    [found] = told(run, "inspect", "--store", store, "--agent", written)["agents"]
    assert (found["class"], found["name"]) == ("Scout", "far")


def test_many_children_are_counted_and_not_all_shown(run: CliRunner, tmp_path: Path) -> None:
    async def work() -> None:
        async with App(Assistant, store=f"sqlite:///{tmp_path}/many.db") as app:
            for number in range(5):
                child = await app.agent(Assistant, "room").sub_agent(Researcher, f"r{number}")
                await child.sub_agent(Scout, "s")

    asyncio.run(work())
    shown = run.invoke(cli, ["inspect", "--store", "many.db", "--limit", "2"]).stdout
    assert shown.count("Scout/s") == 2
    assert "… and 3 more" in shown


def test_an_export_holds_the_family_and_says_whose_each_line_is(run: CliRunner, store: str) -> None:
    shown = run.invoke(cli, ["export", "assistant/room-1", "--store", store])
    assert shown.exit_code == 0, shown.output
    head, *lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (head["class"], head["name"], "parents" in head) == ("Assistant", "room-1", False)
    children = [line for line in lines if line["kind"] == "child"]
    assert [(one["class"], len(one["parents"])) for one in children] == [
        ("Researcher", 1),
        ("Researcher", 1),
        ("Researcher", 1),
        ("Scout", 2),
    ]
    own = [line for line in lines if "agent" not in line]
    assert [line["role"] for line in own if line["kind"] == "message"] == ["user", "assistant"]
    [asked] = [line for line in own if line["kind"] == "child_run"]
    assert asked["display"] == {"name": "Researcher"}
    for child in children:
        kinds = {line["kind"] for line in lines if line.get("agent") == child["agent"]}
        assert {"child", "agent", "turn", "message"} <= kinds
    # The same from inside
    assert asyncio.run(exported(store)) == [head | {"exported_at": 0}, *lines]


async def exported(store: str) -> list[dict[str, Any]]:
    async with App(Assistant, store=store, grace=0.0) as app:
        lines = [line async for line in app.export(Assistant, "room-1")]
    return [lines[0] | {"exported_at": 0}, *lines[1:]]


def test_one_child_is_exported_with_those_above_it_named(run: CliRunner, store: str) -> None:
    shown = run.invoke(cli, ["export", "assistant/room-1/sub/researcher/a%2Fb", "--store", store])
    head, *lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (head["name"], head["parents"]) == ("a/b", [["Assistant", "room-1"]])
    assert [line["class"] for line in lines if line["kind"] == "child"] == ["Scout"]


def test_erasing_a_child_leaves_its_parent_and_siblings(run: CliRunner, store: str) -> None:
    done = told(run, "erase", "assistant/room-1/sub/researcher/a/b", "--store", store, "--yes")
    assert (done["agent"], done["erased"]) == ("Assistant/room-1/sub/Researcher/a%2Fb", True)
    left = [(one["class"], one["name"]) for one in told(run, "inspect", "--store", store)["agents"]]
    assert ("Researcher", "notes") in left
    assert ("Assistant", "room-1") in left
    assert ("Researcher", "a/b") not in left
    assert ("Scout", "far") not in left


def test_erasing_an_agent_says_how_many_go_with_it(run: CliRunner, store: str) -> None:
    refused = run.invoke(cli, ["erase", "assistant/room-1", "--store", store], input="no\n")
    assert "all below it: 4 more" in refused.output
    told(run, "erase", "assistant/room-1", "--store", store, "--yes")
    left = {one["name"] for one in told(run, "inspect", "--store", store)["agents"]}
    assert left == {"room-2"}


def test_a_turn_of_a_child_is_released(run: CliRunner, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agents.db"
    asyncio.run(fill(url))
    with sqlite3.connect(tmp_path / "agents.db") as database:
        database.execute(
            "INSERT INTO suspects (agent, turn, strikes, said, first_at, last_at, what, is_aside)"
            " VALUES ('Assistant/room-1/sub/Researcher/notes', '', 3, -1, 1, 1, 'died', 1)"
        )
    database.close()
    [row] = told(run, "inspect", "--store", url)["set_aside"]
    assert (row["class"], row["parents"]) == ("Researcher", [["Assistant", "room-1"]])
    done = told(run, "release", "assistant/room-1", "--store", url)["released"]
    assert [(one["class"], one["name"], one["parents"]) for one in done] == [
        ("Researcher", "notes", [["Assistant", "room-1"]])
    ]
    assert told(run, "inspect", "--store", url)["set_aside"] == []


def test_a_database_from_before_there_were_children_is_read(run: CliRunner, tmp_path: Path) -> None:
    async def older() -> None:
        before = [step for step in MIGRATIONS if step.number < 17]
        await (await open_store(f"sqlite:///{tmp_path}/old.db", before)).close()

    asyncio.run(older())
    with sqlite3.connect(tmp_path / "old.db") as database:
        database.execute(
            "INSERT INTO agents (agent, class, name, created_at, seen_at)"
            " VALUES ('Clerk/a', 'Clerk', 'a', 1, 1)"
        )
    database.close()
    found = told(run, "inspect", "--store", "old.db")
    assert [(one["class"], one["parents"]) for one in found["agents"]] == [("Clerk", [])]
    assert found["runs"] == []
    assert run.invoke(cli, ["export", "clerk/a", "--store", "old.db"]).exit_code == 0


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("assistant/room-1/sub/researcher/notes", "/agents/assistant/room-1/sub/researcher/notes"),
        ("Assistant/room-1/sub/DeepDive/a b", "/agents/assistant/room-1/sub/deep-dive/a%20b"),
        ("assistant/r/sub/researcher/a%2Fb", "/agents/assistant/r/sub/researcher/a%2Fb"),
        ("assistant/r/sub/a/1/sub/b/2", "/agents/assistant/r/sub/a/1/sub/b/2"),
        ("assistant/sub", "/agents/assistant/sub"),
        (
            "http://localhost:1/?agent=assistant&name=r&sub=researcher%2Fa%2Fb&sub=scout%2Ffar&inspect=turns",
            "/agents/assistant/r/sub/researcher/a%2Fb/sub/scout/far",
        ),
    ],
    ids=["plain", "class", "escaped", "deeper", "no child", "the page"],
)
def test_children_are_written_as_in_addresses(written: str, path: str) -> None:
    assert address_of(written, "http://localhost:1", None) == f"ws://localhost:1{path}"


def test_a_child_without_a_name_is_told() -> None:
    with pytest.raises(AgentError, match="names no child"):
        address_of("assistant/room-1/sub/researcher", "http://localhost:1", None)
    with pytest.raises(AgentError, match="names no child"):
        address_of("assistant/room-1/sub/a/b/sub/c", "http://localhost:1", None)


@pytest.mark.anyio
async def test_somebody_talks_to_a_child(run: CliRunner, tmp_path: Path) -> None:
    app = App(Assistant, store=f"sqlite:///{tmp_path}/agents.db")
    async with served(app) as server:
        options = ["--server", f"http://127.0.0.1:{server.port}", "-m", "Well?"]
        line = ["chat", "assistant/room-1/sub/researcher/notes", *options]
        shown = await asyncio.to_thread(run.invoke, cli, line)
        assert shown.exit_code == 0, shown.output
        assert f"I found {SECRET}." in shown.output
        child = await app.agent(Assistant, "room-1").sub_agent(Researcher, "notes")
        assert [message.role for message in await child.get_messages()] == ["user", "assistant"]
        shown = await asyncio.to_thread(run.invoke, cli, ["chat", "assistant/room-1/sub/scout/x", *options])
        assert shown.exit_code == 1
        assert "Sub-agent connection rejected (404)" in shown.output
