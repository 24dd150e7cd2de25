"""`everthink files` as a person meets it, and as a script does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from everthink import App, Think
from everthink.cli.main import cli
from everthink.testing import ScriptedModel, calls, says

WHO = "assistant/room-1"
BYTES = bytes(range(256))


class Helper(Think):
    model = ScriptedModel(says("Hello."), repeat=True, records=False)


class Assistant(Think):
    model = ScriptedModel(
        calls("write", path="/notes/plan.md", content="one\ntwo\n"),
        says("Done."),
        repeat=True,
        records=False,
    )


@pytest.fixture
def store(database: str) -> str:
    """A database with files of an agent and of its child, which nobody has open."""
    asyncio.run(fill(database))
    return database


async def fill(url: str) -> None:
    async with App(Assistant, Helper, store=url, grace=0.0) as app:
        agent: Any = await app.agent(Assistant, "room-1").__aenter__()
        await agent.save_messages("Plan.")
        await agent.workspace.write_file_bytes("/bytes.bin", BYTES)
        await agent.workspace.symlink("/notes/plan.md", "/link")
        child: Any = await agent.sub_agent(Helper, "h")
        await child.add_messages("Hi")


async def in_room(url: str) -> dict[str, bytes | None]:
    """What the agent itself has."""
    async with App(Assistant, Helper, store=url, grace=0.0) as app:
        agent: Any = await app.agent(Assistant, "room-1").__aenter__()
        entries = [entry async for entry, _ in agent.workspace.files.scan("/")]
        return {
            entry.path: await agent.workspace.read_file_bytes(entry.path)
            for entry in entries
            if entry.kind == "file"
        }


def files(run: CliRunner, store: str, *args: str, **options: Any) -> Result:
    return run.invoke(cli, ["files", *args, "--store", store], **options)


def done(run: CliRunner, store: str, *args: str, **options: Any) -> str:
    shown = files(run, store, *args, **options)
    assert shown.exit_code == 0, shown.output
    return shown.stdout


# --- looking


def test_a_folder_is_listed_with_sizes_and_for_scripts_as_json(run: CliRunner, store: str) -> None:
    shown = done(run, store, "ls", WHO)
    assert [line.split()[-1] for line in shown.splitlines()] == ["notes/", "bytes.bin", "/notes/plan.md"]
    assert "256 B" in shown
    assert "/notes/plan.md" in done(run, store, "ls", "Assistant/room-1", "-r")
    entries = json.loads(done(run, store, "ls", WHO, "-r", "--json"))
    assert {entry["path"]: entry["kind"] for entry in entries} == {
        "/bytes.bin": "file",
        "/link": "symlink",
        "/notes": "directory",
        "/notes/plan.md": "file",
    }


def test_a_file_is_written_to_standard_output_byte_by_byte(run: CliRunner, store: str) -> None:
    assert done(run, store, "cat", WHO, "/link") == "one\ntwo\n"
    assert files(run, store, "cat", WHO, "/bytes.bin").stdout_bytes == BYTES
    told = json.loads(done(run, store, "cat", WHO, "/bytes.bin", "--json"))
    assert told["encoding"] == "base64"


def test_what_is_not_there_is_said_with_exit_code_one(run: CliRunner, store: str) -> None:
    for args in (("cat", WHO, "/nope"), ("ls", WHO, "/nope"), ("get", WHO, "/nope"), ("rm", WHO, "/nope")):
        shown = files(run, store, *args)
        assert (shown.exit_code, "'/nope'" in shown.stderr) == (1, True), shown.output
    nobody = files(run, store, "ls", "assistant/room-2")
    assert nobody.exit_code == 1
    assert "Did you mean Assistant/room-1?" in nobody.stderr
    assert files(run, store, "diff", WHO).exit_code == 2
    assert files(run, store, "restore", WHO).exit_code == 2


@pytest.mark.slow
def test_bytes_are_not_written_to_a_terminal_and_a_text_does_nothing_to_it(
    run: CliRunner, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/agents.db"
    asyncio.run(fill(store))
    (tmp_path / "red.txt").write_text("red \x1b[31m\n")
    done(run, store, "put", WHO, "red.txt")
    shown = terminal(store, "cat", WHO, "/bytes.bin")
    assert "is no text (256 B), and this is a terminal" in shown
    shown = terminal(store, "cat", WHO, "/red.txt")
    assert "red \\x1b[31m" in shown
    assert "\x1b[31m" not in shown


def terminal(store: str, *args: str) -> str:
    """What a person sees of a command."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "everthink.cli", "files", *args, "--store", store]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while piece := os.read(ours, 4096):
            seen += piece
    process.wait()
    os.close(ours)
    return seen.decode(errors="replace")


