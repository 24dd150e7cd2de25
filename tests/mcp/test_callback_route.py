"""OAuth over the whole stack: a page, a real app, a protected MCP server and its authorization server."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from starlette.responses import PlainTextResponse
from tests.support.authorization import LIFETIME, Locked
from tests.support.mcp_stack import Assistant, Serving, Stack, state_of
from tests.support.postgres import postgres_database, postgres_server, postgres_url

from everthink.oauth.callback import new_state
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.in_process_server import Answer

__all__ = ["postgres_database", "postgres_server", "postgres_url"]

pytestmark = pytest.mark.anyio

KEY = "a key that is long enough"


@pytest.fixture
async def locked(anyio_backend: str) -> AsyncIterator[Locked]:
    async with Locked(ManualClock()) as locked:
        yield locked


@pytest.fixture
async def stack(tmp_path: Path, locked: Locked) -> AsyncIterator[Stack]:
    async with Stack(f"sqlite:///{tmp_path}/app.db", locked.clock) as stack:
        yield stack


def error_in(answer: Answer) -> str:
    """The words with which somebody is sent home."""
    assert answer.status == 302, answer.text
    home = urlsplit(answer.headers["location"])
    assert (home.netloc, home.path) == ("", "/")
    return "".join(parse_qs(home.query).get("error", []))


# --- the whole way


@pytest.mark.agent_case(211, 218, 220, 221, 222, 231)
async def test_a_person_lets_the_agent_in_and_the_model_uses_the_tool(stack: Stack, locked: Locked) -> None:
    # Given a page that adds a server which lets nobody in
    chat = await stack.connect()
    server = await stack.add(chat, "Locked!", locked.url)
    assert (server["state"], server["tools"]) == ("authenticating", [])

    # When a person goes where they are sent, and comes back
    location = await stack.sent_back(server["auth_url"])
    answer = await stack.open(location)

    # Then the model has its tool
    assert location.startswith(f"{stack.origin}/agents/assistant/room/callback?")
    assert (answer.status, answer.headers["location"]) == (302, "/")
    assert answer.headers["cache-control"] == "no-store"
    await chat.until(lambda: state_of(chat) == "ready")
    Assistant.script = ScriptedModel(calls("locked_add", a=1, b=2), says("Three."))
    await chat.until_done(await chat.say("1 + 2?"))
    assert chat.messages[-1].text == "Three."
    told = [next(iter(frame["mcp"]["servers"].values()), {}) for frame in chat.of("mcp_servers")]
    states = [one.get("state") for one in told]
    assert [one for one, before in zip(states, [None, *states], strict=False) if one != before] == [
        "connecting",
        "authenticating",
        "connecting",
        "discovering",
        "ready",
    ]
    assert {one["auth_url"] for one in told if one and one["state"] == "authenticating"} == {
        server["auth_url"]
    }
    assert told[-1]["auth_url"] is None


async def _comes_back_after_a_restart(stack: Stack, locked: Locked) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    location = await stack.sent_back(server["auth_url"])

    await stack.restart()
    answer = await stack.open(location)

    assert answer.headers["location"] == "/"
    chat = await stack.connect()
    await chat.until(lambda: state_of(chat, server["id"]) == "ready")
    [answered] = await chat.call("use", server["id"], "add", {"a": 1, "b": 2})
    assert answered["result"] == {"result": 3}
    assert locked.events == ["register", "authorize", "exchange"]


@pytest.mark.agent_case(222, 236)
async def test_a_person_comes_back_to_another_process(stack: Stack, locked: Locked) -> None:
    await _comes_back_after_a_restart(stack, locked)


async def test_a_person_comes_back_to_another_process_on_postgresql(
    postgres_url: str, locked: Locked
) -> None:
    async with Stack(postgres_url, locked.clock) as stack:
        await _comes_back_after_a_restart(stack, locked)


async def test_where_people_come_back_to_has_the_path_that_the_app_is_mounted_at(
    tmp_path: Path, locked: Locked
) -> None:
    stack = Stack(f"sqlite:///{tmp_path}/app.db", locked.clock)
    stack.mount("/chat")
    async with stack:
        chat = await stack.connect("Jürgen & co")

        server = await stack.add(chat, "locked", locked.url)
        location = await stack.sent_back(server["auth_url"])

        assert location.startswith(f"{stack.origin}/chat/agents/assistant/J%C3%BCrgen%20%26%20co/callback?")
        assert error_in(await stack.open(location)) == ""
        await chat.until(lambda: state_of(chat) == "ready")


@pytest.mark.agent_case(203)
async def test_who_stands_in_front_may_have_another_host_and_another_path(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    there = {"callback_host": "https://my.page", "callback_path": "/oauth/done"}
    server = await stack.add(chat, "locked", locked.url, **there)

    location = await stack.sent_back(server["auth_url"])
    assert location.startswith("https://my.page/oauth/done?")
    passed_on = location.replace(
        "https://my.page/oauth/done", f"{stack.origin}/agents/assistant/room/callback"
    )

    assert error_in(await stack.open(passed_on)) == ""
    await chat.until(lambda: state_of(chat) == "ready")


@pytest.mark.agent_case(222)
async def test_people_may_come_back_to_any_path_below_the_agent(stack: Stack, locked: Locked) -> None:
    chat = await stack.connect()
    path = {"callback_path": "agents/assistant/room/welcome/back"}
    server = await stack.add(chat, "locked", locked.url, **path)

    location = await stack.sent_back(server["auth_url"])

    assert "/room/welcome/back?" in location
    elsewhere = location.replace("/welcome/back", "/welcome")
    assert (await stack.open(elsewhere)).status == 404
    assert error_in(await stack.open(location)) == ""
    await chat.until(lambda: state_of(chat) == "ready")


class Asked(Assistant):
    """Adds a server when somebody asks over HTTP."""

    async def on_request(self, request: Any) -> Any:
        server = await self.add_mcp_server("locked", request.query_params["url"])
        return {"auth_url": server.auth_url}


async def test_an_http_request_says_where_people_come_back_to_as_well(tmp_path: Path, locked: Locked) -> None:
    async with Stack(f"sqlite:///{tmp_path}/app.db", locked.clock, agent=Asked) as stack:
        await (await stack.connect()).settled()
        answer = await stack.open(f"{stack.origin}/agents/asked/room/connect?url={locked.url}")

        location = await stack.sent_back(answer.json["auth_url"])

        assert location.startswith(f"{stack.origin}/agents/asked/room/callback?")


@pytest.mark.agent_case(203, 211)
async def test_without_an_address_to_come_back_to_the_error_asks_for_one(
    stack: Stack, locked: Locked
) -> None:
    agent = await stack.live()

    with pytest.raises(Exception, match=r"no address to come back to.*callback_host") as caught:
        await agent.add_mcp_server("locked", locked.url)

    assert "is kept as" in str(caught.value)
    [server] = await agent.list_mcp_servers()
    assert (server.state, server.auth_url) == ("failed", None)
    added = await agent.add_mcp_server("locked", locked.url, callback_host=stack.origin)
    assert (added.id, added.state) == (server.id, "authenticating")


# --- who else comes


@pytest.mark.agent_case(225, 229)
async def test_a_callback_that_is_loaded_again_is_fine_and_changes_nothing(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    location = await stack.sent_back(server["auth_url"])
    assert error_in(await stack.open(location)) == ""
    await chat.until(lambda: state_of(chat) == "ready")
    [before] = await stack.secrets()

    assert error_in(await stack.open(location)) == ""
    await stack.restart()
    assert error_in(await stack.open(location)) == ""

    assert await stack.secrets() == [before]
    assert locked.events.count("exchange") == 1


async def test_a_callback_that_got_no_tokens_is_not_fine_when_it_is_loaded_again(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    location = await stack.sent_back(server["auth_url"])
    wrong = re.sub("code=[^&]+", "code=wrong", location)

    assert "invalid_grant" in error_in(await stack.open(wrong))

    assert "used before" in error_in(await stack.open(location))


@pytest.mark.agent_case(223, 227, 229)
async def test_a_forged_callback_wakes_nobody_and_the_genuine_one_still_completes(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    location = await stack.sent_back(server["auth_url"])
    before = await stack.rows()
    stack.events.clear()

    forged = f"{stack.origin}/agents/assistant/room/callback?code=guess&state={new_state(server['id'])}"
    assert "nobody waits for it" in error_in(await stack.open(forged))
    assert "nobody waits for it" in error_in(await stack.open(forged.replace("code=", "error=")))

    assert await stack.rows() == before
    assert not [event for event in stack.events if event.type.startswith("mcp:")]
    assert error_in(await stack.open(location)) == ""
    await chat.until(lambda: state_of(chat) == "ready")


@pytest.mark.agent_case(228, 240)
async def test_who_comes_too_late_is_told_and_finds_another_address_to_go_to(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    location = await stack.sent_back(server["auth_url"])

    await locked.clock.advance(601)
    assert "too late" in error_in(await stack.open(location))

    await chat.until(lambda: _auth_url(chat) not in (None, server["auth_url"]))
    await stack.allowed(chat, server["id"])
    assert locked.events.count("exchange") == 1


def _auth_url(chat: Any) -> Any:
    return next(iter(chat.of("mcp_servers")[-1]["mcp"]["servers"].values()))["auth_url"]


@pytest.mark.agent_case(228)
async def test_a_state_is_for_its_server_and_its_agent_alone(stack: Stack, locked: Locked) -> None:
    chat, other = await stack.connect("room"), await stack.connect("other")
    server = await stack.add(chat, "locked", locked.url, id="locked")
    await stack.add(chat, "second", locked.url, id="second")
    await stack.add(other, "locked", locked.url, id="locked")
    location = await stack.sent_back(server["auth_url"])
    before = await stack.rows()

    for wrong in (
        location.replace(".locked&", ".second&"),
        location.replace("/room/", "/other/"),
    ):
        assert wrong != location
        assert "nobody waits for it" in error_in(await stack.open(wrong))

    assert await stack.rows() == before
    assert error_in(await stack.open(location)) == ""
    await chat.until(lambda: state_of(chat, "locked") == "ready")
    assert (state_of(chat, "second"), state_of(other, "locked")) == ("authenticating", "authenticating")


@pytest.mark.agent_case(224, 226, 233)
async def test_what_the_provider_says_is_shown_and_a_change_of_mind_still_counts(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    location = await stack.sent_back(server["auth_url"])
    [state] = parse_qs(urlsplit(location).query)["state"]
    refused = f"{stack.origin}/agents/assistant/room/callback?state={state}&error=access_denied"

    answer = await stack.open(f"{refused}&error_description=Not%0Atoday")
    await chat.until(lambda: "access_denied" in str(chat.of("mcp_servers")[-1]))

    assert error_in(answer) == "access_denied: Not today"
    [listed] = (await chat.call("servers"))[-1]["result"]
    assert (listed["state"], listed["error"]) == ("authenticating", "access_denied: Not today")
    assert "no code" in error_in(await stack.open(refused.replace("&error=access_denied", "")))
    assert error_in(await stack.open(location)) == ""
    await chat.until(lambda: state_of(chat) == "ready")
    assert chat.of("mcp_servers")[-1]["mcp"]["servers"][server["id"]]["error"] is None


@pytest.mark.parametrize(
    "path",
    [
        "callback",
        "callback?code=1",
        "callback?state=short.locked&code=1",
        "callback?state={}&state={}&code=1",
    ],
)
@pytest.mark.agent_case(222, 223)
async def test_a_request_without_a_state_of_ours_is_the_agent_s_own(
    stack: Stack, locked: Locked, path: str
) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    [state] = parse_qs(urlsplit(server["auth_url"]).query)["state"]

    answer = await stack.open(f"{stack.origin}/agents/assistant/room/{path.format(state, state)}")

    assert (answer.status, answer.text) == (404, "Not implemented")


@pytest.mark.agent_case(223)
async def test_a_callback_to_an_agent_that_does_not_exist_makes_none(stack: Stack) -> None:
    url = f"{stack.origin}/agents/assistant/nobody/callback?code=1&state={new_state('locked')}"

    answer = await stack.open(url)

    assert answer.status == 404
    directory = await stack.app.open()
    assert not await directory.exists(directory.address(Assistant, "nobody"))


# --- the application's checks


async def test_who_may_not_come_in_comes_back_all_the_same_and_does_nothing_else(
    tmp_path: Path, locked: Locked
) -> None:
    def authenticate(connection: Any) -> Any:
        return "ada" if connection.headers.get("x-who") == "ada" else None

    async with Stack(f"sqlite:///{tmp_path}/app.db", locked.clock, authenticate=authenticate) as stack:
        chat = await stack.connect("room", headers={"X-Who": "ada"})
        server = await stack.add(chat, "locked", locked.url)
        location = await stack.sent_back(server["auth_url"])
        forged = re.sub("state=[^&]+", f"state={new_state(server['id'])}", location)
        here = f"{stack.origin}/agents/assistant/room"

        refused = [await stack.open(url) for url in (forged, f"{here}/callback", f"{here}/get-messages")]
        answer = await stack.open(location)

        assert [one.status for one in refused] == [401, 401, 401]
        assert error_in(answer) == ""
        assert "set-cookie" not in answer.headers
        await chat.until(lambda: state_of(chat) == "ready")
        assert "nobody waits" in error_in(await stack.open(forged, **{"X-Who": "ada"}))


async def test_a_callback_for_an_agent_that_sleeps_wakes_it_and_a_forged_one_does_not(
    stack: Stack, locked: Locked
) -> None:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url)
    location = await stack.sent_back(server["auth_url"])
    forged = re.sub("state=[^&]+", f"state={new_state(server['id'])}", location)
    await stack.restart(authenticate=lambda connection: None)

    assert (await stack.open(forged)).status == 401
    assert len(await stack.app.open()) == 0
    assert error_in(await stack.open(location)) == ""
    assert len(await stack.app.open()) == 1


# --- where they go then


class Sending(Assistant):
    """Says itself where people go."""

    answer: Any = None
    seen: list[Any] = []  # noqa: RUF012

    def on_mcp_authorized(self, server: Any, error: str | None) -> Any:
        self.seen.append((server.id, server.state, error))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.agent_case(233)
@pytest.mark.parametrize(
    ("said", "status", "location"),
    [
        ("/welcome?to=you", 302, "/welcome?to=you"),
        ("https://my.page/done", 302, "https://my.page/done"),
        (PlainTextResponse("You may close this window."), 200, None),
        (None, 302, "/"),
        (ValueError("oops"), 302, "/"),
        ("javascript:alert(1)", 302, "/"),
        ("http://[broken", 302, "/"),
        ({"to": "/"}, 302, "/"),
    ],
)
async def test_the_agent_says_where_they_go_and_without_an_answer_they_go_home(
    tmp_path: Path, locked: Locked, monkeypatch: pytest.MonkeyPatch, said: Any, status: int, location: str
) -> None:
    monkeypatch.setattr(Sending, "answer", said)
    monkeypatch.setattr(Sending, "seen", seen := [])
    async with Stack(f"sqlite:///{tmp_path}/app.db", locked.clock, agent=Sending) as stack:
        chat = await stack.connect()
        server = await stack.add(chat, "locked", locked.url)

        answer = await stack.open(await stack.sent_back(server["auth_url"]))

        assert (answer.status, answer.headers.get("location")) == (status, location)
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert seen == [(server["id"], "connecting", None)]
        await chat.until(lambda: state_of(chat) == "ready")


async def test_the_agent_hears_of_an_error_and_observers_of_both(tmp_path: Path, locked: Locked) -> None:
    async with Stack(f"sqlite:///{tmp_path}/app.db", locked.clock, agent=Sending) as stack:
        Sending.seen.clear()
        chat = await stack.connect()
        server = await stack.add(chat, "locked", locked.url)
        location = await stack.sent_back(server["auth_url"])

        answer = await stack.open(re.sub("code=[^&]+", "error=access_denied", location))
        await stack.open(location)

        assert unquote(answer.headers["location"]) == "/?error=access_denied"
        assert Sending.seen == [
            (server["id"], "authenticating", "access_denied"),
            (server["id"], "connecting", None),
        ]
        heard = [event.payload for event in stack.events if event.type == "mcp:client:authorize"]
        assert [(one["success"], one.get("error")) for one in heard] == [
            (False, "access_denied"),
            (True, None),
        ]


# --- tokens that end


async def _authorized(stack: Stack, locked: Locked, **options: Any) -> str:
    chat = await stack.connect()
    server = await stack.add(chat, "locked", locked.url, **options)
    await stack.allowed(chat, server["id"])
    return server["id"]


ANOTHER = """
import asyncio, sys, threading

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("mcp", "pydantic"):
            print(name, threading.current_thread() is threading.main_thread())

