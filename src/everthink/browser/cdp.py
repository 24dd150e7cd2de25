"""Commands to a browser and what it says, over a pipe or a WebSocket: the DevTools protocol, plain.

    send(method, params, session) --> channel --> the browser
                           an answer <-- reader --> listeners of a session: what happened there

One task reads. When the browser is gone every command that waits fails, and so does each that comes after.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..errors import AgentError
from .channels import Pipe, Socket

__all__ = ["BrowserGone", "CommandFailed", "Connection", "NoAnswer", "in_time"]

log = logging.getLogger("everthink.browser")

TIMEOUT = 10.0

Listener = Callable[[str, Mapping[str, Any]], None]


class BrowserGone(AgentError):
    """The browser ended, or the connection to it did."""

    def __init__(self, why: str = "") -> None:
        super().__init__(
            f"The browser is gone{f': {why}' if why else ''}.",
            kept="Pages that were open are lost, with what was typed into them.",
            next_step="Open the page again: another browser starts by itself.",
        )


class CommandFailed(AgentError):
    """The browser refused a command."""


class NoAnswer(CommandFailed):
    """The browser did not answer a command in time."""


class _Problem(msgspec.Struct):
    message: str = ""


class _Said(msgspec.Struct):
    """An answer when it has an id, else something that happened."""

    id: int | None = None
    method: str = ""
    params: dict[str, Any] = {}
    result: dict[str, Any] | None = None
    error: _Problem | None = None
    sessionId: str = ""


class Connection:
    """A conversation with one browser."""

    def __init__(self, channel: Pipe | Socket) -> None:
        self._channel = channel
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[str, Listener] = {}
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._why = ""
        self.gone = asyncio.Event()
        """Set when the browser has ended, or the connection."""
        self._talking = asyncio.create_task(self._talk())

    def listen(self, session: str, listener: Listener | None) -> None:
        """Hear what happens in a session, `""` for the browser itself; with `None` no more."""
        if listener is None:
            self._listeners.pop(session, None)
        else:
            self._listeners[session] = listener

    async def send(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        session: str = "",
        timeout: float = TIMEOUT,
    ) -> dict[str, Any]:
        """Send a command and wait for its result."""
        return await in_time(self.post(method, params, session=session), method, timeout)

    def post(
        self, method: str, params: Mapping[str, Any] | None = None, *, session: str = ""
    ) -> asyncio.Future[dict[str, Any]]:
        """Send a command, and wait for nothing: what comes of it is in the future, if anybody looks."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.gone.is_set():
            answer.set_exception(BrowserGone(self._why))
        else:
            number = next(self._ids)
            self._waiting[number] = answer
            answer.add_done_callback(lambda _: self._waiting.pop(number, None))
            message: dict[str, Any] = {"id": number, "method": method, "params": dict(params or {})}
            if session:
                message["sessionId"] = session
            self._outgoing.put_nowait(msgspec.json.encode(message))
        answer.add_done_callback(_looked_at)
        return answer

    async def close(self) -> None:
        """End the conversation; whoever waits hears that the browser is gone."""
        self._talking.cancel()
        await asyncio.wait([self._talking])

    # --- the one task

    async def _talk(self) -> None:
        ways = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.gone.set()
            for answer in list(self._waiting.values()):
                if not answer.done():
                    answer.set_exception(BrowserGone(self._why))
            await self._channel.close()

    async def _write(self) -> None:
        try:
            while True:
                await self._channel.write(await self._outgoing.get())
        except (OSError, EOFError) as error:
            log.debug("the browser takes nothing more: %s", error)

    async def _read(self) -> None:
        try:
            while message := await self._channel.read():
                self._heard(message)
        except (OSError, EOFError, ValueError) as error:
            self._why = "it said more at once than is read" if isinstance(error, ValueError) else ""
            log.debug("the browser says nothing more: %s", error)

    def _heard(self, message: bytes) -> None:
        try:
            said = msgspec.json.decode(message, type=_Said)
        except msgspec.MsgspecError as error:
            log.warning("the browser said something that is no message: %s", error)
            return
        if said.id is None:
            if (listener := self._listeners.get(said.sessionId)) is not None:
                listener(said.method, said.params)
            return
        answer = self._waiting.get(said.id)
        if answer is None or answer.done():
            return
        if said.error is not None:
            answer.set_exception(CommandFailed(f"The browser refused: {said.error.message[:500]}."))
        else:
            answer.set_result(said.result or {})


async def in_time(answer: asyncio.Future[dict[str, Any]], method: str, timeout: float) -> dict[str, Any]:
    """The answer to a command, or `NoAnswer` when it takes too long."""
    try:
        async with asyncio.timeout(timeout):
            return await answer
    except TimeoutError:
        raise NoAnswer(
            f"The browser did not answer {method} within {timeout:g} seconds.",
            next_step="It may be busy: try again in a moment.",
        ) from None


def _looked_at(answer: asyncio.Future[dict[str, Any]]) -> None:
    """What failed while nobody waited for it is no news."""
    if not answer.cancelled():
        answer.exception()
