"""Whom an address names, and whether those above it let somebody reach it.

    /agents/{class}/{name}/sub/{class}/{name}/… --find--> Place --barred--> each parent, about the next one

The application's own checks are asked about the outermost agent, and come first (access/). Then the parents
narrow it, from the outside in. An address alone makes a child only of a class that its parent declares.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response

from ..access.access import Action, Pass, address_of
from ..access.audit import Auditor
from ..address import MAX_NAME, Address, from_address, kebab
from ..children.declared import children_of
from ..children.paths import OF_A_CALL, BadName, Called, NoSuchClass, read_hops
from ..errors import AgentError
from ..settings import is_ours
from .answers import refused
from .routes import segments_of

if TYPE_CHECKING:
    from ..runtime.directory import Directory

__all__ = ["Barred", "Place", "Places", "Visitor"]


@dataclass(frozen=True, slots=True)
class Place:
    """Whom an address names."""

    cls: type[Any]
    """The class of the outermost agent: it and its name are what the checks are asked about."""
    name: str
    address: Address
    """Of the agent itself."""
    target: type[Any]
    """Its class."""
    rest: tuple[str, ...]
    """The segments that follow."""

    def asked(self, request: Request) -> Request:
        """The request as the agent has it: for a child, its path begins after the child's name."""
        if not self.address.parents:
            return request
        raw = "/" + "/".join(self.rest)
        scope = {**request.scope, "path": unquote(raw), "raw_path": raw.encode(), "root_path": ""}
        return Request(scope, request.receive)


@dataclass(frozen=True, slots=True)
class Barred:
    """Why somebody does not reach a child."""

    response: Response
    by_parent: bool = True
    """False when it is for want of room, and nobody was asked."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who wants to reach an agent, and has passed the checks of the application."""

    connection: HTTPConnection
    place: Place
    action: Action
    entered: Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The addresses of an app."""

    open: Callable[[], Awaitable[Directory]]
    prefix: Sequence[str]
    classes: Mapping[str, type[Any]]
    """The agent classes, by what they are called in an address."""
    called: Called | None
    """What children are called in an address, besides their classes."""
    audit: Auditor
    in_time: Callable[[HTTPConnection, Awaitable[Any], Action, str, str], Awaitable[Any]]
    """What a check says, if it does so in time; else the refusal."""
    may_create: Callable[[HTTPConnection, Address], Response | None]
    """Why somebody may not make one more agent."""

    # --- whom an address names

    async def find(self, connection: HTTPConnection, values: Mapping[str, str]) -> Place | Response:
        """The agent that an address names; or a refusal."""
        kind, written = values["class"], values["name"]
        name, cls = from_address(written), self.classes.get(kind)
        if cls is None:
            known = ", ".join(sorted({kebab(cls.__name__) for cls in self.classes.values()}))
            return refused(connection, 400, "Invalid request", f"there is no agent {kind!r} (known: {known})")
        if len(name) > MAX_NAME:
            why = f"its name is longer than {MAX_NAME} characters"
            return refused(connection, 400, "Invalid request", why)
        following = segments_of(connection.scope)[len(self.prefix) + 2 :]
        try:
            place = await self.place(cls, name, following)
        except NoSuchClass as error:
            return refused(connection, 404, "Not Found", str(error))
        except BadName as error:
            return refused(connection, 400, "Bad Request", f"the name of a child in it is none: {error}")
        except AgentError as error:
            return refused(connection, 400, "Bad Request", error.what)
        if not place.address.parents:
            # As it is written: a client is told the name that it has asked for.
            connection.scope["everthink.name"] = written
        return place

    async def place(self, cls: type[Any], name: str, following: Sequence[str]) -> Place:
        """Whom the segments that follow the name of an agent are about: it, or a child.

        Raises `BadName` and `AgentError` for what can be no agent.
        """
        directory = await self.open()
        address = directory.address(cls, name)
        hops, rest = read_hops(following, directory.children_called(), cls, self.called)
        for child, called in hops:
            address = directory.address(child, called, below=address)
        return Place(cls, name, address, hops[-1][0] if hops else cls, rest)

    # --- what its parents say

    async def barred(self, visitor: Visitor, *, is_nobody: bool = False) -> Barred | None:
        """Why somebody may not reach a child: what its parents say, each of the next; `None`: they may.

        `is_nobody`: there is no such child, and none is made. Then no parent is made to be asked, either.
        """
        directory, connection = await self.open(), visitor.connection
        for above, below in pairwise(visitor.place.address.family):
            parent, child = (directory.classes[one.cls_name] for one in (above, below))
            if child not in children_of(parent) and not await directory.exists(below):
                why = f"a {parent.__name__} has no {child.__name__} of that name"
                return Barred(refused(connection, 404, "Not Found", why))
            if not is_nobody and below.name.startswith(OF_A_CALL) and not await directory.exists(below):
                why = "the child of a call is made by that call, and nobody speaks to it before"
                return Barred(refused(connection, 404, "Not Found", why))
            if not _decides(parent):
                continue
            if not await directory.exists(above):
                if is_nobody:
                    return None
                if (full := self.may_create(connection, above)) is not None:
                    return Barred(full, by_parent=False)
            answer = await self._gated(visitor, above, below)
            if answer is not None:
                self._tell(visitor)
                return Barred(answer)
        return None

    async def _gated(self, visitor: Visitor, above: Address, below: Address) -> Response | None:
        """What a parent says of somebody who wants to reach one of its children; `None`: they may."""
        directory, place = await self.open(), visitor.place
        actor = await directory.reach(above)
        with actor.hold():
            child = directory.classes[below.cls_name]
            asked = actor.hooks.on_before_sub_agent(visitor.connection, child, below.name)
            try:
                answer = await self.in_time(
                    visitor.connection, asked, visitor.action, place.cls.__name__, place.name
                )
            except HTTPException as error:
                return PlainTextResponse(error.detail, error.status_code, headers=error.headers)
        if isinstance(answer, Response):
            return answer
        if answer is False:
            return PlainTextResponse("Forbidden", 403)
        if answer is None or answer is True:
            return None
        raise AgentError(
            f"{above.cls_name}.on_before_sub_agent returned {answer!r}.",
            kept="Nobody was let in.",
            next_step="Return None or True to go on, False or a response to refuse.",
        )

    def _tell(self, visitor: Visitor) -> None:
        self.audit.refused(
            visitor.place.address,
            visitor.action,
            "refused by a parent",
            identity=visitor.entered.who,
            address=address_of(visitor.connection),
        )


def _decides(cls: type[Any]) -> bool:
    """True for a class that says who may reach its children."""
    hook = "on_before_sub_agent"
    return not is_ours(next(base for base in cls.__mro__ if hook in vars(base)))
