"""OAuth with an MCP server that outlives the process.

    a request --401--> refresh --no--> what the second half needs is kept --> NeedsAuthorization(url)
                                                  … a person, hours, a restart …
    callback --> finish: check the state --> consume it --> exchange the code --> tokens are kept

The flow is the SDK's (`OAuthClientProvider`: discovery, registration, resource, scopes); what it holds in
memory is kept here instead. Nobody is sent away before everything is stored that is needed when they come
back, in whichever process that is; a state is used up, durably, before its code is; and only a clear no of
the authorization server costs a person another visit.

This module imports the SDK: import it where it is used. The names of the SDK that it fills in or calls are
held by `tests/mcp/test_sdk_contract.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from urllib.parse import urlencode, urlsplit

import msgspec

from ..clock import Clock
from ..errors import AuthorizationFailed, CallbackRefused, MissingExtra, NeedsAuthorization
from ..masking import mask
from ..words import said
from . import visits
from .callback import Callback, new_state
from .keep import OAUTH, Keep
from .visits import STATE_SECONDS, Visit

try:
    import httpx2
    from mcp.client.auth import OAuthClientProvider, OAuthFlowError
    from mcp.client.auth import oauth2 as sdk
    from mcp.client.auth.oauth2 import OAuthContext, PKCEParameters
    from mcp.client.auth.utils import issuers_match, validate_authorization_response_iss
    from mcp.shared.auth import (
        OAuthClientInformationFull,
        OAuthClientMetadata,
        OAuthMetadata,
        OAuthToken,
        ProtectedResourceMetadata,
    )
    from pydantic import AnyUrl, BaseModel, PrivateAttr, ValidationError
except ImportError as error:
    raise MissingExtra(
        "MCP servers need the package mcp, which is not installed.",
        kept="Nothing was connected.",
        next_step='Run: pip install "everthink[mcp]"',
    ) from error

__all__ = ["DurableOAuth", "OAuthServer"]

log = logging.getLogger("everthink.mcp")

LONGEST_TOKEN_SECONDS = 10 * 365 * 24 * 3600
MOST_PENDING = 8
"""Visits that may be under way at once; a further one makes the oldest void."""

_BUSY = (408, 425, 429)

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthServer:
    """The server that is asked, and who we are to it."""

    id: str
    url: str
    callback_url: str | None
    """Where people come back to. `None`: nobody can be sent away, and only what is kept can be refreshed."""
    scope: str | None = None
    """What to ask for, separated by spaces. Left out: what the server names."""
    client_id: str | None = None
    """Of a client that was registered by hand. Left out: one is registered when it is needed."""
    client_secret: str | None = field(default=None, repr=False)
    client_name: str = "everthink"


class DurableOAuth(OAuthClientProvider):
    """The `auth` of an HTTP client that talks to one MCP server.

    Cheap to make, and without a memory that counts: what lasts is in `keep`. Several may share it.
    """

    def __init__(self, server: OAuthServer, keep: Keep, clock: Clock) -> None:
        registration = _Registration(
            redirect_uris=None if server.callback_url is None else [AnyUrl(server.callback_url)],
            client_name=server.client_name,
            token_endpoint_auth_method="none",
            application_type="native" if _is_local(server.callback_url) else "web",
        )
        stored = _Stored(keep, clock)
        super().__init__(server.url, registration, stored)
        self.context = _Context(server.url, registration, stored, None, None, clock=clock)
        registration.complete_with(self._registered)
        self._server, self._keep, self._clock = server, keep, clock
        self._asking: httpx2.Request | None = None
        self._steps_up = False
        self._why = ""

    # --- what others ask of it

    async def auth_url(self) -> str | None:
        """Where a person may still go to allow access, if somebody was to be sent there."""
        waiting = visits.waiting(await self._keep.read(), self._clock.now_ms())
        return waiting[-1].url if waiting else None

    async def finish(self, callback: Callback, http: httpx2.AsyncClient) -> None:
        """Redeem what a person brought back. Afterwards the server lets us in.

        Raises `CallbackRefused` for what nobody was sent away for: nothing is changed then, and whoever is
        being waited for may still come. Raises `AuthorizationFailed` with the words of the authorization
        server when that said no.
        """
        # On its own: requests that are under way do not see half of it.
        await DurableOAuth(self._server, self._keep, self._clock)._redeem(callback, http)

    async def forget(self) -> None:
        """Take away everything that OAuth has kept: tokens, the registration, whoever is on the way."""
        await self._keep.write(**dict.fromkeys(OAUTH))
        self._initialized = False

    # --- a request

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The SDK's flow, with another try to refresh before a person is asked, and errors in our words."""
        self._why = ""
        if not self.context.is_token_valid():
            self._initialized = False  # another connection may have refreshed them
        flow = super()._auth_flow(request)
        try:
            outgoing = await self._step(flow.__anext__())
            has_refreshed = outgoing is not request
            while True:
                response = yield outgoing
                if outgoing is request and response.status_code == 401 and not has_refreshed:
                    has_refreshed = True
                    if await self._has_newer(request):
                        self._add_auth_header(request)
                        response = yield request
                    if response.status_code == 401 and self.context.can_refresh_token():
                        answer = yield await self._refresh_token()
                        if await self._handle_refresh_response(answer):
                            self._add_auth_header(request)
                            response = yield request
                if outgoing is request:
                    self._steps_up = response.status_code == 403
                    if response.status_code == 401:
                        self._check_client()
                outgoing = await self._step(flow.asend(response))
                if outgoing is self._asking:
                    raise NeedsAuthorization(self._server.id, str(outgoing.url), why=self._why)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _step(self, next_request: Awaitable[httpx2.Request]) -> httpx2.Request:
        """One step of the SDK's flow. What it raises is told once, by whoever hears it from us."""
        quiet = _QUIET.set(True)
        try:
            return await next_request
        except OAuthFlowError as error:
            raise self._failed(error) from error
        finally:
            _QUIET.reset(quiet)

    async def _initialize(self) -> None:
        """Take up what is kept, all of it: without expiry and endpoints the SDK would ask a person."""
        kept, context = await self._keep.read(), self.context
        expires_at = kept.get("expires_at")
        context.current_tokens = _read(OAuthToken, kept.get("tokens"))
        context.token_expiry_time = expires_at / 1000 if isinstance(expires_at, int) else None
        context.client_info = self._given() or _read(OAuthClientInformationFull, kept.get("client"))
        context.oauth_metadata = _read(OAuthMetadata, kept.get("metadata"))
        context.protected_resource_metadata = _read(ProtectedResourceMetadata, kept.get("resource"))
        context.auth_server_url = kept.get("auth_server")
        self._initialized = True

    async def _has_newer(self, request: httpx2.Request) -> bool:
        """True when another connection has kept other tokens than the ones that were just refused."""
        await self._initialize()
        tokens = self.context.current_tokens
        refused = request.headers.get("Authorization")
        return tokens is not None and refused is not None and refused != f"Bearer {tokens.access_token}"

    # --- refreshing

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        """Keep what a refresh gave. False when it was refused; raises when nobody can tell yet."""
        before = self.context.current_tokens
        if response.status_code == 200:
            tokens = self._tokens_in(await response.aread())
            if before is not None:  # what is not said has not changed
                tokens.scope = tokens.scope or before.scope
                tokens.refresh_token = tokens.refresh_token or before.refresh_token
            self.context.current_tokens = tokens
            self.context.update_token_expiry(tokens)
            await self.context.storage.set_tokens(tokens)
            return True
        if not 400 <= response.status_code < 500 or response.status_code in _BUSY:
            raise self._failed(f"it answered {response.status_code} to a refresh")
        code, words = await _refusal(response)
        await self._initialize()
        after = self.context.current_tokens
        if after is not None and (before is None or after.refresh_token != before.refresh_token):
            return True  # another connection was quicker, and has new ones
        self._why = f"its tokens could not be refreshed ({words})"
        log.info("MCP server %s: its tokens could not be refreshed: %s", self._server.id, words)
        await self._keep.write(tokens=None, expires_at=None, **self._without_client(code))
        self.context.clear_tokens()
        return False

    def _without_client(self, code: str | None) -> dict[str, None]:
        """What to take away when the authorization server no longer knows the client it registered."""
        if code not in ("invalid_client", "unauthorized_client") or self._server.client_id is not None:
            return {}
        self.context.client_info = None
        return {"client": None}

    # --- sending a person away

    def _check_client(self) -> None:
        """See to it that a person who is sent away is let back: a client of another address is not."""
        here, client = self._come_back_to, self.context.client_info
        if client is None or self._server.client_id is not None:
            return
        ends_at = client.client_secret_expires_at or None
        is_over = ends_at is not None and ends_at * 1000 <= self._clock.now_ms()
        if is_over or here not in (client.redirect_uris or [here]):
            self.context.client_info = None  # another one is registered

    @property
    def _come_back_to(self) -> AnyUrl:
        if self._server.callback_url is None:
            raise AuthorizationFailed(
                f"MCP server {self._server.id!r} wants a person to allow access, and there is no address to"
                " come back to.",
                kept="The server stays added.",
                next_step='Give the origin of this app: callback_host="https://…".',
            )
        return AnyUrl(self._server.callback_url)

    async def _perform_authorization(self) -> httpx2.Request:
        """Keep all that the second half needs. What is returned is never sent: see `_auth_flow`."""
        context, now, asked = self.context, self._clock.now_ms(), self._parameters()
        urls: list[str] = []

        def decide(kept: Mapping[str, Any]) -> dict[str, Any]:
            pending = visits.waiting(kept, now)
            # Who was just sent away comes back to the same: asking twice makes nobody's visit void.
            if not pending or pending[-1].asked != asked or now - pending[-1].at > STATE_SECONDS * 500:
                pending = [*pending, self._visit(asked, now)][-MOST_PENDING:]
            urls.append(pending[-1].url)
            return {
                "metadata": _dumped(context.oauth_metadata),
                "resource": _dumped(context.protected_resource_metadata),
                "auth_server": context.auth_server_url,
                "pending": msgspec.to_builtins(pending),
            }

        await self._keep.change(decide)
        self._asking = httpx2.Request("GET", urls[-1])
        return self._asking

    def _parameters(self) -> dict[str, str]:
        """What a person is sent away with, but for what is new each time."""
        context = self.context
        if context.client_info is None:
            raise self._failed("it has registered no client")
        chosen = context.client_metadata.scope
        scope = chosen if self._steps_up else self._server.scope or chosen
        asked = {
            "response_type": "code",
            "client_id": context.client_info.client_id,
            "redirect_uri": str(self._come_back_to),
        }
        if context.should_include_resource_param(context.protocol_version):
            asked["resource"] = context.get_resource_url()
        if scope:
            asked["scope"] = scope
            if "offline_access" in scope.split():
                asked["prompt"] = "consent"  # OpenID gives no refresh token without
        return asked

    def _visit(self, asked: dict[str, str], now: int) -> Visit:
        metadata, pkce = self.context.oauth_metadata, PKCEParameters.generate()
        state = new_state(self._server.id)
        proof = {"state": state, "code_challenge": pkce.code_challenge, "code_challenge_method": "S256"}
        origin = self.context.get_authorization_base_url(self._server.url)
        endpoint = str(metadata.authorization_endpoint) if metadata else f"{origin}/authorize"
        return Visit(
            state=state,
            verifier=pkce.code_verifier,
            at=now,
            url=f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode({**asked, **proof})}",
            asked=asked,
            issuer=str(metadata.issuer) if metadata else None,
            protocol=self.context.protocol_version,
        )

    # --- who we are

    def _given(self) -> OAuthClientInformationFull | None:
        """The client that code names. How it shows its secret is settled when the endpoint is known."""
        if self._server.client_id is None:
            return None
        return OAuthClientInformationFull(
            client_id=self._server.client_id, client_secret=self._server.client_secret
        )

    def _registered(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What a registration says: the scopes that code names, and a way to authenticate that is offered."""
        if self._server.scope and not self._steps_up:
            asked["scope"] = self._server.scope
        metadata = self.context.oauth_metadata
        offered = metadata.token_endpoint_auth_methods_supported if metadata else None
        if offered and "none" not in offered:
            asked["token_endpoint_auth_method"] = _secret_method(offered)
        return asked

    # --- coming back

    async def _redeem(self, callback: Callback, http: httpx2.AsyncClient) -> None:
        await self._initialize()
        visit = self._checked(callback, await self._keep.read())
        if callback.problem is not None:
            await self._drop_client(callback.error)
            raise AuthorizationFailed(mask(callback.problem))
        if not await self._keep.change(lambda kept: self._consumed(callback.state, kept)):
            raise _refused("it was used before", is_repeat=True)
        tokens = await self._exchanged(http, callback.code or "", visit)
        tokens.scope = tokens.scope or visit.asked.get("scope")
        # Whoever else is on the way need not come any more.
        await self._keep.write(
            tokens=_dumped(tokens), expires_at=_expires_at(tokens, self._clock), pending=None
        )

    def _checked(self, callback: Callback, kept: Mapping[str, Any]) -> Visit:
        """The visit that a callback ends. Raises, and changes nothing, when there is none."""
        if callback.server_id != self._server.id:
            raise _refused("it is for another server")
        visit = visits.find(visits.pending(kept), callback.state)
        if visit is None:
            is_repeat = visits.is_redeemed(kept, callback.state)
            raise _refused("it was used before" if is_repeat else "nobody waits for it", is_repeat=is_repeat)
        if visit not in visits.waiting(kept, self._clock.now_ms()):
            raise _refused(f"it comes too late; {STATE_SECONDS / 60:g} minutes are given")
        metadata = self.context.oauth_metadata
        if visit.issuer != (str(metadata.issuer) if metadata else None):
            raise _refused("the server has another authorization server by now")
        if not _may_answer(callback, metadata):
            raise _refused("it is not from the authorization server that was asked")
        return visit

    def _consumed(self, state: str, kept: Mapping[str, Any]) -> dict[str, Any] | None:
        """What is kept once a state is used up. `None` when another callback was quicker."""
        pending = visits.waiting(kept, self._clock.now_ms())
        visit = visits.find(pending, state)
        if visit is None:
            return None
        left = [one for one in pending if one is not visit]
        return {"pending": msgspec.to_builtins(left), "redeemed": visits.mark_of(state)}

    async def _exchanged(self, http: httpx2.AsyncClient, code: str, visit: Visit) -> OAuthToken:
        context = self.context
        if context.client_info is None:
            raise self._failed("the client that asked is not registered any more")
        context.protocol_version = visit.protocol
        context.client_metadata.redirect_uris = [AnyUrl(visit.asked["redirect_uri"])]
        try:
            request = await self._exchange_token_authorization_code(code, visit.verifier)
            response = await http.send(request, auth=None, follow_redirects=False)
        except OAuthFlowError as error:
            raise self._failed(error) from error
        except httpx2.HTTPError as error:
            raise self._failed("it could not be reached") from error
        if response.status_code in (200, 201):
            return self._tokens_in(response.content)
        refusal, words = await _refusal(response)
        await self._drop_client(refusal)
        raise self._failed(f"it gave no tokens ({words})")

    async def _drop_client(self, code: str | None) -> None:
        if changed := self._without_client(code):
            await self._keep.write(**changed)

    # --- words

    def _tokens_in(self, body: bytes) -> OAuthToken:
        try:
            return OAuthToken.model_validate_json(body)
        except ValidationError:
            # Nothing of it is told: what it says wrongly may be a token all the same.
            raise self._failed("it answered with something that is no token") from None

    def _failed(self, why: object) -> AuthorizationFailed:
        return AuthorizationFailed(
            f"The authorization server of MCP server {self._server.id!r} does not let us in:"
            f" {mask(said(why)).rstrip('.')}.",
            kept="What was allowed before is kept.",
            next_step="It is asked again when the server is connected to again.",
        )


# --- parts of the SDK's, with our time and our storage


class _Registration(OAuthClientMetadata):
    """What a client says of itself when it is registered; completed when that happens."""

    _complete: Any = PrivateAttr(default=None)

    def complete_with(self, complete: Any) -> None:
        self._complete = complete

    def model_dump(self, **options: Any) -> dict[str, Any]:
        said_of_it = super().model_dump(**options)
        return self._complete(said_of_it) if self._complete is not None else said_of_it


@dataclass
class _Context(OAuthContext):
    clock: Clock = field(kw_only=True)

    def update_token_expiry(self, token: OAuthToken) -> None:
        ends_at = _expires_at(token, self.clock)
        self.token_expiry_time = None if ends_at is None else ends_at / 1000

    def is_token_valid(self) -> bool:
        tokens, ends_at = self.current_tokens, self.token_expiry_time
        is_over = ends_at is not None and self.clock.now_ms() >= ends_at * 1000
        return bool(tokens and tokens.access_token) and not is_over

    def prepare_token_auth(
        self, data: dict[str, str], headers: dict[str, str] | None = None
    ) -> tuple[dict[str, str], dict[str, str]]:
        client = self.client_info
        if client is not None and client.client_secret and client.token_endpoint_auth_method is None:
            metadata = self.oauth_metadata
            offered = metadata.token_endpoint_auth_methods_supported if metadata else None
            client.token_endpoint_auth_method = _secret_method(offered)
        return super().prepare_token_auth(data, headers)


class _Stored:
    """The SDK's storage, in a keep."""

    def __init__(self, keep: Keep, clock: Clock) -> None:
        self._keep, self._clock = keep, clock

    async def get_tokens(self) -> OAuthToken | None:
        return _read(OAuthToken, (await self._keep.read()).get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await self._keep.write(tokens=_dumped(tokens), expires_at=_expires_at(tokens, self._clock))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return _read(OAuthClientInformationFull, (await self._keep.read()).get("client"))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        await self._keep.write(client=_dumped(client_info))


_QUIET: ContextVar[bool] = ContextVar("everthink_mcp_quiet", default=False)


class _ToldByUs(logging.Filter):
    """The SDK logs with a traceback what it raises as well, the words of strangers included."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _QUIET.get()


sdk.logger.addFilter(_ToldByUs())


# --- what is kept, and what is not believed


def _read(kind: type[M], found: Any) -> M | None:
    """A value of the SDK as it was kept. One that this release cannot read is not there."""
    if found is None:
        return None
    try:
        return kind.model_validate(found)
    except ValidationError:
        log.warning("a kept %s of an MCP server cannot be read, and is asked for again", kind.__name__)
        return None


def _dumped(value: BaseModel | None) -> dict[str, Any] | None:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


def _expires_at(tokens: OAuthToken, clock: Clock) -> int | None:
    if tokens.expires_in is None:
        return None
    return clock.now_ms() + min(max(tokens.expires_in, 0), LONGEST_TOKEN_SECONDS) * 1000


def _may_answer(callback: Callback, metadata: OAuthMetadata | None) -> bool:
    """True when who answers is who was asked, as far as it says; some do not say it of their errors."""
    issuer = callback.issuer
    if issuer is not None and metadata is not None and issuers_match(issuer, str(metadata.issuer)):
        issuer = str(metadata.issuer)  # with or without the slash of a root
    try:
        if issuer is not None or callback.error is None:
            validate_authorization_response_iss(issuer, metadata)
    except OAuthFlowError:
        return False
    return True


def _secret_method(offered: list[str] | None) -> str:
    """How a secret is shown: as the standard has it, unless the server offers the other way only."""
    if offered and "client_secret_basic" not in offered and "client_secret_post" in offered:
        return "client_secret_post"
    return "client_secret_basic"


async def _refusal(response: httpx2.Response) -> tuple[str | None, str]:
    """Why an authorization server said no: the standard's word for it, and its own."""
    await response.aread()
    try:
        found: Any = response.json()
    except ValueError:
        found = None
    told = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    code, description = told.get("error"), told.get("error_description")
    if not isinstance(code, str):
        return None, f"it answered {response.status_code}"
    words = f"{code}: {description}" if isinstance(description, str) and description else code
    return code, mask(said(words, 300))


def _refused(why: str, *, is_repeat: bool = False) -> CallbackRefused:
    return CallbackRefused(why, is_repeat=is_repeat)


def _is_local(url: str | None) -> bool:
    return url is not None and urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
