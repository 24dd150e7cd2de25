"""What the code of an extension may ask of its agent, with the right and without it."""

# ruff: noqa: E501 - programs stand as they are

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from everthink import Think, tool
from everthink.errors import ToolError
from everthink.extensions import Extension, ExtensionManager
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.in_process_server import Listening
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

from .sources import call, one_tool

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
pytest.importorskip("quickjs_rs")

ALL = {
    "workspace": "read-write",
    "context": {"read": "all", "write": ["memory"]},
    "messages": "read",
    "session": {"sendMessage": True, "metadata": True},
    "storage": True,
}
Run = Callable[..., Awaitable[Any]]


@pytest.fixture
async def agent(open_app: OpenApp) -> AsyncIterator[Think]:
    """An agent that has said something."""
    cls = assistant(
        ScriptedModel(says("Hello."), says("More.")),
        configure_session=lambda self, session: session.with_context("memory").with_context("soul"),
    )
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("Hi")
    return await live(app.agent(cls, "a"))


async def ran(agent: Think, body: str, may: Any = None, name: str = "one", **given: Any) -> Any:
    """What a tool with this body gives that has these rights."""
    manager = agent.extension_manager
    await manager.unload(name)
    await manager.load(one_tool(body, name, permissions=ALL if may is None else may))
    return await call(manager, f"{name}_run", **given)


# --- files


@pytest.mark.case(672)
@pytest.mark.memory_case(592)
async def test_files_are_read_written_listed_and_deleted(agent: Think) -> None:
    told = await ran(
        agent,
        """async (_, host) => [
          await host.readFile('/a.txt'), await host.writeFile('/d/a.txt', 'Hello'), await host.readFile('d/a.txt'),
          (await host.listFiles('/d')).map(({ name, type, size, path }) => ({ name, type, size, path })),
          await host.deleteFile('/nothing.txt'), await host.deleteFile('/d'), await host.deleteFile('/d/a.txt'),
          await host.readFile('/d/a.txt'),
        ]""",
    )

    entry = {"name": "a.txt", "type": "file", "size": 5, "path": "/d/a.txt"}
    assert told == [None, True, "Hello", [entry], False, False, True, None]
    assert await agent.workspace.read_dir("/d") == []


async def test_files_of_the_agent_are_the_files_of_the_extension_in_python_as_well(agent: Think) -> None:
    await agent.workspace.write_file("/a.txt", "Hello")
    source = """
async def run(args, host):
    await host.write_file("/b.txt", (await host.read_file("/a.txt")).upper())
    await host.storage.set("k", {"n": 1})
    return [await host.storage.get("k"), await host.storage.list(), len(await host.list_files("/"))]

tools = {"run": {"execute": run}}
"""
    await agent.extension_manager.load(
        {"name": "py", "version": "1", "permissions": ALL}, source, language="python"
    )

    assert await call(agent.extension_manager, "py_run") == [{"n": 1}, ["k"], 2]
    assert await agent.workspace.read_file("/b.txt") == "HELLO"


# --- the conversation


@pytest.mark.case(672)
@pytest.mark.memory_case(593, 594)
async def test_messages_are_told_as_texts_the_last_ones_with_a_limit_and_none_for_zero(agent: Think) -> None:
    told = await ran(
        agent,
        """async (_, host) => [
          await host.getMessages(), await host.getMessages(1), await host.getMessages(0),
          await host.getMessages(-5), await host.getSessionInfo(),
        ]""",
    )

    every, last, none, negative, info = told
    assert [(one["role"], one["content"]) for one in every] == [("user", "Hi"), ("assistant", "Hello.")]
    assert all(one.keys() == {"id", "role", "content"} for one in every)
    assert last == every[-1:]
    assert (none, negative, info) == ([], [], {"messageCount": 2})


@pytest.mark.case(672)
@pytest.mark.memory_case(595)
async def test_blocks_are_read_and_written_and_an_unknown_one_is_null(agent: Think) -> None:
    told = await ran(
        agent,
        """async (_, host) => [
          await host.getContext('memory'), await host.setContext('memory', 'Tea.'),
          await host.getContext('memory'), await host.getContext('nothing'),
        ]""",
    )

    assert told == ["", True, "Tea.", None]
    assert agent.session.get_context_block("memory").content == "Tea."  # pyright: ignore[reportOptionalMemberAccess]


