"""The page's own doors are doors: who is counted, asked and refused at a socket is so at them, too."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from everthink import Think
from everthink.devtools import files
from everthink.server import Limits
from everthink.server.arriving import Arriving
from everthink.testing import ScriptedModel, says
from everthink.workspace import Workspace, WorkspaceLimits

from ..support.agents import live
from ..support.hooks import until
from ..support.server import Served, open_app, served
from .doors import develop

pytestmark = pytest.mark.anyio


class Helper(Think):
    model = ScriptedModel.forever(says("ok"))


class Stray(Think):
    """An agent of the same app, and nobody's child."""

    model = ScriptedModel.forever(says("ok"))


class Assistant(Think):
    model = ScriptedModel.forever(says("ok"))
    sub_agents = (Helper,)

    async def on_request(self, request: Request) -> Any:
        if request.headers.get("content-type", "").startswith("multipart/"):
            return PlainTextResponse(f"{len(await request.form())}")
        return PlainTextResponse(f"{len(await request.body())}")

    async def on_before_sub_agent(self, request: Any, cls: type, name: str) -> Any:
        return PlainTextResponse("Locked", 423) if name == "locked" else None


ONE = "/everthink/inspect/assistant/one"


@contextlib.asynccontextmanager
async def page(folder: Path, *more: type[Think], **options: Any) -> AsyncGenerator[Served]:
    async with served(develop(folder, Assistant, *more, **options)) as server:
        yield server


async def upload(server: Served, room: str, path: str = "/a.txt", data: bytes = b"x", more: str = "") -> int:
    address = f"{room}/files/upload?path={quote(path)}{more}"
    return (await server.http(address, method="POST", body=data)).status


async def names(server: Served, room: str = ONE) -> list[str]:
    told = (await server.http(f"{room}/files")).json
    return [one["name"] for one in told["entries"]] if told else []


async def said(port: int, data: bytes, *, hangs_up: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    if hangs_up:
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


# --- who makes agents


async def test_agents_that_uploads_make_are_counted_by_address(tmp_path: Path) -> None:
    async with page(tmp_path, limits=Limits(agents_per_minute=2)) as server:
        statuses = [await upload(server, f"/everthink/inspect/assistant/{n}") for n in range(4)]
        assert statuses == [200, 200, 429, 429]
        assert await upload(server, "/everthink/inspect/assistant/0", "/b.txt") == 200  # it is there


async def test_a_name_that_is_none_makes_no_agent(tmp_path: Path) -> None:
    async with page(tmp_path) as server:
        for name in ("n" * 3000, "n" * 513):
            assert await upload(server, f"/everthink/inspect/assistant/{name}") == 400


async def test_a_deed_that_there_is_not_makes_no_agent(tmp_path: Path) -> None:
    async with page(tmp_path, limits=Limits(agents_per_minute=1)) as server:
        for deed in ("leaf", "runs/stop", "burn"):
            assert (await server.http(f"{ONE}/{deed}", method="POST", body=b"{}")).status == 404
        assert await upload(server, "/everthink/inspect/assistant/two") == 200


async def test_an_upload_makes_no_child_of_a_class_that_its_parent_does_not_name(tmp_path: Path) -> None:
    async with page(tmp_path, Stray) as server:
        assert await upload(server, f"{ONE}/sub/stray/kid") == 404
        assert await upload(server, f"{ONE}/sub/helper/kid") == 200
        assert (await server.http(f"{ONE}/sub/stray/kid/files")).json is None


async def test_a_parent_that_locks_a_child_locks_its_files(tmp_path: Path) -> None:
    async with page(tmp_path) as server:
        app = server.app._loaded.app
        async with app.agent(Assistant, "one") as parent:
            child = await parent.sub_agent(Helper, "locked")
            await child.workspace.write_file("/mine.txt", "x")
        locked = f"{ONE}/sub/helper/locked"
        assert await upload(server, locked) == 423
        fields = {"delete": {"path": "/mine.txt"}, "restore": {"seq": "0"}, "undo": {"turn": "t"}}
        for deed, given in fields.items():
            body = json.dumps(given).encode()
            answer = await server.http(f"{locked}/files/{deed}", method="POST", body=body)
            assert (answer.status, "Nothing was changed" in answer.json["error"]) == (423, True)
        assert await names(server, locked) == ["mine.txt"]


# --- what others wait for


async def test_requests_of_the_page_count_as_connections(tmp_path: Path) -> None:
    async with page(tmp_path, limits=Limits(sockets_per_address=1)) as server:
        await server.connect(Assistant, "one")
        assert await upload(server, ONE) == 429
        assert (await server.http(f"{ONE}/files")).status == 429


async def test_a_head_that_is_too_long_is_refused_by_the_page_too(tmp_path: Path) -> None:
    async with page(tmp_path, limits=Limits(header_bytes=2000)) as server:
        assert (await server.http(f"{ONE}/files?path={'x' * 3000}")).status == 431


async def test_uploads_that_arrive_count_with_everything_that_arrives(tmp_path: Path) -> None:
    # It is told so with its next piece, which never comes, or when it has been waited for.
    async with page(tmp_path, limits=Limits(buffered_bytes=100_000, stall_seconds=1.0)) as server:
        head = f"POST {ONE}/files/upload?path=/a HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: 900000"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"{head}\r\n\r\n".encode() + b"x" * 101_000)
        assert (await reader.readline()).split()[1] == b"503"
        writer.close()
        assert await names(server) == []