sys.meta_path.insert(0, Watch())

from everthink import App, Think
from everthink.oauth.callback import read_callback
from everthink.testing import ManualClock

class Assistant(Think):
    model = "demo"

async def main():
    app = App(Assistant, store=sys.argv[1], clock=ManualClock(), grace=0.2)
    app.network.loopback = True
    async with app:
        directory = await app.open()
        actor = await directory.reach(directory.address(Assistant, "room"))
        assert "mcp" not in sys.modules
        await actor.mcp.finish(read_callback(sys.argv[2]))
        await actor.mcp.wait(None)
        print(actor.mcp.list()[0].state)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_process_that_a_person_comes_back_to_serves_others_while_it_loads_what_it_needs(
    stack: Stack, locked: Locked, tmp_path: Path
) -> None:
    # Given somebody who was sent away by an earlier process
    server = await stack.add(await stack.connect(), "locked", locked.url)
    query = await locked.allow(server["auth_url"])
    await stack.app.close()

    # When they come back to another one, which has connected to nobody
    another = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ANOTHER, f"sqlite:///{tmp_path}/app.db", query),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await another.communicate()

    # Then what takes a second to import was imported beside its event loop
    assert dict(line.split() for line in said.decode().splitlines()[:-1]) == {
        "mcp": "False",
        "pydantic": "False",
    }
    assert said.decode().splitlines()[-1] == "ready"


