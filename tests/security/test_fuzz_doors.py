"""Whatever strangers ask of the doors beside the socket: files, children, the inspector, MCP.

What is sent is nearly right: a known address, a deed, a body, and something hostile in one of them. No 5xx,
no traceback, no stuck turn; nothing outside of a workspace is read or written, and no file is kept half.
`make test` sends a sample; `make fuzz` sends 4,000 (FUZZ_REQUESTS, FUZZ_SEED).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from everthink import App, Think, exposed
from everthink.server import Limits
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded
from everthink.testing import ScriptedModel, says
from everthink.testing.in_process_server import Listening
from everthink.workspace import DiskFiles, Workspace, WorkspaceLimits

from ..support.server import open_app

pytestmark = pytest.mark.anyio

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "400"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
PATIENCE = 60.0
SECRET = b"nobody may read this"
MANY = Limits(agents_per_minute=1_000_000, stall_seconds=5.0)
SMALL = WorkspaceLimits(file_bytes=50_000, files_bytes=400_000, entries=300, history=40)


class Deeper(Think):
    model = ScriptedModel.forever(says("ok"))


class Helper(Think):
    model = ScriptedModel.forever(says("ok"))
    workspace = Workspace(limits=SMALL)
    sub_agents = (Deeper,)


class Target(Think):
    """Has files in its rows, children, and an answer of its own to requests."""

    model = ScriptedModel.forever(says("ok"))
    workspace = Workspace(limits=SMALL)
    sub_agents = (Helper,)

    async def on_request(self, request: Request) -> Any:
        return PlainTextResponse(f"{len(await request.body())}")

    @exposed
    def add(self, a: Any = 0, b: Any = 0) -> Any:
        return [a, b]


class Watched:
    """The server, and what it let through to the one beneath."""

    def __init__(self, app: WithPage, limits: Limits) -> None:
        self._app, self.limits = app, limits
        self.raised: list[BaseException] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            self.raised.append(error)
            raise


# --- what is asked


def body_of(dice: random.Random, most: int = 60_000) -> bytes:
    """What a file holds: it says how long it is, so that half of it is seen to be half."""
    size = dice.choice([20, 200, 5_000, 49_999, 50_000, 50_001, most])
    head = f"{size:010}".encode()
    filler = dice.choice([b"a line of text\n", b"\xff\0", b"<svg onload=alert(1)>", "话".encode(), b"\r\n"])
    return (head + filler * size)[:size]


NAMES = [
    *(
        "a.txt",
        "b.html",
        "c",
        "d/e/f.md",
        "..",
        "../../etc/passwd",
        "../secret",
        "link",
        "link/secret",
        "a/../../x",
    ),
    *(
        "%2e%2e/secret",
        "a\\b",
        "\0",
        "a\nb",
        "x" * 256,
        "/".join("y" * 150),
        "z" * 5000,
        "ü",
        "u\u0308",
        "\ud800",
    ),
    *(
        "/",
        "",
        ".",
        "//",
        "a//b",
        "\u202egpj.exe",
        'a"; filename="b',
        "CON",
        "a:b",
        "~",
        "$HOME",
        "*",
        "?",
        "[a",
    ),
    *("\ufeff", "𝕒", "a" * 254 + "é", "./././a.txt", "a.txt/", "a.txt/b", "d", "d/e"),
]
NUMBERS = ["0", "1", "2", "7", "-1", "9" * 20, "9" * 5000, "٣", "1e9", "0x1", "", "²", "1_0", " 1", "NaN"]
ROOMS = [
    "target/one",
    "target/two",
    "shelf/one",
    "target/one/sub/helper/kid",
    "target/one/sub/helper/kid/sub/deeper/deep",
    "target/one/sub/helper/agent-tool:c1",
    "target/one/sub/helper/agent-tool:",
    "target/one/sub/nobody/kid",
    "target/one/sub/shelf/kid",
    "target/one/sub/helper/%00",
    "target/one/sub/helper/" + "k" * 900,
    "target/one" + "/sub/helper/k" * 6,
    "target/one/sub/helper/%2e%2e",
    "target/one/sub/helper/a%2Fsub%2Fhelper%2Fb",
    "target/" + "n" * 3000,
    "target/%00",
    "target/%ff",
    "target/..",
    "target/%2Fsub%2Fhelper%2Fkid",
    "helper/one",
    "nobody/one",
]
JSONS = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b'{"path": 1}',
    b'{"path": ["/"]}',
    b'{"path": "\\ud800"}',
    b'{"path":"a.txt","path":"../secret"}',
    b'{"seq": 1}',
    b'{"turn": "x"}',
    b"[" * 5000,
    b'{"path": "' + b"x" * 20_000 + b'"}',
    b"\xff\xfe",
    b'{"message":"m1"}',
    b'{"id":"run"}',
    b'{"title":"t"}',
    b'{"label":"a","text":"b"}',
    b'{"name":"x","url":"http://127.0.0.1:1/mcp"}',
    b'{"name":"x","url":"file:///etc/passwd"}',
]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"]
MORE = [
    "Origin: http://evil.example",
    "Origin: null",
    "Host: evil.example",
    "Range: bytes=0-1",
    "Range: bytes=5-1,9-",
    "If-None-Match: *",
    "Content-Encoding: gzip",
    "Content-Type: multipart/form-data; boundary=x",
    "Content-Type: application/json; charset=utf-7",
    "Transfer-Encoding: identity",
    "Expect: 100-continue",
    "X-HTTP-Method-Override: DELETE",
    "X-Forwarded-Prefix: /etc",
    "Accept-Encoding: br, gzip, *;q=0",
    "Content-Range: bytes 0-5/10",
    "Depth: infinity",
    "Destination: /../secret",
    "X-Long: " + "x" * 9000,
]


def quoted(dice: random.Random, text: str) -> str:
    """A value in a query: escaped, escaped twice, or as it is."""
    plain = text.encode("utf-8", "surrogatepass")
    whole = "".join(f"%{byte:02x}" for byte in plain)
    kind = dice.randrange(10)
    if kind == 0:
        return whole.replace("%", "%25")
    if kind == 1:
        return "".join(
            chr(byte) if 32 < byte < 127 and byte not in b"&#" else f"%{byte:02x}" for byte in plain
        )
    return whole + ("%" if kind == 2 else "%ff%fe" if kind == 3 else "")


def asked(dice: random.Random, port: int) -> tuple[bytes, bool]:
    """A request, and whether all of its body is sent."""
    room = dice.choice(ROOMS[:5]) if dice.random() < 0.8 else dice.choice(ROOMS)
    makers: list[Callable[[random.Random, str], tuple[str, str, bytes]]] = (
        [_upload] * 5 + [_file] * 6 + [_deed] * 4
    )
    method, path, body = dice.choice([*makers, _inspect, _inspect, _child, _mcp])(dice, room)
    if dice.random() < 0.08:
        method = dice.choice(METHODS)
    declared, sent, head = len(body), body, "Content-Length: {}"
    if dice.random() < 0.15:  # whoever sends hangs up, or says something else than they do
        declared, sent = dice.choice(
            [(declared + 7, body), (declared, body[: len(body) // 2]), (10**12, body)]
        )
    elif dice.random() < 0.2:
        at = dice.randrange(len(body) + 1)
        pieces = [piece for piece in (body[:at], body[at:]) if piece]
        sent = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        head = "Transfer-Encoding: chunked"
        if dice.random() < 0.3:
            sent = dice.choice([sent[:-5], sent[: len(sent) // 2], b"zz\r\n" + sent, b"-1\r\n" + sent])
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Connection: close",
        head.format(declared),
    ]
    if dice.random() < 0.2:
        lines.append(dice.choice(MORE))
    is_whole = sent.endswith(b"0\r\n\r\n") if "chunked" in head else len(sent) >= declared
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + sent, is_whole


def _files(room: str, rest: str) -> str:
    return f"/everthink/inspect/{room}/files{rest}"


def _upload(dice: random.Random, room: str) -> tuple[str, str, bytes]:
    name = dice.choice(NAMES[:4] if dice.random() < 0.5 else NAMES)
    replace = dice.choice(["", "&replace=1", "&replace", "&path=/c"])
    return "POST", _files(room, f"/upload?path={quoted(dice, name)}{replace}"), body_of(dice)


def _file(dice: random.Random, room: str) -> tuple[str, str, bytes]:
    name, number = quoted(dice, dice.choice(NAMES)), quoted(dice, dice.choice(NUMBERS))
    rest = dice.choice(
        [
            f"?path={name}&after={quoted(dice, dice.choice(NAMES))}",
            f"/look?path={name}",
            f"/content?path={name}",
            f"/content?path={name}&download=1",
            f"/content?path={name}&hash={number}",
            "/changes",
            f"/diff?first={number}&last={quoted(dice, dice.choice(NUMBERS))}",
            "/diff?first=0&last=999999",
            f"/diff?call={name}",
            f"/{name}",
            "/look/%2e%2e/%2e%2e",
        ]
    )
    return "GET", _files(room, rest), b""


def _deed(dice: random.Random, room: str) -> tuple[str, str, bytes]:
    fields = {"path": dice.choice(NAMES), "seq": dice.choice(NUMBERS), "turn": dice.choice(NAMES)}
    given = {key: value for key, value in fields.items() if dice.random() < 0.8}
    body = json.dumps(given).encode() if dice.random() < 0.8 else dice.choice(JSONS)
    return "POST", _files(room, f"/{dice.choice(['delete', 'restore', 'undo', 'undo', 'burn', ''])}"), body


def _inspect(dice: random.Random, room: str) -> tuple[str, str, bytes]:
    word = dice.choice(
        ["", "turns", "answers", "leaf", "family", "runs/stop", "memory", "memory/blocks", "sessions"]
    )
    word = dice.choice(
        [word, "sessions/fork", "sessions/open", "search?q=x", "compacted", "servers", "servers/remove"]
    )
    tail = dice.choice(["", "/" + quoted(dice, dice.choice(NAMES)), "?q=" + quoted(dice, dice.choice(NAMES))])
    if dice.random() < 0.2:
        deed = dice.choice(["rename", "erase-", f"rename{tail}"])
        return "POST", f"/everthink/conversations/{room}/{deed}", dice.choice(JSONS)
    if dice.random() < 0.2:
        query = f"?{dice.choice(['q', 'open'])}={quoted(dice, dice.choice(NAMES))}"
        return "GET", f"/everthink/conversations/{room.partition('/')[0]}{query}", b""
    return dice.choice(["GET", "GET", "POST"]), f"/everthink/inspect/{room}/{word}{tail}", dice.choice(JSONS)


def _child(dice: random.Random, room: str) -> tuple[str, str, bytes]:
    tail = dice.choice(
        ["", "/get-messages", "/sub", "/sub/helper", "/x/y", "/callback?state=x", "/%2e%2e/%2e%2e"]
    )
    return dice.choice(["GET", "POST", "HEAD"]), f"/agents/{room}{tail}", body_of(dice)


def _mcp(dice: random.Random, _: str) -> tuple[str, str, bytes]:
    arguments = dice.choice(
        [{}, {"message": "Hi"}, {"message": 1, "name": "\0"}, {"name": "x" * 9000, "message": ""}]
    )
    name = dice.choice(["ask_target", "ask_shelf", "ask_nobody", "target_add", "\0", 7, None])
    message: Any = {"jsonrpc": "2.0", "id": dice.choice([1, "x", None, [], 2**70]), "method": "tools/call"}
    message["params"] = dice.choice([{"name": name, "arguments": arguments}, [], None, {"name": {}}])
    message["method"] = dice.choice(
        ["tools/call", "tools/list", "initialize", "nobody", None, "notifications/cancelled"]
    )
    whole: Any = dice.choice([message, message, [message] * 3, "x"])
    return "POST", dice.choice(["/mcp", "/mcp/", "/mcp?x=1", "/mcp/../files"]), json.dumps(whole).encode()


async def sent(port: int, data: bytes, is_whole: bool) -> tuple[int | None, bytes]:
    """The status and all of the answer; no status when there was none. Who sends a part hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        if not is_whole:
            writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        return (int(answer.split(None, 2)[1]) if answer.startswith(b"HTTP/") else None), answer
    except (ConnectionError, ValueError):
        return None, b""
    finally:
        writer.close()


