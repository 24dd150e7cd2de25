"""What a message of a messenger costs beside the same turn over a socket: a server process, a thousand chats.

    messengers.py --starts--> messengers.py serve  <--webhooks-- TelegramServer --shows--> a thousand people
                                                   <--sockets--- a thousand windows

CPU is the server's, all threads. The contestants take turns; values are medians of the repetitions.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from everthink import App, Think
from everthink.messengers.telegram import Telegram, telegram_messenger
from everthink.server import Limits
from everthink.serving.process import listen, quiet_logs, run
from everthink.testing import ScriptedModel, says
from everthink.testing.server_address import Place
from everthink.testing.telegram import TelegramServer

from .measure import Row

OVER_SOCKETS, BY_MESSENGER = "socket", "Telegram"
COLUMNS = (OVER_SOCKETS, BY_MESSENGER)
SECRET, ANSWER = "s3cret", "A short answer, as people get them in messengers all day long."
BUDGET = 1.5
AT_ONCE = 40


def app(folder: Path, api: str, token: str) -> App:
    """One bot, as everybody has it, but for the bounds of a bot and the pause for bursts."""
    definition = telegram_messenger(
        token=token, user_name="test_bot", secret_token=SECRET, api_base_url=api, burst=0.0
    )
    adapter = definition.messenger
    assert isinstance(adapter, Telegram)
    adapter.limits = type(adapter.limits)(  # pyright: ignore[reportAttributeAccessIssue]
        visible=3400, follow_up=3500, edit_every=1.1, edit_every_in_groups=3.1, sends_per_second=1e6
    )
    model = ScriptedModel(lambda request: says(ANSWER), repeat=True)
    bot = type("Bot", (Think,), {"model": model, "messengers": {"telegram": definition}})
    crowd = Limits(sockets_per_address=100_000, agents_per_minute=1_000_000)
    return App(bot, store=f"sqlite:///{folder / 'messengers.db'}", grace=0.0, limits=crowd)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _crowd(many: int, one: Callable[[int], Awaitable[None]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def within(number: int) -> None:
        async with slots:
            await one(number)

    await asyncio.gather(*map(within, range(many)))


async def _measured(folder: Path, *, chats: int, repetitions: int) -> Row:
    async with TelegramServer() as telegram:
        command = [sys.executable, "-m", "bench.messengers", str(folder), telegram.origin, telegram.token]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - measured
        try:
            assert process.stdout is not None
            place = Place()
            place.port = int(await asyncio.to_thread(process.stdout.readline))
            telegram.webhook(f"http://{place.host}/messengers/telegram/webhook", secret=SECRET)
            people = [telegram.private(f"person {number}") for number in range(chats)]
            windows: list[Any] = []

            async def write(number: int) -> None:
                chat = people[number]
                before = len(chat.answers)
                await chat.say("Hello")
                await telegram.until(lambda: len(chat.answers) > before, within=120)

            async def say(number: int) -> None:
                window = windows[number]
                await window.until_done(await window.say("Hello"))

            for number in range(chats):
                windows.append(await place.connect(f"/agents/bot/window-{number}"))
            spent: dict[str, list[float]] = {name: [] for name in COLUMNS}
            for repetition in range(-1, repetitions):
                for name, one in ((OVER_SOCKETS, say), (BY_MESSENGER, write)):
                    before = _cpu(process.pid)
                    await _crowd(chats, one)
                    if repetition >= 0:
                        spent[name].append((_cpu(process.pid) - before) / chats * 1e6)
            await place.leave()
        finally:
            process.terminate()
            process.wait()
    row = Row(f"CPU per message, {chats:,} chats of one bot", "µs")
    row.values = {name: median(found) for name, found in spent.items()}
    row.times_floor = median(
        ours / bare for ours, bare in zip(spent[BY_MESSENGER], spent[OVER_SOCKETS], strict=True)
    )
    return row.held_to(f"≤ {BUDGET} × a socket's", row.times_floor <= BUDGET)


def measured(folder: Path, *, quick: bool, take: Callable[[list[Row]], object]) -> None:
    """Measure, and hand the row to `take`."""
    chats, repetitions = (100, 1) if quick else (1000, 3)
    take([asyncio.run(_measured(folder, chats=chats, repetitions=repetitions))])


def serve(folder: str, api: str, token: str) -> None:
    """The server process: prints its port."""
    quiet_logs(access=False)
    listener = listen("127.0.0.1", 0)
    print(listener.getsockname()[1], flush=True)
    run(app(Path(folder), api, token), listener, ready=lambda: None, graceful_timeout=1)


if __name__ == "__main__":
    serve(*sys.argv[1:])
