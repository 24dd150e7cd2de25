"""A guarded client over real sockets: names that change their minds, redirects, what is allowed by name."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest

from everthink.errors import BlockedAddress, InvalidSettings
from everthink.guard.finding import look_up
from everthink.guard.transport import GuardedTransport

from .site import Names, Site, served

pytestmark = pytest.mark.anyio

INNER = [
    "10.0.0.7",
    "169.254.169.254",
    "192.168.1.1",
    "0.0.0.0",
    "fd00::7",
    "::ffff:10.0.0.7",
    "fe80::1%eth0",
]
HERE = ["127.0.0.1"]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with served(Site()) as site:
        yield site


def client(*, follow: bool = False, timeout: float | None = 5, **options: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=GuardedTransport(**options), follow_redirects=follow, timeout=httpx2.Timeout(timeout)
    )


# --- where it leads


async def test_a_request_goes_to_the_address_that_was_found_with_the_name_as_its_host(site: Site) -> None:
    names = Names(HERE)
    async with client(loopback=True, resolve=names) as web:
        answer = await web.get(f"http://mcp.example.com:{site.port}/mcp?x=1")
    assert (answer.status_code, answer.text) == (200, "hello")
    assert site.asked == [(f"mcp.example.com:{site.port}", "/mcp?x=1")]
    assert names.asked == ["mcp.example.com"]


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:{}/",
        "http://localhost.:{}/",
        "http://app.localhost:{}/",
        "http://127.0.0.1:{}/",
        "http://127.0.0.1.:{}/",
        "http://127.1:{}/",
        "http://2130706433:{}/",
        "http://[::ffff:127.0.0.1]:{}/",
    ],
)
async def test_this_machine_is_reached_on_request_only(site: Site, url: str) -> None:
    async with client() as web:
        with pytest.raises(BlockedAddress, match=r"^Blocked URL: "):
            await web.get(url.format(site.port))
    assert site.connections == 0
    names = Names(["10.0.0.7"])
    async with client(loopback=True, resolve=names) as web:
        assert (await web.get(url.format(site.port))).text == "hello"
    assert names.asked == []


async def test_an_ipv6_literal_is_reached_with_its_port() -> None:
    async with served(Site(), host="::1") as site, client(loopback=True, resolve=Names([])) as web:
        assert (await web.get(f"http://[::1]:{site.port}/")).text == "hello"
        assert (await web.get(f"http://[0:0::1]:{site.port}/")).text == "hello"
    assert {host for host, _ in site.asked} == {f"[::1]:{site.port}", f"[0:0::1]:{site.port}"}


async def test_a_name_of_another_alphabet_is_looked_up_and_sent_as_it_is_registered(site: Site) -> None:
    names = Names(HERE)
    async with client(loopback=True, resolve=names) as web:
        await web.get(f"http://bücher.example.com:{site.port}/")
    assert names.asked == ["xn--bcher-kva.example.com"]
    assert site.asked == [(f"xn--bcher-kva.example.com:{site.port}", "/")]


@pytest.mark.parametrize("address", INNER)
async def test_a_public_name_that_leads_inside_is_refused(address: str) -> None:
    async with client(loopback=True, resolve=Names([address])) as web:
        with pytest.raises(
            BlockedAddress, match=r"'mcp\.example\.com' does not lead to the public web"
        ) as caught:
            await web.get("http://mcp.example.com/")
    assert address not in str(caught.value)


@pytest.mark.parametrize(
    "answers", [["127.0.0.1", "10.0.0.7"], ["10.0.0.7", "127.0.0.1"], ["127.0.0.1", "fd00::7"]]
)
async def test_one_inner_answer_beside_a_good_one_is_enough_to_refuse(site: Site, answers: list[str]) -> None:
    async with client(loopback=True, resolve=Names(answers)) as web:
        with pytest.raises(BlockedAddress):
            await web.get(f"http://mcp.example.com:{site.port}/")
    assert site.connections == 0


@pytest.mark.parametrize(
    "url",
    ["ftp://mcp.example.com/", "http://user:secret@mcp.example.com/", "http://metadata.google.internal/"],
)
async def test_what_may_not_be_opened_is_not_even_looked_up(url: str) -> None:
    names = Names(["93.184.216.34"])
    async with client(loopback=True, resolve=names) as web:
        with pytest.raises((BlockedAddress, httpx2.UnsupportedProtocol)) as caught:
            await web.get(url)
    assert (names.asked, "secret" in str(caught.value)) == ([], False)


# --- names that change their minds


async def test_a_name_is_looked_up_once_and_its_second_answer_is_not_heard(site: Site) -> None:
    rebinding = Names(HERE, ["169.254.169.254"])
    async with client(loopback=True, resolve=rebinding) as web:
        assert (await web.get(f"http://mcp.example.com:{site.port}/")).text == "hello"
        assert (await web.get(f"http://mcp.example.com:{site.port}/")).text == "hello"  # the same connection
    assert (len(rebinding.asked), site.connections) == (1, 1)


async def test_a_name_that_leads_inside_at_the_next_connection_is_refused_there(site: Site) -> None:
    site.closes = True
    async with client(loopback=True, resolve=Names(HERE, ["169.254.169.254"])) as web:
        assert (await web.get(f"http://mcp.example.com:{site.port}/")).text == "hello"
        with pytest.raises(BlockedAddress):
            await web.get(f"http://mcp.example.com:{site.port}/")
    assert site.connections == 1


async def test_a_public_name_that_leads_inside_next_is_refused_before_anything_is_sent() -> None:
    names = Names(["93.184.216.34", "10.0.0.7"], ["10.0.0.7"])
    async with client(resolve=names) as web:
        for _ in range(2):
            with pytest.raises(BlockedAddress):
                await web.get("http://mcp.example.com/")
    assert len(names.asked) == 2


# --- redirects

ELSEWHERE = [
    "http://10.0.0.7/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:10.0.0.7]/",
    "http://metadata.google.internal/",
    "//192.168.1.1/",
    "http://0xa.7/",
    "http://user:secret@mcp.example.com/",
]


@pytest.mark.parametrize("location", ELSEWHERE)
async def test_a_client_that_follows_redirects_is_refused_at_an_inner_hop(site: Site, location: str) -> None:
    site.redirects = {"/start": "/middle", "/middle": location}
    async with client(follow=True, loopback=True, resolve=Names(HERE)) as web:
        with pytest.raises(BlockedAddress):
            await web.get(f"http://mcp.example.com:{site.port}/start")
    assert [path for _, path in site.asked] == ["/start", "/middle"]


async def test_a_redirect_to_a_name_that_leads_inside_is_refused(site: Site) -> None:
    site.redirects = {"/": f"http://evil.example.com:{site.port}/"}
    async with client(follow=True, loopback=True, resolve=Names(HERE, ["10.0.0.7"])) as web:
        with pytest.raises(BlockedAddress, match=r"evil\.example\.com"):
            await web.get(f"http://mcp.example.com:{site.port}/")


async def test_redirects_are_left_to_the_client(site: Site) -> None:
    site.redirects = {"/": "/next"}
    async with client(loopback=True) as web:
        answer = await web.get(f"http://127.0.0.1:{site.port}/")
    assert (answer.status_code, answer.headers["location"]) == (302, "/next")


# --- what an application allows


async def test_a_host_that_is_named_may_lead_inside_and_its_neighbours_may_not(site: Site) -> None:
    site.redirects = {"/away": "http://mcp.lan:1/", "/other": f"http://db.lan:{site.port}/"}
    async with client(follow=True, allow=[f"mcp.lan:{site.port}"], resolve=Names(HERE)) as web:
        assert (await web.get(f"http://mcp.lan:{site.port}/")).text == "hello"
        for path in ("/away", "/other"):
            with pytest.raises(BlockedAddress):
                await web.get(f"http://mcp.lan:{site.port}{path}")


async def test_an_address_that_is_named_is_not_allowed_under_another_name(site: Site) -> None:
    async with client(allow=[f"127.0.0.1:{site.port}"], resolve=Names(HERE)) as web:
        assert (await web.get(f"http://127.0.0.1:{site.port}/")).text == "hello"
        with pytest.raises(BlockedAddress):
            await web.get(f"http://mcp.example.com:{site.port}/")


def test_what_is_allowed_wrongly_is_told_at_once() -> None:
    with pytest.raises(InvalidSettings, match="is not a host"):
        GuardedTransport(allow=["http://mcp.lan"])


# --- connecting


async def test_the_next_address_is_tried_when_the_first_takes_nobody(site: Site) -> None:
    async with client(loopback=True, resolve=Names(["127.0.0.2", "::1", "127.0.0.1"])) as web:
        assert (await web.get(f"http://mcp.example.com:{site.port}/")).text == "hello"


async def test_the_other_kind_of_address_has_its_turn_soon(site: Site) -> None:
    nobody = [f"127.0.0.{number}" for number in range(2, 50)]
    async with (
        served(Site(), host="::1") as six,
        client(loopback=True, resolve=Names([*nobody, "::1"])) as web,
    ):
        assert (await web.get(f"http://mcp.example.com:{six.port}/")).text == "hello"


async def test_a_host_that_takes_nobody_fails_as_any_does() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        async with client(loopback=True) as web:
            with pytest.raises(httpx2.ConnectError):
                await web.get(f"http://127.0.0.1:{taken.getsockname()[1]}/")


async def unknown(host: str, port: int) -> Sequence[str]:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize("resolve", [unknown, Names([])])
async def test_a_name_that_nobody_knows_fails_as_any_does(resolve: Any) -> None:
    async with client(resolve=resolve) as web:
        with pytest.raises(httpx2.ConnectError, match=r"mcp\.example\.com"):
            await web.get("http://mcp.example.com/")


async def test_a_look_up_that_takes_too_long_is_given_up() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async with client(resolve=never, timeout=0.01) as web:
        with pytest.raises(httpx2.ConnectTimeout, match="not found in time"):
            await web.get("http://mcp.example.com/")


async def test_what_is_sent_arrives(site: Site) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    async with client(loopback=True) as web:
        await web.post(f"http://127.0.0.1:{site.port}/", json={"method": "ping"})
        await web.post(f"http://127.0.0.1:{site.port}/", content=parts(), headers={"content-length": "7"})
    assert site.bodies == [b'{"method":"ping"}', b"one two"]


async def test_an_answer_is_read_while_it_is_being_written() -> None:
    heard = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nHi, ")
        await heard.wait()
        writer.write(b"you.")
        writer.close()

    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with client(loopback=True) as web, web.stream("GET", f"http://127.0.0.1:{port}/") as answer:
        parts = answer.aiter_raw()
        assert await anext(parts) == b"Hi, "
        heard.set()
        assert [part async for part in parts] == [b"you."]
    server.close()


async def test_an_answer_that_breaks_off_is_told_in_the_errors_of_the_client(site: Site) -> None:
    site.cuts = True
    async with client(loopback=True) as web:
        with pytest.raises(httpx2.RemoteProtocolError):
            await web.get(f"http://127.0.0.1:{site.port}/")


async def test_an_answer_that_is_not_read_to_its_end_frees_its_connection(site: Site) -> None:
    async with client(loopback=True) as web:
        for _ in range(3):
            async with web.stream("POST", f"http://127.0.0.1:{site.port}/") as answer:
                assert answer.status_code == 200
        assert (await web.get(f"http://127.0.0.1:{site.port}/")).text == "hello"


async def test_proxies_of_the_environment_are_not_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(Site()) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with client(loopback=True, resolve=Names(HERE)) as web:
            await web.get(f"http://mcp.example.com:{site.port}/")
    assert (len(site.asked), proxy.connections) == (1, 0)


async def test_the_system_is_asked_for_names() -> None:
    found = await look_up("localhost", 80)
    assert found
    assert set(found) <= {"127.0.0.1", "::1"}


# --- what it costs


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_asking_about_addresses_loads_no_client() -> None:
    script = (
        "import sys, everthink.guard.addresses, everthink.models.file_urls; print('httpx2' in sys.modules)"
    )
    assert run(script) == "False\n"


@pytest.mark.slow
def test_without_httpx2_the_install_line_is_told() -> None:
    script = (
        "import sys; sys.modules['httpx2'] = None\nfrom everthink.errors import MissingExtra\n"
        "try: import everthink.guard.transport\nexcept MissingExtra as error: print(error.next_step)"
    )
    assert run(script) == 'Run: pip install "everthink[providers]"\n'
