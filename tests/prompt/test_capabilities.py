"""The lines that tell the model what it can do in this turn."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import StepConfig, Think, Tool, TurnConfig, client_tool
from everthink.context.tools import CONTEXT, MEMORY
from everthink.errors import InvalidSettings
from everthink.hooks import TurnContext
from everthink.memory import Session
from everthink.prompt.wording import SENTINEL, capabilities
from everthink.testing.scripted import ScriptedModel, calls, says
from everthink.tools.tool import APP, BROWSER, Origin
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import configured

pytestmark = pytest.mark.anyio


async def prompt_of(open_app: OpenApp, **members: Any) -> str:
    model = ScriptedModel(says("Hello."))
    app = await open_app(cls := assistant(model, **members))
    await app.agent(cls, "room").save_messages("Hi")
    return model.last_request.system


def tools(*names: str) -> Any:
    return lambda self: [client_tool(name) for name in names]


# Origins as parts of an application, or of everthink, declare them.
ORIGINS = {
    "app": APP,
    "browser": BROWSER,
    "memory": MEMORY,
    "context": CONTEXT,
    "workspace": Origin("workspace", "You can edit the files of your workspace.", is_first=True),
    "sandbox": Origin("sandbox", "You can run code in a sandbox."),
    "fetch": Origin("fetch", "Fetch tools are read-only."),
    "mcp": Origin("mcp", where="on an MCP server"),
    "agent": Origin("agent", where="through another agent"),
    "extension": Origin("extension", "Extensions can add tools.", where="in an extension"),
}


def from_(origin: str, name: str = "one") -> Tool:
    made = Tool.from_schema(name, "", None, lambda given: "done")
    made.origin = ORIGINS[origin]
    return made


def block_of(system: str) -> list[str]:
    return [line for line in system[system.index(SENTINEL) :].splitlines() if line.startswith("- ")]


@pytest.mark.case(658)
async def test_the_block_follows_the_prompt_after_a_blank_line(open_app: OpenApp) -> None:
    system = await prompt_of(open_app, system_prompt="You are a cook.")
    assert system.startswith(f"You are a cook.\n\n{SENTINEL}\n")
    assert SENTINEL == "You are running inside a Think agent."
    assert system.splitlines()[-1] == "- Do not claim a capability that is not listed or offered as a tool."


@pytest.mark.case(658)
async def test_a_prompt_that_has_the_first_sentence_already_is_left_alone(open_app: OpenApp) -> None:
    own = f"You are a cook. {SENTINEL} You have a knife."
    assert await prompt_of(open_app, system_prompt=own, get_tools=tools("read")) == own


@pytest.mark.case(658)
@pytest.mark.parametrize(
    ("origins", "bullets"),
    [
        ((), 1),
        (("app",), 2),
        (("memory",), 2),
        *(
            ((origin,), 3)
            for origin in ("browser", "workspace", "context", "sandbox", "fetch", "mcp", "agent")
        ),
        (("extension",), 4),
        (("workspace", "context", "extension", "sandbox", "fetch"), 8),
    ],
)
async def test_it_lists_only_the_groups_of_tools_that_are_there(
    open_app: OpenApp, origins: tuple[str, ...], bullets: int
) -> None:
    given = [from_(origin, f"tool_{origin}") for origin in origins]
    assert len(block_of(await prompt_of(open_app, get_tools=lambda self: given))) == bullets


@pytest.mark.case(658)
@pytest.mark.parametrize(
    ("origin", "word"),
    [("workspace", "workspace"), ("sandbox", "sandbox"), ("fetch", "Fetch"), ("context", "context")],
)
def test_each_group_is_named(origin: str, word: str) -> None:
    assert word in capabilities({"one": from_(origin)})
    assert word not in capabilities({"one": from_("app")})


@pytest.mark.parametrize("name", ["read", "grep", "execute", "fetch_page", "load_context", "load_extension"])
def test_a_tool_of_your_own_is_not_taken_for_one_of_ours_by_its_name(name: str) -> None:
    assert capabilities({name: from_("app", name)}) == capabilities({"weather": from_("app", "weather")})


def test_tools_that_run_elsewhere_are_named_with_the_place() -> None:
    many = {f"b{n}": client_tool(f"b{n}") for n in range(14)}
    lines = capabilities(
        {"look": client_tool("look"), "ask": from_("mcp", "ask"), "pay": from_("mcp", "pay")}
    )
    assert "- `look` runs in the user's browser." in lines
    assert "- `ask` and `pay` run on an MCP server." in lines
    assert "`b11` and 2 more run in the user's browser." in capabilities(many)


async def test_the_tools_of_memory_have_their_sources(open_app: OpenApp) -> None:
    def configure_session(self: Any, session: Session) -> Session:
        return session.with_context("memory", description="Facts")

    system = await prompt_of(open_app, configure_session=configure_session)
    assert "Load the context" not in system  # there is nothing to load, only something to write


@pytest.mark.case(658)
async def test_it_is_made_anew_with_the_tools_of_before_turn(open_app: OpenApp) -> None:
    # Given a turn that brings the first tool
    seen: list[TurnContext] = []

    def before_turn(self, turn):
        seen.append(turn)
        return TurnConfig(tools=[from_("sandbox", "execute")])

    # When it runs, then the hook saw the block without it and the model the block with it
    system = await prompt_of(open_app, before_turn=before_turn, system_prompt="You are a cook.")
    assert "sandbox" not in seen[0].system
    assert "sandbox" in system
    assert system.count(SENTINEL) == 1


@pytest.mark.case(658)
@pytest.mark.parametrize("field", ["system", "instructions"])
async def test_an_overridden_prompt_has_no_block(open_app: OpenApp, field: str) -> None:
    config = TurnConfig(**{field: "Only this."}, tools=[client_tool("execute")])
    assert await prompt_of(open_app, before_turn=configured(config)) == "Only this."


async def test_a_prompt_built_on_the_shown_one_keeps_its_block_once(open_app: OpenApp) -> None:
    def before_turn(self, turn):
        return TurnConfig(system=turn.system + "\n\nHurry.")

    system = await prompt_of(open_app, before_turn=before_turn)
    assert system.count(SENTINEL) == 1
    assert system.endswith("Hurry.")


async def test_the_default_prompt_has_five_paragraphs_and_is_used_without_another(open_app: OpenApp) -> None:
    system = await prompt_of(open_app)
    base, _, _ = system.partition(f"\n\n{SENTINEL}")
    assert base == Think.system_prompt
    assert len(base.split("\n\n")) == 5


@pytest.mark.parametrize("is_async", [False, True])
async def test_get_system_prompt_may_be_overridden_plain_or_async(open_app: OpenApp, is_async: bool) -> None:
    def sync(self):
        return "Made on the spot."

    async def later(self):
        return "Made on the spot."

    system = await prompt_of(open_app, get_system_prompt=later if is_async else sync)
    assert system.startswith("Made on the spot.\n\n")


# --- what is really offered in a step


async def test_a_step_with_fewer_active_tools_is_told_of_those_alone(open_app: OpenApp) -> None:
    # Given a turn with a tool in the browser, which only its second step may use
    model = ScriptedModel(calls("look"), says("Done."))

    def before_step(self: Any, step: Any) -> StepConfig:
        return StepConfig(active_tools=["look"] if step.step_number == 0 else ["look", "ask"])

    given = [Tool.from_schema("look", "", None, lambda given: "seen"), client_tool("ask")]
    app = await open_app(cls := assistant(model, get_tools=lambda self: given, before_step=before_step))
    await app.agent(cls, "room").save_messages("Hi")

    # Then each step is told what it can do
    first, second = (request.system for request in model.requests)
    assert "browser" not in first
    assert "`ask` runs in the user's browser" in second


async def test_active_tools_of_the_turn_count_as_well(open_app: OpenApp) -> None:
    config = TurnConfig(active_tools=[])
    system = await prompt_of(open_app, get_tools=tools("ask"), before_turn=configured(config))
    assert block_of(system) == ["- Do not claim a capability that is not listed or offered as a tool."]


async def test_a_prompt_that_a_hook_wrote_stays_as_it_is_when_tools_are_left_out(open_app: OpenApp) -> None:
    config = TurnConfig(system="Only this.", active_tools=[])
    assert await prompt_of(open_app, get_tools=tools("a"), before_turn=configured(config)) == "Only this."


# --- switched off, or replaced


@pytest.mark.parametrize("off", [False, ""])
async def test_it_can_be_switched_off(open_app: OpenApp, off: Any) -> None:
    assert await prompt_of(open_app, system_prompt="You cook.", capability_prompt=off) == "You cook."


async def test_it_can_be_replaced_by_a_text(open_app: OpenApp) -> None:
    system = await prompt_of(open_app, system_prompt="You cook.", capability_prompt="You have a knife.")
    assert system == "You cook.\n\nYou have a knife."


@pytest.mark.parametrize("is_async", [False, True])
async def test_it_can_be_made_by_a_method_from_the_tools_of_the_step(
    open_app: OpenApp, is_async: bool
) -> None:
    def sync(self: Any, offered: Any) -> str:
        return f"Tools: {', '.join(offered)}."

    async def later(self: Any, offered: Any) -> str:
        return sync(self, offered)

    system = await prompt_of(
        open_app,
        system_prompt="You cook.",
        get_tools=tools("knife", "pan"),
        before_turn=configured(TurnConfig(active_tools=["pan"])),
        get_capability_prompt=later if is_async else sync,
    )
    assert system == "You cook.\n\nTools: pan."


async def test_something_else_than_text_is_refused_with_the_name_of_the_method(open_app: OpenApp) -> None:
    with pytest.raises(InvalidSettings, match="get_capability_prompt returned 7, an int"):
        await prompt_of(open_app, get_capability_prompt=lambda self, tools: 7)


def test_its_name_in_camel_case_is_told_where_the_class_is_written() -> None:
    with pytest.raises(InvalidSettings, match="capability_prompt"):
        assistant(ScriptedModel(), capabilityPrompt=False)
