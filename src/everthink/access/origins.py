"""Where a page comes from, and by which name it asks for us.

    App(allow_origins=…) --> Origins --> is this page one of ours, or one that was named?
    App(allow_hosts=…)   --> Hosts   --> is this a name of ours?

Pure, and said once: what is written wrong is an error where it was written. An origin is a scheme, a
host and a port; the same host on another port, or over http instead of https, is somebody else.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, cast

from ..errors import AgentError
from ..settings import shown

__all__ = ["Hosts", "Origin", "Origins", "own_origin", "read_origin"]

_HOST = r"(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]*\\]+)"
_ORIGIN = re.compile(rf"([a-zA-Z][a-zA-Z0-9+.-]*)://{_HOST}(?::([0-9]{{1,5}}))?", re.ASCII)
_AUTHORITY = re.compile(rf"{_HOST}(?::([0-9]{{0,5}}))?", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_PAGES = {"ws": "http", "wss": "https"}


class Origin(NamedTuple):
    """A page's origin, made comparable."""

    scheme: str
    host: str
    port: int | None


def read_origin(text: str) -> Origin | None:
    """The origin that a header or a setting names; `None` for anything else, `null` among it."""
    found = _ORIGIN.fullmatch(text)
    if found is None:
        return None
    scheme = found[1].lower()
    return Origin(scheme, _plain(found[2]), int(found[3]) if found[3] else _PORTS.get(scheme))


def own_origin(scheme: str, host: str) -> Origin | None:
    """The origin of our own pages, from the scheme and the `Host` of a request."""
    found = _AUTHORITY.fullmatch(host)
    if found is None:
        return None
    scheme = _PAGES.get(scheme, scheme)
    return Origin(scheme, _plain(found[1]), int(found[2]) if found[2] else _PORTS.get(scheme))


def _plain(host: str) -> str:
    host = host.lower().removesuffix(".")
    if not host.isascii():
        with contextlib.suppress(UnicodeError):
            return host.encode("idna").decode()
    return host


class Origins:
    """The pages of other origins that may open sockets and change something."""

    def __init__(self, given: Sequence[str] | None = ()) -> None:
        entries = _entries("allow_origins", given, "https://my.page")
        self.is_everybody = "*" in entries
        self._named = frozenset(_named_origin(entry) for entry in entries if entry != "*")

    def are_foreign(self, origins: Iterable[str], *, scheme: str, host: str) -> bool:
        """True when a request with these `Origin` headers comes from another site. Scripts send none."""
        if self.is_everybody:
            return False
        own = own_origin(scheme, host)
        known = self._named if own is None else self._named | {own}
        return any(read_origin(text) not in known for text in origins)

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of the origins that were named."""
        return frozenset(origin.host for origin in self._named)


def _named_origin(entry: str) -> Origin:
    found = read_origin(entry)
    if found is None:
        bare = re.sub(r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?/*", "", entry).split("/")[0]
        if "*" in bare or not bare or entry == "null":
            hint = (
                'Name each origin as the browser says it, such as "https://my.page". "*" alone is everybody.'
            )
        else:
            scheme = "http" if entry.startswith("http:") else "https"
            hint = f'Write the scheme and the host, and nothing behind them: "{scheme}://{bare}".'
        raise AgentError(f"allow_origins: {entry!r} is not an origin.", next_step=hint)
    return found


class Hosts:
    """The names by which an app may be asked for. Without any that is every name."""

    def __init__(self, given: Sequence[str] | None = None) -> None:
        self._given = None if given is None else _entries("allow_hosts", given, "my.page")
        self._is_local = False
        entries = [_named_host(entry) for entry in self._given or ()]
        self._is_any = self._given is None or "*" in entries
        self._names = frozenset(entry for entry in entries if not entry.startswith("*"))
        self._tails = tuple(entry[1:] for entry in entries if entry.startswith("*."))

    def and_local(self, *more: str) -> Hosts:
        """These names, those of this machine (localhost and every IP address), and `more`.

        Without any of its own an app in development has no other: a page of another site whose name
        was made to mean this machine (DNS rebinding) looks, to the browser, like a page of ours.
        """
        hosts = Hosts([*(self._given or ()), *more])
        hosts._is_local = True
        return hosts

    def allows(self, hosts: Sequence[str]) -> bool:
        """True when a request with these `Host` headers asks for us by a name of ours."""
        if self._is_any:
            return True
        found = _AUTHORITY.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None:
            return False
        host = _plain(found[1])
        return host in self._names or host.endswith(self._tails) or (self._is_local and _is_local(host))


def _named_host(entry: str) -> str:
    if entry == "*":
        return entry
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(entry.strip("[]"))
        return f"[{address}]" if address.version == 6 else str(address)
    name = entry.removeprefix("*.")
    found = _AUTHORITY.fullmatch(name)
    if found is None or found[2] is not None:
        raise AgentError(
            f"allow_hosts: {entry!r} is not the name of a host.",
            next_step='Write it without scheme, port and path: "my.page", or "*.my.page" for those below it.',
        )
    return entry[: len(entry) - len(name)] + _plain(name)


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host.strip("[]"))
        return True
    return False


def _entries(option: str, given: Any, example: str) -> tuple[str, ...]:
    if isinstance(given, str | bytes):
        text = given if isinstance(given, str) else given.decode(errors="replace")
        raise AgentError(
            f"App({option}={text!r}): this is one text, and a text is a list of letters.",
            next_step=f"Write a list: {option}=[{text!r}].",
        )
    if given is not None and not isinstance(given, Collection):
        raise AgentError(
            f"App({option}=…) is {shown(given)}.", next_step=f'It takes a list: {option}=["{example}"].'
        )
    entries = tuple(cast("Collection[Any]", given or ()))
    for entry in entries:
        if not isinstance(entry, str):
            raise AgentError(
                f"{option}: {entry!r} is not a text.", next_step=f'Write {option}=["{example}"].'
            )
    return entries