# --- to this machine, and back


def test_folders_go_to_this_machine_and_come_back_as_they_were(
    run: CliRunner, store: str, tmp_path: Path
) -> None:
    got = files(run, store, "get", WHO, "/", "copy", "-r")
    assert got.exit_code == 0, got.output
    assert "/link is a link" in got.stderr
    assert (tmp_path / "copy/bytes.bin").read_bytes() == BYTES
    assert stat.S_IMODE((tmp_path / "copy/notes/plan.md").stat().st_mode) == 0o600
    (tmp_path / "copy/empty").mkdir()
    (tmp_path / "copy/away").symlink_to("/etc/passwd")
    put = files(run, store, "put", WHO, "copy", "/copied", "-r")
    assert put.exit_code == 0, put.output
    assert "copy/away is a link" in put.stderr
    again = json.loads(done(run, store, "put", WHO, "copy", "/copied", "-r", "--json"))
    assert (again["written"], again["unchanged"]) == ([], 2)
    found = asyncio.run(in_room(store))
    assert found["/copied/bytes.bin"] == BYTES
    assert found["/copied/notes/plan.md"] == b"one\ntwo\n"
    assert "/copied/empty" in done(run, store, "ls", WHO, "/copied", "-r")


def test_nothing_here_is_replaced_unless_that_is_asked_for(
    run: CliRunner, store: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.md").write_text("mine")
    refused = files(run, store, "get", WHO, "/notes/plan.md")
    assert (refused.exit_code, "exists" in refused.stderr) == (1, True)
    assert (tmp_path / "plan.md").read_text() == "mine"
    (tmp_path / "elsewhere").write_text("elsewhere")
    (tmp_path / "plan.md").unlink()
    (tmp_path / "plan.md").symlink_to(tmp_path / "elsewhere")
    assert files(run, store, "get", WHO, "/notes/plan.md").exit_code == 1
    done(run, store, "get", WHO, "/notes/plan.md", "--force")
    assert (tmp_path / "plan.md").read_text() == "one\ntwo\n"
    assert (tmp_path / "elsewhere").read_text() == "elsewhere"
    # Nor is a folder written to through a link in it
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/notes").symlink_to(tmp_path)
    through = files(run, store, "get", WHO, "/", "copy", "-r", "--force")
    assert (through.exit_code, "is a link" in through.stderr) == (1, True)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".everthink-")]


