"""Servers that are processes of the app: what they are given, what they say, and how they end."""

from __future__ import annotations

import codecs
import json
import logging
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import OpenApp
from tests.mcp.room import room
from tests.mcp.serving import ROOT, children, is_gone, stdio, until

from everthink.mcp import StdioServer, pipes

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ENDED = "The process ended before it had answered; what it said is in the log."
HARMLESS = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}  # the last is Python's own


async def test_a_process_gets_what_is_named_and_none_of_our_secrets(
    open_app: OpenApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    monkeypatch.setenv("WANTED", "yes")
    place = stdio(tmp_path, inherit=("WANTED", "MISSING"), env={"GIVEN": "too"})
    chat = await room(open_app, {"docs": place})

    found = json.loads(await chat.output("docs_environment"))

    assert set(found) <= {*HARMLESS, "WANTED", "GIVEN"}
    assert (found["WANTED"], found["GIVEN"]) == ("yes", "too")
    assert found["PATH"] == os.environ["PATH"]


async def test_what_a_process_says_on_standard_error_is_in_the_log_bounded_and_harmless(
    open_app: OpenApp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="everthink.mcp")
    chat = await room(open_app, {"docs": stdio(tmp_path)})
    said = lambda: [record.getMessage() for record in caplog.records if record.name == "everthink.mcp"]  # noqa: E731

    # When it says too much of everything, and ends in the middle of a line
    await chat.output("docs_mutter", text=f"\x1b[31mred\x1b[0m\r\n{'x' * 5_000}\n")
    await until(lambda: len(said()) >= 2)
    await chat.output("docs_mutter", text="more\n" * 1_000)
    await until(lambda: any("more lines" in line for line in said()))
    await chat.output("docs_mutter", text="the last words")
    await chat.app.close()

    # Then the log has a bounded part of it, and no character that a terminal obeys
    first, second, *rest = said()
    assert first == "docs: \\x1b[31mred\\x1b[0m"
    assert second == f"docs: {'x' * 2_000}… (2000 characters)" or second.startswith(f"docs: {'x' * 2_000}")
    assert len(second) < 2_100
    assert len(rest) <= 110
    assert rest[-1] == "docs: the last words"


async def test_an_answer_that_is_too_long_fails_its_call_alone(
    open_app: OpenApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "MAX_ANSWER", 100_000)
    before = children()
    chat = await room(open_app, {"docs": stdio(tmp_path)})
    assert await chat.output("docs_echo", text="first") == "You said: first"
    started = children() - before

    told = await chat.error("docs_echo", text="x" * 200_000)

    assert told == "Its answer has more than 100,000 bytes. It may or may not have taken effect."

    # The next call is one of the same process, and what fits is whole
    assert await chat.output("docs_echo", text="é" * 40_000) == f"You said: {'é' * 40_000}"
    assert children() - before == started


REFUSED = {
    "code": -32603,
    "message": "Its answer has more than 1,000 bytes. It may or may not have taken effect.",
}


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{"a":"%s"}}', 7, id="id first"),
        pytest.param(b'{"id": 7, "jsonrpc": "2.0", "result": {"a": "%s"}}', 7, id="id before all"),
        pytest.param(b'{"result":{"a":"%s"},"jsonrpc":"2.0","id":7}\r', 7, id="id last"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"roots/list","x":"%s"}', None, id="its question"),
        pytest.param(b'{"jsonrpc":"2.0","method":"notifications/x","x":"%s"}', None, id="its news"),
        pytest.param(b"%s", None, id="nonsense"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 5_000])
def test_a_line_that_is_too_long_is_told_to_whoever_asked_and_never_kept(
    line: bytes, becomes: int | None, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "MAX_ANSWER", 1_000)
    said = b"before\n" + line.replace(b"%s", b"x" * 4_000) + b"\nafter \xff \xc3\xa9\nbegun"
    decoder = codecs.getincrementaldecoder(pipes.ANSWERS)()

    heard = "".join(decoder.decode(said[at : at + size]) for at in range(0, len(said), size))

    first, *refused, last, nothing = heard.split("\n")
    assert (first, last, nothing) == ("before", "after \ufffd é", "")
    told = [] if becomes is None else [{"jsonrpc": "2.0", "id": becomes, "error": REFUSED}]
    assert [json.loads(one) for one in refused] == told


