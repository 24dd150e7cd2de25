"""Extensions in turns of a real agent, on a real database: tools, hooks, blocks, restarts."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from everthink import Allow, Think, TurnConfig, tool
from everthink.errors import ToolError
from everthink.extensions import Extension
from everthink.models.port import ToolMessage, ToolResultPart
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

from .sources import LOGGER, WORDS, call, hooks, one_tool, words

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
pytest.importorskip("quickjs_rs")

STORES = {"permissions": {"storage": True}}
STORES_AND_WRITES = {"permissions": {"storage": True, "workspace": "read-write"}}


def logger(name: str = "logger") -> Extension:
    return Extension({"name": name, "version": "1", **STORES_AND_WRITES}, LOGGER)


async def kept(agent: Think, key: str, extension: str = "logger") -> Any:
    """What an extension has kept under a key."""
    sql = "SELECT value FROM extension_values WHERE agent = :agent AND extension = ? AND key = ?"
    rows = await agent._home.store.fetch(sql, extension, key)  # pyright: ignore[reportPrivateUsage]
    return json.loads(rows[0][0]) if rows else None


def answers(request: Any) -> list[Any]:
    """The results of tools that a model was shown."""
    parts = [part for one in request.messages if isinstance(one, ToolMessage) for part in one.content]
    return [part.output for part in parts if isinstance(part, ToolResultPart)]


# --- tools


async def test_a_model_calls_a_tool_of_an_extension_that_the_agent_declares(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("words_count", text="to be or not"), says("Four."))
    cls = assistant(model, extensions=[words()])
    app = await open_app(cls)

    result = await app.agent(cls, "a").save_messages("How many words?")

    first, second = model.requests
    assert [tool.name for tool in first.tools] == ["words_count", "words_shout"]
    assert first.tools[0].description == "[words] Count words"
    assert "come from extensions" in first.system
    assert answers(second) == [{"words": 4}]
    assert result.text == "Four."


async def test_extensions_may_be_worked_out_for_each_agent_and_written_as_in_the_original(
    open_app: OpenApp,
) -> None:
    class Assistant(Think):
        model = ScriptedModel(says("One."), says("Two."))
        include_workspace_tools = False

        async def get_extensions(self) -> Any:
            manifest = {"name": "words", "version": "1.0.0", "permissions": {"network": False}}
            return [{"manifest": manifest, "source": WORDS}] if self.name == "a" else []

    app = await open_app(Assistant)
    await app.agent(Assistant, "a").save_messages("Hi")
    await app.agent(Assistant, "b").save_messages("Hi")

    assert [len(request.tools) for request in Assistant.model.requests] == [2, 0]


async def test_an_agent_without_extensions_has_nothing_of_them(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hi."))
    cls = assistant(model)
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    agent = await live(app.agent(cls, "a"))
    assert agent._home.chat.extensions.loaded is None
    assert "extension" not in model.last_request.system


async def test_no_tool_of_an_extension_takes_the_place_of_one_of_the_agent(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def words_count(text: str) -> str:
        """Mine."""
        return "mine"

    model = ScriptedModel(calls("words_count", text="a"), says("Done."))
    cls = assistant(model, extensions=[words()], get_tools=lambda self: [words_count])
    app = await open_app(cls)

    with caplog.at_level(logging.WARNING):
        await app.agent(cls, "a").save_messages("Hi")

    assert answers(model.last_request) == ["mine"]
    assert "'words_count' of an extension is left out" in caplog.text


async def test_a_tool_that_fails_is_an_error_that_the_model_reads_and_the_turn_goes_on(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(calls("one_run"), says("It failed."))
    cls = assistant(model, extensions=[one_tool("async () => { throw new Error('out of ink') }")])
    app = await open_app(cls)

    result = await app.agent(cls, "a").save_messages("Print.")

    assert answers(model.last_request) == ["out of ink"]
    assert result.status == "completed"


async def test_what_is_loaded_while_an_agent_runs_is_offered_from_the_next_turn_on(
    open_app: OpenApp,
) -> None:
    class Assistant(Think):
        include_workspace_tools = False
        model = ScriptedModel(
            calls("grow"), calls("words_count", text="a b"), says("Not yet."),
            calls("words_count", text="a b"), says("Two."),
        )  # fmt: skip

        @tool
        async def grow(self) -> list[str]:
            """Load an extension."""
            info = await self.extension_manager.load(words())
            return list(info.tools)

    app = await open_app(Assistant)
    agent = app.agent(Assistant, "a")
    await agent.save_messages("Grow.")
    await agent.save_messages("Count.")

    requests = Assistant.model.requests
    assert answers(requests[1]) == [["words_count", "words_shout"]]
    assert "There is no tool 'words_count'" in str(answers(requests[2])[-1])
    assert answers(requests[4])[-1] == {"words": 2}


# --- hooks


@pytest.mark.case(188)
@pytest.mark.memory_case(587)
async def test_before_a_call_an_extension_sees_tool_name_and_input(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("words_shout", text="hey"), says("Done."))
    cls = assistant(model, extensions=[words(), logger()])
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    seen = await kept(await live(app.agent(cls, "a")), "before")
    call_id = seen.pop("toolCallId")
    assert isinstance(call_id, str)
    assert seen == {"toolName": "words_shout", "input": {"text": "hey"}}


async def test_before_a_call_it_sees_the_input_that_the_agent_has_chosen(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("words_shout", text="secret"), says("Done."))
    cls = assistant(
        model,
        extensions=[words(), logger()],
        before_tool_call=lambda self, call: Allow(input={"text": "***"}),
    )
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    assert (await kept(await live(app.agent(cls, "a")), "before"))["input"] == {"text": "***"}
    assert answers(model.last_request) == ["***"]


@pytest.mark.case(189)
@pytest.mark.memory_case(588, 591)
async def test_after_a_call_it_sees_success_output_and_duration_and_writes_a_file_of_it(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(calls("words_shout", text="hey"), calls("one_run"), says("Done."))
    failing = one_tool("async () => { throw new Error('out of ink') }")
    cls = assistant(model, extensions=[words(), failing, logger()])
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    agent = await live(app.agent(cls, "a"))
    well = json.loads(await agent.workspace.read_file("/logs/words_shout.json") or "")
    badly = json.loads(await agent.workspace.read_file("/logs/one_run.json") or "")
    assert (well["success"], well["output"], well["stepNumber"]) == (True, "HEY", 0)
    assert isinstance(well["durationMs"], int | float)
    assert well["durationMs"] > 0
    assert (badly["success"], "output" in badly) == (False, False)
    assert badly["error"] == {"name": "ToolError", "message": "out of ink", "stack": "ToolError: out of ink"}


@pytest.mark.case(190)
@pytest.mark.memory_case(589)
async def test_after_a_step_it_sees_its_number_and_why_it_ended(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("words_shout", text="hey"), says("Done."))
    cls = assistant(model, extensions=[words(), logger()])
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    agent = await live(app.agent(cls, "a"))
    first, second = await kept(agent, "step 0"), await kept(agent, "step 1")
    assert (first["stepNumber"], first["finishReason"]) == (0, "tool-calls")
    assert (first["toolCallCount"], first["toolResultCount"], first["text"]) == (1, 1, "")
    assert (second["stepNumber"], second["finishReason"], second["text"]) == (1, "stop", "Done.")
    assert set(second["usage"]) == {
        "inputTokens", "outputTokens", "totalTokens", "reasoningTokens", "cachedInputTokens"
    }  # fmt: skip


@pytest.mark.case(191)
@pytest.mark.memory_case(590)
async def test_it_sees_every_piece_of_an_answer_in_order_by_its_type(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("words_shout", text="hey"), says("One. ", "Two. ", "Three."))
    cls = assistant(model, extensions=[words(), logger()])
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    seen = await kept(await live(app.agent(cls, "a")), "chunks")
    texts = [one for one in seen if one["type"] == "text-delta"]
    assert "".join(one["text"] for one in texts) == "One. Two. Three."
    [call] = [one for one in seen if one["type"] == "tool-call"]
    assert call["toolName"] == "words_shout"
    assert [one["type"] for one in seen].index("tool-result") > seen.index(call)


@pytest.mark.case(192)
async def test_a_hook_that_is_slow_or_raises_is_passed_over_with_a_warning(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("Done."))
    slow = hooks("beforeTurn: () => new Promise((done) => setTimeout(done, 60000))", name="slow")
    broken = hooks("beforeTurn() { throw new Error('broken hook') }", name="broken")
    nonsense = hooks("beforeTurn: () => 'no object'", name="nonsense")
    good = hooks("beforeTurn: ({ system }) => ({ system: `${system} Be brief.` })", name="good")
    cls = assistant(model, extensions=[slow, broken, nonsense, good], hook_timeout=0.5, system_prompt="Hm.")
    app = await open_app(cls)

    with caplog.at_level(logging.WARNING):
        result = await app.agent(cls, "a").save_messages("Hi")

    assert result.status == "completed"
    assert model.last_request.system.endswith("Be brief.")
    assert "before_turn of the extension 'slow'" in caplog.text
    assert "before_turn of the extension 'broken' failed: broken hook" in caplog.text


@pytest.mark.case(192)
async def test_what_extensions_say_before_a_turn_is_merged_field_by_field(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    first = hooks(
        """beforeTurn: ({ system, toolNames, messageCount, continuation, modelId, body }) => ({
          system: `${system}|first ${toolNames.length} ${messageCount} ${continuation} ${modelId} ${body}`,
          activeTools: ['words_count'], temperature: 0.1, topP: 0.5, maxOutputTokens: 100, seed: 7,
          headers: { a: '1', b: '1' }, providerOptions: { x: { one: 1 } }, timeout: { totalMs: 60000 },
          model: 'other', tools: {}, stopWhen: 'never', output: {},
        })""",
        name="first",
    )
    second = hooks(
        """beforeTurn: ({ system, toolNames }) => ({
          system: `${system}|second ${toolNames}`, temperature: 0.2, headers: { b: '2' },
          providerOptions: { y: {} }, maxSteps: 'three',
          toolChoice: { type: 'tool', toolName: 'words_count' }, stopSequences: ['END'],
        })""",
        name="second",
    )
    model = ScriptedModel(calls("words_count", text="a"), says("Done."), name="scripted")
    cls = assistant(
        model,
        extensions=[words(), first, second],
        before_turn=lambda self, turn: TurnConfig(instructions="mine", top_k=3, headers={"c": "3"}),
    )
    app = await open_app(cls)

    with caplog.at_level(logging.WARNING):
        await app.agent(cls, "a").save_messages("Hi")

    request = model.requests[0]
    assert request.system == "mine|first 2 1 false scripted undefined|second words_count"
    assert [tool.name for tool in request.tools] == ["words_count"]
    assert request.tool_choice == "tool:words_count"
    settings = request.settings
    assert (settings.temperature, settings.top_p, settings.top_k, settings.seed) == (0.2, 0.5, 3, 7)
    assert (settings.max_output_tokens, settings.stop_sequences) == (100, ["END"])
    assert settings.headers == {"a": "1", "b": "2", "c": "3"}
    assert settings.provider_options == {"x": {"one": 1}, "y": {}}
    for name in ("model", "tools", "stop_when", "output"):
        assert f"the extension 'first' may not change {name} of a turn" in caplog.text
    assert "the extension 'second' gives a max_steps that is left out" in caplog.text


async def test_messages_that_an_extension_gives_are_what_the_model_reads(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Done."))
    other = hooks("beforeTurn: () => ({ messages: [{ role: 'user', content: 'Something else.' }] })")
    cls = assistant(model, extensions=[other])
    app = await open_app(cls)

    result = await app.agent(cls, "a").save_messages("Hi")

    assert "Something else." in str(model.last_request.messages)
    assert "Hi" not in str(model.last_request.messages)
    assert result.status == "completed"


async def test_a_tool_that_there_is_not_is_not_chosen(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("Done."))
    wrong = hooks("beforeTurn: () => ({ activeTools: ['nothing'], toolChoice: 'tool:nothing' })")
    cls = assistant(model, extensions=[words(), wrong])
    app = await open_app(cls)

    with caplog.at_level(logging.WARNING):
        result = await app.agent(cls, "a").save_messages("Hi")

    assert result.status == "completed"
    assert [tool.name for tool in model.last_request.tools] == ["words_count", "words_shout"]
    assert caplog.text.count("There is no tool 'nothing' in this turn") == 2


async def test_hooks_are_heard_in_load_order_after_the_agents_own(open_app: OpenApp) -> None:
    class Assistant(Think):
        model = ScriptedModel(says("Done."))
        include_workspace_tools = False
        extensions = [  # noqa: RUF012
            hooks("beforeTurn: ({ system }) => ({ system: system + ' b' })", name="zeta"),
            hooks("beforeTurn: ({ system }) => ({ system: system + ' c' })", name="alpha"),
        ]

        def before_turn(self, turn: Any) -> Any:
            return TurnConfig(system="a")

    app = await open_app(Assistant)
    await app.agent(Assistant, "a").save_messages("Hi")

    assert Assistant.model.last_request.system == "a b c"


# --- restarts


async def test_what_was_loaded_is_there_after_a_restart_with_what_it_has_kept(open_app: OpenApp) -> None:
    source = "async (_, host) => { await host.storage.set('n', 1 + ((await host.storage.get('n')) ?? 0)); return host.storage.get('n') }"  # noqa: E501
    model = ScriptedModel(calls("one_run"), says("1"), calls("one_run"), says("2"))
    cls = assistant(model)
    app = await open_app(cls)
    agent = app.agent(cls, "a")
    await (await live(agent)).extension_manager.load(one_tool(source, **STORES))
    await agent.save_messages("Hi")

    await app.evict(cls, "a")
    await agent.save_messages("Again.")

    assert answers(model.requests[1]) == [1]
    assert answers(model.requests[3])[-1] == 2
    [info] = (await live(agent)).extension_manager.list()
    assert (info.name, info.origin, info.permissions.storage) == ("one", "code", True)


@pytest.mark.memory_case(611)
async def test_an_extension_that_is_no_longer_declared_does_not_come_back(open_app: OpenApp) -> None:
    model = ScriptedModel(says("One."), says("Two."))
    cls = assistant(model, extensions=[words()])
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("Hi")

    await app.evict(cls, "a")
    cls.extensions = []
    await app.agent(cls, "a").save_messages("Hi")

    assert [len(request.tools) for request in model.requests] == [2, 0]


@pytest.mark.memory_case(611)
async def test_an_extension_that_cannot_be_loaded_is_told_and_the_agent_serves_with_the_others(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(says("Hello."))
    broken = Extension({"name": "broken", "version": "1"}, "({ tools: {")
    slip = {"manifest": {"name": "slip", "version": "1", "permisions": {}}, "source": WORDS}
    cls = assistant(model, extensions=[broken, slip, words(), words()])
    app = await open_app(cls)

    result = await app.agent(cls, "a").save_messages("Hi")

    assert result.status == "completed"
    assert [tool.name for tool in model.last_request.tools] == ["words_count", "words_shout"]
    first, slipped, second = (await live(app.agent(cls, "a"))).get_on_start_degradations()
    assert slipped.step == "the extension 'slip'"
    assert "Did you mean 'permissions'?" in slipped.error
    assert first.step == "the extension 'broken'"
    assert "SyntaxError" in first.error
    assert (second.step, "already loaded" in second.error) == ("the extension 'words'", True)


async def test_an_extension_that_was_unloaded_is_gone_after_a_restart_with_all_it_has_kept(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(calls("one_run"), says("1"), says("2"))
    cls = assistant(model)
    app = await open_app(cls)
    agent = app.agent(cls, "a")
    manager = (await live(agent)).extension_manager
    await manager.load(one_tool("async (_, host) => host.storage.set('k', 'v')", **STORES))
    await agent.save_messages("Hi")
    assert await kept(await live(agent), "k", "one") == "v"

    await manager.unload("one")
    await app.evict(cls, "a")
    await agent.save_messages("Hi")

    assert list(model.last_request.tools) == []
    assert await kept(await live(agent), "k", "one") is None


# --- context blocks

NOTES = {
    "permissions": {"context": {"read": "own", "write": "own"}},
    "context": [
        {"label": "notes", "description": "What the extension knows", "maxTokens": 100},
        {"label": "facts", "type": "readonly"},
    ],
}
NOTING = "async ({ text }, host) => { await host.setContext('one_notes', text); await host.setContext('one_facts', 'Fact.'); return host.getContext('one_notes') }"  # noqa: E501


async def test_the_blocks_of_an_extension_are_in_the_prompt_under_its_name(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("one_run", text="Tea."), says("1"), says("2"))
    cls = assistant(model, extensions=[one_tool(NOTING, **NOTES)])
    app = await open_app(cls)
    agent = app.agent(cls, "a")

    await agent.save_messages("Hi")
    await (await live(agent)).session.refresh_system_prompt()
    await agent.save_messages("Hi")

    assert "ONE_NOTES (What the extension knows) [0% — 0/100 tokens] [writable]" in model.requests[0].system
    assert answers(model.requests[1]) == ["Tea."]
    assert "Tea." in model.requests[2].system
    assert "ONE_FACTS [readonly]" in model.requests[2].system
    assert "Fact." in model.requests[2].system


async def test_the_model_does_not_write_a_block_that_is_readonly(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("set_context", label="one_facts", content="Mine."), says("No."))
    cls = assistant(model, extensions=[one_tool(NOTING, **NOTES)])
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    assert "one_facts" in str(answers(model.last_request))
    agent = await live(app.agent(cls, "a"))
    assert agent.session.get_context_block("one_facts").content == ""


async def test_blocks_of_what_is_loaded_while_an_agent_runs_are_there_at_once_and_go_with_it(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(says("1"), says("2"), says("3"), says("4"))
    cls = assistant(model, configure_session=lambda self, session: session.with_cached_prompt())
    app = await open_app(cls)
    agent = app.agent(cls, "a")
    await agent.save_messages("Hi")
    manager = (await live(agent)).extension_manager

    info = await manager.load(one_tool(NOTING, **NOTES))
    await agent.save_messages("Hi")
    await app.evict(cls, "a")
    await agent.save_messages("Hi")
    await (await live(agent)).extension_manager.unload("one")
    await agent.save_messages("Hi")

    assert info.context_labels == ("one_notes", "one_facts")
    assert ["ONE_NOTES" in request.system for request in model.requests] == [False, True, True, False]


async def test_a_kept_prompt_is_made_anew_when_an_extension_with_blocks_is_declared(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(says("1"), says("2"))
    cls = assistant(
        model,
        configure_session=lambda self, session: session.with_context("memory").with_cached_prompt(),
    )
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("Hi")

    await app.evict(cls, "a")
    cls.extensions = [one_tool(NOTING, **NOTES)]
    await app.agent(cls, "a").save_messages("Hi")

    assert ["ONE_NOTES" in request.system for request in model.requests] == [False, True]


async def test_the_prompt_of_an_agent_stays_when_only_extensions_bring_blocks(open_app: OpenApp) -> None:
    class Assistant(Think):
        model = ScriptedModel(says("1"), says("2"), says("3"))
        include_workspace_tools = False
        extensions = [one_tool(NOTING, **NOTES)]  # noqa: RUF012

        def get_system_prompt(self) -> str:
            return f"You are turn {len(self.messages)}."

    app = await open_app(Assistant)
    for _ in range(2):
        await app.agent(Assistant, "a").save_messages("Hi")
    await (await live(app.agent(Assistant, "a"))).extension_manager.unload("one")
    await app.agent(Assistant, "a").save_messages("Hi")

    first, second, third = (request.system for request in Assistant.model.requests)
    assert first.startswith("You are turn 1.\n\n")
    assert second.startswith("You are turn 3.\n\n")
    assert "ONE_NOTES" in first
    assert third.startswith("You are turn 5.")
    assert "ONE_NOTES" not in third


async def test_blocks_of_the_agent_take_the_place_of_its_prompt_with_extensions_as_without(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(says("1"))
    cls = assistant(
        model,
        system_prompt="You are nobody.",
        extensions=[one_tool(NOTING, **NOTES)],
        configure_session=lambda self, session: session.with_context("soul", provider="I am Sam."),
    )
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    assert "I am Sam." in model.last_request.system
    assert "ONE_NOTES" in model.last_request.system
    assert "You are nobody." not in model.last_request.system


async def test_a_block_of_the_agent_is_never_replaced_by_one_of_an_extension(open_app: OpenApp) -> None:
    model = ScriptedModel(says("1"))
    cls = assistant(
        model,
        extensions=[one_tool(NOTING, **NOTES)],
        configure_session=lambda self, session: session.with_context("one_notes", description="Mine"),
    )
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    assert "ONE_NOTES (Mine)" in model.last_request.system
    agent = await live(app.agent(cls, "a"))
    with pytest.raises(ToolError, match="no permission for context write of 'one_notes'"):
        await call(agent.extension_manager, "one_run", text="Taken over.")
    await agent.extension_manager.unload("one")
    block = agent.session.get_context_block("one_notes")
    assert (block.description, block.content) == ("Mine", "")
    await agent.extension_manager.load(one_tool(NOTING, **NOTES))
    with pytest.raises(ToolError, match="no permission for context write of 'one_notes'"):
        await call(agent.extension_manager, "one_run", text="Taken over.")


# --- erasing and exporting


async def test_what_an_agent_has_loaded_is_exported_and_erased_with_it(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("one_run"), says("1"))
    cls = assistant(model)
    app = await open_app(cls)
    agent = app.agent(cls, "a")
    body = "async (_, host) => host.storage.set('k', { n: 1 })"
    await (await live(agent)).extension_manager.load(one_tool(body, **STORES))
    await agent.save_messages("Hi")

    lines = [line async for line in app.export(cls, "a")]
    await app.erase(cls, "a")

    [extension] = [line for line in lines if line["kind"] == "extension"]
    [value] = [line for line in lines if line["kind"] == "extension_value"]
    assert extension["manifest"]["permissions"]["storage"] is True
    assert (value["extension"], value["key"], value["value"]) == ("one", "k", {"n": 1})
    fresh = await live(app.agent(cls, "a"))
    assert fresh.extension_manager.list() == []
    assert await kept(fresh, "k", "one") is None