@pytest.mark.agent_case(236)
async def test_a_token_that_ended_while_nobody_was_there_is_refreshed_without_a_person(
    stack: Stack, locked: Locked
) -> None:
    id = await _authorized(stack, locked)

    await locked.clock.advance(LIFETIME)
    await stack.restart()
    chat = await stack.connect()
    await chat.until(lambda: state_of(chat, id) == "ready")

    assert locked.events == ["register", "authorize", "exchange", "refresh"]
    [answer] = await chat.call("use", id, "add", {"a": 1, "b": 2})
    assert answer["result"] == {"result": 3}


@pytest.mark.agent_case(213, 235)
async def test_a_refresh_that_is_refused_needs_a_person_again_and_no_other_server_notices(
    stack: Stack, locked: Locked
) -> None:
    async with Serving() as other:
        id = await _authorized(stack, locked)
        chat = await stack.connect()
        await stack.add(chat, "other", other.url, id="other")
        await locked.clock.advance(LIFETIME)
        locked.refresh.clear()

        await stack.restart()
        chat = await stack.connect()
        await chat.until(lambda: (state_of(chat, id), state_of(chat, "other")) == ("authenticating", "ready"))

        [answer] = await chat.call("use", "other", "add", {"a": 1, "b": 2})
        assert answer["result"] == {"result": 3}
        await stack.allowed(chat, id)


