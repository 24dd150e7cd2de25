"""The bridge of a run asks for every right by itself: forged names bring a refusal, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import ToolContext, tool
from everthink.errors import ToolError, WorkspaceError
from everthink.sandbox.port import HostRefused
from everthink.skill_scripts.bash import Commands
from everthink.skill_scripts.bridge import Bridge
from everthink.skill_scripts.rights import Permission, Rights
from everthink.tools.collect import as_tools
from tests.skill_scripts.scripts import add, files

pytestmark = pytest.mark.anyio


def bridge(*tools: Any, context: ToolContext | None = None, **options: Any) -> Bridge:
    rights = Rights.of(**{"workspace": None, "files": None, "network": False, "tools": None, **options})
    return Bridge(rights, as_tools(tools), context)


async def refused(made: Bridge, name: str, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(HostRefused) as error:
        await made.call(name, args, kwargs)
    return str(error.value)


NAMES = {
    "read_file": ("/a",),
    "list_files": (),
    "glob": ("**",),
    "stat": ("/a",),
    "write_file": ("/a", "x"),
    "fetch": ("http://example.com/",),
    "tool": ("add", {"a": 1, "b": 2}),
}


@pytest.mark.parametrize("verb", NAMES)
async def test_without_rights_everything_is_refused_under_every_name(verb: str) -> None:
    made = bridge()
    for name, given in (
        ("bridge.call", (verb, *NAMES[verb])),
        (f"workspace.{verb}", NAMES[verb]),
        (verb, NAMES[verb]),
    ):
        assert "not available" in await refused(made, name, *given)
    assert "not available" in await refused(made, f"tools.{verb}", {})


@pytest.mark.parametrize(
    "name",
    [
        "__class__",
        "call",
        "output",
        "written",
        "_rights",
        "_verbs",
        "",
        "bridge.call",
        "eval",
        "tools",
        "os.system",
    ],
)
async def test_a_name_that_is_none_reaches_nothing(name: str) -> None:
    made = bridge(add, workspace="read-write", files=files(a="x"), tools=[add])
    assert await refused(made, name)
    assert await refused(made, "bridge.call", name)
    assert await refused(made, f"workspace.{name}", "/a")
    assert "Tool not available" in await refused(made, "bridge.call", "tool", name)


@pytest.mark.parametrize("name", [None, 5, [], {"name": "add"}, True])
async def test_the_name_of_a_tool_is_a_text(name: Any) -> None:
    assert "Tool not available" in await refused(bridge(add), "bridge.call", "tool", name)


@pytest.mark.parametrize(("workspace", "reads"), [("none", False), ("read", True), (None, True)])
async def test_only_who_may_write_writes(workspace: Permission | None, reads: bool) -> None:
    place = files(a="x")
    made = bridge(workspace=workspace, files=place)
    words = await refused(made, "bridge.call", "write_file", "/a", "gone")
    assert ("write access is not available" in words) is reads
    assert await place.read_file("/a") == "x"


@pytest.mark.parametrize("given", [(None,), (5,), (["/a"],), ({"path": "/a"},), (), ("/a", "/b")])
async def test_a_path_is_a_text(given: tuple[Any, ...]) -> None:
    assert await refused(bridge(files=files(a="x")), "bridge.call", "read_file", *given)


async def test_a_path_that_the_workspace_does_not_take_is_told_in_its_words() -> None:
    assert "is no path" in await refused(bridge(files=files(a="x")), "bridge.call", "read_file", "a\\b")
    assert await bridge(files=files(a="x")).call("bridge.call", ("read_file", "../../a"), {}) == "x"


async def test_storage_of_somebodys_own_that_breaks_says_nothing_of_itself() -> None:
    class Broken:
        async def stat(self, path: str) -> Any:
            raise RuntimeError("postgres://user:secret@host")

        read_file = read_dir = glob = stat

    words = await refused(bridge(files=Broken()), "bridge.call", "read_file", "/a")
    assert words == "The workspace failed."

    class Full(Broken):
        async def stat(self, path: str) -> Any:
            raise WorkspaceError("There is no room.", code="EDQUOT")

    assert "no room" in await refused(bridge(files=Full()), "bridge.call", "stat", "/a")


async def test_the_input_of_a_tool_is_checked_as_that_of_a_model() -> None:
    made = bridge(add)
    assert "does not fit" in await refused(made, "bridge.call", "tool", "add", {"a": "x", "b": 1})
    assert "does not fit" in await refused(made, "bridge.call", "tool", "add", {"a": 1, "b": 1, "c": 1})
    assert await refused(made, "bridge.call", "tool", "add", [1, 2])
    assert await made.call("tools.add", (), {"a": 1, "b": 2}) == 3


async def test_a_tool_that_a_person_has_to_agree_to_is_not_run() -> None:
    ran: list[int] = []

    @tool(needs_approval=lambda amount: amount > 100)
    def refund(amount: int) -> str:
        """Refund."""
        ran.append(amount)
        return "done"

    made = bridge(refund)
    assert "A person has to agree" in await refused(made, "bridge.call", "tool", "refund", {"amount": 101})
    assert await made.call("bridge.call", ("tool", "refund", {"amount": 5}), {}) == "done"
    assert ran == [5]


async def test_a_tool_that_fails_is_told_in_its_words_and_one_that_breaks_too_without_secrets() -> None:
    @tool
    def fails() -> str:
        """Fail."""
        raise ToolError("There is no such city.")

    @tool
    def breaks() -> str:
        """Break."""
        raise RuntimeError("Authorization: Bearer abcdefghijklmnopqrstuvwxyz0123456789")

    made = bridge(fails, breaks)
    assert await refused(made, "tools.fails") == "There is no such city."
    assert "abcdefghijklmnop" not in await refused(made, "tools.breaks")


async def test_a_tool_gets_the_context_of_the_call_and_nothing_to_end_it_with() -> None:
    seen: list[ToolContext] = []

    @tool
    def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx)
        return "seen"

    async def never(*given: Any) -> Any:
        raise AssertionError("the script's own call is not a tool's to end")

    outer = ToolContext(tool_call_id="c1", identity="ann", show=never, ask=never, conclude=never)
    made = bridge(look, context=outer)
    await made.call("tools.look", (), {})
    await made.call("tools.look", (), {})
    assert [(one.tool_name, one.tool_call_id, one.identity) for one in seen] == [
        ("look", "c1/1", "ann"),
        ("look", "c1/2", "ann"),
    ]
    assert all(one.show is one.ask is one.conclude is one.inner is None for one in seen)


async def test_a_command_that_was_not_granted_is_refused_even_when_it_is_asked_for() -> None:
    rights = Rights.of(workspace=None, files=files(a="x"), network=False, tools=None)
    commands = Commands(Bridge(rights, {}, None), rights)
    assert commands.names == ("workspace-read", "workspace-list", "workspace-glob")
    for name in ("workspace-write", "tool", "fetch", "rm", "__class__"):
        with pytest.raises(HostRefused, match="no such command"):
            await commands.call(name, ["/a"], {"stdin": "x"})


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "{'a': 1}", "NaN,"])
async def test_what_the_command_tool_is_given_is_json(text: str) -> None:
    rights = Rights.of(workspace=None, files=None, network=False, tools=[add])
    with pytest.raises(HostRefused, match="no JSON"):
        await Commands(Bridge(rights, as_tools([add]), None), rights).call("tool", ["add", text], {})
