"""Extensions that packages bring along: found by name, in this process, with the names and hooks of all."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, ToolContext, tool
from everthink.errors import ExtensionError, InvalidSettings
from everthink.extensions import TrustedExtension, installed, packages, trusted
from everthink.models.port import ToolMessage, ToolResultPart
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

from .packaged import WORDS, package

pytestmark = pytest.mark.anyio

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs packages for one test."""
    before = set(sys.modules)
    monkeypatch.setattr(packages, "_classes", {})
    site = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(str(site))

    def install_(*given: Any, **options: Any) -> Path:
        return package(site, *given, **options)

    yield install_
    for name in set(sys.modules) - before:
        if name.startswith("everthink_"):
            del sys.modules[name]


def results(request: Any) -> list[Any]:
    return [
        part.output
        for message in request.messages
        if isinstance(message, ToolMessage)
        for part in message.content
        if isinstance(part, ToolResultPart)
    ]


def steps(agent: Think) -> dict[str, str]:
    return {one.step: one.error for one in agent.get_on_start_degradations()}


# --- in an agent


async def test_an_agent_uses_the_tools_of_a_package_by_their_prefixed_names(
    open_app: OpenApp, install: Install
) -> None:
    install()
    model = ScriptedModel(
        calls("words_count", text="one two three"), calls("words_slowly", text="one two"), says("Three.")
    )
    cls = assistant(model, extensions=[installed("words")])
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("How many?")

    offered = {one.name: one.description for one in model.requests[0].tools}
    assert offered["words_count"] == "[words] Count the words of a text."
    assert results(model.last_request) == [3, 2]


async def test_it_is_made_for_each_agent_with_the_options_it_is_named_with(
    open_app: OpenApp, install: Install
) -> None:
    install()
    cls = assistant(ScriptedModel(), extensions=[installed("words", most=2)])
    app = await open_app(cls)
    one, other = await live(app.agent(cls, "a")), await live(app.agent(cls, "b"))
    made: Any = [agent.loaded for agent in (one, other)]  # type: ignore[attr-defined]
    assert [each.most for each in made] == [2, 2]
    assert made[0] is not made[1]
    assert [each.agent.name for each in made] == ["a", "b"]


async def test_what_is_told_of_it_is_its_own(open_app: OpenApp, install: Install) -> None:
    install()
    cls = assistant(ScriptedModel(), extensions=[installed("words")])
    agent = await live((await open_app(cls)).agent(cls, "a"))
    [info] = agent.extension_manager.list()
    assert (info.name, info.version, info.description) == ("words", "1.2", "Counts words.")
    assert (info.origin, info.language, info.tools) == ("package", None, ("words_count", "words_slowly"))
    assert info.context_labels == ("words_notes",)
    assert agent.session.context.has("words_notes")


async def test_its_hooks_hear_what_all_extensions_hear_and_only_before_turn_counts(
    open_app: OpenApp, install: Install
) -> None:
    install()
    model = ScriptedModel(calls("words_count", text="one two"), says("Two."))
    cls = assistant(model, extensions=[installed("words")], system_prompt="Be kind.")
    app = await open_app(cls)
    agent: Any = await live(app.agent(cls, "a"))

    await agent.save_messages("How many?")

    heard = dict(reversed(agent.loaded.heard))
    assert set(heard) == {
        "before_turn",
        "before_tool_call",
        "after_tool_call",
        "on_step_finish",
        "on_chunk",
    }
    assert heard["before_turn"]["message_count"] == 1
    assert heard["before_tool_call"]["input"] == {"text": "one two"}
    assert (heard["after_tool_call"]["success"], heard["after_tool_call"]["output"]) == (True, 2)
    assert "Count well." in model.requests[0].system
    assert results(model.last_request) == [2]  # the call was not blocked
    assert list(agent.loaded.printed) == [
        "before_turn may not change model of a turn; it is left out",
        "words_count was called",
    ]


