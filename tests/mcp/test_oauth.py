"""OAuth that outlives the process: every story against the SDK's own authorization server, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from tests.support.authorization import LIFETIME, Locked

from everthink.errors import AuthorizationFailed, CallbackRefused, NeedsAuthorization
from everthink.oauth.callback import Callback, new_state, read_callback
from everthink.oauth.flow import DurableOAuth, OAuthServer
from everthink.oauth.keep import Keep
from everthink.oauth.sealing import Sealer
from everthink.testing import ManualClock
from mcp import Client

pytestmark = pytest.mark.anyio

CALLBACK = "http://127.0.0.1:8765/agents/assistant/room/callback"
KEY = "a key that is long enough"


class Process:
    """One process after the other on the same file: `restarted` throws everything away but that."""

    def __init__(self, folder: Path, locked: Locked, **server: Any) -> None:
        self.file = folder / "secrets"
        self.locked, self.clock = locked, locked.clock
        self.server = OAuthServer(**{"id": "locked", "url": locked.url, "callback_url": CALLBACK, **server})
        self.restarted()

    def restarted(self, **server: Any) -> None:
        if server:
            self.server = OAuthServer(**{**_fields(self.server), **server})
        self.keep = Keep(Sealer(KEY), self._load, self._save)
        self.oauth = DurableOAuth(self.server, self.keep, self.clock)

    async def _load(self) -> str | None:
        return self.file.read_text() if self.file.exists() else None

    async def _save(self, text: str) -> None:
        self.file.write_text(text)

    async def ask(self, oauth: DurableOAuth | None = None) -> int:
        """One request to the server. Returns its status."""
        greeting = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        async with httpx2.AsyncClient(auth=oauth or self.oauth) as http:
            return (await http.post(self.locked.url, json=greeting, headers=headers)).status_code

    async def is_sent_away(self) -> str:
        """Ask, and be told to send a person. Returns where to."""
        with pytest.raises(NeedsAuthorization) as caught:
            await self.ask()
        return caught.value.url

    async def comes_back(self, query: str) -> None:
        callback = read_callback(query)
        assert callback is not None
        await self.brings(callback)

    async def brings(self, callback: Callback) -> None:
        async with httpx2.AsyncClient() as http:
            await self.oauth.finish(callback, http)

    async def authorized(self) -> None:
        await self.comes_back(await self.locked.allow(await self.is_sent_away()))

    async def kept(self) -> dict[str, Any]:
        return await Keep(Sealer(KEY), self._load, self._save).read()


def _fields(server: OAuthServer) -> dict[str, Any]:
    return {name: getattr(server, name) for name in OAuthServer.__dataclass_fields__}


@pytest.fixture
async def locked(anyio_backend: str) -> AsyncIterator[Locked]:
    async with Locked(ManualClock()) as locked:
        yield locked


@pytest.fixture
def process(tmp_path: Path, locked: Locked) -> Process:
    return Process(tmp_path, locked)


# --- the whole way


async def test_once_a_person_has_allowed_it_the_tools_answer(process: Process, locked: Locked) -> None:
    await process.authorized()

    http = httpx2.AsyncClient(auth=process.oauth)
    async with http, Client(streamable_http_client(locked.url, http_client=http)) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})

    assert result.structured_content == {"result": 3}
    assert locked.events == ["register", "authorize", "exchange"]


async def test_who_connects_hears_that_a_person_is_needed(process: Process, locked: Locked) -> None:
    http = httpx2.AsyncClient(auth=process.oauth)

    with pytest.raises(BaseException) as caught:  # noqa: PT011 - the error itself, or a group around it
        async with http, Client(streamable_http_client(locked.url, http_client=http)):
            pass

    cause: BaseException = caught.value
    while isinstance(cause, BaseExceptionGroup):
        (cause,) = cause.exceptions
    assert isinstance(cause, NeedsAuthorization)
    assert cause.url == await process.oauth.auth_url()


@pytest.mark.agent_case(222, 231)
async def test_a_person_comes_back_to_another_process_than_the_one_that_sent_them(
    process: Process, locked: Locked
) -> None:
    url = await process.is_sent_away()
    before = await process.kept()

    process.restarted()
    await process.comes_back(await locked.allow(url))
    process.restarted()

    assert await process.ask() == 200
    after = await process.kept()
    assert (after["client"], after["metadata"]) == (before["client"], before["metadata"])
    assert "pending" not in after
    assert await process.oauth.auth_url() is None


async def test_everything_is_on_disk_before_anybody_is_sent_away_and_nothing_of_it_can_be_read(
    process: Process,
) -> None:
    url = await process.is_sent_away()

    (state,) = parse_qs(urlsplit(url).query)["state"]
    text = process.file.read_text()
    assert state not in text
    assert (await process.kept())["pending"][0]["state"] == state
    await process.authorized()
    assert (await process.kept())["tokens"]["access_token"] not in process.file.read_text()


async def test_both_halves_name_the_resource_that_tokens_are_for(process: Process, locked: Locked) -> None:
    url = await process.is_sent_away()

    process.restarted()
    await process.comes_back(await locked.allow(url))

    assert parse_qs(urlsplit(url).query)["resource"] == [locked.url]
    assert locked.forms[-1]["resource"] == locked.url


async def test_no_secret_is_in_words_or_logs(
    process: Process, locked: Locked, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mcp")
    caplog.set_level(logging.DEBUG, "everthink")
    with pytest.raises(NeedsAuthorization) as caught:
        await process.ask()
    await process.comes_back(await locked.allow(caught.value.url))
    await locked.clock.advance(LIFETIME)
    locked.refresh.clear()
    await process.is_sent_away()

    words = f"{caught.value} {caught.value!r} {caplog.text}"
    hidden = [*locked.access, *parse_qs(urlsplit(caught.value.url).query)["state"]]
    assert not [secret for secret in hidden if secret in words]
    assert "hush" not in repr(OAuthServer(id="a", url="b", callback_url=None, client_secret="hush"))


# --- those who come to the callback


@pytest.mark.agent_case(227)
async def test_a_forged_callback_changes_nothing_and_the_genuine_one_still_completes(
    process: Process, locked: Locked
) -> None:
    query = await locked.allow(await process.is_sent_away())
    before = process.file.read_text()

    for forged in (Callback(new_state("locked"), code="guess"), Callback("ü.locked", error="denied")):
        with pytest.raises(CallbackRefused) as caught:
            await process.brings(forged)
        assert not caught.value.is_repeat

    assert process.file.read_text() == before
    await process.comes_back(query)
    assert await process.ask() == 200


@pytest.mark.agent_case(225, 228)
async def test_a_callback_is_redeemed_once_and_known_when_it_is_repeated(
    process: Process, locked: Locked
) -> None:
    query = await locked.allow(await process.is_sent_away())
    await process.comes_back(query)
    before = process.file.read_text()

    process.restarted()
    with pytest.raises(CallbackRefused, match="used before") as caught:
        await process.comes_back(query)

    assert caught.value.is_repeat
    assert locked.events.count("exchange") == 1
    assert process.file.read_text() == before


@pytest.mark.agent_case(229)
async def test_of_two_callbacks_at_once_one_is_redeemed(process: Process, locked: Locked) -> None:
    query = await locked.allow(await process.is_sent_away())

    results = await asyncio.gather(
        process.comes_back(query), process.comes_back(query), return_exceptions=True
    )

    assert sorted(type(one).__name__ for one in results) == ["CallbackRefused", "NoneType"]
    assert locked.events.count("exchange") == 1
    assert await process.ask() == 200


async def test_a_state_is_used_up_on_disk_before_its_code_is_used(process: Process, locked: Locked) -> None:
    query = await locked.allow(await process.is_sent_away())
    kept: list[dict[str, Any]] = []

    async def look() -> None:
        kept.append(await process.kept())

    locked.before_token = look
    await process.comes_back(query)

    assert [one["pending"] for one in kept] == [[]]


@pytest.mark.agent_case(228)
async def test_who_comes_back_after_ten_minutes_is_too_late(process: Process, locked: Locked) -> None:
    query = await locked.allow(await process.is_sent_away())
    before = process.file.read_text()

    await process.clock.advance(600)
    with pytest.raises(CallbackRefused, match="too late; 10 minutes"):
        await process.comes_back(query)

    assert process.file.read_text() == before
    assert await process.oauth.auth_url() is None


async def test_who_comes_back_a_moment_earlier_is_let_in(process: Process, locked: Locked) -> None:
    query = await locked.allow(await process.is_sent_away())

    await process.clock.advance(599)
    await process.comes_back(query)

    assert await process.ask() == 200


@pytest.mark.agent_case(228, 232)
async def test_a_callback_for_another_server_is_refused(
    process: Process, locked: Locked, tmp_path: Path
) -> None:
    query = await locked.allow(await process.is_sent_away())
    other = Process(tmp_path / "..", locked, id="other")
    other.file = process.file  # even where both could read the same

    with pytest.raises(CallbackRefused, match="another server"):
        await other.comes_back(query)

    await process.comes_back(query)
    assert await process.ask() == 200


async def test_an_answer_of_another_authorization_server_is_refused_and_the_right_one_completes(
    process: Process, locked: Locked
) -> None:
    callback = read_callback(await locked.allow(await process.is_sent_away()))
    assert callback is not None

    with pytest.raises(CallbackRefused, match="not from the authorization server"):
        await process.brings(Callback(callback.state, code="theirs", issuer="https://evil.example"))

    await process.brings(callback)
    assert await process.ask() == 200


@pytest.mark.agent_case(224, 226)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": "access_denied"}, "access_denied"),
        ({"error": "access_denied", "description": "Not\x1b[2J to\u202eday"}, "access_denied: Not[2J today"),
        ({}, "the authorization server has sent no code"),
    ],
)
async def test_what_the_provider_says_is_passed_on_and_a_change_of_mind_still_counts(
    process: Process, locked: Locked, answer: dict[str, str], words: str
) -> None:
    callback = read_callback(await locked.allow(await process.is_sent_away()))
    assert callback is not None

    with pytest.raises(AuthorizationFailed) as caught:
        await process.brings(Callback(callback.state, issuer=locked.issuer, **answer))

    assert str(caught.value) == words
    await process.brings(callback)
    assert await process.ask() == 200


@pytest.mark.agent_case(230)
async def test_a_code_that_gives_no_tokens_is_told_and_its_state_is_used_up(
    process: Process, locked: Locked
) -> None:
    callback = read_callback(await locked.allow(await process.is_sent_away()))
    assert callback is not None

    with pytest.raises(AuthorizationFailed, match="invalid_grant: authorization code does not exist"):
        await process.brings(Callback(callback.state, code="wrong", issuer=callback.issuer))

    with pytest.raises(CallbackRefused):
        await process.brings(callback)
    assert "tokens" not in await process.kept()


async def test_an_authorization_server_that_is_gone_is_told(process: Process, locked: Locked) -> None:
    query = await locked.allow(await process.is_sent_away())
    await locked.__aexit__()

    with pytest.raises(AuthorizationFailed, match="could not be reached"):
        await process.comes_back(query)


@pytest.mark.agent_case(230, 232)
async def test_each_visit_has_a_verifier_of_its_own_and_the_state_says_which(
    process: Process, locked: Locked
) -> None:
    first = await process.is_sent_away()
    await process.clock.advance(400)
    second = await process.is_sent_away()
    assert first != second

    await process.comes_back(await locked.allow(first))

    assert await process.ask() == 200
    assert "pending" not in await process.kept()


async def test_asking_again_makes_the_visit_of_nobody_void(process: Process) -> None:
    url = await process.is_sent_away()

    process.restarted()

    assert await process.is_sent_away() == url
    assert await process.oauth.auth_url() == url


@pytest.mark.agent_case(232)
async def test_states_that_have_ended_are_cleared_away(process: Process) -> None:
    await process.is_sent_away()
    await process.clock.advance(601)

    await process.is_sent_away()

    assert len((await process.kept())["pending"]) == 1


@pytest.mark.agent_case(232)
async def test_forgetting_takes_everything_of_oauth_and_nothing_else(process: Process) -> None:
    await process.keep.write(headers={"X-Team": "blue"})
    await process.authorized()

    await process.oauth.forget()

    assert await process.kept() == {"headers": {"X-Team": "blue"}}
    await process.is_sent_away()


# --- tokens that end


async def test_a_token_that_ended_is_refreshed_after_a_restart_without_a_person(
    process: Process, locked: Locked
) -> None:
    await process.authorized()
    old = (await process.kept())["tokens"]["access_token"]
    await process.clock.advance(LIFETIME)

    process.restarted()

    assert await process.ask() == 200
    assert locked.events[-1] == "refresh"
    assert old not in locked.shown
    process.restarted()
    assert await process.ask() == 200
    assert locked.events.count("refresh") == 1


async def test_a_refresh_token_that_is_not_replaced_stays(process: Process, locked: Locked) -> None:
    locked.rotates = False
    await process.authorized()

    for times in (1, 2):
        await process.clock.advance(LIFETIME)
        process.restarted()
        assert await process.ask() == 200
        assert locked.events.count("refresh") == times


async def test_a_token_that_the_server_no_longer_takes_is_refreshed_without_a_person(
    process: Process, locked: Locked
) -> None:
    await process.authorized()
    locked.access.clear()

    assert await process.ask() == 200

    assert locked.events == ["register", "authorize", "exchange", "refresh"]


async def test_a_refresh_that_is_refused_needs_a_person_and_says_why(
    process: Process, locked: Locked
) -> None:
    await process.authorized()
    await process.clock.advance(LIFETIME)
    locked.refresh.clear()

    process.restarted()
    with pytest.raises(NeedsAuthorization, match="refresh token does not exist") as caught:
        await process.ask()

    assert "tokens" not in await process.kept()
    await process.comes_back(await locked.allow(caught.value.url))
    assert await process.ask() == 200
    assert locked.events.count("register") == 1


@pytest.mark.parametrize("status", [503, 429, 302])
async def test_an_authorization_server_that_is_busy_costs_no_visit(
    process: Process, locked: Locked, status: int
) -> None:
    await process.authorized()
    await process.clock.advance(LIFETIME)
    locked.status = status

    with pytest.raises(AuthorizationFailed, match=f"answered {status} to a refresh"):
        await process.ask()

    locked.status = None
    assert await process.ask() == 200
    assert locked.events[-1] == "refresh"


async def test_an_answer_that_is_no_token_costs_no_visit_and_is_not_repeated(
    process: Process, locked: Locked, caplog: pytest.LogCaptureFixture
) -> None:
    await process.authorized()
    await process.clock.advance(LIFETIME)
    locked.status = 200

    with pytest.raises(AuthorizationFailed, match="no token") as caught:
        await process.ask()

    assert "busy" not in f"{caught.value}{caplog.text}"
    assert "tokens" in await process.kept()


async def test_connections_that_refresh_at_once_are_both_let_in(process: Process, locked: Locked) -> None:
    await process.authorized()
    one, other = (DurableOAuth(process.server, process.keep, process.clock) for _ in range(2))
    assert await process.ask(one) == 200
    await process.clock.advance(LIFETIME)

    assert await asyncio.gather(process.ask(one), process.ask(other)) == [200, 200]

    await process.clock.advance(LIFETIME)
    before = locked.events.count("refresh")
    assert [await process.ask(other), await process.ask(one)] == [200, 200]
    assert locked.events.count("refresh") == before + 1


async def test_a_connection_takes_up_what_another_has_refreshed_and_refreshes_when_that_is_refused_too(
    process: Process, locked: Locked
) -> None:
    await process.authorized()
    one, other = (DurableOAuth(process.server, process.keep, process.clock) for _ in range(2))
    assert await process.ask(one) == 200
    locked.access.clear()
    assert await process.ask(other) == 200

    assert await process.ask(one) == 200
    assert locked.events.count("refresh") == 1

    locked.access.clear()
    assert await process.ask(other) == 200
    locked.access.clear()
    assert await process.ask(one) == 200
    assert locked.events.count("refresh") == 3
    assert locked.events.count("authorize") == 1


# --- who we are


async def test_a_client_is_registered_in_the_way_that_the_server_offers(
    process: Process, locked: Locked
) -> None:
    await process.is_sent_away()

    (client,) = locked.clients.values()
    assert (client.client_name, client.token_endpoint_auth_method) == ("everthink", "client_secret_basic")
    assert (await process.kept())["client"]["client_secret"] == client.client_secret


async def test_a_registration_that_is_refused_is_told_once_in_words(
    process: Process, locked: Locked, caplog: pytest.LogCaptureFixture
) -> None:
    locked.registers = False

    with pytest.raises(AuthorizationFailed, match=r"Registration failed: 403 Members only\. What"):
        await process.ask()

    assert [record for record in caplog.records if record.name.startswith("mcp.client")] == []


async def test_a_server_that_gives_tokens_itself_is_told_in_both_halves_what_they_are_for(
    tmp_path: Path, anyio_backend: str
) -> None:
    async with Locked(ManualClock(), is_old=True) as locked:
        process = Process(tmp_path, locked)
        url = await process.is_sent_away()
        process.restarted()
        await process.comes_back(await locked.allow(url))

        assert await process.ask() == 200
        assert parse_qs(urlsplit(url).query)["resource"] == [locked.url]
        assert locked.forms[-1]["resource"] == locked.url


async def test_a_client_that_the_server_has_forgotten_is_registered_anew(
    process: Process, locked: Locked
) -> None:
    await process.authorized()
    await process.clock.advance(LIFETIME)
    locked.clients.clear()

    await process.authorized()

    assert await process.ask() == 200
    assert locked.events.count("register") == 2


async def test_a_client_of_another_address_is_registered_anew(process: Process, locked: Locked) -> None:
    await process.is_sent_away()

    process.restarted(callback_url="http://127.0.0.1:9999/elsewhere")
    await process.authorized()

    assert await process.ask() == 200
    assert locked.events.count("register") == 2


async def test_who_was_sent_away_from_another_address_is_let_in_all_the_same(
    process: Process, locked: Locked
) -> None:
    query = await locked.allow(await process.is_sent_away())

    process.restarted(callback_url="http://127.0.0.1:9999/elsewhere")
    await process.comes_back(query)

    assert await process.ask() == 200


async def test_without_an_address_to_come_back_to_nobody_is_sent_away(
    process: Process, locked: Locked
) -> None:
    process.restarted(callback_url=None)

    with pytest.raises(AuthorizationFailed, match="callback_host"):
        await process.ask()

    assert locked.events == []


async def test_without_an_address_what_is_kept_is_refreshed_all_the_same(
    process: Process, locked: Locked
) -> None:
    await process.authorized()
    await process.clock.advance(LIFETIME)

    process.restarted(callback_url=None)

    assert await process.ask() == 200


@pytest.mark.parametrize("method", ["client_secret_basic", "none"])
async def test_a_client_that_code_names_is_used_and_never_stored(
    process: Process, locked: Locked, method: str
) -> None:
    secret = "hush" if method != "none" else None
    await locked.register_client(
        _client("ours", secret=secret, method=method),
    )
    locked.events.clear()
    process.restarted(client_id="ours", client_secret=secret)

    await process.authorized()
    await process.clock.advance(LIFETIME)
    process.restarted()

    assert await process.ask() == 200
    assert locked.events == ["authorize", "exchange", "refresh"]
    assert "client" not in await process.kept()
    assert "hush" not in json.dumps(await process.kept())


def _client(id: str, *, secret: str | None, method: str) -> Any:
    from mcp.shared.auth import OAuthClientInformationFull
    from pydantic import AnyUrl

    return OAuthClientInformationFull(
        client_id=id,
        client_secret=secret,
        token_endpoint_auth_method=method,
        redirect_uris=[AnyUrl(CALLBACK)],
        scope="use admin",
    )


async def test_scopes_that_code_names_are_registered_and_asked_for(process: Process, locked: Locked) -> None:
    process.restarted(scope="use admin")

    url = await process.is_sent_away()

    assert parse_qs(urlsplit(url).query)["scope"] == ["use admin"]
    assert [client.scope for client in locked.clients.values()] == ["use admin"]


async def test_a_tool_that_wants_more_scopes_sends_a_person_to_allow_both(
    process: Process, locked: Locked
) -> None:
    await locked.register_client(_client("ours", secret=None, method="none"))
    process.restarted(client_id="ours", scope="admin")
    await process.authorized()  # what was allowed does not reach

    url = await process.is_sent_away()

    (scope,) = parse_qs(urlsplit(url).query)["scope"]
    assert set(scope.split()) == {"admin", "use"}
