"""The lines that tell the model what it can do in this turn."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think, TurnConfig, TurnContext, client_tool
from everthink.testing.scripted import ScriptedModel, says
from everthink.turn.prompt import SENTINEL, with_capabilities
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
    ("names", "bullets"),
    [
        ((), 1),
        (("weather",), 3),
        *(((name,), 4) for name in ("read", "write", "edit", "list", "find", "grep", "delete")),
        (("load_context",), 4),
        (("unload_context",), 4),
        (("load_extension",), 4),
        (("list_extensions",), 4),
        (("execute",), 4),
        (("fetch_page",), 4),
        (("prefetch_page",), 3),
        (("read", "write", "load_context", "load_extension", "execute", "fetch_a", "fetch_b"), 8),
    ],
)
async def test_it_lists_only_the_groups_of_tools_that_are_there(
    open_app: OpenApp, names: tuple[str, ...], bullets: int
) -> None:
    system = await prompt_of(open_app, get_tools=tools(*names))
    block = system[system.index(SENTINEL) :]
    assert sum(line.startswith("- ") for line in block.splitlines()) == bullets


@pytest.mark.case(658)
@pytest.mark.parametrize(
    ("name", "word"),
    [("grep", "workspace"), ("execute", "sandbox"), ("fetch_page", "Fetch"), ("load_context", "context")],
)
async def test_each_group_is_named(open_app: OpenApp, name: str, word: str) -> None:
    with_it = await prompt_of(open_app, get_tools=tools(name))
    without = with_capabilities("", ["weather"])
    assert word in with_it[with_it.index(SENTINEL) :]
    assert word not in without


@pytest.mark.case(658)
async def test_it_is_made_anew_with_the_tools_of_before_turn(open_app: OpenApp) -> None:
    # Given a turn that brings the first tool
    seen: list[TurnContext] = []

    def before_turn(self, turn):
        seen.append(turn)
        return TurnConfig(tools=[client_tool("execute")])

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
