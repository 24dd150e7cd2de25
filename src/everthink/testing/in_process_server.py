"""An app behind a real port, in the test's own event loop.

    async with Listening(app) as server:
        chat = await server.connect(Assistant, "room-1")
        await chat.until_done(await chat.say("Hello"))
        assert (await server.http("/agents/assistant/room-1/get-messages")).json

uvicorn serves it as in production, so origins, cookies, refusals and close codes are the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from types import TracebackType
from typing import Any, Self

import uvicorn

from ..limits import Limits
from ..server.batched_websocket import options
from .server_address import Answer, Place

__all__ = ["Answer", "Listening"]


class Listening(Place):
    """Serves any ASGI application on a free port of this machine until the block ends.

    `config` are further settings of uvicorn, such as `root_path`.
    """

    def __init__(self, app: Any, **config: Any) -> None:
        super().__init__()
        self.app = app
        self._config = config
        # Named, so that asyncio knows what it is: no answer waits for an acknowledgement.
        self._listener = socket.socket(proto=socket.IPPROTO_TCP)
        self._server: _Uvicorn
        self._serving: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        settings: dict[str, Any] = {
            "log_level": "critical",
            "timeout_graceful_shutdown": 2,
            **options(getattr(self.app, "limits", Limits())),  # as `everthink serve` has it
            **self._config,
        }
        self._server = _Uvicorn(uvicorn.Config(self.app, **settings))
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        ready = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait([ready, self._serving], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._serving.done():
            self._listener.close()
            self._serving.result()
            raise RuntimeError("The application did not start.")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()
        await self.stop()
        self._listener.close()

    async def stop(self) -> None:
        """Shut down as on SIGTERM. The end of the block does it as well."""
        self._server.stopping.set()
        await self._serving


class _Uvicorn(uvicorn.Server):
    """Uvicorn without its signal handlers, which stops when told and not at the next tick."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready, self.stopping = asyncio.Event(), asyncio.Event()
        self._connections = self.server_state.connections = _Present()
        self._tasks = self.server_state.tasks = _Present()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does it, without its naps: whoever leaves last says so."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self._connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._connections.gone()
                await self._tasks.gone()
                for server in self.servers:
                    await server.wait_closed()
        except TimeoutError:
            for task in self._tasks:
                task.cancel()
        await self.lifespan.shutdown()


class _Present(set[Any]):
    """Who is there, and a word when nobody is any more."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def discard(self, element: Any, /) -> None:
        super().discard(element)
        self._changed.set()

    def remove(self, element: Any, /) -> None:
        super().remove(element)
        self._changed.set()

    async def gone(self) -> None:
        """Return when nobody is there."""
        while self:
            self._changed.clear()
            await self._changed.wait()
