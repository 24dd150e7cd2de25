"""One MCP server: a task of its own connects, lists what is offered, stays, leaves; anybody may call.

    McpServers --call--> Link --its own task for each call--> the SDK's client --> server
                          ^ the owner: one visit after another; a visit is a task that connects, lists, stays

The SDK's client lives inside cancel scopes that belong to the task that entered it, and a server that dies
may cancel that task. So one task enters and leaves it and does nothing else, and a call has a task of its
own: what happens to the connection never cancels a turn. A loss is noted at once: nobody calls a dead client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..backoff import backoff
from ..clock import Clock
from ..errors import AgentError, NeedsAuthorization, ToolError
from .failures import LOST, Failure, Sent, failure_of, sending

if TYPE_CHECKING:
    from anyio import CancelScope

    from mcp import Client

    from .catalogue import Catalogue

__all__ = ["Call", "Link", "LinkState", "Lost", "Timeouts", "Wires"]

log = logging.getLogger("everthink.mcp")

T = TypeVar("T")
Lost = Callable[[BaseException | None], None]
"""Told once when a connection has ended by itself, and why if that is known."""

LinkState = Literal["connecting", "discovering", "ready", "failed", "authenticating"]
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
MANY, RARE_PAUSE = 12, 60.0
"""After so many attempts in vain a server is tried once a minute, and at once for whoever calls it."""
STEADY = 5.0
"""A connection that held so many seconds was a good one: the next is made without a pause."""
SETTLED_AFTER = 3
"""So many attempts in a row are made before a server counts as failed for those who wait. It is tried on."""
CONNECTING = 60.0
"""Seconds until it has said hello. A process may have to be downloaded first."""
DISCOVERY = 15.0
BETWEEN_LISTS = 1.0
"""Seconds after which a server that says that its lists have changed is asked once more."""
MOST_TRIES = 4
"""Of a call that may be repeated; at most two of them reach a server."""
LEAVING = 5.0
"""Seconds that a client gets to hang up."""
LAST_ANSWERS = 1.0
"""Seconds for which calls may still be answered when the connection is known to be over."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a call may take."""

    silence: float = 60.0
    """Seconds without a sign of life; each progress begins them anew."""
    most: float = 600.0


@dataclass(frozen=True, slots=True)
class Call:
    """A tool to be called."""

    tool: str
    may_repeat: bool = False
    """True for one that only reads, or may be run twice: it is called once more when its server goes away."""


@dataclass(frozen=True, slots=True)
class Wires:
    """What a link needs from outside to connect once."""

    connect: Callable[[Lost], AbstractAsyncContextManager[Client]]
    """A new client. It is given what to call when the connection is lost."""
    discover: Callable[[Client], Awaitable[Catalogue]]
    """Everything that a server offers."""
    listen: Callable[[Client, Callable[[], None]], Coroutine[Any, Any, None]]
    """Tells of changes of what it offers. It may return when the server tells of them by itself, or never."""


