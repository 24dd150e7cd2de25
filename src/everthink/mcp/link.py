"""One MCP server: a task of its own connects, lists what is offered, waits, leaves; anybody may call.

    McpServers --call--> Link --its own task for each call--> the SDK's client --> server
                          ^ the owner task: connect, list, wait until it is lost, again

The SDK's client lives inside cancel scopes that belong to the task that entered it, and a server that dies
may cancel that task. So one task enters and leaves it, nobody else does, and a call has a task of its own:
what happens to the connection never cancels a turn. A loss is noted at once: nobody calls a dead client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..backoff import backoff
from ..clock import Clock
from ..errors import AgentError, NeedsAuthorization, ToolError
from .failures import Failure, failure_of

if TYPE_CHECKING:
    from mcp import Client

    from .catalogue import Catalogue

__all__ = ["Link", "LinkState", "Timeouts", "Wires"]

log = logging.getLogger("everthink.mcp")

T = TypeVar("T")

LinkState = Literal["connecting", "discovering", "ready", "failed", "authenticating"]
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
SETTLED_AFTER = 3
"""So many attempts in a row are made before a server counts as failed for those who wait. It is tried on."""
DISCOVERY = 15.0
LEAVING = 5.0
"""Seconds that a client gets to hang up."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a call may take."""

    silence: float = 60.0
    """Seconds without a sign of life; each progress begins them anew."""
    most: float = 600.0


@dataclass(frozen=True, slots=True)
class Wires:
    """What a link needs from outside to connect once."""

    connect: Callable[[Callable[[], None]], AbstractAsyncContextManager[Client]]
    """A new client. It is given what to call when the connection is lost."""
    discover: Callable[[Client], Awaitable[Catalogue]]
    """Everything that a server offers."""


