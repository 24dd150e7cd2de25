"""What the tools do with pages, in a real Chromium."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink.browser import Browsers, create_browser_tools
from everthink.errors import ToolError
from everthink.models.port import FilePart
from everthink.testing.scripted import calls
from tests.conftest import OpenApp
from tests.file_tools.support import desk_maker

from .site import Agent, hand, web

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SHOP = """<!doctype html><title>Shop</title><h1>Shoes</h1>
<p>A <b>good</b> pair, <a href="/more?x=1">read more</a>.</p>
<form action="/found"><input aria-label="Search" name="q" value="old">
<select aria-label="Size" name="size"><option>38<option>39</select><button>Go</button></form>
<ul><li class="price" data-sku="7">12 EUR</li><li class="price">15 EUR</li></ul>
<a href="/window" target="_blank">in a window</a> <a href="/list.csv">list</a>
<a href="file:///etc/passwd">a file</a>
<button id="more" onclick="document.title = 'Clicked'">More</button>
<div style="position: relative; width: 200px"><button aria-label="Under">Under</button>
<div class="veil" style="position: absolute; inset: 0"></div></div>"""
PAGES = {
    "/": SHOP,
    "/more": "<title>More</title><p>All about it.",
    "/found": "<title>Found</title>",
    "/window": "",
}


async def test_a_page_is_opened_seen_and_used() -> None:
    async with web(PAGES) as site, hand(site) as browser:
        opened = await browser.call("open", url=f"{site.url}/")
        assert opened == {"url": f"{site.url}/", "title": "Shop", "status": 200}
        shown = (await browser.call("snapshot"))["snapshot"]
        assert '- heading "Shoes" [level=1]' in shown
        assert 'link "read more" [ref=' in shown
        assert f"-> {site.url}/more?x=1" in shown
        await browser.call("type", ref=await browser.ref('combobox "Size"'), text="39")
        sent = await browser.call("type", ref=await browser.ref('"Search"'), text="red & blue", submit=True)
        assert sent["title"] == "Found"
        assert sent["url"] == f"{site.url}/found?q=red+%26+blue&size=39"
        await browser.call("open", url=f"{site.url}/")
        assert (await browser.call("click", ref=await browser.ref('"More"')))["title"] == "Clicked"
        moved = await browser.call("click", ref=await browser.ref('"read more"'))
        assert (moved["title"], moved["url"]) == ("More", f"{site.url}/more?x=1")


async def test_what_cannot_be_clicked_or_typed_into_is_said_with_the_way_round() -> None:
    async with web(PAGES) as site, hand(site) as browser:
        with pytest.raises(ToolError, match=r"No page is open\..*browser_open"):
            await browser.call("click", ref="e1")
        await browser.call("open", url=f"{site.url}/")
        for ref in ("e999999", "12", "e", "e1; drop"):
            with pytest.raises(ToolError, match=r"There is no element.*new snapshot"):
                await browser.call("click", ref=ref)
        with pytest.raises(ToolError, match=r"covered by another element \(div\.veil\)"):
            await browser.call("click", ref=await browser.ref('"Under"'))
        with pytest.raises(ToolError, match=r"has no option '40'.*38, 39"):
            await browser.call("type", ref=await browser.ref("combobox"), text="40")
        with pytest.raises(ToolError, match="takes no text"):
            await browser.call("type", ref=await browser.ref('"More"'), text="x")
        old = await browser.ref('"More"')
        await browser.call("open", url=f"{site.url}/more")
        with pytest.raises(ToolError, match="There is no element"):
            await browser.call("click", ref=old)


async def test_dialogs_are_dismissed_windows_closed_and_downloads_refused_and_all_of_it_is_said() -> None:
    pages = {**PAGES, "/asks": "<title>t</title><script>document.title = String(confirm('Sure?'))</script>"}
    async with web(pages) as site, hand(site) as browser:
        site.headers["/list.csv"] = "content-disposition: attachment; filename=list.csv\r\n"
        site.pages["/list.csv"] = "a,b"
        asked = await browser.call("open", url=f"{site.url}/asks")
        assert (asked["title"], asked["dialogs"]) == ("false", ["Sure?"])
        await browser.call("open", url=f"{site.url}/")
        window = await browser.call("click", ref=await browser.ref('"in a window"'))
        assert (window["url"], window["windows"]) == (f"{site.url}/", [f"{site.url}/window"])
        [running] = browser.browsers._running.values()
        [tab] = running.users
        there = (await running.connection.send("Target.getTargets"))["targetInfos"]
        own = [one for one in there if one.get("browserContextId") == tab.context and one["type"] == "page"]
        assert [one["url"] for one in own] == [f"{site.url}/"]
        saved = await browser.call("click", ref=await browser.ref('"list"'))
        assert saved["downloadsRefused"] == [f"{site.url}/list.csv"]
        with pytest.raises(
            ToolError, match=r"is a download, and nothing is downloaded here\..*is still open"
        ):
            await browser.call("open", url=f"{site.url}/list.csv")
        assert (await browser.call("click", ref=await browser.ref('"a file"')))["url"] == f"{site.url}/"


async def test_a_dialog_without_end_does_not_hold_the_page_up() -> None:
    page = "<title>t</title><script>for (let i = 0; i < 200; i++) alert(i)</script>"
    async with web({"/": page}) as site, hand(site) as browser:
        assert len((await browser.call("open", url=f"{site.url}/"))["dialogs"]) == 10


async def test_any_page_is_read_as_markdown_links_places_and_html() -> None:
    async with web(PAGES) as site, hand(site, content=True) as browser:
        read = await browser.call("markdown", url=f"{site.url}/")
        assert read["title"] == "Shop"
        assert f"A **good** pair, [read more]({site.url}/more?x=1)." in read["markdown"]
        links = (await browser.call("links", url=f"{site.url}/"))["links"]
        assert {"text": "read more", "url": f"{site.url}/more?x=1"} in links
        assert not [link for link in links if not link["url"].startswith("http")]
        found = (await browser.call("scrape", url=f"{site.url}/", selectors=[".price", "!"]))["results"]
        assert [match["text"] for match in found[0]["matches"]] == ["12 EUR", "15 EUR"]
        assert found[0]["matches"][0]["attributes"] == {"class": "price", "data-sku": "7"}
        assert "CSS selector" in found[1]["error"]
        assert "<h1>Shoes</h1>" in (await browser.call("content", url=f"{site.url}/"))["html"]
        assert (await browser.call("markdown", html="<h2>Hi</h2>"))["markdown"] == "## Hi"
        with pytest.raises(ToolError, match="No page is open"):
            await browser.call("markdown")  # those pages were for once
        with pytest.raises(ToolError, match="not both"):
            await browser.call("links", url=site.url, html="x")
        await browser.call("open", url=f"{site.url}/more")
        assert (await browser.call("markdown"))["markdown"] == "All about it."
        assert browser.browsers.pages == 1


async def test_another_model_finds_what_is_asked_for_on_a_page() -> None:
    async with web(PAGES) as site, hand(site) as browser:
        browser.agent.says = '```json\n{"prices": [12, 15]}\n```'
        schema = {"type": "object", "properties": {"prices": {"type": "array"}}}
        found = await browser.call("extract", url=f"{site.url}/", prompt="Prices", schema=schema)
        assert found["extracted"] == {"prices": [12, 15]}
        assert "12 EUR" in browser.agent.asked[0]
        browser.agent.says = "Twelve."
        assert (await browser.call("extract", url=f"{site.url}/", prompt="Price"))["extracted"] == "Twelve."
        with pytest.raises(ToolError, match="no JSON"):
            await browser.call("extract", url=f"{site.url}/", schema=schema)
        with pytest.raises(ToolError, match="Say what to extract"):
            await browser.call("extract", url=f"{site.url}/")


async def test_a_page_cannot_hide_behind_names_and_prototypes_of_its_own() -> None:
    page = """<title>True</title><form name="querySelectorAll"></form><img name="documentElement">
    <a href="/more">x</a>
    <script>Document.prototype.querySelectorAll = () => { throw 1 };
    Object.defineProperty(Element.prototype, "outerHTML", { get: () => "forged" });
    Object.defineProperty(document, "title", { get: () => "forged" })</script>"""
    async with web({"/": page}) as site, hand(site) as browser:
        assert (await browser.call("open", url=f"{site.url}/"))["title"] == "True"
        assert [link["text"] for link in (await browser.call("links"))["links"]] == ["x"]
        assert "forged" not in (await browser.call("markdown"))["markdown"]


async def test_results_are_bounded_in_the_shape_they_had() -> None:
    page = "<title>Long</title>" + "".join(f"<p>word {n} <a href='/{n}'>{n}</a></p>" for n in range(3000))
    async with web({"/": page}) as site, hand(site, most_characters=2_000) as browser:
        await browser.call("open", url=f"{site.url}/")
        assert len((await browser.call("snapshot"))["snapshot"]) <= 2_000
        assert "more characters]" in (await browser.call("markdown"))["markdown"][2_000:]
        links = await browser.call("links")
        assert 0 < len(links["links"]) < 500
        assert links["note"].startswith("There are more links")


async def test_a_page_that_is_too_large_for_a_snapshot_is_read_in_other_ways() -> None:
    page = "<body><script>document.body.innerHTML = '<div><p>x</p></div>'.repeat(60000)</script>"
    async with web({"/": page}) as site, hand(site) as browser:
        await browser.call("open", url=f"{site.url}/")
        with pytest.raises(ToolError, match=r"too large for a snapshot.*browser_markdown"):
            await browser.call("snapshot")
        found = (await browser.call("scrape", selectors=["p"]))["results"]
        assert found[0]["count"] == 60_000


async def test_agents_share_no_cookies_and_no_page() -> None:
    page = "<title>t</title><script>document.title = document.cookie; document.cookie = 'seen=1'</script>"
    async with web({"/": page}) as site, hand(site) as browser:
        other = Agent("two")
        assert (await browser.call("open", url=f"{site.url}/"))["title"] == ""
        assert (await browser.call("open", url=f"{site.url}/"))["title"] == "seen=1"
        assert (await browser.call("open", by=other, url=f"{site.url}/"))["title"] == ""
        assert (await browser.call("markdown", url=f"{site.url}/"))["title"] == ""
        assert (browser.browsers.running, browser.browsers.pages) == (1, 2)


async def test_a_page_can_be_for_one_turn() -> None:
    async with web(PAGES) as site, hand(site, session="turn") as browser:
        await browser.call("open", turn="a", url=f"{site.url}/")
        assert (await browser.call("snapshot", turn="a"))["title"] == "Shop"
        with pytest.raises(ToolError, match="No page is open"):
            await browser.call("snapshot", turn="b")


async def test_calls_of_one_agent_wait_for_each_other() -> None:
    async with web(PAGES) as site, hand(site) as browser:
        urls = [f"{site.url}/{path}" for path in ("", "more", "found")]
        opened = await asyncio.gather(*(browser.call("open", url=url) for url in urls))
        assert [one["url"] for one in opened] == urls


async def test_a_screenshot_is_kept_in_the_workspace_and_shown_to_the_model(open_app: OpenApp) -> None:
    async with web(PAGES) as site:
        tools = create_browser_tools(allow_addresses=[f"127.0.0.1:{site.port}"])
        agent = await desk_maker(open_app)(get_tools=lambda self: tools)
        opened, shot, whole = await agent.turn(
            calls("browser_open", {"url": f"{site.url}/"}),
            calls("browser_screenshot", {}),
            calls("browser_screenshot", {"full_page": True}),
        )
        assert opened["title"] == "Shop"
        assert (shot["kind"], shot["mediaType"], shot["url"]) == ("image", "image/jpeg", f"{site.url}/")
        assert shot["path"] == f"/screenshots/127.0.0.1-{shot['hash'][:12]}.jpg"
        data = await (await agent.files()).read_file_bytes(shot["path"])
        assert data is not None
        assert (data[:3], len(data)) == (b"\xff\xd8\xff", shot["sizeBytes"])
        assert whole["width"] == 1280
        _, picture = agent.shown.content or []
        assert isinstance(picture, FilePart)
        assert picture.media_type == "image/jpeg"


async def test_an_app_ends_its_browser_with_itself(open_app: OpenApp) -> None:
    async with web(PAGES) as site:
        tools = create_browser_tools(allow_addresses=[f"127.0.0.1:{site.port}"])
        agent = await desk_maker(open_app)(get_tools=lambda self: tools)
        await agent.call("browser_open", url=f"{site.url}/")
        browsers: Browsers = (await agent.app.open())._browsers
        assert browsers.running == 1
        await agent.app.close()
        assert browsers.running == 0


async def test_what_may_not_be_opened_is_said_to_the_model_and_to_people(open_app: OpenApp) -> None:
    agent = await desk_maker(open_app)(get_tools=lambda self: create_browser_tools())
    failed: Any = await agent.call("browser_open", url="http://169.254.169.254/latest/meta-data")
    assert "does not lead to the public web" in failed
