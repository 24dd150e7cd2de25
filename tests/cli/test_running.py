"""`dev`, `serve` and `chat` as real processes on real ports."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ..support.commands import PATIENCE, Command

pytestmark = pytest.mark.slow

AGENT = """
from everthink import Think

class Helper(Think):
    model = "MODEL"

    def get_system_prompt(self):
        return "v1"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "helper.py").write_text(AGENT.replace("MODEL", "demo"))
    return tmp_path


def get(url: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read().decode()


def test_dev_without_a_project_serves_the_demo_agent_and_chat_talks_to_it(tmp_path: Path) -> None:
    # Given the demo agent
    with Command(tmp_path, "dev", "--port", "0") as dev:
        base = dev.until(r"Open (http://127\.0\.0\.1:\d+)")[1]

        # Then a browser finds something at its address
        status, kind, text = get(base)
        assert status == 200
        assert kind.startswith("text/")
        assert text
        assert json.loads(get(base + "/everthink/agents")[2])[0]["kebab"] == "demo"
        assert get(base + "/nothing-here")[0] == 404

        # And a pipe gets answers, tools and questions; a yes is one of its lines
        with Command(tmp_path, "chat", base) as chat:
            assert chat.process.stdin
            chat.process.stdin.write("What is the weather in Paris?\nSend a postcard to Ada\ny\n")
            chat.process.stdin.close()
            assert chat.ended() == 0
        said = "\n".join(chat.seen)
        assert "weather(city='Paris')" in said
        assert "It is sunny in Paris" in said
        assert "The postcard to Ada is on its way." in said

        # No answer is a no
        with Command(
            tmp_path, "chat", "demo/other", "--server", base, "-m", "Send a postcard to Bob"
        ) as chat:
            assert chat.process.stdin
            chat.process.stdin.close()
            chat.ended()
        assert "on its way" not in "\n".join(chat.seen)

        # Ctrl-C ends it quietly
        assert dev.interrupt() == 0
        assert "Traceback" not in "\n".join(dev.seen)


def test_dev_takes_the_next_port_and_tells_about_missing_keys(project: Path) -> None:
    (project / "agents" / "helper.py").write_text(AGENT.replace("MODEL", "openai:gpt-5"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Command(project, "dev", "--port", str(port)) as dev:
            dev.until(f"Port {port} is taken")
            dev.until("Helper answers with the demo model.*OPENAI_API_KEY")
            base = dev.until(r"Open (http://\S+)")[1]
            with Command(project, "chat", base, "-m", "hello") as chat:
                assert chat.ended() == 0
            assert "demo model" in "\n".join(chat.seen)
            assert dev.interrupt() == 0


def test_dev_reloads_and_the_conversation_goes_on(project: Path) -> None:
    with Command(project, "dev", "--port", "0") as dev:
        base = dev.until(r"Open (http://\S+)")[1]
        dev.until("reloads when a file changes")
        url = base.replace("http", "ws") + "/agents/helper/room"

        async def cut_by_a_reload() -> int | None:
            async with connect(url) as socket_:
                await socket_.send(ask("Tell me a story"))
                frames = 0
                try:
                    async for text in socket_:
                        frames += "text-delta" in text
                        if frames == 3:
                            # A mistake first: it is told, and the page says so too
                            (project / "agents" / "helper.py").write_text("def broken(:\n")
                except ConnectionClosed:
                    pass
                return socket_.close_code

        # When a file changes in the middle of an answer, sockets are told to come back
        assert asyncio.run(cut_by_a_reload()) == 1012
        dev.until(r"helper\.py changed")
        dev.until(r"helper\.py:1: SyntaxError")
        status, _, text = get(base)
        assert (status, "SyntaxError" in text) == (503, True)

        async def refused() -> int:
            with pytest.raises(InvalidStatus) as refusal:
                await connect(url, process_exception=lambda error: error)
            return refusal.value.response.status_code

        # With words that clients take for a restart, not for a no
        assert asyncio.run(refused()) == 503

        # And when it is mended, the answer goes on to its end and is kept
        (project / "agents" / "helper.py").write_text(AGENT.replace("MODEL", "demo").replace("v1", "v2"))
        dev.until("Ready again")

        async def stored() -> list[dict[str, Any]]:
            async with connect(url) as socket_:
                async for text in socket_:
                    frame = json.loads(text)
                    if frame["type"] == "cf_agent_chat_messages" and len(frame["messages"]) == 2:
                        return frame["messages"]
            raise AssertionError("the socket closed before the answer was stored")

        messages = asyncio.run(asyncio.wait_for(stored(), PATIENCE))
        assert messages == json.loads(get(f"{base}/agents/helper/room/get-messages")[2])
        assert [message["role"] for message in messages] == ["user", "assistant"]
        assert any(part.get("text") for part in messages[1]["parts"])
        assert dev.interrupt() == 0


def ask(text: str) -> str:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
    body = json.dumps({"messages": [message], "trigger": "submit-message"})
    return json.dumps(
        {"type": "cf_agent_use_chat_request", "id": "r1", "init": {"method": "POST", "body": body}}
    )


def test_chat_comes_back_after_a_restart_of_the_server(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with Command(project, "serve", "agents", "--port", port) as first:
        first.until("serves the agents in agents")
        with Command(project, "chat", "helper/room", "--server", f"http://127.0.0.1:{port}") as chat:
            assert chat.process.stdin
            chat.process.stdin.write("My name is Ada\n")
            chat.process.stdin.flush()
            chat.until("Ada")
            first.process.send_signal(signal.SIGTERM)
            assert first.ended() == 0
            assert "Stopped." in first.seen
            chat.until("reconnecting")
            with Command(project, "serve", "agents", "--port", port) as second:
                second.until("serves the agents")
                chat.until("connected again")
                chat.process.stdin.write("What is my name?\n")
                chat.process.stdin.close()
                chat.until("Ada")
                assert chat.ended() == 0
                second.process.send_signal(signal.SIGINT)
                assert second.ended() == 0


def test_serve_logs_requests_and_refuses_a_second_owner_of_the_database(project: Path) -> None:
    with Command(project, "serve", "agents", "--port", "0") as serve:
        base = serve.until(r"at (http://\S+)")[1]
        assert json.loads(get(f"{base}/agents/helper/x/get-messages")[2]) == []
        serve.until(r'"GET /agents/helper/x/get-messages HTTP/1.1" 200')
        assert get(base)[0] == 404
        with Command(project, "serve", "agents", "--port", "0") as second:
            assert second.ended() == 1
        said = "\n".join(second.seen)
        assert f"held by process {serve.process.pid}" in said
        assert "Traceback" not in said
        serve.process.send_signal(signal.SIGTERM)
        assert serve.ended() == 0


SLOW = """
import asyncio
from everthink import App, Think
from fastapi import FastAPI

class Helper(Think):
    model = "demo"

site = FastAPI()

@site.get("/slow")
async def slow():
    print("it waits", flush=True)
    await asyncio.Event().wait()

site.mount("/one", App(Helper, store=":memory:"))
"""


def test_a_second_signal_ends_it_at_once_and_without_a_traceback(project: Path) -> None:
    (project / "slow.py").write_text(SLOW)
    with Command(project, "serve", "slow:site", "--port", "0", "--log-level", "info") as serve:
        host, port = serve.until(r"at http://([\d.]+):(\d+)").groups()
        with socket.create_connection((host, int(port))) as asking:
            asking.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            serve.until("it waits")
            serve.process.send_signal(signal.SIGTERM)
            serve.until("Waiting for connections to close")
            serve.process.send_signal(signal.SIGTERM)
            serve.ended()
    said = "\n".join(serve.seen)
    assert "Traceback" not in said
    assert "CancelledError" not in said


def test_a_serving_process_does_not_outlive_dev(project: Path) -> None:
    with Command(project, "dev", "--port", "0") as dev:
        dev.until("Open http")
        dev.process.kill()
        # Its output ends when the last process that writes to it is gone.
        assert dev.ended() == -signal.SIGKILL
    assert not (project / ".everthink" / "everthink.db.lock").read_text()
    assert os.path.exists(project / ".everthink" / "everthink.db")


@pytest.mark.parametrize("target", ["nosuch", "nosuch:app", "without_agent.py", "without_agent:app"])
def test_dev_ends_when_there_is_nothing_of_that_name(tmp_path: Path, target: str) -> None:
    (tmp_path / "without_agent.py").write_text("x = 1\n")
    with Command(tmp_path, "dev", target, "--port", "0") as dev:
        assert dev.ended() == 2
    said = "\n".join(dev.seen)
    assert target.partition(":")[0] in said
    assert "Waiting" not in said


def test_dev_waits_for_a_broken_file_to_be_mended_and_says_so(project: Path) -> None:
    (project / "agents" / "helper.py").write_text("def broken(:\n")
    with Command(project, "dev", "--port", "0") as dev:
        dev.until(r"helper\.py:1: SyntaxError")
        dev.until(rf"Waiting until a Python file in {project} changes. Ctrl-C stops it.")
        (project / "agents" / "helper.py").write_text(AGENT.replace("MODEL", "demo"))
        dev.until("Ready again")
        # An app that is gone later is waited for, too
        (project / "agents" / "helper.py").write_text("x = 1\n")
        dev.until("no agent is defined in it")
        dev.until("Waiting until a Python file")
        assert dev.interrupt() == 0


def test_dev_that_does_not_watch_ends_with_a_broken_file(project: Path) -> None:
    (project / "agents" / "helper.py").write_text("def broken(:\n")
    with Command(project, "dev", "--port", "0", "--no-reload") as dev:
        assert dev.ended() == 1
    said = "\n".join(dev.seen)
    assert "SyntaxError" in said
    assert "Waiting" not in said


def test_dev_ends_when_another_has_the_database_and_starts_a_server_that_died_again(project: Path) -> None:
    with Command(project, "dev", "--port", "0", "--verbose") as dev:
        server = int(dev.until(r"Started server process \[(\d+)\]")[1])
        dev.until("reloads when a file changes")
        with Command(project, "dev", "--port", "0") as second:
            assert second.ended() == 1
        said = "\n".join(second.seen)
        assert f"held by process {server}" in said
        assert "Waiting" not in said

        # And a server that is killed is started again, without anybody saving a file
        base = next(found[1] for line in dev.seen if (found := re.search(r"Open (http://\S+)", line)))
        os.kill(server, signal.SIGKILL)
        dev.until("The server was ended by SIGKILL")
        dev.until("It is started again in 0.5 s")
        dev.until("Ready again")
        assert get(base + "/everthink/agents")[0] == 200
        assert dev.interrupt() == 0


def test_dev_shows_requests_when_asked_to_and_no_secrets_in_them(project: Path) -> None:
    with Command(project, "dev", "--port", "0", "--verbose") as dev:
        base = dev.until(r"Open (http://\S+)")[1]
        get(f"{base}/agents/helper/x/get-messages?token=very-secret")
        dev.until(r"^\d\d:\d\d:\d\d GET /agents/helper/x/get-messages 200 \d+ ms$")
        get(f"{base}/sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789")
        dev.until(r"GET /sk-\S*\*+ 404 \d+ ms$")

        async def come_and_go() -> None:
            async with connect(base.replace("http", "ws") + "/agents/helper/x?token=very-secret"):
                pass

        asyncio.run(come_and_go())
        dev.until(r"socket /agents/helper/x open \d+ ms$")
        dev.until(r"socket /agents/helper/x closed with 1000 after \d+ ms$")
        with pytest.raises(InvalidStatus):
            asyncio.run(connected(base.replace("http", "ws") + "/agents/nosuch/x"))
        dev.until(r"socket /agents/nosuch/x 400 \d+ ms$")
        assert dev.interrupt() == 0
        assert "very-secret" not in "\n".join(dev.seen)


async def connected(url: str) -> None:
    async with connect(url):
        pass


def test_serve_says_which_agents_cannot_answer_and_why_and_starts(project: Path) -> None:
    (project / "agents" / "helper.py").write_text(AGENT.replace("MODEL", "openai:gpt-5"))
    (project / "agents" / "guide.py").write_text(
        AGENT.replace("MODEL", "anthropc:claude-sonnet-5").replace("Helper", "Guide")
    )
    with Command(project, "serve", "agents", "--port", "0") as serve:
        base = serve.until(r"at (http://\S+)")[1]
        serve.until("Warning: Guide cannot answer.*Did you mean 'anthropic:claude-sonnet-5'")
        serve.until("Warning: Helper cannot answer.*there is no OPENAI_API_KEY")
        assert get(f"{base}/agents/helper/x/get-messages")[0] == 200
        serve.process.send_signal(signal.SIGTERM)
        assert serve.ended() == 0

    with Command(project, "serve", "agents", "--port", "0", OPENAI_API_KEY="sk-x") as serve:
        serve.until("Warning: Guide")
        serve.process.send_signal(signal.SIGTERM)
        assert serve.ended() == 0
        assert "Helper cannot" not in "\n".join(serve.seen)


def test_chat_says_which_agents_there_are_and_takes_a_class_and_the_address_of_the_page(
    project: Path,
) -> None:
    (project / "agents" / "travel_guide.py").write_text(
        AGENT.replace("MODEL", "demo").replace("Helper", "TravelGuide")
    )

    def chat(*whom: str) -> tuple[int, str]:
        with Command(project, "chat", *whom, "-m", "hello") as one:
            return one.ended(), "\n".join(one.seen)

    with Command(project, "dev", "--port", "0", "--no-reload") as dev:
        base = dev.until(r"Open (http://\S+)")[1]

        # One that comes close is the first of those that there are; each line can be typed
        code, said = chat("travelgide/x", "--server", base)
        assert code == 1
        assert "There is no agent 'travelgide'" in said
        advised = re.findall(r"everthink chat (\S+)", said)
        assert advised == [f"{base}/agents/travel-guide/x", f"{base}/agents/helper/x"]
        assert chat(advised[0])[0] == 0
        assert "Did you mean" not in chat("xyz", "--server", base)[1]
        assert f"everthink chat {base}/agents/helper/default" in chat(f"{base}/agents/helper")[1]

        # A class is found as it is written in the code, and the page's own address leads to its conversation
        assert chat("TravelGuide", "--server", base)[0] == 0
        assert chat(f"{base}/?agent=helper&name=room-7&inspect=turns")[0] == 0
        assert json.loads(get(f"{base}/agents/helper/room-7/get-messages")[2])
        code, said = chat(base.removeprefix("http://") + "/agents/helper/x")
        assert code == 2
        assert f"everthink chat {base}/agents/helper/x" in said
        assert dev.interrupt() == 0


def test_chat_with_an_unknown_agent_of_a_server_that_tells_nothing(project: Path) -> None:
    with Command(project, "serve", "agents", "--port", "0") as serve:
        base = serve.until(r"at (http://\S+)")[1]
        with Command(project, "chat", "nosuch/x", "--server", base, "-m", "hello") as chat:
            assert chat.ended() == 1
        assert "names its agents where it was started" in "\n".join(chat.seen)


MOUNTED = """
from everthink import App, Think
from fastapi import FastAPI

class Helper(Think):
    model = "demo"

site = FastAPI()
site.mount("/one", App(Helper, store=":memory:"))
"""


def test_chat_finds_an_app_below_a_path_and_says_what_a_wrong_path_may_mean(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(MOUNTED)

    def chat(*words: str) -> tuple[int, str]:
        with Command(tmp_path, "chat", *words, "-m", "hello") as one:
            return one.ended(), "\n".join(one.seen)

    with Command(tmp_path, "serve", "main:site", "--port", "0") as serve:
        base = serve.until(r"at (http://\S+)")[1]

        # The path of --server is used; a whole address needs none, and that is said
        assert chat("helper/x", "--server", f"{base}/one")[0] == 0
        assert chat("helper/x", "--server", f"{base}/one/agents/")[0] == 0
        code, said = chat(f"{base}/one/agents/helper/x", "--server", "http://nowhere.example")
        assert code == 0
        assert "--server is not used" in said

        # A path that is not there is not blamed on the token alone, and plain HTTP not on nobody
        code, said = chat("helper/x", "--server", base)
        assert code == 1
        assert "--server http://host/path" in said
        code, said = chat("helper/x", "--server", base.replace("http:", "https:"))
        assert code == 1
        assert "does not speak TLS" in said
        assert "http:// instead of https://" in said
        serve.interrupt()


def test_chat_ends_when_nobody_reads_its_answer_any_more(project: Path) -> None:
    with Command(project, "serve", "agents", "--port", "0") as serve:
        base = serve.until(r"at (http://\S+)")[1]
        words = ["chat", "helper/x", "--server", base, "-m", "Tell me a story"]
        chat = subprocess.Popen(
            [sys.executable, "-m", "everthink.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert chat.stdout
        assert chat.stderr
        assert chat.stdout.read(1)
        chat.stdout.close()  # as `| head -c 1` does
        try:
            assert chat.wait(PATIENCE) == 1
            assert b"Traceback" not in chat.stderr.read()
        finally:
            chat.kill()
            chat.stderr.close()


@pytest.mark.parametrize("command", ["dev", "serve"])
def test_a_key_that_can_be_none_is_told_at_the_start(project: Path, command: str) -> None:
    with Command(project, command, "agents", "--port", "0", ANTHROPIC_API_KEY="…") as running:
        running.until("ANTHROPIC_API_KEY is no key")
        assert running.interrupt() == 0


def test_one_message_that_is_stopped_in_a_terminal_ends_with_130(project: Path) -> None:
    ours, theirs = pty.openpty()
    with Command(project, "serve", "agents", "--port", "0") as serve:
        base = serve.until(r"at (http://\S+)")[1]
        words = ["chat", "helper/x", "--server", base, "-m", "Tell me a story"]
        chat = subprocess.Popen(
            [sys.executable, "-m", "everthink.cli", *words],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert chat.stdout
        try:
            assert chat.stdout.read(1)
            chat.send_signal(signal.SIGINT)
            assert chat.wait(PATIENCE) == 130
        finally:
            chat.kill()
            chat.wait()
            chat.stdout.close()
            os.close(ours)
            os.close(theirs)


@pytest.mark.parametrize("words", [["serve"], ["dev", "--verbose", "--no-reload"]])
def test_a_server_goes_on_when_nobody_reads_what_it_says(project: Path, words: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    server = subprocess.Popen(
        [sys.executable, "-m", "everthink.cli", *words, "agents", "--port", port],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert server.stdout
    assert server.stderr
    try:
        assert b"everthink serves" in server.stdout.readline()
        server.stdout.close()  # as `| head -1` does
        for _ in range(3):
            assert get(f"http://127.0.0.1:{port}/agents/helper/x/get-messages")[0] == 200
        server.send_signal(signal.SIGTERM)
        said = server.stderr.read()
        assert server.wait(PATIENCE) == 0
        assert b"Traceback" not in said
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


@pytest.mark.parametrize("command", ["dev", "serve"])
def test_listening_for_everybody_without_a_check_is_told(project: Path, command: str) -> None:
    with Command(project, command, "agents", "--port", "0", "--host", "0.0.0.0") as running:
        running.until(r"Everybody who can reach 0\.0\.0\.0 may read and write.*--host 127\.0\.0\.1")
        running.until("everthink serves")
        assert running.interrupt() == 0
