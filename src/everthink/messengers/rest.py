"""One request to a platform's API: what came back, or which `DeliveryError` it is.

    adapter --ask(method, path, json)--> Rest --Connections--> the platform
                                          |
                     a connection that was never made: Unreachable; one that broke, or fell silent: Uncertain

What an answer means is the adapter's to say: platforms tell errors in ways of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from ..errors import MissingExtra
from .connections import Connections, TooLong
from .port import Refused, Uncertain, Unreachable

__all__ = ["Answer", "Rest", "fetched", "origin_of"]

_TIMEOUT = 20.0
"""Seconds for which a platform may be silent."""
_LONGEST = 32 * 1024 * 1024
"""Bytes of an answer."""
_JSON = b"content-type: application/json; charset=utf-8\r\n"
_TARGET = re.compile(r"/[!-~]*")
_NAME, _VALUE = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"), re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a platform has answered."""

    status: int
    headers: Mapping[str, str]
    """Their names are in small letters."""
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as an object; an empty one when it is none."""
        try:
            value = msgspec.json.decode(self.body) if self.body else None
        except msgspec.DecodeError:
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Rest:
    """The API of one platform, at `base`. Nothing of it is logged: addresses have tokens in them."""

    def __init__(
        self, base: str, *, headers: Mapping[str, str] | None = None, timeout: float = _TIMEOUT
    ) -> None:
        self.base = base.rstrip("/")
        self._timeout = timeout
        self._place = urlsplit(self.base)
        named = self._place.netloc.rpartition("@")[2]
        self._fields = _fields({"host": named, **(headers or {})})
        self._kept: Connections | None = None

    async def ask(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """One request. `Unreachable`: nothing was sent. `Uncertain`: nobody knows what came of it."""
        connections = self._connections()
        content = b"" if json is None else msgspec.json.encode(json)
        head = self._head(method, path)
        if headers:
            head += _fields(headers)
        if json is not None:
            head += _JSON
        if content or method != "GET":
            head += b"content-length: %d\r\n" % len(content)
        try:
            reply = await connections.ask(
                head + b"\r\n" + content, patience=timeout or self._timeout, most=_LONGEST
            )
        except TooLong:
            raise Uncertain(f"The platform's answer has more than {_LONGEST} bytes.") from None
        return Answer(reply.status, _texts(reply.headers), reply.body)

    async def load(self, path: str, *, most: int) -> bytes:
        """The bytes of a file, at most so many. Raises `Refused` and `Unreachable`."""
        try:
            reply = await self._connections().ask(
                self._head("GET", path) + b"\r\n", patience=self._timeout, most=most
            )
        except TooLong:
            raise _too_large(most) from None
        except Uncertain as error:
            raise Unreachable(f"The file could not be loaded. {error.what}") from error
        _check_loads(reply.status)
        return reply.body

    def _head(self, method: str, path: str) -> bytes:
        target = self._place.path + path
        if _TARGET.fullmatch(target) is None:
            raise Refused("What was to be asked of the platform makes no address.")
        return b"%s %s HTTP/1.1\r\n" % (method.encode("ascii"), target.encode("ascii")) + self._fields

    def _connections(self) -> Connections:
        if self._kept is None:
            place = self._place
            is_secure = place.scheme == "https"
            try:
                host, port = (place.hostname or "").encode("idna").decode(), place.port
            except ValueError:
                host = port = None
            if not host or place.scheme not in ("http", "https"):
                raise Unreachable("The address of the platform's API is none of http or https.")
            self._kept = Connections(host, port or (443 if is_secure else 80), is_secure=is_secure)
        return self._kept

    async def close(self) -> None:
        """Close the connections."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()


def origin_of(url: str) -> str:
    """The scheme and host of an address: `https://slack.com`."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


async def fetched(url: str, *, most: int, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes at an address that somebody else chose, through the guarded transport, at most so many."""
    try:
        import httpx2
    except ImportError as error:
        raise MissingExtra(
            "Files of messengers are loaded with the package httpx2, which is not installed.",
            kept="Nothing was loaded.",
            next_step='Run: pip install "everthink[messengers]"',
        ) from error

    from ..guard.transport import GuardedTransport

    got = bytearray()
    try:
        async with (
            httpx2.AsyncClient(transport=GuardedTransport(), timeout=_TIMEOUT) as http,
            http.stream("GET", url, headers=dict(headers or {})) as response,
        ):
            _check_loads(response.status_code)
            async for piece in response.aiter_bytes():
                _take(got, piece, most)
    except httpx2.TransportError as error:
        raise Unreachable(f"The file could not be loaded: {type(error).__name__}.") from error
    return bytes(got)


def _check_loads(status: int) -> None:
    if status != 200:
        raise Refused(f"The file could not be loaded: the platform says {status}.")


def _take(got: bytearray, piece: bytes, most: int) -> None:
    got += piece
    if len(got) > most:
        raise _too_large(most)


def _too_large(most: int) -> Refused:
    return Refused(f"The file is larger than {most} bytes.")


def _fields(headers: Mapping[str, str]) -> bytes:
    """Fields of a head, as they are sent. None of them may end before it is over."""
    for name, value in headers.items():
        if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise Refused(f"The header {name!r} cannot be sent: it has characters that headers have not.")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")


def _texts(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