async def test_a_refresh_that_is_refused_in_the_middle_of_a_call_needs_a_person_again(
    stack: Stack, locked: Locked
) -> None:
    id = await _authorized(stack, locked)
    chat = await stack.connect()
    await locked.clock.advance(LIFETIME)
    locked.refresh.clear()

    [answer] = await chat.call("use", id, "add", {"a": 1, "b": 2})
    await chat.until(lambda: state_of(chat, id) == "authenticating")

    told = "The MCP server 'locked' waits for a person to authorise it. Nothing was run."
    assert (answer["success"], answer["error"]) == (False, told)
    await stack.allowed(chat, id)
    [answer] = await chat.call("use", id, "add", {"a": 1, "b": 2})
    assert answer["result"] == {"result": 3}


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        pytest.param(503, "it answered 503 to a refresh", id="busy"),
        pytest.param(200, "it answered with something that is no token", id="nonsense"),
        pytest.param(None, "closed connection", id="hangs up"),
    ],
)
async def test_a_call_before_which_tokens_cannot_be_refreshed_has_certainly_not_been_run(
    stack: Stack, locked: Locked, trouble: int | None, words: str
) -> None:
    # Given a server that has let us in, and an authorization server in trouble when the token has ended
    id = await _authorized(stack, locked)
    chat = await stack.connect()
    await locked.clock.advance(LIFETIME)
    locked.status, locked.hangs_up = trouble, trouble is None

    # When something is called
    [answer] = await chat.call("use", id, "add", {"a": 1, "b": 2})

    # Then it is said that nothing was run, and once the trouble is over it is
    assert not answer["success"]
    assert words in answer["error"]
    assert answer["error"].startswith("The MCP server 'locked' did not take the tool 'add':")
    assert answer["error"].endswith("Nothing was run.")
    locked.status, locked.hangs_up = None, False
    [answer] = await chat.call("use", id, "add", {"a": 1, "b": 2})
    assert answer["result"] == {"result": 3}