class Link:
    """One server, as long as it is wanted."""

    def __init__(
        self,
        name: str,
        wires: Wires,
        *,
        clock: Clock,
        changed: Callable[[], object],
        catalogue: Catalogue | None = None,
        attempts: int = SETTLED_AFTER,
    ) -> None:
        self.name = name
        self.state: LinkState = "connecting"
        self.error: str | None = None
        self.auth_url: str | None = None
        self.catalogue = catalogue
        """What it offers, as far as is known. The same object as long as it offers the same."""
        self.settled = asyncio.Event()
        """Set once the first connection is made or has failed for good."""
        self._wires, self._clock, self._changed, self._attempts = wires, clock, changed, attempts
        self._task: asyncio.Task[None] | None = None
        self.gone: str | None = None
        """Why it was stopped, for those who still wait for an answer."""
        self._calls: set[asyncio.Future[Any]] = set()
        self._stopping, self._stale, self._hurry = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._moved = asyncio.Event()
        # When a person was last asked something on its behalf.
        self._is_asking, self._answered_at = False, -math.inf
        # Of the present visit. The client is there as long as it may be called.
        self._client: Client | None = None
        self._scope: CancelScope | None = None
        self._was_ready = self._is_lost = False
        self._loss: BaseException | None = None
        # Visits that are over; those in a row that were in vain; and whether the next one waits.
        self._over = self._vain = 0
        self._is_pausing = False

    # --- its life

    def start(self) -> None:
        """Begin to connect, and go on until `stop`. Once authorization is there, this begins it again."""
        if self._task is not None and not self._task.done():
            return
        self.settled.clear()
        if self.state != "connecting":
            self._become("connecting")
        self._task = asyncio.create_task(self._run(), name=f"mcp server {self.name}")

    async def stop(self, why: str | None = None) -> None:
        """Hang up. Whoever waits for an answer is told why, or that the connection is gone."""
        self.gone = why
        self._stopping.set()
        self._wake()
        if self._task is not None:
            await asyncio.wait([self._task])

    def refresh(self) -> None:
        """What the server offers may have changed: it is asked again."""
        self._stale.set()

    async def _run(self) -> None:
        while not self._stopping.is_set():
            self._is_pausing = False
            self._hurry.clear()
            began = self._clock.monotonic()
            failure = await self._visited()
            if self._stopping.is_set():
                return
            if isinstance(failure.error, NeedsAuthorization):
                self._become("authenticating", auth_url=failure.error.url)
                self.settled.set()
                return
            held = self._was_ready and self._clock.monotonic() - began >= STEADY
            self._vain = 0 if held else self._vain + 1
            self._over += 1
            self._is_pausing = True
            self._become("connecting" if self._was_ready else "failed", failure.words)
            if self._vain >= self._attempts:
                self.settled.set()
            if self._vain:
                await self._pause()

    async def _pause(self) -> None:
        most = LONGEST_PAUSE if self._vain < MANY else RARE_PAUSE
        pause = self._clock.sleep(backoff(self._vain, first=FIRST_PAUSE, most=most))
        await _first(self._stopping.wait(), self._hurry.wait(), pause)

    def _become(self, state: LinkState, error: str | None = None, *, auth_url: str | None = None) -> None:
        """Stand otherwise than before. What is the same is told to nobody: a server may be away for days."""
        self._wake()
        if (state, error, auth_url) != (self.state, self.error, self.auth_url):
            self.state, self.error, self.auth_url = state, error, auth_url
            self._tell()

    def _tell(self) -> None:
        try:
            self._changed()
        except Exception:
            # Whoever watches must not end what is watched.
            log.exception("a change of the MCP server %s could not be told", self.name)

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    # --- a visit

    async def _visited(self) -> Failure:
        """Let one connection live in a task of its own. What ended it."""
        self._was_ready, self._is_lost, self._loss = False, False, None
        visit = asyncio.create_task(self._visit(), name=f"mcp connection {self.name}")
        try:
            await _first(asyncio.wait([visit]), self._stopping.wait())
            if not visit.done():
                await self._left(visit)
        except asyncio.CancelledError:
            visit.cancel()
            raise
        finally:
            self._client = self._scope = None
        error = visit.exception() if visit.done() and not visit.cancelled() else None
        return failure_of(self._loss or error or asyncio.CancelledError())

    async def _left(self, visit: asyncio.Task[None]) -> None:
        """Let a visit end: by itself, then by its scope, and in the end by force."""
        scope = self._scope
        if scope is not None and self._client is None:
            scope.cancel()
        for end in (lambda: None, scope.cancel if scope is not None else visit.cancel, visit.cancel):
            end()
            done, _ = await asyncio.wait([visit], timeout=LEAVING)
            if done:
                return
        log.warning("the MCP server %s does not let itself be left", self.name)

    async def _visit(self) -> None:
        """Connect, list, and stay until the connection is lost or not wanted any more."""
        import anyio

        limit = CONNECTING
        with anyio.CancelScope(deadline=anyio.current_time() + limit) as scope:
            self._scope = scope
            async with self._wires.connect(lambda error: self._lose(scope, error)) as client:
                limit = DISCOVERY
                scope.deadline = anyio.current_time() + limit
                self._become("discovering")
                self._stale.clear()
                await self._list(client)
                scope.deadline = math.inf
                self._client, self._was_ready = client, True
                self._become("ready")
                self.settled.set()
                await self._stay(client)
                self._client = None
        if scope.cancelled_caught and not self._is_lost and not self._stopping.is_set():
            raise AgentError(f"It gave no answer within {limit:g} seconds.")

    def _lose(self, scope: CancelScope | None, error: BaseException | None) -> None:
        """The connection has ended by itself. Nobody calls it any more, and it is left without a word."""
        import anyio

        if scope is None or scope is not self._scope or self._stopping.is_set() or self._is_lost:
            return
        self._is_lost, self._loss, self._client = True, error, None
        if self._calls:
            # What was asked already may be answered, if only with a no that makes it safe to ask again.
            scope.deadline = anyio.current_time() + LAST_ANSWERS
        else:
            scope.cancel()
        if self._was_ready:
            words = LOST if error is None else failure_of(error).words
            log.info("the connection to the MCP server %s was lost: %s", self.name, words)
            self._become("connecting", words)

    async def _stay(self, client: Client) -> None:
        """Follow what the server says of its lists."""
        import anyio

        async with anyio.create_task_group() as beside:
            beside.start_soon(self._wires.listen, client, self.refresh)
            while True:
                await _first(self._stopping.wait(), self._stale.wait())
                if self._stopping.is_set():
                    beside.cancel_scope.cancel()
                    return
                self._stale.clear()
                await self._list_again(client)
                await _first(self._stopping.wait(), self._clock.sleep(BETWEEN_LISTS))

    async def _list_again(self, client: Client) -> None:
        import anyio

        try:
            with anyio.fail_after(DISCOVERY):
                is_new = await self._list(client)
        except Exception as error:  # noqa: BLE001 - what it offered before is still known
            log.warning("the MCP server %s could not be listed again: %s", self.name, failure_of(error).words)
            return
        if is_new:
            self._tell()

    async def _list(self, client: Client) -> bool:
        """Ask what the server offers. True when that is something else than before."""
        found = await self._wires.discover(client)
        if found == self.catalogue:
            return False
        self.catalogue = found
        return True

    # --- what others ask of it

    async def call(
        self,
        ask: Callable[[Client, Callable[[], None]], Awaitable[T]],
        timeouts: Timeouts,
        what: str,
        *,
        may_repeat: bool = False,
    ) -> T:
        """Ask the server something: `ask` is given the client, and what to call at each sign of life.

        Waits for the connection if there is none just now, and asks once more when the connection was gone
        before the server could have begun, or in the middle of what may be repeated. Raises `ToolError` with
        words for a model.
        """
        ends_at = self._clock.monotonic() + timeouts.most
        first: ToolError | None = None
        tries = begun = 0
        while True:
            until = min(self._clock.monotonic() + timeouts.silence, ends_at)
            try:
                client = await self._connected(until, is_patient=begun > 0)
            except ToolError as unreachable:
                raise first or unreachable from None
            sent, alive = Sent(), asyncio.Event()
            work = asyncio.ensure_future(_asked(ask, client, alive.set, sent))
            self._calls.add(work)
            work.add_done_callback(self._ended)
            try:
                await self._until_done(work, alive, timeouts.silence, ends_at, what)
            except BaseException:
                work.cancel()
                raise
            error = asyncio.CancelledError() if work.cancelled() else work.exception()
            if error is None:
                return work.result()
            failure = failure_of(error, sent)
            if failure.is_over and self._client is client:
                self._lose(self._scope, failure.error)
            told = _told(failure, self.name, what, self.gone)
            tries, begun = tries + 1, begun + (not failure.was_not_run)
            is_unheard = failure.is_over and failure.was_not_run
            is_again = is_unheard or (may_repeat and failure.is_loss and begun < 2)
            if not is_again or tries >= (MOST_TRIES if may_repeat else 2) or not self._is_running:
                raise told from error
            first = told if begun else None
            if not failure.was_not_run:
                await self._clock.sleep(FIRST_PAUSE)  # what dies may still take a connection and drop it

    def _ended(self, work: asyncio.Future[Any]) -> None:
        self._calls.discard(work)
        if self._is_lost and not self._calls and self._scope is not None:
            self._scope.cancel()
        if not work.cancelled():
            work.exception()  # whoever was cancelled meanwhile does not ask for it

    async def _until_done(
        self, work: asyncio.Future[Any], alive: asyncio.Event, silence: float, ends_at: float, what: str
    ) -> None:
        """Return when the work is done. Raises once it was silent, or has taken, too long."""
        while not work.done():
            alive.clear()
            left = min(silence, ends_at - self._clock.monotonic())
            await _first(asyncio.wait([work]), alive.wait(), self._clock.sleep(max(left, 0.0)))
            is_late = self._clock.monotonic() >= ends_at
            if self._is_asking or self._clock.monotonic() - self._answered_at < silence:
                # A person takes their time: that is not the server's.
                ends_at = max(ends_at, self._clock.monotonic() + silence)
                continue
            if work.done() or (alive.is_set() and not is_late):
                continue
            how = "has taken too long" if is_late else f"has not been heard of for {silence:g} seconds"
            raise ToolError(
                f"{what[:1].upper()}{what[1:]} of the MCP server {self.name!r} {how}, and was stopped."
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

    async def _connected(self, until: float, *, is_patient: bool = False) -> Client:
        """The client, once there is one. A server that is away is tried again for whoever needs it: once, and
        as long as there is time for who `is_patient`."""
        hurried: int | None = None
        while self._client is None:
            left = until - self._clock.monotonic()
            is_vain = self._is_pausing and hurried is not None and self._over > hurried
            is_too_late = left <= 0 or (is_vain and not is_patient)
            if is_too_late or self.state == "authenticating" or not self._is_running:
                raise _unreachable(self)
            if self._is_pausing and hurried is None:
                hurried = self._over
                self._hurry.set()
            await _first(self._moved.wait(), self._clock.sleep(left))
        return self._client

    @property
    def attempt(self) -> int:
        """Which connection in its life is, or was last, tried."""
        return self._over

    @property
    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done() and not self._stopping.is_set()


async def _asked(
    ask: Callable[[Client, Callable[[], None]], Awaitable[T]],
    client: Client,
    alive: Callable[[], None],
    sent: Sent,
) -> T:
    sending.set(sent)
    return await ask(client, alive)


async def _first(*waits: Awaitable[Any]) -> None:
    """Return when one of these is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _unreachable(link: Link) -> ToolError:
    if link.state == "authenticating":
        return ToolError(f"The MCP server {link.name!r} waits for a person to authorise it. Nothing was run.")
    why = link.gone or link.error or "It has not answered yet."
    return ToolError(f"The MCP server {link.name!r} cannot be reached: {why} Nothing was run.")


def _told(failure: Failure, name: str, what: str, gone: str | None) -> ToolError:
    effect = "Nothing was run." if failure.was_not_run else "It may or may not have taken effect."
    if failure.is_loss:
        return ToolError(f"The MCP server {name!r} went away during {what}: {gone or failure.words} {effect}")
    if failure.was_not_run:
        return ToolError(f"The MCP server {name!r} did not take {what}: {failure.words} {effect}")
    return ToolError(failure.words)
