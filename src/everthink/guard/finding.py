"""Find the addresses of a host: once, and only those that may be connected to.

    who connects  --find(host, port)--> look up once, check every answer --> addresses, in the order to try
                                           | one of them leads near us
                                           BlockedAddress: none of them

A name is looked up where its connection is made, and nobody looks it up again: an answer that changes a
moment later (DNS rebinding) changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest

from .addresses import address_in, is_forbidden, is_localhost, leading_near, place_of, plain_host

__all__ = ["Finder", "NotFound", "Resolve", "look_up"]

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, the best first; an `OSError` when it has none."""

_LONGEST_LOOK_UP = 10.0
_MOST_TRIES = 4
"""So many addresses of one name are tried: with more, each would have too little of the time."""


class NotFound(OSError):
    """A name that has no address."""


async def look_up(host: str, port: int) -> list[str]:
    """Ask the system for the addresses of a name, on a thread of the loop's executor."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Finder:
    """Where a connection may go. `allow` has places (`named_places`) that may lead anywhere."""

    def __init__(self, *, loopback: bool, allow: frozenset[str], resolve: Resolve = look_up) -> None:
        self._loopback, self._allow, self._resolve = loopback, allow, resolve

    async def find(self, host: str, port: int, *, within: float | None = None) -> list[str]:
        """The addresses of a host, IPv6 and IPv4 by turns. One that is forbidden forbids them all: which is
        taken is up to others. Raises `BlockedAddress`, `NotFound`, or `TimeoutError` after `within` seconds.
        """
        plain = plain_host(host)
        answers = _known(plain) or await self._found(host, port, within)
        named = place_of(plain, port)
        if named not in self._allow and any(is_forbidden(one, loopback=self._loopback) for one in answers):
            raise leading_near(host, named)
        return _in_turn(answers)

    async def _found(self, host: str, port: int, within: float | None) -> Sequence[str]:
        longest = _LONGEST_LOOK_UP if within is None else min(within, _LONGEST_LOOK_UP)
        try:
            async with asyncio.timeout(longest):
                return await self._resolve(host, port)
        except TimeoutError as error:
            raise TimeoutError(f"{host} was not found in time") from error
        except (OSError, UnicodeError) as error:
            raise NotFound(f"{host} was not found") from error


def _known(host: str) -> list[str]:
    """The addresses of a host that nobody has to be asked for."""
    if is_localhost(host):
        return ["127.0.0.1", "::1"]
    literal = address_in(host)
    return [] if literal is None else [str(literal)]


def _in_turn(addresses: Sequence[str]) -> list[str]:
    """IPv6 and IPv4 by turns, so that a network that lost one of them costs one try."""
    by_family: dict[bool, list[str]] = {}
    for address in addresses:
        by_family.setdefault(":" in address, []).append(address)
    return [one for several in zip_longest(*by_family.values()) for one in several if one][:_MOST_TRIES]
