"""`read`: texts by lines; pictures and PDFs as the model sees them, and goes on seeing them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from everthink.file_tools import reading
from everthink.file_tools.reading import LARGEST_SHOWN, lines_of
from everthink.media_types import sniffed
from everthink.messages import Message
from everthink.models.port import FilePart, TextPart
from everthink.prompt import views
from everthink.testing.scripted import calls
from everthink.workspace import DiskFiles, Workspace
from tests.conftest import OpenApp
from tests.file_tools.support import PNG, Desk, Failed, MakeDesk, desk_maker, results_in
from tests.support.turns import Database, home_of

pytestmark = pytest.mark.anyio

PDF = b"%PDF-1.7\n" + b"\0" * 16


@pytest.mark.memory_case(333)
async def test_lines_have_their_numbers_and_the_model_reads_just_these(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/a.txt", "one\ntwo\n")
    assert await agent.call("read", path="/a.txt") == {
        "path": "/a.txt",
        "content": "1\tone\n2\ttwo\n3\t",
        "totalLines": 3,
    }
    assert agent.shown.output == "1\tone\n2\ttwo\n3\t"


@pytest.mark.memory_case(334)
async def test_what_is_not_there_or_is_a_folder_is_an_error_to_read(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).mkdir("/folder")
    assert await agent.call("read", path="/nothing") == {"error": "File not found: /nothing"}
    assert agent.shown.output == "Error: File not found: /nothing"
    assert "is a directory" in (await agent.call("read", path="/folder"))["error"]


@pytest.mark.memory_case(335)
async def test_a_range_of_lines_says_from_where_to_where(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/a.txt", "\n".join(f"line {n}" for n in range(1, 11)))
    some = await agent.call("read", path="/a.txt", offset=3, limit=2)
    assert some == {
        "path": "/a.txt",
        "content": "3\tline 3\n4\tline 4",
        "totalLines": 10,
        "fromLine": 3,
        "toLine": 4,
    }
    past = await agent.call("read", path="/a.txt", offset=99)
    assert (past["content"], past["totalLines"]) == ("", 10)
    assert "offset" in await agent.call("read", path="/a.txt", offset=0)


async def test_long_lines_and_many_lines_are_cut_with_a_word_about_it(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file("/wide.txt", "x" * 2_500)
    await files.write_file("/long.txt", "\n".join(str(n) for n in range(3_000)))
    wide = (await agent.call("read", path="/wide.txt"))["content"]
    assert wide.startswith("1\t" + "x" * 2_000 + "…")
    assert "500 more" in wide
    assert len(wide) < 2_100
    long = (await agent.call("read", path="/long.txt"))["content"].split("\n")
    assert len(long) == 2_001
    assert "1000 more lines" in long[-1]
    assert "offset 2001" in long[-1]
    rest = (await agent.call("read", path="/long.txt", offset=2_001))["content"].split("\n")
    assert (rest[0], rest[-1]) == ("2001\t2000", "3000\t2999")


@pytest.mark.memory_case(336, 337)
async def test_a_picture_is_stored_without_its_bytes_and_shown_with_them(
    desk: MakeDesk, tmp_path: Path
) -> None:
    agent = await desk()
    await (await agent.files()).write_file_bytes("/a.png", PNG)
    output = await agent.call("read", path="/a.png")
    assert {name: value for name, value in output.items() if name != "hash"} == {
        "kind": "image",
        "path": "/a.png",
        "name": "a.png",
        "mediaType": "image/png",
        "sizeBytes": 32,
    }
    note, picture = agent.shown.content or []
    assert note == TextPart("/a.png (image/png, 32 B)")
    assert picture == FilePart(f"data:image/png;base64,{base64.b64encode(PNG).decode()}", "image/png", None)
    kept = str(Database(tmp_path).chunks()) + str(Database(tmp_path).messages())
    assert base64.b64encode(PNG).decode()[:24] not in kept


@pytest.mark.memory_case(339)
async def test_a_pdf_is_shown_as_a_file_with_its_name(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file_bytes("/docs/a.pdf", PDF)
    output = await agent.call("read", path="/docs/a.pdf")
    assert (output["kind"], output["mediaType"], output["sizeBytes"]) == ("file", "application/pdf", 25)
    note, file = agent.shown.content or []
    assert note == TextPart("/docs/a.pdf (application/pdf, 25 B)")
    assert isinstance(file, FilePart)
    assert (file.media_type, file.filename) == ("application/pdf", "a.pdf")


@pytest.mark.memory_case(338)
@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF87a..", "image/gif"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF1234WEBPVP8 ", "image/webp"),
        (PDF, "application/pdf"),
        (b'<?xml version="1.0"?><svg>', "image/svg+xml"),
        (b"", "text/plain"),
        ("grün".encode(), "text/plain"),
        (b"a\0b", "application/octet-stream"),
        (bytes(range(128, 255)), "application/octet-stream"),
    ],
)
async def test_a_file_of_no_known_kind_is_told_by_its_first_bytes(
    desk: MakeDesk, data: bytes, media_type: str
) -> None:
    assert sniffed(data) == media_type
    agent = await desk()
    await (await agent.files()).write_file_bytes("/a", data, "application/octet-stream")
    output = await agent.call("read", path="/a")
    assert output.get("mediaType", "text/plain") == media_type


@pytest.mark.memory_case(340)
async def test_what_nobody_can_read_is_named_and_not_shown(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file_bytes("/a.bin", b"\0\1\2")
    output = await agent.call("read", path="/a.bin")
    assert (output["kind"], output["unsupported"], "content" in output) == ("binary", True, False)
    assert agent.shown.output == output


@pytest.mark.parametrize(
    ("path", "data", "media_type"),
    [("/a.txt", PNG, "image/png"), ("/a.png", b"\xff\xd8\xff\xe0\0", "image/jpeg")],
)
async def test_a_file_is_what_its_bytes_are_not_what_its_name_says(
    desk: MakeDesk, path: str, data: bytes, media_type: str
) -> None:
    agent = await desk()
    await (await agent.files()).write_file_bytes(path, data)
    assert (await agent.call("read", path=path))["mediaType"] == media_type


async def test_a_text_that_is_called_a_picture_is_read_as_a_text(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/a.png", "no picture")
    assert (await agent.call("read", path="/a.png"))["content"] == "1\tno picture"


async def test_pictures_that_models_refuse_are_not_sent_to_them(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file("/a.svg", "<svg><circle/></svg>")
    await files.write_file_bytes("/a.bmp", b"BM\0\0")
    assert (await agent.call("read", path="/a.svg"))["kind"] == "image"
    assert (agent.shown.content, agent.shown.output) == (
        None,
        "/a.svg (image/svg+xml, 20 B)\n<svg><circle/></svg>",
    )
    await agent.call("read", path="/a.bmp")
    assert agent.shown.content is None
    assert "cannot be shown" in agent.shown.output


async def test_a_picture_that_is_too_large_is_an_error_with_both_sizes(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file_bytes("/a.png", PNG + b"\0" * LARGEST_SHOWN)
    await agent.call("read", path="/a.png")
    assert agent.shown.content is None
    assert agent.shown.output.startswith("Error: /a.png has 3.5 MB")


async def test_the_picture_that_was_seen_stays_when_the_file_changes_and_after_a_restart(
    open_app: OpenApp, desk: MakeDesk
) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file_bytes("/a.png", PNG)
    await agent.call("read", path="/a.png")
    seen = agent.shown.content
    await files.write_file_bytes("/a.png", PNG + b"another")
    await agent.turn()
    assert results_in(agent.model.last_request)[0].content == seen
    await files.rm("/a.png")
    await agent.app.close()

    again = await desk_maker(open_app)()
    await again.turn()
    assert results_in(again.model.last_request)[0].content == seen


async def test_where_nothing_old_is_kept_the_file_is_shown_as_it_is_now(
    desk: MakeDesk, open_app: OpenApp, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    on_disk = Workspace(DiskFiles(tmp_path / "files"))
    agent = await desk(workspace=on_disk)
    for name in ("same", "other", "gone", "text"):
        (tmp_path / "files" / f"{name}.png").write_bytes(PNG)
    await agent.turn(*(calls("read", path=f"/{name}.png") for name in ("same", "other", "gone", "text")))
    (tmp_path / "files/other.png").write_bytes(PNG + b"another")
    (tmp_path / "files/gone.png").unlink()
    (tmp_path / "files/text.png").write_bytes(b"text")
    await agent.app.close()

    again = await desk_maker(open_app)(workspace=on_disk)
    await again.turn()
    same, other, gone, text = results_in(again.model.last_request)
    assert _note(same) == "/same.png (image/png, 32 B)"
    assert _note(other) == "/other.png (image/png, 39 B, as it is now)"
    assert gone.output == "Error: /gone.png is not there any more."
    assert text.output == "Error: /text.png is something else now."


def _note(part: Any) -> str:
    return part.content[0].text


async def test_links_are_read_through_and_circles_of_them_are_told(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.write_file("/real.txt", "here")
    await files.symlink("/real.txt", "/link")
    await files.symlink("/b", "/a")
    await files.symlink("/a", "/b")
    assert (await agent.call("read", path="/link"))["content"] == "1\there"
    circle = await agent.call("read", path="/a")
    assert isinstance(circle, Failed)
    assert circle.startswith("ELOOP")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/a\0b", "EINVAL"),
        ("/a\\b", "EINVAL"),
        ("/" + "x" * 5_000, "ENAMETOOLONG"),
        ("/" + "x" * 300, "ENAMETOOLONG"),
        ("/a" * 101, "ELOOP"),
    ],
)
async def test_what_is_no_path_is_refused_by_every_tool(desk: MakeDesk, path: str, code: str) -> None:
    agent = await desk(workspace_bash=False)
    outputs = await agent.turn(
        calls("read", path=path),
        calls("write", path=path, content="x"),
        calls("edit", path=path, old_string="", new_string="x"),
        calls("list", path=path),
        calls("delete", path=path),
    )
    assert [isinstance(one, Failed) and one.split(":")[0] for one in outputs] == [code] * 5
    assert await (await agent.files()).glob("**/*") == []


async def test_paths_stop_at_the_root_and_have_one_spelling(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.call("write", path="../../etc/passwd", content="mine")
    await agent.call("write", path="/cafe\u0301.txt", content="decomposed")
    assert (await agent.call("read", path="/etc/passwd"))["content"] == "1\tmine"
    assert (await agent.call("read", path="/caf\u00e9.txt"))["content"] == "1\tdecomposed"
    found = await agent.call("find", pattern="**/*")
    assert found["files"] == ["/caf\u00e9.txt", "/etc/", "/etc/passwd"]


async def test_many_pictures_are_not_kept_in_memory_between_turns_and_stay_what_was_seen(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a model that has seen more pictures than are kept along
    monkeypatch.setattr(views, "MOST_BYTES", 400)
    agent = await desk()
    files = await agent.files()
    pictures = [PNG + bytes([n]) * 100 for n in range(3)]
    for n, data in enumerate(pictures):
        await files.write_file_bytes(f"/{n}.png", data)
    home = await home_of(agent.app, agent.cls)
    held: list[int] = []
    for n in range(3):
        await agent.call("read", path=f"/{n}.png")
        await files.write_file_bytes(f"/{n}.png", b"something else")
        held.append(len(home.chat.host.views._known or ()))
    assert max(held) < 3

    # When it is asked once more
    await agent.turn()

    # Then it sees all of them as they were
    seen = [
        part.url
        for result in results_in(agent.model.last_request)
        for part in result.content or []
        if isinstance(part, FilePart)
    ]
    assert seen == [f"data:image/png;base64,{base64.b64encode(data).decode()}" for data in pictures]
    assert not home.chat.host.views._known


async def read_before(agent: Desk, output: Any) -> None:
    """A conversation in which something was read, followed by so much that it is an older message."""
    part = {"type": "tool-read", "toolCallId": "c", "state": "output-available", "input": {"path": "/a"}}
    ada = agent.app.agent(agent.cls)
    await ada.add_messages([Message("r", "assistant", [{**part, "output": output}])])
    await ada.add_messages([Message(f"m{n}", "user", [{"type": "text", "text": "hm"}]) for n in range(6)])


@pytest.mark.case(200)
@pytest.mark.memory_case(209)
async def test_a_text_that_was_read_long_ago_and_is_shown_shortened_is_shown_as_text(desk: MakeDesk) -> None:
    agent = await desk()
    await read_before(agent, {"path": "/a", "content": "1\tword\n" * 500, "totalLines": 500})
    await agent.turn()
    assert isinstance(agent.shown.output, str)
    assert agent.shown.output.startswith("1\tword\n1\tword")
    assert len(agent.shown.output) < 1000


@pytest.mark.case(201)
@pytest.mark.memory_case(210)
async def test_a_text_as_an_older_release_kept_it_is_shown_as_text(desk: MakeDesk) -> None:
    agent = await desk()
    await read_before(agent, "1\tjust a text")
    await agent.turn()
    assert agent.shown.output == "1\tjust a text"


@pytest.mark.case(202)
@pytest.mark.memory_case(211)
async def test_a_picture_that_was_read_is_shown_with_its_bytes_by_the_next_process(
    desk: MakeDesk, tmp_path: Path
) -> None:
    # Given a process in which a picture was read
    store = f"sqlite:///{tmp_path}/pictures.db"
    agent = await desk(store=store)
    await (await agent.files()).write_file_bytes("/a.png", PNG)
    await agent.call("read", path="/a.png")
    await (await agent.files()).write_file_bytes("/a.png", b"something else")
    await agent.app.close()

    # When the next one is asked
    again = await desk(store=store)
    await again.turn()

    # Then its model sees the picture that was seen
    _, picture = again.shown.content or []
    assert picture == FilePart(f"data:image/png;base64,{base64.b64encode(PNG).decode()}", "image/png", None)


async def test_lines_behind_the_last_one_are_told_to_the_model(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/plan.md", "one\ntwo")
    output = await agent.call("read", path="/plan.md", offset=9)
    assert (output["content"], output["totalLines"]) == ("", 2)
    assert agent.shown.output == "[/plan.md has 2 lines: none from line 9 on]"


async def test_a_text_that_is_too_long_to_be_held_is_read_as_any_other(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a text with long lines, none, and characters of several bytes, and pieces that cut all of them
    text = "\n".join(["é" * 3, "", "x" * 2_100, "𝄞" * 2_001, "a\tb", *map(str, range(30)), ""])
    data, agent = text.encode(), await desk()
    await (await agent.files()).write_file("/a.txt", text)
    monkeypatch.setattr(reading, "LONG", 10)
    monkeypatch.setattr(reading, "PIECE", 7)
    # Then each part of it is the one that is read at once
    for given in ({}, {"offset": 3}, {"offset": 4, "limit": 3}, {"limit": 2}, {"offset": 99}, {"offset": 36}):
        read = await agent.call("read", path="/a.txt", **given)
        assert read == lines_of("/a.txt", data, given.get("offset"), given.get("limit")), given


async def test_of_a_long_file_that_is_no_text_only_the_beginning_is_read(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file_bytes("/a.bin", b"\0" * (reading.LONG + 1))
    told = await agent.call("read", path="/a.bin")
    assert (told["kind"], told["sizeBytes"]) == ("binary", reading.LONG + 1)
