"""The same tools over storage of somebody's own."""

from __future__ import annotations

import asyncio
import posixpath
import re
from pathlib import Path
from typing import Any

import pytest

from everthink import Think
from everthink.clock import EPOCH
from everthink.errors import InvalidSettings, ToolDefinitionError, ToolError
from everthink.file_tools import (
    BashOptions,
    bash,
    create_bash_tool,
    create_read_tool,
    create_workspace_tools,
)
from everthink.sandbox.bash import BashSandbox
from everthink.sandbox.port import Outcome
from everthink.testing.scripted import calls
from everthink.tools.context import ToolContext
from everthink.workspace import DiskFiles, Entry, Workspace
from everthink.workspace.glob import Glob
from tests.file_tools.support import Failed, MakeDesk

pytestmark = pytest.mark.anyio


class Notes:
    """Files in a dict: some methods wait, some do not. It can be neither hashed nor weakly referenced."""

    __slots__ = ("data",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **data: bytes) -> None:
        self.data = {f"/{name}": text for name, text in data.items()}

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nobody compares storage")

    async def stat(self, path: str) -> Entry | None:
        if path in self.data:
            return Entry(path, "file", len(self.data[path]), "", EPOCH, EPOCH)
        is_folder = path == "/" or any(one.startswith(f"{path}/") for one in self.data)
        return Entry(path, "directory", 0, "", EPOCH, EPOCH) if is_folder else None

    def read_file_bytes(self, path: str) -> bytes | None:
        return self.data.get(path)

    async def write_file(self, path: str, text: str) -> None:
        self.data[path] = text.encode()

    async def read_dir(self, path: str, *, limit: int, offset: int) -> list[Entry]:
        top = path.rstrip("/") + "/"
        names = sorted({one[len(top) :].split("/")[0] for one in self.data if one.startswith(top)})
        found = [await self.stat(top + name) for name in names]
        return [entry for entry in found if entry is not None]  # it knows of no pages

    async def glob(self, pattern: str) -> list[Entry]:
        return [Entry("/", "directory", 0, "", EPOCH, EPOCH)] + [
            Entry(path, "file", len(data), "", EPOCH, EPOCH)
            for path, data in sorted(self.data.items())
            if Glob(pattern).matching([path])
        ]

    def rm(self, path: str, *, recursive: bool, force: bool) -> None:
        for one in [one for one in self.data if one == path or (recursive and one.startswith(f"{path}/"))]:
            del self.data[one]


class Shelf(Notes):
    """The same, for scripts, too. One of its files cannot be written."""

    __slots__ = ()

    async def write_file_bytes(self, path: str, data: bytes) -> None:
        if posixpath.basename(path) == "locked":
            raise ToolError("The shelf is locked.")
        if posixpath.basename(path) == "broken":
            raise ZeroDivisionError
        self.data[path] = data

    def mkdir(self, path: str, *, recursive: bool) -> None:
        pass


async def test_plain_objects_serve_all_tools_but_bash(desk: MakeDesk) -> None:
    notes = Notes(a=b"one\ntwo")
    tools = create_workspace_tools(notes, bash=False)
    assert list(tools) == ["read", "write", "edit", "list", "find", "grep", "delete"]
    agent = await desk(include_workspace_tools=False, get_tools=lambda self: tools)
    outputs = await agent.turn(
        calls("read", path="/a"),
        calls("write", path="/b/c", content="three"),
        calls("edit", path="/a", old_string="two", new_string="2"),
        calls("edit", path="/d", old_string="", new_string="new"),
        calls("edit", path="/e", old_string="x", new_string="new"),
        calls("list"),
        calls("find", pattern="**/*"),
        calls("grep", query="T"),
        calls("delete", path="/b", recursive=True),
    )
    assert outputs[0] == {"path": "/a", "content": "1\tone\n2\ttwo", "totalLines": 2}
    assert outputs[1] == {"path": "/b/c", "bytesWritten": 5, "lines": 1}
    assert outputs[2:5] == [
        {"path": "/a", "replaced": True, "lines": 2},
        {"path": "/d", "created": True, "lines": 1},
        {"error": "File not found: /e"},
    ]
    assert outputs[5]["entries"] == ["a (5 B)", "b/", "d (3 B)"]
    assert outputs[6]["files"] == ["/a", "/b/c", "/d"]
    assert outputs[7]["matches"] == ["/b/c:1: three"]
    assert outputs[8:] == [{"deleted": "/b"}]
    assert await agent.call("read", path="/b") == {"error": "File not found: /b"}
    assert notes.data == {"/a": b"one\n2", "/d": b"new"}
    assert not await (await agent.files()).glob("*")


