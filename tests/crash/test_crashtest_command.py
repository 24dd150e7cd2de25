"""`everthink crashtest` as one runs it: its exit codes, its table, its JSON, Ctrl-C."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.commands import Command

ROOT = Path(__file__).parents[2]
SCRIPT = "- say: Tell me a story.\n"
PATIENCE = 300
"""Seconds for a command that starts several processes, on a busy machine."""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    return str(tmp_path / "script.yaml")


def run(*args: str) -> tuple[int, str]:
    with Command(ROOT, "crashtest", *args) as command:
        command.process.wait(PATIENCE)
        return command.ended(), "\n".join(command.seen)


def test_points_that_pass_are_counted() -> None:
    code, said = run("--points", "1:before,3:before")
    assert code == 0, said
    assert "2 of 2 crash points passed" in said


def test_points_that_fail_are_shown_and_told_to_scripts(script: str) -> None:
    agent = "tests.crash.spoiled:GivesUp"
    code, said = run(agent, script, "--points", "6:after")
    assert code == 1, said
    for words in ("6:after", "1 say 'Tell me", "insert segments", "transcript", "0 of 1 crash points passed"):
        assert words in said
    code, said = run(agent, script, "--points", "6:after", "--json")
    assert code == 1
    report = json.loads(said)
    assert (report["ok"], report["points"], report["failed"], report["store"]) == (False, 1, 1, "sqlite")
    (failure,) = report["failures"]
    assert (failure["point"], failure["agent"]) == ("6:after", "GivesUp/crashtest")
    assert failure["failures"][0].keys() == {"kind", "what"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["tests.crash.spoiled:Twice"], "Name a script as well"),
        (["tests.crash.spoiled:Twice", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["--points", "few"], "'few' names no points"),
        (["--again", "all"], "'all' names no points"),
        (["--store", "mysql://localhost"], "'mysql://localhost' is no store to test with"),
        (["--store", "postgresql://nobody@127.0.0.1:1/x", "--points", "1"], "127.0.0.1:1"),
        (["--jobs", "0"], "0 is not in the range"),
    ],
)
def test_what_cannot_be_tested_is_another_exit_code(args: list[str], words: str) -> None:
    code, said = run(*args)
    assert code == 2, said
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM", "SIGTERM in the background"])
def test_being_stopped_leaves_nothing_behind(how: str, tmp_path: Path, script: str) -> None:
    # What a shell starts in the background (`&`) ignores Ctrl-C
    deaf = how.endswith("background")
    pipe, scratch = tmp_path / "pipe", tmp_path / "scratch"
    os.mkfifo(pipe)
    scratch.mkdir()
    env = {"SPOILED_PIPE": str(pipe), "TMPDIR": str(scratch)}
    with Command(ROOT, "crashtest", "tests.crash.spoiled:Twice", script, hears=not deaf, **env) as command:
        # A server is there, in a folder of its own
        server = int(pipe.read_text())
        assert list(scratch.iterdir())
        if how != "Ctrl-C":
            command.process.terminate()
        assert (command.interrupt() if how == "Ctrl-C" else command.ended()) == 130, command.seen
    assert list(scratch.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
