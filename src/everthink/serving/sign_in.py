"""The page of `everthink dev` for an app that asks who one is: it says so, and takes a token.

    GET / --authenticate says no--> a form --POST /everthink/token--> a cookie
    every request with that cookie --carried--> the same with `Authorization: Bearer` and `?token=`

The token is kept by the browser alone, where no script can read it. It goes with requests of this page and
nobody else's: `authenticate` sees it as a client's own.
"""

from __future__ import annotations

import html
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ..app.app import App

__all__ = ["TOKEN", "SignIn"]

TOKEN = "/everthink/token"
COOKIE = "everthink_token"
MAX_FORM = 16_384
SAFE = ("GET", "HEAD", "OPTIONS")


class SignIn:
    """Asks for a token on behalf of one app."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def is_needed(self) -> bool:
        """True when the app asks who one is."""
        return self._app.authenticate is not None

    def carried(self, scope: Any) -> Any:
        """A request with the token that this browser keeps, unless it brings one of its own."""
        connection = HTTPConnection(scope)
        token = _token_in(connection.headers.get("cookie", ""))
        if not token or (_changes(scope) and self._app.access.is_foreign(connection)):
            return scope
        return _with_token(scope, token)

    async def refusal(self, scope: Any) -> Response | None:
        """What somebody is shown instead of the page; `None` when they may see it."""
        if not self.is_needed:
            return None
        said = await self._app.access.refusal(HTTPConnection(scope))
        if said is None or said.status_code not in (401, 403):
            return said  # a way to its own sign-in, say
        has_token = bool(_token_in(HTTPConnection(scope).headers.get("cookie", "")))
        return self._form(said, to=_address(scope), tried=has_token)

    async def answer(self, scope: Any, receive: Any) -> Response:
        """Show the form, or take what was written into it, which counts and not the token that was kept."""
        request = Request(scope, receive)
        if request.method in ("GET", "HEAD"):
            known = HTTPConnection(self.carried(scope))
            return self._form(await self._app.access.refusal(known), to="/", tried=False)
        if request.method != "POST":
            return Response("The form is sent with POST.\n", 405)
        if self._app.access.is_foreign(request):
            return Response("This form is for the page of this server.\n", 403)
        given = await _form_in(request)
        token, to = given.get("token", "").strip(), given.get("to", "/")
        to = to if to == "/" or to.startswith("/?") else "/"
        if not token:
            response: Response = RedirectResponse(to, 303)
            response.delete_cookie(COOKIE, path="/")
            return response
        refused = await self._app.access.refusal(HTTPConnection(_with_token(scope, token)))
        if refused is not None and refused.status_code in (401, 403):
            return self._form(refused, to=to, tried=True)
        response = RedirectResponse(to, 303)
        response.set_cookie(COOKIE, quote(token, safe=""), path="/", httponly=True, samesite="strict")
        return response

    def _form(self, refused: Response | None, *, to: str, tried: bool) -> Response:
        status = refused.status_code if refused is not None else 200
        said = bytes(refused.body).decode(errors="replace").strip()[:200] if refused is not None else ""
        heading = f"{status} {said}" if refused is not None else "You are let in"
        what = (
            "This app asks who you are, and did not accept the token."
            if tried and refused is not None
            else "This app asks who you are: its <code>authenticate</code> did not let this page in."
            if refused is not None
            else "The app knows who you are. You may give another token, or none."
        )
        text = FORM.format(heading=html.escape(heading), what=what, to=html.escape(to), action=TOKEN)
        return HTMLResponse(text, status, headers=HEADERS)


async def _form_in(request: Request) -> dict[str, str]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM:
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}


def _token_in(cookies: str) -> str:
    try:
        found = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return ""
    return unquote(found.value) if found else ""


def _changes(scope: Any) -> bool:
    return scope["type"] == "websocket" or scope.get("method") not in SAFE


def _with_token(scope: Any, token: str) -> Any:
    headers = list(scope["headers"])
    if not any(name == b"authorization" for name, _ in headers):
        headers.append((b"authorization", f"Bearer {token}".encode("latin-1", "replace")))
    query = scope.get("query_string", b"")
    if b"token" not in parse_qs(query):
        query = b"&".join(part for part in (query, urlencode({"token": token}).encode()) if part)
    return {**scope, "headers": headers, "query_string": query}


def _address(scope: Any) -> str:
    """The page that was asked for, to come back to it."""
    given = {
        name: value
        for name, value in parse_qs(scope.get("query_string", b"").decode("latin-1")).items()
        if name != "token"
    }
    return f"/?{urlencode(given, doseq=True)}" if given else "/"


FORM = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{heading} · everthink dev</title>
<main>
<h1>{heading}</h1>
<p>{what}</p>
<p>If it takes a token, as <code>Authorization: Bearer …</code> or as <code>?token=…</code>, write it here.
This browser keeps it until it is closed and sends it along with what the page asks for.</p>
<form method="post" action="{action}">
<input type="hidden" name="to" value="{to}">
<label>Token <input type="password" name="token" autocomplete="off" autofocus></label>
<button type="submit">Enter</button>
</form>
</main>
</html>
"""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    # A browser that is told to send no referrer sends a form with `Origin: null`, as a stranger's would be.
    "Referrer-Policy": "same-origin",
}
