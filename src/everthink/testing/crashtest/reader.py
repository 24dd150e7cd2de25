"""A person at a window: stays, reconnects when the server comes back, and resumes.

The window keeps its connection's id, as browsers do, takes every stream that is offered, and shows all
that arrives on one `Screen`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from types import TracebackType
from typing import Self

from ...client.line import Line, Pace
from ...errors import NotConnected
from ...wire import frames as wire
from ...wire.codec import decode_told
from .screen import Screen

__all__ = ["PAUSE", "Reader"]

PAUSE = 0.02
"""Seconds between two attempts to connect."""
STUBBORN = Pace(first=PAUSE, growth=1.0, most=PAUSE, most_in_vain=sys.maxsize)
PATIENCE = 10.0


class Reader:
    """Keeps a window open at `url` until the block ends."""

    def __init__(self, url: str, *, id: str = "reader") -> None:
        self.screen = Screen()
        self._line = Line(
            url,
            on_text=self._on_text,
            on_connect=self._on_connect,
            on_lost=self._on_lost,
            on_over=self._on_over,
            id=id,
            pace=STUBBORN,
        )
        self._up = asyncio.Event()
        self._probes: dict[str, asyncio.Event] = {}
        self._numbers = itertools.count(1)
        self._sending: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None
        self.heard: set[str] = set()
        """The requests that the server has spoken of over this connection."""

    @property
    def connections(self) -> int:
        """How often it has connected."""
        return self._line.connections

    async def __aenter__(self) -> Self:
        await self._line.open(patiently=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._line.close(politely=False)
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def settled(self) -> None:
        """Return once there is a connection and the server has told over it where things stand."""
        while True:
            await self._up.wait()
            if self._failure is not None:
                raise self._failure
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._probe()
                return
            except (NotConnected, TimeoutError):
                await asyncio.sleep(PAUSE)

    async def send(self, frame: wire.ClientFrame) -> None:
        """Send a frame over the connection there is, once things are settled. Raises `NotConnected`."""
        await self.settled()
        await self._line.send(frame)

    async def _probe(self) -> None:
        id, number = f"settled-{next(self._numbers)}", self.connections
        told = self._probes[id] = asyncio.Event()
        try:
            await self._line.send(wire.ResumeRequest(id))
            await told.wait()
        finally:
            del self._probes[id]
        if number != self.connections or not self._up.is_set():
            raise NotConnected("The connection was lost meanwhile.")

    # --- what happens on the line

    def _on_connect(self, again: bool) -> None:
        """There is a connection (again): ask for what streams."""
        self.heard.clear()
        self.screen.runs.connected()
        self._up.set()
        self._later(wire.ResumeRequest("connect"))

    def _on_lost(self, why: str | None) -> None:
        """It is gone. Whoever waits for an answer over it asks again over the next one."""
        self._up.clear()
        for told in self._probes.values():
            told.set()

    def _on_over(self, error: Exception) -> None:
        """There is no coming back."""
        self._failure = error
        self._up.set()

    def _on_text(self, text: str | bytes) -> None:
        """Show what arrives, and take the stream that is offered."""
        frame = decode_told(text)
        if frame is None:
            return
        self.screen.take(frame)
        if isinstance(frame, wire.StreamResuming):
            self._later(wire.ResumeAck(frame.id))
        if isinstance(frame, wire.StreamResuming | wire.StreamPending | wire.ResponseFrame) and frame.id:
            self.heard.add(frame.id)
        if isinstance(frame, wire.StreamResuming | wire.StreamPending | wire.ResumeNone):
            self._answered(frame.probe_id)

    def _answered(self, probe: str | None) -> None:
        if probe is not None and probe in self._probes:
            self._probes[probe].set()

    def _later(self, frame: wire.ClientFrame) -> None:
        task = asyncio.create_task(self._post(frame))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _post(self, frame: wire.ClientFrame) -> None:
        try:
            await self._line.send(frame)
        except NotConnected:
            pass  # It is asked for again over the next connection.
