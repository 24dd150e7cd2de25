"""The ASGI edge: addresses to agents, HTTP and sockets to halls.

    uvicorn --scope--> Gate --> /agents/{class}/{name} --> Hall        (anything else: 404)

Nothing is accepted before the origin, the application's own check and the address are fine.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..messages import encode_json
from .connections import Connection
from .hall import Hall
from .names import kebab

if TYPE_CHECKING:
    from .app import App

__all__ = ["Gate"]

log = logging.getLogger("everthink.server")

CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "86400",
}


class Gate:
    """Serves the agents of an app."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._halls: dict[str, Hall] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, one socket, or the server's life."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await self._socket(WebSocket(scope, receive, send))
        else:
            response = await self._http(Request(scope, receive))
            await response(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._app.open()
                except Exception as error:  # noqa: BLE001 - the server prints it and stops
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._app.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def close(self, agent: str | None = None) -> None:
        """Close the connections of one agent, or all, with a code clients come back from."""
        for id in [agent] if agent is not None else list(self._halls):
            if (hall := self._halls.pop(id, None)) is not None:
                hall.close_all(1012, "Service restart")

    # --- finding the agent

    def _address(self, connection: HTTPConnection) -> tuple[Any, str, str] | Response | None:
        """Class, name and the rest of the path; a refusal; or `None` when it is not about agents."""
        scope = connection.scope
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        root = quote(scope.get("root_path", ""))
        path = raw.decode("ascii", "replace").partition("?")[0].removeprefix(root)
        parts = [part for part in path.split("/") if part]
        prefix = self._app.prefix
        if parts[: len(prefix)] != prefix or len(parts) < len(prefix) + 2:
            return None
        kind, name, *rest = parts[len(prefix) :]
        for cls in self._app.classes:
            if kebab(cls.__name__) == kind:
                return cls, name, "/".join(rest)
        return PlainTextResponse("Invalid request", 400)

    async def _hall(self, cls: Any, name: str) -> Hall:
        actor = await (await self._app.open()).reach(cls, name)
        hall = self._halls.get(actor.id)
        if hall is None or hall.actor is not actor:
            hall = self._halls[actor.id] = Hall(actor)
            actor.hall = hall
            actor.state_box.changed = hall.state_changed
        return hall

    def _is_foreign(self, connection: HTTPConnection) -> bool:
        origin = connection.headers.get("origin")
        if origin is None or "*" in self._app.allow_origins or origin in self._app.allow_origins:
            return False
        return urlsplit(origin).netloc != connection.headers.get("host")

    async def _allowed(self, connection: HTTPConnection, cls: Any, name: str) -> Response | None:
        """A refusal, or `None`. What `authenticate` returns is kept as `connection.state.identity`."""
        app = self._app
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

    # --- HTTP

    async def _http(self, request: Request) -> Response:
        found = self._address(request)
        if found is None:
            return await self._app.on_other_request(request)
        if isinstance(found, Response):
            return found
        response = await self._agent_http(request, *found)
        if self._app.cors:
            response.headers.update(CORS if self._app.cors is True else self._app.cors)
        return response

    async def _agent_http(self, request: Request, cls: Any, name: str, rest: str) -> Response:
        if request.method == "OPTIONS" and self._app.cors:
            return Response()
        if request.method not in ("GET", "HEAD", "OPTIONS") and self._is_foreign(request):
            return PlainTextResponse("Origin not allowed", 403)
        refusal = await self._allowed(request, cls, name)
        if refusal is not None:
            return refusal
        try:
            hall = await self._hall(cls, name)
            if rest.rpartition("/")[2] == "get-messages":
                messages = await hall.actor.session.get_history()
                return Response(encode_json(messages), media_type="application/json")
            answer = hall.actor.agent.on_request(request)
            answer = await answer if inspect.isawaitable(answer) else answer
        except Exception:
            log.exception("%s %s failed", request.method, request.url.path)
            return PlainTextResponse("Internal Server Error", 500)
        if answer is None:
            return PlainTextResponse("Not implemented", 404)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    # --- sockets

    async def _socket(self, socket: WebSocket) -> None:
        found = self._address(socket)
        refusal: Response | None = PlainTextResponse("Not Found", 404) if found is None else None
        if isinstance(found, Response):
            refusal = found
        elif self._is_foreign(socket):
            refusal = PlainTextResponse("Origin not allowed", 403)
        elif found is not None:
            refusal = await self._allowed(socket, found[0], found[1])
        if refusal is not None or found is None or isinstance(found, Response):
            if "websocket.http.response" in (socket.scope.get("extensions") or {}):
                await socket.send_denial_response(refusal or PlainTextResponse("Not Found", 404))
            else:
                await socket.close()  # the server answers 403: it cannot carry our own refusal
            return
        cls, name, _ = found
        try:
            hall = await self._hall(cls, name)
        except Exception:
            log.exception("%s %r could not be started", cls.__name__, name)
            await socket.accept()
            await socket.close(1011, "The agent could not be started")
            return
        await socket.accept()
        await self._serve(socket, hall)

    async def _serve(self, socket: WebSocket, hall: Hall) -> None:
        id = socket.query_params.get("_pk") or str(uuid.uuid4())
        connection = Connection(id, socket, socket)
        pump: asyncio.Task[None] | None = None
        ended = (1006, "")
        try:
            # The greeting waits in the buffer until the connect hook has agreed.
            await hall.join(connection, socket)
        except Exception as error:  # noqa: BLE001 - the connect hook said no
            log.warning("on_connect raised: %s", error)
            ended = (1011, "Uncaught exception during session setup")
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await socket.send_text(encode_json({"error": str(error)}).decode())
                await socket.close(*ended)
        else:
            pump = asyncio.create_task(connection.pump(), name=f"socket {id}")
            ended = await self._listen(connection, socket, hall)
        finally:
            connection.is_open = False
            await hall.leave(connection, *ended)
            if pump is not None:
                pump.cancel()
                with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect):
                    await pump

    async def _listen(self, connection: Connection, socket: WebSocket, hall: Hall) -> tuple[int, str]:
        """Receive until the connection ends. How it was closed."""
        try:
            while True:
                message = await socket.receive()
                if message["type"] == "websocket.disconnect":
                    return message.get("code", 1006), message.get("reason") or ""
                text = message.get("text")
                await hall.receive(connection, text if text is not None else message.get("bytes", b""))
        except (WebSocketDisconnect, RuntimeError) as gone:
            log.debug("socket %s ended: %s", connection.id, gone)
            return 1006, ""
