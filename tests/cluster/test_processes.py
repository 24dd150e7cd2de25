"""Real server processes on one real database: they are killed, stopped and stopped for good."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from everthink.testing.client import Client
from everthink.testing.node import Node
from tests.cluster.seen import Database, let_in
from tests.cluster.talker import ANSWER, HELD_AFTER, WORDS, Talker

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PLAIN = "tests.cluster.talker:Talker"
QUICK = "tests.cluster.talker:app"
FIRST = "".join(WORDS[:HELD_AFTER])


def plain(store: str, **env: str) -> Node:
    """`everthink serve` with a store and nothing else."""
    return Node(PLAIN, store=store, folder=ROOT, env=env)


def quick(store: str, **env: str) -> Node:
    """A server with a short lease."""
    return Node(QUICK, folder=ROOT, env={"TALKER_STORE": store, **env})


async def begun(node: Node, name: str = "room") -> Client:
    """A tab whose answer has begun and is held up."""
    chat = await node.connect(Talker, name)
    await chat.say("Talk.")
    await chat.until_text(FIRST.strip())
    return chat


DONE = "SELECT count(*) = 1 FROM turns WHERE status = 'completed'"


async def test_two_plain_servers_serve_their_own_agents_and_one_says_why_not(
    postgres_url: str, database: Database
) -> None:
    async with plain(postgres_url) as one, plain(postgres_url) as two:
        first = await one.connect(Talker, "a")
        second = await two.connect(Talker, "b")
        for chat in (first, second):
            await chat.until_done(await chat.say("Talk."))
            assert chat.text.endswith(ANSWER)
        # Asked for each other's agent they say who has it
        for node, name in ((one, "b"), (two, "a")):
            answer = await node.http(f"/agents/talker/{name}/get-messages")
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            stranger = await node.connect(Talker, name)
            assert (await stranger.until_closed())[0] == 1013
        assert await database.answers() == [ANSWER, ANSWER]
        # And when one of them stops, the other has what it had, without anybody having died
        assert await one.term() == 0
        chat = await let_in(two, Talker, "a")
        await chat.until_done(await chat.say("Again."))
        assert "is dead" not in two.log


async def test_a_killed_servers_turn_is_finished_by_the_other_with_the_exact_words(
    postgres_url: str, database: Database, tmp_path: Path
) -> None:
    async with (
        plain(postgres_url, TALKER_GATE=str(tmp_path / "never")) as owner,
        plain(postgres_url) as other,
    ):
        await begun(owner)
        await owner.kill()
        # Nobody asks for it: the other one finds out
        await database.until(DONE)
        assert await database.answers() == [ANSWER]
        assert "is dead" in other.log
        chat = await let_in(other, Talker, "room")
        await chat.until_text(ANSWER)


async def test_a_killed_server_that_comes_back_alone_goes_on_at_once(
    postgres_url: str, database: Database, tmp_path: Path
) -> None:
    async with plain(postgres_url, TALKER_GATE=str(tmp_path / "never")) as node:
        await begun(node)
        await node.kill()
        await node.start(TALKER_GATE="")
        chat = await node.connect(Talker, "room", resumes=True)
        await chat.until_text(ANSWER)
        assert await database.answers() == [ANSWER]


async def test_a_server_that_stood_still_is_fenced_and_comes_back_under_another_name(
    postgres_url: str, database: Database, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with quick(postgres_url, TALKER_GATE=str(gate)) as owner, quick(postgres_url) as other:
        chat = await begun(owner)
        before = await database.value("SELECT owner FROM claims WHERE agent = 'Talker/room'")
        # When it stands still for longer than its lease
        await owner.pause()
        await database.until(DONE)
        assert "is dead" in other.log
        # and then goes on, in the middle of its words
        gate.touch()
        owner.resume()
        # Then nothing of what it says is stored or shown
        assert (await chat.until_closed())[0] in (1006, 1012)
        assert chat.text.strip().endswith(FIRST.strip())
        assert await database.answers() == [ANSWER]
        segments = "SELECT sum(last_seq - first_seq + 1) = max(last_seq) + 1 FROM segments"
        assert await database.value(segments) in (True, None)
        # and it serves again, as somebody else
        live = "SELECT count(*) = 2 FROM nodes WHERE state = 'live'"
        await database.until(live)
        assert await database.value("SELECT state FROM nodes WHERE id = $1", before) == "dead"
        again = await let_in(owner, Talker, "another")
        await again.until_done(await again.say("Talk."))
        assert again.text.endswith(ANSWER)


async def test_a_tool_that_holds_the_loop_for_too_long_costs_its_agents_and_not_more(
    postgres_url: str, database: Database
) -> None:
    async with quick(postgres_url) as owner, quick(postgres_url) as other:
        chat = await owner.connect(Talker, "room")
        await chat.until_done(await chat.say("Talk."))
        before = await database.value("SELECT owner FROM claims WHERE agent = 'Talker/room'")
        await chat.send({"type": "rpc", "id": "1", "method": "block", "args": [4.0]})
        # Nobody keeps agents for ever while it serves nobody
        await database.until("SELECT 1 FROM nodes WHERE id = $1 AND state = 'dead'", before)
        taken = await let_in(other, Talker, "room")
        await taken.until_text(ANSWER)
        # And when it goes on it has them no more, says so, and serves others
        assert (await chat.until_closed())[0] in (1006, 1012)
        await database.until("SELECT count(*) = 2 FROM nodes WHERE state = 'live'")
        again = await let_in(owner, Talker, "another")
        await again.until_done(await again.say("Talk."))
        stranger = await owner.connect(Talker, "room")
        assert (await stranger.until_closed())[0] == 1013


async def test_the_timer_of_an_agent_whose_process_was_killed_rings_in_the_other(
    postgres_url: str, database: Database, tmp_path: Path
) -> None:
    rung = tmp_path / "rung"
    async with quick(postgres_url) as owner, quick(postgres_url) as other:
        for name in ("a", "b"):
            chat = await owner.connect(Talker, name)
            await chat.send({"type": "rpc", "id": "1", "method": "note_later", "args": [str(rung), 2]})
        await database.until("SELECT count(*) = 2 FROM alarms")
        await owner.kill()
        await database.until("SELECT count(*) = 0 FROM alarms")
        assert sorted(rung.read_text().split()[::2]) == ["a", "b"]
        assert set(rung.read_text().split()[1::2]) == {str(other.pid)}


async def test_commands_beside_a_running_server_read_and_what_would_harm_is_refused(
    postgres_url: str, tmp_path: Path
) -> None:
    async with plain(postgres_url) as node:
        chat = await node.connect(Talker, "room")
        await chat.until_done(await chat.say("Talk."))
        assert "Talker/room" in await everthink("inspect", "--store", postgres_url)
        assert ANSWER in await everthink("export", "talker/room", "--store", postgres_url)
        checked = await everthink("doctor", "--store", postgres_url)
        assert f"in use by process {node.pid} on " in checked
        erased = await everthink("erase", "talker/room", "--yes", "--store", postgres_url, fails=True)
        assert "A server of everthink is connected" in erased
        assert "Nothing was erased" in erased
        # The server is as it was
        await chat.until_done(await chat.say("Again."))
    assert "is erased" in await everthink("erase", "talker/room", "--yes", "--store", postgres_url)


async def everthink(*command: str, fails: bool = False) -> str:
    """What a command says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everthink.cli", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
    )
    said, _ = await process.communicate()
    assert bool(process.returncode) == fails, said.decode()
    return " ".join(said.decode().split())


