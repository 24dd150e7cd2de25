"""Scripts in bash: run as a file, with what was granted as commands."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

from dataclasses import replace

import pytest

from everthink.errors import ToolError
from everthink.machines.bubblewrap import Bubblewrap
from tests.machines.here import runs_here
from tests.skill_scripts import scripts
from tests.skill_scripts.scripts import add, asset, files, opened, ran, refusal, request, script, text

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(autouse=True, params=[None, Bubblewrap], ids=["engine", "machine"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the engine, and as real processes in a machine that was named."""
    if request.param is None:
        pytest.importorskip("bashkit")
        return
    runs_here(Bubblewrap())
    monkeypatch.setattr(scripts, "OPTIONS", {"machine": Bubblewrap()})


@pytest.mark.memory_case(552)
async def test_a_script_has_its_input_the_files_of_the_skill_and_the_tool_command() -> None:
    source = """
        cat; echo; cat /input.json; echo; cat /skill/references/guide.md references/guide.md; echo
        source "$(dirname "$0")/lib.sh"; greet "$1" "$2"
        tool add '{"a": 1, "b": 2}'; echo '{"a": 3, "b": 4}' | tool add
        grep -o '"version":"[^"]*"' /context.json; head -2 /skill/SKILL.md
    """
    found = await ran(
        "a.sh",
        source,
        text("references/guide.md", "Be brief."),
        script("scripts/lib.sh", 'greet() { echo "$# $1/$2"; }'),
        input={"name": "ann"},
        args=("x", "y z"),
        tools=[add],
    )
    assert found == {
        "stdout": '{"name":"ann"}\n{"name":"ann"}\nBe brief.Be brief.\n2 x/y z\n3\n7\n"version":"2"\n---\nname: release-notes\n',
        "stderr": "",
        "exitCode": 0,
    }


@pytest.mark.memory_case(553)
async def test_what_is_no_text_is_there_as_bytes() -> None:
    found = await ran(
        "a.bash",
        "od -An -tx1 /skill/assets/a.bin; wc -c < assets/a.bin",
        asset("assets/a.bin", b"\xff\x00\x0a"),
    )
    assert found["stdout"].split() == ["ff", "00", "0a", "3"]


@pytest.mark.memory_case(554)
@pytest.mark.parametrize(
    ("source", "code"), [("exit 7", 7), ("false", 1), ("set -e; false; echo no", 1), ("echo ((", 2)]
)
async def test_an_exit_code_is_a_result(source: str, code: int) -> None:
    found = await ran("a.sh", source)
    assert (found["exitCode"], found["stdout"]) == (code, "")


@pytest.mark.memory_case(555)
@pytest.mark.parametrize("path", ["../a", "a/../../b", "/etc/passwd", "a//b", "./a", "", "a\0b", "a\\b"])
async def test_a_path_that_leads_out_of_the_skill_is_refused_before_anything_runs(path: str) -> None:
    asked = request("a.sh", "echo hi")
    async with opened() as made:
        with pytest.raises(ToolError, match="no path within the skill"):
            await made.run(replace(asked, path=path))
        with pytest.raises(ToolError, match="no path within the skill"):
            await made.run(replace(asked, resources=(text(path, "x"),)))


@pytest.mark.memory_case(565)
async def test_a_workspace_that_is_given_may_be_read() -> None:
    source = "workspace-read notes.md; echo; workspace-read none; workspace-list; workspace-list /sub; workspace-glob '*.md'"
    found = await ran("a.sh", source, workspace_instance=files(notes_md="# Plan"))
    entry = '[{"path":"/notes.md","name":"notes.md","type":"file","size":6}]'
    assert found["stdout"] == f"# Plan\n{entry}\n[]\n{entry}\n"


@pytest.mark.memory_case(566)
async def test_the_command_to_write_is_not_there_without_the_right() -> None:
    place = files()
    source = "echo x | workspace-write a.txt; echo $?"
    assert (await ran("a.sh", source, workspace_instance=place))["stdout"] == "127\n"
    assert await place.read_dir("/") == []
    found = await ran("a.sh", source, workspace_instance=place, workspace="read-write")
    assert found["stdout"] == "0\n"
    assert await place.read_file("/a.txt") == "x\n"


async def test_commands_that_were_not_granted_do_not_exist() -> None:
    names = ("workspace-read", "workspace-list", "workspace-glob", "workspace-write", "tool", "fetch")
    found = await ran("a.sh", "\n".join(f"{name} x; echo $?" for name in names))
    assert found["stdout"] == "127\n" * len(names)


async def test_a_command_without_its_argument_says_how_it_is_used() -> None:
    found = await ran(
        "a.sh",
        "workspace-read; echo $?; tool; echo $?; tool drop; echo $?",
        tools=[add],
        workspace_instance=files(),
    )
    assert found["stdout"] == "2\n2\n1\n"
    assert "workspace-read: usage: workspace-read PATH" in found["stderr"]
    assert "tool: Tool not available: drop" in found["stderr"]


async def test_a_script_that_is_out_of_time_ends_with_124() -> None:
    found = await ran("a.sh", "echo begun; sleep 100", timeout=1)
    assert (found["stdout"], found["exitCode"]) == ("begun\n", 124)
    assert "did not end within 1 seconds" in found["stderr"]


@pytest.mark.memory_case(610)
async def test_what_a_script_leaves_in_output_is_returned() -> None:
    source = "mkdir -p /output/d; printf '\\xff' > /output/d/b.bin; echo hi > /output/a.txt; echo x > /other; echo y > /skill/new"
    assert (await ran("a.sh", source))["outputFiles"] == [
        {"path": "/output/a.txt", "encoding": "text", "content": "hi\n"},
        {"path": "/output/d/b.bin", "encoding": "base64", "content": "/w=="},
    ]
    assert "bytes, and may have 64,000" in await refusal("a.sh", "head -c 64001 /dev/zero > /output/a")
    assert "may leave 20" in await refusal("a.sh", "for i in $(seq 21); do echo > /output/$i; done")


async def test_a_file_that_is_not_there_is_no_empty_one() -> None:
    found = await ran("a.sh", "workspace-read /nope.md; echo $?", workspace_instance=files())
    assert found["stdout"] == "1\n"
    assert "there is no file /nope.md" in found["stderr"]