async def test_checks_that_never_answer_are_not_waited_for_by_the_page(tmp_path: Path) -> None:
    async def authenticate(connection: Any) -> Any:
        await asyncio.Event().wait()

    limits = Limits(handshake_seconds=0.05)
    async with page(tmp_path, limits=limits, authenticate=authenticate) as server:
        assert (await server.http(ONE)).status == 503


# --- what cannot be read


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 20, "²", "-1", "0x1", "1e3"])
async def test_a_number_that_is_none_is_refused(tmp_path: Path, number: str) -> None:
    async with page(tmp_path) as server:
        assert await upload(server, ONE) == 200
        for query in (f"first={quote(number)}&last=1", f"first=1&last={quote(number)}"):
            assert (await server.http(f"{ONE}/files/diff?{query}")).status == 400
        body = json.dumps({"seq": number}).encode()
        assert (await server.http(f"{ONE}/files/restore", method="POST", body=body)).status == 400
        assert await names(server) == ["a.txt"]


@pytest.mark.parametrize(
    "path", ["/%00", "/agents/assistant/%00", "/" + "x" * 300, "/agents/assistant/" + "x" * 400]
)
async def test_a_path_that_no_file_could_have_is_no_file_of_the_page(tmp_path: Path, path: str) -> None:
    async with page(tmp_path) as server:
        assert (await server.http(path)).status in (400, 404)