async def test_a_call_that_is_refused_and_cannot_be_authorised_again_has_certainly_not_been_run(
    stack: Stack, locked: Locked
) -> None:
    # Given a server that does not take its token any more, whatever that says of itself
    id = await _authorized(stack, locked)
    chat = await stack.connect()
    locked.access.clear()
    locked.hangs_up = True

    [answer] = await chat.call("use", id, "add", {"a": 1, "b": 2})

    assert answer["error"].endswith("Nothing was run.")


@pytest.mark.agent_case(234)
async def test_a_client_that_was_registered_by_hand_is_used_when_it_is_added_and_after_a_restart(
    stack: Stack, locked: Locked
) -> None:
    from mcp.shared.auth import OAuthClientInformationFull
    from pydantic import AnyUrl

    ours = OAuthClientInformationFull(
        client_id="ours",
        client_secret="hush-hush",
        redirect_uris=[AnyUrl(f"{stack.origin}/agents/assistant/room/callback")],
        scope="use admin",
        token_endpoint_auth_method="client_secret_basic",
    )
    await locked.register_client(ours)
    locked.events.clear()
    given = {"client_id": "ours", "client_secret": "hush-hush", "scope": "use admin"}

    id = await _authorized(stack, locked, **given)
    await locked.clock.advance(LIFETIME)
    await stack.restart()
    chat = await stack.connect()
    await chat.until(lambda: state_of(chat, id) == "ready")

    assert locked.events == ["authorize", "exchange", "refresh"]
    assert [token.scopes for token in locked.access.values()] == [["use", "admin"]] * 2
    assert "hush" not in json.dumps(chat.frames)


