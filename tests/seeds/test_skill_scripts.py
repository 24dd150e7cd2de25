"""What the package's README says of scripts of skills, sentence by sentence, and its examples."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, skills, tool
from everthink.skills import ScriptRequest
from everthink.testing import ScriptedModel, calls, says
from everthink.workspace import MemoryFiles, Workspace
from tests.conftest import OpenApp
from tests.skill_scripts.scripts import opened, ran, refusal, request, text
from tests.support.agents import live
from tests.support.hooks import offered, results

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

EXAMPLE = """\
import type { SkillRunContext } from "@cloudflare/think";

export default async function run(input: unknown, ctx: SkillRunContext) {
  const guide = ctx.files["references/style-guide.md"]; // bundled text resources
  const summary = await ctx.tools.call("summarize", { input }); // explicit tools
  await ctx.output.writeFile("notes.md", summary); // scratch artifact
  return { ok: true };
}
"""


@tool
async def summarize(input: Any) -> str:
    """Summarize something."""
    return f"In short: {input['text']}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """src/skills, as the page draws it."""
    place = tmp_path / "src/skills/release-notes"
    for name in ("scripts", "references"):
        (place / name).mkdir(parents=True)
    (place / "SKILL.md").write_text(
        "---\nname: release-notes\ndescription: Write release notes.\n---\nWrite.\n"
    )
    (place / "scripts/format-release-notes.ts").write_text(EXAMPLE)
    (place / "references/style-guide.md").write_text("Be brief.")
    return tmp_path / "src/skills"


@pytest.mark.example("readme", 10)
async def test_a_script_of_a_skill_runs_as_it_is_written(open_app: OpenApp, folder: Path) -> None:
    asked = {
        "name": "release-notes",
        "path": "scripts/format-release-notes.ts",
        "input": {"text": "It is faster."},
    }
    model = ScriptedModel(calls("run_skill_script", asked), says("Done."))

    class MyAgent(Think):
        def get_model(self):
            return model

        def get_skills(self):
            return [skills.from_directory(folder)]

        def get_skill_script_runner(self):
            return skills.runner(workspace_instance=self.workspace, tools=[summarize])

    app = await open_app(MyAgent)
    await app.agent(MyAgent).save_messages("Write the notes")
    notes = {"path": "notes.md", "encoding": "text", "content": "In short: It is faster."}
    assert results(model.requests[1])[0].output == {"result": {"ok": True}, "outputFiles": [notes]}
    agent = await live(app.agent(MyAgent))
    assert await agent.workspace.read_dir("/") == []


@pytest.mark.example("readme", 11)
async def test_scripts_need_no_binding_and_no_setting() -> None:
    async with opened() as made:
        assert await made.run(request("a.ts", "export default (): number => 1")) == 1


async def test_script_execution_is_opt_in(open_app: OpenApp, folder: Path) -> None:
    model = ScriptedModel(says("Hi."), says("Hi."))
    sources = [skills.from_directory(folder)]
    runners = (None, skills.runner())
    kinds = [
        type(f"Agent{at}", (Think,), {"model": model, "skills": sources, "skill_script_runner": runner})
        for at, runner in enumerate(runners)
    ]
    app = await open_app(*kinds)
    for cls in kinds:
        await app.agent(cls).save_messages("Hi")
    assert ["run_skill_script" in offered(one) for one in model.requests] == [False, True]


RETURNS_SEVEN = {
    "a.js": "export default () => 7",
    "a.ts": "export default (): number => 7",
    "a.py": "def run(input, ctx):\n    return 7",
    "a.sh": "echo 7",
}


@pytest.mark.parametrize("path", RETURNS_SEVEN)
async def test_run_skill_script_can_run_javascript_typescript_python_and_bash_under_scripts(
    path: str,
) -> None:
    found = await ran(path, RETURNS_SEVEN[path])
    assert (int(found["stdout"]) if path == "a.sh" else found) == 7


async def test_ctx_is_skill_files_workspace_tools_output() -> None:
    found = await ran("a.js", "export default (input, ctx) => Object.keys(ctx)")
    assert set(found) == {"skill", "files", "workspace", "tools", "output", "args"}


async def test_ctx_files_holds_bundled_text_resources_by_relative_path() -> None:
    guide = text("references/style-guide.md", "Be brief.")
    assert await ran("a.js", "export default (input, ctx) => ctx.files", guide) == {
        "references/style-guide.md": "Be brief."
    }


async def test_ctx_workspace_is_gated_by_the_workspace_permission() -> None:
    place = Workspace(MemoryFiles({"/a.txt": "x"}))
    source = "export default (input, ctx) => ctx.workspace.readFile('a.txt')"
    assert await ran("a.js", source, workspace_instance=place) == "x"
    assert "not available" in await refusal("a.js", source, workspace_instance=place, workspace="none")


async def test_ctx_tools_exposes_only_the_tools_the_runner_was_given() -> None:
    source = "export default (input, ctx) => ctx.tools.call(input, {input: {text: 'x'}})"
    assert await ran("a.js", source, input="summarize", tools=[summarize]) == "In short: x"
    assert "Tool not available" in await refusal("a.js", source, input="write", tools=[summarize])


async def test_output_files_are_returned_without_mutating_the_workspace() -> None:
    place = Workspace(MemoryFiles())
    source = "export default (input, ctx) => ctx.output.writeFile('notes.md', 'x')"
    found = await ran("a.js", source, workspace_instance=place, workspace="read-write")
    assert [one["path"] for one in found["outputFiles"]] == ["notes.md"]
    assert await place.read_dir("/") == []


READS = {
    "a.py": "def run(input, ctx):\n    place = '/output/n'\n    open(place, 'w').write(open('/input.json').read() + open('/skill/references/a.md').read())\n    import json\n    return json.load(open('/context.json'))['skill']['name']",
    "program.py": "import json\nopen('/output/n', 'w').write(open('/input.json').read() + open('/skill/references/a.md').read())\nprint(json.load(open('/context.json'))['skill']['name'])",
    "a.sh": "cat /input.json /skill/references/a.md > /output/n; jq -r .skill.name /context.json",
}


@pytest.mark.parametrize("path", READS)
async def test_python_and_bash_use_the_path_based_contract(path: str) -> None:
    found = await ran(path, READS[path], text("references/a.md", " a"), input=[1])
    assert [one["content"] for one in found["outputFiles"]] == ["[1] a"]
    said = found["result"] if path == "a.py" else found["stdout"].strip()
    assert said == "release-notes"


async def test_a_workspace_instance_is_read_only_by_default_and_writes_tools_and_network_are_opt_in() -> None:
    rights = skills.runner(workspace_instance=Workspace(MemoryFiles())).rights
    assert (rights.may_read, rights.may_write, rights.tools, rights.network) == (True, False, None, None)


async def test_scripts_default_to_a_30_second_timeout_which_can_be_overridden() -> None:
    assert inspect.signature(skills.runner).parameters["timeout"].default == 30.0
    words = await refusal("a.js", "export default () => { for (;;); }", timeout=0.5)
    assert words.startswith("JavaScript script execution timed out: it had 0.5 seconds")
    found = await ran("a.sh", "sleep 60", timeout=0.5)
    assert found["exitCode"] == 124


async def test_a_runner_is_used_without_an_agent_too(folder: Path) -> None:
    async with opened(tools=[summarize]) as made:
        registry = skills.SkillRegistry([skills.from_directory(folder)], made)
        await registry.load()
        found = await registry.run_script("release-notes", "scripts/format-release-notes.ts", {"text": "x"})
        assert found["result"] == {"ok": True}
        assert isinstance(made, skills.ScriptRunner)
    assert ScriptRequest.__dataclass_fields__["args"].default == ()
