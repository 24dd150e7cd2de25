"""What of the web may be opened: which hosts, which ports, which places near us.

    an application --Rules--> check_url: an address that somebody chose
                          --> check:     a host and a port that something connects to (proxy.py)

Pure. That a name may be opened says nothing of where it leads: `finding.py` looks at its addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Self

from ..errors import BlockedAddress, InvalidSettings
from .addresses import (
    address_in,
    check_texts,
    check_url,
    leading_near,
    leads_near,
    named_places,
    place_of,
    plain_host,
    read_place,
)

__all__ = ["Rules"]

_WEB = frozenset({80, 443})
_SHOWN = 100
_PATTERN = re.compile(r"(\*\.)?[^\s/?#@:*\[\]\\%]+|\[[0-9a-fA-F:.]+\]")


class Rules:
    """Which hosts and ports may be opened.

        Rules()                                          # the public web
        Rules(hosts=["example.com", "*.example.org"])    # of it, these alone
        Rules(never=["ads.example.com"])                 # all but these
        Rules(allow=["wiki.lan:8080"])                   # and this one, which is near us

    A host is a name as it is, or `*.name` for all names below it. `allow` names places that may lead
    anywhere, each with its port; what is allowed so needs no place in `hosts`.
    """

    def __init__(
        self,
        *,
        hosts: Iterable[str] | None = None,
        never: Iterable[str] = (),
        allow: Iterable[str] = (),
        ports: Iterable[int] = _WEB,
    ) -> None:
        self._hosts = None if hosts is None else _patterns("hosts", hosts)
        self._never = _patterns("never", never)
        self.allow = named_places(allow)
        """The places that may lead anywhere."""
        self._ports = frozenset(ports)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[frozenset[str] | frozenset[int] | None, ...]:
        return self._hosts, self._never, self.allow, self._ports

    def __str__(self) -> str:
        """What passes, in words: `the public web`, `example.com, wiki.lan:8080`."""
        public = ["the public web"] if self._hosts is None else sorted(self._hosts)
        return ", ".join(public + sorted(self.allow)) or "nothing"

    @classmethod
    def nothing(cls) -> Self:
        """Rules that let nothing pass."""
        return cls(hosts=(), ports=())

    def check_url(self, url: str) -> None:
        """Raise `BlockedAddress` for a URL that may not be opened."""
        check_url(url, loopback=False, allow=self.allow)
        place = read_place(url)
        if place is not None:
            self.check(place.host, place.port or {"http": 80, "https": 443}[place.scheme])

    def check(self, host: str, port: int) -> None:
        """Raise `BlockedAddress` for a host and a port that may not be connected to."""
        try:
            plain = plain_host(host)
        except UnicodeError:
            raise BlockedAddress(f"{host[:_SHOWN]!r} is no host") from None
        named = place_of(plain, port)
        if _is_in(plain, self._never):
            raise BlockedAddress(
                f"the application does not let {plain[:_SHOWN]!r} be opened", next_step=_OTHER
            )
        if named in self.allow:
            return
        if self._hosts is not None and not _is_in(plain, self._hosts):
            raise BlockedAddress(
                f"{plain[:_SHOWN]!r} is not among the hosts that the application lets be opened",
                next_step=_OTHER,
            )
        if leads_near(plain, loopback=False):
            raise leading_near(plain, named)
        if port not in self._ports:
            raise BlockedAddress(
                f"{named[:_SHOWN]!r} has a port that is not opened",
                next_step="Use an address without a port.",
            )


_OTHER = "Use another source, or tell the person that this one is closed to you."


def _patterns(option: str, hosts: Iterable[str]) -> frozenset[str]:
    check_texts(option, hosts)
    return frozenset(_pattern(option, host) for host in hosts)


def _pattern(option: str, host: Any) -> str:
    if not isinstance(host, str) or _PATTERN.fullmatch(host) is None:
        raise InvalidSettings(
            f"{option}: {host!r} is not a host.",
            next_step='Write it without scheme, port and path: "example.com"; "*.example.com" is all below.',
        )
    below = host.startswith("*.")
    try:
        plain = plain_host(host.removeprefix("*.").strip("[]"))
    except UnicodeError:
        raise InvalidSettings(
            f"{option}: {host!r} is not a host.", next_step="Look at its letters."
        ) from None
    address = address_in(plain)
    return f"*.{plain}" if below else str(address or plain)


def _is_in(host: str, patterns: frozenset[str]) -> bool:
    address = address_in(host)
    if address is not None:
        return str(address) in patterns
    words = host.split(".")
    return host in patterns or any(f"*.{'.'.join(words[at:])}" in patterns for at in range(1, len(words)))
