"""Which hosts and addresses lead near us, however they are written.

    a URL that somebody else chose  --check_url-->     opened, or BlockedAddress
    what a name was resolved to     --is_forbidden-->  connected to, or not
    a host, as far as it tells      --leads_near-->    models/file_urls, whose URLs others open

Pure: nothing is looked up. A name says little about where it leads, so who connects asks again with what it
was resolved to (`transport.py`). Ranges are written out here, because those of `ipaddress` differ between
releases of Python.
"""

from __future__ import annotations

import re
import socket
import unicodedata
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..errors import BlockedAddress, InvalidSettings
from ..kinds import shown

__all__ = [
    "Place",
    "address_in",
    "check_texts",
    "check_url",
    "is_forbidden",
    "is_localhost",
    "leading_near",
    "leads_near",
    "named_places",
    "place_of",
    "plain_host",
    "read_place",
]

Address = IPv4Address | IPv6Address

_OURS = {
    *("localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "private"),
    *("arpa", "onion", "svc", "cluster", "default", "consul", "docker", "mesh", "test"),
}
"""The last words of names that lead to machines near us, or to services of a cluster we run in."""
_METADATA = {"metadata.goog", "metadata.tencentyun.com"}
"""Names under which clouds tell a machine its secrets, beside those that `_OURS` covers."""

_LOOPBACK = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))
_NEAR = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("10.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),
    IPv4Network("127.0.0.0/8"),
    IPv4Network("169.254.0.0/16"),
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.0.0.0/24"),  # of protocols; clouds answer at some of them
    IPv4Network("192.0.2.0/24"),
    IPv4Network("192.168.0.0/16"),
    IPv4Network("198.18.0.0/15"),
    IPv4Network("198.51.100.0/24"),
    IPv4Network("203.0.113.0/24"),
    IPv4Network("224.0.0.0/4"),
    IPv4Network("240.0.0.0/4"),
    IPv6Network("2001::/23"),
    IPv6Network("2001:db8::/32"),
    IPv6Network("3fff::/20"),
)
"""What is near us, is nobody's, or is for many at once. Of IPv6: what of that is in `_UNICAST`."""
_UNICAST = IPv6Network("2000::/3")
"""All that is given out of IPv6 for the world; the rest is reserved, or near us."""

_CARRIERS = (
    IPv6Network("::/96"),
    IPv6Network("::ffff:0:0/96"),
    IPv6Network("::ffff:0:0:0/96"),
    IPv6Network("64:ff9b::/96"),
)
"""IPv6 addresses that are IPv4 ones in their last four bytes: compatible, mapped, translated, NAT64."""
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")

_SHOWN = 100
_PORTS = {"http": 80, "https": 443}
_ENTRY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]*%\\]+)(?::([0-9]{1,5}))?")


class Place(NamedTuple):
    """What of a URL says where it leads."""

    scheme: str
    host: str
    """As it is looked up: lower case, ASCII, without brackets and a last dot."""
    port: int | None
    has_credentials: bool


def check_url(url: str, *, loopback: bool, allow: Iterable[str] = ()) -> None:
    """Raise `BlockedAddress` for what may not be opened because somebody else asks for it.

    That is what is not http(s), cannot be read, carries a name or a password, or leads near us. `loopback`
    lets addresses of this machine pass; `allow` names hosts that an application knows: `["mcp.lan:8080"]`.
    """
    place = read_place(url)
    if place is None:
        raise BlockedAddress("it is not an address that can be read")
    if place.scheme not in _PORTS:
        raise BlockedAddress("only http: and https: are opened")
    if place.has_credentials:
        raise BlockedAddress(
            "it carries a user name or a password", next_step="Send credentials in a header of the request."
        )
    named = place_of(place.host, _PORTS[place.scheme] if place.port is None else place.port)
    if leads_near(place.host, loopback=loopback) and named not in named_places(allow):
        raise leading_near(place.host, named)


def leading_near(host: str, named: str) -> BlockedAddress:
    """The refusal of a host. Where it was found to lead is not said: that would be a map of our network."""
    return BlockedAddress(
        f"{host[:_SHOWN]!r} does not lead to the public web",
        next_step="Use a public address. An application can allow this one by name:"
        f" allow_addresses=[{named[:_SHOWN]!r}].",
    )