def test_a_folder_needs_r_and_standard_input_a_path(run: CliRunner, store: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert "-r" in files(run, store, "put", WHO, "folder").stderr
    assert "-r" in files(run, store, "get", WHO, "/notes").stderr
    assert files(run, store, "put", WHO, "-", input="x").exit_code == 2
    done(run, store, "put", WHO, "-", "/todo.txt", input="Buy milk\n")
    done(run, store, "put", WHO, "folder", "/made/", "-r")
    assert done(run, store, "cat", WHO, "/todo.txt") == "Buy milk\n"
    assert "/made/folder/" in done(run, store, "ls", WHO, "-r")


def test_a_child_has_files_of_its_own(run: CliRunner, store: str, tmp_path: Path) -> None:
    child = f"{WHO}/sub/helper/h"
    assert done(run, store, "ls", child) == "There are no files.\n"
    done(run, store, "put", child, "-", "/own.txt", input="own")
    assert done(run, store, "cat", child, "/own.txt") == "own"
    assert files(run, store, "cat", WHO, "/own.txt").exit_code == 1


# --- what was


def test_changes_are_listed_compared_and_taken_back(run: CliRunner, store: str, tmp_path: Path) -> None:
    log = json.loads(done(run, store, "log", WHO, "--json"))
    assert [one["seq"] for one in log] == [1, 2, 3, 4]
    assert log[1]["turn"]
    assert log[2]["turn"] is None
    done(run, store, "put", WHO, "-", "/notes/plan.md", input="one\n2\n")
    done(run, store, "rm", WHO, "/bytes.bin")
    told = done(run, store, "diff", WHO, "--since", "4")
    assert "-two\n+2\n" in told
    assert "Binary files /bytes.bin differ" in told
    assert done(run, store, "diff", WHO, "/link", "/notes/plan.md") == ""
    (tmp_path / "local.md").write_text("one\n")
    local = json.loads(done(run, store, "diff", WHO, "/notes/plan.md", "--local", "local.md", "--json"))
    assert (local["equal"], "-2" in local["diff"]) == (False, True)
    assert "bytes.bin" in done(run, store, "log", WHO, "--limit", "1")
    assert files(run, store, "restore", WHO, "99").exit_code == 1
    unknown = files(run, store, "diff", WHO, "--since", "99")
    assert (unknown.exit_code, "There is no change 99." in unknown.stderr) == (1, True), unknown.output
    assert done(run, store, "diff", WHO, "--since", "6") == ""
    told = done(run, store, "restore", WHO, "4")
    assert told == "2 changes made it so. To take that back: everthink files restore assistant/room-1 6\n"
    assert asyncio.run(in_room(store)) == {"/notes/plan.md": b"one\ntwo\n", "/bytes.bin": BYTES}
    assert done(run, store, "restore", WHO, "4") == "It is so already.\n"
    unknown = files(run, store, "restore", WHO, "--turn", "nope")
    assert (unknown.exit_code, "was made in the turn 'nope'" in unknown.stderr) == (1, True), unknown.output
    done(run, store, "restore", WHO, "3")
    assert "/link" not in done(run, store, "ls", WHO, "-r")
    refused = files(run, store, "restore", WHO, "--turn", log[1]["turn"])
    assert (refused.exit_code, "ESTALE" in refused.stderr) == (1, True), refused.output


def test_a_turn_is_taken_back_by_the_end_of_its_id_that_inspect_shows(run: CliRunner, store: str) -> None:
    [turn, *_] = [one["turn"] for one in json.loads(done(run, store, "log", WHO, "--json")) if one["turn"]]
    assert turn[-8:] in run.invoke(cli, ["inspect", "--store", store]).output
    assert files(run, store, "restore", WHO, "--turn", turn[-3:]).exit_code == 1
    assert "made it so" in done(run, store, "restore", WHO, "--turn", turn[-8:])
    assert "/notes/plan.md" not in asyncio.run(in_room(store))


def test_a_folder_that_is_not_empty_is_told_with_the_option_that_removes_it(
    run: CliRunner, store: str
) -> None:
    refused = files(run, store, "rm", WHO, "/notes")
    assert refused.exit_code == 1
    assert "Say -r to remove it with all that is in it." in refused.stderr
    assert "/notes/plan.md" in asyncio.run(in_room(store))


# --- beside a server


def test_beside_a_server_one_can_look_and_is_told_who_holds_what_one_wants_to_change(
    run: CliRunner, store: str
) -> None:
    async def beside() -> list[Result]:
        async with App(Assistant, Helper, store=store, grace=0.0) as app:
            agent: Any = await app.agent(Assistant, "room-1").__aenter__()
            await agent.workspace.write_file("/now.txt", "now\n")
            tried = [
                ("cat", WHO, "/now.txt"),
                ("ls", WHO),
                ("log", WHO),
                ("put", WHO, "-", "/x.txt"),
                ("rm", WHO, "/now.txt"),
                ("restore", WHO, "1"),
            ]
            return [await asyncio.to_thread(files, run, store, *args) for args in tried]

    cat, ls, log, *refused = asyncio.run(beside())
    assert cat.stdout == "now\n"
    assert (ls.exit_code, log.exit_code) == (0, 0)
    for one in refused:
        assert one.exit_code == 1, one.output
        assert f"{os.getpid()}" in one.stderr
        assert "Nothing was changed." in one.stderr
        assert "`agent.workspace`" in one.stderr
    assert "/x.txt" not in asyncio.run(in_room(store))


def test_a_database_of_a_release_without_files_says_so(run: CliRunner, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/agents.db"
    asyncio.run(fill(store))
    with sqlite3.connect(tmp_path / "agents.db") as database:
        database.execute("DROP TABLE files")
    shown = files(run, store, "ls", WHO)
    assert (shown.exit_code, "had no files" in shown.stderr) == (1, True)


def test_a_file_is_said_to_be_where_it_is(run: CliRunner, store: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    told = done(run, store, "put", WHO, "a.txt", "/x/../../b.txt")
    assert told == "/b.txt written, 1 B.\n"
    assert done(run, store, "put", WHO, "-", "c//d.txt", input="c") == "/c/d.txt written, 1 B.\n"
    assert done(run, store, "cat", WHO, "/b.txt") == "a"
    assert done(run, store, "diff", WHO, "--since", "0").count("@@ -0,0 +1,1 @@") >= 1
