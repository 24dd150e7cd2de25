"""Browsers come and go: killed in mid-call, idle, of a server that is killed, elsewhere, not there at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everthink.browser import Browsers, chromium
from everthink.browser.browsers import Where
from everthink.browser.cdp import NoAnswer
from everthink.browser.chromium import find_chromium
from everthink.browser.connector import cdp_tools
from everthink.browser.pages import Pages
from everthink.browser.tab import Tab
from everthink.errors import ToolError
from everthink.guard.finding import Resolve, look_up
from everthink.guard.rules import Rules
from everthink.tools.context import ToolContext

from .site import Agent, Hand, Web, hand, web

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FINE = {"/": "<title>Fine</title>"}


def processes(word: str) -> list[int]:
    """The processes that have a word in their command line."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def kill(word: str) -> None:
    for pid in processes(word):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def until_none(word: str) -> None:
    async with asyncio.timeout(30):
        while processes(word):  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.02)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where profiles of this test are, and of no other. Chromium makes sockets there: the path is short."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="b-") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)


async def held(browser: Hand, site: Web) -> asyncio.Task[object]:
    """A call that waits for a page that does not come."""
    site.held["/slow"] = asyncio.Event()
    call = asyncio.create_task(browser.call("open", url=f"{site.url}/slow"))
    await asyncio.wait_for(site.arrived.wait(), 30)
    return call


async def test_a_browser_that_is_killed_in_mid_call_is_told_and_comes_back(folder: Path) -> None:
    async with web(FINE) as site, hand(site) as browser:
        call = await held(browser, site)
        kill(str(folder))
        with pytest.raises(ToolError, match=r"The browser is gone.*Open the page again"):
            await call
        with pytest.raises(ToolError, match="No page is open"):
            await browser.call("snapshot")
        assert (await browser.call("open", url=f"{site.url}/"))["title"] == "Fine"
        assert (browser.browsers.running, browser.browsers.pages) == (1, 1)
    assert processes(str(folder)) == []
    assert os.listdir(folder) == []


async def test_a_page_that_crashes_takes_no_other_with_it() -> None:
    async with web(FINE) as site, hand(site) as browser:
        other = Agent("two")
        await browser.call("open", by=other, url=f"{site.url}/")
        await browser.call("open", url=f"{site.url}/")
        [running] = browser.browsers._running.values()
        [mine] = [tab for key, tab in running.tabs.items() if "one" in str(key)]
        running.connection.post("Page.crash", session=mine.session)
        with pytest.raises(ToolError, match=r"The page is gone: it crashed\.|No page is open"):
            await browser.call("snapshot")
        assert (await browser.call("snapshot", by=other))["title"] == "Fine"
        assert (await browser.call("open", url=f"{site.url}/"))["title"] == "Fine"


async def test_a_page_that_wants_all_memory_gets_its_share_and_no_more() -> None:
    greedy = """<title>?</title><script>
        const held = [];
        try { while (held.length < 64) held.push(new Uint8Array(32 << 20).fill(1)); } catch (error) {}
        document.title = `${held.length}`;
    </script>"""
    async with (
        web({**FINE, "/greedy": greedy}) as site,
        hand(site, browsers=Browsers(most_memory=768 << 20)) as browser,
    ):
        other = Agent("two")
        await browser.call("open", by=other, url=f"{site.url}/")
        try:
            given = int((await browser.call("open", url=f"{site.url}/greedy"))["title"]) * 32
        except ToolError:
            given = 0  # it crashed: that is another way to have no more
        assert given < 768
        assert (await browser.call("snapshot", by=other))["title"] == "Fine"


async def test_a_page_that_never_rests_is_left_and_others_go_on() -> None:
    pages = {**FINE, "/busy": "<title>Busy</title><body onload='setTimeout(() => { for (;;); }, 50)'>"}
    async with web(pages) as site, hand(site, timeout=4) as browser:
        with contextlib.suppress(ToolError):
            await browser.call("open", url=f"{site.url}/busy")

        async def look_until_its_loop_begins() -> None:
            while True:
                await browser.call("snapshot")

        with pytest.raises(ToolError, match=r"did not answer|The page is gone|No page is open"):
            await look_until_its_loop_begins()
        assert (await browser.call("open", url=f"{site.url}/"))["title"] == "Fine"


async def test_a_busy_page_is_closed_and_whoever_waits_is_told_so() -> None:
    async with web(FINE) as site, hand(site, timeout=1) as browser:
        await browser.call("open", url=f"{site.url}/")
        [running] = browser.browsers._running.values()
        [tab] = running.users
        running.connection.post("Runtime.evaluate", {"expression": "for (;;);"}, session=tab.session)
        with pytest.raises(
            ToolError, match=r"did not answer.*It was closed.*Open it again with browser_open"
        ):
            await browser.call("snapshot")
        with pytest.raises(ToolError, match="No page is open"):
            await browser.call("snapshot")


