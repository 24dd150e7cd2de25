"""An MCP server behind OAuth and its authorization server, both the SDK's own: two origins on this machine.

Time is the test's: a token ends when the clock says so. What happened is in `events`, in order.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from html import escape
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse

from everthink.testing import ManualClock
from everthink.testing.in_process_server import Listening

__all__ = ["LIFETIME", "Locked"]

LIFETIME = 3_600
"""Seconds that a token lives."""
SCOPES = ["use", "admin"]
LONGER = (b"content-length", b"100")
_PLAIN = {"lifespan": "off", "interface": "asgi3"}


class Locked:
    """`async with Locked(clock) as locked`: an MCP server with the tool `add` that wants tokens.

    With `is_old` it is of the time before such servers said who gives tokens for them: it does so itself.
    With `asks` a person sees a page with two links, *Allow* and *Refuse*; else everybody is allowed at once.
    """

    def __init__(self, clock: ManualClock, *, is_old: bool = False, asks: bool = False) -> None:
        self.clock, self.is_old, self.asks = clock, is_old, asks
        self.events: list[str] = []
        self.forms: list[dict[str, str]] = []
        """What was posted to the token endpoint."""
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.ends: dict[str, int] = {}
        self.shown: list[str] = []
        """The tokens that the server was shown, whether they were any good or not."""
        self.rotates = True
        """Whether a refresh gives another refresh token."""
        self.registers = True
        self.status: int | None = None
        """With which the token endpoint answers, when it does not do its work."""
        self.hangs_up = False
        """Whether it begins its answers and does not end them."""
        self.before_token: Callable[[], Awaitable[None]] | None = None
        """Called when somebody asks for tokens."""
        self._app: Any = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        issuer = await self._stack.enter_async_context(Listening(self._authorization, **_PLAIN))
        server = await self._stack.enter_async_context(Listening(self._resource, **_PLAIN))
        self.url = f"http://127.0.0.1:{server.port}/mcp"
        self.issuer = f"http://127.0.0.1:{server.port if self.is_old else issuer.port}"
        registration = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=["use"])
        self._issuing = Starlette(
            routes=create_auth_routes(self, AnyHttpUrl(self.issuer), client_registration_options=registration)
        )
        self._app = self._server().streamable_http_app(stateless_http=True, json_response=True)
        await self._stack.enter_async_context(self._app.router.lifespan_context(self._app))
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    def _server(self) -> MCPServer[Any]:
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(self.issuer),
            resource_server_url=AnyHttpUrl(self.url),
            required_scopes=["use"],
            validate_token_resource=False,
        )
        server = MCPServer[Any]("locked", auth=settings, token_verifier=self)

        @server.tool()
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        return server

    async def _resource(self, scope: Any, receive: Any, send: Any) -> None:
        if not self.is_old or scope["path"] == "/mcp":
            await self._app(scope, receive, send)
        elif "protected-resource" in scope["path"]:
            await PlainTextResponse("", 404)(scope, receive, send)
        else:
            await self._authorization(scope, receive, send)

    async def _authorization(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/register" and not self.registers:
            return await PlainTextResponse("Members\x1b only.", 403)(scope, receive, send)
        if scope["path"] == "/consent":
            return await _consent(Request(scope))(scope, receive, send)
        if scope["path"] != "/token":
            return await self._issuing(scope, receive, send)
        message = await receive()  # forms are small: one message
        self.forms.append(dict(parse_qsl(message["body"].decode())))
        if self.before_token is not None:
            await self.before_token()
        if self.hangs_up:
            return await send({"type": "http.response.start", "status": 200, "headers": [LONGER]})
        if self.status is not None:
            return await PlainTextResponse("busy", self.status)(scope, receive, send)

        async def again() -> Any:
            return message

        await self._issuing(scope, again, send)

    # --- a person with a browser

    async def allow(self, auth_url: str) -> str:
        """Open the address, agree, and return the query with which the browser comes back."""
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(auth_url)
        assert answer.status_code == 302, answer.text
        return urlsplit(answer.headers["location"]).query

    # --- what the SDK asks of a provider

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info
        self.events.append("register")

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.events.append("authorize")
        code = secrets.token_hex(16)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 600,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        back = str(params.redirect_uri)
        allowed = construct_redirect_uri(back, code=code, state=params.state, iss=self.issuer)
        if not self.asks:
            return allowed
        refused = construct_redirect_uri(back, error="access_denied", state=params.state, iss=self.issuer)
        return construct_redirect_uri(f"{self.issuer}/consent", allowed=allowed, refused=refused)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: Any) -> OAuthToken:
        self.events.append("exchange")
        self.codes.pop(authorization_code.code)
        return self._minted(client.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> OAuthToken:
        self.events.append("refresh")
        if self.rotates:
            self.refresh.pop(refresh_token.token)
            return self._minted(client.client_id, scopes)
        return self._minted(client.client_id, scopes).model_copy(update={"refresh_token": None})

    async def verify_token(self, token: str) -> AccessToken | None:
        self.shown.append(token)
        is_valid = token in self.access and self.clock.now_ms() < self.ends[token]
        return self.access[token] if is_valid else None

    async def load_access_token(self, token: str) -> AccessToken | None:
        return await self.verify_token(token)

    async def revoke_token(self, token: Any) -> None:
        raise NotImplementedError

    def _minted(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_hex(16), secrets.token_hex(16)
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes)
        self.ends[access] = self.clock.now_ms() + LIFETIME * 1000
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(access_token=access, expires_in=LIFETIME, refresh_token=refresh)


def _consent(request: Request) -> HTMLResponse:
    """The page of an authorization server: may they?"""
    links = (("allowed", "Allow"), ("refused", "Refuse"))
    return HTMLResponse(
        "<title>Locked</title><h1>Somebody wants to add numbers in your name</h1>"
        + "".join(f'<a href="{escape(request.query_params[to])}">{word}</a> ' for to, word in links)
    )