# --- what may not come of it


def everything_in(folder: Path) -> dict[str, bytes]:
    """All that lies in a folder, links as links."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        for path in sorted(folder.rglob("*"))
        if "shelf" not in path.relative_to(folder).parts
    }


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where it all is kept."""
    (tmp_path / "db").mkdir()
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/db/everthink.db"
    return request.getfixturevalue("postgres_url")


async def test_random_requests_at_the_doors_beside_the_socket_break_nothing(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    around = tmp_path / "around"
    (around / "shelf").mkdir(parents=True)
    (around / "secret").write_bytes(SECRET)
    (around / "shelf" / "link").symlink_to(around)

    class Shelf(Target):
        workspace = Workspace(DiskFiles(around / "shelf"), limits=SMALL)

    dice, statuses = random.Random(SEED), Counter[int | None]()
    app = open_app(tmp_path, Target, Shelf, store=store, limits=MANY, mcp={"exposed": True})
    before = everything_in(around)
    server = Watched(WithPage(Loaded(app, "the tests", app)), MANY)
    async with Listening(server) as listening:
        for _ in range(0, REQUESTS, 8):
            some = [asked(dice, listening.port) for _ in range(8)]
            answers = await asyncio.gather(*(sent(listening.port, *one) for one in some))
            for (data, is_whole), (status, answer) in zip(some, answers, strict=True):
                statuses[status] += 1
                assert status is None or status < 500, (data[:3000], answer)
                assert SECRET not in answer, data
                assert is_whole or status != 200 or b"/files/upload" not in data[:9000], (data[:300], answer)
        for cls in (Target, Shelf):
            chat = await listening.connect(cls, "one")
            await chat.until_done(await chat.say("Still there?"))
            assert chat.text == "ok"
        await _no_file_is_half(app, Target, Shelf)
    assert server.raised == []
    told = [r for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR]
    assert [record.getMessage() for record in told] == []
    assert everything_in(around) == before
    assert {200, 400, 403, 404, 405, 409, 413} <= statuses.keys(), statuses


async def _no_file_is_half(app: App, *classes: type[Think]) -> None:
    seen = 0
    for cls in classes:
        for name in ("one", "two"):
            async with app.agent(cls, name) as agent:
                for entry in await agent.workspace.glob("**"):
                    if entry.kind == "file":
                        data = await agent.workspace.read_file_bytes(entry.path) or b""
                        assert len(data) == entry.size == int(data[:10]), entry
                        seen += 1
    assert seen
