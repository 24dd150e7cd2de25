"""`everthink dev` with an app that asks who one is: its page says 401 and takes a token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse
from websockets.exceptions import InvalidStatus

from everthink import App
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Answer
from tests.support.agents import assistant
from tests.support.server import Served, open_app, served

pytestmark = pytest.mark.anyio

Develop = Callable[..., Awaitable[Served]]
TOKENS = {"s3cret & ü": "ada"}


def by_header(connection: HTTPConnection) -> Any:
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return TOKENS.get(token) if scheme == "Bearer" else None


def by_query(connection: HTTPConnection) -> Any:
    return TOKENS.get(connection.query_params.get("token", ""))


@pytest.fixture
async def develop(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Develop]:
    async with AsyncExitStack() as stack:

        async def develop_(**options: Any) -> Served:
            options.setdefault("authorize", lambda *given: True)
            app: App = open_app(tmp_path, assistant(ScriptedModel(says("Hello."))), **options)
            return await stack.enter_async_context(served(WithPage(Loaded(app, "the tests", app))))

        yield develop_


async def enter(server: Served, token: str, to: str = "/", **headers: str) -> Answer:
    form = urlencode({"token": token, "to": to}).encode()
    kind = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    return await server.http("/everthink/token", method="POST", headers=kind, body=form)


@pytest.mark.parametrize("authenticate", [by_header, by_query])
async def test_the_page_says_401_and_takes_a_token(develop: Develop, authenticate: Any) -> None:
    server = await develop(authenticate=authenticate)

    # Given somebody who is nobody: the page says so
    refused = await server.http("/?agent=assistant&name=room")
    assert refused.status == 401
    assert refused.headers["content-type"].startswith("text/html")
    assert "401 Unauthorized" in refused.text
    assert "This app asks who you are" in refused.text
    assert "/?agent=assistant&amp;name=room" in refused.text

    # A wrong token is told
    wrong = await enter(server, "guess")
    assert wrong.status == 401
    assert "did not accept the token" in wrong.text
    assert "set-cookie" not in wrong.headers

    # The right one leads back to where one was, and is kept where no script reads it
    entered = await enter(server, "s3cret & ü", "/?agent=assistant&name=room")
    assert (entered.status, entered.headers["location"]) == (303, "/?agent=assistant&name=room")
    cookie = entered.headers["set-cookie"]
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}

    # With it the page, its sockets and its inspector are there
    kept = {"Cookie": cookie.partition(";")[0]}
    page = await server.http("/", headers=kept)
    assert page.status == 200
    chat = await server.connect("/agents/assistant/room", headers=kept)
    await chat.until_done(await chat.say("Hi"))
    assert chat.text == "Hello."
    shown = await server.http("/everthink/inspect/assistant/room", headers=kept)
    assert [turn["status"] for turn in shown.json["turns"]] == ["completed"]
    with pytest.raises(InvalidStatus):
        await server.connect("/agents/assistant/room")


async def test_browsers_are_told_to_say_where_the_form_comes_from(develop: Develop) -> None:
    """With no referrer at all they send `Origin: null`, which is what a stranger's page sends too."""
    server = await develop(authenticate=by_query)
    shown = await server.http("/")
    assert (shown.status, shown.headers["referrer-policy"]) == (401, "same-origin")


async def test_pages_of_others_cannot_use_the_token(develop: Develop) -> None:
    server = await develop(authenticate=by_query)
    cookie = (await enter(server, "s3cret & ü")).headers["set-cookie"].partition(";")[0]
    foreign = {"Cookie": cookie, "Origin": "http://evil.example"}
    with pytest.raises(InvalidStatus) as refused:
        await server.connect("/agents/assistant/room", headers=foreign)
    assert refused.value.response.status_code == 403
    posted = await enter(server, "s3cret & ü", Origin="http://evil.example")
    assert posted.status == 403
    assert "set-cookie" not in posted.headers


async def test_one_can_leave_and_give_another(develop: Develop) -> None:
    server = await develop(authenticate=by_query)
    cookie = (await enter(server, "s3cret & ü")).headers["set-cookie"].partition(";")[0]
    assert "You are let in" in (await server.http("/everthink/token", headers={"Cookie": cookie})).text
    left = await enter(server, "", Cookie=cookie)
    assert left.status == 303
    assert "max-age=0" in left.headers["set-cookie"].lower()
    old = await server.http("/", headers={"Cookie": "everthink_token=old"})
    assert (old.status, "did not accept the token" in old.text) == (401, True)


@pytest.mark.parametrize("authenticate", [by_header, by_query])
async def test_what_is_written_counts_and_not_the_token_that_was_kept(
    develop: Develop, authenticate: Any
) -> None:
    server = await develop(authenticate=authenticate)
    again = await enter(server, "s3cret & ü", Cookie="everthink_token=expired")
    assert again.status == 303
    good = again.headers["set-cookie"].partition(";")[0]
    wrong = await enter(server, "guess", Cookie=good)
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)


@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example", "/everthink/token", "?x"])
async def test_the_form_leads_nowhere_else(develop: Develop, to: str) -> None:
    server = await develop(authenticate=by_query)
    assert (await enter(server, "s3cret & ü", to)).headers["location"] == "/"


async def test_a_sign_in_of_the_app_itself_comes_first(develop: Develop) -> None:
    server = await develop(authenticate=lambda connection: RedirectResponse("/login", 303))
    answer = await server.http("/")
    assert (answer.status, answer.headers["location"]) == (303, "/login")


async def test_its_own_words_are_shown_as_words(develop: Develop) -> None:
    server = await develop(authenticate=lambda connection: PlainTextResponse("<b>Members</b> only", 403))
    refused = await server.http("/")
    assert refused.status == 403
    assert "403 &lt;b&gt;Members&lt;/b&gt; only" in refused.text


async def test_an_app_that_asks_nobody_has_no_form(develop: Develop) -> None:
    server = await develop(authorize=None)
    assert (await server.http("/")).status == 200
    assert (await server.http("/everthink/token")).status == 404
    assert json.loads((await server.http("/everthink/agents")).text)
