"""What a page can reach: nothing of this machine and its network, in whatever way it tries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from everthink.browser import Browsers
from everthink.browser.browsers import Where
from everthink.browser.tab import Tab
from everthink.errors import BlockedAddress, ToolError
from everthink.guard.rules import Rules

from .site import Web, hand, names, web

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ATTACK = """<!doctype html><title>attacks</title><body>
<img src="{base}/img"><iframe src="{base}/frame"></iframe><link rel="stylesheet" href="{base}/css">
<video src="{base}/video"></video><object data="{base}/object"></object>
<script src="{base}/script"></script>
<link rel="preconnect" href="{base}"><link rel="prefetch" href="{base}/prefetch">
<a id="ping" href="#" ping="{base}/ping">x</a>
<form id="form" target="out" method="post" action="{base}/form"></form>
<iframe name="out"></iframe><script>(async () => {
  const told = {};
  const wait = (ms) => new Promise((ok) => setTimeout(ok, ms));
  for (const url of TARGETS) {
    try { const r = await fetch(url, {mode: 'no-cors'}); told[url] = r.type + ' ' + r.status }
    catch (error) { told[url] = 'refused' }
  }
  for (const url of SOCKETS) {
    told[url] = await new Promise((ok) => {
      try {
        const socket = new WebSocket(url);
        socket.onopen = () => ok('OPEN'); socket.onerror = () => ok('refused');
        setTimeout(() => ok('silent'), 3000);
      } catch (error) { ok('refused') }
    });
  }
  navigator.sendBeacon(BASE + '/beacon', 'x');
  document.getElementById('ping').click();
  document.getElementById('form').submit();
  new EventSource(BASE + '/events').onerror = () => {};
  try { new Worker(BASE + '/worker') } catch (error) {}
  try {
    const turn = {urls: `turn:127.0.0.1:${PORT}?transport=tcp`, username: 'x', credential: 'y'};
    const peer = new RTCPeerConnection({iceServers: [{urls: `stun:127.0.0.1:${UDP}`}, turn]});
    peer.createDataChannel('x');
    await peer.setLocalDescription(await peer.createOffer());
  } catch (error) {}
  try {
    told.transport = await Promise.race([
      new WebTransport(`https://127.0.0.1:${UDP}/`).ready.then(() => 'OPEN', () => 'refused'),
      wait(1500).then(() => 'silent'),
    ]);
  } catch (error) {}
  await wait(700);
  window.told = told; document.title = 'done';
})()</script>"""


class Packets(asyncio.DatagramProtocol):
    """Counts what comes."""

    def __init__(self) -> None:
        self.count = 0

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.count += 1


class Rebinding:
    """A public address first, this machine from then on."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        if host == "rebind.example.com":
            self.asked += 1
            return ["192.0.2.1"] if self.asked == 1 else ["127.0.0.1"]
        known = {"shop.example.com": ["127.0.0.1"], "inner.example.com": ["10.0.0.7"]}
        known["mixed.example.com"] = ["93.184.216.34", "127.0.0.1"]
        if host not in known:
            raise OSError(f"{host} is not known here")
        return known[host]


def targets(port: int) -> list[str]:
    hosts = [
        *(
            "127.0.0.1",
            "localhost",
            "app.localhost",
            "[::1]",
            "0x7f000001",
            "2130706433",
            "127.1",
            "0177.0.0.1",
        ),
        *("0.0.0.0", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "rebind.example.com", "mixed.example.com"),
    ]
    return [
        *(f"http://{host}:{port}/secret" for host in hosts),
        *("http://169.254.169.254/latest/meta-data", "http://metadata.google.internal/", "http://10.0.0.7/"),
        *(
            "http://192.168.1.1/",
            "http://inner.example.com/",
            "file:///etc/passwd",
            "/redirect",
            "chrome://version",
        ),
    ]


async def until_done(tab: Tab) -> dict[str, str]:
    async with asyncio.timeout(60):
        while (await tab.about())["title"] != "done":  # noqa: ASYNC110 - the page says so in its title
            await asyncio.sleep(0.02)
    answer = await tab.send("Runtime.evaluate", {"expression": "window.told", "returnByValue": True})
    return answer["result"]["value"]