async def test_a_site_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everthink.browser.tab.LOADING", 0.3)
    async with web(FINE) as site, hand(site) as browser:
        await browser.call("open", url=f"{site.url}/")
        call = await held(browser, site)
        with pytest.raises(ToolError, match=r"did not answer within 0\.3 seconds\..*still open"):
            await call
        assert (await browser.call("open", url=f"{site.url}/"))["title"] == "Fine"


async def test_a_call_that_is_given_up_leaves_no_page_behind() -> None:
    async with web(FINE) as site, hand(site) as browser:
        site.held["/slow"] = asyncio.Event()
        call = asyncio.create_task(browser.call("markdown", url=f"{site.url}/slow"))
        await asyncio.wait_for(site.arrived.wait(), 30)
        call.cancel()
        await asyncio.wait([call])
        assert (call.cancelled(), browser.browsers.pages) == (True, 0)


async def test_a_page_stays_usable_when_the_way_to_another_is_given_up() -> None:
    async with web(FINE) as site, hand(site) as browser:
        await browser.call("open", url=f"{site.url}/")
        call = await held(browser, site)
        call.cancel()
        await asyncio.wait([call])
        assert (await browser.call("snapshot"))["url"] == f"{site.url}/"


async def test_a_page_that_was_given_up_before_it_was_there_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin, half = Tab.begin, asyncio.Event()

    async def begun(self: Tab, resolve: Resolve | None) -> None:
        self.context = "half"
        half.set()
        await asyncio.Event().wait()

    async with web(FINE) as site, hand(site) as browser:
        monkeypatch.setattr(Tab, "begin", begun)
        call = asyncio.create_task(browser.call("open", url=f"{site.url}/"))
        await half.wait()
        call.cancel()
        await asyncio.wait([call])
        monkeypatch.setattr(Tab, "begin", begin)
        assert browser.browsers.pages == 0
        assert (await browser.call("open", url=f"{site.url}/"))["title"] == "Fine"


async def test_what_nobody_uses_ends_the_page_first_and_then_the_browser(folder: Path) -> None:
    browsers = Browsers(idle_after=0.05)
    async with web(FINE) as site, hand(site, browsers=browsers) as browser:
        await browser.call("open", url=f"{site.url}/")
        [running] = browsers._running.values()
        await asyncio.wait_for(running.connection.gone.wait(), 30)
        await until_none(str(folder))
        assert (browsers.running, browsers.pages) == (0, 0)
        with pytest.raises(ToolError, match=r"No page is open\. .*not used for long"):
            await browser.call("snapshot")
        assert (await browser.call("open", url=f"{site.url}/"))["title"] == "Fine"


async def test_of_too_many_pages_the_one_that_rests_longest_is_closed() -> None:
    async with web(FINE) as site, hand(site, browsers=Browsers(most_pages=2)) as browser:
        one, two, three = Agent("1"), Agent("2"), Agent("3")
        for agent in (one, two, one, three):
            await browser.call("open", by=agent, url=f"{site.url}/")
        assert browser.browsers.pages == 2
        assert (await browser.call("snapshot", by=one))["title"] == "Fine"
        with pytest.raises(ToolError, match="No page is open"):
            await browser.call("snapshot", by=two)


async def test_pages_that_are_all_in_use_are_said_to_be() -> None:
    pages = {"/slow": "<title>Slow</title>"}
    async with web(pages) as site, hand(site, browsers=Browsers(most_pages=1)) as browser:
        call = await held(browser, site)
        with pytest.raises(ToolError, match=r"All 1 pages of the browser are in use"):
            await browser.call("open", by=Agent("2"), url=f"{site.url}/")
        site.held["/slow"].set()
        await call


