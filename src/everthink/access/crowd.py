"""How many are here, and how many of them come from one place.

    Gate --address--> Crowd.enter --> why not, or nothing       Crowd.leave, when they are gone
                      Crowd.may_create: one more agent, for somebody from there

Sockets and requests are counted from their first moment to their last, before anything is asked or started
for them. Of a network that gives each of its customers many addresses (IPv6) the customer is one place.
"""

from __future__ import annotations

import ipaddress
from collections import deque

from starlette.responses import PlainTextResponse, Response

from ..clock import Clock
from ..limits import Limits

__all__ = ["Crowd", "place_of"]

MINUTE = 60.0
LATER = {"Retry-After": "10"}


def place_of(address: str | None) -> str:
    """What counts as one place: an address, the network of an IPv6 customer, or "" for a local socket."""
    if address is None or ":" not in address:
        return address or ""
    try:
        read = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    return str(ipaddress.IPv6Network((read, 64), strict=False))


class Crowd:
    """Those who are connected to one app."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._here: dict[str, int] = {}
        self._in_all = 0
        # When agents were made for a place, in the last minute.
        self._made: dict[str, deque[float]] = {}

    def enter(self, place: str) -> Response | None:
        """Count somebody in; or the refusal."""
        limits, here = self._limits, self._here.get(place, 0)
        if here >= limits.sockets_per_address:
            text = f"{limits.sockets_per_address} connections of this address are open, and no more may be."
            return PlainTextResponse(text, 429, LATER)
        if self._in_all >= limits.sockets:
            text = f"{limits.sockets} connections are open, and no more may be. Please try again later."
            return PlainTextResponse(text, 503, LATER)
        self._here[place] = here + 1
        self._in_all += 1
        return None

    def leave(self, place: str) -> None:
        """Somebody who was counted in is gone."""
        self._in_all -= 1
        if self._here[place] == 1:
            del self._here[place]
        else:
            self._here[place] -= 1

    def may_create(self, place: str) -> Response | None:
        """Count one more agent that is made for somebody from there; or the refusal."""
        now, most = self._clock.monotonic(), self._limits.agents_per_minute
        self._forget(now)
        made = self._made.get(place) or deque()
        while made and now - made[0] >= MINUTE:
            made.popleft()
        if len(made) >= most:
            text = f"{most} conversations were begun from this address in a minute, and no more may be."
            return PlainTextResponse(text, 429, {"Retry-After": str(int(MINUTE - (now - made[0])) + 1)})
        made.append(now)
        self._made.pop(place, None)
        self._made[place] = made  # the latest is the last
        return None

    def _forget(self, now: float) -> None:
        """Let go of places that have made nothing for a minute, oldest first."""
        while self._made:
            place = next(iter(self._made))
            if now - self._made[place][-1] < MINUTE:
                return
            del self._made[place]