async def test_a_block_that_would_grow_beyond_its_limit_stays_and_the_code_is_told(open_app: OpenApp) -> None:
    cls = assistant(
        ScriptedModel(says("Hi.")),
        configure_session=lambda self, session: session.with_context("memory", max_tokens=5),
    )
    app = await open_app(cls)
    agent = await live(app.agent(cls, "a"))

    told = await ran(
        agent,
        "async (_, host) => { try { await host.setContext('memory', 'word '.repeat(100)) }"
        " catch (error) { return error.message } }",
    )

    assert told.startswith("Extension error: The new content of the context block 'memory' exceeds")


@pytest.mark.case(672)
@pytest.mark.memory_case(596)
async def test_a_message_that_an_extension_adds_is_in_the_history_and_starts_no_turn(agent: Think) -> None:
    assert await ran(agent, "async (_, host) => host.sendMessage('Remember the milk.')") is True

    last = agent.messages[-1]
    assert (last.role, last.text) == ("user", "Remember the milk.")
    assert (await agent.get_messages())[-1].id == last.id
    assert await agent.wait_until_stable(timeout=5)
    assert len(agent.messages) == 3
    await agent.save_messages("And now?")
    assert "Remember the milk." in str(type(agent).model.last_request.messages)  # pyright: ignore


@pytest.mark.memory_case(596)
async def test_a_message_that_is_added_in_a_turn_is_read_by_the_next_one(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("one_run"), says("Done."), says("Milk."))
    cls = assistant(
        model,
        extensions=[one_tool("async (_, host) => host.sendMessage('Remember the milk.')", permissions=ALL)],
    )
    app = await open_app(cls)
    agent = app.agent(cls, "a")

    first = await agent.save_messages("Hi")
    await agent.save_messages("What was it?")

    assert first.text == "Done."
    assert "Remember the milk." in str(model.last_request.messages)
    texts = [one.text for one in (await live(agent)).messages]
    assert sorted(texts) == sorted(["Hi", "Done.", "Remember the milk.", "What was it?", "Milk."])


@pytest.mark.case(672)
@pytest.mark.memory_case(597)
async def test_outside_of_a_turn_and_after_one_an_agent_is_at_rest_and_inside_it_is_not(
    open_app: OpenApp,
) -> None:
    class Assistant(Think):
        model = ScriptedModel(calls("look"), says("Done."))
        include_workspace_tools = False
        seen: Any = ()

        @tool
        def look(self) -> str:
            """Look whether a turn runs."""
            type(self).seen = self._home.chat.is_at_rest
            return "looked"

    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant, "a"))
    before = agent._home.chat.is_at_rest
    await agent.save_messages("Hi")
    assert await agent.wait_until_stable(timeout=5)

    assert (before, Assistant.seen, agent._home.chat.is_at_rest) == (True, False, True)


# --- values of its own


