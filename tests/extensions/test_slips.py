"""Slips of the pen in sources and manifests: told where they are made, with what was meant."""

# ruff: noqa: E501 - sources stand as they are

from __future__ import annotations

import logging
from typing import Any

import pytest

from everthink.errors import ExtensionError, InvalidSettings, ToolError
from everthink.extensions import Extension, ExtensionManager, create_extension_tools
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

from .sources import call, hooks, one_tool
from .test_turns import answers

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

NAMED: dict[str, Any] = {"name": "x", "version": "1"}
IN_PYTHON = "def run(args, host):\n    return 1\n"


def tool(fields: str) -> str:
    """A source with one tool of these fields."""
    return f"({{ tools: {{ a: {{ {fields} }} }} }})"


# --- sources


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (tool("descripton: 'x', execute() {}"), r"'a' of 'x' has a field 'descripton'.*Did you mean 'description'"),
        (tool("description: 'x', excute() {}"), "'excute', which nothing reads. Did you mean 'execute'"),
        (tool("inputSchem: {}, execute() {}"), "Did you mean 'parameters'"),
        (tool("inputSchema: {}, execute() {}"), "Did you mean 'parameters'"),
        (tool("params: {}, execute() {}"), "Did you mean 'parameters'"),
        (tool("requires: [], execute() {}"), "Did you mean 'required'"),
        (tool("run() {}"), "Did you mean 'execute'"),
        (tool("needsApproval: true, execute() {}"), "nobody would be asked"),
        ("({ toosl: { a: { execute() {} } }, hooks: {} })", "Did you mean 'tools'"),
        ("({ tools: { a: { execute() {} } }, hook: {} })", "Did you mean 'hooks'"),
        ("({ tools: [{ name: 'a', execute() {} }] })", "Put tools below `tools`"),
        ("({ hooks: { beforeTrun() {} } })", "has a hook 'beforeTrun', which nobody calls. Did you mean 'beforeTurn'"),
        ("({ hooks: { onStep() {} } })", "Did you mean 'onStepFinish'"),
        ("({ hooks: { beforeTurn() {}, onChunks() {} } })", "Did you mean 'onChunk'"),
        ("({ hooks: { beforeTurn: 'later' } })", "The hook 'beforeTurn' of 'x' is no function"),
        (tool("parameters: { text: {} }, required: ['txet'], execute() {}"), "requires 'txet'.*Did you mean 'text'"),
        (tool("required: ['text'], execute() {}"), "requires 'text', which is none of its parameters. Describe it"),
        (tool("parameters: { text: { type: 'strnig' } }, execute() {}"), "Did you mean 'string'"),
        (tool("parameters: { n: { type: 'int' } }, execute() {}"), "Did you mean 'integer'"),
        (tool("parameters: { text: { tpye: 'string' } }, execute() {}"), "has 'tpye'.*Did you mean 'type'"),
        (f"{IN_PYTHON}tools = {{'a': {{'execute': run}}}}\n", "It looks like Python: load it with language='python'"),
        ("words.js", r"the name of a file, and no code. Read it: Path\('words.js'\).read_text\(\)"),
    ],
)  # fmt: skip
async def test_a_slip_in_a_source_is_refused_with_what_was_meant(
    manager: ExtensionManager, source: str, said: str
) -> None:
    with pytest.raises(ExtensionError, match=said):
        await manager.load(NAMED, source)
    assert manager.list() == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("tools = {'a': {'excute': run}}", "Did you mean 'execute'"),
        ("tools = {'a': {'execute': 'run'}}", "has no function `execute`"),
        ("tools = {'a': {'execute': run, 'descripton': 'x'}}", "Did you mean 'description'"),
        ("hooks = {'before_trun': run}", "Did you mean 'before_turn'"),
        ("hooks = {'before_turn': 'run'}", "The hook 'before_turn' of 'x' is no function"),
        ("tool = {'a': {'execute': run}}\nhooks = {'before_turn': run}", "Did you mean 'tools'"),
        ("tools = [run]", "It has dictionaries `tools`, `hooks` or both"),
        ("tool = {}", "It has dictionaries `tools`, `hooks` or both"),
    ],
)
async def test_in_python_too(manager: ExtensionManager, source: str, said: str) -> None:
    with pytest.raises(ExtensionError, match=said):
        await manager.load(NAMED, f"{IN_PYTHON}{source}\n", language="python")


async def test_javascript_that_is_loaded_as_python_says_so(manager: ExtensionManager) -> None:
    with pytest.raises(ExtensionError, match="It looks like JavaScript: load it with language='javascript'"):
        await manager.load(NAMED, "({ tools: { a: { execute() {} } } })", language="python")


async def test_what_nothing_reads_and_is_no_slip_is_a_note(
    manager: ExtensionManager, caplog: pytest.LogCaptureFixture
) -> None:
    source = """({
      name: 'x', version: '1', tools: { a: { title: 'A', inputSchema: {}, parameters: {}, execute() {} } },
      hooks: { beforeStep() {}, onChatResponse() {}, beforeTurn() {} },
    })"""
    with caplog.at_level(logging.WARNING):
        info = await manager.load(NAMED, source)
        empty = await manager.load({"name": "empty", "version": "1"}, "({ tools: {} })")

    assert (info.tools, info.hooks) == (("x_a",), ("before_turn",))
    assert [note.partition(". ")[0] for note in info.notes] == [
        "'x' has a field 'name', which nothing reads",
        "'x' has a field 'version', which nothing reads",
        "The tool 'a' of 'x' has a field 'title', which nothing reads",
        "The tool 'a' of 'x' has a field 'inputSchema', which nothing reads",
        "it has hooks that extensions do not hear: beforeStep, onChatResponse",
    ]
    assert empty.notes == ("it has neither a tool nor a hook that is heard",)
    assert "the extension 'x': it has hooks that extensions do not hear" in caplog.text
    one: Any = manager.get("x")
    assert list(one.printed) == [f"note: {note}" for note in info.notes]  # where people look, on the page