async def test_a_hook_that_fails_costs_no_turn_and_is_told(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    class Clumsy(TrustedExtension):
        def before_turn(self, turn: Any) -> None:
            raise RuntimeError("lost the count")

    cls = assistant(ScriptedModel(says("Hello.")), extensions=[Clumsy])
    app = await open_app(cls)
    with caplog.at_level(logging.WARNING, "everthink.extensions"):
        result = await app.agent(cls, "a").save_messages("Hi")
    assert result.status == "completed"
    assert "before_turn of the extension 'clumsy' failed" in caplog.text
    assert "lost the count" in caplog.text


async def test_a_class_of_the_app_itself_is_named_as_it_is(open_app: OpenApp) -> None:
    class WordCount(TrustedExtension):
        version = "2"

        @tool
        def count(self, text: str) -> int:
            """Count."""
            return len(text.split())

    model = ScriptedModel(calls("word_count_count", text="a b"), says("Two."))
    cls = assistant(model, extensions=[WordCount])
    app = await open_app(cls)
    agent = await live(app.agent(cls, "a"))
    await agent.save_messages("How many?")
    assert results(model.last_request) == [2]
    assert [(one.name, one.version) for one in agent.extension_manager.list()] == [("word-count", "2")]


async def test_extensions_are_in_the_order_in_which_they_are_named(
    open_app: OpenApp, install: Install
) -> None:
    install()

    class Last(TrustedExtension):
        def before_turn(self, turn: Any) -> Any:
            return {"system": turn["system"] + " And be brief."}

    model = ScriptedModel(says("Yes."))
    cls = assistant(model, extensions=[installed("words"), Last], system_prompt="Be kind.")
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("Hi")
    assert "Count well. And be brief." in model.last_request.system


# --- its end


async def test_it_hears_that_its_agent_leaves_memory(open_app: OpenApp, install: Install) -> None:
    install()
    cls = assistant(ScriptedModel(), extensions=[installed("words")])
    app = await open_app(cls)
    agent: Any = await live(app.agent(cls, "a"))
    await app.evict(cls, "a")
    assert agent.loaded.heard == ["on_unload"]
    assert (await live(app.agent(cls, "a"))).extension_manager.list() != []


async def test_a_tool_of_one_that_was_unloaded_is_refused(open_app: OpenApp, install: Install) -> None:
    install()
    unloaded: list[bool] = []

    async def forget(ctx: ToolContext) -> str:
        """Unload it."""
        unloaded.append(await ctx.agent.extension_manager.unload("words"))
        return "gone"

    model = ScriptedModel(
        calls("forget"), calls("words_count", text="a"), calls("words_slowly", text="a"), says("Oh.")
    )
    cls = assistant(model, extensions=[installed("words")], get_tools=lambda self: [forget])
    app = await open_app(cls)
    agent: Any = await live(app.agent(cls, "a"))

    await agent.save_messages("Forget it.")

    assert unloaded == [True]
    [_, *refused] = results(model.last_request)
    assert len(refused) == 2
    assert all("has been unloaded" in str(one) for one in refused)
    assert "on_unload" in agent.loaded.heard
    assert agent.extension_manager.list() == []


# --- what is wrong is said, and costs nothing else


async def degraded(open_app: OpenApp, *extensions: Any) -> dict[str, str]:
    """What an agent with these says of its start; it serves."""
    model = ScriptedModel(says("Hello."))
    cls = assistant(model, extensions=list(extensions))
    app = await open_app(cls)
    agent = await live(app.agent(cls, "a"))
    assert (await agent.save_messages("Hi")).status == "completed"
    return steps(agent)


async def test_a_name_that_no_package_has_is_said_with_the_nearest(
    open_app: OpenApp, install: Install
) -> None:
    install()
    said = await degraded(open_app, installed("wrods"), installed("words"))
    assert list(said) == ["the extension 'wrods'"]
    assert (
        "No installed package has the extension 'wrods'. Did you mean 'words'?"
        in said["the extension 'wrods'"]
    )


async def test_without_any_package_it_says_what_to_do(install: Install) -> None:
    with pytest.raises(ExtensionError, match="No package here brings one along"):
        packages.found("words")


async def test_a_name_that_two_packages_have_is_refused_with_both(install: Install) -> None:
    install()
    install(dist="everthink-other", version="3.0")
    with pytest.raises(ExtensionError, match=r"everthink-other 3\.0 and everthink-words 1\.2"):
        packages.found("words")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        ("raise ValueError('broken on purpose')", "broken on purpose"),
        ("import sys\nsys.exit(3)", "SystemExit"),
        ("Other = 1", "AttributeError"),
        ("Words = 5", "no class of extensions"),
        ("class Words: pass", "no class of extensions"),
    ],
)
async def test_a_package_that_is_broken_says_why_and_whose_it_is(
    open_app: OpenApp, install: Install, source: str, words: str
) -> None:
    install(source)
    said = (await degraded(open_app, installed("words")))["the extension 'words'"]
    assert words in said
    assert "everthink-words 1.2: everthink_words:Words" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"msot": 2}, "Did you mean 'most'?"),
        ({"colour": 2}, "It takes: most."),
    ],
)
async def test_options_that_it_does_not_take_are_said_with_those_it_takes(
    open_app: OpenApp, install: Install, options: Any, words: str
) -> None:
    install()
    assert words in (await degraded(open_app, installed("words", **options)))["the extension 'words'"]


@pytest.mark.parametrize("where", ["on_load", "__init__"])
async def test_one_that_cannot_begin_is_left_out(open_app: OpenApp, install: Install, where: str) -> None:
    install(WORDS + f"\n    def {where}(self):\n        raise ValueError('no key is set')\n")
    said = await degraded(open_app, installed("words"))
    assert "ValueError: no key is set" in said["the extension 'words'"]


