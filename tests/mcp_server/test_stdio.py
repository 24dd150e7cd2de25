"""`everthink mcp TARGET`: a real process that a client talks to over its standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp import Client, StdioServerParameters

from ..support.mcp import ERAS, Words, texts
from ..support.turns import Database
from .test_bounds import INITIALIZE

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE = 20
COMMAND = ["-m", "everthink.cli", "mcp"]
AGENTS = '''
import os
from everthink import App, Think, exposed
from everthink.testing import ScriptedModel, says

print("imported")

def answer(request):
    asked = request.messages[-1].content[0].text
    if asked == "wait" and not os.environ.get("AGAIN"):
        return says("It goes ").then_hangs()
    return says("on." if asked != "who" else "You.")

class Assistant(Think):
    """Helps."""

    model = ScriptedModel(*[answer] * 20)

    def before_turn(self, turn):
        print("a turn of", turn.identity)
        os.system("echo from a child; cat")

    @exposed
    def loud(self) -> str:
        print("loud")
        return "quiet"

app = App(Assistant, store="sqlite:///everthink.db", grace=0)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(AGENTS)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", **more}


class Talk:
    """A process and what it said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.heard: list[Any] = []

    def send(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(line + b"\n")

    def call(self, id: int, **arguments: str) -> None:
        params = {"name": "ask_assistant", "arguments": arguments, "_meta": {"progressToken": id}}
        self.send({"id": id, "method": "tools/call", "params": params})

    async def until(self, **fields: Any) -> Any:
        """Read on to a message with these fields. Everything on the way is a message, too."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while line := await self.process.stdout.readline():
                message = json.loads(line)
                self.heard.append(message)
                if fields.items() <= message.items():
                    return message
        raise AssertionError(f"it ended without {fields}: {self.heard}")

    async def ended(self) -> tuple[int, str]:
        """The exit code, and what was said on standard error. The rest of its output is messages."""
        async with asyncio.timeout(PATIENCE):
            out, err = await self.process.communicate()
        self.heard += [json.loads(line) for line in out.splitlines()]
        return self.process.returncode or 0, err.decode()


@asynccontextmanager
async def talking(folder: Path, *args: str, greets: bool = True, **env: str) -> AsyncGenerator[Talk]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *COMMAND, *args),
        cwd=folder,
        env=environment(**env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    talk = Talk(process)
    try:
        if greets:
            talk.send({"id": "hello", "method": "initialize", "params": INITIALIZE})
            talk.send({"method": "notifications/initialized"})
            await talk.until(id="hello")
        yield talk
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_starts_it_and_asks_an_agent(folder: Path, mode: str) -> None:
    args = [*COMMAND, "shop.py", "--exposed"]
    started = StdioServerParameters(command=sys.executable, args=args, cwd=folder, env=environment())
    words = Words()
    async with Client(started, mode=mode) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        given = {"message": "Hi", "conversation": "room"}
        answer = await client.call_tool("ask_assistant", given, progress_callback=words)
        called = await client.call_tool("assistant_loud", {"name": "room"})

    assert tools == ["ask_assistant", "assistant_loud"]
    assert texts(answer) == ["on."]
    assert words.said == "on."
    assert texts(called) == ["quiet"]


async def test_nothing_but_the_protocol_is_on_standard_output(folder: Path) -> None:
    async with talking(folder, "shop:app", "--as", "ada") as talk:
        talk.send(b"this is no message")
        await talk.until(id=None)
        talk.send(b"")
        talk.call(1, message="who", conversation="room")
        result = await talk.until(id=1)
        assert talk.process.stdin is not None
        talk.process.stdin.close()
        code, said = await talk.ended()

    assert result["result"]["content"][0]["text"] == "You."
    assert all(message["jsonrpc"] == "2.0" for message in talk.heard)
    assert code == 0
    for line in ("imported", "a turn of ada", "from a child"):
        assert line in said


async def test_a_turn_that_runs_when_the_input_ends_goes_on_at_the_next_start(folder: Path) -> None:
    async with talking(folder, "shop:app") as talk:
        talk.call(1, message="wait", conversation="room")
        await talk.until(method="notifications/progress")
        assert talk.process.stdin is not None
        talk.process.stdin.close()
        assert (await talk.ended())[0] == 0
    assert Database(folder).statuses() == ["running"]

    async with talking(folder, "shop:app", AGAIN="1") as again:
        again.call(2, conversation="room")
        result = await again.until(id=2)

    assert result["result"]["structuredContent"]["text"] == "It goes on."


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_good_order(folder: Path, sign: signal.Signals) -> None:
    async with talking(folder, "shop:app") as talk:
        talk.process.send_signal(sign)
        code, said = await talk.ended()

    assert code == 0
    assert "Traceback" not in said


async def test_a_request_that_is_cancelled_stops_its_turn(folder: Path) -> None:
    async with talking(folder, "shop:app") as talk:
        talk.call(1, message="wait", conversation="room")
        await talk.until(method="notifications/progress")
        talk.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
        talk.call(2, conversation="room")
        looked = await talk.until(id=2)

    assert looked["result"]["structuredContent"]["text"] == "It goes "
    assert Database(folder).statuses() == ["aborted"]
    assert not [message for message in talk.heard if message.get("id") == 1]


async def test_a_line_that_is_too_long_or_too_deep_is_answered_and_the_next_is_read(folder: Path) -> None:
    (folder / "small.py").write_text(
        AGENTS.replace("grace=0", "grace=0, limits={'frame_bytes': 70_000, 'frame_depth': 20}")
    )
    async with talking(folder, "small:app") as talk:
        talk.send(b'{"x": "' + b"x" * 200_000 + b'"}')
        long = await talk.until(id=None)
        talk.send(b"[" * 30 + b"]" * 30)
        deep = await talk.until(id=None)
        talk.call(1, message="who")
        await talk.until(id=1)

    assert long["error"]["message"] == "A message has at most 70000 bytes."
    assert "nested deeper than 20 levels" in deep["error"]["message"]


@pytest.mark.parametrize(
    ("target", "database"), [("shop.py", "everthink.db"), ("shop:Assistant", "from-env.db")]
)
async def test_it_runs_in_the_folder_that_it_is_told(
    folder: Path, tmp_path_factory: Any, target: str, database: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if database == "from-env.db":
        (folder / ".env").write_text("EVERTHINK_STORE=sqlite:///from-env.db")
    async with talking(elsewhere, target, "--cwd", str(folder)) as talk:
        talk.call(1, message="who")
        await talk.until(id=1)

    assert (folder / database).exists()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["shpo.py"], 2, "Did you mean: everthink mcp shop.py"),
        (["shop:Nobody"], 2, "It has 'app': everthink mcp shop:app"),
        (["shop:app", "--store", "sqlite:///other.db"], 2, "that app names its own store"),
        (["shop:app", "--nothing"], 2, "No such option"),
        (["broken.py"], 1, "Importing broken failed"),
    ],
)
async def test_what_keeps_it_from_starting_is_told_on_standard_error(
    folder: Path, args: list[str], code: int, words: str
) -> None:
    (folder / "broken.py").write_text("1 / 0")
    async with talking(folder, *args, greets=False) as talk:
        ended, said = await talk.ended()

    assert ended == code
    assert words in " ".join(said.split())
    assert talk.heard == []


async def test_a_database_that_a_server_has_open_is_told(folder: Path) -> None:
    async with talking(folder, "shop:app"), talking(folder, "shop:app", greets=False) as other:
        code, said = await other.ended()

    assert code == 1
    assert "everthink.db" in said
    assert "Traceback" not in said
