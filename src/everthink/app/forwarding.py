"""Requests at addresses of your own that are for a child: `/chat/sub/researcher/notes`.

    a route of yours --request--> route_sub_agent --> the app, at the address that the child has there

The app's checks, and the gates of those above the child, are asked as for that address: a route of your own
opens no second way in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from ..address import kebab
from ..children.paths import SUB, BadName, Called, NoSuchClass, read_hops
from ..server.routes import path_of

__all__ = ["Forwarded", "below", "moved", "refusal"]


class Forwarded(Response):
    """What somebody else answers: sent when it is called, as any response."""

    def __init__(self, app: Callable[..., Awaitable[None]], scope: dict[str, Any]) -> None:
        super().__init__()
        self._app, self._scope = app, scope

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let the app answer. `scope` is that of the address where it was asked."""
        await self._app(self._scope, receive, send)


def below(connection: HTTPConnection, from_path: str | None) -> tuple[list[str], str | None]:
    """The segments from the first `sub` on, and the query that was given with them."""
    path, mark, query = (path_of(connection.scope) if from_path is None else from_path).partition("?")
    segments = [segment for segment in path.split("/") if segment]
    return segments[segments.index(SUB) :] if SUB in segments else [], query if mark else None


def moved(connection: HTTPConnection, path: str, query: str | None) -> dict[str, Any]:
    """The scope of a request as if it had come to another address."""
    scope = {**connection.scope, "path": unquote(path), "raw_path": path.encode(), "root_path": ""}
    return scope if query is None else {**scope, "query_string": query.encode()}


def refusal(
    segments: Sequence[str], classes: Mapping[str, type[Any]], parent: type[Any], called: Called
) -> Response | None:
    """Why nobody is at these segments below a parent; `None`: somebody may be."""
    if not segments:
        return PlainTextResponse("Bad Request", 400)
    nobody = PlainTextResponse(f"Sub-agent route not found for parent {kebab(parent.__name__)!r}.", 404)
    try:
        hops, rest = read_hops(segments, classes, parent, called)
    except NoSuchClass:
        return nobody
    except BadName:
        return PlainTextResponse("Bad Request", 400)
    return None if hops and rest[:1] != (SUB,) else nobody
