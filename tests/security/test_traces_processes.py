"""Whoever is logged in can list processes: no password and no token is among their arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everthink.cli.process_list import secrets_in

from ..support.commands import Command

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def arguments(pid: int) -> list[str]:
    """What `ps` shows of a process and all that it started."""
    shown = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            shown += arguments(int(child))
    return shown


AGENT = """\
import threading
from everthink import Think

print("imported", flush=True)
threading.Event().wait(60)  # so that its processes can be looked at


class Assistant(Think):
    model = "demo"
"""


@pytest.mark.slow
@linux
@pytest.mark.parametrize("way", ["option", "equals", "environment"])
def test_dev_shows_the_password_of_its_store_to_nobody(tmp_path: Path, way: str) -> None:
    secret = "postgresql://app:hunter2@127.0.0.1:1/x"
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "assistant.py").write_text(AGENT)
    given = {"option": ["--store", secret], "equals": [f"--store={secret}"], "environment": []}[way]
    environment = {"EVERTHINK_STORE": secret} if way == "environment" else {}
    with Command(tmp_path, "dev", "--port", "0", *given, **environment) as dev:
        dev.until("imported")
        shown = arguments(dev.process.pid)
        assert len(shown) >= 2  # the one that watches and the one that serves
        assert "hunter2" not in "\n".join(shown)
        assert "everthink.serving.process" in "\n".join(shown)


@pytest.mark.slow
@linux
def test_the_settings_arrive_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "assistant.py").write_text(
        "from everthink import Think\n\n\nclass Assistant(Think):\n    model = 'demo'\n"
    )
    with Command(tmp_path, "dev", "--port", "0", "--store", f"sqlite:///{tmp_path}/there.db") as dev:
        dev.until("Open http")
        assert (tmp_path / "there.db").exists()
        assert dev.interrupt() == 0


@pytest.mark.slow
@linux
def test_what_is_secret_on_our_own_command_line_is_overwritten(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from everthink.cli import main\n"
        "def stay(**_):\n"
        "    print('ready', *sys.argv[1:], flush=True); sys.stdin.readline()\n"
        "main.cli = stay\n"
        "main.main()\n"
    )
    given = [
        "serve",
        "agents",
        "--store",
        "postgresql://app:hunter2@db/x",
        "--token",
        "tok-123",
        "--token=tok-456",
    ]
    with subprocess.Popen(
        [sys.executable, "-c", code, *given, "--port", "9000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ},
    ) as process:
        assert process.stdout
        said = process.stdout.readline()
        [shown] = arguments(process.pid)
        process.communicate("\n")
    # the program itself still knows
    assert said.split()[1:] == [*given, "--port", "9000"]
    for secret in ("hunter2", "tok-123", "tok-456"):
        assert secret not in shown
    assert "serve agents --store ***" in shown
    assert "--port 9000" in shown


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["dev"], []),
        (["dev", "--store", "sqlite:///x.db"], []),
        (["dev", "--store", "postgresql://me@db/x"], []),
        (["dev", "--store", "postgresql://me:pw@db/x"], ["postgresql://me:pw@db/x"]),
        (["dev", "--store=postgresql://me:pw@db/x"], ["postgresql://me:pw@db/x"]),
        (["chat", "--token", "abc"], ["abc"]),
        (["chat", "--token=abc"], ["abc"]),
        (["chat", "http://host/agents/a/b?token=abcdef"], ["http://host/agents/a/b?token=abcdef"]),
        (["chat", "-m", "my key is sk-proj-abcdefgh12345678"], ["my key is sk-proj-abcdefgh12345678"]),
    ],
)
def test_what_counts_as_secret_among_arguments(given: list[str], found: list[str]) -> None:
    assert secrets_in(given) == found
