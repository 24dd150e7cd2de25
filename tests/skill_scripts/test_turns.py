"""Scripts in turns of a real agent, through the tool `run_skill_script`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from everthink import Block, Think, ToolContext, skills, tool
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import offered, results, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

COUNT_WORDS = """
export default async function run(input: {path: string}, ctx: any) {
  const words = (await ctx.workspace.readFile(input.path)).split(/\\s+/).length;
  return ctx.tools.note({words});
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one skill."""
    pytest.importorskip("quickjs_rs")
    place = tmp_path / "counting"
    (place / "scripts").mkdir(parents=True)
    (place / "SKILL.md").write_text(
        "---\nname: counting\ndescription: Count words.\n---\nRun scripts/count.ts.\n"
    )
    (place / "scripts/count.ts").write_text(COUNT_WORDS)
    (place / "scripts/wait.sh").write_text("echo begun; sleep 100\n")
    (place / "scripts/wait.py").write_text("import time\nprint('begun')\ntime.sleep(100)\n")
    return tmp_path


class Counting(Think):
    include_workspace_tools = False
    noted: ClassVar[list[tuple[int, Any]]] = []

    def get_skill_script_runner(self) -> Any:
        return skills.runner(workspace_instance=self.workspace, tools=[self.note])

    def get_tools(self) -> Any:
        return {"secret": tool(lambda: "of the turn", name="secret", description="Only the model's.")}

    @tool
    def note(self, words: int, ctx: ToolContext) -> str:
        """Note a number of words."""
        self.noted.append((words, ctx.tool_call_id))
        return f"{self.name} noted {words}"


def run(path: str, **given: Any) -> Any:
    return calls("run_skill_script", {"name": "counting", "path": path, **given})


async def test_a_script_reads_the_agents_files_and_calls_the_tools_of_the_runner(
    open_app: OpenApp, folder: Path
) -> None:
    counting = type("Assistant", (Counting,), {"skills": [skills.from_directory(folder)], "noted": []})
    model = counting.model = ScriptedModel(run("scripts/count.ts", input={"path": "/a.md"}), says("Four."))
    app = await open_app(counting)
    agent = await live(app.agent(counting, "ann"))
    await agent.workspace.write_file("/a.md", "one two three four")
    await app.agent(counting, "ann").chat("How many words?")
    assert "run_skill_script" in offered(model.requests[0])
    assert results(model.requests[1])[0].output == "ann noted 4"
    assert [(words, call_id.endswith("/1")) for words, call_id in counting.noted] == [(4, True)]


async def test_the_hooks_of_the_turn_are_asked_about_what_a_script_calls(
    open_app: OpenApp, folder: Path
) -> None:
    class Assistant(Counting):
        skills: ClassVar[Any] = [skills.from_directory(folder)]
        model = ScriptedModel(run("scripts/count.ts", input={"path": "/a.md"}), says("No."))
        noted: ClassVar[list[tuple[int, Any]]] = []

        async def before_tool_call(self, call: Any) -> Any:
            return Block("not today") if call.tool_name == "note" else None

    app = await open_app(Assistant)
    await (await live(app.agent(Assistant))).workspace.write_file("/a.md", "one")
    await app.agent(Assistant).chat("How many words?")
    assert results(Assistant.model.requests[1])[0].output == "Skill script failed: Error: not today"
    assert Assistant.noted == []


async def test_tools_of_the_turn_are_not_a_scripts(open_app: OpenApp, folder: Path) -> None:
    (folder / "counting/scripts/steal.js").write_text(
        "export default (input, ctx) => ctx.tools.call('secret', {})"
    )
    counting = type("Assistant", (Counting,), {"skills": [skills.from_directory(folder)], "noted": []})
    model = counting.model = ScriptedModel(run("scripts/steal.js"), says("No."))
    app = await open_app(counting)
    await app.agent(counting).chat("Go")
    assert {"secret", "run_skill_script"} <= set(offered(model.requests[0]))
    told = results(model.requests[1])[0].output
    assert told.startswith("Skill script failed: Error: Tool not available: secret")


async def test_a_turn_that_is_stopped_kills_its_script(open_app: OpenApp, folder: Path) -> None:
    model = ScriptedModel(run("scripts/wait.py"), says("Never."))
    cls = assistant(model, skills=[skills.from_directory(folder)], skill_script_runner=skills.runner())
    app = await open_app(cls)
    turn = asyncio.ensure_future(app.agent(cls).save_messages("Go"))
    agent = await live(app.agent(cls))
    await until(lambda: [one for made in agent._sandboxes()._machines.values() for one in made._running])
    made = next(iter(agent._sandboxes()._machines.values()))
    await until(lambda: children())
    await app.agent(cls).abort_all_requests()
    assert (await turn).status == "aborted"
    await until(lambda: not made._running)
    await until(lambda: not children())


def children() -> set[int]:
    """The processes below this one."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        try:
            found |= set(map(int, Path(f"/proc/self/task/{task}/children").read_text().split()))
        except OSError:
            continue
    return {
        pid
        for pid in found
        if "sleep(100)" in _source(pid) or "everthink-machine" in _source(pid) or "bwrap" in _source(pid)
    }


def _source(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


async def test_scripts_run_in_the_sandboxes_of_the_app_and_end_with_it(
    open_app: OpenApp, folder: Path
) -> None:
    runner = skills.runner(workspace_instance=None)
    (folder / "counting/scripts/one.js").write_text("export default () => 1")
    model = ScriptedModel(run("scripts/one.js"), says("One."))
    cls = assistant(model, skills=[skills.from_directory(folder)], skill_script_runner=runner)
    app = await open_app(cls)
    await app.agent(cls).chat("Go")
    assert results(model.requests[1])[0].output == 1
    sandboxes = (await live(app.agent(cls)))._sandboxes()
    assert len(sandboxes.of("javascript").pids) == 1
    assert runner._own is None


async def test_a_call_that_a_crash_cut_off_is_run_again_when_its_scripts_can_change_nothing(
    folder: Path,
) -> None:
    async def policy(runner: Any) -> Any:
        registry = skills.SkillRegistry([skills.from_directory(folder)], runner)
        await registry.load()
        return registry.tools()["run_skill_script"].on_interrupt

    class Own:
        async def run(self, request: Any) -> Any:
            return None

    files = Counting.workspace
    assert await policy(skills.runner()) == "rerun"
    assert await policy(skills.runner(network=True)) == "report"
    assert await policy(skills.runner(tools=[Counting.note])) == "report"
    assert await policy(Own()) == "report"
    assert files is not None