class Link:
    """One server, as long as it is wanted."""

    def __init__(
        self,
        name: str,
        wires: Wires,
        *,
        clock: Clock,
        changed: Callable[[], object],
        attempts: int = SETTLED_AFTER,
    ) -> None:
        self.name = name
        self.state: LinkState = "connecting"
        self.error: str | None = None
        self.auth_url: str | None = None
        self.catalogue: Catalogue | None = None
        """What it offers, once that was asked in this process."""
        self._wires, self._clock, self._changed, self._attempts = wires, clock, changed, attempts
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._lost = asyncio.Event()
        self._hurry = asyncio.Event()
        self._moved = asyncio.Event()
        self._is_asking, self._answered_at = False, -math.inf
        self.settled = asyncio.Event()
        """Set once the first connection is made or has failed for good."""

    # --- its life

    def start(self) -> None:
        """Begin to connect, and go on until `stop`. Once authorization is there, this begins it again."""
        if self._task is None or self._task.done():
            self.settled.clear()
            self._task = asyncio.create_task(self._run(), name=f"mcp server {self.name}")

    async def stop(self) -> None:
        """Hang up. Whoever waits for an answer is told that the connection is gone."""
        self._stopping.set()
        task = self._task
        if task is None or task.done():
            return
        done, _ = await asyncio.wait([task], timeout=LEAVING)
        if not done:
            task.cancel()
            await asyncio.wait([task], timeout=LEAVING)

    async def rediscover(self) -> None:
        """Ask again what the server offers. Raises what it answers."""
        client = await self._connected(DISCOVERY)
        await self._discover(client)

    async def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._hurry.clear()
            try:
                await self._once()
                failures = 0
            except BaseException as error:
                if self._ends(error):
                    raise
                failure = failure_of(error)
                if isinstance(failure.error, NeedsAuthorization):
                    self._become("authenticating", auth_url=failure.error.url)
                    self.settled.set()
                    return
                failures = 1 if self.state == "ready" else failures + 1
                self._client = None
                self._become("failed", failure.words)
                if failures >= self._attempts:
                    self.settled.set()
                await self._pause(backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE))

    async def _once(self) -> None:
        """Connect, list, and wait until the connection is lost or not wanted any more."""
        self._lost.clear()
        if self.state != "connecting":
            self._become("connecting", self.error)
        async with self._wires.connect(self._lost.set) as client:
            self._become("discovering")
            async with asyncio.timeout(DISCOVERY):
                await self._discover(client)
            self._client = client
            self._become("ready")
            self.settled.set()
            await _first(self._stopping.wait(), self._lost.wait())
            self._client = None
        if not self._stopping.is_set():
            log.info("the connection to the MCP server %s was lost", self.name)
            self._become("connecting", "The connection was lost.")

    async def _discover(self, client: Client) -> None:
        self.catalogue = await self._wires.discover(client)

    def _ends(self, error: BaseException) -> bool:
        """True when this task is to end. A cancellation that is only the SDK's own is taken back."""
        if not isinstance(error, asyncio.CancelledError | BaseExceptionGroup):
            return not isinstance(error, Exception)
        task = asyncio.current_task()
        assert task is not None
        if self._stopping.is_set():
            return True
        while task.cancelling():
            task.uncancel()
        return False

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await _first(self._stopping.wait(), self._hurry.wait(), self._clock.sleep(seconds))

    def _become(self, state: LinkState, error: str | None = None, *, auth_url: str | None = None) -> None:
        self.state, self.error, self.auth_url = state, error, auth_url
        self._moved.set()
        self._moved = asyncio.Event()
        self._changed()

    # --- what others ask of it

    async def call(
        self, ask: Callable[[Client, Callable[[], None]], Awaitable[T]], timeouts: Timeouts, what: str
    ) -> T:
        """Ask the server something: `ask` is given the client, and what to call at each sign of life.

        Waits for the connection if there is none just now. Raises `ToolError` with words for a model.
        """
        client = await self._connected(timeouts.silence)
        alive = asyncio.Event()
        work = asyncio.ensure_future(_asked(ask, client, alive.set))
        try:
            await self._until_done(work, alive, timeouts, what)
        except asyncio.CancelledError:
            work.cancel()
            raise
        return self._answer(work, client, what)

    async def _until_done(
        self, work: asyncio.Future[Any], alive: asyncio.Event, timeouts: Timeouts, what: str
    ) -> None:
        ends_at = self._clock.monotonic() + timeouts.most
        while not work.done():
            alive.clear()
            left = min(timeouts.silence, ends_at - self._clock.monotonic())
            await _first(asyncio.wait([work]), alive.wait(), self._clock.sleep(max(left, 0.0)))
            if self._is_asking or self._clock.monotonic() - self._answered_at < timeouts.silence:
                # A person takes their time: that is not the server's.
                ends_at = max(ends_at, self._clock.monotonic() + timeouts.silence)
                continue
            if work.done() or (alive.is_set() and self._clock.monotonic() < ends_at):
                continue
            work.cancel()
            took = timeouts.most if self._clock.monotonic() >= ends_at else timeouts.silence
            raise ToolError(
                f"{what} of the MCP server {self.name!r} gave no answer within {took:g} seconds."
                " It may or may not have taken effect."
            )

    @contextlib.contextmanager
    def asking(self) -> Generator[None]:
        """While the server waits for a person, none of its calls is late."""
        self._is_asking = True
        try:
            yield
        finally:
            self._is_asking, self._answered_at = False, self._clock.monotonic()

    def _answer(self, work: asyncio.Future[T], client: Client, what: str) -> T:
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        if error is None:
            return work.result()
        failure = failure_of(error)
        if failure.is_loss:
            self._gone(client)
        raise _told(failure, self.name, what) from error

    def _gone(self, client: Client) -> None:
        """A call has found the connection dead. Nobody else calls it."""
        if self._client is client:
            self._client = None
            self._become("connecting", "The connection was lost.")
            self._lost.set()

    async def _connected(self, seconds: float) -> Client:
        """The client, once there is one. A server that failed is tried again for whoever needs it."""
        began, hurried = self._clock.monotonic(), False
        while self._client is None:
            left = began + seconds - self._clock.monotonic()
            is_hopeless = self.state == "authenticating" or (self.state == "failed" and hurried)
            if is_hopeless or left <= 0 or self._task is None or self._task.done():
                raise _unreachable(self)
            if self.state == "failed":
                hurried = True
                self._hurry.set()
            await _first(self._moved.wait(), self._clock.sleep(left))
        return self._client


async def _asked(
    ask: Callable[[Client, Callable[[], None]], Awaitable[T]], client: Client, alive: Callable[[], None]
) -> T:
    return await ask(client, alive)


async def _first(*waits: Awaitable[Any]) -> None:
    """Return when one of these is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _unreachable(link: Link) -> AgentError:
    if link.state == "authenticating":
        return ToolError(f"The MCP server {link.name!r} waits for a person to authorise it. Nothing was run.")
    why = f": {link.error}" if link.error else ""
    return ToolError(f"The MCP server {link.name!r} cannot be reached{why} Nothing was run.")


def _told(failure: Failure, name: str, what: str) -> ToolError:
    if failure.is_loss:
        effect = "Nothing was run." if failure.was_not_sent else "It may or may not have taken effect."
        return ToolError(f"The MCP server {name!r} went away during {what}: {failure.words} {effect}")
    return ToolError(failure.words)