async def test_values_are_kept_as_json_listed_and_forgotten(agent: Think) -> None:
    told = await ran(
        agent,
        """async (_, { storage }) => [
          await storage.get('k'), await storage.set('k', { list: [1, null, 'ü'] }), await storage.get('k'),
          await storage.set('a', false), await storage.list(), await storage.delete('k'),
          await storage.delete('k'), await storage.list(),
        ]""",
    )

    assert told == [None, True, {"list": [1, None, "ü"]}, True, ["a", "k"], True, False, ["a"]]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("storage.set('k', 'x'.repeat(100000))", "may have 65,536"),
        ("storage.set('', 1)", "a key has something in it"),
        ("storage.set('x'.repeat(500), 1)", "may have 200"),
        ("storage.set(7, 1)", "key is a text"),
    ],
)
async def test_values_have_bounds(agent: Think, body: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        await ran(agent, f"async (_, {{ storage }}) => {body}")


async def test_all_values_together_have_a_bound_as_well(agent: Think) -> None:
    fill = "async (_, { storage }) => { for (let n = 0; n < 30; n++) await storage.set(`k${n}`, 'x'.repeat(60000)) }"
    with pytest.raises(ToolError, match=r"1,000,000 characters\. Nothing was written"):
        await ran(agent, fill)


# --- without the right


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("host.readFile('/a')", "workspace read"),
        ("host.listFiles('/')", "workspace read"),
        ("host.writeFile('/a', 'x')", "workspace write"),
        ("host.deleteFile('/a')", "workspace write"),
        ("host.getContext('memory')", "context read of 'memory'"),
        ("host.setContext('memory', 'x')", "context write of 'memory'"),
        ("host.getMessages()", "messages read"),
        ("host.sendMessage('x')", "session sendMessage"),
        ("host.fetch('https://example.com/')", "network access to 'https://example.com/'"),
        ("host.storage.get('k')", "storage"),
        ("host.storage.set('k', 1)", "storage"),
        ("host.storage.delete('k')", "storage"),
        ("host.storage.list()", "storage"),
    ],
)
async def test_what_was_not_granted_is_denied_in_words_that_the_code_may_catch(
    agent: Think, body: str, right: str
) -> None:
    caught = f"async (_, host) => {{ try {{ await {body} }} catch (error) {{ return error.message }} }}"

    told = await ran(agent, caught, {"session": {"metadata": True}})
    with pytest.raises(ToolError, match="Extension error:"):
        await ran(agent, f"async (_, host) => {body}", {"session": {"metadata": True}})

    assert told.startswith(f"Extension error: 'one' has no permission for {right}.")
    assert [one.text for one in agent.messages] == ["Hi", "Hello."]


async def test_an_extension_without_any_right_has_no_host(agent: Think) -> None:
    assert await ran(agent, "async (_, host) => host", {}) is None


async def test_reading_is_not_writing_and_session_info_is_a_right_of_its_own(agent: Think) -> None:
    await agent.workspace.write_file("/a.txt", "Hello")
    may = {"workspace": "read"}

    assert await ran(agent, "async (_, host) => host.readFile('/a.txt')", may) == "Hello"
    with pytest.raises(ToolError, match="no permission for workspace write"):
        await ran(agent, "async (_, host) => host.writeFile('/a.txt', 'x')", may)
    with pytest.raises(ToolError, match="no permission for session metadata"):
        await ran(agent, "async (_, host) => host.getSessionInfo()", may)
    assert await agent.workspace.read_file("/a.txt") == "Hello"


async def test_only_the_blocks_that_are_named_are_read_and_written(agent: Think) -> None:
    may = {"context": {"read": ["memory"], "write": ["memory"]}}

    assert await ran(agent, "async (_, host) => host.setContext('memory', 'x')", may) is True
    for verb in ("getContext('soul')", "setContext('soul', 'x')"):
        with pytest.raises(ToolError, match=r"no permission for context (read|write) of 'soul'"):
            await ran(agent, f"async (_, host) => host.{verb}", may)


# --- the web


async def test_only_the_hosts_that_are_named_are_fetched(agent: Think) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
        )
        await send({"type": "http.response.body", "body": b"from " + scope["path"].encode()})

    source = "({ tools: { get: { execute: async ({ url }, host) => (await host.fetch(url)).body } } })"
    async with Listening(app) as here:
        place = f"127.0.0.1:{here.port}"
        manifest = {"name": "web", "version": "1", "permissions": {"network": [place]}}
        manager: ExtensionManager = agent.extension_manager
        await manager.load(Extension(manifest, source))

        assert await call(manager, "web_get", url=f"http://{place}/a") == "from /a"
        with pytest.raises(ToolError, match="Blocked URL"):
            await call(manager, "web_get", url=f"http://127.0.0.1:{here.port + 1}/a")
        await manager.unload("web")
        await manager.load(Extension({**manifest, "permissions": {"network": ["example.com"]}}, source))
        with pytest.raises(ToolError, match="Blocked URL"):
            await call(manager, "web_get", url=f"http://{place}/a")
