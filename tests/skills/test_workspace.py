"""Skills among an agent's own files: those that no model wrote."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think, skills
from everthink.testing import ScriptedModel, calls, says
from everthink.workspace import MemoryFiles, Workspace, WorkspaceLimits
from tests.conftest import OpenApp
from tests.support.agents import live

from .build import text
from .sites import zipped

pytestmark = pytest.mark.anyio

PLACE = "/skills/pirate-style/SKILL.md"


def agent_of(model: ScriptedModel, **members: Any) -> type[Think]:
    return type(
        "Assistant",
        (Think,),
        {"model": model, "skills": [skills.from_workspace()], "workspace_bash": False} | members,
    )


def listed(agent: Any) -> list[str]:
    return [one.name for one in agent._home.chat.skills.registry.skills]


def said(agent: Any) -> list[str]:
    return [one.what for one in agent._home.chat.skills.registry.diagnostics]


async def test_what_a_person_puts_there_is_a_skill_with_the_next_turn(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hm."), calls("activate_skill", name="pirate-style"), says("Arr."))
    app = await open_app(cls := agent_of(model))
    agent = await live(app.agent(cls, "a"))
    await agent.save_messages("One?")
    assert listed(agent) == []

    await skills.install(zipped({"pirate-style/SKILL.md": text()}), into=agent.workspace)
    await agent.save_messages("Two?")

    assert listed(agent) == ["pirate-style"]
    assert "Say arr." in str(model.last_request.messages)


async def test_what_the_model_writes_is_none(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("write", path=PLACE, content=text()), says("Written."), says("Hm."))
    app = await open_app(cls := agent_of(model))
    agent = await live(app.agent(cls, "a"))
    await agent.save_messages("Write yourself a skill.")
    await agent.save_messages("And now?")

    assert listed(agent) == []
    assert said(agent) == [f"It is left out: the model wrote '{PLACE}'."]
    assert "activate_skill" not in [tool.name for tool in model.last_request.tools]


async def test_a_model_that_touches_one_file_of_a_skill_takes_it_away(open_app: OpenApp) -> None:
    model = ScriptedModel(
        calls("write", path="/skills/pirate-style/notes.md", content="x"), says("Done."), says("Hm.")
    )
    app = await open_app(cls := agent_of(model))
    agent = await live(app.agent(cls, "a"))
    await agent.workspace.write_file(PLACE, text())
    await agent.save_messages("Add a note.")
    await agent.save_messages("And now?")

    assert listed(agent) == []

    await agent.workspace.delete_file("/skills/pirate-style/notes.md")
    await agent._home.chat.skills.tools(agent.session)
    assert listed(agent) == ["pirate-style"]


async def test_words_of_a_model_stay_its_words_whoever_moves_them(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("write", path="/draft.md", content=text()), says("Done."), says("Hm."))
    app = await open_app(cls := agent_of(model))
    agent = await live(app.agent(cls, "a"))
    await agent.save_messages("Draft a skill.")
    await agent.workspace.mv("/draft.md", PLACE)
    await agent.save_messages("And now?")

    assert listed(agent) == []
    assert "the model wrote" in said(agent)[0]


async def test_a_model_may_write_skills_where_that_is_said(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("write", path=PLACE, content=text()), says("Written."), says("Hm."))
    cls = agent_of(model, skills=[skills.from_workspace(allow_model_skills=True)])
    app = await open_app(cls)
    agent = await live(app.agent(cls, "a"))
    await agent.save_messages("Write yourself a skill.")
    await agent.save_messages("And now?")

    assert listed(agent) == ["pirate-style"]


async def test_what_was_seen_to_be_a_persons_stays_so_when_the_log_forgets(open_app: OpenApp) -> None:
    model = ScriptedModel(*[says("Hm.")] * 3)
    workspace = Workspace(limits=WorkspaceLimits(history=1))
    app = await open_app(cls := agent_of(model, workspace=workspace))
    agent = await live(app.agent(cls, "a"))
    await agent.workspace.write_file(PLACE, text())
    await agent.save_messages("One?")
    assert listed(agent) == ["pirate-style"]

    for number in range(600):  # the log is swept once in a while
        await agent.workspace.write_file("/x.txt", str(number))
    assert len(await agent.workspace.files.changes()) < 600
    await app.evict(cls, "a")
    agent = await live(app.agent(cls, "a"))

    assert listed(agent) == ["pirate-style"]


async def test_what_nobody_knows_any_more_is_none(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hm."))
    workspace = Workspace(limits=WorkspaceLimits(history=1))
    app = await open_app(cls := agent_of(model, workspace=workspace))
    agent = await live(app.agent(cls, "a"))
    await agent.workspace.write_file(PLACE, text())
    for number in range(600):
        await agent.workspace.write_file("/x.txt", str(number))
    await agent.save_messages("One?")

    assert listed(agent) == []
    assert said(agent) == [f"It is left out: nobody knows any more who wrote '{PLACE}'."]


async def test_files_that_do_not_tell_who_wrote_them_are_refused(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hm."))
    cls = agent_of(model, workspace=Workspace(MemoryFiles()))
    app = await open_app(cls)
    agent = await live(app.agent(cls, "a"))
    await agent.workspace.write_file(PLACE, text())
    await agent.save_messages("One?")

    assert listed(agent) == []
    assert "does not tell who wrote its files" in said(agent)[0]


async def test_links_are_not_followed(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hm."))
    app = await open_app(cls := agent_of(model))
    agent = await live(app.agent(cls, "a"))
    await agent.workspace.write_file("/secret.md", "hush")
    await agent.workspace.write_file(PLACE, text())
    await agent.workspace.symlink("/secret.md", "/skills/pirate-style/link.md")
    await agent.save_messages("One?")

    assert listed(agent) == ["pirate-style"]
    assert "is a link, and links are not followed" in said(agent)[0]


async def test_a_source_without_an_agent_says_that_it_needs_one() -> None:
    registry = skills.SkillRegistry(skills.from_workspace())
    await registry.load()

    assert "belongs to no agent" in registry.warnings[0]
