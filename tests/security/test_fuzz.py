"""Whatever strangers send, over real sockets: no 5xx, no traceback, no stuck turn, nothing lost.

`make test` sends a sample; `make fuzz` sends 20,000 frames and 4,000 requests (FUZZ_FRAMES, FUZZ_REQUESTS and
FUZZ_SEED choose others). A seed that finds something is worth a test of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from everthink import AgentError, Think, exposed, tool
from everthink.models.port import Request
from everthink.server import Limits
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.client import Client
from everthink.testing.in_process_server import Listening
from everthink.testing.scripted import Play
from everthink.tools.collect import client_tools_from
from everthink.wire.body import read_body
from everthink.wire.codec import decode
from everthink.wire.frames import RequestInit, UseChat

from ..support.frames import VALID, frames
from ..support.server import open_app
from ..support.turns import home_of

pytestmark = pytest.mark.anyio

FRAMES = int(os.environ.get("FUZZ_FRAMES", "1500"))
REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "400"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
ROOMS = ("one", "two", "three")
RECORDINGS = Path(__file__).parent.parent / "recordings"
MANY = Limits(agents_per_minute=1_000_000, sockets_per_address=1_000_000, sockets=1_000_000)
"""The bounds as they come, but for those of an address: everybody here has the same."""
PATIENCE = 60.0


def play(request: Request) -> Play:
    """Call whatever tool is at hand, now and then."""
    number = len(request.messages)
    names = [spec.name for spec in request.tools]
    return calls(names[number % len(names)]) if names and number % 3 == 1 else says("ok")


class Target(Think):
    """Has something of everything."""

    model = ScriptedModel.forever(play)
    initial_state: Any = None

    @exposed
    def add(self, a: Any = 0, b: Any = 0) -> Any:
        return [a, b]

    @tool(needs_approval=True)
    def refund(self) -> str:
        """Give it back."""
        return "done"


# --- frames


def recorded() -> list[dict[str, Any]]:
    """What real clients sent."""
    found: list[dict[str, Any]] = []
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if entry.get("dir") == "out" and isinstance(entry.get("frame"), dict):
                found.append(entry["frame"])
    return found


def hostile(seed: int, count: int) -> Iterator[str | bytes]:
    """Noise, bombs, and what real clients sent with something changed in it."""
    dice = random.Random(seed)
    known, noise = [*recorded(), *VALID], frames(seed, count)
    for _ in range(count):
        yield next(noise) if dice.random() < 0.5 else _mutated(dice, dice.choice(known))


def _mutated(dice: random.Random, frame: dict[str, Any]) -> str:
    changed = json.loads(json.dumps(frame))
    body = changed.get("init", {}).get("body") if isinstance(changed.get("init"), dict) else None
    if isinstance(body, str) and dice.random() < 0.8:
        try:
            inner = json.loads(body)
        except ValueError:
            inner = None
        if isinstance(inner, dict):
            _spoil(dice, inner)
            changed["init"]["body"] = json.dumps(inner)
    elif dice.random() < 0.7:
        _spoil(dice, changed)
    return json.dumps(changed)


def _spoil(dice: random.Random, value: Any) -> None:
    """Change something, somewhere in it."""
    while True:
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = dice.choice(keys)
        if isinstance(value[key], dict | list) and dice.random() < 0.7:
            value = value[key]
            continue
        value[key] = _odd(dice)
        return


def _odd(dice: random.Random) -> Any:
    return dice.choice(
        [
            None,
            True,
            -1,
            2**70,
            1e308,
            "",
            "\0",
            "\ud800",
            "x" * 129,
            "x" * 5000,
            "assistant",
            "system",
            "compaction_1",
            "tool-refund",
            "data-x",
            [],
            {},
            [[]] * 50,
            {"type": "object", "properties": {"x": {"$ref": "#"}}},
            [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}] * 20,
            {"__proto__": {}, "constructor": None},
            f"id-{dice.randrange(50)}",
        ]
    )


async def _send(server: Listening, tabs: list[Client], place: int, frame: str | bytes) -> None:
    """Send it; whoever was thrown out for the last one comes back."""
    for _ in range(2):
        tab = tabs[place]
        try:
            await tab.send(frame if isinstance(frame, bytes) else frame.encode("utf-8", "replace").decode())
            return
        except ConnectionClosed:
            tabs[place] = await server.connect(Target, ROOMS[place % len(ROOMS)])
            server.clients.remove(tab)


async def test_random_frames_break_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    app = open_app(tmp_path, Target, limits=MANY)
    async with Listening(app) as server:
        tabs = [await server.connect(Target, ROOMS[n % len(ROOMS)]) for n in range(6)]
        for number, frame in enumerate(hostile(SEED, FRAMES)):
            await _send(server, tabs, number % len(tabs), frame)
            if number % 100 == 99:
                await _heard(server, tabs)
        await _heard(server, tabs)
        before = {room: await _after_an_honest_turn(server, app, room) for room in ROOMS}
    _check_log(caplog)

    # And after a restart everything is as it was
    again = open_app(tmp_path, Target, limits=MANY)
    async with Listening(again) as server:
        for room in ROOMS:
            messages = await again.agent(Target, room).get_messages()
            assert [message.to_json() for message in messages] == before[room]
    _check_log(caplog)


async def _heard(server: Listening, tabs: list[Client]) -> None:
    """Wait until what was sent has been looked at; forget what came back. Who was thrown out comes back."""
    for place, tab in enumerate(tabs):
        with contextlib.suppress(ConnectionClosed):
            await tab.probe("heard")
        await tab.until(lambda tab=tab: tab.closed or _is_answered(tab), timeout=PATIENCE)
        tab.frames.clear()
        if tab.closed:
            tabs[place] = await server.connect(Target, ROOMS[place % len(ROOMS)])
            server.clients.remove(tab)


def _is_answered(tab: Client) -> bool:
    return any(frame.get("probeId") == "heard" for frame in tab.frames)


async def _after_an_honest_turn(server: Listening, app: Any, room: str) -> list[Any]:
    """Nothing is stuck: turns end, and the next one is answered. The conversation afterwards."""
    home = await home_of(app, Target, room)
    async with asyncio.timeout(PATIENCE):
        await _ended(home)
        for _ in range(3):  # it may call a tool first, and wait for a person
            honest = await server.connect(Target, room)
            await honest.until_done(await honest.say("Still there?"))
        await _ended(home)
    messages = await app.agent(Target, room).get_messages()
    assert len({message.id for message in messages}) == len(messages)
    assert all(message.role in ("user", "assistant") for message in messages)
    return [message.to_json() for message in messages]


async def _ended(home: Any) -> None:
    while not home.chat.continuations.is_at_rest or home.chat.host.turns:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


def _check_log(caplog: pytest.LogCaptureFixture) -> None:
    told = [r for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR]
    assert [record.getMessage() for record in told] == []


# --- requests

METHODS = [
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "G\x01T",
    "X" * 300,
]
PATHS = ["/", "*", "//", "/agents", "/agents/target", "/agents/target/one", "/agents/target/one/get-messages"]
PATHS += ["/agents/nobody/one", "/agents/target/" + "x" * 600, "/agents/target/%00", "/agents/target/%ff%fe"]
PATHS += ["/agents/target/../../etc/passwd", "/agents/target/%2e%2e", "http://evil.example/agents/target/one"]
PATHS += [
    "/agents/target/one?_pk=" + "y" * 3000,
    "/agents/target/one#x",
    "/agents/target/\x80",
    "?",
    "/agents/target/one/get-messages/",
]
HEADERS = [
    "Host",
    "Origin",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Upgrade",
    "Cookie",
    "Range",
]
HEADERS += [
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Extensions",
    "Content-Type",
    "Expect",
]
HEADERS += ["X-Forwarded-For", "X-Forwarded-Host", "Accept-Encoding", "Authorization", "X-Long", ""]
VALUES = [
    "",
    "localhost",
    "evil.example",
    "127.0.0.1",
    "http://evil.example",
    "null",
    "0",
    "-1",
    "99999999999",
]
VALUES += [
    "chunked",
    "gzip, chunked",
    "Upgrade",
    "websocket",
    "13",
    "8",
    "AAAAAAAAAAAAAAAAAAAAAA==",
    "x" * 9000,
]
VALUES += [
    "permessage-deflate; server_max_window_bits=1",
    "bytes=0-",
    "100-continue",
    "\xff\xfe",
    "a\tb",
    "Basic =====",
]


def stranger(dice: random.Random, port: int) -> bytes:
    """One request, more or less."""
    if dice.random() < 0.05:
        return dice.randbytes(dice.randrange(200))
    lines = [f"{dice.choice(METHODS[:7] if dice.random() < 0.8 else METHODS)} {dice.choice(PATHS)} HTTP/1.1"]
    if dice.random() < 0.1:
        lines[0] = dice.choice(["GET", "GET /", "GET / HTTP/9.9", "GET / HTTP/1.0", "PRI * HTTP/2.0", ""])
    if dice.random() < 0.8:
        lines.append(f"Host: 127.0.0.1:{port}")
    if dice.random() < 0.2:
        lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="]
    lines += [f"{dice.choice(HEADERS)}: {dice.choice(VALUES)}" for _ in range(dice.randrange(4))]
    body = b""
    if dice.random() < 0.3:
        body = dice.choice([b"{}", b"x" * 70_000, b"\xff\xfe", b"5\r\nhello\r\n0\r\n\r\n", b"[" * 10_000])
        lines.append(dice.choice([f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"]))
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


async def _status(port: int, data: bytes) -> int | None:
    """The status that was answered, `None` when there was no answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            line = await reader.readline()
        return int(line.split()[1]) if line.startswith(b"HTTP/") else None
    except (ConnectionError, ValueError):
        return None
    finally:
        writer.close()


