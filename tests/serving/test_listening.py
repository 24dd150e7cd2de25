"""The socket that `everthink serve` and `everthink dev` listen at."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from everthink.serving.process import listen
from everthink.testing.in_process_server import Listening

pytestmark = pytest.mark.anyio


def _listens() -> socket.socket:
    return listen("127.0.0.1", 0)


def _in_tests() -> socket.socket:
    listener = Listening(None)._listener
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


@pytest.mark.parametrize("made", [_listens, _in_tests])
async def test_the_second_half_of_an_answer_does_not_wait_for_the_first_to_be_acknowledged(
    made: Callable[[], socket.socket],
) -> None:
    met: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        met.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = made()
    async with await asyncio.start_server(meet, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await met
        writer.close()
