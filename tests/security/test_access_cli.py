"""`everthink serve` where others can reach it, and `everthink dev` for this machine alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everthink.cli.main import cli
from everthink.testing import ScriptedModel

from ..support.agents import assistant
from ..support.commands import Command
from .conftest import Serve

OPEN = """
from everthink import App, Think

class Helper(Think):
    model = "demo"

app = App(Helper, store="sqlite:///helper.db")
guarded = App(
    Helper, store="sqlite:///helper.db", authenticate=lambda connection: "ada", authorize=lambda *given: True
)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(OPEN)
    return tmp_path


def get(base: str, path: str, host: str) -> tuple[int, str]:
    request = urllib.request.Request(base + path, headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "host", "warns"),
    [("shop:app", "0.0.0.0", True), ("shop:app", "127.0.0.1", False), ("shop:guarded", "0.0.0.0", False)],
)
def test_serving_everybody_without_asking_who_they_are_is_told(
    project: Path, target: str, host: str, warns: bool
) -> None:
    with Command(project, "serve", target, "--host", host, "--port", "0") as server:
        server.until(rf"serves {target} at http://")
        assert server.interrupt() == 0
    said = "\n".join(server.seen)
    assert ("the app has no authenticate" in said) is warns
    assert ("App(YourAgent, authenticate=…), see docs/howto-auth.md" in said) is warns


@pytest.mark.slow
def test_dev_answers_to_this_machine_and_to_the_names_it_was_given(project: Path) -> None:
    with Command(
        project, "dev", "shop:app", "--port", "0", "--allow-host", "box.example", "--no-reload"
    ) as dev:
        base = dev.until(r"Open (http://127\.0\.0\.1:\d+)")[1]
        paths = ("/", "/everthink/agents", "/agents/helper/x/get-messages", "/everthink/inspect/helper/x")
        for path in paths:
            for host in ("127.0.0.1", "localhost", "box.example"):
                assert get(base, path, host)[0] == 200
            status, said = get(base, path, "evil.example")
            assert status == 403
            assert "everthink dev --allow-host NAME" in said
        assert dev.interrupt() == 0


@pytest.mark.slow
def test_dev_refuses_a_name_that_is_none(project: Path) -> None:
    with Command(project, "dev", "shop:app", "--port", "0", "--allow-host", "https://box.example") as dev:
        assert dev.ended() != 0
    assert "is not the name of a host" in "\n".join(dev.seen)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("whom", "token", "status", "words"),
    [
        ("assistant/ada", None, "401 Unauthorized", "give a token with --token or EVERTHINK_TOKEN"),
        ("assistant/ada", "bob", "403 Forbidden", "You may not enter here"),
        ("asistant/ada", "ada", "400 Invalid request", "Check the agent's name"),
        ("{server}/nowhere/assistant/ada", "ada", "404 Not Found", "Check the agent's name"),
        ("assistant/ada", "broken", "500 Internal Server Error", "The fault is the server's"),
    ],
)
async def test_chat_tells_whoever_is_refused_what_helps(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, whom: str, token: str | None, status: str, words: str
) -> None:
    monkeypatch.delenv("EVERTHINK_TOKEN", raising=False)

    def who(connection: Any) -> Any:
        said = connection.query_params.get("token")
        return {"ada": "ada", "bob": "bob", None: None}[said]  # "broken" raises

    server = await serve(
        assistant(ScriptedModel()),
        authenticate=who,
        authorize=lambda identity, action, agent: agent.name == identity,
    )
    whom = whom.format(server=f"http://{server.host}")
    args = ["chat", whom, "-m", "hi", "--server", f"http://{server.host}"]
    refused = await asyncio.to_thread(CliRunner().invoke, cli, args + (["--token", token] if token else []))
    assert refused.exit_code == 1
    assert f"refused the connection: {status}" in refused.output
    assert words in refused.output
    assert ("agent's name" in refused.output) is status.startswith(("400", "404"))


@pytest.mark.slow
def test_with_postgres_explains_itself() -> None:
    script = Path(__file__).parents[2] / "scripts" / "with-postgres"
    shown = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=True)
    assert "scripts/with-postgres COMMAND" in shown.stdout
