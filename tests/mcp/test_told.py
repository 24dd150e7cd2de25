"""What whoever runs an app is told of servers that do not work, and what nobody is told: secrets."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mcp.server import Server as LowServer
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from tests.conftest import OpenApp
from tests.mcp.offering import offering
from tests.mcp.room import room
from tests.mcp.serving import Serving, stdio, until

from everthink import Think
from everthink.cli.main import cli
from everthink.errors import InvalidSettings
from everthink.mcp import HttpServer, LocalServer, StdioServer
from everthink.mcp.failures import failure_of

pytestmark = pytest.mark.anyio

IMPATIENT = {"wait_for_mcp_connections": False}


def messages(caplog: pytest.LogCaptureFixture, least: int = logging.WARNING) -> list[str]:
    found = [one for one in caplog.records if one.name == "everthink.mcp" and one.levelno >= least]
    return [one.getMessage() for one in found]


# --- headers


@pytest.mark.parametrize(
    "value",
    [pytest.param("hunter2hunter2\n", id="a line end"), pytest.param("hunter2-ä", id="not ASCII")],
)
def test_a_header_that_cannot_be_sent_is_refused_where_it_is_written_without_its_value(value: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        HttpServer("https://x.example/mcp", headers={"X-Api-Key": value})

    assert "the header 'X-Api-Key' cannot be sent as it is" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ValueError(r"Illegal header value b'hunter2\n'"), id="of the HTTP library"),
        pytest.param(UnicodeEncodeError("ascii", "hunter2-ä", 8, 9, "ordinal not in range(128)"), id="ASCII"),
    ],
)
def test_whatever_an_exception_says_about_headers_is_not_repeated(error: Exception) -> None:
    words = failure_of(error).words
    assert "header" in words
    assert "hunter2" not in words


# --- the log


@pytest.mark.slow
async def test_a_server_of_the_app_that_fails_is_told_once_and_so_is_its_return(
    open_app: OpenApp, serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = serving.start("stream", tmp_path)
    await server.kill()
    chat = await room(open_app, {"docs": server.place()}, members=IMPATIENT)
    await chat.offered()
    link = await chat.link()
    await until(lambda: link._over >= 3)

    [told] = messages(caplog)
    assert told.startswith("the MCP server docs does not answer: ")

    server.again()
    await until(lambda: link.state == "ready")
    assert "the MCP server docs answers now" in messages(caplog, logging.INFO)


@pytest.mark.slow
async def test_what_a_process_prints_in_the_place_of_answers_is_told_with_its_name(
    open_app: OpenApp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a server that greets on standard output before it speaks the protocol
    command = " ".join([sys.executable, *stdio(tmp_path).args])
    script = f"echo Starting up...; echo hello; exec {command}"
    place = StdioServer("sh", ("-c", script), cwd=stdio(tmp_path).cwd)

    # Then it is used all the same, and that is said once, by us alone
    chat = await room(open_app, {"docs": place})
    assert await chat.output("docs_echo", text="x") == "You said: x"
    assert messages(caplog) == [
        "the MCP server docs prints on its standard output, where only answers belong: Starting up..."
    ]
    assert not [one for one in caplog.records if one.name.startswith("mcp.")]


async def test_a_name_in_tools_that_the_server_does_not_have_is_told_with_the_nearest(
    open_app: OpenApp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chat = await room(open_app, {"docs": LocalServer(offering(tmp_path), tools=["ecko", "weather"])})

    assert await chat.offered() == ["docs_weather"]
    await chat.offered()

    assert messages(caplog) == [
        "the MCP server docs has no tool 'ecko', which tools=[…] names. Did you mean 'echo'?"
    ]


async def test_tools_beyond_a_thousand_are_left_out_and_that_is_told(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    many = [Tool(name=f"t{number}", input_schema={"type": "object"}) for number in range(1_200)]

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=many)

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="ran")])

    server = LowServer("many", on_list_tools=list_tools, on_call_tool=call_tool)
    chat = await room(open_app, {"docs": LocalServer(server)})

    assert len(await chat.offered()) == 1_000
    assert messages(caplog) == [
        "of the MCP server docs is left out: tools: there are more than 1,000; the rest is left out"
    ]


# --- where it is written


def test_servers_in_the_class_of_an_agent_are_refused_with_where_they_go() -> None:
    with pytest.raises(InvalidSettings, match=r"no hook or setting of Think.*App\(…, mcp_servers="):
        type("Bot", (Think,), {"model": "demo", "mcp_servers": {"docs": "https://x.example/mcp"}})


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["App(Bot, store=':memory:', mcp_servers={'docs': 'https://x.example/mcp'})"]
)
def test_without_the_package_servers_are_refused_with_its_install_line(what: str) -> None:
    script = (
        "import sys; sys.modules['mcp'] = None\n"
        "from everthink import App, Think\n"
        "class Bot(Think): model = 'demo'\n"
        f"try: {what}\n"
        "except Exception as error: print(type(error).__name__, error)"
    )

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert said.startswith("MissingExtra App(mcp_servers=…) needs the package mcp, which is not installed.")
    assert 'pip install "everthink[mcp]"' in said


@pytest.mark.slow
def test_without_the_package_no_server_is_added_and_the_install_line_is_told() -> None:
    script = """
import sys; sys.modules['mcp'] = None
import asyncio
from everthink import App, Think
class Bot(Think): model = 'demo'
async def main():
    async with App(Bot, store=':memory:') as app, app.agent(Bot) as bot:
        try: await bot.add_mcp_server('docs', 'https://x.example/mcp')
        except Exception as error: print(type(error).__name__, error)
        print(await bot.list_mcp_servers())
asyncio.run(main())
"""

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("MissingExtra MCP servers need the package mcp")
    assert 'Nothing was added. Run: pip install "everthink[mcp]"\n[]' in done.stdout


# --- doctor

APP = """
import sys
from everthink import App, Think
from everthink.mcp import StdioServer

class Assistant(Think):
    model = "demo"

app = App(Assistant, mcp_servers={
    "printer": StdioServer("sh", ("-c", "echo hello; exec sleep 60")),
    "missing": StdioServer(sys.executable, ("/no/such/file.py",)),
})
"""


@pytest.mark.slow
def test_doctor_says_what_processes_said_and_does_not_call_that_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("everthink.cli.doctor.ANSWERING", 3.0)
    (tmp_path / "printers.py").write_text(APP)

    told = CliRunner().invoke(cli, ["doctor", "printers.py", "--json"])

    checks = {check["name"]: check for check in json.loads(told.stdout)["checks"]}
    assert (told.exit_code, json.loads(told.stdout)["ok"]) == (1, False)
    assert checks["MCP printer"]["state"] == "problem"
    assert checks["MCP printer"]["found"].endswith("It said: hello")
    assert "No such file" in checks["MCP missing"]["found"]