async def test_random_requests_break_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    dice = random.Random(SEED)
    app = open_app(tmp_path, Target, limits=MANY)
    statuses: dict[int | None, int] = {}
    async with Listening(app) as server:
        for _ in range(0, REQUESTS, 8):
            asked = [stranger(dice, server.port) for _ in range(8)]
            for data, status in zip(
                asked, await asyncio.gather(*(_status(server.port, data) for data in asked)), strict=True
            ):
                statuses[status] = statuses.get(status, 0) + 1
                assert status is None or status < 500, data
        await _after_an_honest_turn(server, app, "one")
    _check_log(caplog)
    assert {101, 200, 400, 404} <= statuses.keys(), statuses  # it was not refused at the first look only


# --- anything that is JSON

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=20,
)
TYPES = st.sampled_from(sorted({frame["type"] for frame in VALID}))
FIELDS = st.sampled_from(sorted({key for frame in VALID for key in frame} - {"type"}))


@settings(deadline=None)
@given(TYPES, st.dictionaries(FIELDS, JSON, max_size=6))
def test_a_frame_of_any_shape_is_a_frame_or_nothing(kind: str, fields: dict[str, Any]) -> None:
    decode(json.dumps({**fields, "type": kind}), Limits())


@settings(deadline=None)
@given(JSON, JSON, JSON)
def test_a_body_of_any_shape_is_read_or_refused(messages: Any, tools: Any, more: Any) -> None:
    body = json.dumps({"messages": messages, "clientTools": tools, "more": more})
    frame = UseChat("r", RequestInit("POST", body))
    with contextlib.suppress(AgentError):
        found = read_body(frame, new_id=lambda: "id", limits=Limits())
        if found is not None:
            client_tools_from(found.client_tools)
