"""What nobody should ask for: each gets an answer in words, and nothing is half-written.

The rest is where it belongs: paths and circles of links in test_reading.py, edits that match twice or not at
all and two of them in one step in test_writing.py, patterns that take for ever in test_looking.py, uploads in
tests/devtools/test_files.py, machines without a lock and servers of root in tests/sandbox.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everthink.errors import WorkspaceError
from everthink.testing.scripted import calls
from everthink.workspace import MemoryFiles, Workspace, WorkspaceLimits
from tests.conftest import OpenApp
from tests.file_tools.support import Failed, MakeDesk, desk_maker

pytestmark = pytest.mark.anyio

BAD = ["/a\0b", "/a\\b", "/" + "x" * 5_000, "/" + "x" * 300, "/a" * 101, "/\ud800", "/a\nb", "/\x7f"]


@pytest.fixture
def desk(open_app: OpenApp) -> MakeDesk:
    return desk_maker(open_app)


@pytest.mark.parametrize("path", BAD)
@pytest.mark.slow
async def test_what_is_no_path_is_refused_where_one_looks_for_something(desk: MakeDesk, path: str) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/kept", "kept")
    found, searched, ran = await agent.turn(
        calls("find", pattern=f"{path}/**"),
        calls("grep", query="x", include=f"{path}/*"),
        calls("bash", script="echo changed > /kept", cwd=path),
    )
    for looked in (found, searched):  # a pattern that no path can have finds nothing, or is none
        assert (
            isinstance(looked, Failed)
            or "error" in looked
            or not (looked.get("files") or looked.get("matches"))
        )
    assert isinstance(ran, Failed)
    assert len(str([found, searched, ran])) < 3_000
    assert await (await agent.files()).read_file("/kept") == "kept"


@pytest.mark.slow
async def test_names_that_differ_in_case_alone_are_two_files(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.turn(
        calls("write", path="/Plan.md", content="one"),
        calls("write", path="/plan.md", content="two"),
        calls("bash", script="cat /Plan.md /plan.md > /both"),
    )
    files = await agent.files()
    assert [await files.read_file(path) for path in ("/Plan.md", "/plan.md", "/both")] == [
        "one",
        "two",
        "onetwo",
    ]


@pytest.mark.slow
async def test_a_name_spelled_in_two_ways_is_one_file_also_for_scripts(desk: MakeDesk) -> None:
    agent = await desk()
    await agent.turn(
        calls("write", path="/cafe\u0301.txt", content="one\n"),
        calls("bash", script="printf 'two\\n' >> '/caf\u00e9.txt'"),
        calls("bash", script="printf 'three\\n' >> '/cafe\u0301.txt'"),
    )
    files = await agent.files()
    assert [entry.path for entry in await files.glob("/**")] == ["/caf\u00e9.txt"]
    assert (await files.read_file("/caf\u00e9.txt") or "").startswith("one\ntwo\n")


@pytest.mark.slow
async def test_links_in_a_circle_and_into_nowhere_are_told_by_every_tool(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    await files.symlink("/b", "/a")
    await files.symlink("/a", "/b")
    await files.symlink("/nothing", "/lost")
    outputs = await agent.turn(
        calls("read", path="/a"),
        calls("write", path="/a", content="x"),
        calls("edit", path="/a", old_string="x", new_string="y"),
        calls("read", path="/lost"),
    )
    assert [str(one).partition(":")[0] for one in outputs[:3]] == ["ELOOP"] * 3
    assert outputs[3] == {"error": "File not found: /lost"}
    assert (await agent.call("bash", script="ls /"))["exitCode"] == 0
    assert await files.readlink("/a") == "/b"


@pytest.mark.parametrize("kind", ["rows", "memory"])
async def test_a_stream_of_two_gigabytes_ends_at_the_limit_and_leaves_nothing(
    desk: MakeDesk, kind: str
) -> None:
    # Given somebody who sends two gigabytes to a workspace whose files may have four megabytes
    limits = WorkspaceLimits(file_bytes=4 << 20)
    agent = await desk(workspace=Workspace(MemoryFiles() if kind == "memory" else None, limits=limits))
    files = await agent.files()
    sent = 0

    async def stream() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(2048):
            sent += 1 << 20
            yield bytes(1 << 20)

    # When it is written
    tracemalloc.start()
    try:
        with pytest.raises(WorkspaceError, match="file_bytes") as told:
            await files.write_file_stream("/huge", stream())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # Then it ends there: little was taken, less was held, nothing is kept
    assert told.value.code == "EFBIG"
    assert sent <= 6 << 20
    assert peak < 32 << 20
    assert await files.glob("**") == []


@pytest.mark.slow
async def test_a_full_workspace_refuses_every_way_to_fill_it_and_can_be_emptied(desk: MakeDesk) -> None:
    agent = await desk(workspace=Workspace(limits=WorkspaceLimits(files_bytes=100, entries=4)))
    await agent.call("write", path="/a", content="x" * 90)
    outputs = await agent.turn(
        calls("write", path="/b", content="x" * 20),
        calls("edit", path="/a", old_string="x" * 90, new_string="x" * 120),
        calls("edit", path="/b", old_string="", new_string="x" * 20),
        calls("bash", script="head -c 50 /dev/zero | tr '\\0' y > /c; echo small > /d"),
        calls("write", path="/1/2/3/4/5", content=""),
    )
    assert [isinstance(one, Failed) and one.split(":")[0] for one in outputs] == [
        "EDQUOT", "EDQUOT", "EDQUOT", False, "EDQUOT",
    ]  # fmt: skip
    assert any("files_bytes" in line for line in outputs[3]["errors"])
    files = await agent.files()
    assert await files.read_file("/a") == "x" * 90
    assert not await files.exists("/1")
    assert await agent.call("delete", path="/a") == {"deleted": "/a"}
    assert (await agent.call("write", path="/b", content="x" * 20))["bytesWritten"] == 20


@pytest.mark.parametrize("name", ["read", "write", "edit", "list", "find", "grep", "delete", "bash"])
@pytest.mark.parametrize("given", [{}, {"path": 7}, {"path": None, "extra": 1}, {"query": []}])
async def test_input_that_is_none_is_told_before_anything_is_done(
    desk: MakeDesk, name: str, given: dict[str, Any]
) -> None:
    agent = await desk()
    if name == "list" and not given:
        return  # lists the root
    output = await agent.call(name, **given)
    assert isinstance(output, Failed)
    assert name in output or "path" in output or "input" in output.lower()
    assert await (await agent.files()).glob("**") == []


async def test_a_name_that_a_real_disk_cannot_have_is_refused_there_in_words(
    desk: MakeDesk, tmp_path: Path
) -> None:
    from everthink.workspace import DiskFiles

    (tmp_path / "d").mkdir()
    agent = await desk(workspace=Workspace(DiskFiles(tmp_path / "d")))
    for path in ("/" + "é" * 130, "/a/b\0", "/.~everthink-x"):
        output = await agent.call("write", path=path, content="x")
        assert isinstance(output, Failed), path
    assert list((tmp_path / "d").iterdir()) == []
