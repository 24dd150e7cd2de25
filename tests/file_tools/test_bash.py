"""`bash`: scripts over the workspace. What they change comes back; what they were not given stays."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from everthink.file_tools import BashOptions
from everthink.sandbox.bash import BashSandbox
from everthink.sandbox.port import NoHost, Stream
from everthink.testing.scripted import calls
from everthink.workspace import DiskFiles, MemoryFiles, MountedFiles, ReadOnly, Workspace, WorkspaceLimits
from tests.file_tools.support import Desk, Failed, MakeDesk
from tests.support.agents import live
from tests.support.hooks import until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

NOTHING = {"created": [], "updated": [], "deleted": [], "directoriesCreated": [], "directoriesDeleted": []}


async def tree(agent: Desk) -> dict[str, str | None]:
    """Everything in the workspace: the texts of files, `None` for folders and links."""
    files = await agent.files()
    return {
        entry.path: await files.read_file(entry.path) if entry.kind == "file" else None
        for entry in await files.glob("**/*")
    }


@pytest.mark.memory_case(357)
async def test_what_a_script_changes_is_in_the_workspace_and_in_its_result(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    for name in ("kept", "changed", "gone"):
        await files.write_file(f"/{name}.txt", name)
    output = await agent.call(
        "bash", script="cat kept.txt; echo more >> changed.txt; rm gone.txt; mkdir -p d; echo new > d/new.txt"
    )
    assert output == {
        "stdout": "kept",
        "stderr": "",
        "exitCode": 0,
        "changedFiles": {
            "created": ["/d/new.txt"],
            "updated": ["/changed.txt"],
            "deleted": ["/gone.txt"],
            "directoriesCreated": ["/d"],
            "directoriesDeleted": [],
        },
    }
    assert await tree(agent) == {
        "/changed.txt": "changedmore\n",
        "/d": None,
        "/d/new.txt": "new\n",
        "/kept.txt": "kept",
    }


@pytest.mark.memory_case(358)
async def test_what_belongs_to_the_shell_stays_with_it(desk: MakeDesk) -> None:
    agent = await desk()
    output = await agent.call("bash", script="echo x > /tmp/scratch; ls / /dev; pwd; echo $HOME")
    assert output["changedFiles"] == NOTHING
    assert output["stdout"].endswith("/\n/\n")
    assert await tree(agent) == {}


@pytest.mark.memory_case(598)
async def test_folders_with_the_names_of_a_machine_survive_every_script(desk: MakeDesk) -> None:
    agent = await desk()
    files = await agent.files()
    names = ("tmp", "usr", "bin", "dev", "proc", "sys", "home", "etc")
    for name in names:
        await files.write_file(f"/{name}/mine.txt", name)
        await files.mkdir(f"/{name}/empty")
    before = await tree(agent)
    output = await agent.call("bash", script="echo hi")
    assert (output["stdout"], output["changedFiles"]) == ("hi\n", NOTHING)
    assert await tree(agent) == before
    changed = await agent.call("bash", script="echo more >> /tmp/mine.txt; rm -r /usr/empty")
    assert changed["changedFiles"] == NOTHING | {
        "updated": ["/tmp/mine.txt"],
        "directoriesDeleted": ["/usr/empty"],
    }


@pytest.mark.memory_case(359)
async def test_a_script_that_fails_is_a_result(desk: MakeDesk) -> None:
    agent = await desk()
    output = await agent.call("bash", script="echo out; echo err >&2; exit 3")
    assert (output["stdout"], output["stderr"], output["exitCode"]) == ("out\n", "err\n", 3)
    assert (await agent.call("bash", script="git status"))["exitCode"] == 127
    assert (await agent.call("bash", script="if then"))["exitCode"] == 2


async def test_a_script_starts_where_it_is_told_and_nothing_is_left_of_it_but_files(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/a/b/c.txt", "c")
    first = await agent.call("bash", script="x=1; pwd; cat c.txt", cwd="a/b/")
    assert first["stdout"] == "/a/b\nc"
    assert (await agent.call("bash", script="echo [$x]; pwd"))["stdout"] == "[]\n/\n"
    nowhere = await agent.call("bash", script="pwd", cwd="/nowhere")
    assert isinstance(nowhere, Failed)
    assert "/nowhere" in nowhere


@pytest.mark.memory_case(360)
async def test_what_a_script_was_not_given_it_cannot_overwrite_delete_or_build_upon(desk: MakeDesk) -> None:
    agent = await desk(workspace_bash=BashOptions(max_workspace_file_bytes=10))
    files = await agent.files()
    await files.write_file("/folder/large.txt", "larger than ten")
    await files.write_file("/small.txt", "small")
    await files.symlink("/small.txt", "/folder/link")
    before = await tree(agent)
    over = await agent.call("bash", script="echo x > /folder/large.txt; echo y > /folder/link; echo z > /z")
    assert over["skippedFiles"] == ["/folder/large.txt"]
    assert over["changedFiles"] == NOTHING | {"created": ["/z"]}
    assert [error.split(":")[0] for error in over["errors"]] == [
        "/folder/large.txt was not written",
        "/folder/link was not written",
    ]
    gone = await agent.call("bash", script="rm -r /folder /z")
    assert gone["changedFiles"] == NOTHING | {"deleted": ["/z"]}
    assert [error.split(":")[0] for error in gone["errors"]] == ["/folder was not deleted"]
    below = await agent.call("bash", script="mkdir -p /folder/large.txt/x && echo y > /folder/large.txt/x/y")
    assert below["changedFiles"] == NOTHING
    assert len(below["errors"]) == 3
    assert await tree(agent) == before
    assert await files.readlink("/folder/link") == "/small.txt"


async def test_a_file_that_was_moved_where_nothing_may_be_written_stays_where_it_was(desk: MakeDesk) -> None:
    agent = await desk(workspace_bash={"max_workspace_file_bytes": 10})
    files = await agent.files()
    await files.write_file("/large.txt", "larger than ten")
    await files.write_file("/a/small.txt", "small")
    output = await agent.call("bash", script="mv /a/small.txt /large.txt; rmdir /a")
    assert output["changedFiles"] == NOTHING
    assert [error.split(":")[0] for error in output["errors"]] == [
        "/large.txt was not written",
        "/a/small.txt was not deleted",
        "/a was not deleted",
    ]
    assert await tree(agent) == {
        "/a": None,
        "/a/small.txt": "small",
        "/large.txt": "larger than ten",
    }


@pytest.mark.memory_case(361)
async def test_empty_folders_come_and_go(desk: MakeDesk) -> None:
    agent = await desk()
    made = await agent.call("bash", script="mkdir -p /a/b /c")
    assert made["changedFiles"] == NOTHING | {"directoriesCreated": ["/a", "/a/b", "/c"]}
    assert await tree(agent) == {"/a": None, "/a/b": None, "/c": None}
    seen = await agent.call("bash", script="ls -d /a/b; rmdir /c; rm -r /a")
    assert seen["stdout"] == "/a/b\n"
    assert seen["changedFiles"] == NOTHING | {"directoriesDeleted": ["/a", "/a/b", "/c"]}
    assert await tree(agent) == {}


@pytest.mark.parametrize(
    ("before", "script", "after"),
    [
        ({"/a": "file"}, "rm a; mkdir a; echo x > a/b", {"/a": None, "/a/b": "x\n"}),
        ({"/a/b/c": "file"}, "rm -r a; echo x > a", {"/a": "x\n"}),
        ({"/a/b/c": "file"}, "mv a/b d; rmdir a; mv d a", {"/a": None, "/a/c": "file"}),
    ],
)
async def test_a_file_may_become_a_folder_and_a_folder_a_file(
    desk: MakeDesk, before: dict[str, str], script: str, after: dict[str, str | None]
) -> None:
    agent = await desk()
    for path, text in before.items():
        await (await agent.files()).write_file(path, text)
    output = await agent.call("bash", script=script)
    assert "errors" not in output
    assert await tree(agent) == after


@pytest.mark.memory_case(362)
async def test_a_folder_of_more_than_a_page_is_all_there(desk: MakeDesk) -> None:
    agent = await desk(workspace_bash=BashOptions(max_workspace_files=2_000))
    files = await agent.files()
    await files.apply([_put(f"/many/{n:04}") for n in range(1_100)])
    output = await agent.call("bash", script="ls /many | wc -l; cat /many/1099")
    assert output["stdout"].split() == ["1100", "x"]
    assert "skippedFiles" not in output


def _put(path: str) -> Any:
    from everthink.workspace import Put

    return Put(path, b"x")


async def test_files_beyond_the_number_are_skipped_and_named_up_to_a_number(desk: MakeDesk) -> None:
    agent = await desk(workspace_bash=BashOptions(max_workspace_files=2))
    await (await agent.files()).apply([_put(f"/{n:03}") for n in range(300)])
    output = await agent.call("bash", script="ls -d /0* | wc -l; rm -f /000 /299")
    assert output["stdout"].strip() == "2"
    assert output["changedFiles"] == NOTHING | {"deleted": ["/000"]}
    assert len(output["skippedFiles"]) == 201
    assert output["skippedFiles"][-1] == "… and 98 more"


@pytest.mark.memory_case(363, 603)
async def test_a_script_that_takes_too_long_is_stopped_and_what_it_wrote_is_kept(desk: MakeDesk) -> None:
    agent = await desk(workspace_bash=BashOptions(timeout=0.5))
    output = await agent.call("bash", script="echo early > /early.txt; sleep 60; echo late > /late.txt")
    assert output["exitCode"] == 124
    assert "did not end within 0.5 seconds" in output["stderr"]
    assert output["changedFiles"]["created"] == ["/early.txt"]
    assert await tree(agent) == {"/early.txt": "early\n"}


@pytest.mark.memory_case(604)
async def test_a_link_made_by_a_script_arrives_as_a_copy(desk: MakeDesk) -> None:
    agent = await desk()
    output = await agent.call("bash", script="echo x > a; ln -s a b; ln -s nowhere c")
    assert output["changedFiles"]["created"] == ["/a", "/b"]
    assert await tree(agent) == {"/a": "x\n", "/b": "x\n"}


async def test_more_output_than_may_be_is_cut_with_a_note(desk: MakeDesk) -> None:
    agent = await desk(workspace_bash=BashOptions(max_output_bytes=100))
    output = await agent.call("bash", script="seq 1 2000")
    assert len(output["stdout"]) == 100
    assert output["note"] == "8.6 KB of its output are left out."


class Meanwhile:
    """A sandbox in which something happens to the workspace while a script runs."""

    def __init__(self, sandbox: Any, happens: Any) -> None:
        self._sandbox, self._happens = sandbox, happens

    async def run(self, job: Any, host: Any) -> Any:
        outcome = await self._sandbox.run(job, host)
        await self._happens()
        return outcome


async def meanwhile(desk: MakeDesk, happens: Any, **members: Any) -> Desk:
    """An agent to whose files something happens while a script runs."""
    agent = await desk(**members)
    real = agent.cls._bash_sandbox

    def sandbox(self: Any) -> Any:
        return Meanwhile(real(self), lambda: happens(self.workspace))

    type.__setattr__(agent.cls, "_bash_sandbox", sandbox)
    return agent


async def test_what_somebody_else_changed_meanwhile_is_neither_overwritten_nor_deleted(
    desk: MakeDesk,
) -> None:
    async def happens(files: Workspace) -> None:
        await files.write_file("/changed.txt", "theirs")
        await files.write_file("/gone.txt", "theirs")
        await files.write_file("/new.txt", "theirs")
        await files.write_file("/folder/more.txt", "theirs")
        await files.rm("/deleted.txt")
        await files.symlink("/fine.txt", "/link.txt")

    agent = await meanwhile(desk, happens)
    files = await agent.files()
    for name in ("changed", "gone", "deleted", "fine", "folder/a"):
        await files.write_file(f"/{name}.txt", "before")
    output = await agent.call(
        "bash",
        script="for f in changed new fine link; do echo mine > $f.txt; done;"
        " rm -r gone.txt deleted.txt folder",
    )
    assert output["changedFiles"] == NOTHING | {"updated": ["/fine.txt"], "deleted": ["/folder/a.txt"]}
    assert sorted(error.split(":")[0] for error in output["errors"]) == [
        "/changed.txt was not written",
        "/folder was not deleted",
        "/gone.txt was not deleted",
        "/link.txt was not written",
        "/new.txt was not written",
    ]
    assert {path: text for path, text in (await tree(agent)).items() if text is not None} == {
        "/changed.txt": "theirs",
        "/fine.txt": "mine\n",
        "/folder/more.txt": "theirs",
        "/gone.txt": "theirs",
        "/new.txt": "theirs",
    }


async def test_a_script_whose_sandbox_dies_has_written_nothing(desk: MakeDesk) -> None:
    class Killed(NoHost):
        def output(self, stream: Stream, text: str) -> None:
            os.kill(sandbox.pids[0], signal.SIGKILL)

    class Fragile:
        async def run(self, job: Any, host: Any) -> Any:
            return await sandbox.run(job, Killed())

    sandbox = BashSandbox()
    agent = await desk()
    type.__setattr__(agent.cls, "_bash_sandbox", lambda self: Fragile())
    await (await agent.files()).write_file("/a", "before")
    try:
        output = await agent.call("bash", script="echo x > /a; rm -f /b; echo begun; sleep 20")
    finally:
        await sandbox.aclose()
    assert (output["exitCode"], output["changedFiles"]) == (1, NOTHING)
    assert output["errors"][0].endswith("Nothing was written.")
    assert await tree(agent) == {"/a": "before"}


async def test_scripts_of_one_workspace_wait_for_each_other(desk: MakeDesk) -> None:
    agent = await desk()
    await (await agent.files()).write_file("/n", "0")
    script = "n=$(cat /n); echo -n $((n + 1)) > /n"
    both = calls("bash", script=script).calls("bash", script=script).calls("bash", script=script)
    outputs = await agent.turn(both)
    assert not any("errors" in output for output in outputs)
    assert await tree(agent) == {"/n": "3"}


async def test_when_the_workspace_is_full_a_script_writes_nothing_and_loses_nothing(desk: MakeDesk) -> None:
    agent = await desk(workspace=Workspace(limits=WorkspaceLimits(files_bytes=100)))
    await (await agent.files()).write_file("/a", "x" * 60)
    output = await agent.call("bash", script="cat a a > b; rm a")
    assert output["changedFiles"] == NOTHING
    assert "EDQUOT" in output["errors"][0]
    assert output["errors"][0].endswith("Nothing was written.")
    assert await tree(agent) == {"/a": "x" * 60}


async def test_scripts_work_in_a_real_directory_and_in_mounted_ones(desk: MakeDesk, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/a.txt").write_text("on disk")
    mounted = MountedFiles(
        {
            "/": MemoryFiles({"/top.txt": "top"}),
            "/disk": DiskFiles(tmp_path / "disk"),
            "/rules": ReadOnly(MemoryFiles({"/rule.txt": "rule"})),
        }
    )
    agent = await desk(workspace=Workspace(mounted))
    output = await agent.call(
        "bash",
        script="cat /rules/rule.txt > /copy.txt; echo x > /disk/b.txt; rm disk/a.txt; echo y > /rules/no",
    )
    assert output["changedFiles"] == NOTHING | {
        "created": ["/copy.txt", "/disk/b.txt"],
        "deleted": ["/disk/a.txt"],
    }
    assert [error.split(":")[0] for error in output["errors"]] == ["/rules/no was not written"]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["b.txt"]
    assert (await tree(agent))["/copy.txt"] == "rule"


async def test_a_turn_that_is_stopped_stops_its_script(desk: MakeDesk) -> None:
    agent = await desk()
    agent.model.add(calls("bash", script="echo x > /a; sleep 25; echo y > /b"))
    turn = asyncio.ensure_future(agent.app.agent(agent.cls).save_messages("Go"))
    home = (await live(agent.app.agent(agent.cls)))._home
    await until(lambda: home.sandboxes.bash().pids)
    await agent.app.agent(agent.cls).abort_all_requests()
    assert (await turn).status == "aborted"
    assert await tree(agent) == {}