def attacking(site: Web, secret: Web, udp: int) -> None:
    base = f"http://127.0.0.1:{secret.port}"
    sockets = [f"ws://{host}:{secret.port}/ws" for host in ("127.0.0.1", "localhost", "[::1]")]
    page = ATTACK.replace("{base}", base)
    told = {
        "TARGETS": targets(secret.port),
        "SOCKETS": sockets,
        "BASE": base,
        "UDP": udp,
        "PORT": secret.port,
    }
    consts = "".join(f"const {name} = {json.dumps(value)};" for name, value in told.items())
    site.pages["/"] = page.replace("(async () => {", f"{consts}(async () => {{", 1)
    site.redirects["/redirect"] = f"{base}/redirected"


@pytest.fixture
async def packets() -> Any:
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        Packets, local_addr=("127.0.0.1", 0)
    )
    yield transport.get_extra_info("sockname")[1], protocol
    transport.close()


@pytest.mark.parametrize("host", ["shop.example.com", "127.0.0.1"])  # browsers trust the second with more
async def test_a_page_that_attacks_reaches_nothing_of_this_machine(host: str, packets: Any) -> None:
    udp, heard = packets
    browsers = Browsers()
    async with web() as site, web() as secret:
        attacking(site, secret, udp)
        # Every port is open here, so that addresses alone decide.
        ports = (80, 443, secret.port)
        rules = Rules(allow=[f"{host}:{site.port}"], ports=ports)
        try:
            async with browsers.lent(("a",), Where(), rules, resolve=Rebinding()) as tab:
                await tab.open(f"http://{host}:{site.port}/")
                told = await until_done(tab)
                assert tab.proxy is not None
                blocked = {refused.host for refused in tab.proxy.refused if refused.is_blocked}
        finally:
            await browsers.close()
    assert (secret.connections, secret.asked, heard.count) == (0, [], 0)
    assert len(told) > 20
    assert {words for url, words in told.items() if url.startswith("ws")} == {"refused"}
    assert blocked >= {"127.0.0.1", "169.254.169.254", "10.0.0.7", "192.168.1.1", "rebind.example.com"}
    assert told.get("transport") in (None, "refused")


async def test_the_same_page_reaches_what_it_may(packets: Any) -> None:
    udp, _ = packets
    browsers = Browsers()
    async with web() as site, web() as other:
        attacking(site, other, udp)
        rules = Rules(allow=[f"shop.example.com:{site.port}", f"127.0.0.1:{other.port}"])
        try:
            async with browsers.lent(("a",), Where(), rules, resolve=Rebinding()) as tab:
                await tab.open(f"http://shop.example.com:{site.port}/")
                await until_done(tab)
        finally:
            await browsers.close()
    assert {"/secret", "/img", "/frame", "/script", "/redirected", "/beacon"} <= set(other.asked)


async def test_a_page_that_leads_on_to_a_forbidden_place_is_refused_by_name() -> None:
    resolve = names(shop_example_com=["127.0.0.1"], inner_example_com=["127.0.0.1"])
    async with web() as site, web({"/": "<title>secret</title>"}) as secret:
        here = f"shop.example.com:{site.port}"
        for path, to in {
            "/secret": f"http://127.0.0.1:{secret.port}/",
            "/meta": "http://169.254.169.254/latest/meta-data",
            "/inner": "http://inner.example.com/",
            "/port": f"http://{here.partition(':')[0]}:{secret.port}/",
        }.items():
            site.redirects[path] = to
        site.pages["/script"] = f"<script>location = 'http://127.0.0.1:{secret.port}/'</script>"
        site.pages["/fine"] = "<title>Fine</title>"
        async with hand(allow=[here], resolve=resolve) as browser:
            for path in ("/secret", "/meta", "/inner", "/port"):
                with pytest.raises(ToolError, match="Blocked URL"):
                    await browser.call("open", url=f"http://{here}{path}")
                with pytest.raises(ToolError, match="Blocked URL"):
                    await browser.call("markdown", url=f"http://{here}{path}")
            # A script that goes on later cannot be told from the page; what it would have reached is named.
            try:
                told = str(await browser.call("open", url=f"http://{here}/script"))
            except ToolError as error:
                told = str(error)
            assert "127.0.0.1" in told
            assert (await browser.call("open", url=f"http://{here}/fine"))["title"] == "Fine"
        assert secret.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        *(
            "file:///etc/passwd",
            "chrome://settings",
            "view-source:http://example.com/",
            "data:text/html,<b>x",
        ),
        *(
            "javascript:alert(1)",
            "about:blank",
            "devtools://devtools/x",
            "ftp://example.com/",
            "example.com",
            "",
        ),
        *(
            "http://127.0.0.1/",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://example.com:22/",
            "http://u:p@example.com/",
        ),
    ],
)
async def test_what_is_no_public_address_is_refused_before_a_browser_starts(url: str) -> None:
    async with hand() as browser:
        for name in ("open", "markdown", "links"):
            with pytest.raises(ToolError, match=r"Blocked URL|No page is open" if not url else "Blocked URL"):
                await browser.call(name, url=url)
        assert browser.browsers.running == (1 if not url else 0)


