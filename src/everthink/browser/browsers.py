"""The browsers of one process: usually one, with a page for each agent that uses it.

    a tool --lent(key, …)--> a browser is there, or starts --> the page of that key, or a fresh one
                                                 nobody needs it for ten minutes: it ends

A browser that was killed is replaced by the next call; what was open in it is lost, and said so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import ToolError
from ..guard.finding import Resolve, look_up
from ..guard.rules import Rules
from ..kinds import SECONDS, at_least, check_options
from .cdp import TIMEOUT, BrowserGone, Connection
from .channels import connect
from .chromium import MOST_MEMORY, launched
from .tab import Tab

__all__ = ["Browsers", "Key", "Where"]

log = logging.getLogger("everthink.browser")

IDLE_AFTER = 600.0
MOST_PAGES = 20
_OPTIONS = {"idle_after": SECONDS, "most_pages": at_least(1), "most_memory": at_least(1)}


Key = tuple[str, *tuple[Hashable, ...]]
"""Whose page it is: the id of the agent, then whatever else tells its pages apart."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which browser: one of ours, by its program or whichever is found, or one that runs elsewhere."""

    executable: str | None = None
    cdp_url: str | None = None


@dataclass(eq=False)
class _Running:
    connection: Connection
    stack: AsyncExitStack
    tabs: dict[Key, Tab] = field(default_factory=dict["Key", Tab])
    users: dict[Tab, int] = field(default_factory=dict["Tab", int])
    timers: dict[Tab | None, asyncio.TimerHandle] = field(
        default_factory=dict["Tab | None", asyncio.TimerHandle]
    )
    """When a page that nobody uses ends; with `None` the browser itself."""


