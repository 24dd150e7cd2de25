"""Which addresses of files a provider may be given: public ones on the web, and data.

    provider_request --url--> may_be_opened --> the provider, or a note in its place

Somebody opens an address that we pass on: the provider, a model server in our own network, or the library
that speaks to it, from this very machine. `file:`, a bare path or `http://169.254.169.254/` would let whoever
wrote the message read what only we can reach.
"""

from __future__ import annotations

import ipaddress
import socket
import unicodedata
from urllib.parse import urlsplit

__all__ = ["LEFT_OUT", "may_be_opened"]

LEFT_OUT = "(A file is left out here: its address is not a public one on the web.)"
_OURS = {
    *("localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "private"),
    *("arpa", "onion", "svc", "cluster", "default", "consul", "docker", "mesh", "test"),
}
"""The last words of names that lead to machines near us, or to services of a cluster we run in."""

_PROTOCOLS = ipaddress.IPv4Network("192.0.0.0/24")
"""Addresses that mean something where we are; clouds answer at some."""
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All that is given out of IPv6 for the world; the rest is reserved, or near us."""
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_OURS = ipaddress.IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


def may_be_opened(url: str) -> bool:
    """True for `data:`, and for `http:` and `https:` with a host that is not near us, as far as it tells."""
    if not url.isprintable() or " " in url or "\\" in url:
        return False  # readers of addresses disagree about these
    try:
        parts = urlsplit(url)
        host = _plain(parts.hostname or "")
        _ = parts.port  # raises when it is no number
    except ValueError:
        return False
    if parts.scheme == "data":
        return True
    return parts.scheme in ("http", "https") and bool(host) and _is_public(host)


def _plain(host: str) -> str:
    """A host as it is looked up: `①②⑦.0.0.1` is another way to write 127.0.0.1."""
    if not host.isascii():
        host = unicodedata.normalize("NFKC", host).encode("idna").decode()
    return host.lower().rstrip(".")


def _is_public(host: str) -> bool:
    address = _address(host)
    if address is not None:
        return all(map(_is_elsewhere, _meant(address)))
    name, dot, last = host.rpartition(".")
    if "%" in host or last[:1].isdigit():
        return False  # some readers decode the one, and take the other for a number
    is_word = last.isalpha() or last.startswith("xn--")  # as the last word of a public name always is
    return bool(dot and name) and is_word and last not in _OURS


def _is_elsewhere(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    is_public = address in _UNICAST if address.version == 6 else address not in _PROTOCOLS
    return is_public and address.is_global and not address.is_multicast


def _meant(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Where packets to an address may end: at the IPv4 address inside an IPv6 one, when it carries one."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if (known := address.ipv4_mapped or address.sixtofour) is not None:
        return [known]
    inside = ipaddress.IPv4Address(address.packed[12:])
    if address in _NAT64 or address in _COMPATIBLE or address in _TRANSLATED:
        return [inside]
    if address in _NAT64_OURS:
        return [ipaddress.IPv4Address(0)]  # a translator of our own: it leads inside, wherever that is
    return [address, inside] if address.packed[8:12] in _ISATAP else [address]


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address a host stands for when it is written in numbers, in whatever way: 127.1, 0x7f000001."""
    try:
        return ipaddress.ip_address(host.partition("%")[0] if ":" in host else host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None
