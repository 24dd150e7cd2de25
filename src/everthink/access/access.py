"""Who may come in, and with which permissions: asked before anything is accepted, started or read.

    Gate, devtools --connection--> Access.enter --> Pass, or the response that refuses
    MCP --connection--> Access.known, and of which agent is asked for --> Access.admit
    ChatSockets --a call--> Access.may_call --> why not, or nothing

Every way in asks the same questions in the same order: the host, the origin, `authenticate`,
`authorize`, `on_before_connect` or `on_before_request`. A check that raises, or that answers with
something we do not understand, refuses.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from ..address import Address, kebab
from ..calling import call_hook
from ..clock import Clock
from ..errors import UNTOLD, AgentError
from ..identity import PERMISSIONS, Granted, Permission, kept, mark_of, moment_of, nobody_by, permissions_of
from ..observe.bus import EventBus
from ..settings import shown
from .audit import NOBODY, Auditor
from .origins import Hosts, Origins, own_origin, read_origin

__all__ = ["Access", "Action", "AgentAddress", "Checks", "Pass", "address_of", "raised"]

log = logging.getLogger("everthink.server")

Action = Literal["connect", "request", "read", "inspect", "call"]
"""What `authorize` is asked about: a socket, HTTP to `on_request`, `get-messages`, the page of
`everthink dev`, a method call."""


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """The agent that somebody wants to reach, for `authorize`. It need not exist yet."""

    cls: type[Any]
    """Its class."""
    name: str
    """Its name, as it stands in the address."""

    @property
    def kind(self) -> str:
        """Its class as it stands in the address: `travel-agent`."""
        return kebab(self.cls.__name__)

    @property
    def id(self) -> str:
        """Class and name, as in `Agent.id`."""
        return Address(self.cls.__name__, self.name).id


@dataclass(frozen=True, slots=True)
class Pass:
    """Somebody who may come in."""

    identity: Any = None
    """What `authenticate` said."""
    who: Any = None
    """The same as JSON."""
    mark: str | None = None
    """The same made short, to compare people by."""
    until: float | None = None
    """When it ends, in seconds since 1970."""
    permissions: frozenset[Permission] = PERMISSIONS


@dataclass(frozen=True, slots=True)
class Checks:
    """What an application says about who may come in: see `App`."""

    hosts: Hosts
    """The names by which it may be asked for."""
    origins: Origins
    """The pages of others that may change something."""
    authenticate: Callable[..., Any] | None = None
    authorize: Callable[..., Any] | None = None
    on_before_connect: Callable[..., Any] | None = None
    on_before_request: Callable[..., Any] | None = None

    @property
    def undecided(self) -> str:
        """The ways in for which nobody decides about agents by name."""
        if self.authenticate is None or self.authorize is not None:
            return ""
        ways = {"sockets": self.on_before_connect, "HTTP requests": self.on_before_request}
        return " and ".join(way for way, check in ways.items() if check is None)


class _Refused(Exception):
    """Somebody may not come in."""

    def __init__(self, response: Response, reason: str) -> None:
        super().__init__(reason)
        self.response, self.reason = response, reason


class Access:
    """The checks of one app."""

    def __init__(self, checks: Checks, events: EventBus, clock: Clock) -> None:
        self.checks, self._clock = checks, clock
        self.audit = Auditor(events, clock)
        if checks.undecided:
            log.warning(
                "App(authenticate=…) says who somebody is, and nothing says which agents they may reach: %s"
                " are open to everybody who is authenticated. Decide by name with"
                " App(authorize=lambda identity, action, agent: agent.name == identity), or return True there"
                " if that is meant.",
                checks.undecided,
            )

    # --- where they come from

    def is_named(self, connection: HTTPConnection) -> bool:
        """True when the request asks for us by a name of ours (`allow_hosts`)."""
        return self.checks.hosts.allows(connection.headers.getlist("host"))

    def is_foreign(self, connection: HTTPConnection) -> bool:
        """True when a browser asks on behalf of another site. Other clients send no origin."""
        return self.checks.origins.are_foreign(
            connection.headers.getlist("origin"),
            scheme=connection.scope.get("scheme", "http"),
            host=connection.headers.get("host", ""),
        )

    def wrong_host(self, connection: HTTPConnection) -> Response:
        """Refuse a request that asks for us by another's name."""
        asked = ", ".join(connection.headers.getlist("host"))
        self.audit.refused(NOBODY, "connect", "host not allowed", address=address_of(connection))
        log.warning("a request for the host %r is refused: it is not among allow_hosts.", asked)
        return PlainTextResponse(
            "This server does not answer to the name that was asked for. Nothing was shown."
            " To allow it, name it in App(allow_hosts=[…]).",
            403,
        )

    def wrong_origin(self, connection: HTTPConnection, action: Action, cls: Any, name: str) -> Response:
        """Refuse a page of another site. `cls` is `None` where no agent is named yet."""
        origin = connection.headers.get("origin", "")
        agent, address = _agent(cls, name), address_of(connection)
        self.audit.refused(agent, action, "origin not allowed", address=address)
        why = f"its origin {origin} is not allowed (allow_origins=[{origin!r}] would)"
        ours = own_origin(connection.scope.get("scheme", "http"), connection.headers.get("host", ""))
        theirs = read_origin(origin)
        if ours and theirs and (ours.scheme, theirs.scheme) == ("http", "https") and ours.host == theirs.host:
            why += "; if a proxy in front speaks https, let it send X-Forwarded-Proto, and trust it"
        log.warning("%s is refused with 403: %s.", connection.url.path, why)
        return PlainTextResponse("Origin not allowed", 403)

    # --- who they are, and what they may

    async def enter(self, connection: HTTPConnection, action: Action, cls: Any, name: str) -> Pass | Response:
        """What the application's own checks say: who may come in, or the refusal.

        What `authenticate` says is kept as `connection.state.identity`.
        """
        known = await self.known(connection, action, cls, name)
        if isinstance(known, Response):
            return known
        return await self.admit(connection, known, action, cls, name)

    async def known(
        self, connection: HTTPConnection, action: Action, cls: Any = None, name: str = ""
    ) -> Pass | Response:
        """Who it is, or the refusal: the first half of `enter`. They have been let in to nothing yet."""
        try:
            known = await self._authenticated(connection)
            connection.state.identity = known.identity
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody comes in
            return self._refused(connection, error, action, cls, name)
        return known

    async def admit(
        self, connection: HTTPConnection, known: Pass, action: Action, cls: Any, name: str
    ) -> Pass | Response:
        """Whether somebody who is known may come in to this agent, or the refusal: the second half."""
        try:
            allowed = await self._authorized(known.identity, action, AgentAddress(cls, name))
            await self._before(connection, cls, name)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody comes in
            return self._refused(connection, error, action, cls, name, known.who)
        # Mostly a set that there is: one of its own weighs half a kilobyte, for each connection.
        permissions = known.permissions if known.permissions <= allowed else known.permissions & allowed
        connection.state.permissions = permissions
        return Pass(known.identity, known.who, known.mark, known.until, permissions)

    def _refused(
        self,
        connection: HTTPConnection,
        error: Exception,
        action: Action,
        cls: Any,
        name: str,
        who: Any = None,
    ) -> Response:
        is_meant = isinstance(error, _Refused)
        response = error.response if is_meant else raised(connection, "a check", error)
        reason = error.reason if is_meant else "a check raised"
        address = address_of(connection)
        self.audit.refused(_agent(cls, name), action, reason, identity=who, address=address)
        return response

    async def refusal(self, connection: HTTPConnection) -> Response | None:
        """The answer to somebody whom `authenticate` does not know; `None` when it does."""
        try:
            await self._authenticated(connection)
        except _Refused as refused:
            return refused.response
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody is known
            return raised(connection, "authenticate", error)
        return None

    async def among(
        self, connection: HTTPConnection, action: Action, cls: Any, names: Sequence[str]
    ) -> list[str] | Response:
        """Those of these agents that somebody may reach, or the refusal when it is not known who they are.

        Nobody asked for the others by name: they are left out, and that is no refusal to tell of.
        """
        try:
            known = await self._authenticated(connection)
            connection.state.identity = known.identity
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is shown
            is_meant = isinstance(error, _Refused)
            reason = error.reason if is_meant else "a check raised"
            self.audit.refused(_agent(cls), action, reason, address=address_of(connection))
            return error.response if is_meant else raised(connection, "a check", error)
        return [name for name in names if await self._may(connection, known, action, cls, name)]

    async def _may(
        self, connection: HTTPConnection, known: Pass, action: Action, cls: Any, name: str
    ) -> bool:
        try:
            await self._authorized(known.identity, action, AgentAddress(cls, name))
            await self._before(connection, cls, name)
        except (_Refused, HTTPException):
            return False
        except Exception as error:  # whatever it is, it is not shown
            log.error("a check raised for %s/%s", cls.__name__, name, exc_info=error)
            return False
        return True

    async def may_change(self, entered: Pass, cls: Any, name: str) -> bool:
        """True when somebody who came in another way might do everything on a socket, too."""
        try:
            allowed = await self._authorized(entered.identity, "connect", AgentAddress(cls, name))
        except (_Refused, HTTPException):
            return False
        except Exception as error:  # whatever it is, nothing is changed
            log.error("authorize raised for %s/%s", cls.__name__, name, exc_info=error)
            return False
        return entered.permissions & allowed == PERMISSIONS

    async def may_call(self, identity: Any, cls: Any, name: str) -> str | None:
        """Why somebody may not call a method of the agent, in words for them; `None` when they may."""
        try:
            await self._authorized(identity, "call", AgentAddress(cls, name))
        except _Refused:
            return "Not allowed"
        except HTTPException as error:
            return error.detail
        except Exception as error:  # whatever it is, nothing is called
            log.error("authorize raised for a call of %s/%s", cls.__name__, name, exc_info=error)
            return UNTOLD
        return None

    async def _authenticated(self, connection: HTTPConnection) -> Pass:
        check = self.checks.authenticate
        if check is None:
            return Pass()
        said = await call_hook(check, connection)
        if isinstance(said, Response):
            raise _Refused(said, "not authenticated")
        if not said:
            raise _Refused(PlainTextResponse("Unauthorized", 401), "not authenticated")
        granted = said if isinstance(said, Granted) else Granted(said)
        identity, until = granted.identity, moment_of(granted.until)
        if isinstance(identity, Response):
            raise _Refused(identity, "not authenticated")
        if not identity and granted.permissions is None:  # a guest is one by what they may do
            raise _Refused(PlainTextResponse("Unauthorized", 401), "not authenticated")
        _check_somebody(identity)
        if identity and (why := nobody_by(identity)) is not None:
            log.error(
                "authenticate returned %s, %s: nobody was let in. Return who it is (a name, or a dict or an"
                " object with an id), or None.",
                type(identity).__name__ if not isinstance(identity, type) else identity.__name__,
                why,
            )
            raise _Refused(PlainTextResponse("Unauthorized", 401), "not authenticated")
        if until is not None and until * 1000 <= self._clock.now_ms():
            raise _Refused(PlainTextResponse("Session expired", 401), "expired")
        permissions = PERMISSIONS
        if granted.permissions is not None:
            permissions = permissions_of(granted.permissions, "Granted(permissions=…)")
        return Pass(identity, kept(identity), mark_of(identity), until, permissions)

    async def _authorized(self, identity: Any, action: Action, agent: AgentAddress) -> frozenset[Permission]:
        check = self.checks.authorize
        if check is None:
            return PERMISSIONS
        said = await call_hook(check, identity, action, agent)
        if said is True:
            return PERMISSIONS
        if isinstance(said, Response):
            raise _Refused(said, "not authorized")
        if not said:
            raise _Refused(PlainTextResponse("Forbidden", 403), "not authorized")
        if isinstance(said, Collection) and not isinstance(said, str | bytes | dict):
            named = permissions_of(cast("Collection[Any]", said), "authorize")
            if action == "call" and "call" not in named:
                raise _Refused(PlainTextResponse("Forbidden", 403), "not authorized")
            return named
        raise AgentError(
            f"authorize returned {said!r} for {action!r} of {agent.id}.",
            kept="Nobody was let in.",
            next_step="Return True, False, a response, or the names of permissions.",
        )

    async def _before(self, connection: HTTPConnection, cls: Any, name: str) -> None:
        is_socket = connection.scope["type"] == "websocket"
        hook = "on_before_connect" if is_socket else "on_before_request"
        check: Callable[..., Any] | None = getattr(self.checks, hook)
        if check is None:
            return
        said = await call_hook(check, connection, cls, name)
        if isinstance(said, Response):
            raise _Refused(said, hook)
        if said is False:
            raise _Refused(PlainTextResponse("Forbidden", 403), hook)
        if said is not None and said is not True:
            raise AgentError(
                f"{hook} returned {said!r}.",
                kept="Nobody was let in.",
                next_step="Return None or True to go on, False or a response to refuse.",
            )


