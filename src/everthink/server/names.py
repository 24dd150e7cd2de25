"""How a class is called in an address."""

from __future__ import annotations

import re

__all__ = ["kebab"]


def kebab(name: str) -> str:
    """`ThinkPeer` is `think-peer`, `MY_AGENT` is `my-agent`, `HTTPAgent` is `h-t-t-p-agent`."""
    if name == name.upper():
        return name.lower().replace("_", "-")
    dashed = re.sub(r"([A-Z])", lambda found: "-" + found[1].lower(), name)
    return dashed.removeprefix("-").replace("_", "-").removesuffix("-")
