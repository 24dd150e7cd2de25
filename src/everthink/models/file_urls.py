"""Which addresses of files a provider may be given: public ones on the web, and data.

    provider_request --url--> may_be_opened --> the provider, or a note in its place
                                    |
                              guard/addresses

Somebody opens an address that we pass on: the provider, a model server in our own network, or the library
that speaks to it, from this very machine. `file:`, a bare path or `http://169.254.169.254/` would let whoever
wrote the message read what only we can reach.
"""

from __future__ import annotations

from ..guard.addresses import leads_near, read_place

__all__ = ["LEFT_OUT", "may_be_opened"]

LEFT_OUT = "(A file is left out here: its address is not a public one on the web.)"


def may_be_opened(url: str) -> bool:
    """True for `data:`, and for `http:` and `https:` with a host that is not near us, as far as it tells."""
    place = read_place(url)
    if place is None or place.scheme == "data":
        return place is not None
    return place.scheme in ("http", "https") and not leads_near(place.host, loopback=False)