def raised(connection: HTTPConnection, what: str, error: Exception) -> Response:
    """The answer to a request for which the application's code raised.

    What it says stays in the log, unless it is an `HTTPException`, which is made to be an answer.
    """
    if isinstance(error, HTTPException):
        return PlainTextResponse(error.detail, error.status_code, headers=error.headers)
    log.error("%s raised for %s", what, connection.url.path, exc_info=error)
    return PlainTextResponse("Internal Server Error", 500)


def address_of(connection: HTTPConnection) -> str | None:
    """Where a request comes from, as far as the server knows."""
    return connection.client.host if connection.client else None


def _agent(cls: Any, name: str = "") -> Address:
    return NOBODY if cls is None else Address(cls.__name__, name)


# --- reading the answers


def _check_somebody(identity: Any) -> None:
    """Raise when what came in the place of a person can be none."""
    if isinstance(identity, Exception):
        raise identity  # returned by mistake; nobody is called by the name of an error
    if isinstance(identity, Granted):
        raise AgentError(
            "authenticate returned a Granted inside of a Granted.",
            kept="Nobody was let in.",
            next_step="Return one: Granted(identity, until=…, permissions=…).",
        )
    if isinstance(identity, bytes | bytearray):
        raise AgentError(
            f"authenticate returned {shown(identity)}, which does not say who it is.",
            kept="Nobody was let in.",
            next_step="Return a name, or a dict or an object with an id: what somebody said is kept by it."
            " A guest is Granted(None, permissions=[…]).",
        )
    if inspect.isroutine(identity) or inspect.isgenerator(identity) or inspect.isasyncgen(identity):
        raise AgentError(
            f"authenticate returned {identity!r}, which is nobody.",
            kept="Nobody was let in.",
            next_step="Return who it is, or nothing.",
        )
