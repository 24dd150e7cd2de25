"""Which addresses of files a provider may be given: public ones on the web, and data.

    provider_request --url--> may_be_opened --> the provider, or a note in its place

Somebody opens an address that we pass on: the provider, a model server in our own network, or the library
that speaks to it, from this very machine. `file:`, a bare path or `http://169.254.169.254/` would let whoever
wrote the message read what only we can reach.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

__all__ = ["LEFT_OUT", "may_be_opened"]

LEFT_OUT = "(A file is left out here: its address is not a public one on the web.)"
_OURS = ("localhost", "local", "internal", "intranet", "lan", "home", "corp", "arpa", "onion")
"""The last words of names that lead to machines near us."""


def may_be_opened(url: str) -> bool:
    """True for `data:`, and for `http:` and `https:` with a host that is not near us, as far as it tells."""
    if not url.isprintable() or " " in url or "\\" in url:
        return False  # readers of addresses disagree about these
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
        _ = parts.port  # raises when it is no number
    except ValueError:
        return False
    if parts.scheme == "data":
        return True
    return parts.scheme in ("http", "https") and bool(host) and _is_public(host)


def _is_public(host: str) -> bool:
    address = _address(host)
    if address is not None:
        mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
        return mapped.is_global and not mapped.is_multicast
    name, dot, last = host.rpartition(".")
    return bool(dot and name) and last.lower() not in _OURS


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address a host stands for when it is written in numbers, in whatever way: 127.1, 0x7f000001."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None
