"""`everthink mcp list` and `call`: any MCP server from the terminal, and words for what goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ..support.commands import Command
from ..support.node import free_port

pytestmark = pytest.mark.slow

APP = '''
from everthink import App, Think, tool
from everthink.testing import ScriptedModel, says

class Assistant(Think):
    """Helps."""

    model = ScriptedModel(*[says("Hello \\x1b[31mAda.")] * 20)

def who(connection):
    return {"Bearer ada": "ada"}.get(connection.headers.get("authorization", ""))

app = App(
    Assistant,
    store=":memory:",
    mcp=True,
    authenticate=who,
    authorize=lambda who, what, agent: agent.name != "secret",
)
'''
ADA = ["--header", "Authorization: Bearer ada"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "shop.py").write_text(APP)
    with Command(folder, "serve", "shop:app", "--port", "0") as running:
        yield running.until(r"(http://\S+/mcp) for MCP clients")[1]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everthink.cli", "mcp", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_tools_are_listed_with_what_they_take(server: str) -> None:
    listed = run("list", server, *ADA)

    assert listed.returncode == 0
    assert listed.stdout.startswith("ask_assistant\n  Helps.\n")
    assert "message (string, may be left out): What to say" in listed.stdout


def test_tools_are_listed_for_scripts(server: str) -> None:
    listed = run("list", server, *ADA, "--json")

    [tool] = json.loads(listed.stdout)
    assert tool["name"] == "ask_assistant"
    assert tool["inputSchema"]["type"] == "object"


def test_a_tool_is_called_and_no_terminal_obeys_what_it_says(server: str) -> None:
    called = run("call", server, "ask_assistant", '{"message": "Hi", "conversation": "x"}', *ADA)

    assert called.returncode == 0
    assert called.stdout == "Hello \\x1b[31mAda.\n"


def test_a_result_is_given_to_scripts_as_it_came(server: str) -> None:
    called = run("call", server, "ask_assistant", '{"message": "Hi", "conversation": "y"}', "--json", *ADA)

    result = json.loads(called.stdout)
    assert result["structuredContent"]["conversation"] == "y"
    assert result["isError"] is False


def test_a_tool_that_fails_is_told_on_standard_error(server: str) -> None:
    called = run("call", server, "ask_assistant", *ADA)

    assert (called.returncode, called.stdout) == (1, "")
    assert "Say something" in called.stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["list", "{server}"], 1, "does not know who you are (401)"),
        (["call", "{server}", "ask_assistant", "{secret}", *ADA], 1, "does not let you in (403): Forbidden"),
        (["list", "{server}x", *ADA], 1, "is no MCP server"),
        (["call", "{server}", "ask_asistant", *ADA], 2, "Did you mean 'ask_assistant'?"),
        (["call", "{server}", "ask_assistant", "{{", *ADA], 2, "The arguments are no JSON"),
        (["call", "{server}", "ask_assistant", "[1]", *ADA], 2, "not an object"),
        (["list", "127.0.0.1/mcp"], 2, "is not an address"),
        (["list", "{server}", "--header", "ada"], 2, "no header"),
        (["list"], 2, "Missing argument 'URL'"),
        (
            ["lsit", "{server}"],
            2,
            "There is no command 'lsit', and nothing to serve there. Did you mean 'list'?",
        ),
        (["cal"], 2, "Did you mean 'call'?"),
        (["list", "http://127.0.0.1:{free}/mcp"], 1, "Nobody answers at http://127.0.0.1"),
    ],
)
def test_what_goes_wrong_is_told_in_words_with_a_code_that_means_it(
    server: str, args: list[str], code: int, words: str
) -> None:
    secret = '{"message": "Hi", "conversation": "secret"}'
    given = {"server": server, "secret": secret, "free": str(free_port())}

    ran = run(*(arg.format(**given) for arg in args))

    assert (ran.returncode, ran.stdout) == (code, "")
    assert words in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


class Stranger(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, kind, body = ANSWERS[self.path]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status == 302:
            self.send_header("Location", "https://elsewhere.example/mcp")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


ANSWERS: dict[str, tuple[int, str, bytes]] = {
    "/page": (200, "text/html", b"<h1>Welcome</h1>"),
    "/json": (200, "application/json", b'{"hello": "there"}'),
    "/half": (200, "application/json", b'{"jsonrpc": '),
    "/away": (302, "text/plain", b""),
    "/broken": (500, "text/plain", b"Oops"),
    "/empty": (204, "text/plain", b""),
    "/not-made": (501, "text/html", b"Unsupported method"),
}


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Stranger)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/page", "is no MCP server"),
        ("/json", "is no MCP server"),
        ("/half", "is no MCP server"),
        ("/away", "elsewhere.example"),
        ("/broken", "refused"),
        ("/empty", "is no MCP server"),
        ("/not-made", "is no MCP server"),
    ],
)
def test_a_server_of_another_kind_is_told_as_that(stranger: str, path: str, words: str) -> None:
    ran = run("list", f"{stranger}{path}", "--timeout", "5")

    assert (ran.returncode, ran.stdout) == (1, "")
    assert words in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


def test_a_server_that_does_not_answer_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        ran = run("list", f"http://127.0.0.1:{silent.getsockname()[1]}/mcp", "--timeout", "0.5")

    assert ran.returncode == 1
    assert "did not answer in time" in ran.stderr


def test_the_help_of_each_has_an_example() -> None:
    for args in (["--help"], ["list", "--help"], ["call", "--help"], ["agents", "--help"]):
        said = run(*args)
        assert said.returncode == 0
        assert "Examples:\n" in said.stdout
        assert "everthink mcp " in said.stdout
