"""Who may come in by MCP, and do what: the same questions in the same order as at every other way in."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from everthink import Agent, Think, exposed, tool
from everthink.server import Granted
from everthink.testing import ScriptedModel, calls, says

from ..security.doors import audits, by_header
from ..support.agents import assistant
from ..support.mcp import client_of, in_answer, post, texts
from ..support.turns import Database, record_events
from .conftest import Serve

pytestmark = pytest.mark.anyio

ADA = {"X-Token": "ada"}
ASK = {"name": "ask_assistant", "arguments": {"message": "Hi", "conversation": "room"}}
LOOK = {"name": "ask_assistant", "arguments": {"conversation": "room"}}


def nothing_was_made(folder: Path) -> bool:
    return Database(folder).rows("SELECT agent FROM agents") == []


# --- refusals


@pytest.mark.parametrize(
    ("method", "params"),
    [("initialize", {}), ("tools/list", {}), ("tools/call", ASK), ("ping", {}), ("server/discover", {})],
)
async def test_nobody_gets_anything_whom_authenticate_does_not_know(
    serve: Serve, tmp_path: Path, method: str, params: Any
) -> None:
    server = await serve(assistant(ScriptedModel()), authenticate=by_header)

    refused = await post(server, method, params)

    assert refused.status == 401
    assert refused.json["error"]["message"] == "Unauthorized"
    assert nothing_was_made(tmp_path)


async def test_who_is_known_and_may_not_reach_an_agent_gets_403_before_it_is_started(
    serve: Serve, tmp_path: Path
) -> None:
    server = await serve(
        assistant(ScriptedModel()),
        authenticate=by_header,
        authorize=lambda who, what, agent: agent.name == who,
    )

    listed = await post(server, X_Token="ada")
    refused = await post(server, "tools/call", ASK, id="7", X_Token="ada")

    assert listed.status == 200
    assert refused.status == 403
    assert refused.json == {"jsonrpc": "2.0", "id": "7", "error": {"code": -32600, "message": "Forbidden"}}
    assert nothing_was_made(tmp_path)


async def test_another_host_is_refused_before_anybody_is_asked(serve: Serve) -> None:
    asked: list[Any] = []
    server = await serve(assistant(ScriptedModel()), allow_hosts=["my.page"], authenticate=asked.append)

    refused = await post(server, Host="evil.example")

    assert refused.status == 403
    assert "does not answer to the name" in refused.text
    assert asked == []


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_a_page_of_another_origin_is_refused_before_anybody_is_asked(serve: Serve, origin: str) -> None:
    asked: list[Any] = []
    server = await serve(assistant(ScriptedModel()), authenticate=asked.append)

    refused = await post(server, Origin=origin)

    assert (refused.status, refused.json["error"]["message"]) == (403, "Origin not allowed")
    assert asked == []


async def test_pages_of_ones_own_and_of_named_origins_may_speak_mcp(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel()), allow_origins=["https://my.page"], cors=True)

    for origin in (f"http://{server.host}", "https://my.page"):
        answer = await post(server, Origin=origin)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "*"
    preflight = await server.http("/mcp", method="OPTIONS", headers={"Origin": "https://my.page"})
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (200, "*")


async def test_what_the_application_answers_itself_is_sent_as_it_is(serve: Serve) -> None:
    challenge = JSONResponse({"sign": "in"}, 401, {"WWW-Authenticate": "Bearer"})
    server = await serve(assistant(ScriptedModel()), authenticate=lambda connection: challenge)

    refused = await post(server)

    assert (refused.status, refused.json) == (401, {"sign": "in"})
    assert refused.headers["www-authenticate"] == "Bearer"


async def test_a_check_that_raises_lets_nobody_in_and_says_nothing(serve: Serve, tmp_path: Path) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("the session store is away")

    server = await serve(assistant(ScriptedModel()), authorize=broken)

    refused = await post(server, "tools/call", ASK)

    assert refused.status == 500
    assert "session store" not in refused.text
    assert nothing_was_made(tmp_path)


async def test_an_http_exception_of_a_check_is_the_answer(serve: Serve) -> None:
    def too_late(*_: Any) -> Any:
        raise HTTPException(402, "Pay first.", {"X-Price": "3"})

    server = await serve(assistant(ScriptedModel()), authorize=too_late)

    refused = await post(server, "tools/call", ASK)

    assert (refused.status, refused.json["error"]["message"]) == (402, "Pay first.")
    assert refused.headers["x-price"] == "3"


async def test_checks_that_take_too_long_are_not_waited_for(serve: Serve) -> None:
    async def slow(connection: Any) -> Any:
        await asyncio.Event().wait()

    limits = {"handshake_seconds": 0.05}
    server = await serve(assistant(ScriptedModel()), authenticate=slow, limits=limits)

    refused = await post(server)

    assert refused.status == 503
    assert "took too long" in refused.json["error"]["message"]


async def test_on_before_request_is_asked_with_the_agent_and_may_refuse(serve: Serve, tmp_path: Path) -> None:
    seen: list[Any] = []

    def before(connection: Any, cls: type, name: str) -> bool:
        seen.append((connection.url.path, cls.__name__, name))
        return False

    server = await serve(assistant(ScriptedModel()), on_before_request=before)

    refused = await post(server, "tools/call", ASK)

    assert refused.status == 403
    assert seen == [("/mcp", "Assistant", "room")]
    assert nothing_was_made(tmp_path)


# --- what is asked


async def test_asking_is_a_connect_looking_a_read_and_a_method_a_call(serve: Serve) -> None:
    asked: list[str] = []

    class Assistant(Think):
        model = ScriptedModel(says("Hello."))

        @exposed
        def add(self, a: int, b: int) -> int:
            return a + b

    def may(who: Any, what: str, agent: Any) -> bool:
        asked.append(f"{what} {agent.name}")
        return True

    server = await serve(Assistant, authorize=may, mcp={"exposed": True})

    await post(server, "tools/call", ASK)
    await post(server, "tools/call", LOOK)
    await post(server, "tools/call", {"name": "assistant_add", "arguments": {"name": "x", "a": 1, "b": 2}})

    assert asked == ["connect room", "read room", "connect x", "call x"]


async def test_a_name_is_judged_in_the_form_in_which_it_is_kept(serve: Serve) -> None:
    seen: list[str] = []
    server = await serve(
        assistant(ScriptedModel()), authorize=lambda who, what, agent: seen.append(agent.name)
    )
    for name in ("Ju\u0308rgen", "ada/../bob", "a%2Fb"):
        await post(
            server,
            "tools/call",
            {"name": "ask_assistant", "arguments": {"message": "x", "conversation": name}},
        )

    assert seen == ["J\u00fcrgen", "ada%2F..%2Fbob", "a%2Fb"]


async def test_arguments_that_are_written_twice_are_judged_as_they_are_used(serve: Serve) -> None:
    seen: list[str] = []

    def may(who: Any, what: str, agent: Any) -> bool:
        seen.append(agent.name)
        return agent.name == "mine"

    server = await serve(assistant(ScriptedModel(says("Mine."))), authorize=may)
    twice = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask_assistant",'
        b'"arguments":{"message":"Hi","conversation":"theirs"},'
        b'"arguments":{"message":"Hi","conversation":"theirs","conversation":"mine"}}}'
    )
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    answer = await server.http("/mcp", method="POST", headers=headers, body=twice)

    assert seen == ["mine"]
    assert in_answer(answer)["result"]["structuredContent"]["conversation"] == "mine"


# --- who it is, and what they may


async def test_a_turn_has_the_identity_of_who_asked_in_its_row_and_its_hooks(
    serve: Serve, tmp_path: Path
) -> None:
    seen: list[Any] = []

    class Assistant(Think):
        model = ScriptedModel(calls("whoami"), says("Ada."))

        @tool
        def whoami(self) -> str:
            """Who am I?"""
            return "?"

        def before_turn(self, turn: Any) -> None:
            [row] = Database(tmp_path).turns()
            seen.append(turn.identity)
            seen.append(json.loads(row["input"])["identity"])

        def before_tool_call(self, call: Any) -> None:
            seen.append(call.identity)

    server = await serve(
        Assistant, authenticate=lambda connection: {"id": connection.headers["x-token"], "role": "admin"}
    )
    async with client_of(server, headers=ADA) as client:
        await client.call_tool("ask_assistant", {"message": "Hi", "conversation": "room"})

    assert seen == [{"id": "ada", "role": "admin"}] * 3
    [question, _] = await server.app.agent(Assistant, "room").get_messages()
    assert question.metadata == {"channel": "mcp"}
    assert len(Database(tmp_path).rows("SELECT author FROM authors WHERE author IS NOT NULL")) == 1


async def test_who_may_only_read_may_look_and_not_ask(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Hello.")))
    server = await serve(cls, authorize=lambda who, what, agent: ["read"])
    await server.app.agent(cls, "room").save_messages("Hi")
    seen = record_events(server.app)
    async with client_of(server) as client:
        asked = await client.call_tool("ask_assistant", {"message": "More", "conversation": "room"})
        looked = await client.call_tool("ask_assistant", {"conversation": "room"})

    assert asked.is_error
    assert texts(asked) == ["You may read this conversation, but not write in it."]
    assert texts(looked) == ["Hello."]
    assert ("ask", False, "no permission", None, "room") in audits(seen)


async def test_the_hook_that_makes_a_connection_readonly_is_asked_for_mcp_clients_too(serve: Serve) -> None:
    def readonly(self: Any, connection: Any, request: Any) -> bool:
        return connection.identity == "bob" and request.headers["x-token"] == "bob"

    cls = assistant(ScriptedModel(says("Hello Ada.")), should_connection_be_readonly=readonly)
    server = await serve(cls, authenticate=by_header)
    async with client_of(server, headers={"X-Token": "bob"}) as bob, client_of(server, headers=ADA) as ada:
        refused = await bob.call_tool("ask_assistant", {"message": "Hi", "conversation": "room"})
        answered = await ada.call_tool("ask_assistant", {"message": "Hi", "conversation": "room"})

    assert refused.is_error
    assert texts(answered) == ["Hello Ada."]


async def test_a_guest_with_permissions_may_ask(serve: Serve) -> None:
    server = await serve(
        assistant(ScriptedModel(says("Hello guest."))),
        authenticate=lambda connection: Granted(None, permissions=["ask"]),
    )
    async with client_of(server) as client:
        result = await client.call_tool("ask_assistant", {"message": "Hi", "conversation": "room"})

    assert texts(result) == ["Hello guest."]


async def test_a_method_takes_the_permission_to_call_unless_it_only_reads(serve: Serve) -> None:
    class Desk(Agent):
        @exposed
        def change(self) -> str:
            return "changed"

        @exposed(reads=True)
        def look(self) -> str:
            return "looked"

    server = await serve(
        Desk,
        mcp={"exposed": True},
        authorize=lambda who, what, agent: True if what == "call" else ["read"],
    )
    async with client_of(server) as client:
        changed = await client.call_tool("desk_change", {"name": "x"})
        looked = await client.call_tool("desk_look", {"name": "x"})

    assert changed.is_error
    assert texts(changed) == ["Connection is readonly"]
    assert texts(looked) == ["looked"]


async def test_a_call_that_authorize_does_not_allow_is_403_and_told_to_the_audit(serve: Serve) -> None:
    ran: list[str] = []

    class Desk(Agent):
        @exposed
        def change(self) -> None:
            ran.append("changed")

    server = await serve(
        Desk,
        mcp={"exposed": True},
        authenticate=by_header,
        authorize=lambda who, what, agent: what != "call",
    )
    seen = record_events(server.app)

    refused = await post(
        server, "tools/call", {"name": "desk_change", "arguments": {"name": "x"}}, X_Token="ada"
    )

    assert (refused.status, refused.json["error"]["message"]) == (403, "Not allowed")
    assert ran == []
    assert ("call", False, "not authorized", "ada", "x") in audits(seen)


async def test_what_a_method_begins_has_the_identity_of_its_caller(serve: Serve) -> None:
    seen: list[Any] = []

    class Assistant(Think):
        model = ScriptedModel(says("Done."))

        @exposed
        async def work(self) -> str:
            return (await self.save_messages("Work!")).text

        def before_turn(self, turn: Any) -> None:
            seen.append(turn.identity)

    server = await serve(Assistant, mcp={"exposed": True}, authenticate=by_header)
    async with client_of(server, headers=ADA) as client:
        result = await client.call_tool("assistant_work", {"name": "room"})

    assert texts(result) == ["Done."]
    assert seen == ["ada"]


async def test_a_new_conversation_is_named_by_the_application_where_names_decide(serve: Serve) -> None:
    server = await serve(
        assistant(ScriptedModel(says("Hello."))),
        authenticate=by_header,
        authorize=lambda who, what, agent: agent.name.startswith(f"{who}."),
        mcp={"new_name": lambda identity: f"{identity}.new"},
    )
    async with client_of(server, headers=ADA) as client:
        result = await client.call_tool("ask_assistant", {"message": "Hi"})

    assert result.structured_content is not None
    assert result.structured_content["conversation"] == "ada.new"


async def test_a_session_that_is_over_is_401(serve: Serve) -> None:
    server = await serve(
        assistant(ScriptedModel()), authenticate=lambda connection: Granted("ada", until=1_000_000_001)
    )

    refused = await post(server)

    assert (refused.status, refused.json["error"]["message"]) == (401, "Session expired")
