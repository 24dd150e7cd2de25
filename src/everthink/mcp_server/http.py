"""MCP over HTTP, at one address of the app: the same questions as at every other way in, then the library.

    Gate --POST /mcp--> Endpoint.answer: origin, authenticate, bounds, authorize --> _Passed --> Service

Stateless: each request stands alone and any process answers it. What a client is let in to is decided here
and travels with the request: the library is given no arguments, so nothing can be read in two ways.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from ..access.access import Pass, address_of, raised
from ..address import Address
from ..limits import Limits
from ..messages import decode_json, encode_json
from ..server.asgi import Answers, Gate
from ..server.bodies import bounded
from ..server.routes import Found, Route
from ..wire.bounds import check, mend
from .catalogue import MethodTool
from .service import VISIT, Service
from .visits import Unfit, Visit

__all__ = ["Endpoint", "routes"]

SESSION = "mcp-session-id"
LONGEST_SESSION = 128
LONG = 256 * 1024
"""A body that is longer is read beside the event loop."""
ONLY_POST = "MCP is spoken with POST here: each request stands alone, and nothing is sent without one."


def routes(service: Service, gate: Gate) -> Sequence[Route[Answers]]:
    """The rows for the table of the gate."""
    return [Route(service.offering.endpoint.path.strip("/"), Endpoint(service, gate).answer)]


class _Refused(Exception):
    """A request that is not answered with a result."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class _Post(NamedTuple):
    """A message that somebody has sent: they are known, and the message is within bounds."""

    request: Request
    known: Pass
    message: dict[str, Any]

    @property
    def id(self) -> Any:
        """Of the request; a notification has none."""
        return self.message.get("id")

    @property
    def method(self) -> Any:
        """What is asked for."""
        return self.message.get("method")

    @property
    def params(self) -> dict[str, Any]:
        """With what."""
        params = self.message.get("params")
        return cast("dict[str, Any]", params) if isinstance(params, dict) else {}

    @property
    def line(self) -> str:
        """Who sends, as far as a client that cancels can say so. One that says nothing cancels nothing."""
        session = self.request.headers.get(SESSION, "")
        named = 0 < len(session) <= LONGEST_SESSION
        return f"{self.known.mark} {session}" if named else secrets.token_hex(8)


class Endpoint:
    """Where an app speaks MCP."""

    def __init__(self, service: Service, gate: Gate) -> None:
        self._service, self._gate = service, gate
        self._access, self._limits = service.offering.access, service.offering.limits

    async def answer(self, request: Request, found: Found[Any]) -> Response:
        """Answer one request, or refuse it."""
        return await self._gate.with_cors(request, lambda: self._answered(request))

    async def _answered(self, request: Request) -> Response:
        id = None
        try:
            post = await self._read(request)
            id = post.id
            return await self._passed(post)
        except _Refused as refused:
            return _as_error(refused.response, id)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except Exception as error:  # noqa: BLE001 - what it says stays here
            return _as_error(raised(request, "MCP", error), id)

    # --- who sends what

    async def _read(self, request: Request) -> _Post:
        if self._access.is_foreign(request):
            raise _Refused(self._access.wrong_origin(request, "connect", None, ""))
        if request.method != "POST":
            raise _Refused(PlainTextResponse(ONLY_POST, 405, {"Allow": "POST"}))
        checks = self._access.known(request, "connect")
        known = await self._gate.in_time(request, checks, "connect")
        if isinstance(known, Response):
            raise _Refused(known)
        with bounded(request, self._limits) as given:
            body = await given.body()
        return _Post(request, known, await _message_in(body, self._limits))

    # --- what is passed on

    async def _passed(self, post: _Post) -> Response:
        visit: Visit | Unfit | None = None
        headers: dict[str, str] = {}
        message: dict[str, Any] = post.message
        if post.method == "tools/call":
            visit = await self._visit(post)
            nothing: dict[str, Any] = {}
            message = {**message, "params": {**post.params, "arguments": nothing}}
        elif post.method == "notifications/cancelled":
            self._service.in_flight.stop((post.line, str(post.params.get("requestId"))))
        elif post.method == "initialize":
            headers[SESSION] = secrets.token_hex(16)  # for cancelling alone: nothing is kept under it
        body = encode_json(message)
        if len(body) > self._limits.body_bytes:
            text = f"What stands around the arguments is longer than {self._limits.body_bytes} bytes."
            raise _Refused(PlainTextResponse(text, 413))
        return _Passed(self._service, body, visit, headers)

    async def _visit(self, post: _Post) -> Visit | Unfit | None:
        """What a call is let in to; `None` for a tool that there is not, which the library tells."""
        name, service = post.params.get("name"), self._service
        tool = service.catalogue.get(name) if isinstance(name, str) else None
        if tool is None:
            return None
        wanted = await service.read(tool, post.params.get("arguments"), post.known.identity)
        if isinstance(wanted, Unfit):
            return wanted
        agent = (wanted.tool.cls, wanted.name)
        checks = self._access.admit(post.request, post.known, wanted.action, *agent)
        entered = await self._in_time(post, checks, wanted.action, *agent)
        if isinstance(tool, MethodTool):
            await self._check_call(post, entered, tool, wanted.name)
        if wanted.action != "read":
            refused = await self._gate.may_begin(post.request, *agent)
            if refused is not None:
                raise _Refused(refused)
        return Visit(wanted, entered, post.request, post.line)

    async def _in_time(self, post: _Post, checks: Any, action: Any, cls: type[Any], name: str) -> Any:
        answer = await self._gate.in_time(post.request, checks, action, cls.__name__, name)
        if isinstance(answer, Response):
            raise _Refused(answer)
        return answer

    async def _check_call(self, post: _Post, entered: Pass, tool: MethodTool, name: str) -> None:
        checks = self._access.may_call(entered.identity, tool.cls, name)
        why = await self._in_time(post, checks, "call", tool.cls, name)
        if why is not None:
            who = {"identity": entered.who, "address": address_of(post.request), "target": tool.method}
            agent = Address(tool.cls.__name__, name)
            self._access.audit.refused(agent, "call", "not authorized", **who)
            raise _Refused(PlainTextResponse(why, 403))


