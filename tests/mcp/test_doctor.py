"""What `everthink doctor` says about MCP servers and what lets agents in there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.mcp_stack import Assistant, Serving, calculator

from everthink import App
from everthink.cli.main import cli

pytestmark = pytest.mark.slow

APP = """
from everthink import App, Think
from everthink.mcp import HttpServer
from tests.support.mcp_stack import calculator


class Assistant(Think):
    model = "demo"


app = App(
    Assistant,
    mcp_servers={
        "sums": calculator(),
        "away": HttpServer("http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer hush-hush-1"}),
    },
)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERTHINK_SECRET_KEY", raising=False)
    return CliRunner()


def checks(run: CliRunner, *args: str) -> dict[str, dict[str, Any]]:
    told = run.invoke(cli, ["doctor", *args, "--json"])
    return {check["name"]: check for check in json.loads(told.output)["checks"]}


def test_the_servers_of_an_app_are_asked_and_those_that_do_not_answer_are_a_problem(
    run: CliRunner, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)

    found = checks(run, "shop.py")

    assert (found["MCP sums"]["state"], found["MCP sums"]["found"]) == ("ok", "answers with 1 tool")
    assert found["MCP away"]["state"] == "problem"
    assert "does not answer" in found["MCP away"]["found"]
    assert "hush" not in json.dumps(found)
    assert not (tmp_path / ".everthink").exists()


def test_a_target_that_is_not_there_is_a_problem_in_words(run: CliRunner) -> None:
    assert checks(run, "nowhere.py")["app"]["state"] == "problem"


def test_without_servers_nothing_is_said_of_them(run: CliRunner) -> None:
    assert not [name for name in checks(run) if name.startswith("MCP")]


def _filled(store: str) -> None:
    async def fill() -> None:
        async with Serving(calculator()) as serving, App(Assistant, store=store) as app:
            app.network.loopback = True
            directory = await app.open()
            agent = (await directory.reach(directory.address(Assistant, "room"))).agent
            await agent.add_mcp_server("sums", serving.url, headers={"X-Key": "hush"})

    asyncio.run(fill())


def test_tokens_that_anybody_can_read_are_noted_and_those_that_nobody_can_are_a_problem(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server with a header, stored without a key
    _filled("sqlite:///open.db")
    monkeypatch.setenv("EVERTHINK_SECRET_KEY", "a key that is long enough")
    _filled("sqlite:///sealed.db")

    # Then it depends on the key of today
    assert "1 stored before are sealed" in checks(run, "--store", "open.db")["MCP tokens"]["found"]
    assert checks(run, "--store", "sealed.db")["MCP tokens"]["state"] == "ok"
    monkeypatch.setenv("EVERTHINK_SECRET_KEY", "short")
    assert checks(run)["MCP tokens"]["state"] == "problem"
    monkeypatch.delenv("EVERTHINK_SECRET_KEY")
    openly = checks(run, "--store", "open.db")["MCP tokens"]
    assert (openly["state"], "stored openly" in openly["found"]) == ("note", True)
    assert checks(run, "--store", "sealed.db")["MCP tokens"]["state"] == "problem"
