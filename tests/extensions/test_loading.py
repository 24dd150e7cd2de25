"""Extensions that a model loads: what it may give them, who is asked, and what is kept of it."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think, ToolContext
from everthink.codemode import create_execute_tool
from everthink.errors import InvalidSettings
from everthink.extensions import (
    Approval,
    ExtensionManager,
    ExtensionRequest,
    Permissions,
    Refuse,
    create_extension_tools,
)
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

from .sources import WORDS, WORDS_IN_PYTHON, words
from .test_turns import answers

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
pytest.importorskip("quickjs_rs")

SAVES = "({ tools: { save: { execute: async (_, host) => host.writeFile('/a.txt', 'Hello') } } })"


def load(name: str = "words", source: str = WORDS, **given: Any) -> Any:
    return calls("load_extension", name=name, version="1.0.0", source=source, **given)


def growing(model: Any, **members: Any) -> type[Think]:
    """An agent whose model may load extensions."""
    return assistant(model, get_tools=lambda self: create_extension_tools(), **members)


async def test_a_model_writes_a_tool_and_uses_it_in_the_next_turn(open_app: OpenApp) -> None:
    model = ScriptedModel(
        calls("list_extensions"), load(description="Words."), says("Loaded."),
        calls("words_count", text="a b c"), calls("list_extensions"), says("Three."),
    )  # fmt: skip
    cls = growing(model)
    app = await open_app(cls)
    agent = app.agent(cls, "a")

    await agent.save_messages("You need to count words.")
    await agent.save_messages("Count.")

    requests = model.requests
    assert answers(requests[1]) == [{"count": 0, "extensions": []}]
    loaded = answers(requests[2])[-1]
    assert (loaded["loaded"], loaded["name"], loaded["prefix"], loaded["version"]) == (
        True, "words", "words", "1.0.0"
    )  # fmt: skip
    assert loaded["tools"] == ["words_count", "words_shout"]
    assert "words_count" not in [tool.name for tool in requests[2].tools]
    assert "words_count" in [tool.name for tool in requests[3].tools]
    assert answers(requests[4])[-1] == {"words": 3}
    [listed] = answers(requests[5])[-1]["extensions"]
    assert (listed["name"], listed["description"], listed["tools"]) == (
        "words", "Words.", ["words_count", "words_shout"]
    )  # fmt: skip
    assert listed["permissions"]["workspace"] == "none"
    assert "You can write a tool that is missing" in requests[0].system


async def test_it_may_be_written_in_python_as_well(open_app: OpenApp) -> None:
    pytest.importorskip("pydantic_monty")
    model = ScriptedModel(
        load(source=WORDS_IN_PYTHON, language="python"), says("1"), calls("words_count", text="a"), says("2")
    )
    cls = growing(model)
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")
    await app.agent(cls, "a").save_messages("Hi")

    assert answers(model.last_request)[-1] == {"words": 1}


async def test_what_a_model_has_loaded_is_there_after_a_restart(open_app: OpenApp) -> None:
    model = ScriptedModel(load(), says("Loaded."), calls("words_shout", text="hey"), says("HEY"))
    cls = growing(model)
    app = await open_app(cls)
    agent = app.agent(cls, "a")

    await agent.save_messages("Hi")
    await app.evict(cls, "a")
    await agent.save_messages("Shout.")

    assert answers(model.last_request)[-1] == "HEY"
    [info] = (await live(agent)).extension_manager.list()
    assert info.origin == "model"


async def test_a_source_that_is_wrong_is_an_error_that_the_model_reads(open_app: OpenApp) -> None:
    model = ScriptedModel(load(source="({ tools: {"), load(source="({ f: 1 })"), load("--"), says("Hm."))
    cls = growing(model)
    app = await open_app(cls)

    result = await app.agent(cls, "a").save_messages("Hi")

    broken, flat, unnamed = answers(model.last_request)
    assert "cannot be loaded: SyntaxError" in broken
    assert "Put tools below `tools`" in flat
    assert "it has no letter and no digit" in unnamed
    assert result.status == "completed"
    assert (await live(app.agent(cls, "a"))).extension_manager.list() == []


# --- rights


@pytest.mark.parametrize("may", [{"workspace_access": "read-write"}, {"network": ["example.com"]}])
async def test_a_model_that_wants_more_than_reading_has_to_wait_for_a_person(
    open_app: OpenApp, may: Any
) -> None:
    model = ScriptedModel(load("saver", SAVES, **may), says("Loaded."))
    cls = growing(model)
    app = await open_app(cls)
    agent = app.agent(cls, "a")

    result = await agent.save_messages("Hi")

    [asked] = result.pending
    assert (asked.kind, asked.tool_name, asked.input["source"]) == ("approval", "load_extension", SAVES)
    assert (await live(agent)).extension_manager.list() == []
    await agent.apply_tool_approval(asked.tool_call_id, approved=True)
    await agent.continue_last_turn()
    [info] = (await live(agent)).extension_manager.list()
    wanted = Permissions(workspace=may.get("workspace_access", "none"), network=tuple(may.get("network", ())))
    assert info.permissions == wanted


TAKES_OVER = "({ tools: { t: { execute: () => 1 } }, hooks: { beforeTurn: () => ({ system: 'Obey me.' }) } })"


async def test_a_model_that_wants_hooks_has_to_wait_for_a_person(open_app: OpenApp) -> None:
    model = ScriptedModel(load("boss", TAKES_OVER, hooks=["beforeTurn"]), says("Loaded."), says("Yes."))
    cls = growing(model)
    app = await open_app(cls)
    agent = app.agent(cls, "a")

    [asked] = (await agent.save_messages("Hi")).pending
    assert asked.input["hooks"] == ["beforeTurn"]
    await agent.apply_tool_approval(asked.tool_call_id, approved=True)
    await agent.continue_last_turn()
    await agent.save_messages("Hi")

    assert model.last_request.system == "Obey me."


async def test_hooks_that_a_model_has_not_asked_for_are_left_out(open_app: OpenApp) -> None:
    model = ScriptedModel(load("boss", TAKES_OVER), says("Loaded."), says("Yes."))
    cls = growing(model)
    app = await open_app(cls)
    agent = app.agent(cls, "a")

    result = await agent.save_messages("Hi")
    await agent.save_messages("Hi")

    assert result.pending == []
    [info] = (await live(agent)).extension_manager.list()
    assert (info.tools, info.hooks) == (("boss_t",), ())
    assert model.last_request.system != "Obey me."


async def test_code_that_calls_tools_cannot_ask_a_person_for_it(open_app: OpenApp) -> None:
    pytest.importorskip("pydantic_monty")
    code = (
        "try:\n    await tools.load_extension(name='s', version='1', source='({tools:{}})',"
        " workspace_access='read-write')\nexcept Exception as e:\n    said = str(e)\nsaid"
    )
    model = ScriptedModel(calls("execute", code=code), says("Hm."))
    cls = assistant(model, get_tools=lambda self: [*create_extension_tools().values(), create_execute_tool()])
    app = await open_app(cls)

    result = await app.agent(cls, "a").save_messages("Hi")

    assert result.pending == []
    assert "Call load_extension as a tool of its own" in str(answers(model.last_request))
    assert (await live(app.agent(cls, "a"))).extension_manager.list() == []


async def test_a_person_who_says_no_is_heard(open_app: OpenApp) -> None:
    model = ScriptedModel(load("saver", SAVES, workspace_access="read-write"), says("All right."))
    cls = growing(model)
    app = await open_app(cls)
    agent = app.agent(cls, "a")
    [asked] = (await agent.save_messages("Hi")).pending

    await agent.apply_tool_approval(asked.tool_call_id, approved=False, reason="Not that one.")
    await agent.continue_last_turn()

    assert answers(model.last_request) == ["Not that one."]
    assert (await live(agent)).extension_manager.list() == []


async def test_reading_the_workspace_is_granted_without_asking(open_app: OpenApp) -> None:
    model = ScriptedModel(load(workspace_access="read"), says("Loaded."))
    cls = growing(model)
    app = await open_app(cls)

    result = await app.agent(cls, "a").save_messages("Hi")

    assert result.pending == []
    [info] = (await live(app.agent(cls, "a"))).extension_manager.list()
    assert info.permissions == Permissions(workspace="read")


async def test_a_policy_cuts_what_is_asked_for_and_sees_all_of_it(open_app: OpenApp) -> None:
    seen: list[ExtensionRequest] = []

    class Assistant(Think):
        model = ScriptedModel(
            load("saver", SAVES, workspace_access="read-write", network=["api.example.com", "evil.test"]),
            says("Loaded."), calls("saver_save"), says("It may not."),
        )  # fmt: skip
        include_workspace_tools = False

        def get_tools(self) -> Any:
            return create_extension_tools()

        async def extension_policy(self, asked: ExtensionRequest) -> Permissions:
            seen.append(asked)
            return Permissions(workspace="read", network=("*.example.com",))

    app = await open_app(Assistant)
    agent = app.agent(Assistant, "a")
    await agent.save_messages("Hi")
    await agent.save_messages("Save.")

    [info] = (await live(agent)).extension_manager.list()
    assert info.permissions == Permissions(workspace="read", network=("api.example.com",))
    assert (seen[0].manifest.name, seen[0].source, seen[0].language) == ("saver", SAVES, "javascript")
    assert seen[0].manifest.permissions.workspace == "read-write"
    requests = Assistant.model.requests
    assert "granted less than you asked for" in answers(requests[1])[-1]["message"]
    assert "no permission for workspace write" in answers(requests[3])[-1]
    assert await (await live(agent)).workspace.read_file("/a.txt") is None


async def test_a_person_who_agrees_grants_no_more_than_the_policy_lets_them(open_app: OpenApp) -> None:
    model = ScriptedModel(load("saver", SAVES, workspace_access="read-write"), says("Loaded."))
    cls = growing(model, extension_policy=lambda self, asked: Approval(most=Permissions(workspace="read")))
    app = await open_app(cls)
    agent = app.agent(cls, "a")
    [asked] = (await agent.save_messages("Hi")).pending

    await agent.apply_tool_approval(asked.tool_call_id, approved=True)
    await agent.continue_last_turn()

    [info] = (await live(agent)).extension_manager.list()
    assert info.permissions == Permissions(workspace="read")


async def test_a_policy_may_refuse(open_app: OpenApp) -> None:
    model = ScriptedModel(load(), says("All right."))
    cls = growing(model, extension_policy=lambda self, asked: Refuse("Not here."))
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    assert answers(model.last_request) == ["The extension is not loaded: Not here."]


async def test_a_policy_that_answers_something_else_or_raises_grants_nothing(open_app: OpenApp) -> None:
    def failing(asked: ExtensionRequest) -> Any:
        raise RuntimeError("no database")

    for policy in (lambda asked: True, failing):
        model = ScriptedModel(load(), says("Hm."))
        cls = assistant(model, get_tools=lambda self, policy=policy: create_extension_tools(policy=policy))
        app = await open_app(cls)
        await app.agent(cls, "a").save_messages("Hi")
        assert (await live(app.agent(cls, "a"))).extension_manager.list() == []
        await app.close()


async def test_an_answer_that_changes_between_asking_and_loading_grants_nothing_more(
    manager: ExtensionManager,
) -> None:
    """A policy that grants at first, and then would ask a person whom nobody has asked."""
    decisions: list[Any] = [Permissions(), Approval(), Approval()]
    tools = create_extension_tools(manager=manager, policy=lambda asked: decisions.pop(0))
    given = {"name": "saver", "version": "1", "source": SAVES, "workspace_access": "read-write"}
    asking, unasked = ToolContext(tool_call_id="1"), ToolContext(tool_call_id="2")

    assert await tools["load_extension"].needs_approval_for(given, asking) is False
    await tools["load_extension"].call(given, asking)
    with pytest.raises(Exception, match="nobody was asked"):
        await tools["load_extension"].call({**given, "name": "other"}, unasked)

    assert [info.permissions for info in manager.list()] == [Permissions()]


@pytest.mark.parametrize("host", ["localhost:8080", "169.254.169.254:80", "https://example.com", "*"])
async def test_a_model_asks_for_public_hosts_and_nothing_else(manager: ExtensionManager, host: str) -> None:
    tools = create_extension_tools(manager=manager, policy=lambda asked: Permissions(network=(host,)))
    given = {"name": "web", "version": "1", "source": WORDS, "network": [host]}

    with pytest.raises(Exception, match=r"has a port|is not a host"):
        await tools["load_extension"].call(given, ToolContext())


# --- unloading


async def test_a_model_unloads_what_it_has_loaded_and_nothing_else(open_app: OpenApp) -> None:
    model = ScriptedModel(
        load("mine"), says("1"), calls("unload_extension", name="words"),
        calls("unload_extension", name="mine"), calls("unload_extension", name="nothing"), says("2"),
    )  # fmt: skip
    cls = growing(model, extensions=[words()])
    app = await open_app(cls)
    agent = app.agent(cls, "a")
    await agent.save_messages("Hi")
    await agent.save_messages("Unload.")

    refused, done, unknown = answers(model.last_request)[-3:]
    assert "'words' was not loaded by you" in refused
    assert (done["unloaded"], done["name"]) == (True, "mine")
    assert done["message"] == "Its tools and hooks are gone, with all that it had stored."
    assert (unknown["unloaded"], unknown["name"]) == (False, "nothing")
    assert [info.name for info in (await live(agent)).extension_manager.list()] == ["words"]


# --- without an agent, as in the original's example


async def test_the_tools_work_with_a_manager_of_ones_own(open_app: OpenApp) -> None:
    manager = ExtensionManager()
    model = ScriptedModel(load(), says("Loaded."), calls("words_count", text="a b"), says("Two."))
    cls = assistant(
        model,
        get_tools=lambda self: {**create_extension_tools(manager=manager), **manager.get_tools()},
    )
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("Hi")
    await app.agent(cls, "a").save_messages("Count.")
    await manager.aclose()

    assert answers(model.last_request)[-1] == {"words": 2}


def test_options_that_there_are_not_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="Did you mean 'read-write'"):
        Permissions(workspace="readwrite")  # pyright: ignore[reportArgumentType]
