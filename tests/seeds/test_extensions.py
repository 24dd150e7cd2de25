"""What the documents say of extensions, sentence by sentence, and their examples."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from everthink import Think, ToolContext, TurnConfig
from everthink.extensions import Extension, ExtensionManager, create_extension_tools
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.extensions.sources import WORDS, hooks, one_tool, words
from tests.extensions.test_turns import answers
from tests.support.agents import assistant, live

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
pytest.importorskip("quickjs_rs")

# As they stand in the documents. Comments stand where they had no code.
HOOKS_PAGE = """// extension source
({
  tools: {
    /* ... */
  },
  hooks: {
    beforeTurn: async (snapshot, host) => {
      /* may return TurnConfig */
    },
    beforeToolCall: async (snapshot, host) => {
      /* observation */
    },
    afterToolCall: async (snapshot, host) => {
      await host?.writeFile(
        `logs/${snapshot.toolName}.json`,
        JSON.stringify(snapshot)
      );
    },
    onStepFinish: async (snapshot, host) => {
      /* observation */
    },
    onChunk: async (snapshot, host) => {
      /* observation — fires per token, use sparingly */
    }
  }
});
"""
README = """// extension source (loaded via getExtensions())
({
  tools: {
    /* ... */
  },
  hooks: {
    beforeToolCall: async (snapshot, host) => {
      /* observation */
    },
    afterToolCall: async (snapshot, host) => {
      await host?.writeFile(
        `logs/${snapshot.toolName}.json`,
        JSON.stringify(snapshot)
      );
    },
    onStepFinish: async (snapshot, host) => {
      /* observation */
    }
    // onChunk is also supported but fires per token — use sparingly.
  }
});
"""
MAY_WRITE = {"permissions": {"workspace": "read-write"}}


async def logged_by(open_app: OpenApp, source: str, **manifest: Any) -> Any:
    """What the extension of an example wrote about a call, in a turn with one."""
    model = ScriptedModel(calls("words_count", text="a b"), says("Two."))
    logger = Extension({"name": "logger", "version": "1.0.0", **manifest}, source)
    cls = assistant(model, extensions=[words(), logger])
    app = await open_app(cls)
    result = await app.agent(cls, "a").save_messages("Count.")
    assert result.text == "Two."
    text = await (await live(app.agent(cls, "a"))).workspace.read_file("/logs/words_count.json")
    return None if text is None else json.loads(text)


# --- the examples


@pytest.mark.example("hooks-repository", 28)
async def test_the_hooks_of_the_page_about_hooks_run_as_they_are_written(open_app: OpenApp) -> None:
    seen = await logged_by(open_app, HOOKS_PAGE, **MAY_WRITE)

    assert (seen["toolName"], seen["success"], seen["output"]) == ("words_count", True, {"words": 2})


@pytest.mark.example("readme", 17)
async def test_the_hooks_of_the_readme_run_as_they_are_written(open_app: OpenApp) -> None:
    seen = await logged_by(
        open_app, README, **MAY_WRITE, hooks=["beforeToolCall", "afterToolCall", "onStepFinish"]
    )

    assert (seen["toolName"], seen["input"]) == ("words_count", {"text": "a b"})


@pytest.mark.example("readme", 28)
async def test_tools_to_load_extensions_and_those_that_are_loaded_are_given_together(
    open_app: OpenApp,
) -> None:
    extensions = ExtensionManager()

    class Assistant(Think):
        model = ScriptedModel(
            calls("load_extension", name="words", version="1.0.0", source=WORDS), says("Loaded."),
            calls("words_count", text="a b c"), says("Three."),
        )  # fmt: skip
        include_workspace_tools = False

        def get_tools(self) -> Any:
            return {**create_extension_tools(manager=extensions), **extensions.get_tools()}

    app = await open_app(Assistant)
    await app.agent(Assistant).save_messages("You need to count.")
    await app.agent(Assistant).save_messages("Count.")
    await extensions.aclose()

    assert answers(Assistant.model.last_request)[-1] == {"words": 3}


# --- the sentences


async def test_seed_extensions_subscribe_to_hooks_via_the_hooks_array_of_their_manifest(
    open_app: OpenApp,
) -> None:
    source = "({ hooks: { beforeTurn: () => ({ system: 'one' }), onStepFinish: (_, host) => host.writeFile('/step', 'x') } })"
    model = ScriptedModel(says("Hi."))
    extension = Extension({"name": "x", "version": "1", "hooks": ["onStepFinish"], **MAY_WRITE}, source)
    cls = assistant(model, extensions=[extension])
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    assert model.last_request.system != "one"
    assert await (await live(app.agent(cls, "a"))).workspace.read_file("/step") == "x"


async def test_seed_handlers_are_dispatched_in_load_order_after_the_subclass_hook_has_run(
    open_app: OpenApp,
) -> None:
    adds = "beforeTurn: ({ system }) => ({ system: `${system} NAME` })"
    model = ScriptedModel(says("Hi."))
    cls = assistant(
        model,
        extensions=[hooks(adds.replace("NAME", name), name=name) for name in ("b", "a")],
        before_turn=lambda self, turn: TurnConfig(system="subclass"),
    )
    app = await open_app(cls)

    await app.agent(cls, "x").save_messages("Hi")

    assert model.last_request.system == "subclass b a"


async def test_seed_the_handler_receives_snapshot_and_host_symmetric_with_tool_execute(
    open_app: OpenApp,
) -> None:
    asked = "async (given, host) => host.writeFile('/tool', typeof given + typeof host.readFile)"
    source = f"({{ tools: {{ t: {{ execute: {asked} }} }}, hooks: {{ onStepFinish: {asked.replace('/tool', '/hook')} }} }})"
    model = ScriptedModel(calls("x_t"), says("Hi."))
    cls = assistant(model, extensions=[Extension({"name": "x", "version": "1", **MAY_WRITE}, source)])
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    workspace = (await live(app.agent(cls, "a"))).workspace
    assert [await workspace.read_file(path) for path in ("/tool", "/hook")] == ["objectfunction"] * 2


async def test_seed_host_is_null_when_no_permission_requires_the_bridge(open_app: OpenApp) -> None:
    assert await logged_by(open_app, HOOKS_PAGE) is None  # host?.writeFile does nothing
    manager = ExtensionManager()
    await manager.load(one_tool("async (_, host) => host === null"))
    assert await manager.get_tools()["one_run"].call({}, ToolContext()) is True
    await manager.aclose()


SHAPES = {
    "beforeTurn": {"system", "toolNames", "messageCount", "continuation", "modelId"},
    "beforeToolCall": {"toolName", "toolCallId", "input"},
    "afterToolCall": {"toolName", "toolCallId", "input", "stepNumber", "durationMs", "success", "output"},
    "onStepFinish": {
        "stepNumber", "finishReason", "text", "reasoningText", "toolCallCount", "toolResultCount", "usage",
        "providerMetadata",
    },
    "onChunk": {"type", "toolName", "toolCallId"},
}  # fmt: skip


@pytest.mark.parametrize("hook", SHAPES)
async def test_seed_a_snapshot_has_the_fields_of_the_table_and_is_plain_json(
    open_app: OpenApp, hook: str
) -> None:
    source = f"({{ hooks: {{ {hook}: async (snapshot, host) => {{ if (snapshot.type === undefined || snapshot.type === 'tool-call') await host.writeFile('/seen.json', JSON.stringify(snapshot)) }} }} }})"
    model = ScriptedModel(calls("words_count", text="a"), says("One."))
    cls = assistant(
        model, extensions=[words(), Extension({"name": "x", "version": "1", **MAY_WRITE}, source)]
    )
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    seen = json.loads(await (await live(app.agent(cls, "a"))).workspace.read_file("/seen.json") or "")
    assert set(seen) == SHAPES[hook]


async def test_seed_only_before_turn_honors_return_values(open_app: OpenApp) -> None:
    answer = "() => ({ system: 'Be brief.', maxSteps: 1, action: 'block', output: 'other', text: 'other' })"
    source = f"({{ hooks: {{ {', '.join(f'{hook}: {answer}' for hook in SHAPES)} }} }})"
    model = ScriptedModel(calls("words_count", text="a"))
    cls = assistant(model, extensions=[words(), Extension({"name": "x", "version": "1"}, source)])
    app = await open_app(cls)

    result = await app.agent(cls, "a").save_messages("Hi")

    assert model.last_request.system == "Be brief."
    assert len(model.requests) == 1  # max_steps counts
    assert result.message is not None
    assert result.message.tool_parts[0]["output"] == {"words": 1}
    assert "other" not in result.text


async def test_seed_errors_of_extension_hooks_are_caught_and_logged_and_do_not_abort_the_turn(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    throws = ", ".join(f"{hook}() {{ throw new Error('broken {hook}') }}" for hook in SHAPES)
    model = ScriptedModel(calls("words_count", text="a"), says("One."))
    cls = assistant(model, extensions=[words(), hooks(throws)])
    app = await open_app(cls)

    with caplog.at_level(logging.WARNING):
        result = await app.agent(cls, "a").save_messages("Hi")

    assert (result.status, result.text) == ("completed", "One.")
    for hook in SHAPES:
        assert f"broken {hook}" in caplog.text


async def test_seed_before_step_is_for_subclasses_only_and_not_dispatched_to_extensions(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("Hi."))
    cls = assistant(model, extensions=[hooks("beforeStep: () => ({ system: 'taken over' })")])
    app = await open_app(cls)

    with caplog.at_level(logging.WARNING):
        await app.agent(cls, "a").save_messages("Hi")

    assert model.last_request.system != "taken over"
    assert "hooks that extensions do not hear: beforeStep" in caplog.text


async def test_seed_get_extensions_declares_sandboxed_extensions_in_load_order_and_there_are_none_by_default(
    open_app: OpenApp,
) -> None:
    cls = assistant(ScriptedModel(), extensions=[words("b"), words("a")])
    plain = assistant(ScriptedModel())
    app = await open_app(cls)
    loaded = (await live(app.agent(cls, "x"))).extension_manager.list()

    assert [info.name for info in loaded] == ["b", "a"]
    assert list(plain.extensions) == []


async def test_seed_the_model_can_write_source_load_it_in_a_sandbox_and_use_the_new_tools_on_the_next_turn(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(
        calls("load_extension", name="words", version="1", source=WORDS), says("Loaded."),
        calls("words_shout", text="hey"), says("HEY"),
    )  # fmt: skip
    cls = assistant(model, get_tools=lambda self: create_extension_tools())
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("Hi")
    await app.agent(cls, "a").save_messages("Shout.")

    names = [[tool.name for tool in request.tools] for request in model.requests]
    assert ["words_shout" in one for one in names] == [False, False, True, True]
    assert answers(model.last_request)[-1] == "HEY"


async def test_seed_models_learn_about_extension_tools_only_when_they_are_exposed(open_app: OpenApp) -> None:
    model = ScriptedModel(says("1"), says("2"))
    with_them, without = assistant(model, extensions=[words()]), assistant(model)
    with_them.__name__ = "WithThem"
    app = await open_app(with_them, without)
    await app.agent(with_them, "a").save_messages("Hi")
    await app.agent(without, "a").save_messages("Hi")

    assert ["come from extensions" in request.system for request in model.requests] == [True, False]


async def test_seed_context_blocks_can_be_added_at_run_time_by_extensions(open_app: OpenApp) -> None:
    model = ScriptedModel(says("1"), says("2"))
    cls = assistant(model)
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("Hi")
    agent = await live(app.agent(cls, "a"))
    await agent.extension_manager.load(words(context=[{"label": "notes", "description": "User notes"}]))
    await app.agent(cls, "a").save_messages("Hi")

    assert ["WORDS_NOTES (User notes)" in request.system for request in model.requests] == [False, True]