async def test_variables_of_a_source_in_python_are_its_own(manager: ExtensionManager) -> None:
    source = f"LIMITS = {{'a': 1}}\n{IN_PYTHON}tools = {{'a': {{'execute': run}}}}\nhooks = {{'beforeTurn': run}}\n"
    info = await manager.load(NAMED, source, language="python")

    assert (info.notes, info.tools, info.hooks) == ((), ("x_a",), ("before_turn",))
    [one] = manager.get_hook_subscribers("before_turn")
    assert await one.hook("before_turn", {}) is None


# --- manifests


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"permisions": {}}, "Did you mean 'permissions'"),
        ({"permissions": {"workspce": "read"}}, "Did you mean 'workspace'"),
        ({"permissions": {"context": {"raed": "all"}}}, "Did you mean 'read'"),
        ({"permissions": {"session": {"sendMesage": True}}}, "Did you mean 'send_message'"),
        ({"permissions": {"network": ["https://api.example.com"]}}, "Write it without scheme"),
        ({"hooks": ["beforeTrun"]}, "Did you mean 'before_turn'"),
        ({"context": [{"label": "a", "type": "writeable"}]}, "Did you mean 'writable'"),
        ({"context": [{"label": "a", "maxToken": 5}]}, "Did you mean 'max_tokens'"),
        ({"tools": ["conut"]}, "names the tool 'conut', which its source has not. Did you mean 'count'"),
        ({"tools": ["x_count"]}, "names the tool 'x_count', which its source has not. Did you mean 'count'"),
    ],
)
async def test_a_slip_in_a_manifest_is_refused_with_what_was_meant(
    manager: ExtensionManager, given: Any, said: str
) -> None:
    with pytest.raises((ExtensionError, InvalidSettings), match=said):
        await manager.load({**NAMED, **given}, "({ tools: { count: { execute() {} } } })")


# --- a model's


async def test_a_model_reads_its_slips_and_what_of_its_source_is_not_used(open_app: OpenApp) -> None:
    def load(source: str, **given: Any) -> Any:
        return calls("load_extension", name="x", version="1", source=source, **given)

    good = "({ tools: { a: { title: 'A', execute() {} } }, hooks: { onChunk() {} } })"
    model = ScriptedModel(
        load(tool("excute() {}")), load("({ hooks: { beforeTrun() {} } })"), load(good), says("1")
    )
    cls = assistant(model, get_tools=lambda self: create_extension_tools())
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    first, second, loaded = answers(model.last_request)
    assert "Did you mean 'execute'?" in first
    assert "Did you mean 'beforeTurn'?" in second
    assert loaded["loaded"] is True
    assert [note.partition(":")[0].partition(",")[0] for note in loaded["notes"]] == [
        "The tool 'a' of 'x' has a field 'title'",
        "its source has hooks that its manifest does not name; they are left out",
    ]


# --- while it runs


async def test_without_rights_there_is_no_host_and_the_error_says_so(manager: ExtensionManager) -> None:
    await manager.load(one_tool("async (args, host) => host.readFile('/a')"))
    await manager.load(
        {"name": "py", "version": "1"},
        "async def run(args, host):\n    return await host.read_file('/a')\ntools = {'run': {'execute': run}}\n",
        language="python",
    )
    for name in ("one_run", "py_run"):
        with pytest.raises(ToolError, match=r"`host` is (null|None): its manifest was granted no rights"):
            await call(manager, name)
    await manager.load(one_tool("async (args, host) => args.x.y", "own"))
    with pytest.raises(ToolError) as own:
        await call(manager, "own_run")
    assert "host" not in str(own.value)


async def test_what_before_turn_returns_and_nobody_knows_is_told_with_the_nearest(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("1"))
    tools = Extension({"name": "words", "version": "1"}, "({ tools: { count: { execute() {} } } })")
    cls = assistant(
        model,
        extensions=[
            tools,
            hooks("beforeTurn: () => ({ maxStep: 3, model: 'x', activeTools: ['count'] })"),
        ],
    )
    app = await open_app(cls)

    with caplog.at_level(logging.WARNING):
        await app.agent(cls, "a").save_messages("Hi")

    assert "may not change max_step of a turn; it is left out. Did you mean 'max_steps'?" in caplog.text
    assert "There is no tool 'count' in this turn. Did you mean 'words_count'?" in caplog.text
    one: Any = (await live(app.agent(cls, "a"))).extension_manager.get("hooks")
    assert any("max_step" in line for line in one.printed)


async def test_the_label_of_its_own_block_without_its_prefix_is_told(open_app: OpenApp) -> None:
    own = {"permissions": {"context": {"read": "own", "write": "own"}}, "context": [{"label": "notes"}]}
    cls = assistant(ScriptedModel(), extensions=[one_tool("(_, host) => host.getContext('notes')", **own)])
    agent = await live((await open_app(cls)).agent(cls, "a"))

    with pytest.raises(ToolError, match="Its own block is called 'one_notes'"):
        await call(agent.extension_manager, "one_run")
