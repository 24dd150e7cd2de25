"""`everthink chat` when the line is cut or the server dies in mid-answer: nothing is lost or repeated."""

from __future__ import annotations

import re
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from ..support.cable import Cable
from ..support.commands import Command

pytestmark = pytest.mark.slow

# A model that counts lines, stops in the middle until there is a file `go`, and can go on where it stopped.
AGENT = """
import asyncio
from pathlib import Path

from everthink import Think
from everthink.models import port as model


class Counting:
    name = "counting"
    continues = "prefill"

    async def stream(self, request):
        last = request.messages[-1]
        texts = [p.text for p in last.content if isinstance(p, model.TextPart)]
        said = "".join(texts).count("line") if isinstance(last, model.AssistantMessage) else 0
        yield model.Opened()
        yield model.TextStart("t1")
        for number in range(said, 10):
            while number == 5 and not Path("go").exists():
                await asyncio.sleep(0.01)
            yield model.TextDelta("t1", f"line {number}\\n")
        yield model.TextEnd("t1")
        yield model.Finish("stop", model.Usage(1, 1, 2))


class Counter(Think):
    model = Counting()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "counter.py").write_text(AGENT)
    return tmp_path


def stored(base: str) -> bytes:
    """The conversation as far as it is stored: an answer is, once it is whole."""
    with urllib.request.urlopen(f"{base}/agents/counter/room/get-messages", timeout=10) as answer:
        return answer.read()


def lines(chat: Command) -> list[int]:
    return [int(found[1]) for line in chat.seen if (found := re.fullmatch(r"line (\d+)", line.strip()))]


@pytest.mark.parametrize("comes_back", ["while it goes on", "when all is said"])
def test_a_line_cut_in_the_middle_of_an_answer_loses_and_repeats_nothing(
    project: Path, comes_back: str
) -> None:
    with Command(project, "serve", "agents", "--port", "0") as server:
        base = server.until(r"at (http://\S+)")[1]
        cable = Cable(int(base.rpartition(":")[2]))
        address = f"http://127.0.0.1:{cable.port}/agents/counter/room"
        with Command(project, "chat", address, "-m", "Count") as chat:
            # Given an answer that has come to its middle
            chat.until("line 4")

            # When the line is cut, and is there again early or late
            cable.pull()
            chat.until("connection lost")
            if comes_back == "while it goes on":
                cable.plug()
                chat.until("connected again")
                (project / "go").touch()
            else:
                (project / "go").touch()
                while b"line 9" not in stored(base):
                    pass
                cable.plug()
                chat.until("connected again")

            # Then everything was shown, once, in order
            assert chat.ended() == 0
        cable.close()
        assert lines(chat) == list(range(10)), "\n".join(chat.seen)
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0


def test_a_server_that_dies_in_the_middle_of_an_answer_finishes_it_for_the_same_reader(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    address = f"http://127.0.0.1:{port}/agents/counter/room"
    with Command(project, "serve", "agents", "--port", port) as first:
        first.until("serves the agents")
        with Command(project, "chat", address, "-m", "Count") as chat:
            chat.until("line 4")
            first.process.kill()
            first.process.wait()
            chat.until("connection lost")
            (project / "go").touch()
            with Command(project, "serve", "agents", "--port", port) as second:
                second.until("serves the agents")
                assert chat.ended() == 0
                assert lines(chat) == list(range(10)), "\n".join(chat.seen)
                second.process.send_signal(signal.SIGTERM)
                assert second.ended() == 0


GUARDED = """
from pathlib import Path
from everthink import App
from starlette.responses import PlainTextResponse
from agents.counter import Counter

def authenticate(connection):
    if Path("locked").exists():
        return PlainTextResponse("No.", int(Path("locked").read_text()))
    return "ada"

checks = {"authenticate": authenticate, "authorize": lambda *given: True}
app = App(Counter, store="sqlite:///counter.db", grace=0.0, **checks)
"""


@pytest.mark.parametrize(
    ("status", "words"), [("401", "It asks who you are: give a token"), ("403", "You may not enter here.")]
)
@pytest.mark.parametrize("how", ["in mid-answer", "at the prompt"])
def test_who_is_not_let_in_again_is_told_so_and_does_not_ask_for_ever(
    project: Path, status: str, words: str, how: str
) -> None:
    (project / "main.py").write_text(GUARDED)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    address = f"http://127.0.0.1:{port}/agents/counter/room"
    if how == "at the prompt":
        (project / "go").touch()
    with Command(project, "serve", "main:app", "--port", port) as first:
        first.until("serves main:app")
        with Command(project, "chat", address) as chat:
            assert chat.process.stdin
            chat.process.stdin.write("Count\n")
            chat.process.stdin.flush()
            chat.until("line 9" if how == "at the prompt" else "line 4")
            (project / "locked").write_text(status)
            first.process.kill()
            first.process.wait()
            with Command(project, "serve", "main:app", "--port", port) as second:
                second.until("serves main:app")
                chat.until(f"refused the connection: {status} No. {words}")
                if how == "at the prompt":
                    chat.process.stdin.write("Again\n")
                chat.process.stdin.close()
                assert chat.ended() == 1
                assert second.interrupt() == 0
