"""The ASGI edge: addresses to agents, HTTP requests and sockets to who answers them.

    uvicorn --scope--> Gate --> a row of its tables (routes.py) --> whom it names (places.py) --> AgentSockets

Nothing is accepted before the host, the address, the origin and the application's own checks are fine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..access.access import (
    Access,
    Action,
    Pass,
    address_of,
    raised,
)
from ..access.audit import NOBODY
from ..access.crowd import Crowd, place_of
from ..access.expiry import close_when_expired
from ..address import Address
from ..calling import awaited
from ..children.paths import Called
from ..clock import Clock
from ..current import current_origin, origin_of
from ..errors import UNTOLD, AgentElsewhere, AgentError, AgentSetAside, LeaseLost
from ..limits import Limits
from ..messages import encode_json
from ..oauth.callback import Callback, read_callback
from ..runtime.actor import Actor
from .agent_sockets import AgentSockets
from .answers import Answer, Told, as_response, refused, with_headers, with_headers_on
from .arriving import arrived
from .authorizing import came_back, strange
from .bodies import bounded
from .chat_sockets import ChatSockets
from .connections import Connection
from .places import Place, Places, Visitor
from .routes import Found, Route, Routes, path_of, segments_of
from .waiting import Buffers

if TYPE_CHECKING:
    from ..runtime.directory import Directory

__all__ = ["Gate", "Served", "deny"]

log = logging.getLogger("everthink.server")

NO_CAPNWEB = "The Cap'n Web transport is not supported. Connect with the default one, cf-websocket."
SET_ASIDE = "The agent is set aside: its start stopped the server too often. It must be released."
"""Why a socket is closed; a reason may have 123 bytes."""
ELSEWHERE = "Another server process has this conversation open. Please try again in a moment."
LATER = {"Retry-After": "1"}
NOT_YET = "This agent does not exist yet, and nothing is made by looking."
BEGINS = "It begins with its first message."
BEGINS_PLAINLY = "It begins when somebody connects to it, or calls one of its methods."
SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that only look: they make no agent."""
FROM_ANYWHERE = ("GET", "HEAD")
"""Methods that pages of other origins may use: what is answered they cannot read."""
READING = ("GET", "HEAD", "POST")
"""Methods for the conversation."""
AT_A_TIME = 8
"""After so many frames of one socket others have their turn."""
GOODBYE = 1.0
"""Seconds a refused client gets to go."""
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST, HEAD, OPTIONS",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "86400",
}


T = TypeVar("T")

Answers = Callable[[Request, Found[Any]], Awaitable[Response]]
"""What a row for HTTP does."""
Admits = Callable[[WebSocket, Place], Awaitable[tuple[Place, Pass] | Response]]
"""What a row for sockets does: who comes in to the agent at this place, or why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is served, and how: the parts of an app that its gate uses."""

    access: Access
    limits: Limits
    clock: Clock
    prefix: Sequence[str]
    """Where the agents are."""
    classes: Mapping[str, type[Any]]
    """The agent classes, by what they are called in an address. One may have two names."""
    cors: bool | dict[str, str]
    open: Callable[[], Awaitable[Directory]]
    close: Callable[[], Awaitable[None]]
    chats: Callable[[type[Any] | None], bool]
    """True for a class whose agents have a conversation."""
    other: Callable[[Request], Awaitable[Response]]
    """Answers what is not about an agent."""
    webhooks: Callable[[Request, str, Address | None], Awaitable[Response | None]] | None = None
    """Answers what platforms of messengers send to a path, below an agent or to none. `None`: it is for no
    messenger."""
    called: Called | None = None
    """What children are called in an address, besides their classes."""
    more: Callable[[Gate], Sequence[Route[Answers]]] | None = None
    """Further rows for HTTP, which stand above those of the agents."""


@dataclass(frozen=True, slots=True)
class _Way:
    """What an HTTP request does with an agent."""

    action: Action
    answer: Callable[[AgentSockets], Awaitable[Response]]
    nobody: Response
    """The answer when there is no such agent, for one that `makes_none`."""
    makes_none: bool


