"""`everthink export` and `everthink erase` as a person meets them, and as a script does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from everthink import App, Think
from everthink.cli.main import cli
from everthink.messages import Message
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import Statement
from everthink.testing import ScriptedModel, says

SECRET = "Zanzibarquokka"


class Assistant(Think):
    model = ScriptedModel(says(f"I know {SECRET}."), repeat=True, records=False)


@pytest.fixture
def store(database: str) -> str:
    """A database with two agents, which nobody has open."""
    asyncio.run(fill(database))
    return database


async def fill(url: str) -> None:
    async with App(Assistant, store=url, grace=0.0) as app:
        await app.agent(Assistant, "room-1").save_messages(f"Remember {SECRET}")
        await app.agent(Assistant, "room-2").add_messages("Hello")


async def conversation(url: str, name: str) -> list[Message]:
    async with App(Assistant, store=url, grace=0.0) as app:
        return await app.agent(Assistant, name).get_messages()


# --- export


def test_an_export_is_lines_of_json_that_hold_the_conversation(run: CliRunner, store: str) -> None:
    shown = run.invoke(cli, ["export", "assistant/room-1", "--store", store])
    assert shown.exit_code == 0, shown.output
    head, *lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (head["kind"], head["format"], head["class"], head["name"]) == ("export", 2, "Assistant", "room-1")
    said = [line["content"]["parts"][-1]["text"] for line in lines if line["kind"] == "message"]
    assert said == [message.text for message in asyncio.run(conversation(store, "room-1"))]
    assert said == [f"Remember {SECRET}", f"I know {SECRET}."]


def test_a_file_is_for_its_owner_alone_and_nothing_is_overwritten(
    run: CliRunner, store: str, tmp_path: Path
) -> None:
    os.umask(0)
    try:
        made = run.invoke(cli, ["export", "Assistant/room-1", "--store", store, "--output", "me.jsonl"])
    finally:
        os.umask(0o022)
    assert made.exit_code == 0, made.output
    assert stat.S_IMODE((tmp_path / "me.jsonl").stat().st_mode) == 0o600
    lines = (tmp_path / "me.jsonl").read_text().splitlines()
    assert f"{len(lines)} lines" in made.output
    again = run.invoke(cli, ["export", "Assistant/room-2", "--store", store, "--output", "me.jsonl"])
    assert again.exit_code == 1
    assert "exists" in again.output
    assert (tmp_path / "me.jsonl").read_text().splitlines() == lines
    # Nor is a link followed
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert (
        run.invoke(cli, ["export", "Assistant/room-2", "--store", store, "--output", "link"]).exit_code == 1
    )
    assert not (tmp_path / "elsewhere").exists()


def test_a_terminal_obeys_nothing_that_was_said(run: CliRunner, tmp_path: Path) -> None:
    said = "red \x1b[31m and \x9b31m and \x07 and \u2028"

    async def say() -> None:
        async with App(Assistant, store=f"{tmp_path}/a.db", grace=0.0) as app:
            await app.agent(Assistant, "room-1").add_messages(said)

    asyncio.run(say())
    shown = run.invoke(cli, ["export", "assistant/room-1", "--store", f"{tmp_path}/a.db"])
    assert not {"\x1b", "\x9b", "\x07"} & set(shown.stdout)
    lines = [json.loads(line) for line in shown.stdout.split("\n") if line]
    [message] = [line for line in lines if line["kind"] == "message"]
    assert message["content"]["parts"][0]["text"] == said


def test_an_export_works_while_a_server_writes(run: CliRunner, store: str) -> None:
    async def beside() -> str:
        async with App(Assistant, store=store, grace=0.0) as app:
            await app.agent(Assistant, "room-1").add_messages("While it runs")
            shown = await asyncio.to_thread(run.invoke, cli, ["export", "assistant/room-1", "--store", store])
            assert shown.exit_code == 0, shown.output
            return shown.stdout

    assert "While it runs" in asyncio.run(beside())


def test_an_unknown_agent_cannot_be_exported(run: CliRunner, store: str, tmp_path: Path) -> None:
    refused = run.invoke(cli, ["export", "assistant/nobody", "--store", store, "--output", "x"])
    assert refused.exit_code == 1
    assert "There is no agent 'assistant/nobody'" in refused.output
    assert not (tmp_path / "x").exists()
    vague = run.invoke(cli, ["export", "assistant", "--store", store])
    assert vague.exit_code == 1
    assert "class/name" in vague.output


def test_a_database_of_an_older_release_is_exported_as_it_is(run: CliRunner, tmp_path: Path) -> None:
    asyncio.run(older(f"sqlite:///{tmp_path}/old.db", 8))
    shown = run.invoke(cli, ["export", "assistant/room-1", "--store", "old.db"])
    assert shown.exit_code == 0, shown.output
    head, agent = map(json.loads, shown.stdout.splitlines())
    assert (head["schema"], agent["kind"], agent["name"]) == (8, "agent", "room-1")


def test_tables_that_are_not_those_of_their_schema_are_refused_before_the_first_line(
    run: CliRunner, tmp_path: Path
) -> None:
    asyncio.run(older(f"sqlite:///{tmp_path}/odd.db", 8))
    with contextlib.closing(sqlite3.connect(tmp_path / "odd.db")) as odd, odd:
        odd.execute("INSERT INTO everthink_schema VALUES (9, 'erasing', 0)")
    for more in ([], ["--output", "odd.jsonl"]):
        refused = run.invoke(cli, ["export", "assistant/room-1", "--store", "odd.db", *more])
        assert refused.exit_code == 1
        assert refused.stdout == ""
        assert "schema number 9 (this release: " in refused.stderr
        assert "Nothing was exported." in refused.stderr
    assert not (tmp_path / "odd.jsonl").exists()


async def older(url: str, schema: int) -> None:
    """A database with an agent, as a release wrote it that knew fewer steps."""
    store = await open_store(url, MIGRATIONS[:schema])
    sql = "INSERT INTO agents (agent, class, name, created_at) VALUES (?, ?, ?, ?)"
    await store.apply([Statement(sql, ("Assistant/room-1", "Assistant", "room-1", 1))])
    await store.close()


# --- erase


def test_erasing_asks_for_the_name_and_leaves_nothing(run: CliRunner, store: str, tmp_path: Path) -> None:
    kept = run.invoke(cli, ["erase", "assistant/room-1", "--store", store], input="room-2\n")
    assert kept.exit_code == 1
    assert "nothing was erased" in kept.output
    assert len(asyncio.run(conversation(store, "room-1"))) == 2
    done = run.invoke(cli, ["erase", "assistant/room-1", "--store", store], input="room-1\n")
    assert done.exit_code == 0, done.output
    assert "2 messages" in done.output
    assert "Assistant/room-1 is erased" in done.output
    assert "Backups" in done.output
    assert not [file for file in tmp_path.iterdir() if SECRET.encode() in file.read_bytes()]
    assert [m.text for m in asyncio.run(conversation(store, "room-2"))] == ["Hello"]
    gone = run.invoke(cli, ["export", "assistant/room-1", "--store", store])
    assert "There is no agent" in gone.output


def test_a_script_is_not_asked_and_may_erase_twice(run: CliRunner, store: str) -> None:
    asked = ["erase", "assistant/room-1", "--store", store, "--yes", "--json"]
    first, second = (run.invoke(cli, asked) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    told = json.loads(first.output)
    assert told == {"agent": "Assistant/room-1", "erased": True, "rows": told["rows"], "scrubbed": True}
    assert told["rows"] > 3
    assert json.loads(second.output)["erased"] is False
    assert run.invoke(cli, [*asked[:-2], "--json"]).exit_code == 2


def test_without_an_answer_nothing_is_erased(run: CliRunner, store: str) -> None:
    assert run.invoke(cli, ["erase", "assistant/room-1", "--store", store]).exit_code == 1
    assert len(asyncio.run(conversation(store, "room-1"))) == 2


def test_a_running_server_is_told_of_and_nothing_is_erased(run: CliRunner, store: str) -> None:
    async def beside() -> None:
        async with App(Assistant, store=store, grace=0.0) as app:
            await app.agent(Assistant, "room-1").get_messages()
            asked = ["erase", "assistant/room-1", "--store", store, "--yes"]
            refused = await asyncio.to_thread(run.invoke, cli, asked)
            assert refused.exit_code == 1
            assert "Nothing was erased" in refused.output
            assert "app.erase" in refused.output
            if store.startswith("sqlite"):
                assert f"pid {os.getpid()}" in refused.output
            assert len(await app.agent(Assistant, "room-1").get_messages()) == 2

    asyncio.run(beside())


def test_a_missing_database_is_not_made(run: CliRunner, tmp_path: Path) -> None:
    for command in ("erase", "export"):
        refused = run.invoke(cli, [command, "assistant/room-1", "--store", "nowhere.db"])
        assert refused.exit_code == 1
        assert "no database" in refused.output
    assert not (tmp_path / "nowhere.db").exists()
