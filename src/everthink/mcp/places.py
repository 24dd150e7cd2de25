"""Where an MCP server is and how it is used, as an application writes it down.

    App(mcp_servers={"docs": "https://…/mcp", "files": StdioServer("npx", ("-y", "…"))}) --place_of--> Place

Values alone: nothing is reached by making one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from ..errors import InvalidSettings
from ..oauth.sealing import Sealer
from ..settings import as_settings, check_fields, shown
from ..surface import check_function
from ..words import said

__all__ = [
    "Approval",
    "HttpServer",
    "LocalServer",
    "McpServer",
    "Network",
    "OAuthClient",
    "Place",
    "ServerState",
    "StdioServer",
    "Transport",
    "check_added",
    "place_of",
]

LONGEST_NAME = 100
MOST_HEADER_BYTES = 16_000
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_OURS = ("host", "content-length", "transfer-encoding", "connection", "mcp-session-id")
"""Headers that are the transport's."""

Transport = Literal["auto", "streamable-http", "sse"]
Approval = Literal["never", "destructive", "always"] | Callable[..., Any]
"""Which calls a person is asked about: none, those of tools that say they destroy something (or do not say
that they only read), all, or those for which a function of the tool's name and its input says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    """How the tools of a server are used."""

    approval: Approval = "never"
    """Which calls a person is asked about first."""
    tools: Sequence[str] | None = None
    """The names of the tools that are offered; `None`: all."""
    timeout: float = 60.0
    """Seconds a call may take without a sign of life."""
    total_timeout: float = 600.0
    """Seconds it may take in all."""


@dataclass(frozen=True, slots=True)
class HttpServer(_Used):
    """A server on the network."""

    url: str
    transport: Transport = field(default="auto", kw_only=True)
    """`"auto"` tries streamable HTTP and then server-sent events."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], kw_only=True, repr=False)
    """Sent with each request. Kept as a secret."""

    def __post_init__(self) -> None:
        check_fields(self, "HttpServer")
        _check_approval(self.approval, "HttpServer")
        _check_headers(self.headers)


@dataclass(frozen=True, slots=True)
class StdioServer(_Used):
    """A process that is started for this app, and speaks on its standard input and output.

    It gets a handful of harmless variables of our environment (`HOME`, `PATH`, …) and those named here.
    """

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], kw_only=True, repr=False)
    """More variables, with their values."""
    inherit: Sequence[str] = field(default=(), kw_only=True)
    """The names of variables of ours that it gets too."""
    cwd: str | None = field(default=None, kw_only=True)
    """The folder it runs in."""

    def __post_init__(self) -> None:
        check_fields(self, "StdioServer")
        _check_approval(self.approval, "StdioServer")


@dataclass(frozen=True, slots=True)
class LocalServer(_Used):
    """A server in this process: an `MCPServer` of the `mcp` package."""

    server: Any

    def __post_init__(self) -> None:
        check_fields(self, "LocalServer")
        _check_approval(self.approval, "LocalServer")


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """Who we are to an authorization server at which somebody has registered us by hand."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    """What to ask for, separated by spaces. Left out: what the server names."""


Place = HttpServer | StdioServer | LocalServer
ServerState = Literal["not-connected", "connecting", "discovering", "ready", "failed", "authenticating"]


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of an agent, as it stands."""

    id: str
    name: str
    url: str
    state: ServerState
    error: str | None = None
    auth_url: str | None = field(default=None, repr=False)
    """Where a person has to go to let the agent in. It is for that person alone."""
    tools: tuple[str, ...] = ()
    """The names by which the model calls its tools."""
    is_shared: bool = False
    """True for one of the app's, which every agent has."""


def _check_approval(approval: Any, where: str) -> None:
    if callable(approval):
        check_function(f"{where}.approval", approval, ("tool", "input"))


def check_added(name: str, place: HttpServer) -> None:
    """Raise `InvalidSettings` about what cannot be kept, or sent, of a server that is added by an agent."""
    if len(name) > LONGEST_NAME or said(name) != name:
        raise _refused(
            f"the name {said(name, 40)!r} has more than {LONGEST_NAME} characters, or some that nobody sees",
            "Give a short one in letters and digits.",
        )
    if callable(place.approval):
        raise _refused(
            "approval is a function, which is not there any more after a restart",
            'Say "never", "destructive" or "always"; or give the server to the app, which has the function'
            " each time: App(mcp_servers={…: HttpServer(url, approval=function)}).",
        )


def _refused(what: str, next_step: str) -> InvalidSettings:
    return InvalidSettings(f"add_mcp_server: {what}.", kept="Nothing was added.", next_step=next_step)


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise about what nobody can send. Values are secrets: no word of one is said."""
    for header, value in headers.items():
        if not _TOKEN.fullmatch(header) or not value.isascii() or not value.isprintable():
            raise InvalidSettings(
                f"HttpServer.headers: the header {header[:60]!r} cannot be sent as it is.",
                next_step="Headers are one line of plain ASCII. If it was read from a file, strip() it.",
            )
        if header.lower() in _NOT_OURS:
            raise InvalidSettings(
                f"HttpServer.headers: the header {header!r} is the transport's own.",
                next_step="Leave it out.",
            )
    if sum(len(header) + len(value) for header, value in headers.items()) > MOST_HEADER_BYTES:
        raise InvalidSettings(
            f"HttpServer.headers has more than {MOST_HEADER_BYTES} bytes.",
            next_step="Servers do not take that many.",
        )


def place_of(given: Any, where: str) -> Place:
    """What an application gave for a server: a URL, one of these values, a dict of one, or an `MCPServer`."""
    if isinstance(given, HttpServer | StdioServer | LocalServer):
        return given
    if isinstance(given, str):
        if urlsplit(given).scheme not in ("http", "https"):
            raise InvalidSettings(
                f"{where} is {given!r}, which is no address of a server.",
                next_step='Write "https://…/mcp", or StdioServer("command", ("argument",)) for a process.',
            )
        return HttpServer(given)
    if isinstance(given, Mapping):
        fields = cast("Mapping[str, Any]", given)
        kind = StdioServer if "command" in fields else HttpServer
        return as_settings(kind, dict(fields), where)
    if type(given).__module__.split(".")[0] == "mcp":
        return LocalServer(given)
    raise InvalidSettings(
        f"{where} is {shown(given)}.",
        next_step='It takes an address, "https://…/mcp", an HttpServer, a StdioServer or an MCPServer.',
    )


@dataclass(slots=True)
class Network:
    """How servers are reached."""

    sealer: Sealer
    version: str = "0"
    """What we say about ourselves."""
    loopback: bool = False
    """True lets agents add servers on this machine. `everthink dev` sets it."""
    allow: Sequence[str] = ()
    """Hosts near us that agents may add servers of."""
    prefix: str = "agents"
    """Below which path the agents are."""