SERVER = """
import asyncio, os, signal, sys, tempfile
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
tempfile.tempdir = sys.argv[2]
from everthink.browser.browsers import Browsers, Where
from everthink.guard.rules import Rules
async def main():
    browsers = Browsers()
    async with browsers.lent(("a",), Where(), Rules(allow=[sys.argv[1]])) as tab:
        await tab.open(f"http://{sys.argv[1]}/")
        print("open", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_however_the_server_ends_no_browser_is_left(end: signal.Signals, folder: Path) -> None:
    async with web(FINE) as site:
        server = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", SERVER, f"127.0.0.1:{site.port}", str(folder)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert server.stdout is not None
        assert await asyncio.wait_for(server.stdout.readline(), 60) == b"open\n"
        assert len(processes(str(folder))) > 2
        server.send_signal(end)
        await server.wait()
        await until_none(str(folder))


def profiles(folder: Path) -> int:
    return len(list(folder.glob("everthink-browser-*")))


async def test_the_profile_of_a_server_that_was_killed_is_removed_by_the_next(folder: Path) -> None:
    left = folder / "everthink-browser-left"
    left.mkdir()
    (left / "Cookies").write_text("old")
    async with web(FINE) as site, hand(site) as browser:
        await browser.call("open", url=f"{site.url}/")
        assert "everthink-browser-left" not in os.listdir(folder)
        assert profiles(folder) == 1
        second = Browsers()
        try:
            other = Hand(second, allow_addresses=[f"127.0.0.1:{site.port}"])
            await other.call("open", url=f"{site.url}/")
            assert profiles(folder) == 2
            assert (await browser.call("open", url=f"{site.url}/"))["title"] == "Fine"
        finally:
            await second.close()


async def test_a_browser_that_cannot_start_is_said_with_what_it_said(tmp_path: Path) -> None:
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho 'No usable sandbox!' >&2\nexit 1\n")
    broken.chmod(0o755)
    async with hand(executable=str(broken)) as browser:
        with pytest.raises(ToolError, match=r"does not start: No usable sandbox!.*everthink doctor"):
            await browser.call("open", url="https://example.com/")
        assert browser.browsers.running == 0


# --- one that runs elsewhere


@asynccontextmanager
async def elsewhere(folder: Path) -> AsyncGenerator[str]:
    """A Chromium that somebody else has started."""
    found = find_chromium()
    assert found is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0"]
    process = await asyncio.create_subprocess_exec(
        found,
        *(*flags, f"--user-data-dir={folder}/profile", "about:blank"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while b"DevTools listening on" not in (line := await process.stderr.readline()):
                assert line, "it ended"
        yield line.decode().split()[-1]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.stderr.read()
        await process.wait()


async def test_a_browser_that_runs_elsewhere_is_used_and_goes_on(tmp_path: Path) -> None:
    async with elsewhere(tmp_path) as socket, web(FINE) as site:
        place = socket.removeprefix("ws://").partition("/")[0]
        for url in (socket, f"http://{place}"):
            async with hand(site, cdp_url=url) as browser:
                assert "browser_markdown" not in browser.tools
                assert (await browser.call("open", url=f"{site.url}/"))["title"] == "Fine"
                assert "- " in (await browser.call("snapshot"))["snapshot"] + "- "
                with pytest.raises(ToolError, match="Blocked URL"):
                    await browser.call("open", url="http://169.254.169.254/")
        async with hand(site, cdp_url=socket, quick_actions=True) as browser:
            assert (await browser.call("markdown", url=f"{site.url}/"))["title"] == "Fine"


async def test_nobody_elsewhere_is_said_without_the_secrets_of_the_address() -> None:
    async with hand(cdp_url="ws://user:secret@127.0.0.1:1/token") as browser:
        with pytest.raises(ToolError, match=r"127\.0\.0\.1:1 does not answer") as caught:
            await browser.call("open", url="https://example.com/")
    assert "secret" not in str(caught.value)
    assert "token" not in str(caught.value)


# --- the conversation with it


async def test_code_sends_commands_to_the_page_of_its_agent() -> None:
    async with web(FINE) as site, hand(site) as browser:
        rules = Rules(allow=[f"127.0.0.1:{site.port}"])
        pages = Pages(
            where=Where(),
            rules=rules,
            browsers=browser.browsers,
            session="agent",
            timeout=10,
            most=1_000,
            resolve=look_up,
        )
        tools, ctx = cdp_tools(pages), ToolContext(agent=browser.agent)
        opened = await tools["send"].call({"method": "Page.navigate", "params": {"url": f"{site.url}/"}}, ctx)
        assert opened["title"] == "Fine"
        script = {"expression": "document.title + 1", "returnByValue": True}
        found = await tools["send"].call({"method": "Runtime.evaluate", "params": script}, ctx)
        assert found["result"]["value"] == "Fine1"
        assert (await tools["attach_to_target"].call({}, ctx))["url"] == f"{site.url}/"
        long = {"expression": "'x'.repeat(9999)", "returnByValue": True}
        assert (await tools["send"].call({"method": "Runtime.evaluate", "params": long}, ctx))["truncated"]


async def test_a_message_that_is_too_long_is_dropped_and_the_rest_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chromium, "LARGEST", 100_000)
    async with web(FINE) as site, hand(site) as browser:
        await browser.call("open", url=f"{site.url}/")
        [running] = browser.browsers._running.values()
        [tab] = running.tabs.values()
        with pytest.raises(NoAnswer):
            await running.connection.send(
                "Runtime.evaluate",
                {"expression": "'x'.repeat(5000000)", "returnByValue": True},
                session=tab.session,
                timeout=1,
            )
        assert (await browser.call("snapshot"))["title"] == "Fine"