@pytest.mark.parametrize(
    "address", [f"{ONE}/files/upload?path=/a.txt", f"{ONE}/files/delete", "/agents/assistant/one"]
)
async def test_who_hangs_up_in_the_middle_of_a_body_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    async with page(tmp_path) as server:
        for head in ("Content-Length: 1000", "Transfer-Encoding: chunked"):
            whole = f"POST {address} HTTP/1.1\r\nHost: {server.host}\r\n{head}\r\n\r\n"
            await said(server.port, whole.encode() + b'9\r\n{"path":"\r\n', hangs_up=True)
        assert await names(server) == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "body", [b"--b\r\nContent-Disposition: form-data; name=f\r\n\r\nx\r\n" * 2000, b"x" * 100]
)
async def test_a_form_that_is_none_or_too_much_of_one_is_refused_and_no_failure_of_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    async with page(tmp_path) as server:
        answer = await server.http("/agents/assistant/one", method="POST", headers=form, body=body)
        assert answer.status == 400
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# --- what runs meanwhile


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_an_upload_that_ends_after_its_agent_was_erased_leaves_nothing_of_it(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    options = {"store": request.getfixturevalue("postgres_url")} if engine == "postgres" else {}
    async with page(tmp_path, **options) as server:
        app = server.app._loaded.app
        assert await upload(server, ONE) == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST {ONE}/files/upload?path=/late.txt HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: 9"
        writer.write(f"{head}\r\nConnection: close\r\n\r\n12345".encode())
        await writer.drain()
        await until(lambda: Arriving.in_all)
        await app.erase(Assistant, "one")
        writer.write(b"6789")
        answer = await reader.read()
        writer.close()
        assert answer.split()[1] in (b"503", b"404", b"409")
        assert await names(server) == []


async def test_uploads_that_wait_to_be_stored_are_bounded(tmp_path: Path) -> None:
    async with page(tmp_path, limits=Limits(buffered_bytes=1_000_000)) as server:
        app = server.app._loaded.app
        async with app.agent(Assistant, "one") as agent:
            async with agent.workspace.files._shared.lock:  # somebody stores something that takes long
                first = asyncio.create_task(upload(server, ONE, "/a", b"x" * 600_000))
                await until(lambda: files.Whole.in_all)
                assert await upload(server, ONE, "/b", b"x" * 600_000) == 503
            assert await first == 200
        assert await names(server) == ["a"]
        assert await upload(server, ONE, "/b", b"x" * 600_000) == 200


async def test_what_is_for_development_is_not_served_otherwise(tmp_path: Path) -> None:
    async with served(open_app(tmp_path, Assistant)) as server:
        await live(server.app.agent(Assistant, "one"))
        for address in (ONE, f"{ONE}/files", "/everthink/conversations/assistant", "/everthink/agents", "/"):
            assert (await server.http(address)).status == 404
        assert await upload(server, ONE) == 404
        async with server.app.agent(Assistant, "one") as agent:
            assert await agent.workspace.glob("**") == []


# --- two at once


async def test_of_two_that_bring_a_file_of_one_name_one_is_refused(tmp_path: Path) -> None:
    async with page(tmp_path) as server:
        app = server.app._loaded.app
        await live(app.agent(Assistant, "one"))
        data = [f"{n}".encode() * 300_000 for n in range(6)]
        statuses = await asyncio.gather(*(upload(server, ONE, "/a.txt", one) for one in data))
        assert sorted(statuses) == [200, *[409] * 5]
        kept = (await server.http(f"{ONE}/files/content?path=/a.txt")).body
        assert kept == data[statuses.index(200)]


async def test_a_version_that_is_forgotten_while_it_is_sent_is_cut_off_and_not_taken_for_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Forgetful(Assistant):
        workspace = Workspace(limits=WorkspaceLimits(history=1))

    async with served(develop(tmp_path, Forgetful)) as server:
        room = "/everthink/inspect/forgetful/one"
        assert await upload(server, room, "/long.bin", b"0123456789" * 2_000_000) == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        writer.write(
            f"GET {room}/files/content?path=/long.bin HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode()
        )
        got = await reader.readexactly(500)
        assert b" 200 " in got[:20]

        # When it is written anew, and then something else, while its reader takes their time
        assert await upload(server, room, "/long.bin", b"short", "&replace=1") == 200
        assert await upload(server, room, "/other.bin") == 200
        async with server.app._loaded.app.agent(Forgetful, "one") as agent:
            await agent.workspace.sweep()

        # Then the connection ends without the chunk that says that this was all
        with contextlib.suppress(ConnectionResetError):
            while some := await reader.read(500):
                got = (got + some)[-1000:]
        assert not got.endswith(b"0\r\n\r\n")
        writer.close()
        assert (await server.http(f"{room}/files/content?path=/long.bin")).body == b"short"
    assert any("is cut off" in record.getMessage() for record in caplog.records)
    assert [record for record in caplog.records if record.exc_info] == []
