"""A line to an agent that is found again when it is lost.

    on_text <--what arrives-- Line --> a Connection, and the next one, and the next one

It comes back after every end but those after which a client is to stay away (docs/wire.md), waits longer each
time, and leaves a server alone that lets it in and hangs up again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..backoff import backoff
from ..errors import NotConnected
from ..plain import plain
from ..wire.frames import ClientFrame
from .connection import Connection

__all__ = ["NOBODY", "Line", "Pace", "is_closed"]

STAY_AWAY = (1008, *range(4000, 5000))
"""Close codes after which a client does not come back."""
MEANT = (401, 403)
"""Answers that asking again does not change; a server that restarts may say other things."""
SHORT, MOST_IN_VAIN = 2.0, 6
"""A connection that ends within so many seconds was in vain, and so many of them in a row are enough."""
NOBODY = "Is the server running?"
pause = asyncio.sleep


@dataclass(frozen=True, slots=True)
class Pace:
    """How long it waits between two attempts to come back, in seconds, and when it gives up."""

    first: float = 0.1
    growth: float = 1.5
    most: float = 3.0
    patience: float | None = None
    """So long it tries to come back. `None`: however long that takes."""
    most_in_vain: int = MOST_IN_VAIN


class Line:
    """Keeps a connection to `url` from `open` to `close`, and tells what happens on it.

    `on_text` gets what arrives. `on_connect`: there is a connection, True when there was one before.
    `on_lost`: it is gone, with a reason when it did not last, and the next one is looked for. `on_over`:
    there is no coming back.
    """

    def __init__(
        self,
        url: str,
        *,
        on_text: Callable[[str | bytes], None],
        on_connect: Callable[[bool], None],
        on_lost: Callable[[str | None], None],
        on_over: Callable[[Exception], None],
        id: str,
        headers: Mapping[str, str] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.url, self._id, self._headers = url, id, headers
        self.place = url.partition("?")[0]
        """The address without what follows it, which may be a secret."""
        self._on_text, self._on_connect = on_text, on_connect
        self._on_lost, self._on_over = on_lost, on_over
        self._pace = pace or Pace()
        self._connection: Connection | None = None
        self.connections = 0
        """How often it has connected."""
        self._keeping: asyncio.Task[None] | None = None

    async def open(self, *, patiently: bool = False) -> None:
        """Connect. Raises `NotConnected` when that does not work, unless it is `patiently` tried for ever."""
        if not patiently:
            await self._connect()
        self._keeping = asyncio.create_task(self._keep())

    async def close(self, *, politely: bool = True) -> None:
        """Hang up."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None and politely:
            await connection.close()
        elif connection is not None:
            connection.drop()

    async def send(self, frame: ClientFrame | dict[str, Any]) -> None:
        """Send a frame. Raises `NotConnected` when there is no connection just now."""
        if self._connection is None:
            raise NotConnected(f"There is no connection to {self.place} just now.")
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(frame)
        except ConnectionClosed as error:
            raise NotConnected(f"The connection to {self.place} was just lost.") from error

    # --- keeping it

    async def _connect(self) -> None:
        from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

        try:
            connection = await Connection.open(self.url, id=self._id, headers=self._headers)
        except InvalidStatus as error:
            from .received import words_of

            status, said = error.response.status_code, words_of(error.response)
            raise NotConnected(
                f"{self.place} refused the connection: {status} {said}".strip() + ".",
                next_step=_what_to_do(status, said),
                status=status,
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise NotConnected(
                f"The certificate of {self.place} is not trusted: {error.verify_message}.",
                next_step="Check the address; for a certificate of your own, set SSL_CERT_FILE.",
            ) from error
        except ssl.SSLError as error:
            raise NotConnected(
                f"What answers at {self.place} does not speak TLS.",
                next_step="Write http:// instead of https://, if that is where the server is.",
            ) from error
        except (OSError, InvalidHandshake, InvalidMessage, ConnectionClosed, TimeoutError) as error:
            raise NotConnected(f"Nobody answers at {self.place}.", next_step=NOBODY) from error
        self.connections += 1
        self._connection = connection

    async def _keep(self) -> None:
        """Hand on what arrives; come back when the connection is lost."""
        in_vain = 0
        try:
            if self._connection is None:
                await self._come_back()
            while True:
                lasted, code, why = await self._listen()
                said = f"code {code}: {plain(why).rstrip('.')}" if why else f"code {code}"
                if code in STAY_AWAY:
                    raise NotConnected(f"The server closed the conversation with {said}.", code=code)
                in_vain = 0 if lasted else in_vain + 1
                if in_vain >= self._pace.most_in_vain:
                    what = f"The server lets us in and hangs up at once, with {said}."
                    raise NotConnected(what, code=code)
                self._on_lost(said if in_vain else None)
                if in_vain:
                    await pause(backoff(in_vain + 1, first=self._pace.first, most=self._pace.most))
                await self._come_back()
        except Exception as error:  # noqa: BLE001 - whatever ends the line, those who wait on it are told
            self._on_over(error)

    async def _listen(self) -> tuple[bool, int, str]:
        """Hand on what arrives until the connection ends: did it last, and how was it closed?"""
        loop, connection = asyncio.get_running_loop(), self._connection
        assert connection is not None
        began = loop.time()
        self._on_connect(self.connections > 1)
        async with contextlib.aclosing(connection.texts()) as texts:
            async for text in texts:
                self._on_text(text)
        self._connection = None
        return loop.time() - began >= SHORT, *connection.closed

    async def _come_back(self) -> None:
        """Connect again. Raises when we are not let in any more, or when patience is at its end."""
        loop, pace = asyncio.get_running_loop(), self._pace
        until = None if pace.patience is None else loop.time() + pace.patience
        failures = 0
        while True:
            try:
                await self._connect()
                return
            except NotConnected as error:
                failures += 1
                delay = backoff(failures, first=pace.first, most=pace.most, growth=pace.growth)
                if error.status in MEANT or (until is not None and loop.time() + delay > until):
                    raise
            await asyncio.sleep(delay)


def is_closed(error: NotConnected) -> bool:
    """True for a refusal without a word: what a site says of a path that it does not have, too."""
    return error.status == 403 and error.what.endswith(": 403.")


def _what_to_do(status: int, said: str) -> str:
    """What helps whoever was refused with this status and these words."""
    match status:
        case 403 if not said:
            return (
                "Either nothing is at that path (for an app that is mounted below one, write it:"
                " http://host/path), or you may not enter: then give another token."
            )
        case 401:
            return "It asks who you are: give a token, or a newer one."
        case 403:
            return "You may not enter here: name one that is yours, or give another token."
        case 400 | 404:  # the first for a class that is not there, the second for any other address
            return "Check the agent's name."
        case _ if 300 <= status < 400:
            return "A client goes nowhere by itself: if you trust that address, give it instead of this one."
        case _ if status >= 500:
            return "The fault is the server's: its log says more. Try again later."
        case _:
            return "Check the address."
