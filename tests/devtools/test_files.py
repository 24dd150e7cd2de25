"""The files of an agent, as the page looks at them, brings them, takes them away and puts them back."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from everthink import Think
from everthink.access.permissions import Permission
from everthink.testing import ScriptedModel, calls, says
from everthink.workspace import DiskFiles, MemoryFiles, Workspace, WorkspaceLimits

from ..support.agents import assistant, live
from ..support.server import Served
from .conftest import EVENTS, ROOM, Develop

pytestmark = pytest.mark.anyio

FILES = f"{ROOM}/files"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
PAGE = b"<!doctype html><script>alert(1)</script>"
DRAWING = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'


def writing(*notes: tuple[str, str]) -> type[Think]:
    """An agent that writes one file in each of its turns."""
    turns = [
        step for path, text in notes for step in (calls("write", path=path, content=text), says("Written."))
    ]
    return assistant(ScriptedModel(*turns), include_workspace_tools=True)


async def written(server: Served, cls: type[Think], turns: int) -> list[dict[str, Any]]:
    """Let it have its turns: the changes, newest first."""
    chat = await server.connect(cls)
    for _ in range(turns):
        await chat.until_done(await chat.say("Write"))
    return (await server.http(f"{FILES}/changes")).json["groups"]


async def put(server: Served, path: str, data: bytes, more: str = "", **headers: str) -> Any:
    address = f"{FILES}/upload?path={quote(path)}{more}"
    return await server.http(address, method="POST", body=data, headers=headers)


async def post(server: Served, deed: str, **fields: Any) -> Any:
    return await server.http(f"{FILES}/{deed}", method="POST", body=json.dumps(fields).encode())


async def content(server: Served, path: str, more: str = "") -> Any:
    return await server.http(f"{FILES}/content?path={quote(path)}{more}")


async def names(server: Served, folder: str = "/") -> list[str]:
    return [one["name"] for one in (await server.http(f"{FILES}?path={quote(folder)}")).json["entries"]]


# --- looking


async def test_looking_makes_no_agent(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    for rest in ("", "/changes", "/look?path=/a"):
        assert (await server.http(f"{FILES}{rest}")).json is None
    assert not (await server.http("/everthink/conversations/assistant")).json["conversations"]


async def test_a_file_is_brought_listed_read_and_taken_away(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    brought = await put(server, "/notes/plän.md", "# Plän\n".encode())
    assert (brought.status, brought.json["path"], brought.json["size"]) == (200, "/notes/plän.md", 8)

    assert await names(server) == ["notes"]
    [shown] = (await server.http(f"{FILES}?path=/notes")).json["entries"]
    assert (shown["kind"], shown["media_type"], shown["modified_at"] > 0) == ("file", "text/markdown", True)
    looked = (await server.http(f"{FILES}/look?path={quote('/notes/plän.md')}")).json
    assert (looked["kind"], looked["text"], looked["is_cut"]) == ("text", "# Plän\n", False)

    assert (await post(server, "delete", path="/notes")).status == 200
    assert await names(server) == []
    gone = await content(server, "/notes/plän.md")
    assert (gone.status, "There is no file" in gone.json["error"]) == (404, True)


async def test_a_long_text_is_shown_to_the_end_of_a_line(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    await put(server, "/long.txt", b"line of text\n" * 30_000)
    looked = (await server.http(f"{FILES}/look?path=/long.txt")).json
    assert looked["is_cut"]
    assert len(looked["text"]) < 300_000
    assert looked["text"].endswith("line of text")


@pytest.mark.parametrize(
    ("name", "data", "kind", "content_type", "is_saved"),
    [
        ("a.png", PNG, "image", "image/png", False),
        ("a.html", PNG, "image", "image/png", False),
        ("a.jpg", b"\xff\xd8\xff\xe0" + bytes(8), "image", "image/jpeg", False),
        ("a.gif", b"GIF89a" + bytes(8), "image", "image/gif", False),
        ("a.webp", b"RIFF\0\0\0\0WEBPVP8 ", "image", "image/webp", False),
        ("a.pdf", b"%PDF-1.7\n", "pdf", "application/pdf", False),
        ("a.txt", b"hello", "text", "text/plain; charset=utf-8", False),
        ("empty.bin", b"", "text", "text/plain; charset=utf-8", False),
        ("a.html", PAGE, "text", "text/plain; charset=utf-8", False),
        ("a.png", PAGE, "text", "text/plain; charset=utf-8", False),
        ("a.svg", DRAWING, "text", "text/plain; charset=utf-8", False),
        ("a.js", b"alert(1)", "text", "text/plain; charset=utf-8", False),
        ("a.zip", b"PK\x03\x04\0\0", "binary", "application/octet-stream", True),
        ("a.txt", b"caf\xe9", "binary", "application/octet-stream", True),
        ("cut.txt", b"a" * 4095 + "é".encode(), "text", "text/plain; charset=utf-8", False),
    ],
)
async def test_a_file_is_what_its_bytes_are_and_nothing_in_it_runs(
    develop: Develop, name: str, data: bytes, kind: str, content_type: str, is_saved: bool
) -> None:
    server = await develop(assistant(ScriptedModel()))
    await put(server, f"/{name}", data)
    found = await content(server, f"/{name}")
    assert (found.status, found.body) == (200, data)
    assert found.headers["content-type"] == content_type
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert ("sandbox" in found.headers["content-security-policy"]) == (kind != "pdf")
    word = found.headers["content-disposition"].partition(";")[0]
    assert word == ("attachment" if is_saved else "inline")
    saved = await content(server, f"/{name}", "&download=1")
    assert saved.headers["content-disposition"].startswith("attachment;")
    assert (await server.http(f"{FILES}/look?path=/{name}")).json["kind"] == kind


async def test_an_earlier_version_is_shown_by_its_hash(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    await put(server, "/a.png", PNG)
    await put(server, "/a.png", PAGE, "&replace=1")
    seen = hashlib.sha256(PNG).hexdigest()
    found = await content(server, "/a.png", f"&hash={seen}")
    assert (found.body, found.headers["content-type"]) == (PNG, "image/png")
    assert found.headers["content-disposition"] == "inline; filename*=UTF-8''a.png"
    assert (await content(server, "/a.png", f"&hash={seen[::-1]}")).status == 404


async def test_a_name_cannot_write_a_header(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    name = '/a"; filename=b.html'
    assert (await put(server, name, b"x")).status == 200
    told = (await content(server, name)).headers["content-disposition"]
    assert told == "inline; filename*=UTF-8''a%22%3B%20filename%3Db.html"
    assert (await put(server, "/a\r\nX-Evil: 1", b"x")).status == 400


async def test_looking_is_not_told_to_observers(develop: Develop) -> None:
    cls = assistant(ScriptedModel())
    server = await develop(cls)
    page = await server.connect(EVENTS)
    await put(server, "/a.txt", b"a")
    for rest in ("", "/look?path=/a.txt", "/content?path=/a.txt", "/changes", "/diff?first=1&last=9"):
        assert (await server.http(f"{FILES}{rest}")).status == 200
    await post(server, "delete", path="/a.txt")
    await page.until(lambda: any(event["type"] == "workspace:rm" for event in page.frames))
    told = [event["type"] for event in page.frames if event["type"].startswith("workspace:")]
    assert told == ["workspace:write", "workspace:rm"]


# --- bringing


async def test_what_is_there_is_not_replaced_unless_one_says_so(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    await put(server, "/a.txt", b"first")
    refused = await put(server, "/a.txt", b"second")
    assert (refused.status, "already" in refused.json["error"]) == (409, True)
    assert (await content(server, "/a.txt")).body == b"first"
    assert (await put(server, "/a.txt", b"second", "&replace=1")).status == 200
    assert (await content(server, "/a.txt")).body == b"second"


async def test_a_file_is_brought_within_the_bounds_of_the_workspace(develop: Develop) -> None:
    workspace = Workspace(limits=WorkspaceLimits(file_bytes=1000))
    server = await develop(assistant(ScriptedModel(), workspace=workspace))
    assert (await put(server, "/a.bin", bytes(1000))).status == 200
    assert (await server.http(FILES)).json["upload_bytes"] == 1000
    told = await put(server, "/b.bin", bytes(1001))
    assert (told.status, "1,001 bytes, and the page takes 1,000" in told.json["error"]) == (413, True)
    untold = await put(server, "/b.bin", b"", **{"Transfer-Encoding": "chunked", "Content-Length": ""})
    assert untold.status in (400, 413)
    assert await names(server) == ["a.bin"]


@pytest.mark.parametrize("path", ["", "/", "/..", "/a\\b", "/" + "x" * 300])
async def test_what_is_no_path_for_a_file_is_refused(develop: Develop, path: str) -> None:
    server = await develop(assistant(ScriptedModel()))
    assert (await put(server, path, b"x")).status == 400
    assert await names(server) == []


async def test_who_may_only_look_changes_nothing(develop: Develop) -> None:
    def permissions(identity: Any, action: str) -> Any:
        return action == "inspect" or frozenset[Permission]()

    server = await develop(assistant(ScriptedModel()), authorize=permissions)
    app = server.app._loaded.app
    await live(app.agent(app.classes[0], "room"))
    refused = [await put(server, "/a.txt", b"x"), await post(server, "delete", path="/a.txt")]
    refused += [await post(server, "restore", seq="0"), await post(server, "undo", turn="t")]
    assert {one.status for one in refused} == {403}
    assert await names(server) == []


async def test_another_site_neither_looks_nor_changes(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    await put(server, "/a.txt", b"secret")
    evil = {"Origin": "http://evil.example"}
    for rest in ("", "/look?path=/a.txt", "/content?path=/a.txt", "/changes"):
        assert (await server.http(f"{FILES}{rest}", headers=evil)).status == 403
    assert (await put(server, "/b.txt", b"x", **evil)).status == 403
    assert await names(server) == ["a.txt"]


# --- what changed


async def test_changes_are_told_by_turns_with_what_they_came_to(develop: Develop) -> None:
    cls = writing(("/plan.md", "one\ntwo\n"), ("/plan.md", "one\nthree\n"))
    server = await develop(cls)
    newest, oldest = await written(server, cls, 2)
    turns = [turn["id"] for turn in (await server.http(ROOM)).json["turns"]]
    assert [newest["turn"], oldest["turn"]] == turns
    assert newest["paths"] == [{"path": "/plan.md", "kind": "file", "change": "update"}]

    asked = f"{FILES}/diff?first={newest['first']}&last={newest['last']}"
    [shown] = (await server.http(asked)).json["files"]
    assert (shown["path"], shown["change"], shown["why"]) == ("/plan.md", "update", None)
    assert "-two\n+three" in shown["diff"]
    [first] = (await server.http(f"{FILES}/diff?first=1&last=1")).json["files"]
    assert (first["change"], first["diff"]) == ("create", "+one\n+two")


async def test_what_is_not_text_is_not_compared(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    await put(server, "/a.png", PNG)
    await put(server, "/b.txt", b"x\n" * 600_000)
    for first, why in ((1, "no text"), (2, "too long")):
        [shown] = (await server.http(f"{FILES}/diff?first={first}&last={first}")).json["files"]
        assert (shown["diff"], why in shown["why"]) == (None, True)
    assert (await server.http(f"{FILES}/diff?first=x&last=1")).status == 400


async def test_a_turn_is_taken_back_and_that_is_taken_back(develop: Develop) -> None:
    cls = writing(("/plan.md", "one"), ("/other.md", "two"))
    server = await develop(cls)
    _, oldest = await written(server, cls, 2)

    # The first turn alone
    alone = (await post(server, "undo", turn=oldest["turn"])).json
    assert (alone["paths"], await names(server)) == (1, ["other.md"])
    # … is a change, and undone like one
    assert (await post(server, "restore", seq=str(alone["before"]))).status == 200
    assert await names(server) == ["other.md", "plan.md"]
    # To before the first turn, with all that came later
    back = (await post(server, "restore", seq=str(oldest["first"] - 1))).json
    assert (back["paths"], await names(server)) == (2, [])
    assert (await post(server, "restore", seq=str(back["before"]))).status == 200
    assert await names(server) == ["other.md", "plan.md"]


async def test_a_turn_whose_file_was_changed_since_is_not_taken_back_alone(develop: Develop) -> None:
    cls = writing(("/plan.md", "one"), ("/plan.md", "two"))
    server = await develop(cls)
    _, oldest = await written(server, cls, 2)
    refused = await post(server, "undo", turn=oldest["turn"])
    assert (refused.status, "changed again" in refused.json["error"]) == (409, True)
    assert (await content(server, "/plan.md")).body == b"two"


@pytest.mark.parametrize(
    ("deed", "fields"),
    [
        ("restore", {"seq": "99"}),
        ("restore", {"seq": "-1"}),
        ("restore", {}),
        ("delete", {}),
        ("undo", {}),
    ],
)
async def test_what_cannot_be_done_is_refused_in_words(
    develop: Develop, deed: str, fields: dict[str, str]
) -> None:
    server = await develop(assistant(ScriptedModel()))
    await put(server, "/a.txt", b"x")
    refused = await post(server, deed, **fields)
    assert (refused.status, "Nothing was changed" in refused.json["error"]) == (400, True)
    assert (await post(server, "delete", path="/")).status == 403
    assert (await post(server, "burn", path="/a.txt")).status == 404
    assert (await server.http(f"{FILES}/burn")).status == 404
    assert await names(server) == ["a.txt"]


async def test_files_that_remember_nothing_have_no_changes(develop: Develop, tmp_path: Any) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    server = await develop(assistant(ScriptedModel(), workspace=Workspace(DiskFiles(place))))
    await put(server, "/a.txt", b"x")
    assert (place / "a.txt").read_bytes() == b"x"
    assert (await server.http(f"{FILES}/changes")).json is None
    refused = await post(server, "restore", seq="0")
    assert (refused.status, "remembers earlier versions" in refused.json["error"]) == (400, True)


async def test_a_class_may_have_files_of_its_own(develop: Develop) -> None:
    workspace = Workspace(MemoryFiles({"/a.txt": "x"}))
    server = await develop(assistant(ScriptedModel(), workspace=workspace))
    app = server.app._loaded.app
    await live(app.agent(app.classes[0], "room"))
    assert await names(server) == ["a.txt"]


async def test_files_in_an_object_of_somebody_elses_are_not_shown(develop: Develop) -> None:
    verbs = ["stat", "read_file_bytes", "write_file", "write_file_bytes", "read_dir", "glob", "mkdir", "rm"]
    theirs = SimpleNamespace(**dict.fromkeys(verbs, print))
    server = await develop(assistant(ScriptedModel(), workspace=theirs))
    refused = await put(server, "/a.txt", b"x")
    assert (refused.status, "which the page cannot show" in refused.json["error"]) == (404, True)
