"""Requests to a platform: each on a connection of its own while it lasts, and none sent twice."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from everthink.messengers import connections
from everthink.messengers.port import Refused, Uncertain, Unreachable
from everthink.messengers.rest import Answer, Rest

from ..guard.test_tls import Authority

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
Speaks = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Servers run on uvloop where there is one."""
    if request.param:
        pytest.importorskip("uvloop")
    return "asyncio", {"use_uvloop": request.param}


class Place:
    """A platform that says what a test writes down, and counts."""

    def __init__(self, speaks: Speaks) -> None:
        self.connected = 0
        self.asked: list[bytes] = []
        self.port = 0
        self.closed = asyncio.Event()
        self._speaks = speaks
        self._talks: set[asyncio.Task[Any]] = set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connected += 1
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._speaks(reader, writer)
        finally:
            writer.close()
            self.closed.set()

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        """The next request on a connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(f[15:]) for f in head.lower().split(b"\r\n") if f.startswith(b"content-length:")), 0
        )
        self.asked.append(head + await reader.readexactly(length))
        return head

    async def stop(self) -> None:
        """End what talks."""
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)


@contextlib.asynccontextmanager
async def place(speaks: Callable[[Place], Speaks], **options: Any) -> AsyncIterator[Place]:
    found = Place(lambda reader, writer: speaks(found)(reader, writer))
    server = await asyncio.start_server(found.talk, "127.0.0.1", 0, **options)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await found.stop()


@contextlib.asynccontextmanager
async def api(port: int, **options: Any) -> AsyncIterator[Rest]:
    rest = Rest(f"http://127.0.0.1:{port}/api", **options)
    try:
        yield rest
    finally:
        await rest.close()


def answers(*said: bytes) -> Callable[[Place], Speaks]:
    """A platform that answers each request on a connection with these, then hangs up."""

    def of(found: Place) -> Speaks:
        async def speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for one in said:
                await found.request(reader)
                writer.write(one)
                await writer.drain()

        return speaks

    return of


def always(found: Place) -> Speaks:
    """A platform that goes on answering."""

    async def speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await found.request(reader)
            writer.write(OK)

    return speaks


# --- how many there are


async def test_connections_of_a_burst_stay_open_for_the_next_one() -> None:
    async with place(always) as platform, api(platform.port) as rest:
        for _ in range(3):
            await asyncio.gather(*(rest.ask("POST", "/say", {"n": n}) for n in range(40)))

    assert len(platform.asked) == 120
    assert platform.connected == 40


async def test_more_requests_than_connections_wait_and_are_all_answered() -> None:
    async with place(always) as platform, api(platform.port) as rest:
        found = await asyncio.gather(*(rest.ask("POST", "/say", {"n": n}) for n in range(200)))

    assert {answer.status for answer in found} == {200}
    assert platform.connected <= connections.MOST


async def test_who_waits_too_long_for_a_connection_has_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST", 1)

    def silent(found: Place) -> Speaks:
        async def speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await found.request(reader)
            await reader.read()

        return speaks

    async with place(silent) as platform, api(platform.port) as rest:
        first = asyncio.ensure_future(rest.ask("POST", "/first"))
        while not platform.asked:  # noqa: ASYNC110 - the platform tells nobody
            await asyncio.sleep(0)
        with pytest.raises(Unreachable):
            await rest.ask("POST", "/second", timeout=0.01)
        first.cancel()

    assert [asked.split()[1] for asked in platform.asked] == [b"/api/first"]


async def test_a_connection_that_ended_while_it_was_free_is_not_asked_again() -> None:
    async with place(answers(OK)) as platform, api(platform.port) as rest:
        for number in range(3):
            platform.closed.clear()
            assert (await rest.ask("POST", "/say", {"n": number})).status == 200
            await platform.closed.wait()

    assert platform.connected == len(platform.asked) == 3


async def test_a_connection_that_is_to_be_closed_is() -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    async with place(answers(last, OK)) as platform, api(platform.port) as rest:
        assert (await rest.ask("GET", "/one")).json() == {}
        assert (await rest.ask("GET", "/two")).json() == {}

    assert platform.connected == 2


async def test_what_nobody_has_asked_for_is_no_answer_to_the_next_request() -> None:
    more = OK + b"HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n"
    async with place(answers(more, OK)) as platform, api(platform.port) as rest:
        assert [(await rest.ask("GET", "/")).status for _ in range(2)] == [200, 200]

    assert platform.connected == 2


async def test_the_answer_to_a_request_that_was_given_up_is_not_that_to_the_next() -> None:
    arrived, go = asyncio.Event(), asyncio.Event()

    def slow(found: Place) -> Speaks:
        async def speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                head = await found.request(reader)
                if b"/slow" in head:
                    arrived.set()
                    await go.wait()
                    writer.write(b"HTTP/1.1 500 Slow\r\nContent-Length: 0\r\n\r\n")
                else:
                    writer.write(OK)

        return speaks

    async with place(slow) as platform, api(platform.port) as rest:
        first = asyncio.ensure_future(rest.ask("POST", "/slow"))
        await arrived.wait()
        first.cancel()
        await asyncio.wait([first])
        go.set()
        assert (await rest.ask("POST", "/quick")).status == 200


# --- what an answer is


@pytest.mark.parametrize(
    ("said", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            b"x",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
    ids=["chunked", "until-the-end", "a-word-before", "nothing"],
)
async def test_answers_are_read_however_they_are_written(said: bytes, body: bytes) -> None:
    async with place(answers(said)) as platform, api(platform.port) as rest:
        answer = await rest.ask("GET", "/")

    assert answer.body == body
    assert b"link" not in [name.encode() for name in answer.headers]


async def test_what_is_sent_is_one_whole_request() -> None:
    headers = {"Authorization": "Bot x", "User-Agent": "everthink"}
    async with place(always) as platform, api(platform.port, headers=headers) as rest:
        answer = await rest.ask("PATCH", "/a/b?c=d", {"text": "ä"}, headers={"X-More": "1"})
        await rest.ask("DELETE", "/a")
        await rest.ask("GET", "/a")

    host = f"host: 127.0.0.1:{platform.port}\r\nAuthorization: Bot x\r\nUser-Agent: everthink\r\n"
    assert answer == Answer(200, {"content-length": "2"}, b"{}")
    assert platform.asked == [
        f"PATCH /api/a/b?c=d HTTP/1.1\r\n{host}X-More: 1\r\n"
        "content-type: application/json; charset=utf-8\r\ncontent-length: 13\r\n\r\n"
        '{"text":"ä"}'.encode(),
        f"DELETE /api/a HTTP/1.1\r\n{host}content-length: 0\r\n\r\n".encode(),
        f"GET /api/a HTTP/1.1\r\n{host}\r\n".encode(),
    ]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"this is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 1024 * 1024,
    ],
    ids=["nothing", "half-a-head", "half-a-body", "no-last-chunk", "nonsense", "an-endless-head"],
)
async def test_of_an_answer_that_is_not_whole_nobody_knows(said: bytes) -> None:
    async with place(answers(said)) as platform, api(platform.port) as rest:
        with pytest.raises(Uncertain):
            await rest.ask("POST", "/say")

    assert len(platform.asked) == 1


async def test_of_an_answer_that_does_not_come_nobody_knows() -> None:
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"
    async with place(answers(begun, OK)) as platform, api(platform.port, timeout=0.02) as rest:
        with pytest.raises(Uncertain, match=r"0\.02 s"):
            await rest.ask("POST", "/say")


async def test_an_answer_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everthink.messengers.rest._LONGEST", 9)
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"
    async with place(answers(long)) as platform, api(platform.port) as rest:
        with pytest.raises(Uncertain, match="more than 9 bytes"):
            await rest.ask("POST", "/say")
        with pytest.raises(Refused, match="larger than 9 bytes"):
            await rest.load("/file", most=9)
        assert await rest.load("/file", most=10) == b"0123456789"


async def test_nothing_of_a_request_is_more_than_it_seems() -> None:
    async with place(always) as platform, api(platform.port) as rest:
        for path in ("/a HTTP/1.1\r\nX: y", "/a b", "/ä", "/a\n"):
            with pytest.raises(Refused):
                await rest.ask("GET", path)
        with pytest.raises(Refused):
            await rest.ask("GET", "/a", headers={"X": "y\r\nZ: z"})
        with pytest.raises(Refused):
            Rest("http://127.0.0.1", headers={"X": "y\nZ: z"})

    assert platform.asked == []


# --- who is there


async def test_a_place_where_nobody_listens_was_sent_nothing() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with api(unused.getsockname()[1]) as rest:
            with pytest.raises(Unreachable):
                await rest.ask("POST", "/say")


@pytest.mark.parametrize("base", ["ftp://example.com", "example.com", "https://"])
async def test_what_is_no_address_was_sent_nothing(base: str) -> None:
    with pytest.raises(Unreachable):
        await Rest(base).ask("POST", "/say")


async def test_an_address_that_swallows_everything_keeps_nobody_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swallows = socket.socket()
    swallows.bind(("127.0.0.1", 0))
    swallows.listen(0)
    full = [socket.socket() for _ in range(3)]  # what its queue holds, and more
    for one in full:
        one.setblocking(False)
        one.connect_ex(swallows.getsockname())

    async with place(always) as platform:
        there = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")

        both = [(*there, swallows.getsockname()), (*there, ("127.0.0.1", platform.port))]
        monkeypatch.setattr(connections, "_by_turns", lambda found: both)
        async with api(1) as rest:
            assert (await rest.ask("POST", "/say")).status == 200
    for one in (*full, swallows):
        one.close()


async def test_a_certificate_is_that_of_the_name_and_of_somebody_who_is_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server = authority.server(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    async with place(always, ssl=server) as platform:
        rest = Rest(f"https://127.0.0.1:{platform.port}")
        with pytest.raises(Unreachable, match="SSLCertVerificationError"):
            await rest.ask("POST", "/say")
        await rest.close()

        monkeypatch.setattr(connections, "_trusted", authority.trust)
        wrong = Rest(f"https://localhost:{platform.port}")
        with pytest.raises(Unreachable, match="SSLCertVerificationError"):
            await wrong.ask("POST", "/say")
        await wrong.close()

        assert platform.asked == []
        assert [(await rest.ask("POST", "/say")).status for _ in range(3)] == [200] * 3
        await rest.close()
        assert len(platform.asked) == 3
