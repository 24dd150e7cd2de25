"""The commands as a person meets them: help, errors, exit codes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everthink import App, Think, tool
from everthink.cli.main import COMMANDS, cli
from everthink.codemode import create_execute_tool
from everthink.serving.missing_models import odd_keys
from everthink.testing import ScriptedModel, calls, fails, says

from ..support.commands import Command

MAIN = """
from everthink import App, Think

class Helper(Think):
    model = "demo"

service = App(Helper)
number = 7
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(run: CliRunner, name: str) -> None:
    shown = run.invoke(cli, [name, "--help"])
    assert shown.exit_code == 0
    assert f"everthink {name}" in shown.output
    assert "Example" in shown.output


@pytest.mark.slow
def test_help_lists_the_commands_without_importing_them() -> None:
    script = (
        "import sys; from everthink.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "heavy = set('rich uvicorn starlette websockets watchfiles'.split()) & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "doctor" in ran.stdout


def test_a_misspelt_command_is_answered_with_the_nearest(run: CliRunner) -> None:
    shown = run.invoke(cli, ["inspct"])
    assert shown.exit_code == 2
    assert "'inspect'" in shown.output


def test_the_version_is_said(run: CliRunner) -> None:
    assert run.invoke(cli, ["--version"]).output.startswith("everthink 0")


# --- new
@pytest.mark.slow
def test_a_new_project_passes_its_own_test(run: CliRunner, tmp_path: Path) -> None:
    made = run.invoke(cli, ["new", "Shop Helper"])
    assert made.exit_code == 0, made.output
    project = tmp_path / "Shop Helper"
    metadata = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert metadata["name"] == "shop-helper"

    # Then what it says to do next can be done as it is written: the folder, what the tests need, the tests
    said = [line.strip() for line in made.output.splitlines()]
    assert "cd 'Shop Helper'" in said
    assert "pip install -e '.[dev]'" in (project / "README.md").read_text()
    assert any(line.startswith("pip install -e '.[dev]' ") for line in said)
    assert metadata["optional-dependencies"]["dev"] == ["pytest"]
    for written in (line for line in said if line.startswith("python -m pytest")):
        ran = subprocess.run(
            [sys.executable, *written.partition("  ")[0].split()[1:]],
            cwd=project,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stdout
        assert "1 passed" in ran.stdout


def test_a_folder_with_something_in_it_is_left_alone(run: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("keep me")
    refused = run.invoke(cli, ["new", "mine"])
    assert refused.exit_code == 1
    assert "not empty" in refused.output
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["precious.txt"]


def test_new_says_which_name_it_made_and_why(run: CliRunner, tmp_path: Path) -> None:
    made = run.invoke(cli, ["new", "my first ägent"])
    assert made.exit_code == 0
    assert "The project is called my-first-agent" in made.output
    assert "names of packages have the letters a to z" in made.output
    metadata = tomllib.loads((tmp_path / "my first ägent" / "pyproject.toml").read_text())
    assert metadata["project"]["name"] == "my-first-agent"
    told = json.loads(run.invoke(cli, ["new", "Straße 9", "--json"]).output)
    assert (told["folder"], told["name"]) == ("Straße 9", "strasse-9")
    assert "is called" not in run.invoke(cli, ["new", "shop"]).output


@pytest.mark.parametrize("name", ["日本語", "", "  ", "…", "a\nb", "everthink", "Everthink"])
def test_new_refuses_what_cannot_become_a_name(run: CliRunner, tmp_path: Path, name: str) -> None:
    refused = run.invoke(cli, ["new", name])
    assert refused.exit_code == 2
    assert "Nothing was made." in refused.output
    assert list(tmp_path.iterdir()) == []


# --- inspect


class Clerk(Think):
    @tool
    def stamp(self, paper: str) -> str:
        """Stamp a paper."""
        return f"{paper} stamped"


def a_database(tmp_path: Path) -> str:
    store = f"sqlite:///{tmp_path}/clerk.db"

    async def work() -> None:
        Clerk.model = ScriptedModel(calls("stamp", paper="A4"), says("Done."), fails("no paper"))
        async with App(Clerk, store=store) as app:
            await app.agent(Clerk, "desk").save_messages("Stamp it")
            await app.agent(Clerk, "hall").save_messages("Again")

    asyncio.run(work())
    return store


def test_inspect_shows_agents_turns_and_calls(run: CliRunner, tmp_path: Path) -> None:
    store = a_database(tmp_path)
    shown = run.invoke(cli, ["inspect", "--store", store])
    assert shown.exit_code == 0, shown.output
    assert "Clerk/desk" in shown.output
    assert "completed" in shown.output
    assert "stamp" in shown.output

    told = json.loads(
        run.invoke(cli, ["inspect", "--store", store, "--agent", "clerk/desk", "--json"]).output
    )
    assert [agent["name"] for agent in told["agents"]] == ["desk"]
    assert {turn["status"] for turn in told["turns"]} == {"completed"}
    assert [call["tool"] for call in told["calls"]] == ["stamp"]


def test_inspect_shows_an_approved_call_once(run: CliRunner, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/clerk.db"

    @tool(needs_approval=True)
    def sign() -> str:
        """Sign a paper."""
        return "signed"

    class Notary(Think):
        model = ScriptedModel(calls("sign"), says("Done."))

        def get_tools(self) -> object:
            return [sign]

    async def work() -> None:
        async with App(Notary, store=store) as app:
            desk = app.agent(Notary, "desk")
            asked = await desk.save_messages("Sign it")
            await desk.apply_tool_approval(asked.message.tool_parts[0]["toolCallId"], True)
            await desk.continue_last_turn()

    asyncio.run(work())
    (call,) = json.loads(run.invoke(cli, ["inspect", "--store", store, "--json"]).output)["calls"]
    assert (call["tool"], call["state"]) == ("sign", "done")
    assert call["asked_at"] <= call["started_at"] <= call["settled_at"]


CODE = """
for n in range(4):
    await tools.look(what=f"token=sk-ant-api03-{'k' * 40} \\x1b[31mred {n}")
try:
    await tools.broken()
except RuntimeError:
    pass
await tools.sign()
"""


def code_in(store: str) -> None:
    """Code that has made calls and waits for a person, and code that has failed."""

    @tool
    def look(what: str) -> str:
        """Look at it."""
        return what

    @tool
    def broken() -> str:
        """Raise."""
        raise ValueError("no such shelf")

    @tool(needs_approval=True)
    def sign() -> str:
        """Sign a paper."""
        return "signed"

    class Coder(Think):
        model = ScriptedModel(
            calls("execute", {"code": "1 / 0"}),
            says("Oh."),
            calls("execute", {"code": CODE}),
            says("Done."),
        )

        def get_tools(self) -> object:
            return [create_execute_tool([look, broken, sign])]

    async def work() -> None:
        async with App(Coder, store=store) as app:
            await app.agent(Coder, "desk").save_messages("Try")
            await app.agent(Coder, "desk").save_messages("Go")

    asyncio.run(work())


@pytest.mark.slow
def test_inspect_shows_what_code_has_called(run: CliRunner, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/coder.db"
    code_in(store)
    told = run.invoke(cli, ["inspect", "--store", store, "--json"]).output
    waiting, failed = json.loads(told)["executions"]
    assert (waiting["name"], waiting["tool"], waiting["language"]) == ("desk", "execute", "python")
    assert (waiting["state"], waiting["error"], failed["state"]) == ("paused", None, "error")
    assert "ZeroDivisionError" in failed["error"]
    assert [(call["seq"], call["tool"], call["state"]) for call in waiting["calls"]] == [
        *((n, "tools.look", "done") for n in (1, 2, 3, 4)),
        (5, "tools.broken", "failed"),
        (6, "tools.sign", "pending"),
    ]
    assert "no such shelf" in waiting["calls"][4]["error"]
    assert waiting["calls"][0]["began_at"] <= waiting["calls"][0]["settled_at"]
    assert "kkkk" not in told

    shown = run.invoke(cli, ["inspect", "--store", store]).output
    assert "Latest code and its calls" in shown
    assert "  6 tools.sign" in shown
    assert "no such shelf" in shown
    assert "kkkk" not in shown
    assert "\x1b[31m" not in shown
    short = run.invoke(cli, ["inspect", "--store", store, "--limit", "2"]).output
    assert "  … and 4 more" in short
    assert "  3 tools.look" not in short


@pytest.mark.slow
def test_inspect_shows_code_in_postgresql(run: CliRunner, postgres_url: str) -> None:
    code_in(postgres_url)
    told = json.loads(run.invoke(cli, ["inspect", "--store", postgres_url, "--json"]).output)
    assert [(one["state"], len(one["calls"])) for one in told["executions"]] == [("paused", 6), ("error", 0)]


@pytest.mark.slow
def test_inspect_reads_beside_the_owner_and_changes_nothing(run: CliRunner, tmp_path: Path) -> None:
    store = a_database(tmp_path)

    async def look_while_open() -> str:
        Clerk.model = ScriptedModel(says("Fresh."))
        async with App(Clerk, store=store) as app:
            await app.agent(Clerk, "fresh").save_messages("Hello")
            return await asyncio.to_thread(
                lambda: (
                    subprocess.run(
                        [sys.executable, "-m", "everthink.cli", "inspect", "--store", store, "--json"],
                        capture_output=True,
                        text=True,
                        check=True,
                    ).stdout
                )
            )

    told = json.loads(asyncio.run(look_while_open()))
    assert "fresh" in [agent["name"] for agent in told["agents"]]
    before = (tmp_path / "clerk.db").read_bytes()
    run.invoke(cli, ["inspect", "--store", store])
    assert (tmp_path / "clerk.db").read_bytes() == before


@pytest.mark.parametrize(
    ("store", "says_"),
    [
        ("sqlite:///nowhere.db", "There is no database"),
        ("notes.txt", "cannot be read as a database"),
        ("mysql://x", "is no store"),
    ],
)
def test_inspect_says_what_it_cannot_read(run: CliRunner, tmp_path: Path, store: str, says_: str) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, " * 100)
    refused = run.invoke(cli, ["inspect", "--store", store])
    assert refused.exit_code == 1
    assert says_ in refused.output
    assert "Traceback" not in refused.output
    assert not (tmp_path / "nowhere.db").exists()


def test_inspect_reads_postgresql(run: CliRunner, postgres_url: str) -> None:
    async def work() -> None:
        Clerk.model = ScriptedModel(says("Done."))
        async with App(Clerk, store=postgres_url) as app:
            await app.agent(Clerk, "desk").save_messages("Hello")

    asyncio.run(work())
    told = json.loads(run.invoke(cli, ["inspect", "--store", postgres_url, "--json"]).output)
    assert [(turn["class"], turn["status"]) for turn in told["turns"]] == [("Clerk", "completed")]


# --- doctor


@pytest.mark.slow
def test_doctor_finds_nothing_wrong_in_an_empty_folder(run: CliRunner) -> None:
    shown = run.invoke(cli, ["doctor"])
    assert shown.exit_code == 0, shown.output
    assert "SQLite" in shown.output


@pytest.mark.slow
def test_doctor_says_whether_scripts_can_run_here_and_why_not(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = json.loads(run.invoke(cli, ["doctor", "--json"]).output)
    engines = {check["name"]: check for check in told["checks"] if check["name"] in ("bash", "javascript")}
    assert [(found["state"], found["found"]) for found in engines.values()] == [
        ("ok", "scripts run in a locked process")
    ] * 2

    # Where a process cannot be locked in, nothing runs, and everything else is well
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    told = json.loads(run.invoke(cli, ["doctor", "--json"]).output)
    assert told["ok"] is True
    for name in engines:
        (found,) = (check for check in told["checks"] if check["name"] == name)
        assert found["state"] == "note"
        assert "riscv64" in found["found"]


@pytest.mark.slow
def test_doctor_says_whether_a_browser_starts_here_and_why_not(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def row() -> dict[str, str]:
        told = json.loads(run.invoke(cli, ["doctor", "--json"]).output)
        assert told["ok"]
        return next(check for check in told["checks"] if check["name"] == "browser")

    found = row()
    assert (found["state"], "starts" in found["found"]) == ("ok", True)
    broken = tmp_path / "broken-chromium"
    broken.write_text("#!/bin/sh\necho 'FATAL: nothing works' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("everthink.engines.here.find_chromium", lambda: str(broken))
    found = row()
    assert (found["state"], "FATAL: nothing works" in found["found"]) == ("note", True)
    monkeypatch.setattr("everthink.engines.here.find_chromium", lambda: None)
    assert "no Chromium" in row()["found"]


@pytest.mark.slow
def test_doctor_does_not_call_a_browser_ready_whose_package_is_missing(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def missing(name: str, package: str | None = None) -> Any:
        return None if name == "html_to_markdown" else find(name, package)

    monkeypatch.setattr("importlib.util.find_spec", missing)
    told = json.loads(run.invoke(cli, ["doctor", "--json"]).output)
    [found] = [check for check in told["checks"] if check["name"] == "browser"]
    assert (found["state"], found["mend"]) == ("note", 'pip install "everthink[browser]"')
    assert "what its tools need is not installed" in found["found"]


@pytest.mark.slow
@pytest.mark.slow
def test_doctor_says_which_machine_works_here_and_what_the_others_lack(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> dict[str, str]:
        told = json.loads(run.invoke(cli, ["doctor", "--json"]).output)
        (row,) = (check for check in told["checks"] if check["name"] == "machines")
        return row

    monkeypatch.setattr("everthink.machines.bubblewrap.shutil.which", lambda *args, **rest: None)
    assert "apt install bubblewrap" in found()["found"]

    # Where none works that is a note, and everything else is well
    monkeypatch.setattr("everthink.machines.locked.landlock_version", lambda: 0)
    row = found()
    assert row["state"] == "note"
    assert "Bubblewrap: bubblewrap is not installed" in row["found"]
    assert "Locked: This kernel has no Landlock." in row["found"]


@pytest.mark.slow
def test_doctor_names_keys_and_never_shows_them(run: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    shown = run.invoke(cli, ["doctor"])
    assert "OPENAI_API_KEY" in shown.output
    assert "secret" not in shown.output


@pytest.mark.slow
def test_doctor_says_who_holds_the_store(run: CliRunner, tmp_path: Path) -> None:
    store = a_database(tmp_path)

    async def look() -> str:
        async with App(Clerk, store=store):
            return await asyncio.to_thread(lambda: run.invoke(cli, ["doctor", "--store", store]).output)

    assert f"in use by process {os.getpid()}" in asyncio.run(look())


@pytest.mark.slow
def test_doctor_counts_problems_in_its_exit_code(run: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"not a database at all" * 100)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "broken.py").write_text("import nothing_of_that_name\n")
    told = run.invoke(cli, ["doctor", "--store", "bad.db", "--json"])
    assert told.exit_code == 1
    problems = {c["name"]: c["found"] for c in json.loads(told.output)["checks"] if c["state"] == "problem"}
    assert set(problems) == {"store", "agents"}
    assert "nothing_of_that_name" in problems["agents"]


@pytest.mark.slow
def test_doctor_knows_a_database_of_a_newer_release(run: CliRunner, tmp_path: Path) -> None:
    a_database(tmp_path)
    with sqlite3.connect(tmp_path / "clerk.db") as newer:
        newer.execute("INSERT INTO everthink_schema VALUES (999, 'the future', 0)")
    newer.close()
    told = run.invoke(cli, ["doctor", "--store", "clerk.db"])
    assert told.exit_code == 1
    assert "newer release" in told.output


# --- what dev and serve refuse


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["serve", "agents", "--workers", "4"], 2, "one process"),
        (["serve", "nowhere"], 2, "no such folder"),
        (["serve", "nowhere:app"], 2, "There is no module 'nowhere'"),
        (["serve", "main:nope"], 2, "main:service"),
        (["serve", "broken:app"], 1, "broken.py:2: ZeroDivisionError"),
        (["serve", "main:number"], 2, "cannot be served"),
        (["serve", "main:service", "--store", "x.db"], 2, "its own store"),
        (["chat", "assistant/x", "--server", "ftp://x"], 2, "not an address"),
        (["chat", "--server", "example.com"], 2, "not an address"),
    ],
)
def test_mistakes_are_answered_with_a_letter(
    run: CliRunner, tmp_path: Path, args: list[str], code: int, words: str
) -> None:
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "broken.py").write_text("x = 1\ny = x / 0\n")
    for name in ("main", "broken"):
        sys.modules.pop(name, None)
    refused = run.invoke(cli, args)
    assert refused.exit_code == code
    assert words in refused.output
    assert "Traceback" not in refused.output


def test_a_port_that_is_taken_is_said(run: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(MAIN)
    sys.modules.pop("main", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run.invoke(cli, ["serve", "main:service", "--port", str(port)])
    assert refused.exit_code == 1
    assert f"127.0.0.1:{port}" in refused.output


def test_nobody_at_the_other_end_is_said(run: CliRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused = run.invoke(
        cli, ["chat", "a/b", "-m", "hi", "--server", f"http://127.0.0.1:{port}", "--token", "s3cret"]
    )
    assert refused.exit_code == 1
    assert "Nobody answers" in refused.output
    assert "s3cret" not in refused.output


# --- what is typed wrongly, or cannot be done


def test_an_agent_that_is_not_there_is_answered_with_the_nearest(run: CliRunner, tmp_path: Path) -> None:
    store = ["--store", a_database(tmp_path)]
    for args in (["export", "clerc/desk"], ["release", "clerc/desk"], ["inspect", "--agent", "Clrk/desk"]):
        refused = run.invoke(cli, [*args, *store])
        assert refused.exit_code == 1, refused.output
        assert "There is no agent" in refused.output
        assert "Did you mean Clerk/desk?" in refused.output
        assert str(tmp_path) in refused.output
    gone = run.invoke(cli, ["erase", "clerc/desk", "--yes", *store])
    assert gone.exit_code == 0
    assert "There is no agent 'clerc/desk'" in gone.output
    assert "Nothing was erased. Did you mean Clerk/desk?" in gone.output
    assert "Nothing of clerk/desk is set aside." in run.invoke(cli, ["release", "clerk/desk", *store]).output


def test_a_file_that_is_no_database_of_ours_is_told_in_words(run: CliRunner, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE x (y)").connection.close()
    (tmp_path / "folder").mkdir()
    for store, words in (
        ("other.db", "everthink has kept nothing"),
        ("folder", "--store folder/everthink.db"),
        ("", "is empty"),
    ):
        for args in (["inspect"], ["export", "a/b"], ["erase", "a/b", "--yes"], ["release", "--all"]):
            refused = run.invoke(cli, [*args, "--store", store])
            assert refused.exit_code == 1
            assert words in refused.output
            assert "no such table" not in refused.output
    assert run.invoke(cli, ["serve", "tests", "--store", ""]).exit_code == 2


def test_release_changes_nothing_in_a_database_of_a_newer_release(run: CliRunner, tmp_path: Path) -> None:
    store = a_database(tmp_path)
    with sqlite3.connect(tmp_path / "clerk.db") as connection:
        connection.execute("UPDATE everthink_schema SET number = number + 999")
    connection.close()
    refused = run.invoke(cli, ["release", "--all", "--store", store])
    assert refused.exit_code == 1
    assert "schema number 10" in refused.output
    assert "Upgrade everthink" in refused.output


def test_erase_without_anybody_to_ask_erases_nothing_and_says_so(run: CliRunner, tmp_path: Path) -> None:
    store = a_database(tmp_path)
    refused = run.invoke(cli, ["erase", "clerk/desk", "--store", store], input="")
    assert refused.exit_code == 1
    assert "nobody to ask: nothing was erased" in refused.output
    assert "--yes" in refused.output
    assert run.invoke(cli, ["export", "clerk/desk", "--store", store]).exit_code == 0


def test_an_address_that_is_not_this_machines_is_not_blamed_on_the_port(
    run: CliRunner, tmp_path: Path
) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "clerk.py").write_text(
        "from everthink import Think\nclass Clerk(Think):\n    model = 'demo'\n"
    )
    for command in ("serve", "dev"):
        refused = run.invoke(cli, [command, "agents", "--host", "300.1.1.1"])
        assert refused.exit_code == 1
        assert "--host 127.0.0.1" in refused.output
        assert "--port" not in refused.output


@pytest.mark.slow
def test_doctor_says_which_agents_cannot_answer_and_which_keys_are_none(
    run: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "porter.py").write_text(
        "from everthink import Think\nclass Porter(Think):\n    model = 'openai:gpt-5'\n"
    )
    clerk = tmp_path / "agents" / "porter" / "agents" / "clerk.py"
    clerk.parent.mkdir(parents=True)
    clerk.write_text("from everthink import Think\nclass Clerk(Think):\n    model = 'openai:gpt-5'\n")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    shown = run.invoke(cli, ["doctor"])
    assert shown.exit_code == 0
    assert "Porter (children: Clerk)" in shown.output
    assert "Porter cannot answer" in shown.output
    assert "Clerk cannot answer" in shown.output
    assert "there is no OPENAI_API_KEY" in shown.output

    # A placeholder that was typed as it stood
    monkeypatch.setenv("OPENAI_API_KEY", "sk-…")
    shown = run.invoke(cli, ["doctor"])
    assert shown.exit_code == 1
    assert "OPENAI_API_KEY is no key" in shown.output
    assert "sk-" not in shown.output


PLACEHOLDERS = [
    *[
        "changeme",
        "CHANGE_ME",
        "your-api-key",
        "YOUR_API_KEY",
        "your_key_here",
        "xxx",
        "sk-xxxxxxxx",
        "<your-key>",
    ],
    *[
        "sk-...",
        "sk-ant-...",
        "sk-your-key",
        "$OPENAI_API_KEY",
        "${KEY}",
        "replace-me",
        "api-key",
        "OPENAI_API_KEY",
    ],
]


@pytest.mark.parametrize("key", PLACEHOLDERS)
def test_a_placeholder_is_told_as_one(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    (said,) = [note for note in odd_keys() if note.startswith("OPENAI_API_KEY")]
    assert "it is the placeholder of an example" in said


@pytest.mark.parametrize(
    "key",
    ["", "sk-test", "sk-ant-test", "sk-x", "sk-proj-yourXxxmyKey0a9", "ollama", "EMPTY", "AIzaSyxxx123xxx"],
)
def test_what_may_be_a_key_is_not_told(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    assert not [note for note in odd_keys() if note.startswith("OPENAI_API_KEY")]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["dev", "serve"])
def test_dev_and_serve_tell_a_placeholder(command: str, tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "helper.py").write_text(
        'from everthink import Think\n\nclass Helper(Think):\n    model = "demo"\n'
    )
    with Command(tmp_path, command, "agents", "--port", "0", ANTHROPIC_API_KEY="changeme") as server:
        server.until("ANTHROPIC_API_KEY is no key: it is the placeholder of an example")
        assert server.interrupt() == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["chat", "--url", "http://x"], "It is called --server."),
        (["chat", "--port", "9000"], "--server http://host:port"),
        (["serve", "agents", "--reload"], "`everthink dev` restarts when a file changes"),
    ],
)
def test_an_option_that_is_called_otherwise_is_told(run: CliRunner, args: list[str], words: str) -> None:
    refused = run.invoke(cli, args)
    assert refused.exit_code == 2
    assert words in " ".join(refused.output.split())


@pytest.mark.slow
def test_dev_names_no_conversation_that_authorize_may_keep_closed(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(MAIN.replace("App(Helper)", "App(Helper, authorize=lambda who: False)"))
    with Command(tmp_path, "dev", "main:service", "--port", "0", "--no-reload") as server:
        said = server.until(r"in another terminal: (.*)")[1]
        assert said.endswith("/agents/helper/NAME, with a name that authorize lets you in")
        assert server.interrupt() == 0