def read_place(url: str) -> Place | None:
    """Where a URL leads; `None` when it cannot be read, or when its readers would disagree about it."""
    if not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        host, port = plain_host(parts.hostname or ""), parts.port
    except ValueError:
        return None
    if parts.scheme in _PORTS and (not host or ("[" in parts.netloc and ":" not in host)):
        return None
    return Place(parts.scheme, host, port, "@" in parts.netloc)


def plain_host(host: str) -> str:
    """A host as it is looked up: `①②⑦.0.0.1` is another way to write 127.0.0.1."""
    if not host.isascii():
        host = unicodedata.normalize("NFKC", host).encode("idna").decode()
    return host.lower().rstrip(".")


def leads_near(host: str, *, loopback: bool) -> bool:
    """True for a host that is not a public one, as far as its name or number tells."""
    address = address_in(host)
    if address is not None:
        return is_forbidden(address, loopback=loopback)
    return not (loopback and is_localhost(host)) and not _is_public_name(host)


def is_localhost(host: str) -> bool:
    """True for `localhost` and the names below it, which mean this machine wherever they are looked up."""
    return host == "localhost" or host.endswith(".localhost")


def _is_public_name(host: str) -> bool:
    *before, last = host.split(".")
    if "%" in host or last[:1].isdigit():
        return False  # some readers decode the one, and take the other for a number
    is_word = last.isalpha() or last.startswith("xn--")  # as the last word of a public name always is
    is_whole = len(host) < 254 and all(0 < len(word) < 64 for word in (*before, last))
    return bool(before) and is_whole and is_word and last not in _OURS and host not in _METADATA


def is_forbidden(address: str | Address, *, loopback: bool) -> bool:
    """True for an address that may not be connected to. `loopback` lets 127.0.0.0/8, also mapped, and ::1."""
    found = address_in(address) if isinstance(address, str) else address
    if found is None:
        return True
    if loopback and _is_loopback(found):
        return False
    return any(map(_is_near, _meant(found)))


def _is_loopback(address: Address) -> bool:
    meant = (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address
    return any(meant in network for network in _LOOPBACK)


def _is_near(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _UNICAST:
        return True
    return any(address in network for network in _NEAR)


def _meant(address: Address) -> list[Address]:
    """Where packets to an address may end: at the IPv4 address inside an IPv6 one, when it carries one."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.sixtofour is not None:
        return [address.sixtofour]
    inside = IPv4Address(address.packed[12:])
    if any(address in network for network in _CARRIERS):
        return [inside]
    return [address, inside] if address.packed[8:12] in _ISATAP else [address]


def address_in(host: str) -> Address | None:
    """The address a host stands for when it is written in numbers, in whatever way: 127.1, 0x7f000001."""
    try:
        return ip_address(host.partition("%")[0] if ":" in host else host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


# --- what an application allows


def place_of(host: str, port: int) -> str:
    """A host and a port as `named_places` has them."""
    address = address_in(host)
    if isinstance(address, IPv6Address):
        return f"[{address}]:{port}"
    return f"{address or host}:{port}"


def named_places(allow: Iterable[str], option: str = "allow") -> frozenset[str]:
    """The hosts that an application allows, each with its port; without one, with those of http and https."""
    check_texts(option, allow)
    return frozenset(place for entry in allow for place in _named(entry, option))


def check_texts(option: str, texts: Any) -> None:
    """Raise `InvalidSettings` for one text, and for what is no list at all."""
    if isinstance(texts, str):
        raise InvalidSettings(
            f"{option}={texts!r}: this is one text, and a text is a list of letters.",
            next_step=f"Write a list: {option}=[{texts!r}].",
        )
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise InvalidSettings(
            f"{option} is {shown(texts)}.", next_step=f'Write a list of hosts: {option}=["example.com"].'
        )


def _named(entry: Any, option: str) -> list[str]:
    found = _ENTRY.fullmatch(entry) if isinstance(entry, str) else None
    host = _readable(found[1]) if found is not None else ""
    port = int(found[2]) if found is not None and found[2] else None
    if not host or (port is not None and not 0 < port < 65536):
        raise InvalidSettings(
            f"{option}: {entry!r} is not a host.",
            next_step="Write it without scheme and path, with its port if that is not the usual one:"
            ' "mcp.lan:8080", "[fd00::7]:8080".',
        )
    return [place_of(host, one) for one in (_PORTS.values() if port is None else [port])]


def _readable(host: str) -> str:
    """The host of an entry, empty when it is none."""
    bare = host.strip("[]")
    if bare != host and address_in(bare) is None:
        return ""
    try:
        return plain_host(bare)
    except UnicodeError:
        return ""
