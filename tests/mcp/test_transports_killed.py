"""Servers that are killed: while nothing is asked, in a call, while they are listed. And are there again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conftest import OpenApp
from tests.mcp.room import Room, room
from tests.mcp.serving import Serving, children, deeds, is_gone, stdio, tasks, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KINDS = ("stream", "stateless", "sessions", "sse", "stdio")
"""Streamable HTTP of 2026 with events and with JSON, of 2025 with sessions; server-sent events; a process."""


class Victim:
    """A room with a server of one kind, over whichever transport."""

    def __init__(self, room: Room, server: object, folder: Path, pids: set[int]) -> None:
        self.room, self._server, self.folder, self._pids = room, server, folder, pids

    async def kill(self) -> None:
        if self._server is not None:
            await self._server.kill()
            return
        (pid,) = children() - self._pids
        os.kill(pid, signal.SIGKILL)
        await until(lambda: is_gone(pid))

    def again(self) -> None:
        """A process is started by the app itself."""
        if self._server is not None:
            self._server.again()

    @property
    def is_started_by_us(self) -> bool:
        return self._server is None

    async def until_did(self, deed: str, times: int = 1) -> None:
        await until(lambda: deeds(self.folder).count(deed) >= times, f"it never did {deed!r}")


@pytest.fixture(params=KINDS)
async def victim(
    request: pytest.FixtureRequest, serving: Serving, open_app: OpenApp, tmp_path: Path
) -> AsyncIterator[Victim]:
    """A server that is used already; in the end nothing is left of it in this process."""
    before, pids = tasks(), children()
    server = None if request.param == "stdio" else serving.start(request.param, tmp_path)
    chat = await room(open_app, {"docs": stdio(tmp_path) if server is None else server.place()})
    assert await chat.output("docs_echo", text="first") == "You said: first"
    yield Victim(chat, server, tmp_path, pids)
    await chat.app.close()
    await until(lambda: tasks() <= before, f"left over: {tasks() - before}")
    assert children() == pids


async def test_a_server_that_was_killed_while_nothing_was_asked_serves_the_next_turn(victim: Victim) -> None:
    # When it dies and is there again
    await victim.kill()
    victim.again()

    # Then the next turn notices nothing, and what it asks is done once
    assert await victim.room.output("docs_echo", text="second") == "You said: second"
    assert deeds(victim.folder) == ["echo first", "echo second"]


async def test_a_call_says_that_it_may_have_taken_effect_when_its_server_is_killed(victim: Victim) -> None:
    # Given a call that runs
    call = asyncio.create_task(victim.room.error("docs_wait", text="now"))
    await victim.until_did("began now")

    # When the server dies
    await victim.kill()
    told = await call

    # Then the turn went on with those words, and the call is not made again by itself
    assert told.endswith("It may or may not have taken effect.")
    assert "'docs'" in told
    victim.again()
    assert await victim.room.output("docs_echo", text="after") == "You said: after"
    assert deeds(victim.folder) == ["echo first", "began now", "echo after"]


async def test_a_server_that_is_killed_while_it_is_listed_takes_no_turn_along(victim: Victim) -> None:
    # Given a server that came back and does not say what it offers
    hold = victim.folder / "hold"
    hold.touch()
    await victim.kill()
    if not victim.is_started_by_us:
        assert (await victim.room.error("docs_echo", text="nobody")).endswith("Nothing was run.")
    victim.again()
    call = asyncio.create_task(victim.room.call("docs_echo", text="meanwhile"))
    await victim.until_did("listing")

    # When it dies before it has said it
    hold.unlink()
    await victim.kill()
    part = await call

    # Then what was asked meanwhile says why it was not run
    assert "cannot be reached" in part["errorText"]
    assert part["errorText"].endswith("Nothing was run.")
    # And its tools were never gone
    victim.again()
    assert "docs_echo" in await victim.room.offered()
    assert await victim.room.output("docs_echo", text="after") == "You said: after"


async def test_what_only_reads_is_asked_once_more_when_its_server_is_killed(victim: Victim) -> None:
    # Given a call of a tool that says that it only reads
    asked = asyncio.create_task(victim.room.output("docs_look", text="tea"))
    await victim.until_did("looks tea")

    # When its server dies and is there again
    await victim.kill()
    victim.again()

    # Then the model reads the answer, and nothing of what happened
    assert await asked == "Found: tea"
    assert deeds(victim.folder).count("looks tea") == 2