class Gate:
    """Serves the agents of an app."""

    def __init__(self, served: Served) -> None:
        self._served, self._access = served, served.access
        self._crowd = Crowd(served.limits, served.clock)
        self._buffers = Buffers(served.limits.buffered_bytes)
        self._places = Places(
            open=served.open,
            prefix=served.prefix,
            classes=served.classes,
            called=served.called,
            audit=served.access.audit,
            in_time=self.in_time,
            may_create=self._may_create,
        )
        agent = "/".join([*served.prefix, "{class}", "{name}"])
        self._everything: Route[Answers] = Route(f"{agent}/**", self._on_request)
        self._requests: Routes[Answers] = Routes(
            *(served.more(self) if served.more else ()),
            Route(f"{agent}/**/get-messages", self._conversation, READING),
            self._everything,
        )
        self._sockets: Routes[Admits] = Routes(Route(f"{agent}/**", self._admit_to))
        # Each belongs to its actor, and goes when that leaves memory.
        self._met: weakref.WeakValueDictionary[str, AgentSockets] = weakref.WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, one socket, or the server's life."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        await self.within(scope, receive, send, self._serve_one)

    async def within(self, scope: Scope, receive: Receive, send: Send, serve: ASGIApp) -> None:
        """Let one request or socket be served, while there is room for whoever sends it."""
        connection = HTTPConnection(scope)
        place = place_of(address_of(connection))
        if (most := self._served.limits.header_bytes) < _head_size(scope):
            long = refused(
                connection, 431, f"The head of a request has at most {most} bytes.", "its head is longer"
            )
            await self._refuse(scope, receive, send, long)
            return
        full = self._crowd.enter(place)
        if full is not None:
            self._no_room(connection, full)
            await self._refuse(scope, receive, send, full)
            return
        try:
            await serve(scope, receive, send)
        finally:
            self._crowd.leave(place)

    async def _serve_one(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._come_in(WebSocket(scope, receive, send), receive, _transport_of(send))
        else:
            await self.answer(await self._http(Request(scope, receive)), scope, receive, send)

    async def answer(self, response: Response, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a response. What of it is not read is counted with all that waits."""
        transport = _transport_of(send)
        cut = transport.abort if transport else None
        long = response.long if isinstance(response, Told) else None
        try:
            await response(scope, receive, Answer(with_headers(send), self._buffers, cut, long))
        except AgentError as error:
            # It has begun, and its end is not there any more: nobody may take the part for the whole.
            if cut is None:
                raise
            log.warning("an answer is cut off: %s", error)
            cut()
            while (await receive())["type"] != "http.disconnect":
                pass

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, response: Response) -> None:
        if scope["type"] == "websocket":
            await deny(WebSocket(scope, receive, send), receive, response)
        else:
            await response(scope, receive, with_headers(send))

    async def _come_in(
        self, socket: WebSocket, receive: Receive, transport: asyncio.Transport | None
    ) -> None:
        found = await self._admit(socket)
        if isinstance(found, Response):
            await deny(socket, receive, found)
            return
        place, entered = found
        try:
            barred = await self._places.barred(Visitor(socket, place, "connect", entered))
            sockets = barred.response if barred is not None else await self._sockets_of(socket, place)
        except AgentSetAside:
            await socket.accept()
            await socket.close(1013, SET_ASIDE)
            return
        except (AgentElsewhere, LeaseLost) as error:
            log.info("%s", error)
            await socket.accept()
            await socket.close(1013, ELSEWHERE)
            return
        except Exception:
            log.exception("%s could not be started", place.address)
            await socket.accept()
            await socket.close(1011, "The agent could not be started")
            return
        if isinstance(sockets, Response):
            if barred is not None and barred.by_parent:
                await _close_refused(socket, sockets.status_code)
            else:
                await deny(socket, receive, sockets)
            return
        await socket.accept()
        if (wants_raw := getattr(transport, "wants_raw", None)) is not None:
            wants_raw()  # ours has it: batched_websocket.py
        await self._serve(socket, sockets, entered, transport)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._served.open()
                except Exception as error:  # noqa: BLE001 - the server prints it and stops
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._served.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def close(self, agent: str | None = None) -> None:
        """Close the connections of one agent, or all, with a code clients come back from."""
        for id in [agent] if agent is not None else list(self._met):
            if (sockets := self._met.pop(id, None)) is not None:
                sockets.close_all(1012, "Service restart")

    # --- meeting the agent

    async def _sockets_of(self, connection: HTTPConnection, place: Place) -> AgentSockets | Response:
        """Where to meet the agent, which is made if need be; or why it is not."""
        directory, address = await self._served.open(), place.address
        is_new = not await directory.exists(address)
        if is_new and (refused := self._may_create(connection, address)) is not None:
            return refused
        actor = await directory.reach(address)
        if address.parents:
            await directory.note(actor)
        sockets = self._met.get(actor.id)
        if sockets is None or sockets.actor is not actor:
            sockets = _meet(actor, self._access)
            actor.sockets = self._met[actor.id] = sockets
        return sockets

    async def may_begin(self, connection: HTTPConnection, cls: Any, name: str) -> Response | None:
        """Why somebody may not reach an agent that does not exist yet: they have made too many."""
        directory = await self._served.open()
        return await self._may_be_there(connection, directory.address(cls, name))

    async def refusal(
        self, connection: HTTPConnection, place: Place, entered: Pass, *, makes_none: bool
    ) -> Response | None:
        """Why somebody who has passed the checks may not reach the agent at a place in another way than by
        a socket: its parents say no, as they may to a socket, or too many were made. `None`: they may.
        """
        is_nobody = makes_none and not await (await self._served.open()).exists(place.address)
        barred = await self._places.barred(
            Visitor(connection, place, "connect", entered), is_nobody=is_nobody
        )
        if barred is not None:
            return barred.response
        return None if makes_none else await self._may_be_there(connection, place.address)

    async def _may_be_there(self, connection: HTTPConnection, address: Address) -> Response | None:
        directory = await self._served.open()
        return None if await directory.exists(address) else self._may_create(connection, address)

    async def place(self, cls: type[Any], name: str, following: Sequence[str]) -> Place:
        """Whom the segments that follow a name are about. Raises `AgentError` and `BadName`."""
        return await self._places.place(cls, name, following)

    def _may_create(self, connection: HTTPConnection, address: Address) -> Response | None:
        refused = self._crowd.may_create(place_of(address_of(connection)))
        if refused is not None:
            self._no_room(connection, refused, address)
        return refused

    def _no_room(self, connection: HTTPConnection, refused: Response, agent: Address = NOBODY) -> None:
        """Tell observers of somebody for whom there is no room."""
        action = "connect" if agent is NOBODY else "create"
        reason = bytes(refused.body).decode()
        self._access.audit.refused(agent, action, reason, address=address_of(connection))

    async def entered(
        self, connection: HTTPConnection, action: Action, cls: Any, name: str
    ) -> Pass | Response:
        """What the application's checks say, in time."""
        checks = self._access.enter(connection, action, cls, name)
        return await self.in_time(connection, checks, action, cls.__name__, name)

    async def in_time(
        self,
        connection: HTTPConnection,
        checks: Awaitable[T],
        action: Action,
        cls: str = "",
        name: str = "",
    ) -> T | Response:
        """What checks of the application say, if they do so in time; else the refusal."""
        try:
            async with asyncio.timeout(self._served.limits.handshake_seconds):
                return await checks
        except TimeoutError:
            seconds = self._served.limits.handshake_seconds
            text = "It took too long to find out who you are. Please try again."
            address = address_of(connection)
            agent = Address(cls, name) if name else NOBODY
            self._access.audit.refused(agent, action, "the checks took too long", address=address)
            return refused(connection, 503, text, f"its checks took longer than {seconds} seconds")

    # --- HTTP

    async def _http(self, request: Request) -> Response:
        if not self._access.is_named(request):
            return self._access.wrong_host(request)
        found = self._requests.find(segments_of(request.scope))
        if found is None:
            path = "/" + "/".join(segments_of(request.scope))
            hook = None if (hooks := self._served.webhooks) is None else await hooks(request, path, None)
            return hook or await self._other(request)
        return await found.route.handler(request, found)

    async def _other(self, request: Request) -> Response:
        """What the app itself answers, in any of the forms that `on_request` may answer in."""
        answer: Any = await awaited(self._served.other(request))
        if isinstance(answer, Response):
            return answer
        return PlainTextResponse("Not Found", 404) if answer is None else JSONResponse(answer)

    async def _conversation(self, request: Request, found: Found[Any]) -> Response:
        place = await self._places.find(request, found.values)
        if isinstance(place, Response):
            return place
        if not self._served.chats(place.target):
            return await self._asked(request, found, place)
        if place.address.parents and not place.rest:  # a child is called that
            return await self._asked(request, Found(self._everything, found.values), place)

        async def tell(sockets: AgentSockets) -> Response:
            assert isinstance(sockets, ChatSockets)
            await sockets.chat.session.refresh()
            return Told(sockets.told)

        way = _Way("read", tell, JSONResponse([]), makes_none=True)
        return await self._agent_http(request, found, way, place)

    async def _on_request(self, request: Request, found: Found[Any]) -> Response:
        place = await self._places.find(request, found.values)
        return place if isinstance(place, Response) else await self._asked(request, found, place)

    async def _asked(self, request: Request, found: Found[Any], place: Place) -> Response:
        if (hooks := self._served.webhooks) is not None and not place.address.parents:
            below = "/" + "/".join(place.rest)
            if (hook := await hooks(request, below, place.address)) is not None:
                return hook
        callback = read_callback(request.scope["query_string"]) if request.method == "GET" else None
        # Where an agent has people come back to; `None` for its own place for that.
        path = None if place.rest == ("callback",) else path_of(request.scope)
        if callback is not None:
            came = await self._came_back(request, place, callback, path)
            if came is not None:
                return came

        async def answer(sockets: AgentSockets) -> Response:
            if callback is not None and (sent_on := strange(sockets.actor, callback, path)) is not None:
                return sent_on
            token = current_origin.set(origin_of(request.url, request.scope))
            try:
                asked = place.asked(request)
                with sockets.actor.hold(), bounded(asked, self._served.limits) as given:
                    answer = await sockets.actor.hooks.on_request(given)
            finally:
                current_origin.reset(token)
            if answer is None:
                return PlainTextResponse("Not implemented", 404)
            return as_response(answer, sockets.actor.cls)

        chats = self._served.chats(place.target)
        nobody = PlainTextResponse(f"{NOT_YET} {BEGINS if chats else BEGINS_PLAINLY}", 404)
        way = _Way("request", answer, nobody, makes_none=request.method in SAFE)
        return await self._agent_http(request, found, way, place)

    async def _came_back(
        self, request: Request, place: Place, callback: Callback, path: str | None
    ) -> Response | None:
        """Somebody comes back from an authorization server. `None`: it is nobody who was sent there."""
        try:
            return await came_back(await self._served.open(), place.address, callback, path)
        except AgentSetAside as error:
            return PlainTextResponse(str(error), 503)
        except (AgentElsewhere, LeaseLost) as error:
            log.info("%s", error)
            return PlainTextResponse(ELSEWHERE, 503, LATER)
        except Exception as error:  # noqa: BLE001 - what it says stays here
            return raised(request, "on_start", error)

    async def _agent_http(self, request: Request, found: Found[Any], way: _Way, place: Place) -> Response:
        return await self.with_cors(request, lambda: self._answered(request, found.route, way, place))

    async def with_cors(self, request: Request, answer: Callable[[], Awaitable[Response]]) -> Response:
        """An answer that pages of other origins may read, if the app says so. A preflight does nothing."""
        cors = self._served.cors
        response = Response() if request.method == "OPTIONS" and cors else await answer()
        if cors:
            response.headers.update(CORS if cors is True else cors)
        return response

    async def _answered(self, request: Request, route: Route[Any], way: _Way, place: Place) -> Response:
        cls, name = place.cls, place.name
        if request.method not in FROM_ANYWHERE and self._access.is_foreign(request):
            return self._access.wrong_origin(request, way.action, cls, name)
        if not route.has(request.method):
            text = f"A conversation is read with GET; {request.method} does nothing to it."
            return PlainTextResponse(text, 405, {"Allow": ", ".join(route.methods or ())})
        entered = await self.entered(request, way.action, cls, name)
        if isinstance(entered, Response):
            return entered
        try:
            directory = await self._served.open()
            is_nobody = way.makes_none and not await directory.exists(place.address)
            visitor = Visitor(request, place, way.action, entered)
            barred = await self._places.barred(visitor, is_nobody=is_nobody)
            if barred is not None:
                return barred.response
            if is_nobody:
                return way.nobody
            sockets = await self._sockets_of(request, place)
            return sockets if isinstance(sockets, Response) else await way.answer(sockets)
        except AgentSetAside as error:
            return PlainTextResponse(str(error), 503)
        except (AgentElsewhere, LeaseLost) as error:
            log.info("%s", error)
            return PlainTextResponse(ELSEWHERE, 503, LATER)
        except MultiPartException as error:
            return PlainTextResponse(error.message, 400)  # `request.form()`: what was sent is no form
        except ClientDisconnect:
            return Response(status_code=400)  # it left in the middle of its body, and reads no answer
        except Exception as error:  # noqa: BLE001 - what it says stays here
            return raised(request, "on_request", error)

    # --- sockets

    async def _admit(self, socket: WebSocket) -> tuple[Place, Pass] | Response:
        """The agent that a socket asks for and who it is, or why it may not come in."""
        if not self._access.is_named(socket):
            return self._access.wrong_host(socket)
        found = self._sockets.find(segments_of(socket.scope))
        if found is None:
            return refused(socket, 404, "Not Found", "no agent is at this address")
        place = await self._places.find(socket, found.values)
        return place if isinstance(place, Response) else await found.route.handler(socket, place)

    async def _admit_to(self, socket: WebSocket, place: Place) -> tuple[Place, Pass] | Response:
        cls, name = place.cls, place.name
        if self._access.is_foreign(socket):
            return self._access.wrong_origin(socket, "connect", cls, name)
        most = self._served.limits.id_chars
        if len(socket.query_params.get("_pk", "")) > most:
            text = f"The id of a connection has at most {most} characters."
            return refused(socket, 400, text, "its _pk is longer")
        if socket.query_params.get("__agents_transport") == "capnweb":
            return refused(socket, 501, NO_CAPNWEB, "it asks for the Cap'n Web transport")
        entered = await self.entered(socket, "connect", cls, name)
        return entered if isinstance(entered, Response) else (place, entered)

    async def _serve(
        self, socket: WebSocket, sockets: AgentSockets, entered: Pass, transport: asyncio.Transport | None
    ) -> None:
        id, key = sockets.names_for(socket.query_params.get("_pk"), entered.mark)
        connection = Connection(
            id,
            socket,
            socket,
            agent_id=sockets.actor.id,
            cut=transport.abort if transport else None,
            now=getattr(transport, "send_frames", None),  # ours has it: batched_websocket.py
            taken=getattr(transport, "until_taken", None),
            buffers=self._buffers,
            stall=self._served.limits.stall_seconds,
        )
        connection.identity, connection.who = entered.identity, entered.who
        connection.mark, connection.key = entered.mark, key
        connection.permissions, connection.until = entered.permissions, entered.until
        connection.since = sockets.actor.clock.now_ms()
        connection.address, connection.called = address_of(socket), socket.scope.get("everthink.name")
        call_off = close_when_expired(connection.until, connection.close, sockets.actor.clock)
        pump: asyncio.Task[None] | None = None
        ended = (1006, "")
        try:
            # The greeting waits in the buffer until the connect hook has agreed.
            await sockets.join(connection, socket)
        except Exception as error:  # noqa: BLE001 - the connect hook said no
            sockets.actor.hooks.log_error("on_connect", error)
            ended = (1011, "Uncaught exception during session setup")
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await socket.send_text(encode_json({"error": UNTOLD}).decode())
                await socket.close(*ended)
        else:
            pump = asyncio.create_task(connection.pump(), name=f"socket {connection.id}")
            ended = await self._listen(connection, socket, sockets)
        finally:
            call_off()
            connection.is_open = False
            await sockets.leave(connection, *ended)
            if pump is not None:
                pump.cancel()
                with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect):
                    await pump
            if transport is not None and _holds(transport):
                # The server shuts down, and would wait for ever for a reader that does not read.
                connection.cut_later()

    async def _listen(
        self, connection: Connection, socket: WebSocket, sockets: AgentSockets
    ) -> tuple[int, str]:
        """Receive until the connection ends. How it was closed."""
        handled = 0
        try:
            while True:
                event = await socket.receive()
                if event["type"] == "websocket.disconnect":
                    return event.get("code", 1006), event.get("reason") or ""
                message, event = arrived(event), {}
                received = sockets.receive(connection, message)
                message = b""  # a long one is not kept here while it is handled
                await received
                handled += 1
                if handled % AT_A_TIME == 0:
                    await asyncio.sleep(0)  # somebody who sends much does not keep others waiting
        except (WebSocketDisconnect, RuntimeError) as gone:
            log.debug("socket %s ended: %s", connection.id, gone)
            return 1006, ""


# --- refusals, and what the servers beneath us need


async def _close_refused(socket: WebSocket, status: int) -> None:
    """Tell a client that a parent refused it. Its library reads the code, and sees no failed handshake."""
    await socket.accept()
    code = 4000 + status if 400 <= status < 500 else 1011
    await socket.close(code, f"Sub-agent connection rejected ({status})")


async def deny(socket: WebSocket, receive: Receive, response: Response) -> None:
    """Refuse a socket with a response, as far as the server can carry one."""
    if "websocket.http.response" not in (socket.scope.get("extensions") or {}):
        await socket.close()  # the server answers 403: it cannot carry our own refusal
        return
    await socket.send_denial_response(with_headers_on(response))
    # uvicorn logs an error when we return before the client is gone: the second disconnect says so.
    with contextlib.suppress(TimeoutError, RuntimeError):
        async with asyncio.timeout(GOODBYE):
            gone = 0
            while gone < 2:
                gone += (await receive())["type"] == "websocket.disconnect"


def _head_size(scope: Scope) -> int:
    """About how many bytes the head of a request had."""
    fields = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return fields + len(scope.get("raw_path") or b"") + len(scope["query_string"])


def _transport_of(send: Send) -> asyncio.Transport | None:
    """The transport beneath, if `send` is uvicorn's own: ASGI has no way to drop who stands still."""
    found: Any = getattr(getattr(send, "__self__", None), "transport", None)
    return found if hasattr(found, "abort") and hasattr(found, "get_write_buffer_size") else None


def _holds(transport: asyncio.Transport) -> bool:
    with contextlib.suppress(RuntimeError):  # uvloop's, once it is closed
        return transport.get_write_buffer_size() > 0
    return False


def _meet(actor: Actor, access: Access) -> AgentSockets:
    """Where clients meet an agent."""
    if actor.chat is None:
        return AgentSockets(actor, access)
    return ChatSockets(actor, actor.chat, access)