class Hole:
    """A way to the database through which nothing passes for a while; then all that was held back arrives."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.is_open = asyncio.Event()
        self.is_open.set()
        self._flows: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Hole:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        self.url = urlunsplit(self._parts._replace(netloc=f"postgres@127.0.0.1:{port}"))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for flow in self._flows:
            flow.cancel()
        await asyncio.gather(*self._flows, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._parts.port)
        for source, target in ((reader, back), (there, writer)):
            flow = asyncio.create_task(self._flow(source, target))
            self._flows.add(flow)

    async def _flow(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self.is_open.wait()
                target.write(data)
                await target.drain()
        except OSError:
            pass  # one side hung up
        finally:
            target.close()


async def test_what_a_server_wrote_while_it_was_cut_off_is_not_stored_when_it_arrives(
    postgres_url: str, database: Database, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with (
        Hole(postgres_url) as hole,
        quick(hole.url, TALKER_GATE=str(gate)) as owner,
        quick(postgres_url) as other,
    ):
        chat = await begun(owner)
        before = await database.value("SELECT owner FROM claims WHERE agent = 'Talker/room'")
        # When nothing passes any more, and it goes on talking
        hole.is_open.clear()
        gate.touch()
        await database.until(DONE)
        assert "is dead" in other.log
        # Then it notices by itself, drops what it has, and shows nothing that is not stored
        assert (await chat.until_closed())[0] == 1012
        assert chat.text.strip().endswith(FIRST.strip())
        # and what arrives late changes nothing
        hole.is_open.set()
        await database.until("SELECT count(*) = 2 FROM nodes WHERE state = 'live'")
        assert await database.value("SELECT state FROM nodes WHERE id = $1", before) == "dead"
        assert await database.answers() == [ANSWER]
        assert await database.value("SELECT count(*) FROM turns") == 1
        again = await let_in(owner, Talker, "another")
        await again.until_done(await again.say("Talk."))
        assert again.text.endswith(ANSWER)
