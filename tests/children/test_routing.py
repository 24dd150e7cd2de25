"""Addresses of children over real sockets: who is reached, who decides, what arrives, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any
from urllib.parse import quote

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from websockets.exceptions import InvalidStatus

from everthink import Agent, App, Think, agent_tool, exposed
from everthink.children import build_path, parse_path
from everthink.errors import AgentError
from everthink.observe import Event
from everthink.server import Limits
from everthink.store.port import Statement
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.server import served

pytestmark = pytest.mark.anyio

AT = "/agents/parent/room/sub/child/c"
BYTES = bytes(range(256)) * 1000


class Deep(Agent):
    """A grandchild, and each of its own."""

    async def on_request(self, request: Any) -> Any:
        body = await request.body()
        return {
            "name": self.name,
            "path": request.url.path,
            "query": request.url.query,
            "method": request.method,
            "header": request.headers.get("x-said"),
            "sha": hashlib.sha256(body).hexdigest(),
            "size": len(body),
        }


Deep.sub_agents = (Deep,)


class Child(Deep):
    """A child that does not chat: it answers requests, and has a state."""

    sub_agents = (Deep,)
    initial_state: Any = {"n": 0}  # noqa: RUF012 - copied by the framework

    def should_connection_be_readonly(self, connection: Any, request: Any) -> bool:
        return request.query_params.get("readonly") == "1"

    def should_send_protocol_messages(self, connection: Any, request: Any) -> bool:
        return request.query_params.get("noproto") != "1"

    @exposed
    def shout(self, text: str) -> int:
        self.broadcast(text)
        return len(self.connections)

    @exposed(reads=True)
    def who(self) -> str:
        return self.name


class Parent(Think):
    """A parent that asks nobody."""

    model = ScriptedModel()
    sub_agents = (Child,)

    async def on_request(self, request: Any) -> Any:
        return {"parent": request.url.path}

    @exposed
    def shout(self, text: str) -> int:
        self.broadcast(text)
        return len(self.connections)


def serving(app: App) -> Any:
    """Serve an app that stays open."""
    return served(app, lifespan="off")


async def rows_of(app: App) -> list[str]:
    """The agents that are kept."""
    directory = await app.open()
    return [row[0] for row in await directory.store.fetch("SELECT agent FROM agents ORDER BY agent")]


# --- who is reached


@pytest.mark.agent_case(278, 279, 289)
async def test_an_address_reaches_the_child_that_it_names(open_app: OpenApp) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        one = (await server.http(f"{AT}/a/b", method="POST")).json
        assert (one["name"], one["path"]) == ("c", "/a/b")
        two = (await server.http(f"{AT}/sub/deep/d/x", method="POST")).json
        assert (two["name"], two["path"]) == ("d", "/x")
        other = (await server.http("/agents/parent/other/sub/child/c", method="POST")).json
        assert (other["name"], other["path"]) == ("c", "/")
        assert await app.agent(Parent, "room").has_sub_agent(Child, "c")
        assert [one.name for one in await app.agent(Parent, "other").list_sub_agents()] == ["c"]
        tabs = [await server.connect(path) for path in (AT, "/agents/parent/other/sub/child/c")]
        await tabs[0].set_state({"n": 1})
        await tabs[0].call("who")
        assert [tab.state for tab in tabs] == [{"n": 1}, {"n": 0}]
        again = await server.connect(AT)
        assert (await again.until_frame("cf_agent_state"))["state"] == {"n": 1}


async def test_addresses_below_another_prefix(open_app: OpenApp) -> None:
    app = await open_app(Parent, prefix="api/v1")
    async with serving(app) as server:
        told = (await server.http("/api/v1/parent/room/sub/child/c/x", method="POST")).json
        assert (told["name"], told["path"]) == ("c", "/x")


NAMES = {
    "space": "h 1",
    "slash": "a/b",
    "escaped-slash": "a%2Fb",
    "percent": "100%",
    "wildcards": "a_b%",
    "sub": "sub",
    "dots": "..",
    "question": "who?#me",
    "colon": "tool:call_1",
    "emoji": "🦊",
    "composed": "Jürgen",
    "get-messages": "get-messages",
    "plus": "a+b",
    "long": "🦊" * 200,
}


@pytest.mark.agent_case(282)
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
async def test_a_name_is_read_as_it_was_meant(open_app: OpenApp, name: str) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        at = f"/agents/parent/room/sub/child/{quote(name, safe='')}"
        tab = await server.connect(at)
        assert (await tab.until_frame("cf_agent_identity"))["name"] == name
        assert (await server.http(f"{at}/x", method="POST")).json["name"] == name
        assert [one.name for one in await app.agent(Parent, "room").list_sub_agents()] == [name]


async def test_one_name_is_one_child_however_it_is_typed(open_app: OpenApp) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        for written in ("J%C3%BCrgen", "Ju%CC%88rgen"):
            await server.http(f"/agents/parent/room/sub/child/{written}/x", method="POST")
    assert [one.name for one in await app.agent(Parent, "room").list_sub_agents()] == ["Jürgen"]


BAD = {
    "nul": "%00",
    "nul-inside": "a%00b",
    "newline": "a%0Ab",
    "not-utf-8": "%ff",
    "half-a-pair": "%ed%a0%80",
    "too-long": "x" * 513,
    "too-many-bytes": quote("🦊" * 512, safe=""),
}


@pytest.mark.agent_case(284)
@pytest.mark.parametrize("written", BAD.values(), ids=BAD)
async def test_a_bad_name_is_refused_in_two_words(open_app: OpenApp, written: str) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        for path in (f"/agents/parent/room/sub/child/{written}", f"{AT}/sub/deep/{written}/x"):
            answer = await server.http(path, method="POST")
            assert (answer.status, answer.text) == (400, "Bad Request")
            with pytest.raises(InvalidStatus) as refused:
                await server.connect(path)
            assert refused.value.response.status_code == 400
    assert await rows_of(app) == []


@pytest.mark.parametrize("written", ["%", "%zz", "%2", "100%25%"], ids=["bare", "letters", "cut", "both"])
async def test_bad_escapes_stand_for_themselves(open_app: OpenApp, written: str) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        answer = await server.http(f"/agents/parent/room/sub/child/{written}/x", method="POST")
        assert (answer.status, answer.json["path"]) == (200, "/x")


@pytest.mark.agent_case(282, 284, 556, 557)
@pytest.mark.parametrize(
    "tail",
    ["sub/nope/x", "sub/child", "sub", "sub/sub", "a/sub/nope/x", "subs/child/x", "sub/ch%69ld/x"],
    ids=["unknown-class", "no-name", "alone", "twice", "later", "other-word", "escaped-class"],
)
async def test_what_names_no_child_is_the_parents_affair(open_app: OpenApp, tail: str) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        path = f"/agents/parent/room/{tail}"
        assert (await server.http(path, method="POST")).json == {"parent": path.replace("%69", "i")}
        tab = await server.connect(path)
        assert (await tab.until_frame("cf_agent_identity"))["agent"] == "parent"
    assert await app.agent(Parent, "room").list_sub_agents() == []


async def test_a_marker_may_come_late_and_a_parent_may_be_called_sub(open_app: OpenApp) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        late = await server.http("/agents/parent/room/a/sub/b/sub/child/c/x", method="POST")
        assert (late.json["name"], late.json["path"]) == ("c", "/x")
        for path in ("/agents/parent/sub", "/agents/parent/sub/child/c"):
            assert (await server.http(path, method="POST")).json == {"parent": path}
        child = (await server.http("/agents/parent/sub/sub/child/c/x", method="POST")).json
        assert (child["name"], child["path"]) == ("c", "/x")
        assert [one.name for one in await app.agent(Parent, "sub").list_sub_agents()] == ["c"]


@pytest.mark.parametrize(
    "tail", ["sub/chidl/c/sub/deep/d", "sub/chidl/c/sub/child/d/x", "sub/child/c/sub/depe/d/sub/deep/e"]
)
async def test_a_class_in_the_middle_that_nobody_knows_reaches_nobody_else(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture, tail: str
) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        with caplog.at_level(logging.WARNING, "everthink.server"):
            answer = await server.http(f"/agents/parent/room/{tail}", method="POST")
        assert (answer.status, answer.text) == (404, "Not Found")
        [told] = caplog.messages
        assert "no class of children is called 'chidl'; the nearest is 'child'" in told or "'deep'" in told
        with pytest.raises(InvalidStatus) as refused:
            await server.connect(f"/agents/parent/room/{tail}")
        assert refused.value.response.status_code == 404
    assert await rows_of(app) == []
    with pytest.raises(AgentError, match="no class of children is called"):
        parse_path(f"/agents/parent/room/{tail}", [Parent, Child, Deep])


async def test_a_child_that_is_called_get_messages_is_no_conversation(open_app: OpenApp) -> None:
    class Talker(Think):
        model = ScriptedModel()

        async def on_request(self, request: Any) -> Any:
            return {"asked": request.method}

    class Host(Think):
        model = ScriptedModel()
        sub_agents = (Talker,)

    app = await open_app(Host)
    async with serving(app) as server:
        at = "/agents/host/room/sub/talker/get-messages"
        assert (await server.http(at, method="PUT")).json == {"asked": "PUT"}
        assert (await server.http(f"{at}/get-messages")).json == []


# --- what arrives


@pytest.mark.agent_case(290)
@pytest.mark.parametrize("hops", [AT, f"{AT}/sub/deep/d"], ids=["one-hop", "two-hops"])
@pytest.mark.parametrize("body", [b"", b"\0", BYTES], ids=["empty", "nul", "256-kB"])
async def test_a_body_arrives_as_it_was_sent(open_app: OpenApp, hops: str, body: bytes) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        told = (await server.http(f"{hops}/up", method="POST", body=body)).json
        assert (told["size"], told["sha"]) == (len(body), hashlib.sha256(body).hexdigest())


@pytest.mark.agent_case(290)
async def test_a_body_is_read_while_it_is_sent(open_app: OpenApp) -> None:
    class Reader(Agent):
        async def on_request(self, request: Any) -> Any:
            async for piece in request.stream():
                self.broadcast(piece.decode())
            return "read"

    class Host(Think):
        model = ScriptedModel()
        sub_agents = (Reader,)

    app = await open_app(Host)
    async with serving(app) as server:
        tab = await server.connect("/agents/host/room/sub/reader/r")
        await tab.until_frame("cf_agent_identity")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST /agents/host/room/sub/reader/r/x HTTP/1.1\r\nHost: {server.host}\r\n"
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        for number, piece in enumerate(("one", "two", "three"), 1):
            writer.write(f"{len(piece):x}\r\n{piece}\r\n".encode())
            # It is read before the rest is sent: nobody gathers it.
            await tab.until(lambda number=number: len([text for text in tab.other if text]) == number)
        writer.write(b"0\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"read"), 20)
        writer.close()
        assert [text for text in tab.other if text] == ["one", "two", "three"]


@pytest.mark.agent_case(283, 289)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_method_headers_and_query_are_kept(open_app: OpenApp, method: str) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        await server.connect(AT)
        path = f"{AT}/x?a=1&b=%2F&sub=child"
        told = (await server.http(path, method=method, headers={"X-Said": "hello"})).json
        assert (told["method"], told["query"], told["header"]) == (method, "a=1&b=%2F&sub=child", "hello")


# --- who decides


def strict(answer: Any) -> type[Think]:
    """A parent whose gate answers this, and notes who asked."""

    class Strict(Think):
        model = ScriptedModel()
        sub_agents = (Child,)
        asked: list[tuple[str, str, str]] = []  # noqa: RUF012

        async def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
            self.asked.append((cls.__name__, name, request.url.path))
            if isinstance(answer, Exception):
                raise answer
            return answer

    return Strict


GATES: dict[str, tuple[Any, int, str, tuple[int, str]]] = {
    "response": (
        PlainTextResponse("Not yours", 402, {"X-Why": "because"}),
        402,
        "Not yours",
        (4402, "Sub-agent connection rejected (402)"),
    ),
    "false": (False, 403, "Forbidden", (4403, "Sub-agent connection rejected (403)")),
    "http-exception": (
        HTTPException(404, "No such child"),
        404,
        "No such child",
        (4404, "Sub-agent connection rejected (404)"),
    ),
    "redirect": (
        PlainTextResponse("There", 302, {"Location": "/login"}),
        302,
        "There",
        (1011, "Sub-agent connection rejected (302)"),
    ),
    "unavailable": (
        PlainTextResponse("Later", 503),
        503,
        "Later",
        (1011, "Sub-agent connection rejected (503)"),
    ),
}


@pytest.mark.agent_case(280)
@pytest.mark.parametrize(("answer", "status", "text", "closed"), GATES.values(), ids=GATES)
async def test_a_parent_refuses(
    open_app: OpenApp, answer: Any, status: int, text: str, closed: tuple[int, str]
) -> None:
    cls = strict(answer)
    app, events = await open_app(cls), list[Event]()
    app.events.subscribe(events.append)
    async with serving(app) as server:
        told = await server.http("/agents/strict/room/sub/child/c/x", method="POST")
        assert (told.status, told.text) == (status, text)
        if isinstance(answer, PlainTextResponse):
            assert {name: told.headers.get(name) for name in ("x-why", "location")} == {
                name: answer.headers.get(name) for name in ("x-why", "location")
            }
        tab = await server.connect("/agents/strict/room/sub/child/c")
        assert await tab.until_closed() == closed
        assert tab.frames == []
    assert cls.asked == [
        ("Child", "c", path)
        for path in ("/agents/strict/room/sub/child/c/x", "/agents/strict/room/sub/child/c")
    ]
    assert not await app.agent(cls, "room").has_sub_agent(Child, "c")
    refusals = [event for event in events if event.type == "audit" and not event.payload["allowed"]]
    assert [(event.payload["action"], event.id) for event in refusals] == [
        ("request", "Strict/room/sub/Child/c"),
        ("connect", "Strict/room/sub/Child/c"),
    ]


@pytest.mark.parametrize(
    "answer", ["yes", 0, {}, RuntimeError("secret words")], ids=["text", "zero", "dict", "raises"]
)
async def test_a_gate_that_answers_strangely_lets_nobody_in(open_app: OpenApp, answer: Any) -> None:
    cls = strict(answer)
    app = await open_app(cls)
    async with serving(app) as server:
        told = await server.http("/agents/strict/room/sub/child/c/x", method="POST")
        assert (told.status, told.text) == (500, "Internal Server Error")
        tab = await server.connect("/agents/strict/room/sub/child/c")
        assert (await tab.until_closed())[0] == 1011
        assert tab.frames == []
    assert not await app.agent(cls, "room").has_sub_agent(Child, "c")


async def test_a_gate_that_takes_for_ever_refuses(open_app: OpenApp) -> None:
    class Slow(Think):
        model = ScriptedModel()
        sub_agents = (Child,)

        async def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> None:
            await asyncio.Event().wait()

    app = await open_app(Slow, limits=Limits(handshake_seconds=0.05))
    async with serving(app) as server:
        assert (await server.http("/agents/slow/room/sub/child/c/x", method="POST")).status == 503
        tab = await server.connect("/agents/slow/room/sub/child/c")
        assert await tab.until_closed() == (1011, "Sub-agent connection rejected (503)")


@pytest.mark.agent_case(280, 286)
async def test_each_parent_is_asked_once_of_its_own_children(open_app: OpenApp) -> None:
    asked: list[str] = []

    class Leaf(Think):
        model = ScriptedModel(says("one"), says("two"))

        def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
            raise AssertionError("nobody is below")

    class Middle(Think):
        model = ScriptedModel()
        sub_agents = (Leaf,)

        def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
            asked.append(f"{self.name}: {cls.__name__} {name}")
            return name != "closed"

    class Top(Think):
        model = ScriptedModel()
        sub_agents = (Middle,)

        def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
            asked.append(f"{self.name}: {cls.__name__} {name}")

    app = await open_app(Top)
    async with serving(app) as server:
        tab = await server.connect("/agents/top/t/sub/middle/m/sub/leaf/l")
        for word in ("Hi", "again"):  # what follows is nobody's affair but the child's
            await tab.until_done(await tab.say(word))
        assert asked == ["t: Middle m", "m: Leaf l"]
        assert tab.text == "onetwo"
        other = await server.connect("/agents/top/t/sub/middle/m/sub/leaf/closed")
        assert await other.until_closed() == (4403, "Sub-agent connection rejected (403)")


@pytest.mark.parametrize(
    "written",
    ["sub/child/c", "sub//child//c", "sub/Child/c", "x/sub/child/c", "sub/child/%63"],
    ids=["plain", "empty-segments", "class-name", "late", "escaped"],
)
async def test_no_spelling_goes_round_the_gate(open_app: OpenApp, written: str) -> None:
    cls = strict(PlainTextResponse("No", 403))
    app = await open_app(cls)
    async with serving(app) as server:
        answer = await server.http(f"/agents/strict/room/{written}", method="POST")
        assert (answer.status, answer.text) == (403, "No")
        tab = await server.connect(f"/agents/strict/room/{written}")
        assert (await tab.until_closed())[0] == 4403


# --- who may come in


def of_their_own(identity: Any, action: str, agent: Any) -> bool:
    """People reach the agent of their name."""
    return agent.name == identity


def says_who(connection: Any) -> Any:
    return connection.headers.get("x-who")


@pytest.mark.parametrize(
    "path",
    [
        "/agents/parent/ada/sub/child/eve",
        "/agents/parent/ada/sub/child/c",
        "/agents/parent/ada%2Fsub%2Fchild%2Feve",
        "/agents/parent/ada/x/sub/child/eve/sub/deep/eve",
    ],
    ids=["own-name", "plain", "escaped", "deep"],
)
async def test_the_checks_are_asked_about_the_outermost_agent(open_app: OpenApp, path: str) -> None:
    app = await open_app(Parent, authenticate=says_who, authorize=of_their_own)
    async with serving(app) as server:
        assert (await server.http(path, method="POST")).status == 401
        eve = {"X-Who": "eve"}
        assert (await server.http(path, method="POST", headers=eve)).status == 403
        with pytest.raises(InvalidStatus) as refused:
            await server.connect(path, headers=eve)
        assert refused.value.response.status_code == 403
    assert await rows_of(app) == []


async def test_calls_of_a_child_are_asked_about_the_outermost_agent_too(open_app: OpenApp) -> None:
    asked: list[tuple[str, str]] = []

    def authorize(identity: Any, action: str, agent: Any) -> bool:
        asked.append((action, agent.id))
        return agent.id == "Parent/ada"

    app = await open_app(Parent, authenticate=says_who, authorize=authorize)
    async with serving(app) as server:
        tab = await server.connect("/agents/parent/ada/sub/child/c", headers={"X-Who": "ada"})
        (answer,) = await tab.call("who")
        assert answer["result"] == "c"
    assert asked == [("connect", "Parent/ada"), ("call", "Parent/ada")]


async def test_what_somebody_may_not_do_with_the_parent_they_may_not_with_its_children(
    open_app: OpenApp,
) -> None:
    app = await open_app(Parent, authorize=lambda identity, action, agent: ["read"])
    async with serving(app) as server:
        tab = await server.connect(AT)
        await tab.set_state({"n": 5})
        assert (await tab.until_frame("cf_agent_state_error"))["error"]
        (answer,) = await tab.call("shout", "hello")
        assert answer["success"] is False


async def test_a_name_of_an_agent_cannot_be_that_of_anothers_child(open_app: OpenApp) -> None:
    app = await open_app(Parent)
    await app.agent(Parent, "ada").sub_agent(Child, "secret")
    with pytest.raises(AgentError, match="/sub/ is what parts children"):
        await app.agent(Parent, "ada/sub/Child/secret").get_messages()
    with pytest.raises(AgentError, match="/sub/ is what parts children"):
        await app.erase(Parent, "ada/sub/Child/secret")
    assert await app.agent(Parent, "ada").has_sub_agent(Child, "secret")


# --- what is made


async def test_looking_makes_nothing(open_app: OpenApp) -> None:
    started: list[str] = []

    class Watched(Think):
        model = ScriptedModel()
        sub_agents = (Child,)

        async def on_start(self, props: Any = None) -> None:
            started.append(self.name)
            await self.set_state({"n": 1})

        def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
            return None

    app = await open_app(Watched, Parent)
    async with serving(app) as server:
        for path in ("/agents/watched/room/sub/child/c", AT, f"{AT}/sub/deep/d"):
            for method in ("GET", "HEAD"):
                assert (await server.http(f"{path}/x", method=method)).status == 404
                assert (await server.http(f"{path}/get-messages", method=method)).status == 404
    assert (await rows_of(app), started) == ([], [])


async def test_making_children_is_counted(open_app: OpenApp) -> None:
    class Gated(Think):
        model = ScriptedModel()
        sub_agents = (Child,)

        def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
            return None

    app = await open_app(Parent, Gated, limits=Limits(agents_per_minute=3))
    async with serving(app) as server:
        assert (await server.http("/agents/gated/a/sub/child/c/x", method="POST")).status == 200  # two
        assert (await server.http("/agents/gated/b/sub/child/c/x", method="POST")).status == 429
        assert (await server.http(f"{AT}/x", method="POST")).status == 429
        with pytest.raises(InvalidStatus) as refused:
            await server.connect("/agents/gated/c/sub/child/c")
        assert refused.value.response.status_code == 429
        assert (await server.http("/agents/gated/a/sub/child/c/x", method="POST")).status == 200
    assert [row for row in await rows_of(app) if "/sub/" in row] == ["Gated/a/sub/Child/c"]


async def test_children_go_four_levels_deep(open_app: OpenApp) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        levels = [f"/sub/deep/{number}" for number in range(2, 5)]
        deepest = AT + "".join(levels)
        assert (await server.http(f"{deepest}/x", method="POST")).json["name"] == "4"
        answer = await server.http(f"{deepest}/sub/deep/5/x", method="POST")
        assert (answer.status, answer.text) == (400, "Bad Request")
        with pytest.raises(InvalidStatus) as refused:
            await server.connect(f"{deepest}/sub/deep/5")
        assert refused.value.response.status_code == 400


async def test_a_very_long_path_is_read_in_no_time(open_app: OpenApp) -> None:
    app = await open_app(Parent, limits=Limits(header_bytes=60_000))
    async with serving(app) as server:
        answer = await server.http("/agents/parent/room" + "/sub/deep/x" * 5000, method="POST")
        assert answer.status == 400
        assert (await server.http("/agents/parent/room" + "/sub/nope" * 6000, method="POST")).status == 200
    assert await app.agent(Parent, "room").list_sub_agents() == []


async def test_logs_have_the_path_as_it_was_sent(open_app: OpenApp, caplog: pytest.LogCaptureFixture) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        with caplog.at_level(logging.WARNING, "everthink.server"):
            await server.http("/agents/parent/room/sub/child/a%0AERROR%20all%20is%20lost", method="POST")
            await server.http("/agents/parent/room/sub/parent/a%0Db", method="POST")
            await server.http("/agents/nobody%0AERROR/x", method="POST")
    assert len(caplog.messages) == 3
    assert not [text for text in caplog.messages if "\n" in text or "\r" in text]


# --- over its sockets


@pytest.mark.agent_case(274, 275, 287)
async def test_what_one_says_to_all_reaches_its_own_sockets(open_app: OpenApp) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        parent = await server.connect(Parent)
        one, two = await server.connect(AT), await server.connect(AT)
        sibling = await server.connect("/agents/parent/room/sub/child/d")
        below = await server.connect(f"{AT}/sub/deep/d")
        tabs = [parent, one, two, sibling, below]
        for tab in tabs:
            await tab.until_frame("cf_agent_identity")
        (answer,) = await one.call("shout", "from the child")
        assert answer["result"] == 2
        (answer,) = await parent.call("shout", "from the parent")
        assert answer["result"] == 1
        await sibling.call("who")
        await two.call("who")
        heard = [tab.other for tab in tabs]
        assert heard == [["from the parent"], ["from the child"], ["from the child"], [], []]


@pytest.mark.agent_case(288)
async def test_each_socket_of_a_child_has_its_own_marks(open_app: OpenApp) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        reads = await server.connect(AT, query={"readonly": "1"})
        plain = await server.connect(AT, query={"noproto": "1"})
        free = await server.connect(AT)
        await reads.set_state({"n": 1})
        assert (await reads.until_frame("cf_agent_state_error"))["error"]
        await free.set_state({"n": 2})
        await reads.until(lambda: reads.state == {"n": 2})
        await plain.call("who")
        assert [frame["type"] for frame in plain.frames] == ["rpc"]


@pytest.mark.agent_case(291)
async def test_resuming_is_the_childs_affair(open_app: OpenApp) -> None:
    class Talker(Think):
        model = ScriptedModel(says("Hello"))

    class Host(Think):
        model = ScriptedModel()
        sub_agents = (Talker,)

    app = await open_app(Host)
    async with serving(app) as server:
        tab, parent = await server.connect("/agents/host/room/sub/talker/t"), await server.connect(Host)
        await tab.until_done(await tab.say("Hi"))
        await tab.probe("p")
        assert (await tab.until_frame("cf_agent_stream_resume_none"))["probeId"] == "p"
        await parent.probe("q")
        await parent.until_frame("cf_agent_stream_resume_none")
        assert parent.of("cf_agent_use_chat_response") == []
        assert parent.messages == []


@pytest.mark.case(509)
@pytest.mark.parametrize("who", ["parent", "child"])
async def test_what_one_streams_is_resumed_at_its_own_sockets_and_at_no_others(
    open_app: OpenApp, who: str
) -> None:
    class Talker(Think):
        model = ScriptedModel(says("Half ").then_hangs())

    class Host(Think):
        model = ScriptedModel(says("Half ").then_hangs())
        sub_agents = (Talker,)

    places = {"parent": "/agents/host/room", "child": "/agents/host/room/sub/talker/t"}
    own = places.pop(who)
    async with serving(await open_app(Host)) as server:
        # Given one of the two in mid-answer
        asker = await server.connect(own)
        request = await asker.say("Hi")
        await asker.until_text("Half ")

        # When a socket of the other asks, and takes what it has not been offered
        other = await server.connect(*places.values())
        await other.probe("p")
        none = await other.until_frame("cf_agent_stream_resume_none")
        await other.ack(request)
        await other.cancel(request)
        await other.probe("q")
        await other.until_frame("cf_agent_stream_resume_none", count=2)

        # Then it gets nothing of it, and stops nothing, while a socket of its own is offered all
        assert none == {"type": "cf_agent_stream_resume_none", "reason": "idle", "probeId": "p"}
        assert (other.text, other.of("cf_agent_stream_resuming")) == ("", [])
        assert not asker.is_done(request)
        late = await server.connect(own)
        assert (await late.until_frame("cf_agent_stream_resuming"))["id"] == request
        await late.ack(request)
        await late.until_text("Half ")


async def test_sockets_of_a_deleted_child_are_closed_and_come_back_to_nothing(open_app: OpenApp) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        parent, tab = await server.connect(Parent), await server.connect(AT)
        below = await server.connect(f"{AT}/sub/deep/d")
        await tab.set_state({"n": 3})
        await tab.call("who")
        await app.agent(Parent, "room").delete_sub_agent(Child, "c")
        for one in (tab, below):
            assert await one.until_closed() == (1001, "Sub-agent deleted")
        again = await server.connect(AT)
        assert (await again.until_frame("cf_agent_state"))["state"] == {"n": 0}
        assert parent.closed is None


async def test_erasing_a_parent_that_was_never_started_takes_its_children(open_app: OpenApp) -> None:
    app = await open_app(Parent)
    async with serving(app) as server:
        tab = await server.connect(AT)
        await tab.until_frame("cf_agent_identity")
        assert await app.erase(Parent, "room") > 0
        assert (await tab.until_closed())[0] == 4410
    assert await rows_of(app) == []


# --- runs in windows


async def test_a_window_is_told_of_more_than_may_wait_for_it(open_app: OpenApp) -> None:
    long = "x" * 2_000_000

    class Helper(Think):
        model = ScriptedModel(*[says(*[long] * 2) for _ in range(4)])

    class Assistant(Think):
        model = ScriptedModel(*[calls("delegate", query="x"), says("Done.")] * 4)
        delegate = agent_tool(Helper, description="Ask the helper.")

    app = await open_app(Assistant)
    agent = app.agent(Assistant, "room")
    for _ in range(4):
        await agent.save_messages("Go")
    async with serving(app) as server:
        tab = await server.connect(Assistant)
        ends = lambda: [f for f in tab.of("agent-tool-event") if f["event"]["kind"] == "finished"]  # noqa: E731
        await tab.until(lambda: len(ends()) == 4 or tab.closed)
        assert tab.closed is None


async def test_runs_that_cannot_be_read_keep_nobody_out(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    class Helper(Think):
        model = ScriptedModel(says("Hi"))

    class Assistant(Think):
        model = ScriptedModel(calls("delegate", query="x"), says("Done."))
        delegate = agent_tool(Helper, description="Ask the helper.")

    app = await open_app(Assistant)
    await app.agent(Assistant, "room").save_messages("Go")
    directory = await app.open()
    await directory.store.apply([Statement("UPDATE child_runs SET display = '{'")])
    async with serving(app) as server:
        tab = await server.connect(Assistant)
        await tab.until_frame("cf_agent_identity")
        await tab.call("nothing")
        assert tab.of("agent-tool-event") == []
        assert len(tab.messages) == 2
    assert "the runs of its children are not shown" in caplog.text


# --- paths in code


@pytest.mark.agent_case(281, 282, 554)
async def test_a_path_that_is_built_is_read_as_it_was_meant() -> None:
    whole = build_path((Parent, "room 1"), (Child, "a/b 100%"), ("deep", "🦊"))
    assert whole == "/agents/parent/room%201/sub/child/a%2Fb%20100%25/sub/deep/%F0%9F%A6%8A"
    parsed = parse_path(f"{whole}/x?y=1", [Parent, Child, Deep])
    assert parsed == [("Parent", "room 1"), ("Child", "a/b 100%"), ("Deep", "🦊")]
    below = build_path((Parent, "r"), (Child, "c"), prefix="api/v1")
    assert below == "/api/v1/parent/r/sub/child/c"
    assert parse_path(below, [Parent, Child], prefix="/api/v1/") == [("Parent", "r"), ("Child", "c")]
    assert parse_path("/agents/parent/r/sub/nope/x", [Parent, Child]) == [("Parent", "r")]
    # The outermost name is what the server takes it for: only that of a child may have slashes
    assert parse_path("/agents/parent/a%2Fb%20c/sub/child/a%2Fb", [Parent, Child]) == [
        ("Parent", "a%2Fb c"),
        ("Child", "a/b"),
    ]
    assert parse_path("/agents/nope/r", [Parent]) == []
    assert parse_path("/elsewhere", [Parent]) == []


@pytest.mark.agent_case(281)
@pytest.mark.parametrize(
    "agents",
    [(), ((Parent, ""),), ((Parent, "a/b"),), ((Parent, "r"), (Child, "")), ((Parent, "r"), (Child, "a\0"))],
    ids=["nobody", "no-name", "slash", "no-child", "nul"],
)
async def test_a_path_that_nobody_could_read_is_not_built(agents: Any) -> None:
    with pytest.raises(AgentError):
        build_path(*agents)


@pytest.mark.agent_case(282)
@pytest.mark.parametrize("written", ["%00", "%ff", "%ed%a0%80", "a%0Ab"])
async def test_a_path_with_a_child_that_cannot_be_is_not_read(written: str) -> None:
    with pytest.raises(AgentError, match="names a child that there cannot be"):
        parse_path(f"/agents/parent/r/sub/child/{written}/x", [Parent, Child])
