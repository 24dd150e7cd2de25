"""What the original server said, scene by scene, is what ours says: `tests/recordings/` against the peer.

    peer.py (own process, SQLite file) <--sockets-- check/record.mjs --> scenes --> check/compare.mjs

A scene is a client's side of a conversation, played over real sockets. Whatever differs is in `KNOWN`,
with the lines at which it differs; a difference that is new, moved or gone fails the test.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import needs, packages_of, workbench

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "tests" / "recordings"
CHECK = Path(__file__).parent / "check"
PAGE = ROOT / "docs" / "wire.md"
SCENES = sorted(path.stem for path in RECORDINGS.glob("*.jsonl"))

RECORDERS = 4
"""Scenes are mostly waiting, so several recorders share the work."""
PATIENCE = 30.0
"""Seconds for the peer to answer its first request."""


@dataclass(frozen=True)
class Difference:
    """Where a scene differs, as `connection@line`, and why that is so."""

    at: tuple[str, ...]
    reason: str


WATCHED = (
    "A tab that only watches a continuation is told its end before the conversation, where the original does "
    "it the other way round and the published hook then shows the answer twice until the next turn."
)

KNOWN = {
    "approval-accept": Difference(("B@30", "B@31"), WATCHED),
    "client-tool": Difference(("B@26", "B@27"), WATCHED),
    "client-tool-other-tab": Difference(("B@35", "B@36"), WATCHED),
    "agent-tool": Difference(
        ("A@9", "A@10", "A@11"),
        "A run begins once the whole call is stored: `started` follows `tool-input-available`, where the "
        "original starts the child while it still sends what the model wrote.",
    ),
    "close-codes": Difference(
        ("H@1", "C@5"),
        "H is told that its connect hook raised in a sentence, where the original sends a stack trace. "
        "C destroys its agent and is closed with 4410, from which clients stay away: with 1001 they come "
        "back, and the agent is there again, empty.",
    ),
    "ignored": Difference(
        ("A@5",),
        "A request whose body is not JSON is answered with an error frame, where the original leaves the "
        "page waiting. The text for an empty request is our own.",
    ),
    "queue-without-partial": Difference(
        ("A@20",),
        "A message that came while an answer streamed stands before that answer. The original then asks the "
        "model to go on; we put the question last, and it is answered.",
    ),
    "sub-agent": Difference(
        ("A@1", "A@2", "A@3"),
        "A child greets as every agent does. The original tells of the MCP servers once more, before all "
        "else.",
    ),
}

Found = dict[str, list[dict[str, str]]]


def table() -> str:
    """The known differences as they stand in docs/wire.md."""
    rows = [f"| `{scene}` | {', '.join(known.at)} | {known.reason} |" for scene, known in KNOWN.items()]
    return "\n".join(["| Scene | Lines | Why |", "|---|---|---|", *rows])


# --- the two sides


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorder, with the one package it needs."""
    needs("node", "Node.js 20 or newer, with npm, is needed to play the recorded scenes.")
    files = [path for path in CHECK.iterdir() if path.suffix == ".mjs"]
    return workbench(
        tmp_path_factory.mktemp("wire") / "check", packages_of(CHECK), CHECK / "package.json", *files
    )


@pytest.fixture(scope="module")
def peer(check: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the agent under test, in its own process on a real SQLite file."""
    place = tmp_path_factory.mktemp("peer")
    port = _free_port()
    command = [sys.executable, "-m", "tests.wire.peer", str(port), f"sqlite:///{place}/peer.db"]
    said = place / "peer.log"
    with said.open("wb") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as process:
        try:
            base = f"http://127.0.0.1:{port}"
            if not _answers(f"{base}/healthz", process):
                pytest.fail(f"The peer does not answer. It said:\n{said.read_text('utf-8')}")
            yield base
        finally:
            process.kill()
    _, *raised = said.read_text("utf-8").split("Traceback")
    # One scene has a connect hook that raises, another has methods that do.
    meant = ("RuntimeError: onConnect failed", "in answer_call")
    assert [trace for trace in raised if not any(words in trace for words in meant)] == []


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    """True once the process serves, False when it has ended or takes too long."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return answer.read() == b"ok"
        except (urllib.error.URLError, ConnectionError):
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            return False
    return False


# --- playing and comparing


def play(check: Path, base: str, scenes: Sequence[str], out: Path) -> Found:
    """Play these scenes against the peer; what differs, per scene."""
    groups = [group for n in range(RECORDERS) if (group := scenes[n::RECORDERS])]
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    _record(base, group, out), cwd=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
            for group in groups
        ]
        stack.callback(lambda: [recorder.kill() for recorder in running])
        for recorder in running:
            recorder.wait(300)
    # A scene that got stuck is in its transcript as far as it came, so it is compared like the others.
    command = ["node", "compare.mjs", str(RECORDINGS), str(out), "--json", "--only", ",".join(scenes)]
    done = subprocess.run(command, cwd=check, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    found: Found = json.loads(done.stdout)
    return found


def _record(base: str, scenes: Sequence[str], out: Path) -> list[str]:
    where = ["--base", base, "--agent", "think-peer", "--out", str(out)]
    return ["node", "record.mjs", *where, "--only", ",".join(scenes)]


def unexpected(found: Found, scenes: Sequence[str]) -> dict[str, Any]:
    """The scenes that do not differ exactly as `KNOWN` says."""
    wrong: dict[str, Any] = {}
    for scene in scenes:
        expected = set(KNOWN[scene].at) if scene in KNOWN else set[str]()
        lines = {difference["at"]: difference for difference in found.get(scene, [])}
        if set(lines) != expected:
            gone = sorted(expected - set(lines))
            new = [lines[at] for at in lines if at not in expected]
            wrong[scene] = {"differs no more": gone, "differs now": new}
    return wrong


@pytest.mark.slow
def test_every_scene_plays_as_recorded(check: Path, peer: str, tmp_path: Path) -> None:
    # Given every scene recorded from the original server
    assert len(SCENES) == 35

    # When a client plays them against our server, and again where timing may have decided: a stream goes
    # on while a busy machine gets round to what the client sends
    wrong = unexpected(play(check, peer, SCENES, tmp_path / "first"), SCENES)
    for attempt in ("again", "and again"):
        if wrong:
            wrong = unexpected(play(check, peer, list(wrong), tmp_path / attempt), list(wrong))

    # Then nothing differs but what is known to
    assert wrong == {}, json.dumps(wrong, indent=2)


def test_the_page_lists_the_known_differences() -> None:
    assert set(KNOWN) <= set(SCENES)
    assert table() in PAGE.read_text("utf-8"), f"{PAGE.name} should hold this table:\n\n{table()}"
