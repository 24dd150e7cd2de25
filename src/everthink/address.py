"""How agents are called: a class in an address, a name from everywhere.

    app.agent(Cls, "Jürgen") --canonical--> "Jürgen" <--from_address-- /agents/cls/J%C3%BCrgen

One name is one agent, whether somebody's keyboard writes *ü* as one character or as two, and whether a
browser escapes it. `/`, `?` and `#` stay escaped: a name that is read somewhere leads back to its agent.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any
from urllib.parse import unquote

__all__ = ["canonical", "from_address", "kebab"]

_KEPT = re.compile("(%2[Ff]|%3[Ff]|%23)")


def kebab(name: str) -> str:
    """`ThinkPeer` is `think-peer`, `MY_AGENT` is `my-agent`, `HTTPAgent` is `h-t-t-p-agent`."""
    if name == name.upper():
        return name.lower().replace("_", "-")
    dashed = re.sub(r"([A-Z])", lambda found: "-" + found[1].lower(), name)
    return dashed.removeprefix("-").replace("_", "-").removesuffix("-")


def canonical(name: Any) -> Any:
    """A name in the form in which it is kept (NFC). What is no text stays for whoever checks names."""
    return unicodedata.normalize("NFC", name) if isinstance(name, str) else name


def from_address(segment: str) -> str:
    """The name that a segment of a path stands for. One that makes no name stands for itself."""
    try:
        pieces = _KEPT.split(segment)
        name = "".join(
            piece.upper() if _KEPT.fullmatch(piece) else unquote(piece, errors="strict") for piece in pieces
        )
    except UnicodeDecodeError:
        return segment
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return segment
    return canonical(name)