async def test_one_that_never_begins_is_left_out_after_a_while(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trusted, "BEGINNING", 0.01)

    class Waiting(TrustedExtension):
        async def on_load(self) -> None:
            await asyncio.Event().wait()

    said = await degraded(open_app, Waiting)
    assert "on_load took longer than 0.01 s" in said["the extension 'waiting'"]


async def test_one_that_never_ends_or_fails_at_its_end_keeps_no_agent(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trusted, "ENDING", 0.01)

    class Waiting(TrustedExtension):
        async def on_unload(self) -> None:
            await asyncio.Event().wait()

    class Failing(TrustedExtension):
        def on_unload(self) -> None:
            raise RuntimeError("it is stuck")

    cls = assistant(ScriptedModel(), extensions=[Waiting, Failing])
    app = await open_app(cls)
    await live(app.agent(cls, "a"))
    await app.evict(cls, "a")
    assert "on_unload of the extension 'waiting' failed" in caplog.text
    assert "it is stuck" in caplog.text


async def test_a_tool_of_the_browser_is_refused_with_its_extension(open_app: OpenApp) -> None:
    class Screen(TrustedExtension):
        @tool(client=True)
        def colour(self) -> str:
            """The colour of the page."""
            ...

    said = await degraded(open_app, Screen)
    assert "runs in the browser" in said["the extension 'screen'"]


async def test_its_tools_may_ask_a_person_and_see_the_call(open_app: OpenApp) -> None:
    class Shop(TrustedExtension):
        @tool(needs_approval=True)
        async def buy(self, what: str, ctx: ToolContext) -> str:
            """Buy something."""
            return f"{what} for {ctx.agent.name}, {ctx.tool_name}"

    model = ScriptedModel(calls("shop_buy", what="tea"), says("Bought."))
    cls = assistant(model, extensions=[Shop])
    app = await open_app(cls)
    async with app.agent(cls, "a") as agent:
        await agent.save_messages("Buy tea.")
        assert agent.has_pending_interaction()
        await agent.apply_tool_approval((await agent.get_messages())[-1].tool_parts[0]["toolCallId"], True)
        await agent.continue_last_turn()
    assert results(model.last_request) == ["tea for a, shop_buy"]


def test_a_hook_that_there_is_not_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidSettings, match="Did you mean 'before_turn'"):

        class Wrong(TrustedExtension):  # pyright: ignore[reportUnusedClass]
            def before_trun(self, turn: Any) -> None: ...

    class Fine(TrustedExtension):  # pyright: ignore[reportUnusedClass]
        on_sale = True

        @tool
        def after_hours(self) -> str:
            """Say when it is closed."""
            return "after six"

    with pytest.raises(InvalidSettings, match="They hear: before_turn"):

        class Other(TrustedExtension):  # pyright: ignore[reportUnusedClass]
            def on_holiday(self) -> None: ...


@pytest.mark.parametrize("name", ["", "  ", "…", 5, None])
def test_what_is_no_name_is_refused_where_it_is_written(name: Any) -> None:
    with pytest.raises((InvalidSettings, ExtensionError)):
        installed(name)


def test_a_text_in_the_list_says_how_a_package_is_named() -> None:
    with pytest.raises(InvalidSettings, match="installed"):
        assistant(ScriptedModel(), extensions=["words"])


def test_nothing_of_a_package_is_run_before_an_agent_names_it(install: Install) -> None:
    install("raise AssertionError('it was run')")
    [one] = packages.packages()
    assert (one.name, one.distribution, one.version) == ("words", "everthink-words", "1.2")


@pytest.mark.parametrize("name", ["beforeTurn", "befor_turn", "afterToolCall", "onChunk", "on_anything"])
def test_what_looks_like_a_hook_and_is_none_is_refused_however_it_is_written(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"{name} is no hook of extensions"):
        type("Guard", (TrustedExtension,), {name: lambda self, given: None})


def test_other_methods_of_a_package_may_be_called_as_they_like() -> None:
    type("Words", (TrustedExtension,), {name: lambda self: None for name in ("turn", "chunk", "once", "_on")})


async def test_one_that_adds_nothing_says_so_with_the_method_that_was_meant_to_be_a_tool(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    class Forgotten(TrustedExtension):
        """Counts words, it thinks."""

        async def count(self, text: str) -> int:
            return len(text.split())

    cls = assistant(ScriptedModel(says("1")), extensions=[Forgotten])
    app = await open_app(cls)

    [info] = (await live(app.agent(cls, "a"))).extension_manager.list()

    note = "it has neither a tool, a hook nor a context block. Is count() a tool? Then write @tool above it"
    assert info.notes == (note,)
    assert f"the extension 'forgotten': {note}" in caplog.text
