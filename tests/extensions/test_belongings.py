"""What an extension keeps: whose it is, when it is gone, and when the model sees it."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think
from everthink.errors import ToolError
from everthink.extensions import Extension
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

from .sources import call, one_tool
from .test_turns import answers

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
pytest.importorskip("quickjs_rs")

STORES = {"permissions": {"storage": True}}
COUNTS = "async (_, host) => { const n = 1 + ((await host.storage.get('n')) ?? 0); await host.storage.set('n', n); return n }"  # noqa: E501
NOTES: dict[str, Any] = {
    "permissions": {"context": {"read": "own", "write": "own"}},
    "context": [{"label": "notes", "description": "Notes", "max_tokens": 50}],
}
WRITES = "async ({ text }, host) => host.setContext('one_notes', text)"


def counter(name: str = "counter") -> Extension:
    """Counts its calls, in its storage."""
    return one_tool(COUNTS, name, **STORES)


def noting(**members: Any) -> Extension:
    """Writes what it is given into a block of its own."""
    return one_tool(WRITES, parameters="{ text: { type: 'string' } }", **NOTES, **members)


# --- whose it is


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("declared", "person"),
        ("code", "model"),
        ("person", "code"),
        ("person", "model"),
        ("model", "declared"),
    ],
)
async def test_what_one_origin_has_kept_is_not_there_for_another_of_the_same_name(
    open_app: OpenApp, first: Any, second: Any
) -> None:
    cls = assistant(ScriptedModel())
    app = await open_app(cls)
    manager = (await live(app.agent(cls, "a"))).extension_manager
    for origin, expected in ((first, 1), (second, 1), (first, 2), (second, 2)):
        await manager.load(counter(), origin=origin)
        assert await call(manager, "counter_run") == expected
        await manager.unload("counter", keep_storage=True)


async def test_an_extension_that_is_no_longer_declared_leaves_nothing_to_one_that_takes_its_name(
    open_app: OpenApp,
) -> None:
    declares = True

    def extensions(self: Think) -> Any:
        return [counter(), noting()] if declares else []

    model = ScriptedModel(says("1"), says("2"), says("3"))
    cls = assistant(model, get_extensions=extensions)
    app = await open_app(cls)
    handle = app.agent(cls, "a")
    manager = (await live(handle)).extension_manager
    assert await call(manager, "counter_run") == 1
    await call(manager, "one_run", text="Secret.")

    # It is taken out of the code; somebody else loads one of its name
    declares = False
    await app.evict(cls, "a")
    manager = (await live(handle)).extension_manager
    await manager.load(counter(), origin="person")
    await manager.load(noting(), origin="person")
    assert await call(manager, "counter_run") == 1
    await handle.save_messages("Hi")
    assert "ONE_NOTES" in model.last_request.system
    assert "Secret." not in model.last_request.system

    # Back in the code, it finds what is its own
    for name in ("counter", "one"):
        await manager.unload(name)
    declares = True
    await app.evict(cls, "a")
    assert await call((await live(handle)).extension_manager, "counter_run") == 2
    await handle.save_messages("Hi")
    assert "Secret." in model.last_request.system


@pytest.mark.parametrize("name", ["counter\nperson", "a\tb", "counter\x00"])
async def test_no_name_looks_like_that_of_another_origin(open_app: OpenApp, name: str) -> None:
    cls = assistant(ScriptedModel())
    manager = (await live((await open_app(cls)).agent(cls, "a"))).extension_manager

    with pytest.raises(Exception, match="cannot be the name of an extension"):
        await manager.load(one_tool(COUNTS, name, **STORES))


# --- when it is gone


@pytest.mark.parametrize("origin", ["code", "person", "model"])
async def test_unloading_empties_values_and_blocks_unless_they_are_to_be_kept(
    open_app: OpenApp, origin: Any
) -> None:
    model = ScriptedModel(says("1"), says("2"))
    cls = assistant(model)
    app = await open_app(cls)
    handle = app.agent(cls, "a")
    manager = (await live(handle)).extension_manager

    async def load() -> None:
        await manager.load(counter(), origin=origin)
        await manager.load(noting(), origin=origin)

    await load()
    await call(manager, "counter_run")
    await call(manager, "one_run", text="Known.")
    for name in ("counter", "one"):
        await manager.unload(name, keep_storage=True)
    await load()
    assert await call(manager, "counter_run") == 2
    await handle.save_messages("Hi")
    assert "Known." in model.last_request.system

    found = await manager.take_away("counter")
    assert found is not None
    assert (found.name, found.origin, found.values, found.is_kept) == ("counter", origin, 1, False)
    await manager.unload("one")
    await load()
    assert await call(manager, "counter_run") == 1
    await handle.save_messages("Hi")
    assert "Known." not in model.last_request.system


async def test_a_block_of_the_agent_stays_when_an_extension_that_names_it_goes(open_app: OpenApp) -> None:
    cls = assistant(
        ScriptedModel(),
        configure_session=lambda self, session: session.with_context("one_notes"),
        extensions=[noting()],
    )
    app = await open_app(cls)
    agent = await live(app.agent(cls, "a"))
    await agent.session.replace_context_block("one_notes", "The agent's own.")

    await agent.extension_manager.unload("one")

    await app.evict(cls, "a")
    agent = await live(app.agent(cls, "a"))
    await agent.session.refresh_system_prompt()
    assert agent.session.get_context_block("one_notes").content == "The agent's own."


async def test_a_model_that_unloads_reads_what_became_of_what_was_stored(open_app: OpenApp) -> None:
    from everthink.extensions import create_extension_tools

    model = ScriptedModel(
        calls("unload_extension", name="counter"), calls("unload_extension", name="counter"), says("Gone.")
    )
    cls = assistant(model, get_tools=lambda self: create_extension_tools())
    app = await open_app(cls)
    manager = (await live(app.agent(cls, "a"))).extension_manager
    await manager.load(counter(), origin="model")
    await call(manager, "counter_run")

    await app.agent(cls, "a").save_messages("Unload it.")

    gone, nobody = answers(model.last_request)
    assert gone == {
        "unloaded": True,
        "name": "counter",
        "message": "Its tools and hooks are gone, with all that it had stored (1 values).",
    }
    assert (nobody["unloaded"], nobody["message"]) == (False, "There is no extension of that name.")


# --- when the model sees a block


@pytest.mark.parametrize("kept", [False, True])
async def test_a_block_that_an_extension_writes_is_in_the_prompt_of_the_next_turn(
    open_app: OpenApp, kept: bool
) -> None:
    model = ScriptedModel(says("1"), calls("one_run", text="It rains."), says("2"), says("3"), says("4"))

    def configure(self: Think, session: Any) -> Any:
        return session.with_context("memory").with_cached_prompt() if kept else session.with_context("memory")

    cls = assistant(model, extensions=[noting()], configure_session=configure)
    app = await open_app(cls)
    handle = app.agent(cls, "a")
    await handle.save_messages("Hi")
    await handle.save_messages("Write it down.")
    await handle.save_messages("And now?")
    (await live(handle)).session.context.last_refresh = None
    await handle.save_messages("And now?")

    prompts = [request.system for request in model.requests]
    assert ["It rains." in prompt for prompt in prompts] == [False, False, False, True, True]
    assert prompts[1] == prompts[2]  # a turn never sees it move
    assert (await live(handle)).session.context.last_refresh is None  # and it is made anew once


@pytest.mark.parametrize("own", [False, True])
async def test_it_is_there_too_when_the_process_ends_before_that_turn(open_app: OpenApp, own: bool) -> None:
    class Elsewhere:
        """A store of prompts that the application brings along."""

        text: str | None = None

        async def get(self) -> str | None:
            return self.text

        async def set(self, text: str) -> None:
            Elsewhere.text = text

    model = ScriptedModel(says("1"), says("2"), says("3"))
    cls = assistant(
        model,
        extensions=[noting()],
        configure_session=lambda self, session: session.with_context("memory").with_cached_prompt(
            Elsewhere() if own else None
        ),
    )
    app = await open_app(cls)
    handle = app.agent(cls, "a")
    await handle.save_messages("Hi")
    await call((await live(handle)).extension_manager, "one_run", text="It rains.")
    await app.evict(cls, "a")
    await handle.save_messages("And now?")

    assert ["It rains." in request.system for request in model.requests] == [False, True]


async def test_what_is_written_as_it_was_or_refused_changes_no_prompt(open_app: OpenApp) -> None:
    model = ScriptedModel(*(says(str(n)) for n in range(3)))
    cls = assistant(
        model,
        extensions=[noting()],
        configure_session=lambda self, session: session.with_context("memory").with_cached_prompt(),
    )
    app = await open_app(cls)
    handle = app.agent(cls, "a")
    agent = await live(handle)
    await call(agent.extension_manager, "one_run", text="It rains.")
    await handle.save_messages("Hi")
    agent.session.context.last_refresh = None

    await call(agent.extension_manager, "one_run", text="It rains.")
    with pytest.raises(ToolError, match="exceeds maxTokens"):
        await call(agent.extension_manager, "one_run", text="word " * 100)
    await handle.save_messages("Hi")

    assert agent.session.context.last_refresh is None
    assert model.requests[0].system == model.requests[1].system
