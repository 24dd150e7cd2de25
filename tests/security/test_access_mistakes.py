"""Easy mistakes in `authenticate` and `authorize`: none of them lets anybody do more than was meant."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from everthink.errors import AgentError
from everthink.runtime.rpc import exposed
from everthink.server import Granted
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

from ..support.agents import assistant
from ..support.named import by_repr
from ..support.server import served
from ..support.turns import record_events
from .conftest import Serve, ServeOn
from .doors import INSPECT, WAYS, audits, by_header, develop, knock
from .strangers import by_token, people, said, shop

pytestmark = pytest.mark.anyio

EVERYTHING = ("ask", "answer", "cancel", "clear", "state", "call")
CHANGES = {
    "leaf": b'{"message": "m"}',
    "memory/blocks": b'{"label": "memory", "content": "evil"}',
    "memory/compact": b"{}",
    "memory/refresh": b"{}",
    "sessions": b'{"name": "evil"}',
    "sessions/rename": b'{"id": "", "name": "evil"}',
    "sessions/open": b'{"id": ""}',
    "sessions/fork": b'{"id": ""}',
    "sessions/delete": b'{"id": ""}',
}


# --- the inspector, for those who may only read


def raises(*given: Any) -> Any:
    raise HTTPException(404, "Nothing here")


@pytest.mark.parametrize(
    "connected",
    [["read"], ["ask"], EVERYTHING[1:], False, PlainTextResponse("No", 403), raises, "what?"],
    ids=["read", "ask", "all but one", "False", "a response", "raises", "nonsense"],
)
async def test_who_might_not_do_everything_on_a_socket_changes_nothing_in_the_inspector(
    tmp_path: Path, connected: Any
) -> None:
    def authorize(identity: Any, action: str, agent: Any) -> Any:
        if action == "connect":
            return connected(identity) if connected is raises else connected
        return True

    page = develop(tmp_path, assistant(ScriptedModel()), authenticate=by_header, authorize=authorize)
    app: Any = page._loaded.app
    events = record_events(app, "audit")
    async with served(page) as server:
        await app.agent(app.classes[0], "room").add_messages("Hello")
        assert (await knock(server, "inspect", "eve"))[0] == 200
        for path, body in CHANGES.items():
            headers = {"X-Token": "eve"}
            refused = await server.http(f"{INSPECT}/{path}", method="POST", headers=headers, body=body)
            assert (path, refused.status) == (path, 403)
            assert "Nothing was changed" in refused.json["error"]
    assert set(audits(events)) == {("inspect", False, "no permission", "eve", "room")}


@pytest.mark.parametrize("connected", [True, EVERYTHING])
async def test_who_may_do_everything_may_change_things_there(tmp_path: Path, connected: Any) -> None:
    def authorize(identity: Any, action: str, agent: Any) -> Any:
        return connected if action == "connect" else True

    async with served(develop(tmp_path, assistant(ScriptedModel()), authorize=authorize)) as server:
        made = await server.http(f"{INSPECT}/sessions", method="POST", body=b'{"name": "more"}')
        assert made.status == 200


# --- Granted


@pytest.mark.parametrize("nobody", [None, False, "", 0, [], {}], ids=by_repr)
async def test_a_grant_for_nobody_that_names_no_permissions_is_refused(tmp_path: Path, nobody: Any) -> None:
    granted = Granted(nobody, until=time.time() + 3600)
    page = develop(tmp_path, assistant(ScriptedModel()), authenticate=lambda connection: granted)
    async with served(page) as server:
        for way in WAYS:
            assert await knock(server, way) == (401, "Unauthorized")


async def test_a_guest_is_one_by_the_permissions_that_are_named(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Hi.")))
    guest = Granted(None, permissions=["ask"])
    server = await serve(cls, authenticate=lambda connection: guest)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Hello"))
    assert chat.text == "Hi."
    connection = (await live(server.app.agent(cls, "room"))).connections[0]
    assert (connection.identity, connection.permissions) == (None, {"ask"})


@pytest.mark.parametrize(
    ("granted", "words"),
    [
        (Granted(Granted("ada", permissions=[])), "a Granted inside of a Granted. Nobody was let in."),
        (Granted(Granted(None), permissions=["ask"]), "a Granted inside of a Granted"),
        (Granted(len), "which is nobody"),
        (Granted(ValueError("bad token")), "bad token"),
    ],
    ids=["nested", "nested guest", "a function", "an error"],
)
async def test_a_grant_that_cannot_be_meant_lets_nobody_in_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, granted: Granted, words: str
) -> None:
    page = develop(tmp_path, assistant(ScriptedModel()), authenticate=lambda connection: granted)
    async with served(page) as server:
        for way in WAYS:
            assert await knock(server, way) == (500, "Internal Server Error")
    assert words in caplog.text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"until": 1_900_000_000_000}, "looks like milliseconds"),
        ({"until": 1.9e12}, "Divide it by 1000"),
        ({"until": 3600}, "looks like a while.*time.time() + 3600"),
        ({"until": "tomorrow"}, "until='tomorrow'.*is no moment"),
        ({"until": datetime(2030, 1, 1)}, "has no time zone"),
        ({"permissions": ["aks"]}, "'aks' is no permission.*Did you mean 'ask'?"),
        ({"permissions": "ask"}, "Write a list: ['ask']"),
        ({"permissions": {"ask": False}}, "{'ask': False} is no permission.*Write a list"),
    ],
    ids=by_repr,
)
def test_a_grant_is_refused_where_it_is_made(given: dict[str, Any], words: str) -> None:
    with pytest.raises(AgentError) as refused:
        Granted("ada", **given)
    assert all(part in str(refused.value) for part in words.split(".*"))


@pytest.mark.parametrize("until", [0, 1_700_000_000, math.inf, None, datetime(2001, 1, 1, tzinfo=UTC)])
def test_a_grant_that_is_over_already_is_one_all_the_same(until: Any) -> None:
    assert Granted("ada", until=until).until == until


@pytest.mark.parametrize("said", [b"ada", Granted(b"ada")], ids=by_repr)
async def test_bytes_say_nobody_and_the_log_says_what_to_return(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: Any
) -> None:
    page = develop(tmp_path, assistant(ScriptedModel()), authenticate=lambda connection: said)
    async with served(page) as server:
        for way in WAYS:
            assert await knock(server, way) == (500, "Internal Server Error")
    assert "which does not say who it is. Nobody was let in. Return a name" in caplog.text


class Anonymous:
    """As frameworks have it: an object for somebody who is nobody."""

    id = None
    username = ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((None, "no token"), "authenticate returned tuple, which may hold anybody, or nobody"),
        (["ada"], "authenticate returned list"),
        ({"ada"}, "authenticate returned set"),
        (Anonymous, "authenticate returned Anonymous, which is a class"),
        (Anonymous(), "authenticate returned Anonymous, whose 'id' says nothing"),
        ({"id": None}, "authenticate returned dict, whose 'id' says nothing"),
        ({"sub": None, "role": "admin"}, "whose 'sub' says nothing"),
        (Granted({"email": ""}), "whose 'email' says nothing"),
    ],
    ids=by_repr,
)
async def test_nobody_in_the_shape_of_somebody_is_not_let_in_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: Any, words: str
) -> None:
    page = develop(tmp_path, assistant(ScriptedModel()), authenticate=lambda connection: said)
    async with served(page) as server:
        for way in WAYS:
            assert await knock(server, way) == (401, "Unauthorized")
    assert words in caplog.text


@pytest.mark.parametrize("said", [{"id": None, "sub": "ada"}, {"name": None}, 7, {"id": 0}], ids=by_repr)
async def test_somebody_with_an_unusual_name_is_let_in(tmp_path: Path, said: Any) -> None:
    page = develop(tmp_path, assistant(ScriptedModel()), authenticate=lambda connection: said)
    async with served(page) as server:
        assert (await knock(server, "inspect"))[0] != 401


async def test_a_response_inside_of_a_grant_refuses(tmp_path: Path) -> None:
    granted = Granted(PlainTextResponse("Sign in", 401))
    page = develop(tmp_path, assistant(ScriptedModel()), authenticate=lambda connection: granted)
    async with served(page) as server:
        for way in WAYS:
            assert await knock(server, way) == (401, "Sign in")


# --- permissions for every action


class Tried:
    """What somebody reached for whom `authorize` says the same whatever is asked."""

    def __init__(self, said: Any) -> None:
        self.said, self.called, self.requests = said, list[str](), list[Any]()

    def agent(self) -> Any:
        def on_request(_: Any, request: Any) -> str:
            self.requests.append(set(request.state.permissions))
            return "answered"

        @exposed
        def write(_: Any) -> str:
            self.called.append("write")
            return "written"

        @exposed(reads=True)
        def look(_: Any) -> str:
            self.called.append("look")
            return "seen"

        return assistant(ScriptedModel(), on_request=on_request, write=write, look=look)


@pytest.mark.parametrize(
    ("said", "called"), [(["read"], []), (["ask", "call"], ["write", "look"]), ({"ask"}, [])], ids=by_repr
)
async def test_permissions_are_an_answer_to_everything_that_is_asked(
    tmp_path: Path, said: Any, called: list[str]
) -> None:
    tried = Tried(said)
    page = develop(tmp_path, tried.agent(), authorize=lambda identity, action, agent: said)
    async with served(page) as server:
        chat = await server.connect("/agents/assistant/room")
        await chat.until_frame("mcp_servers")
        for method in ("write", "look"):
            [answer] = await chat.call(method)
            assert answer["success"] is (method in called)
        for way in ("read", "request", "inspect"):
            assert (await knock(server, way))[0] == 200
        changed = await server.http(f"{INSPECT}/sessions", method="POST", body=b'{"name": "evil"}')
        assert changed.status == 403
    assert tried.called == called
    assert tried.requests == [set(said) - {"read"}]


async def test_a_call_of_what_does_not_exist_was_never_allowed(serve: Serve) -> None:
    cls = Tried(True).agent()
    server = await serve(cls, authorize=lambda identity, action, agent: True)
    events = record_events(server.app, "audit")
    chat = await server.connect(cls)
    assert (await chat.call("nothing"))[-1]["success"] is False
    assert [(e.payload["allowed"], e.payload["target"]) for e in events] == [(False, "nothing")]


# --- the same name, elsewhere


async def test_the_same_name_of_another_tenant_changes_nothing_that_was_said(serve_on: ServeOn) -> None:
    def who(connection: Any) -> Any:
        name, _, tenant = by_token(connection).partition("@")
        return {"sub": name, "tenant": tenant}

    cls = shop(ScriptedModel(says("Four."), says("Six.")))
    server = await serve_on(cls, authenticate=who)
    one, two = await people(server, cls, "ada@a", "ada@b")
    await one.until_done(await one.request([said("u1", "2 + 2?")]))
    refused = await two.until_done(await two.request([said("u1", "Give me the money")]))
    assert "only its author may change" in refused["body"]
    await one.until_done(await one.request([said("u1", "3 + 3?")]))
    assert [m.text for m in await server.app.agent(cls, "room").get_messages()] == ["3 + 3?", "Six."]
