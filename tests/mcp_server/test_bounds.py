"""How much an MCP client may send and ask for, and what every answer looks like."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from everthink import App
from everthink.server.answers import HEADERS as SECURITY
from everthink.testing import ScriptedModel, says

from ..support.agents import assistant
from ..support.mcp import HEADERS, client_of, in_answer, post, texts
from ..support.server import served
from ..support.turns import Database
from .conftest import Serve

pytestmark = pytest.mark.anyio

ASK = {"name": "ask_assistant", "arguments": {"message": "Hi", "conversation": "room"}}


async def test_a_body_that_is_too_long_is_refused_whether_it_says_so_or_not(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel()), limits={"frame_bytes": 1000})
    long = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"x": "%s"}}' % (b"x" * 1000)

    said = await server.http("/mcp", method="POST", headers=HEADERS, body=long)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(long), long)
    unsaid = await _raw(server, b"Transfer-Encoding: chunked\r\n", chunked)

    assert (said.status, said.json["error"]["message"]) == (413, "The body is longer than 1000 bytes.")
    assert b" 413 " in unsaid


async def test_a_body_that_is_nested_too_deep_or_holds_too_much_is_refused(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel()), limits={"frame_depth": 20, "frame_nodes": 500})
    deep = {"name": "ask_assistant", "arguments": json.loads("[" * 30 + "]" * 30)}
    wide = {"name": "ask_assistant", "arguments": {"message": [1] * 1000}}

    answers = [await post(server, "tools/call", params) for params in (deep, wide)]

    assert [answer.status for answer in answers] == [413, 413]
    assert "nested deeper than 20 levels" in answers[0].text
    assert "holds more than 500 values" in answers[1].text


async def test_only_arguments_may_be_long(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel(says("Read."))), limits={"body_bytes": 2000})
    long = {**ASK, "_meta": {"x": "y" * 3000}}
    fine = {"name": "ask_assistant", "arguments": {"message": "z" * 30_000, "conversation": "room"}}

    refused = await post(server, "tools/call", long)
    answer = await post(server, "tools/call", fine)

    assert refused.status == 413
    assert in_answer(answer)["result"]["structuredContent"]["text"] == "Read."


async def test_a_message_that_is_too_long_is_told_and_not_kept(serve: Serve, tmp_path: Path) -> None:
    server = await serve(assistant(ScriptedModel()), limits={"text_bytes": 100})
    async with client_of(server) as client:
        result = await client.call_tool("ask_assistant", {"message": "x" * 101, "conversation": "room"})

    assert result.is_error
    assert "101 bytes of text, more than 100" in texts(result)[0]
    assert Database(tmp_path).messages() == []


async def test_a_head_that_is_too_long_is_refused(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel()), limits={"header_bytes": 2000})

    refused = await post(server, X_Long="x" * 1900)

    assert refused.status == 431


async def test_new_conversations_of_one_address_are_counted(serve: Serve, tmp_path: Path) -> None:
    cls = assistant(ScriptedModel(*[says("Hello.")] * 4))
    server = await serve(cls, limits={"agents_per_minute": 2})
    names = ["one", "two", "three"]

    answers = [
        await post(server, "tools/call", {**ASK, "arguments": {"message": "Hi", "conversation": name}})
        for name in names
    ]
    known = await post(server, "tools/call", {**ASK, "arguments": {"message": "Hi", "conversation": "one"}})

    assert [answer.status for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) > 0
    assert known.status == 200


async def test_turns_that_wait_are_bounded_as_for_windows(serve: Serve) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("One ").waits(gate).says("done."), says("Two."))
    server = await serve(assistant(model), limits={"waiting_turns": 1})
    async with client_of(server) as client:

        def ask() -> asyncio.Task[Any]:
            given = {"message": "?", "conversation": "room"}
            return asyncio.create_task(client.call_tool("ask_assistant", given))

        first = ask()
        await model.until_silent()
        others = [ask(), ask()]
        [refused], _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        gate.set()
        results = [await one for one in (first, *others)]

    assert refused.result().is_error
    assert "wait" in texts(refused.result())[0]
    assert sorted(result.is_error for result in results) == [False, False, True]


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "OPTIONS"])
async def test_only_posts_are_answered(serve: Serve, method: str) -> None:
    server = await serve(assistant(ScriptedModel()))

    answer = await server.http("/mcp", method=method, headers=HEADERS)

    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"not json", 400),
        (b'{"jsonrpc": "2.0"', 400),
        (b"[]", 400),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]', 400),
        (b'"text"', 400),
        (b"{}", 400),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 3}', 400),
        (b"\xff\xfe", 400),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', 202),
    ],
)
async def test_what_is_no_message_is_refused_in_words(serve: Serve, body: bytes, status: int) -> None:
    server = await serve(assistant(ScriptedModel()))

    answer = await server.http("/mcp", method="POST", headers=HEADERS, body=body)

    assert answer.status == status
    if status == 400:
        assert answer.json["error"]["message"]


async def test_half_an_emoji_in_a_message_is_no_reason_to_fail(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Hello.")))
    server = await serve(cls)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ASK}).encode()
    half = body.replace(b'"Hi"', b'"Hi \\ud83d"')

    answer = await server.http("/mcp", method="POST", headers=HEADERS, body=half)

    assert in_answer(answer)["result"]["isError"] is False
    [question, _] = await server.app.agent(cls, "room").get_messages()
    assert question.text == "Hi \ufffd"


async def test_every_answer_has_the_headers_that_every_answer_of_ours_has(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel(says("Hello."))), authenticate=lambda c: c.headers.get("x"))

    answers = [
        await post(server, X="ada"),
        await post(server, "tools/call", ASK, X="ada"),
        await post(server, "initialize", INITIALIZE, X="ada"),
        await post(server),
        await server.http("/mcp"),
    ]

    assert [answer.status for answer in answers] == [200, 200, 200, 401, 405]
    for answer in answers:
        for name, value in SECURITY.items():
            assert value.partition(",")[0] in answer.headers[name.lower()]
        assert answer.headers["cache-control"].startswith("no-store")


async def test_the_address_is_where_the_settings_say_below_where_the_app_is_mounted() -> None:
    app = App(assistant(ScriptedModel(says("Hello."))), store=":memory:", mcp={"path": "/api/mcp/"})
    async with app, served(Starlette(routes=[Mount("/chat", app=app)])) as site:
        async with client_of(site, path="/chat/api/mcp") as client:
            result = await client.call_tool("ask_assistant", {"message": "Hi", "conversation": "room"})
        assert (await post(site, path="/chat/mcp")).status == 404

    assert texts(result) == ["Hello."]


async def test_an_app_that_is_not_asked_to_speaks_no_mcp(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel()), mcp=False)

    assert (await post(server)).status == 404


INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "tests", "version": "1"},
}


async def _raw(server: Any, head: bytes, body: bytes) -> bytes:
    """The first line of the answer to a request that is written by hand."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    fields = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items()).encode()
    writer.write(b"POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + fields + head + b"\r\n" + body)
    try:
        return await reader.readline()
    finally:
        writer.close()
