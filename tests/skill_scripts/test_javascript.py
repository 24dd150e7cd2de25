"""Scripts in JavaScript and TypeScript: a default export that is called with an input and `ctx`."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

from typing import Any

import pytest

from everthink.errors import ToolError
from tests.skill_scripts.scripts import add, asset, files, ran, refusal, script, text

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(autouse=True)
def needs_the_engine() -> None:
    pytest.importorskip("quickjs_rs")


@pytest.mark.memory_case(541)
async def test_the_function_gets_input_context_and_tools() -> None:
    source = """
        export default async function run(input, ctx) {
          return [input.name, ctx.skill, ctx.args, await ctx.tools.call('add', {a: 1, b: 2}), await ctx.tools.add({a: 3, b: 4})];
        }"""
    found = await ran("a.js", source, input={"name": "ann"}, args=("x",), tools=[add])
    skill = {"name": "release-notes", "description": "Write release notes.", "license": "MIT", "version": "2"}
    assert found == ["ann", skill, ["x"], 3, 7]


@pytest.mark.memory_case(542)
async def test_a_failure_has_what_was_printed() -> None:
    words = await refusal(
        "a.js", "export default () => { console.log('so far'); throw new Error('out of cheese') }"
    )
    assert words.startswith("Error: out of cheese")
    assert "scripts/a.js" in words
    assert words.endswith("It printed:\nso far")
    assert "skill-script" not in words


@pytest.mark.memory_case(543)
@pytest.mark.parametrize("source", ["export const run = () => 1", "export default 5", "1 + 1"])
async def test_without_a_default_export_that_is_a_function_nothing_is_called(source: str) -> None:
    assert "no function as its default export" in await refusal("a.js", source)


@pytest.mark.memory_case(544)
async def test_typescript_of_several_files_runs_as_it_is_written() -> None:
    source = """
        import { twice, type Doubled } from './lib';
        import { names } from '../references/names.ts';
        import data from '../assets/data.json';
        import type { SkillRunContext } from '@cloudflare/think';
        interface Given { count: number }
        export default async function run(input: Given, ctx: SkillRunContext): Promise<unknown> {
          const found: Doubled = twice(input.count as number);
          return [found, names, data];
        }"""
    found = await ran(
        "a.ts",
        source,
        script(
            "scripts/lib.ts",
            "export type Doubled = number;\nexport const twice = (n: number): Doubled => 2 * n;",
        ),
        text("references/names.ts", "export const names: string[] = ['ann'];"),
        text("assets/data.json", '{"n": 1}'),
        input={"count": 21},
    )
    assert found == [42, ["ann"], {"n": 1}]


@pytest.mark.memory_case(545)
@pytest.mark.parametrize(
    "source",
    [
        "export default async function run(input) { return input + 1 }",
        "async function run(input) { return input + 1 }\nexport { run as default };",
        "const run = (input) => input + 1, more = 2;\nexport { run as default, run, more };",
        "export const more = 2;\nconst run = (input) => input + 1;\nexport { run as default };",
    ],
)
async def test_what_a_bundler_has_made_runs_as_it_is(source: str) -> None:
    assert await ran("a.mjs", source, input=41) == 42


@pytest.mark.memory_case(546)
async def test_the_texts_of_the_skill_are_in_files() -> None:
    source = "export default (input, ctx) => [ctx.files['references/guide.md'], Object.keys(ctx.files), JSON.stringify(ctx.files)]"
    found = await ran(
        "a.js", source, text("references/guide.md", "Be brief."), asset("assets/logo.png", b"\x89PNG")
    )
    assert found == ["Be brief.", ["references/guide.md"], '{"references/guide.md":"Be brief."}']


@pytest.mark.memory_case(547)
async def test_output_files_are_returned_and_the_workspace_has_none() -> None:
    place = files()
    source = """
        export default async (input, ctx) => {
          console.log('first'); console.warn('second');
          await ctx.output.writeFile('notes.md', 'draft');
          await ctx.output.writeFile('notes.md', 'final');
          await ctx.output.writeFile('more/list.txt', 'ä');
          return {ok: true};
        }"""
    found = await ran("a.js", source, workspace="read-write", workspace_instance=place)
    assert found == {
        "result": {"ok": True},
        "logs": ["first", "second"],
        "outputFiles": [
            {"path": "more/list.txt", "encoding": "text", "content": "ä"},
            {"path": "notes.md", "encoding": "text", "content": "final"},
        ],
    }
    assert await place.read_dir("/") == []


@pytest.mark.memory_case(548)
async def test_an_output_file_that_is_too_large_is_refused() -> None:
    source = "export default (input, ctx) => ctx.output.writeFile('a.txt', 'ä'.repeat(input))"
    assert await ran("a.js", source, input=32_000)
    assert "64002 bytes" in await refusal("a.js", source, input=32_001)


async def test_of_output_files_there_are_twenty_and_one_may_be_written_again() -> None:
    source = """
        export default async (input, ctx) => {
          for (let i = 0; i < input; i++) await ctx.output.writeFile(`${i}.txt`, 'x');
          await ctx.output.writeFile('0.txt', 'y');
        }"""
    assert len((await ran("a.js", source, input=20))["outputFiles"]) == 20
    assert "one more" in await refusal("a.js", source, input=21)


@pytest.mark.memory_case(549)
async def test_a_workspace_that_is_given_may_be_read() -> None:
    source = """
        export default async (input, {workspace}) => [
          await workspace.readFile('notes.md'), await workspace.readFile('none'), await workspace.stat('notes.md'),
          await workspace.stat('none'), (await workspace.listFiles()).map((one) => one.name), (await workspace.glob('*.md')).map((one) => one.path)]"""
    found = await ran("a.js", source, workspace_instance=files(notes_md="# Plan"))
    assert found == ["# Plan", None, {"type": "file", "size": 6}, None, ["notes.md"], ["/notes.md"]]


@pytest.mark.memory_case(550)
async def test_writing_needs_the_right_to_write() -> None:
    place = files(notes_md="# Plan")
    source = "export default (input, ctx) => ctx.workspace.writeFile('new/b.md', 'x')"
    assert "write access is not available" in await refusal("a.js", source, workspace_instance=place)
    assert await place.read_file("/new/b.md") is None
    await ran("a.js", source, workspace_instance=place, workspace="read-write")
    assert await place.read_file("/new/b.md") == "x"


@pytest.mark.memory_case(551)
@pytest.mark.parametrize("options", [{}, {"workspace": "none", "workspace_instance": files()}])
async def test_without_a_workspace_or_the_right_to_it_nothing_is_read(options: dict[str, Any]) -> None:
    source = "export default (input, ctx) => ctx.workspace.readFile('a')"
    assert "Workspace access is not available" in await refusal("a.js", source, **options)


async def test_a_tool_that_was_not_given_is_not_available() -> None:
    source = "export default (input, ctx) => ctx.tools.remove({path: '/'})"
    assert "Tool not available: remove" in await refusal("a.js", source, tools=[add])


async def test_a_path_that_is_missing_is_told_in_the_words_of_the_script() -> None:
    source = "export default async function run(input, ctx) { return ctx.workspace.readFile(input.path) }"
    with pytest.raises(ToolError, match="path is a text, and not missing"):
        await ran("a.js", source, workspace_instance=files(), input={})
    with pytest.raises(ToolError, match="path is a text, and not an object"):
        await ran("a.js", source, workspace_instance=files(), input={"path": {}})