@pytest.mark.slow
async def test_scripts_work_on_plain_objects_and_an_error_stops_nothing_else(desk: MakeDesk) -> None:
    shelf = Shelf(a=b"a", b=b"b", c=b"c")
    shelf.data["/deep/er/d"] = b"d"
    agent = await desk(get_tools=lambda self: [create_bash_tool(shelf)], include_workspace_tools=False)
    output = await agent.call(
        "bash",
        script="cat a deep/er/d; echo x > locked; echo y > broken; echo z > fine; rm b; echo more >> a",
    )
    assert output["stdout"] == "ad"
    assert sorted(output["errors"]) == [
        "/broken was not written: ZeroDivisionError.",
        "/locked was not written: The shelf is locked.",
    ]
    assert output["changedFiles"]["created"] == ["/fine"]
    assert (shelf.data["/a"], shelf.data["/fine"], "/b" in shelf.data) == (b"amore\n", b"z\n", False)


@pytest.mark.slow
async def test_what_changed_on_a_plain_object_meanwhile_stays(desk: MakeDesk) -> None:
    shelf = Shelf(a=b"a", b=b"b")

    class Sandbox:
        async def run(self, job: Any, host: Any) -> Any:
            outcome = await real.run(job, host)
            shelf.data |= {"/a": b"theirs", "/b": b"theirs"}
            return outcome

    from everthink.sandbox.bash import BashSandbox

    real = BashSandbox()
    try:
        tool = create_bash_tool(shelf, sandbox=Sandbox())  # type: ignore[arg-type]
        output = await tool.call({"script": "echo x > a; rm b; echo y > c"}, ToolContext())
    finally:
        await real.aclose()
    assert output["changedFiles"]["created"] == ["/c"]
    assert len(output["errors"]) == 2
    assert shelf.data == {"/a": b"theirs", "/b": b"theirs", "/c": b"y\n"}


async def test_output_is_shown_while_a_script_runs_the_latest_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bash, "SHOWN_EVERY", 0)
    seen: list[Any] = []
    told = asyncio.Event()

    async def show(value: Any) -> None:
        seen.append(value)
        told.set()

    class Slow:
        async def run(self, job: Any, host: Any) -> Outcome:
            for text in ("first\n", "x" * 10_000):
                host.output("stdout", text)
                await told.wait()
                told.clear()
            host.output("stderr", "unseen")
            return Outcome(status="done", exit_code=0, stdout="all of it")

    tool = create_bash_tool(Shelf(), sandbox=Slow())  # type: ignore[arg-type]
    output = await tool.call({"script": "true"}, ToolContext(show=show))
    assert seen == [{"stdout": "first\n", "stderr": ""}, {"stdout": "x" * 4_000, "stderr": ""}]
    assert output["stdout"] == "all of it"


