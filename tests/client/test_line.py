"""A client's line to a server that lets it in and hangs up."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.server import ServerConnection, serve

from everthink.client import connect, line
from everthink.client.line import MOST_IN_VAIN
from everthink.errors import NotConnected

pytestmark = pytest.mark.anyio


async def test_a_server_that_hangs_up_at_once_is_left_alone_after_a_while_and_its_reason_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, waits, came = list[str](), list[float](), 0

    async def hang_up(socket: ServerConnection) -> None:
        nonlocal came
        came += 1
        await socket.send('{"type":"cf_agent_chat_messages","messages":[]}')
        await socket.close(1013, "Another process has this agent.")

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(line, "pause", pause)
    async with serve(hang_up, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        room = connect(f"http://127.0.0.1:{port}", "a", "b", notice=told.append)
        with pytest.raises(NotConnected, match="hangs up at once, with code 1013: Another process has this"):
            await asyncio.wait_for(room.open(), 20)
        await room.close()
    assert came == MOST_IN_VAIN
    # It waits longer each time, and says why
    assert waits == sorted(waits)
    assert len(waits) == MOST_IN_VAIN - 1
    assert told[0] == "connection lost, code 1013: Another process has this agent; reconnecting…"