def test_a_line_without_an_end_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "MAX_ANSWER", 1_000)
    decoder = codecs.getincrementaldecoder(pipes.ANSWERS)()
    piece = b"x" * 65_536

    tracemalloc.start()
    heard = {decoder.decode(piece) for _ in range(200)}
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert heard == {""}
    assert kept < 10_000


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (StdioServer("no-such-command"), "There is no command 'no-such-command' on this machine."),
        (StdioServer("sh", cwd="/no/such/folder"), "The folder '/no/such/folder' is not there."),
        (StdioServer("/etc"), "The command '/etc' cannot be run: Permission denied."),
        (StdioServer("sh", ("-c", "exit 3")), ENDED),
        (StdioServer("echo", ("no JSON",)), ENDED),
    ],
)
async def test_a_process_that_cannot_be_used_is_told_in_words(
    open_app: OpenApp, place: StdioServer, words: str
) -> None:
    before = children()
    chat = await room(open_app, {"docs": place}, members={"wait_for_mcp_connections": False})
    await chat.offered()
    link = await chat.link()

    await until(lambda: link.state == "failed")

    assert link.error == words
    with pytest.raises(Exception, match="cannot be reached") as raised:
        async with chat.agent as agent:
            await agent.call_mcp_tool("docs", "echo")
    assert words in str(raised.value)
    await chat.app.close()
    assert children() == before


async def test_a_process_ends_with_its_app_even_one_that_does_not_hear(open_app: OpenApp) -> None:
    # Given a process that goes on when its standard input ends
    before = children()
    deaf = "import sys, time\nfor line in sys.stdin: pass\ntime.sleep(100)"
    place = StdioServer(sys.executable, ("-c", deaf))
    chat = await room(open_app, {"docs": place}, members={"wait_for_mcp_connections": False})
    await chat.offered()
    await until(lambda: children() > before)

    await chat.app.close()

    assert children() == before


APP = """
import asyncio, sys
from pathlib import Path
from everthink import App, Think
from everthink.testing import ScriptedModel, says
from tests.mcp.serving import children, stdio

class Assistant(Think):
    model = ScriptedModel.forever(says("Hello."))
    wait_for_mcp_connections = True

async def main():
    folder = Path(sys.argv[1])
    async with App(Assistant, store=f"sqlite:///{folder}/it.db", mcp_servers={"docs": stdio(folder)}) as app:
        await app.agent(Assistant).save_messages("Hello?")
        print(*children(), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_process_hears_that_its_app_was_killed_and_ends(tmp_path: Path) -> None:
    # Given an app in a process of its own, with a server that it has started
    app = start(APP, tmp_path)
    assert app.stdout
    server = int(app.stdout.readline())

    # When it is killed without a word
    app.send_signal(signal.SIGKILL)
    app.wait()
    app.stdout.close()

    # Then the server reads the end of its standard input, and goes
    await until(lambda: is_gone(server) or _is_zombie(server), "it outlives its app")


DEAF = """
import asyncio, sys
from pathlib import Path
from everthink import App, Think
from everthink.mcp import StdioServer
from everthink.testing import ScriptedModel, says
from tests.mcp.serving import stdio, until

class Assistant(Think):
    model = ScriptedModel.forever(says("Hello."))

async def main():
    folder = Path(sys.argv[1])
    script = f"sleep 100 & echo $! $$ >{folder}/pids; exec sleep 100"
    place = StdioServer("sh", ("-c", script))
    async with App(Assistant, store=f"sqlite:///{folder}/it.db", mcp_servers={"docs": place}) as app:
        await app.agent(Assistant).save_messages("Hello?")
        await until(lambda: (folder / "pids").exists() and (folder / "pids").read_text().endswith("\\n"))
        print((folder / "pids").read_text(), end="", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_process_that_does_not_hear_ends_with_a_killed_app_and_so_does_what_it_started(
    tmp_path: Path,
) -> None:
    app = start(DEAF, tmp_path)
    assert app.stdout
    pids = [int(pid) for pid in app.stdout.readline().split()]
    assert len(pids) == 2

    app.send_signal(signal.SIGKILL)
    app.wait()
    app.stdout.close()

    for pid in pids:
        await until(lambda pid=pid: is_gone(pid) or _is_zombie(pid), "it outlives its app")


def start(script: str, *args: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, args)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT)


def _is_zombie(pid: int) -> bool:
    """True for one that has ended. Whoever inherited it may not take note of that."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
