"""Who may come in: the origin of a browser, and the application's own checks.

    Gate, devtools --connection--> is_foreign, refusal --> a refusal, or nothing

Nothing is accepted, started or read before these have been asked.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from .app import App

__all__ = ["is_foreign", "raised", "refusal"]

log = logging.getLogger("everthink.server")


def is_foreign(app: App, connection: HTTPConnection) -> bool:
    """True when a browser asks on behalf of another site. Other clients send no origin."""
    origin = connection.headers.get("origin")
    if origin is None or "*" in app.allow_origins or origin in app.allow_origins:
        return False
    return urlsplit(origin).netloc != connection.headers.get("host")


async def refusal(app: App, connection: HTTPConnection, cls: Any, name: str) -> Response | None:
    """What the application's own checks say to a connection to this agent: a refusal, or `None`.

    What `authenticate` returns is kept as `connection.state.identity`. A check that raises refuses: what
    it says stays in the log, unless it is an `HTTPException`, which is made to be an answer.
    """
    try:
        return await _checked(app, connection, cls, name)
    except Exception as error:  # noqa: BLE001 - whatever it is, nobody comes in
        return raised(connection, "a check", error)


def raised(connection: HTTPConnection, what: str, error: Exception) -> Response:
    """The answer to a request for which the application's code raised."""
    if isinstance(error, HTTPException):
        return PlainTextResponse(error.detail, error.status_code, headers=error.headers)
    log.error("%s raised for %s", what, connection.url.path, exc_info=error)
    return PlainTextResponse("Internal Server Error", 500)


async def _checked(app: App, connection: HTTPConnection, cls: Any, name: str) -> Response | None:
    if app.authenticate is not None:
        identity = app.authenticate(connection)
        if inspect.isawaitable(identity):
            identity = await identity
        if identity is None or identity is False:
            return PlainTextResponse("Unauthorized", 401)
        connection.state.identity = identity
    is_socket = connection.scope["type"] == "websocket"
    check = app.on_before_connect if is_socket else app.on_before_request
    if check is not None:
        answer = check(connection, cls, name)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Response):
            return answer
    return None
