"""Skills in turns of a real agent, on a real database: prompts, restarts, compactions."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, skills
from everthink.errors import InvalidSettings
from everthink.memory import ContextOverflow
from everthink.models.port import ToolMessage, ToolResultPart
from everthink.testing import ScriptedModel, calls, overflows, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

from .build import FOUR, skill
from .test_registry import Runner, Source

pytestmark = pytest.mark.anyio

SAID = "Arr, always say arr, matey. "
BODY = SAID * 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    skill(root, body=BODY, files=FOUR)
    return root


def here(folder: Path) -> Any:
    return [skills.from_directory(folder, refresh_interval=0)]


def activate(name: str = "pirate-style") -> Any:
    return calls("activate_skill", name=name)


def outputs(request: Any) -> list[str]:
    """The results of activate_skill that a model was shown."""
    return [
        part.output
        for message in request.messages
        if isinstance(message, ToolMessage)
        for part in message.content
        if isinstance(part, ToolResultPart) and part.name == "activate_skill"
    ]


# --- the prompt and the tools


async def test_a_model_finds_a_skill_activates_it_and_reads_a_file(open_app: OpenApp, folder: Path) -> None:
    model = ScriptedModel(
        activate(), calls("read_skill_resource", path="pirate-style/references/guide.md"), says("Arr!")
    )
    cls = assistant(model, skills=here(folder))
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Talk like a pirate.")

    first, second, third = model.requests
    assert "THINK_SKILLS (skill catalogue) [readonly]" in first.system
    assert "- pirate-style: Talk like a pirate." in first.system
    assert "Activate the skill that fits a task" in first.system
    assert [tool.name for tool in first.tools] == ["activate_skill", "read_skill_resource"]
    assert SAID in outputs(second)[0]
    assert "# Guide" in str(third.messages)


async def test_an_agent_without_skills_has_nothing_of_them(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hello."))
    cls = assistant(model)
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    assert "skill" not in model.last_request.system.lower()
    assert list(model.last_request.tools) == []


async def test_sources_and_the_runner_may_be_worked_out_for_each_agent(
    open_app: OpenApp, folder: Path
) -> None:
    runner = Runner({"said": "hello"})

    class Assistant(Think):
        model = ScriptedModel(
            calls("run_skill_script", name="pirate-style", path="scripts/run.py", args=["-v"]), says("Done.")
        )
        include_workspace_tools = False

        async def get_skills(self) -> Any:
            return here(folder) if self.name == "a" else []

        def get_skill_script_runner(self) -> Any:
            return runner

    app = await open_app(Assistant)
    await app.agent(Assistant, "a").save_messages("Run it.")
    other = await live(app.agent(Assistant, "b"))

    [request] = runner.requests
    assert (request.source, request.args, request.context.agent.name) == ("print('hello')\n", ("-v",), "a")
    assert "{'said': 'hello'}" in str(Assistant.model.last_request.messages)
    assert other._home.chat.skills.registry is None


async def test_the_tools_of_skills_win_over_those_of_get_tools(open_app: OpenApp, folder: Path) -> None:
    def activate_skill(name: str) -> str:
        """Mine."""
        return "mine"

    model = ScriptedModel(activate(), says("Arr."))
    cls = assistant(model, skills=here(folder), get_tools=lambda self: [activate_skill])
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")

    assert SAID in outputs(model.last_request)[0]


# --- what changes meanwhile


async def test_a_skill_that_comes_or_goes_is_in_the_next_prompt(open_app: OpenApp, folder: Path) -> None:
    model = ScriptedModel(says("One."), says("Two."), says("Three."), says("Four."))
    cls = assistant(
        model, skills=here(folder), configure_session=lambda self, session: session.with_cached_prompt()
    )
    app = await open_app(cls)
    agent = app.agent(cls, "a")

    await agent.save_messages("One?")
    skill(folder, "sailor", description="Talk like a sailor.")
    await agent.save_messages("Two?")
    shutil.rmtree(folder / "sailor")
    await agent.save_messages("Three?")
    shutil.rmtree(folder / "pirate-style")
    await agent.save_messages("Four?")

    catalogues = [request.system.count("Talk like a") for request in model.requests]
    assert catalogues == [1, 2, 1, 0]
    assert [len(list(request.tools)) for request in model.requests] == [2, 2, 2, 0]
    assert "THINK_SKILLS" not in model.requests[3].system
    assert "careful, capable assistant" in model.requests[3].system


async def test_a_prompt_that_says_the_same_is_not_made_anew(open_app: OpenApp, folder: Path) -> None:
    read: list[str] = []

    class Clock:
        def get(self) -> str:
            read.append("read")
            return "It is noon."

    model = ScriptedModel(says("One."), says("Two."))
    cls = assistant(
        model,
        skills=here(folder),
        configure_session=lambda self, session: session.with_context("clock", provider=Clock()),
    )
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("One?")
    skill(folder, body="Other words.", files=FOUR)  # the catalogue is the same
    await app.agent(cls, "a").save_messages("Two?")

    assert read == ["read"]


async def test_what_changed_while_the_agent_was_away_is_in_the_prompt_after_a_restart(
    open_app: OpenApp, folder: Path
) -> None:
    model = ScriptedModel(says("One."), says("Two."), says("Three."))
    cls = assistant(
        model, skills=here(folder), configure_session=lambda self, session: session.with_cached_prompt()
    )
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("One?")
    await app.evict(cls, "a")
    await app.agent(cls, "a").save_messages("Two?")
    await app.evict(cls, "a")

    skill(folder, description="Talk like Blackbeard.")
    await app.agent(cls, "a").save_messages("Three?")

    assert model.requests[0].system == model.requests[1].system
    assert "Talk like Blackbeard." in model.requests[2].system
    assert "Talk like a pirate." not in model.requests[2].system


async def test_every_session_has_the_catalogue(open_app: OpenApp, folder: Path) -> None:
    model = ScriptedModel(says("One."), says("Two."))
    cls = assistant(model, skills=here(folder))
    app = await open_app(cls)
    agent = await live(app.agent(cls, "a"))
    await agent.save_messages("One?")

    trip = await agent.sessions.create("Trip")
    await agent.sessions.open(trip.id)
    await agent.save_messages("Two?")

    assert "- pirate-style" in model.requests[1].system


# --- what goes wrong


async def test_a_source_that_fails_costs_no_turn_and_is_told_once(
    open_app: OpenApp, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source("shelf", "a")
    model = ScriptedModel(*[says("Hm.")] * 4)
    cls = assistant(model, skills=[source])
    app = await open_app(cls)
    agent = app.agent(cls, "a")
    await agent.save_messages("One?")

    source.broken = RuntimeError("fire")
    await agent.save_messages("Two?")
    await agent.save_messages("Three?")
    source.broken, source.names = None, ["a", "b"]
    await agent.save_messages("Four?")

    assert ["- a: From shelf." in request.system for request in model.requests] == [True] * 4
    assert "- b: From shelf." in model.requests[3].system
    told = [record.message for record in caplog.records if "fire" in record.message]
    assert len(told) == 1
    assert "its skills stay as they were" in told[0]


async def test_sources_that_make_no_sense_leave_an_agent_that_serves(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hello."))

    class Assistant(Think):
        include_workspace_tools = False

        def get_model(self) -> Any:
            return model

        def get_skills(self) -> Any:
            return "skills"

    app = await open_app(Assistant)
    await app.agent(Assistant, "a").save_messages("Hi")
    agent = await live(app.agent(Assistant, "a"))

    assert [one.step for one in agent._home.chat.degradations] == ["skills"]
    assert "no source of skills" in agent._home.chat.degradations[0].error
    assert list(model.last_request.tools) == []


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"skills": "skills"}, "It takes a source of skills"),
        ({"skills": ["skills"]}, "It takes a source of skills"),
        ({"skill_script_runner": "bash"}, r"an object with a method run\(request\)"),
        ({"skill_sources": []}, "'skills'"),
        ({"skill_runner": None}, "'skill_script_runner'"),
        ({"get_skill": lambda self: []}, "get_skills"),
    ],
)
def test_what_is_written_wrongly_is_refused_where_it_is_written(members: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        assistant(ScriptedModel(), **members)


@pytest.mark.case(197)
@pytest.mark.memory_case(196)
async def test_a_system_prompt_of_its_own_beside_skills_is_a_fallback_and_that_is_told(
    open_app: OpenApp, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    model = ScriptedModel(says("Arr."), says("Hello."))
    cls = assistant(model, skills=here(folder), get_system_prompt=lambda self: "You are Ada.")
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Hi")
    shutil.rmtree(folder / "pirate-style")
    await app.agent(cls, "a").save_messages("Hi")

    assert "You are Ada." not in model.requests[0].system
    assert "- pirate-style" in model.requests[0].system
    assert model.requests[1].system.startswith("You are Ada.")
    [told] = [record.message for record in caplog.records if "its system prompt" in record.message]
    assert "Assistant has skills" in told


# --- once activated, for good


async def test_a_skill_that_is_active_is_not_said_again_also_after_a_restart(
    open_app: OpenApp, folder: Path
) -> None:
    model = ScriptedModel(activate(), says("Arr."), activate(), says("Arr!"), activate(), says("Arrr!"))
    cls = assistant(model, skills=here(folder))
    app = await open_app(cls)
    await app.agent(cls, "a").save_messages("One?")
    await app.evict(cls, "a")
    await app.agent(cls, "a").save_messages("Two?")
    skill(folder, body="Say ahoy instead.", files=FOUR)
    await app.agent(cls, "a").save_messages("Three?")

    first, second, third = outputs(model.last_request)
    assert SAID in first
    assert second.startswith("The skill 'pirate-style' is active already")
    assert "Say ahoy instead." in third


async def test_instructions_in_old_messages_are_not_shortened(open_app: OpenApp, folder: Path) -> None:
    model = ScriptedModel(activate(), *[says("Arr.")] * 9)
    cls = assistant(model, skills=here(folder))
    app = await open_app(cls)
    for number in range(9):
        await app.agent(cls, "a").save_messages(f"{number}?")

    assert BODY.strip() in outputs(model.last_request)[0]


def compacting(self: Any, session: Any) -> Any:
    """Summarises all but the last message."""

    def compact(messages: Any, context: Any) -> Any:
        asked.append("".join(message.text for message in messages))
        return {
            "from_message_id": messages[0].id,
            "to_message_id": messages[-2].id,
            "summary": f"Summary {len(asked)}.",
        }

    asked: list[str] = []
    self.asked = asked
    return session.on_compaction(compact)


async def test_an_active_skill_survives_compactions_and_a_restart(open_app: OpenApp, folder: Path) -> None:
    model = ScriptedModel(activate(), says("Arr."), *[says("Arr.")] * 3, activate(), says("Still."))
    cls = assistant(model, skills=here(folder), configure_session=compacting)
    app = await open_app(cls)
    agent = await live(app.agent(cls, "a"))
    for number in range(4):
        await agent.save_messages(f"{number}?")
        if number in (1, 2):
            assert await agent.session.compact() is not None
    # A summary is made of words alone: what it carries is not summarised, and not lost.
    assert "Summary 1." in agent.asked[1]
    assert SAID not in agent.asked[1]
    await app.evict(cls, "a")

    await app.agent(cls, "a").save_messages("Again?")

    prompt = str(model.last_request.messages)
    assert prompt.count(BODY.strip()) == 1
    assert "Summary 2." in prompt
    assert "is active already" in outputs(model.last_request)[-1]
    agent = await live(app.agent(cls, "a"))
    assert skills.view(agent._home.chat.skills.registry, agent.session.path)["active"] == ["pirate-style"]


async def test_making_room_leaves_instructions_alone(open_app: OpenApp, folder: Path) -> None:
    async def fetch() -> str:
        """Fetch much."""
        return "much " * 1_000

    model = ScriptedModel(activate(), calls("fetch"), overflows(), says("Arr."))
    cls = assistant(
        model,
        skills=here(folder),
        get_tools=lambda self: [fetch],
        context_overflow=ContextOverflow(reactive=True),
    )
    app = await open_app(cls)

    await app.agent(cls, "a").save_messages("Go.")

    last = model.last_request
    assert BODY.strip() in outputs(last)[0]
    assert "was left out to make room" in str(last.messages)


async def test_clearing_a_conversation_ends_what_was_active(open_app: OpenApp, folder: Path) -> None:
    model = ScriptedModel(activate(), says("Arr."), activate(), says("Arr."))
    cls = assistant(model, skills=here(folder))
    app = await open_app(cls)
    agent = await live(app.agent(cls, "a"))
    await agent.save_messages("One?")
    await agent.clear_messages()
    await agent.save_messages("Two?")

    assert [SAID in one for one in outputs(model.last_request)] == [True]
