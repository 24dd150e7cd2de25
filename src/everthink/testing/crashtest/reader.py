"""A person at a window: stays, reconnects when the server comes back, and resumes.

The window keeps its connection's id, as browsers do, takes every stream that is offered, and shows all
that arrives on one `Screen`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

from ..client import Client
from .screen import Screen

__all__ = ["Reader"]

BREATH = 0.02
"""Seconds between two attempts to connect."""


class Reader:
    """Keeps a window open at `url` until the block ends."""

    def __init__(self, url: str, *, id: str = "reader") -> None:
        self._url, self._id = url, id
        self.screen = Screen()
        self.connections = 0
        """How often it has connected."""
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._staying: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._staying = asyncio.create_task(self._stay())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._staying is not None
        self._staying.cancel()
        await asyncio.gather(self._staying, return_exceptions=True)
        if self._client is not None:
            await self._client.drop()

    async def client(self) -> Client:
        """The connection, once there is one and the server has told over it where things stand."""
        while True:
            await self._up.wait()
            client = self._client
            try:
                if client is not None:
                    await client.settled()
                    return client
            except (ConnectionClosed, ConnectionError, TimeoutError):
                pass
            await asyncio.sleep(BREATH)

    async def _stay(self) -> None:
        while True:
            try:
                client = await Client.connect(self._url, id=self._id, resumes=True, watch=self.screen.take)
            except (OSError, InvalidHandshake, InvalidMessage, ConnectionClosed, TimeoutError):
                await asyncio.sleep(BREATH)
                continue
            self._client = client
            self.connections += 1
            self._up.set()
            await client.until(lambda c=client: c.closed is not None, timeout=None)
            self._up.clear()
