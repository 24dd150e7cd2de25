"""What pages cost: a browser, a page, a picture, a command, and memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from everthink.browser.browsers import Browsers, Where
from everthink.guard.rules import Rules

from .measure import Row, calm

PAGE = b"""<!doctype html><title>Shop</title><h1>Shoes</h1><img src="/picture"><ul>%s</ul>""" % (
    b"<li><a href='/shoe'>A good pair</a> <b>12 EUR</b></li>" * 200
)


async def pages(*, repetitions: int) -> list[Row]:
    """Wall time of what tools do with a page of 200 links on this machine, medians."""
    site = await asyncio.start_server(_answer, "127.0.0.1", 0)
    place = f"127.0.0.1:{site.sockets[0].getsockname()[1]}"
    rules = Rules(allow=[place])

    async def started() -> None:
        browsers = Browsers()
        async with browsers.lent(None, Where(), rules):
            pass
        await browsers.close()

    start = await _median(started, max(2, repetitions // 4))
    browsers = Browsers()

    async def whole() -> None:
        async with browsers.lent(None, Where(), rules) as tab:
            await tab.open(f"http://{place}/")

    await whole()
    page = await _median(whole, repetitions)
    async with browsers.lent("kept", Where(), rules) as tab:
        again = await _median(lambda: tab.open(f"http://{place}/"), repetitions)
        snapshot = await _median(lambda: tab.snapshot(50_000), repetitions)
        picture = await _median(lambda: tab.picture(is_whole=False), repetitions)
        command = await _median(lambda: tab.send("Page.getFrameTree"), repetitions * 10)
        one = _megabytes()
        for number in range(4):
            async with browsers.lent(number, Where(), rules) as more:
                await more.open(f"http://{place}/")
        each = (_megabytes() - one) / 4
    await browsers.close()
    site.close()
    return [
        Row("start of a browser, a page in it and its end", "ms", {"everthink": start}),
        Row("a page of the web: its context, opened, closed", "ms", {"everthink": page}).held_to(
            "≤ 500 ms", page <= 500
        ),
        Row("another page in the same context", "ms", {"everthink": again}),
        Row("a snapshot of a page of 200 links", "ms", {"everthink": snapshot}),
        Row("a screenshot", "ms", {"everthink": picture}),
        Row("a command to a page", "ms", {"everthink": command}),
        Row("a browser with one page, all its processes", "MB", {"everthink": one}),
        Row("each further page", "MB", {"everthink": each}),
    ]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(PAGE)
    writer.write(head + PAGE)
    await writer.drain()
    writer.close()


def _megabytes() -> float:
    """The memory of our browsers that is theirs: what processes share counts by their part of it."""
    kilobytes = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
            if b"everthink-browser-" not in Path(f"/proc/{session}/cmdline").read_bytes():
                continue
            lines = (folder / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kilobytes += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return kilobytes / 1000


async def _median(do: Callable[[], Awaitable[object]], repetitions: int) -> float:
    calm()
    times: list[float] = []
    for _ in range(repetitions):
        begun = time.perf_counter()
        await do()
        times.append(1_000 * (time.perf_counter() - begun))
    return median(times)
