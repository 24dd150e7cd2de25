"""The options of a runner: what they grant, and which of them are refused where they are written."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import client_tool
from everthink.errors import InvalidSettings, ToolDefinitionError, ToolError
from everthink.guard.rules import Rules
from everthink.machines.locked import Locked
from everthink.sandbox.port import Limits
from everthink.skill_scripts.reading import Program, read
from everthink.skill_scripts.runner import runner
from everthink.skill_scripts.tree import artifacts, mounted, with_room
from tests.skill_scripts.scripts import add, asset, files, opened, request, text

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": "30"}, "timeout"),
        ({"workspace": "write"}, "read-write"),
        ({"workspace_instance": "/srv"}, "workspace"),
        ({"workspace": "read"}, "does not say which workspace"),
        ({"workspace": "read-write"}, "workspace_instance=self.workspace"),
        ({"network": "example.com"}, "list of hosts"),
        ({"network": []}, "no host"),
        ({"network": ["http://example.com"]}, "not a host"),
        ({"machine": "docker"}, "machine"),
        ({"machine": Locked(), "python": "/usr/bin/python3"}, "its own Python"),
        ({"machine": Locked}, "machine"),
        ({"python": ""}, "python"),
        ({"limits": {"memory": 1}}, "Limits"),
        ({"tools": "add"}, "tools"),
        ({"tools": [client_tool("ask")]}, "runs in the browser"),
    ],
)
def test_an_option_that_is_none_is_refused_where_it_is_written(options: Any, words: str) -> None:
    with pytest.raises((InvalidSettings, ToolDefinitionError), match=words):
        runner(**options)


@pytest.mark.parametrize(
    ("options", "reads", "writes"),
    [
        ({}, False, False),
        ({"workspace": "none"}, False, False),
        ({"workspace_instance": files()}, True, False),
        ({"workspace_instance": files(), "workspace": "none"}, False, False),
        ({"workspace_instance": files(), "workspace": "read"}, True, False),
        ({"workspace_instance": files(), "workspace": "read-write"}, True, True),
    ],
)
def test_a_workspace_is_read_when_nothing_else_is_said(options: Any, reads: bool, writes: bool) -> None:
    rights = runner(**options).rights
    assert (rights.may_read, rights.may_write) == (reads, writes)
    assert rights.on_interrupt == ("report" if writes else "rerun")


def test_hosts_are_those_that_are_named_and_a_place_with_its_port_may_be_near() -> None:
    assert runner().rights.network is None
    assert runner(network=False).rights.network is None
    assert runner(network=True).rights.network == Rules()
    named = runner(network=["api.example.com", "wiki.lan:8080", "[fd00::7]:80"]).rights.network
    assert named == Rules(hosts=["api.example.com"], allow=["wiki.lan:8080", "[fd00::7]:80"])


async def test_a_function_gives_the_tools_of_each_run() -> None:
    asked: list[str] = []

    async def mine() -> Any:
        asked.append("again")
        return {"sum": add}

    async with opened(tools=mine) as made:
        for _ in range(2):
            with pytest.raises(ToolError, match="cannot be read"):
                await made.run(request("a.py", "def run(:"))
    assert asked == ["again", "again"]


async def test_a_script_in_another_language_is_refused() -> None:
    async with opened() as made:
        with pytest.raises(ToolError, match="in no language that is run here"):
            await made.run(request("a.rb", "puts 1"))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def run(input, ctx): ...", Program(has_run=True, takes=2)),
        ("async def run(input): ...", Program(has_run=True, is_async=True, takes=1)),
        ("def run(): ...", Program(has_run=True, takes=0)),
        ("def run(*given): ...", Program(has_run=True, takes=2)),
        ("def run(a, b, c=1): ...", Program(has_run=True, takes=2)),
        ("# def run(input): ...", Program(has_run=False)),
        ("'''\ndef run(input): ...\n'''", Program(has_run=False)),
        ("class A:\n    def run(self): ...", Program(has_run=False)),
        ("def main():\n    def run(x): ...", Program(has_run=False)),
        ("def run(command): ...\nif __name__ == '__main__': run('ls')", Program(has_run=False)),
        ("def run(input, ctx): ...\nif __name__ == '__main__': run({}, {})", Program(has_run=True, takes=2)),
        ("print(1)", Program(has_run=False)),
        ("", Program(has_run=False)),
    ],
)
def test_a_function_is_known_by_the_syntax(source: str, found: Program) -> None:
    assert read("scripts/a.py", source) == found


@pytest.mark.parametrize("source", ["def run(:", "x = '\0'", "(" * 100_000, "\ud800"])
def test_what_is_no_python_is_told(source: str) -> None:
    with pytest.raises(ToolError, match="cannot be read as Python"):
        read("scripts/a.py", source)


def test_a_script_sees_its_own_skill_and_nothing_else() -> None:
    asked = request("a.py", "1", text("references/a.md", "ä"), asset("assets/b.bin", b"\xff"), input={"n": 1})
    found = mounted(asked)
    assert set(found) == {
        "/input.json",
        "/context.json",
        "/skill/SKILL.md",
        "/skill/references/a.md",
        "/skill/assets/b.bin",
        "/skill/scripts/a.py",
    }
    assert found["/skill/assets/b.bin"] == b"\xff"
    assert found["/skill/SKILL.md"].startswith(b"---\nname: release-notes")


def test_bytes_that_are_no_base64_are_refused() -> None:
    broken = asset("assets/b.bin", b"x")
    object.__setattr__(broken, "content", "no base64!")
    with pytest.raises(ToolError, match="no base64"):
        mounted(request("a.py", "1", broken))


def test_a_skill_with_large_files_has_room_up_to_a_bound() -> None:
    limits = with_room(Limits(), {"/a": b"x" * 5_000_000})
    assert (limits.file_bytes, limits.tree_bytes) == (5_000_000, Limits().tree_bytes)
    assert with_room(Limits(), {"/a": b"x" * (20 << 20)}).file_bytes == 16 << 20


def test_of_what_is_left_only_output_is_returned() -> None:
    left = {"/output/b": b"1", "/output/a/c": b"\xff", "/outputs": b"2", "/skill/x": b"3"}
    assert [one["path"] for one in artifacts(left)] == ["/output/a/c", "/output/b"]
    assert [one["path"] for one in artifacts(left, is_relative=True)] == ["a/c", "b"]