async def test_a_script_goes_on_when_nobody_can_be_shown_its_output(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def show(value: Any) -> None:
        asked.set()
        raise RuntimeError("nobody is there")

    class Talks:
        async def run(self, job: Any, host: Any) -> Outcome:
            host.output("stdout", "text")
            await asked.wait()
            return Outcome(status="done", exit_code=0, stdout="text")

    tool = create_bash_tool(Shelf(), sandbox=Talks())  # type: ignore[arg-type]
    output = await tool.call({"script": "true"}, ToolContext(show=show))
    assert output["stdout"] == "text"
    assert "could not be shown" in caplog.text


def test_storage_that_lacks_a_method_is_refused_when_the_tools_are_made() -> None:
    with pytest.raises(ToolDefinitionError, match=r"Notes cannot serve the tool 'bash'.*bytes, mkdir"):
        create_workspace_tools(Notes())
    with pytest.raises(ToolDefinitionError, match=r"object cannot serve the tool 'read'.*stat"):
        create_read_tool(object())  # type: ignore[arg-type]
    with pytest.raises(ToolDefinitionError, match="Shelf is a class"):
        create_workspace_tools(Shelf)


def test_an_object_of_ones_own_may_be_the_workspace_and_half_of_one_may_not() -> None:
    assert type("Fine", (Think,), {"workspace": Shelf()})
    for other in (Notes(), Workspace, "/srv/files", None, 3):
        with pytest.raises(InvalidSettings, match=re.escape("workspace")):
            type("Wrong", (Think,), {"workspace": other})


async def test_an_object_of_ones_own_is_what_tools_and_code_use(desk: MakeDesk) -> None:
    shelf = Shelf()
    agent = await desk(workspace=shelf, workspace_bash=False)
    await agent.call("write", path="/a", content="x")
    assert shelf.data == {"/a": b"x"}
    assert (await agent.files()) is shelf


async def test_a_real_directory_may_be_the_workspace(desk: MakeDesk, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "files/out").symlink_to(tmp_path / "secret")
    agent = await desk(workspace=Workspace(DiskFiles(tmp_path / "files")), workspace_bash=False)
    await agent.call("write", path="/../a.txt", content="x")
    assert (tmp_path / "files/a.txt").read_text() == "x"
    assert not (tmp_path / "a.txt").exists()
    output = await agent.call("read", path="/out")
    assert isinstance(output, Failed) or "error" in output


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"timeuot": 3}, "timeout"),
        ({"timeout": 0}, "above 0"),
        ({"max_workspace_files": "many"}, "whole number"),
        ({"network": True}, "no network"),
        ("yes", "BashOptions"),
        (None, "workspace_bash"),
    ],
)
def test_slips_in_the_options_of_bash_are_told_when_the_class_is_defined(setting: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        type("Slip", (Think,), {"workspace_bash": setting})


def test_slips_in_names_of_settings_are_told_when_the_class_is_defined() -> None:
    with pytest.raises(InvalidSettings, match="workspace_bash"):
        type("Slip", (Think,), {"workspaceBash": False})
    with pytest.raises(InvalidSettings):
        BashOptions(timeout=-1)


class Careless(Notes):
    """Gives what it happens to have."""

    gives: Any = None

    def stat(self, path: str) -> Any:
        return {"size": 1} if self.gives is None else Entry(path, "file", 1, "text/plain", EPOCH, EPOCH)

    def read_file_bytes(self, path: str) -> Any:
        return self.gives

    def read_dir(self, path: str, *, limit: int, offset: int) -> Any:
        return ["a.txt"]

    def glob(self, pattern: str) -> Any:
        return {"/a.txt": 1}


@pytest.mark.parametrize(
    ("gives", "tool", "input", "told"),
    [
        (None, "list", {"path": "/"}, "Careless.read_dir() gave 'a.txt', a str. It has to give everthink."),
        (
            None,
            "find",
            {"pattern": "**"},
            "Careless.glob() gave {'/a.txt': 1}, a dict. It has to give a list of",
        ),
        (None, "grep", {"query": "x"}, "Careless.glob() gave"),
        (
            None,
            "read",
            {"path": "/a"},
            "Careless.stat() gave {'size': 1}, a dict. It has to give an everthink.",
        ),
        (
            "text",
            "read",
            {"path": "/a"},
            "Careless.read_file_bytes() gave 'text', a str. It has to give bytes",
        ),
        (
            "text",
            "edit",
            {"path": "/a", "old_string": "t", "new_string": "n"},
            "Careless.read_file_bytes() gave",
        ),
    ],
)
async def test_what_a_backend_gives_wrongly_is_named(
    desk: MakeDesk, gives: Any, tool: str, input: dict[str, Any], told: str
) -> None:
    backend = Careless()
    type(backend).gives = gives
    agent = await desk(
        include_workspace_tools=False, get_tools=lambda self: create_workspace_tools(backend, bash=False)
    )
    assert isinstance(await agent.call(tool, **input), Failed)
    assert told in str(agent.shown.output)


def test_a_class_is_no_sandbox() -> None:
    with pytest.raises(InvalidSettings, match=r"sandbox is <class.*Write BashSandbox\(\)"):
        create_bash_tool(sandbox=BashSandbox)  # type: ignore[arg-type]