# --- bodies


async def _message_in(body: bytes, limits: Limits) -> dict[str, Any]:
    """The message in a body: one JSON object, within bounds. Long ones are read beside the event loop."""
    if len(body) > LONG:
        return await asyncio.to_thread(_decoded, body, limits)
    return _decoded(body, limits)


def _decoded(body: bytes, limits: Limits) -> dict[str, Any]:
    if (why := check(body, limits)) is not None:
        raise _Refused(_error(413, INVALID_REQUEST, f"The body {why}."))
    try:
        found: Any = decode_json(mend(body))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise _Refused(_error(400, PARSE_ERROR, "The body is no JSON.")) from None
    if not isinstance(found, dict):
        raise _Refused(_error(400, INVALID_REQUEST, "The body is no JSON object: send one message."))
    return cast("dict[str, Any]", found)


# --- answers


def _as_error(response: Response, id: Any) -> Response:
    """A refusal of ours as the error of a request, which clients show; what the app itself answers stays."""
    if type(response) is not PlainTextResponse:
        return response
    code = INVALID_REQUEST if response.status_code < 500 else INTERNAL_ERROR
    kept = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
    return _error(response.status_code, code, bytes(response.body).decode(), id, kept)


def _error(
    status: int, code: int, text: str, id: Any = None, headers: Mapping[str, str] | None = None
) -> Response:
    id = id if isinstance(id, str | int) else None
    error = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}
    return JSONResponse(error, status, headers)


class _Passed(Response):
    """The library's answer to a message."""

    def __init__(
        self, service: Service, body: bytes, visit: Visit | Unfit | None, headers: Mapping[str, str]
    ) -> None:
        super().__init__()
        self.raw_headers = []
        self.headers.update(headers)
        self._service, self._given, self._visit = service, body, visit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the library read the message and answer it. It runs for this one request."""
        manager = StreamableHTTPSessionManager(
            self._service.server,
            stateless=True,
            max_request_body_size=len(self._given) + 1,
        )
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        inner = {**scope, "headers": headers, VISIT: self._visit}
        async with manager.run():
            await manager.handle_request(inner, self._receiving(receive), self._sending(send))

    def _receiving(self, receive: Receive) -> Receive:
        is_given = False

        async def receiving() -> Message:
            nonlocal is_given
            if is_given:
                return await receive()
            is_given = True
            return {"type": "http.request", "body": self._given, "more_body": False}

        return receiving

    def _sending(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(dict(self.headers))
                headers["Cache-Control"] = "no-store, no-transform"  # the library's own lets others keep it
            await send(message)

        return sending
