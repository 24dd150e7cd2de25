"""How MCP servers and their tools are called.

    "My Files!" --server_id--> my-files --prefix_for--> my-files --tool_names--> my-files_read

Pure but for `random_id`. A name is made once and kept: the same server and tool always get the same name, so
that a conversation of last year still names the tool it used. Every tool's name is one that providers accept.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ..address import kebab
from ..errors import InvalidSettings
from ..kinds import shown
from ..masking import mask

__all__ = [
    "callback_url",
    "is_callback",
    "normal_url",
    "prefix_for",
    "random_id",
    "server_id",
    "tool_name",
    "tool_names",
]

LONGEST_ID = LONGEST_NAME = 64
LONGEST_PREFIX = 32
"""Characters of a prefix: at least as many are left for the tool."""
LONGEST_URL = 4_096

_PORTS = {"http": 80, "https": 443}
_HASHED = 8
_LOCAL = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?(/|$)", re.IGNORECASE)


# --- servers


def server_id(text: Any) -> str:
    """`text` as the id of a server: small letters, digits, `-` and `_`, a letter first, at most 64.

    What is such an id already stays as it is.
    """
    if not isinstance(text, str):
        raise InvalidSettings(
            f"The id of an MCP server is {shown(text)}.",
            kept="Nothing was added.",
            next_step="Give text, or leave it out for one that is made up.",
        )
    found = re.sub(r"[^a-z0-9_-]+", "-", text.lower())
    found = re.sub(r"-{2,}", "-", found).strip("-_")
    if not found:
        return "id"
    if not found[0].isalpha():
        found = f"id-{found}"
    return found[:LONGEST_ID].rstrip("-_")


def random_id() -> str:
    """An id for a server that was given none: eight characters, a letter first."""
    rest = (secrets.choice(string.ascii_lowercase + string.digits) for _ in range(7))
    return secrets.choice(string.ascii_lowercase) + "".join(rest)


# --- tools


def prefix_for(name: str, taken: Collection[str] = ()) -> str:
    """What the names of a server's tools begin with: made of its id or its name, and of nobody else's."""
    return _free(server_id(name)[:LONGEST_PREFIX].rstrip("-_"), taken)


def tool_name(prefix: str, tool: str) -> str:
    """What the model calls a tool: `{prefix}_{tool}`. One that is too long ends in a mark of the whole."""
    words = re.sub(r"[^A-Za-z0-9_-]+", "_", tool).strip("_")
    name = f"{prefix}_{words or _mark(tool)}"
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - _HASHED - 1]}_{_mark(tool)}"


def tool_names(prefix: str, tools: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """The name of each of a server's tools; `taken` are those of others.

    Of two that would be called the same, one is `…_2`. Which one does not depend on the order of a list:
    the one that needed no change keeps its name.
    """
    used, named = set(taken), dict[str, str]()
    for tool in sorted(set(tools), key=lambda tool: (tool_name(prefix, tool) != f"{prefix}_{tool}", tool)):
        named[tool] = _free(tool_name(prefix, tool), used)
        used.add(named[tool])
    return named


def _free(name: str, taken: Collection[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while (other := f"{name[: LONGEST_NAME - len(str(number)) - 1]}_{number}") in taken:
        number += 1
    return other


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASHED]


# --- addresses


def normal_url(url: Any) -> str:
    """An address in the one form in which addresses are compared. Raises when it is none of a server's."""
    try:
        if not isinstance(url, str) or len(url) > LONGEST_URL:
            raise ValueError
        parts = urlsplit(url.strip())
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode()
    except ValueError:
        raise _no_url(url) from None
    if scheme not in _PORTS or not host or re.search(r"[\s\x00-\x1f\\]", host):
        raise _no_url(url)
    place = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[scheme]:
        place = f"{place}:{port}"
    user, at, _ = parts.netloc.rpartition("@")
    path = quote(_walked(parts.path), safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/?%:@!$&'()*+,;=~-._")
    return urlunsplit((scheme, f"{user}{at}{place}", path, query, ""))


def _walked(path: str) -> str:
    """A path without `.` and `..`."""
    steps: list[str] = []
    for step in path.split("/")[1:]:
        if step == "..":
            del steps[-1:]
        elif step != ".":
            steps.append(step)
    if path.endswith(("/.", "/..")):
        steps.append("")
    return f"/{'/'.join(steps)}"


def _no_url(url: Any) -> InvalidSettings:
    found = mask(url[:200]) if isinstance(url, str) else url
    return InvalidSettings(
        f"{shown(found)} is no address of an MCP server.",
        kept="Nothing was added.",
        next_step="Give one that begins with https:// (or http:// on your own machine).",
    )


def callback_url(
    host: str, cls_name: str, name: str, *, prefix: str = "agents", path: str | None = None
) -> str:
    """Where people come back to once they have allowed access: at `path`, or at the agent's own address.

    `host` is an origin, as `https://example.com`; without a scheme it is `https`, on this machine `http`.
    """
    origin = host if "://" in host else f"{'http' if _LOCAL.match(host) else 'https'}://{host}"
    place = f"{prefix.strip('/')}/{kebab(cls_name)}/{quote(name, safe='')}/callback" if path is None else path
    return normal_url(f"{origin.rstrip('/')}/{place.lstrip('/')}")


def is_callback(path: str, registered: str) -> bool:
    """True when a request for `path` came to where people come back to.

    By which scheme and host it reached us does not count: what stands in front of us may have its own.
    """
    return unquote(_walked(path)) == unquote(urlsplit(registered).path)