class Browsers:
    """Browsers for all agents of a process. An app has one of these and ends it."""

    def __init__(
        self, *, idle_after: float = IDLE_AFTER, most_pages: int = MOST_PAGES, most_memory: int = MOST_MEMORY
    ) -> None:
        check_options(
            "Browsers", _OPTIONS, idle_after=idle_after, most_pages=most_pages, most_memory=most_memory
        )
        self._idle_after, self._most, self._memory = idle_after, most_pages, most_memory
        self._running: dict[Where, _Running] = {}
        self._starting: dict[Where, asyncio.Lock] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def pages(self) -> int:
        """How many pages are open."""
        return sum(len(running.users) for running in self._running.values())

    @property
    def running(self) -> int:
        """How many browsers run."""
        return sum(not running.connection.gone.is_set() for running in self._running.values())

    @asynccontextmanager
    async def lent(
        self,
        key: Key | None,
        where: Where,
        rules: Rules,
        *,
        timeout: float = TIMEOUT,
        resolve: Resolve = look_up,
    ) -> AsyncGenerator[Tab]:
        """The page of `key`, for one user at a time; without a key one that ends with the block."""
        running = await self._there(where)
        tab = await self._tab(running, key, rules, timeout)
        try:
            async with tab.lock:
                if not tab.has_begun:
                    await tab.begin(None if where.cdp_url else resolve)
                yield tab
        finally:
            if tab in running.users:
                running.users[tab] -= 1
            if key is None or tab.is_gone or not tab.has_begun:
                await self._ended(running, tab)
            elif not running.users.get(tab, 1):
                self._later(running, tab)

    async def forget(self, agent: str) -> None:
        """Close the pages of an agent, and of all below it, with their cookies."""
        for running in list(self._running.values()):
            for (owner, *_), tab in list(running.tabs.items()):
                if owner == agent or owner.startswith(f"{agent}/sub/"):
                    await self._ended(running, tab)

    async def close(self) -> None:
        """End every browser. Those that wait for one hear that it is gone."""
        self._is_closed = True
        for where in list(self._running):
            await self._end(where)
        if self._ending:
            await asyncio.wait(self._ending)

    # --- browsers

    async def _there(self, where: Where) -> _Running:
        async with self._starting.setdefault(where, asyncio.Lock()):
            if self._is_closed:
                raise BrowserGone("the server stops")
            running = self._running.get(where)
            if running is not None and not running.connection.gone.is_set():
                return running
            if running is not None:
                log.warning("the browser ended by itself; another one is started")
                await self._end(where)
            async with AsyncExitStack() as stack:
                if where.cdp_url is None:
                    connection = await stack.enter_async_context(
                        launched(where.executable, most_memory=self._memory)
                    )
                else:
                    connection = Connection(await connect(where.cdp_url))
                    stack.push_async_callback(connection.close)
                await connection.send("Target.setDiscoverTargets", {"discover": True})
                running = _Running(connection, stack.pop_all())
            connection.listen("", lambda method, params: _told(running, method, params))
            if self._is_closed:
                await running.stack.aclose()
                raise BrowserGone("the server stops")
            self._running[where] = running
            return running

    async def _end(self, where: Where) -> None:
        running = self._running.pop(where, None)
        if running is None:
            return
        for timer in running.timers.values():
            timer.cancel()
        running.timers.clear()
        tabs = list(running.users)
        for tab in tabs:
            tab.lost("the browser has ended")
            if tab.proxy is not None:
                await tab.proxy.close()
        await running.stack.aclose()

    # --- pages

    async def _tab(self, running: _Running, key: Key | None, rules: Rules, timeout: float) -> Tab:
        """The page of a key, counted as in use."""
        while (tab := running.tabs.get(key) if key is not None else None) is None or tab.is_gone:
            if len(running.users) >= self._most:
                await self._make_room(running)
                continue  # somebody else with this key may have been quicker
            tab = Tab(running.connection, rules, timeout=timeout)
            if key is not None:
                running.tabs[key] = tab
            break
        for held in (tab, None):
            if (timer := running.timers.pop(held, None)) is not None:
                timer.cancel()
        running.users[tab] = running.users.pop(tab, 0) + 1  # the one used last is the last
        return tab

    async def _make_room(self, running: _Running) -> None:
        idle = next((tab for tab, users in running.users.items() if not users), None)
        if idle is None:
            raise ToolError(
                f"All {self._most} pages of the browser are in use.",
                kept="Nothing was opened.",
                next_step="Try again in a moment.",
            )
        await self._ended(running, idle)

    def _later(self, running: _Running, tab: Tab | None) -> None:
        def due() -> None:
            running.timers.pop(tab, None)
            ending = asyncio.ensure_future(self._gone_idle(running, tab))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

        if not self._is_closed:
            running.timers[tab] = asyncio.get_running_loop().call_later(self._idle_after, due)

    async def _gone_idle(self, running: _Running, tab: Tab | None) -> None:
        if tab is not None:
            if not running.users.get(tab):
                await self._ended(running, tab)
            return
        where = next((where for where, one in self._running.items() if one is running), None)
        if where is None or running.users:
            return
        async with self._starting[where]:
            if not running.users:
                log.info("nobody needs the browser: it ends")
                await self._end(where)

    async def _ended(self, running: _Running, tab: Tab) -> None:
        """End a page, also when whoever waits for that is cancelled."""
        if running.users.pop(tab, None) is None:
            return
        for key in [key for key, one in running.tabs.items() if one is tab]:
            del running.tabs[key]
        if (timer := running.timers.pop(tab, None)) is not None:
            timer.cancel()
        if not running.users and running in self._running.values():
            self._later(running, None)
        ending = asyncio.ensure_future(tab.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait([ending])
            raise


def _told(running: _Running, method: str, params: Mapping[str, Any]) -> None:
    """What the browser says of its pages."""
    match method:
        case "Browser.downloadWillBegin":
            for tab in running.users:
                if params.get("frameId") in tab.frames:
                    tab.downloads(str(params.get("url")))
        case "Target.targetCreated":
            _closed_window(running, params["targetInfo"])
        case "Target.targetCrashed" | "Target.targetDestroyed":
            for tab in running.users:
                if tab.target == params.get("targetId"):
                    tab.lost("it crashed" if method.endswith("Crashed") else "it was closed")
        case _:
            pass


def _closed_window(running: _Running, target: Mapping[str, Any]) -> None:
    """A page that a page opened is closed: one is enough, and what it shows can be opened by its address."""
    if target.get("type") != "page":
        return
    for tab in running.users:
        if tab.has_begun and tab.context == target.get("browserContextId"):
            running.connection.post("Target.closeTarget", {"targetId": target.get("targetId")})
