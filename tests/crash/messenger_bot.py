"""A bot whose process dies and is started again, as its platform sees it.

test --> Bot --Nursery--> tests/crash/messenger_child.py      one process after the other, on one database
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everthink.messengers.values import Target, decode
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.testing.discord import DiscordServer
from everthink.testing.platform import Delivery, Shown, posted
from everthink.testing.slack import SlackWorkspace
from everthink.testing.telegram import TelegramServer
from tests.crash.messenger_child import STOP
from tests.crash.nursery import Nursery
from tests.support.platforms import Stage, TelegramStage

__all__ = ["YES", "Bot"]

YES = (200, 202)
"""What a platform takes for: it has arrived."""


class Bot:
    """The process of the bot: as often as it dies, it is started again."""

    def __init__(self, stage: Stage, nursery: Nursery, store: str, folder: Path, **more: Any) -> None:
        self.stage, self.store, self._nursery, self._folder = stage, store, nursery, folder
        self._arguments = {
            "platform": stage.name,
            "store": store,
            "origin": stage.platform.origin,
            "options": options_of(stage),
            **more,
        }
        self.deaths = 0
        self.in_doubt: list[str] = []
        """The chats of the messages of which a process did not know, when it died, whether they are there."""
        self._met = len(self._hellos())
        self._may_start, self._is_down = asyncio.Event(), asyncio.Event()
        self._may_start.set()
        self._living: asyncio.Task[None]

    @asynccontextmanager
    async def living(self, at: str | None = None) -> AsyncIterator[None]:
        """Let it live until the block ends. It dies once, at the commit `at`, and whenever it is killed."""
        before = self._met
        self._living = asyncio.create_task(self._live(at))
        try:
            await self.up(before)
            yield
            await self._stop()
        finally:
            if not self._living.done():
                await self.kill()
                self._living.cancel()

    async def _live(self, at: str | None) -> None:
        while True:
            ended = await asyncio.to_thread(self._nursery.ended, self._folder, at, **self._arguments)
            if ended == {"code": 0}:
                return
            assert ended == {"signal": signal.SIGKILL}, ended
            at = None
            self.deaths += 1
            self.in_doubt += await doubted(self.store)
            self._is_down.set()
            await self._may_start.wait()

    async def until(self, reached: Callable[[], object], *, within: float = 60.0) -> None:
        """Return once the platform has come so far. Raises when the bot has ended for good before."""
        waiting = asyncio.ensure_future(self.stage.platform.until(reached, within=within))
        try:
            await asyncio.wait([waiting, self._living], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                self._living.result()
                raise AssertionError("the bot has stopped")
            waiting.result()
        finally:
            waiting.cancel()

    async def up(self, met: int) -> None:
        """Return once another process listens than the one that was met as number `met`."""
        await self.until(lambda: self._met > met or len(self._hellos()) > met)
        self._met = len(self._hellos())
        self._register(f"http://127.0.0.1:{self._hellos()[-1]['at']}")

    async def kill(self) -> None:
        """Kill the process that listens. Another one is started by `start`."""
        self._may_start.clear()
        self._is_down.clear()
        self._kill()
        await asyncio.wait_for(self._is_down.wait(), 60)

    async def start(self) -> None:
        """Start it again; returns when it listens."""
        before = self._met
        self._may_start.set()
        await self.up(before)

    async def told(self, delivery: Delivery) -> None:
        """Tell it again until it has said yes."""
        while delivery.status not in YES:
            before = self._met
            await self.stage.redeliver(delivery)
            if delivery.status is None:
                await self.up(before)

    async def pressed(self, find: Callable[[], Shown | None], button: str) -> None:
        """Ann presses a button, until somebody has taken it or it is not there any more."""
        while (question := find()) is not None:
            before = self._met
            delivery = await self.stage.press(question, button)
            if delivery.status in YES:
                return
            if delivery.status is None:
                await self.up(before)

    async def _stop(self) -> None:
        """End it, whichever process it is by now."""
        while not self._living.done():
            before = self._met
            with contextlib.suppress(OSError):
                await posted(self.host + STOP, {}, b"")
            again = asyncio.ensure_future(self.up(before))
            await asyncio.wait([again, self._living], return_when=asyncio.FIRST_COMPLETED)
            again.cancel()
            await asyncio.gather(again, return_exceptions=True)
        self._living.result()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(self._hellos()[-1]["pid"]), signal.SIGKILL)

    def _hellos(self) -> list[dict[str, Any]]:
        return [asked.body for asked in self.stage.platform.log if "pid" in asked.body]

    def _register(self, host: str) -> None:
        self.host = host
        path = f"{host}/messengers/{self.stage.name}/webhook"
        platform: Any = self.stage.platform
        match platform:
            case TelegramServer():
                platform.webhook(path, secret=TelegramStage.secret)
            case SlackWorkspace():
                platform.request_url = path
            case _:
                platform.endpoint = path


def options_of(stage: Stage) -> dict[str, Any]:
    """What the bot is told of its platform."""
    platform: Any = stage.platform
    match platform:
        case TelegramServer():
            return {
                "token": platform.token,
                "secret_token": TelegramStage.secret,
                "api_base_url": platform.origin,
            }
        case SlackWorkspace():
            secret = platform.signing_secret
            return {"token": platform.bot_token, "signing_secret": secret, "api_url": platform.api_url}
        case _:
            assert isinstance(platform, DiscordServer)
            return {
                "application_id": platform.application_id,
                "public_key": platform.public_key,
                "token": platform.bot_token,
                "api_url": platform.api_url,
            }


async def doubted(url: str) -> list[str]:
    """The chats of the messages that were on their way when the process died."""
    store = await open_store(url, MIGRATIONS)
    try:
        rows = await store.fetch("SELECT target FROM deliveries WHERE state = 'sending' AND ref IS NULL")
    finally:
        await store.close()
    return [decode(Target, target).chat for (target,) in rows]
