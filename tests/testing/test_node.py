"""A node is a process of its own: it can be killed, paused, stopped and started again."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.exceptions import InvalidMessage

from everthink.testing.node import Node, NodeFailed
from tests.testing.halves import Guide

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
GUIDE = "tests.testing.halves:Guide"


def node_of(folder: Path, **env: str) -> Node:
    return Node(GUIDE, store=f"sqlite:///{folder}/test.db", folder=ROOT, env={"HALVES_GO": "1", **env})


async def test_a_killed_node_comes_back_with_its_port_and_its_data(tmp_path: Path) -> None:
    async with node_of(tmp_path) as node:
        port, first = node.port, node.pid
        chat = await node.connect(Guide, "room")
        await chat.until_done(await chat.say("Capital of France?"))

        # When it is killed
        await node.kill()

        # Then sockets break without a word and nobody answers
        assert not node.is_running
        assert (await chat.until_closed())[0] == 1006
        with pytest.raises(ConnectionRefusedError):
            await node.http("/agents/guide/room/get-messages")

        # And the next process serves the same conversation at the same port
        await node.restart()
        assert (node.port, node.starts) == (port, 2)
        assert node.pid != first
        stored = (await node.http("/agents/guide/room/get-messages")).json
        assert [message["parts"][-1]["text"] for message in stored] == [
            "Capital of France?",
            "The capital is Paris.",
        ]


async def test_a_node_is_killed_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    async with node_of(tmp_path, HALVES_GO="") as node:
        chat = await node.connect(Guide, "room")
        await chat.say("Capital of France?")
        await chat.until_text("The capital is ")
        await node.restart()
        stored = (await node.http("/agents/guide/room/get-messages")).json
        assert stored[0]["parts"][0]["text"] == "Capital of France?"


def state_of(pid: int) -> str:
    """The state of a process, in one letter; `T` is stopped."""
    if sys.platform != "linux":
        return "T"
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_paused_node_stands_still_and_goes_on(tmp_path: Path) -> None:
    async with node_of(tmp_path) as node:
        chat = await node.connect(Guide, "room")
        await node.pause()
        assert state_of(node.pid) == "T"
        request = await chat.say("Capital of France?")
        assert not chat.is_done(request)
        node.resume()
        await chat.until_done(request)
        assert chat.text == "The capital is Paris."
        # A node that is paused can be killed all the same
        await node.pause()
        await node.kill()
        assert not node.is_running


async def test_a_node_that_is_told_to_stop_says_goodbye(tmp_path: Path) -> None:
    async with node_of(tmp_path) as node:
        chat = await node.connect(Guide, "room")
        assert await node.term() == 0
        assert (await chat.until_closed())[0] == 1012
        assert "Stopped." in node.log


async def test_a_node_dies_at_the_crash_point_of_one_start(tmp_path: Path) -> None:
    async with node_of(tmp_path) as node:
        await node.restart(EVERTHINK_CRASH_AT="1:after")
        with pytest.raises((ConnectionError, InvalidMessage)):
            await node.connect(Guide, "room")
        assert await node.died() == -9
        # The next start has no crash point
        await node.start()
        assert (await node.http("/agents/guide/room/get-messages")).json == []


async def test_a_node_takes_no_store_and_no_crash_point_from_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTHINK_STORE", f"sqlite:///{tmp_path}/other.db")
    monkeypatch.setenv("EVERTHINK_CRASH_AT", "1:before")
    async with node_of(tmp_path) as node:
        assert (await node.http("/agents/guide/room/get-messages")).json == []
    assert (tmp_path / "test.db").exists()
    assert not (tmp_path / "other.db").exists()


async def test_an_app_brings_its_own_store(tmp_path: Path) -> None:
    env = {"HALVES_GO": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    async with Node("tests.testing.halves:app", folder=tmp_path, env=env) as node:
        chat = await node.connect("/agents/guide/room")
        await chat.until_done(await chat.say("Capital of France?"))
    assert (tmp_path / "own.db").exists()


async def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(NodeFailed) as told:
        async with Node("nowhere:Agent", folder=tmp_path):
            pass
    assert "nowhere:Agent ended before it served." in told.value.what
    assert "There is no module 'nowhere'" in told.value.kept


async def test_a_node_does_only_what_makes_sense(tmp_path: Path) -> None:
    node = node_of(tmp_path)
    with pytest.raises(NodeFailed, match="does not run"):
        await node.pause()
    with pytest.raises(NodeFailed, match="never started"):
        await node.died()
    await node.kill()  # nothing to kill
    async with node:
        with pytest.raises(NodeFailed, match="runs already"):
            await node.start()


PARENT = """
import asyncio, sys
from everthink.testing.node import Node

async def main():
    async with Node(sys.argv[1], store=sys.argv[2], folder=sys.argv[3]) as node:
        print(node.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is not ours")
def test_a_node_does_not_outlive_the_one_who_started_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, GUIDE, f"sqlite:///{tmp_path}/test.db", str(ROOT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        watched = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            ended, _, _ = select.select([watched], [], [], 20)
            assert ended
        finally:
            os.close(watched)


async def test_a_node_that_dies_while_it_is_killed_tells_how_it_ended(tmp_path: Path) -> None:
    async with node_of(tmp_path) as node:
        for _ in range(5):
            # It is told twice in one breath: whoever looks first must not take the answer away.
            os.kill(node.pid, signal.SIGKILL)
            await node.kill()
            assert node.exit_code == -signal.SIGKILL
            await node.start()
