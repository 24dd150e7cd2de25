"""The proxy that opens only what may be opened: over real sockets, with names that change their minds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from everthink.guard.proxy import FilterProxy
from everthink.guard.rules import Rules

from .site import Names, Site, served

pytestmark = pytest.mark.anyio

HERE = ["127.0.0.1"]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with served(Site()) as site:
        yield site


@asynccontextmanager
async def proxy_for(
    site: Site, *, name: str = "shop.example.com", **options: Any
) -> AsyncIterator[FilterProxy]:
    """A proxy that takes the site for a public one."""
    rules = options.pop("rules", None) or Rules(allow=[f"{name}:{site.port}"])
    async with FilterProxy(rules, **{"resolve": Names(HERE), **options}) as proxy:
        yield proxy


async def asked(proxy: FilterProxy, request: str) -> str:
    """What the proxy answers, to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request.encode("latin-1"))
    try:
        return (await reader.read()).decode("latin-1")
    except ConnectionError:
        return ""  # closed with something of ours unread
    finally:
        writer.close()


def get(url: str, *headers: str) -> str:
    return "\r\n".join([f"GET {url} HTTP/1.1", "Host: whatever", *headers, "", ""])


async def quiet(proxy: FilterProxy) -> None:
    """Until no connection is left."""
    async with asyncio.timeout(10):
        while proxy.connections:  # noqa: ASYNC110 - nothing of the product waits for this
            await asyncio.sleep(0)


# --- what is opened


async def test_a_request_is_sent_on_without_what_was_between_the_two_of_us(site: Site) -> None:
    async with proxy_for(site) as proxy:
        answer = await asked(
            proxy, get(f"http://shop.example.com:{site.port}/a?b=1", "Proxy-Authorization: secret")
        )
        await quiet(proxy)
    assert answer.startswith("HTTP/1.1 200 OK\r\n")
    assert answer.endswith("\r\n\r\nhello")
    assert "Connection: close" in answer
    assert site.asked == [("whatever", "/a?b=1")]


async def test_a_tunnel_carries_bytes_both_ways_and_ends_with_either_end(site: Site) -> None:
    async with proxy_for(site) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"CONNECT shop.example.com:{site.port} HTTP/1.1\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 OK\r\n\r\n"
        for _ in range(2):
            writer.write(b"GET /in HTTP/1.1\r\nhost: inside\r\n\r\n")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        for talk in site.talks.values():
            talk.close()
        assert await reader.read() == b""
        writer.close()
        await quiet(proxy)
    assert site.asked == [("inside", "/in")] * 2


async def test_when_the_program_goes_the_other_end_is_closed_too(site: Site) -> None:
    async with proxy_for(site) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"CONNECT shop.example.com:{site.port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await quiet(proxy)
        await asyncio.wait_for(asyncio.gather(*site.talks), 10)


async def test_a_second_request_on_a_connection_does_not_reach_the_place_of_the_first(site: Site) -> None:
    site.closes = True
    async with proxy_for(site) as proxy:
        first = get(f"http://shop.example.com:{site.port}/one")
        answer = await asked(proxy, first + get("http://bank.example.com/two"))
        await quiet(proxy)
    assert answer.count("HTTP/1.1 200") == 1
    assert ("bank.example.com", "/two") not in site.asked


# --- what is not


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "app.localhost", "0x7f000001", "2130706433", "127.1", "0177.0.0.1"),
        *("[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[::]", "0.0.0.0"),
    ],
)
async def test_this_machine_is_not_reached_however_it_is_written(site: Site, host: str) -> None:
    rules = Rules(ports=(80, 443, site.port))
    async with proxy_for(site, rules=rules) as proxy:
        assert (await asked(proxy, get(f"http://{host}:{site.port}/secret"))).startswith("HTTP/1.1 403")
        tunnel = f"CONNECT {host}:{site.port} HTTP/1.1\r\n\r\n"
        assert (await asked(proxy, tunnel)).startswith("HTTP/1.1 403")
        assert [(refused.host, refused.port) for refused in proxy.refused] == [
            (host.strip("[]"), site.port)
        ] * 2
    assert site.connections == 0