async def test_two_agents_with_the_same_server_are_let_in_each_for_itself(
    stack: Stack, locked: Locked
) -> None:
    chat, other = await stack.connect("room"), await stack.connect("other")
    await stack.add(chat, "locked", locked.url, id="locked")
    await stack.add(other, "locked", locked.url, id="locked")

    await stack.allowed(chat, "locked")

    assert state_of(other, "locked") == "authenticating"
    [refused] = await other.call("use", "locked", "add", {"a": 1, "b": 2})
    assert not refused["success"]
    await stack.allowed(other, "locked")
    assert len(locked.clients) == 2
    assert len(set(await stack.secrets())) == 2


# --- secrets


async def test_no_secret_is_stored_openly_shown_logged_or_exported(
    tmp_path: Path, locked: Locked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given an app with a key, whose agent has a server behind OAuth and one with a header
    monkeypatch.setenv("EVERTHINK_SECRET_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    async with AsyncExitStack() as parts:
        other = await parts.enter_async_context(Serving())
        stack = await parts.enter_async_context(Stack(f"sqlite:///{tmp_path}/app.db", locked.clock))
        chat = await stack.connect()
        server = await stack.add(chat, "locked", locked.url)
        location = await stack.sent_back(server["auth_url"])
        assert error_in(await stack.open(location)) == ""
        await chat.until(lambda: state_of(chat, server["id"]) == "ready")
        header = {"Authorization": "Bearer not-for-everybody-1"}
        await stack.add(chat, "other", other.url, headers=header)

        # When everything is looked at that others may see
        Assistant.script = ScriptedModel(calls("locked_add", a=1, b=2), says("Three."))
        await chat.until_done(await chat.say("1 + 2?"))
        exported = [line async for line in stack.app.export(Assistant, "room")]
        live = await stack.live()
        kept = await live._home.mcp._own[server["id"]]._keep.read()
        seen = {
            "frames": json.dumps([f for f in chat.frames if f.get("type") != "rpc"][:]),
            "events": repr(stack.events),
            "log": caplog.text,
            "export": json.dumps(exported),
            "repr": f"{await live.list_mcp_servers()!r} {live!r} {stack.app!r}",
        }
        await stack.app.close()
        seen["file"] = _bytes_in(tmp_path)

    # Then none of them has any of it
    query = parse_qs(urlsplit(location).query)
    tokens = [*locked.access, *locked.refresh]
    secrets = {*tokens, *query["code"], "not-for-everybody-1", kept["tokens"]["access_token"]}
    assert other.heads[-1]["authorization"] == "Bearer not-for-everybody-1"
    assert len(secrets) == 4
    for place, text in seen.items():
        assert not [secret for secret in secrets if secret in text], place
    [state] = query["state"]
    assert not [place for place in ("events", "log", "export", "repr", "file") if state in seen[place]]
    lines = [line for line in exported if line["kind"] == "mcp_server"]
    assert {line["name"] for line in lines} == {"locked", "other"}


def _bytes_in(folder: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in folder.glob("app.db*"))


@pytest.mark.agent_case(221)
async def test_what_was_stored_before_there_was_a_key_is_sealed_once_there_is_one(
    stack: Stack, locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await _authorized(stack, locked)
    assert (await stack.secrets())[0].startswith("plain:")

    monkeypatch.setenv("EVERTHINK_SECRET_KEY", KEY)
    await stack.restart()
    chat = await stack.connect()
    await chat.until(lambda: state_of(chat, id) == "ready")

    assert (await stack.secrets())[0].startswith("sealed:")


async def test_secrets_that_no_key_opens_are_told_and_kept_until_there_is_one_again(
    stack: Stack, locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTHINK_SECRET_KEY", KEY)
    await stack.restart()
    async with Serving() as other:
        id = await _authorized(stack, locked)
        chat = await stack.connect()
        await stack.add(chat, "other", other.url, id="other")
        before = await stack.rows()

        monkeypatch.setenv("EVERTHINK_SECRET_KEY", "another key that is as long")
        await stack.restart()
        chat = await stack.connect()
        await chat.until(lambda: state_of(chat, "other") == "ready")

        servers = chat.of("mcp_servers")[-1]["mcp"]["servers"]
        assert servers[id]["state"] == "failed"
        assert "cannot be opened" in servers[id]["error"]
        [answer] = await chat.call("use", id, "add", {"a": 1, "b": 2})
        assert "cannot be opened" in answer["error"]
        assert await stack.rows() == before

        monkeypatch.setenv("EVERTHINK_SECRET_KEY", KEY)
        await stack.restart()
        chat = await stack.connect()
        await chat.until(lambda: state_of(chat, id) == "ready")


async def test_a_server_whose_secrets_nobody_opens_can_be_added_again_or_removed(
    stack: Stack, locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTHINK_SECRET_KEY", KEY)
    await stack.restart()
    id = await _authorized(stack, locked)
    monkeypatch.setenv("EVERTHINK_SECRET_KEY", "another key that is as long")
    await stack.restart()
    chat = await stack.connect()

    server = await stack.add(chat, "locked", locked.url)

    assert (server["id"], server["state"]) == (id, "authenticating")
    await stack.allowed(chat, id)
    assert (await chat.call("remove", id))[-1]["result"] is True
    assert await stack.rows() == []