async def test_a_page_that_goes_to_the_browsers_own_places_is_closed_or_stays_where_it_is() -> None:
    async with web() as site, hand(site) as browser:
        for place in (
            "chrome://version",
            "file:///etc/passwd",
            "view-source:about:blank",
            "data:text/html,x",
        ):
            site.pages["/"] = f"<title>stays</title><script>location = {json.dumps(place)}</script>"
            assert (await browser.call("open", url=f"{site.url}/"))["title"] == "stays"


async def test_the_browser_itself_asks_nobody_for_anything() -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        raise OSError("nobody is known here")

    async with web({"/": "<title>t</title>"}) as site, hand(site, resolve=resolve) as browser:
        await browser.call("open", url=f"{site.url}/")
    assert asked == []


async def test_hosts_can_be_named_that_alone_are_opened_or_never() -> None:
    async with hand(hosts=["docs.example.com"]) as browser:
        with pytest.raises(ToolError, match="not among the hosts"):
            await browser.call("open", url="https://example.com/")
    async with hand(never=["*.example.com"]) as browser:
        with pytest.raises(ToolError, match="does not let"):
            await browser.call("open", url="https://ads.example.com/")


async def test_a_tab_checks_its_addresses_itself() -> None:
    browsers = Browsers()
    try:
        async with browsers.lent(None, Where(), Rules()) as tab:
            with pytest.raises(BlockedAddress):
                await tab.open("http://169.254.169.254/")
    finally:
        await browsers.close()


async def test_a_click_or_a_form_that_leads_to_a_private_place_is_an_error_and_no_page() -> None:
    async with web() as inside, web() as site, hand(site) as browser:
        site.pages["/"] = (
            f'<title>t</title><a href="{inside.url}/secret">in</a>'
            f'<form action="{inside.url}/form"><input aria-label="Search" name="q"></form>'
        )
        for use in ("click", "type"):
            await browser.call("open", url=f"{site.url}/")
            given = {"text": "x", "submit": True} if use == "type" else {}
            ref = await browser.ref('"in"' if use == "click" else '"Search"')
            with pytest.raises(ToolError, match=r"led to a page that is not opened.*public web") as told:
                await browser.call(use, ref=ref, **given)
            assert "port" not in told.value.what
            assert "browser_open" in (told.value.next_step or "")
        assert inside.asked == []
        # and what stands there now is no answer of that place
        seen = await browser.call("snapshot")
        assert "status" not in seen
        assert "notOpened" not in seen


async def test_a_page_that_says_403_itself_is_a_page() -> None:
    async with web() as site, hand(site) as browser:
        site.statuses["/no"] = "403 Forbidden"
        site.pages = {"/": "<title>t</title><a href='/no'>go</a>", "/no": "<title>Not you</title>"}
        await browser.call("open", url=f"{site.url}/")
        moved = await browser.call("click", ref=await browser.ref('"go"'))
        assert (moved["title"], moved["status"]) == ("Not you", 403)


async def test_a_secure_address_that_is_private_is_an_error_as_well() -> None:
    async with web() as site, hand(site) as browser:
        site.pages["/"] = "<title>t</title><a href='https://10.0.0.1/'>in</a>"
        await browser.call("open", url=f"{site.url}/")
        with pytest.raises(ToolError, match="led to a page that is not opened"):
            await browser.call("click", ref=await browser.ref('"in"'))


async def test_what_was_refused_in_one_call_is_no_news_of_the_next() -> None:
    async with web() as inside, web() as site, hand(site) as browser:
        site.pages = {"/": "<title>t</title>", "/list.csv": "a,b"}
        site.headers["/list.csv"] = "content-disposition: attachment; filename=list.csv\r\n"
        site.redirects["/in"] = f"{inside.url}/secret"
        for path, why in (("/list.csv", "is a download"), ("/in", "public web")):
            with pytest.raises(ToolError, match=why):
                await browser.call("open", url=f"{site.url}{path}")
            opened = await browser.call("open", url=f"{site.url}/")
            assert opened == {"url": f"{site.url}/", "title": "t", "status": 200}
