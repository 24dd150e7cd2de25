"""What a message of a messenger costs beside the same turn over a socket: a thousand chats of one bot.

    messengers.py --starts--> messengers.py serve  <--sockets--- a thousand windows
                          --> messengers.py serve  <--webhooks-- Telegram --shows--> a thousand people
                          --> messengers.py serve  <--webhooks-- Telegram, with the pause for bursts

CPU is the servers', all threads. The contestants take turns; values are medians of the repetitions, and
ratios medians of those within a repetition. Each has a server of its own, so that none pays for what others
keep in memory, nor for the pings of windows that are open meanwhile. Both kinds of chats are open before
anything is measured: windows have their sockets, and Telegram its connections to the webhook, which it keeps
as the real one does (its server is public: tdlib/telegram-bot-api, WebhookActor; up to 40, and "keep-alive"
in each request). What was sent on one that had just been closed is sent again, which Telegram does, too. Who
writes next is a matter of chance: in the order of their names neighbours would share pages of the database,
and the more of them the shorter the names are. The model is in memory and answers at once, so the turn itself
is as cheap as it can be, and a ratio is the worst there is. One bot alone would be held to 30 messages a
second: that bound is lifted here.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from everthink import App, Think
from everthink.messengers import telegram as adapter
from everthink.messengers.connections import Connections
from everthink.messengers.port import Uncertain
from everthink.server import Limits
from everthink.serving.process import listen, quiet_logs, run
from everthink.testing import ScriptedModel, says
from everthink.testing.client import Client
from everthink.testing.server_address import Answer, Place
from everthink.testing.telegram import TelegramChat, TelegramServer

from .measure import Row

OVER_SOCKETS, BY_MESSENGER, IN_BURSTS = "socket", "Telegram", "with a pause"
COLUMNS = (OVER_SOCKETS, BY_MESSENGER, IN_BURSTS)
PAUSE = 0.6
"""Seconds that a message waits for the next one, where nobody says otherwise."""
SECRET, ANSWER = "s3cret", "A short answer, as people get them in messengers all day long."
BUDGET = 1.5
AT_ONCE = {OVER_SOCKETS: 40, BY_MESSENGER: 40, IN_BURSTS: 400}
"""Chats in which somebody waits. Most of a pause nothing happens, so there are more of them."""


class Telegram(TelegramServer):
    """Keeps its connections to the webhook open, as Telegram does: up to 40, unless told otherwise."""

    _connections: Connections | None = None

    async def _posted(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        parts = urlsplit(url)
        if self._connections is None:
            self._connections = Connections(parts.hostname or "", parts.port or 80, is_secure=False)
        fields = {"Host": parts.netloc, **headers, "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        request = f"POST {parts.path} HTTP/1.1\r\n{head}\r\n".encode() + body
        while True:
            try:
                reply = await self._connections.ask(request, patience=60, most=64 * 1024)
            except Uncertain:
                continue
            return Answer(reply.status, {}, reply.body)


def app(folder: Path, api: str, token: str, burst: float) -> App:
    """One bot, as everybody has it, but for the bounds of a bot."""
    definition = adapter.telegram_messenger(
        token=token, user_name="test_bot", secret_token=SECRET, api_base_url=api, burst=burst
    )
    bot = definition.messenger
    assert isinstance(bot, adapter.Telegram)
    bot.limits = type(bot.limits)(  # pyright: ignore[reportAttributeAccessIssue]
        visible=3400, follow_up=3500, edit_every=1.1, edit_every_in_groups=3.1, sends_per_second=1e6
    )
    model = ScriptedModel(lambda request: says(ANSWER), repeat=True)
    cls = type("Bot", (Think,), {"model": model, "messengers": {"telegram": definition}})
    crowd = Limits(sockets_per_address=100_000, agents_per_minute=1_000_000)
    return App(cls, store=f"sqlite:///{folder / 'messengers.db'}", grace=0.0, limits=crowd)


async def _crowd(many: int, at_once: int, one: Callable[[int], Awaitable[None]], *, seed: int = 0) -> None:
    slots = asyncio.Semaphore(at_once)
    order = random.Random(seed).sample(range(many), many)

    async def within(number: int) -> None:
        async with slots:
            await one(number)

    await asyncio.gather(*map(within, order))


class Contestant:
    """A server, and somebody in each of its chats."""

    def __init__(self, folder: Path, telegram: Telegram, *, burst: float = 0.0) -> None:
        folder.mkdir()
        command = [sys.executable, "-m", "bench.messengers", folder, telegram.origin, telegram.token, burst]
        self._process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        self._telegram, self.place = telegram, Place()
        self._people: list[TelegramChat] = []
        self._windows: list[Client] = []

    async def open(self, *, windows: int = 0, people: int = 0) -> None:
        """Let the server listen, and have so many chats."""
        assert self._process.stdout is not None
        self.place.port = int(await asyncio.to_thread(self._process.stdout.readline))
        for number in range(windows):
            self._windows.append(await self.place.connect(f"/agents/bot/window-{number}"))
        self._people = [self._telegram.private(f"person {number}") for number in range(people)]
        self._telegram.webhook(f"http://{self.place.host}/messengers/telegram/webhook", secret=SECRET)

    async def write(self, number: int) -> None:
        """Say something in a chat, and see the answer."""
        if self._windows:
            window = self._windows[number]
            await window.until_done(await window.say("Hello"))
        else:
            chat = self._people[number]
            before = len(chat.answers)
            await chat.say("Hello")
            await self._telegram.until(lambda: len(chat.answers) > before, within=120)

    def spent(self) -> float:
        """Seconds of CPU."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def leave(self) -> None:
        """Go, and let the server end."""
        await self.place.leave()
        self._process.terminate()
        self._process.wait()