@pytest.mark.parametrize(
    "answers", [["10.0.0.7"], ["93.184.216.34", "127.0.0.1"], ["fd00::7"], ["fe80::1%eth0"]]
)
async def test_a_public_name_that_leads_inside_is_refused_without_saying_where(
    site: Site, answers: Sequence[str]
) -> None:
    async with proxy_for(site, rules=Rules(), resolve=Names(answers)) as proxy:
        answer = await asked(proxy, get("http://shop.example.com/"))
    assert answer.startswith("HTTP/1.1 403")
    assert not [address for address in answers if address in answer]


async def test_a_name_that_changes_its_mind_is_asked_once_for_each_connection(site: Site) -> None:
    names = Names(["93.184.216.34"], HERE)
    rules = Rules(ports=(site.port,))
    async with proxy_for(site, rules=rules, resolve=names) as proxy:
        await proxy._finder.find("shop.example.com", site.port)  # the public answer, as a page saw it
        answer = await asked(proxy, get(f"http://shop.example.com:{site.port}/secret"))
    assert answer.startswith("HTTP/1.1 403")
    assert (site.connections, len(names.asked)) == (0, 2)


async def test_other_ports_than_those_of_the_web_are_refused() -> None:
    names = Names(HERE)
    async with FilterProxy(Rules(), resolve=names) as proxy:
        assert (await asked(proxy, "CONNECT example.com:22 HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 403")
    assert names.asked == []


@pytest.mark.parametrize(
    "request_",
    [
        *("GET / HTTP/1.1\r\n\r\n", "GET ftp://example.com/ HTTP/1.1\r\n\r\n", "hello\r\n\r\n"),
        *("GET http://u:p@example.com/ HTTP/1.1\r\n\r\n", "CONNECT example.com HTTP/1.1\r\n\r\n"),
        *("CONNECT example.com:99999 HTTP/1.1\r\n\r\n", "GET http://[::1 HTTP/1.1\r\n\r\n", "\xff\r\n\r\n"),
        *("CONNECT a@example.com:80 HTTP/1.1\r\n\r\n", "GET http://example.com:x/ HTTP/1.1\r\n\r\n"),
    ],
)
async def test_what_is_no_request_of_ours_is_answered_so(request_: str) -> None:
    async with FilterProxy(Rules(), resolve=Names(HERE)) as proxy:
        assert (await asked(proxy, request_)).startswith("HTTP/1.1 400")
        await quiet(proxy)


# --- bounds


async def test_what_was_refused_is_kept_up_to_a_bound() -> None:
    async with FilterProxy(Rules(), resolve=Names(HERE)) as proxy:
        for number in range(205):
            await asked(proxy, get(f"http://host{number}.lan/"))
        assert (proxy.refusals, len(proxy.refused)) == (205, 200)
        assert [refused.host for refused in proxy.refused_since(203)] == ["host203.lan", "host204.lan"]
        assert proxy.refused_since(205) == []


async def test_a_head_without_an_end_and_one_that_never_comes_end_the_connection() -> None:
    async with FilterProxy(Rules(), asking=0.05) as proxy:
        assert await asked(proxy, "GET " + "x" * 200_000) == ""
        assert await asked(proxy, "GET") == ""
        await quiet(proxy)


async def test_a_tunnel_in_which_nothing_is_said_is_ended(site: Site) -> None:
    async with proxy_for(site, silent=0.05) as proxy:
        answer = await asked(proxy, f"CONNECT shop.example.com:{site.port} HTTP/1.1\r\n\r\n")
        assert answer == "HTTP/1.1 200 OK\r\n\r\n"
        await quiet(proxy)


async def test_more_connections_than_allowed_are_told_so(site: Site) -> None:
    async with proxy_for(site, most_connections=1) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"CONNECT shop.example.com:{site.port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        assert (await asked(proxy, get("http://example.com/"))).startswith("HTTP/1.1 503")
        writer.close()
        await quiet(proxy)


async def test_nobody_there_is_told_as_that() -> None:
    async def nowhere(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    async with FilterProxy(Rules(), resolve=nowhere) as proxy:
        assert (await asked(proxy, get("http://example.com/"))).startswith("HTTP/1.1 502")
        assert [(refused.host, refused.is_blocked) for refused in proxy.refused] == [("example.com", False)]


async def test_closing_the_proxy_ends_what_is_open(site: Site) -> None:
    async with proxy_for(site) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"CONNECT shop.example.com:{site.port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await proxy.close()
        assert proxy.connections == 0
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
