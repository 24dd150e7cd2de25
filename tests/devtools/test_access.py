"""Who may look, and what is masked for those who may."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from websockets.exceptions import InvalidStatus

from everthink import tool
from everthink.masking import masked
from everthink.testing import ScriptedModel, calls, fails, says

from ..support.agents import assistant
from ..support.server import Served
from .conftest import EVENTS, ROOM, Develop

pytestmark = pytest.mark.anyio

LEAF = f"{ROOM}/leaf"


async def socket_status(server: Served, **options: Any) -> int:
    """The status an events socket is refused with; 101 when it is not."""
    try:
        await server.connect(EVENTS, **options)
    except InvalidStatus as refused:
        return refused.response.status_code
    return 101


async def statuses(server: Served, **headers: str) -> set[int]:
    """How requests with these headers fare: looking, choosing, listening."""
    return {
        (await server.http(ROOM, headers=headers)).status,
        (await server.http(LEAF, method="POST", headers=headers, body=b'{"message": "m"}')).status,
        await socket_status(server, headers=headers),
    }


async def test_other_sites_are_refused(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    for origin in ("http://evil.example", "null", "http://localhost:1", f"http://{server.host}.evil.example"):
        assert await statuses(server, Origin=origin) == {403}
    answer = await server.http(ROOM, headers={"Origin": "http://evil.example"})
    assert "Nothing was shown" in answer.json["error"]


async def test_its_own_page_may_look(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    for headers in ({}, {"Origin": f"http://{server.host}"}):
        assert await statuses(server, **headers) == {200, 404, 101}
    for host in ("localhost", "localhost:8787", "me.localhost:1", "[::1]:8787", "192.168.1.7:8787"):
        assert (await server.http(ROOM, headers={"Host": host})).status == 200


async def test_a_name_that_somebody_points_at_this_machine_is_refused(develop: Develop) -> None:
    # A page of evil.example whose name now means 127.0.0.1 is, to the browser, of the same origin
    server = await develop(assistant(ScriptedModel()))
    for host in ("evil.example", "evil.example:8787", "localhost.evil.example", ""):
        answer = await server.http(ROOM, headers={"Host": host, "Origin": f"http://{host}"})
        assert answer.status == 403


async def test_allowed_origins_may_look(develop: Develop) -> None:
    allowed = "https://box.example"
    server = await develop(assistant(ScriptedModel()), allow_origins=[allowed])
    assert await statuses(server, Origin=allowed) == {200, 404, 101}
    assert (await server.http(ROOM, headers={"Host": "box.example"})).status == 200
    assert (await server.http(ROOM, headers={"Host": "other.example"})).status == 403


async def test_whoever_may_not_talk_to_the_agent_may_not_look(develop: Develop) -> None:
    def authenticate(connection: Any) -> str | None:
        return "me" if connection.headers.get("cookie") == "key=1" else None

    def before(connection: Any, cls: Any, name: str) -> Any:
        return PlainTextResponse("Closed", 423) if connection.headers.get("x-late") else None

    server = await develop(
        assistant(ScriptedModel()),
        authenticate=authenticate,
        on_before_request=before,
        on_before_connect=before,
    )
    assert await statuses(server) == {401}
    assert await statuses(server, Cookie="key=1") == {200, 404, 101}
    late = {"Cookie": "key=1", "X-Late": "1"}
    assert await statuses(server, **late) == {423}


async def test_answers_are_not_kept_or_guessed_at_by_browsers(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    headers = (await server.http(ROOM)).headers
    assert headers["content-type"] == "application/json"
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert "access-control-allow-origin" not in headers


# --- secrets


async def test_what_looks_like_a_secret_is_masked_wherever_it_turns_up(develop: Develop) -> None:
    @tool
    def login(user: str, password: str) -> dict[str, str]:
        """Log in."""
        return {"token": "tok-123456789", "note": f"Authorization: Bearer {password}-and-more"}

    cls = assistant(
        ScriptedModel(
            calls("login", user="ada", password="hunter2-hunter2"),
            says("In."),
            fails("bad key sk-abcdefghijkl"),
        ),
        get_tools=lambda self: [login],
    )
    server = await develop(cls)
    page = await server.connect(EVENTS)
    chat = await server.connect(cls)
    for _ in range(2):
        await chat.until_done(await chat.say("Log in"))
    await page.until(lambda: sum(event["type"] == "chat:turn:finish" for event in page.frames) == 2)
    shown = (await server.http(ROOM)).json
    told = [shown["turns"], shown["calls"], page.frames]
    told += [(await server.http(f"{ROOM}/turns/{turn['id']}")).json for turn in shown["turns"]]
    text = str(told)
    assert "ada" in text
    for secret in ("hunter2-hunter2", "tok-123456789", "sk-abcdefghijkl"):
        assert secret not in text
    [call] = shown["calls"]
    assert call["input"] == {"user": "ada", "password": "***"}
    assert call["output"]["token"] == "***"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain", "plain"),
        ({"password": "correct-horse"}, {"password": "***"}),
        ({"password": 12345678}, {"password": "***"}),
        ({"note": "api_key=abcdefgh"}, {"note": "api_key=***"}),
        ([{"deep": ["postgresql://me:secret@db/x"]}], [{"deep": ["postgresql://me:***@db/x"]}]),
        ({"authorization": "Bearer abcdefghij"}, {"authorization": "***"}),
        ({"tokens": "many of them", "count": None}, {"tokens": "many of them", "count": None}),
    ],
)
def test_masking_keeps_the_shape(given: Any, shown: Any) -> None:
    assert masked(given) == shown