async def _measured(folder: Path, *, chats: int, repetitions: int) -> list[Row]:
    async with Telegram() as telegram, Telegram() as patient:
        contestants = {
            OVER_SOCKETS: Contestant(folder / "socket", telegram),
            BY_MESSENGER: Contestant(folder / "telegram", telegram),
            IN_BURSTS: Contestant(folder / "pause", patient, burst=PAUSE),
        }
        spent: dict[str, list[float]] = {name: [] for name in COLUMNS}
        try:
            await contestants[OVER_SOCKETS].open(windows=chats)
            await contestants[BY_MESSENGER].open(people=chats)
            await contestants[IN_BURSTS].open(people=chats)
            for repetition in range(-1, repetitions):
                for name, one in contestants.items():
                    before = one.spent()
                    await _crowd(chats, AT_ONCE[name], one.write, seed=repetition)
                    if repetition >= 0:
                        spent[name].append((one.spent() - before) / chats * 1e6)
        finally:
            for one in contestants.values():
                await one.leave()
    row = Row(f"CPU per message, {chats:,} chats of one bot", "µs")
    row.values = {name: median(found) for name, found in spent.items()}
    row.times_floor = median(
        ours / bare for ours, bare in zip(spent[BY_MESSENGER], spent[OVER_SOCKETS], strict=True)
    )
    return [row.held_to(f"≤ {BUDGET} × a socket's", row.times_floor <= BUDGET)]


def measured(folder: Path, *, quick: bool, take: Callable[[list[Row]], object]) -> None:
    """Measure, and hand the row to `take`."""
    chats, repetitions = (100, 1) if quick else (1000, 3)
    take(asyncio.run(_measured(folder, chats=chats, repetitions=repetitions)))


def serve(folder: str, api: str, token: str, burst: str) -> None:
    """The server process: prints its port."""
    quiet_logs(access=False)
    listener = listen("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    run(app(Path(folder), api, token, float(burst)), listener, ready=lambda: None, graceful_timeout=1)


if __name__ == "__main__":
    serve(*sys.argv[1:])
