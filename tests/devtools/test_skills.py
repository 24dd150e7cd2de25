"""The skills of an agent, as the page sees and activates them."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from everthink import skills, tool
from everthink.access.permissions import Permission
from everthink.testing import ScriptedModel, says

from ..skills.build import FOUR, skill, write
from ..skills.test_registry import Runner
from ..skills.test_turns import outputs
from ..support.agents import assistant, live
from ..support.server import Served
from .conftest import ROOM, Develop

pytestmark = pytest.mark.anyio

SKILLS = f"{ROOM}/skills"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    skill(root, body="Always say arr.\n", files=FOUR)
    return root


def here(folder: Path) -> Any:
    return [skills.from_directory(folder, refresh_interval=0)]


async def begun(server: Served) -> Any:
    """See that the agent exists: looking does not make it."""
    app = server.app._loaded.app
    return await live(app.agent(app.classes[0], "room"))


async def post(server: Served, **fields: Any) -> Any:
    return await server.http(f"{SKILLS}/activate", method="POST", body=json.dumps(fields).encode())


async def test_looking_makes_no_agent_and_one_without_skills_has_none(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    assert (await server.http(SKILLS)).json is None
    assert not (await server.http("/everthink/conversations/assistant")).json["conversations"]
    await begun(server)
    shown = (await server.http(SKILLS)).json
    assert (shown["skills"], shown["sources"], shown["scripts"], shown["problem"]) == ([], [], None, None)
    assert (await server.http(f"{SKILLS}/languages")).json is None
    assert (await server.http(f"{SKILLS}/look?name=pirate-style")).status == 404
    assert (await server.http(f"{SKILLS}/elsewhere")).status == 404
    assert "Give the agent some" in (await post(server, name="pirate-style")).json["error"]


async def test_skills_are_shown_with_their_sources_and_what_is_wrong(develop: Develop, folder: Path) -> None:
    write(folder, {"nameless/SKILL.md": "---\nname: nameless\n---\nNo description.\n"})
    gone = skills.from_directory(folder / "gone", id="gone")
    cls = assistant(ScriptedModel(), skills=[*here(folder), gone])
    server = await develop(cls)
    await begun(server)

    shown = (await server.http(SKILLS)).json

    [own, other] = shown["sources"]
    assert (own["skills"], own["error"]) == (["pirate-style"], None)
    assert (other["id"], other["skills"]) == ("gone", [])
    assert [(one["name"], one["active"]) for one in shown["skills"]] == [("pirate-style", False)]
    [skipped] = [one for one in shown["diagnostics"] if one["skill"] == "nameless"]
    assert (skipped["level"], bool(skipped["nextStep"])) == ("error", True)


async def test_sources_are_looked_at_again_when_asked(develop: Develop, folder: Path) -> None:
    server = await develop(assistant(ScriptedModel(), skills=here(folder)))
    await begun(server)
    skill(folder, "haiku", description="Answer in a haiku.")

    before = (await server.http(SKILLS)).json["skills"]
    after = (await server.http(f"{SKILLS}?again=1")).json["skills"]

    assert [one["name"] for one in before] == ["pirate-style"]
    assert sorted(one["name"] for one in after) == ["haiku", "pirate-style"]


async def test_an_agent_whose_skills_cannot_be_had_says_why(develop: Develop) -> None:
    def broken(self: Any) -> Any:
        raise RuntimeError("the shelf is empty")

    server = await develop(assistant(ScriptedModel(), get_skills=broken))
    await begun(server)
    shown = (await server.http(SKILLS)).json
    assert (shown["skills"], shown["problem"]) == ([], "the shelf is empty")


async def test_instructions_and_files_are_shown(develop: Develop, folder: Path) -> None:
    server = await develop(assistant(ScriptedModel(), skills=here(folder)))
    await begun(server)

    found = (await server.http(f"{SKILLS}/look?name=pirate-style")).json
    assert (found["body"], found["isCut"]) == ("Always say arr.", False)
    assert {one["path"]: one["kind"] for one in found["resources"]} == {
        "references/guide.md": "reference",
        "scripts/run.py": "script",
        "assets/logo.png": "asset",
        "LICENSE.txt": "file",
    }
    guide = (await server.http(f"{SKILLS}/file?name=pirate-style&path=references/guide.md")).json
    assert (guide["text"], guide["size"], guide["isCut"]) == ("# Guide\n", 8, False)
    logo = (await server.http(f"{SKILLS}/file?name=pirate-style&path=assets/logo.png")).json
    assert (logo["text"], logo["size"], logo["mediaType"]) == (None, 256, "image/png")


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/passwd", "references/../../secret.txt", "", "no"])
async def test_a_path_that_leads_out_of_a_skill_reads_nothing(
    develop: Develop, folder: Path, path: str
) -> None:
    (folder.parent / "secret.txt").write_text("hush")
    server = await develop(assistant(ScriptedModel(), skills=here(folder)))
    await begun(server)
    refused = await server.http(f"{SKILLS}/file?name=pirate-style&path={path}")
    assert (refused.status, "hush" in refused.text) == (404, False)


async def test_a_source_that_fails_is_said_in_words(develop: Develop, folder: Path) -> None:
    class Failing:
        id, fingerprint = "shelf", "1"

        async def list(self) -> Any:
            return [skills.SkillInfo("haiku", "Answer in a haiku.")]

        async def load(self, name: str) -> Any:
            raise ConnectionError("the shelf does not answer")

        async def read_resource(self, name: str, path: str) -> Any:
            raise ConnectionError("the shelf does not answer")

        async def refresh(self) -> None: ...

    server = await develop(assistant(ScriptedModel(), skills=[Failing()]))
    await begun(server)
    for asked in (f"{SKILLS}/look?name=haiku", f"{SKILLS}/file?name=haiku&path=a.md"):
        refused = await server.http(asked)
        assert (refused.status, "the shelf does not answer" in refused.json["error"]) == (502, True)
    assert (await post(server, name="haiku")).status == 502


async def test_a_person_activates_a_skill_and_the_next_turn_has_its_instructions(
    develop: Develop, folder: Path
) -> None:
    model = ScriptedModel(says("Arr!"), says("Arr again!"))
    cls = assistant(model, skills=here(folder))
    server = await develop(cls)
    window = await server.connect(cls)

    activated = await post(server, name="pirate-style")

    assert (activated.status, activated.json) == (200, {"name": "pirate-style", "added": True})
    shown = (await server.http(SKILLS)).json
    assert (shown["active"], shown["skills"][0]["active"]) == (["pirate-style"], True)
    await window.until(lambda: "Activate the skill pirate-style." in str(window.frames))
    agent = await begun(server)
    await agent.save_messages("Hello")
    assert "Always say arr." in outputs(model.last_request)[0]

    # A second time nothing is added
    again = await post(server, name="pirate-style")
    assert again.json == {"name": "pirate-style", "added": False}
    assert len(outputs(model.last_request)) == 1

    # What a model is shown first is somebody's words, and each result has its call
    assert [type(one).__name__ for one in model.last_request.messages][:3] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
    ]


async def test_a_skill_that_changed_is_activated_anew(develop: Develop, folder: Path) -> None:
    server = await develop(assistant(ScriptedModel(), skills=here(folder)))
    await begun(server)
    await post(server, name="pirate-style")
    shutil.rmtree(folder / "pirate-style")
    skill(folder, body="Say ahoy instead.\n")
    await server.http(f"{SKILLS}?again=1")
    assert (await post(server, name="pirate-style")).json["added"] is True


async def test_nothing_is_activated_while_a_turn_runs_or_waits_for_a_person(
    develop: Develop, folder: Path
) -> None:
    go = asyncio.Event()

    @tool(needs_approval=True)
    def book() -> str:
        """Book it."""
        return "booked"

    model = ScriptedModel(says("One moment ").waits(go).calls("book"), says("Booked."))
    cls = assistant(model, skills=here(folder), get_tools=lambda self: [book])
    server = await develop(cls)
    window = await server.connect(cls)
    request = await window.say("Hello")
    await window.until_text("One moment ")

    refused = await post(server, name="pirate-style")
    assert (refused.status, "A turn runs" in refused.json["error"]) == (409, True)

    go.set()
    await window.until_done(request)
    refused = await post(server, name="pirate-style")
    assert (refused.status, "waits for a person" in refused.json["error"]) == (409, True)
    assert (await server.http(SKILLS)).json["active"] == []


@pytest.mark.parametrize("fields", [{}, {"name": ""}, {"name": ["pirate-style"]}])
async def test_what_names_no_skill_activates_none(develop: Develop, folder: Path, fields: Any) -> None:
    server = await develop(assistant(ScriptedModel(), skills=here(folder)))
    agent = await begun(server)
    assert (await post(server, **fields)).status == 400
    unknown = await post(server, name="parrot-style")
    assert (unknown.status, "There are: pirate-style" in unknown.json["error"]) == (404, True)
    assert await agent.get_messages() == []


async def test_who_may_only_look_activates_nothing(develop: Develop, folder: Path) -> None:
    def permissions(identity: Any, action: str) -> Any:
        return action == "inspect" or frozenset[Permission]()

    server = await develop(assistant(ScriptedModel(), skills=here(folder)), authorize=permissions)
    await begun(server)
    refused = await post(server, name="pirate-style")
    assert (refused.status, "not change it" in refused.json["error"]) == (403, True)
    assert (await server.http(SKILLS)).json["active"] == []


async def test_another_site_activates_nothing(develop: Develop, folder: Path) -> None:
    server = await develop(assistant(ScriptedModel(), skills=here(folder)))
    agent = await begun(server)
    sent = await server.http(
        f"{SKILLS}/activate",
        method="POST",
        headers={"Origin": "http://evil.example"},
        body=b'{"name": "pirate-style"}',
    )
    assert sent.status == 403
    assert await agent.get_messages() == []


async def test_the_rights_of_scripts_are_told(develop: Develop, folder: Path) -> None:
    def weather(city: str) -> str:
        """The weather."""
        return "sun"

    def runner(self: Any) -> Any:
        return skills.runner(
            workspace_instance=self.workspace, tools=[weather], network=["api.example.com"], timeout=5
        )

    server = await develop(assistant(ScriptedModel(), skills=here(folder), get_skill_script_runner=runner))
    await begun(server)
    assert (await server.http(SKILLS)).json["scripts"] == {
        "runner": "Runner",
        "rights": {"workspace": "read", "network": "api.example.com", "tools": ["weather"], "timeout": 5},
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, {"workspace": "none", "network": None, "tools": []}),
        (
            {"network": True, "tools": lambda: []},
            {"workspace": "none", "network": "the public web", "tools": None},
        ),
    ],
)
def test_rights_are_told_as_they_are(options: Any, told: Any) -> None:
    assert skills.runner(**options).told() == {"rights": told | {"timeout": 30.0}}


async def test_of_a_runner_of_ones_own_nothing_is_claimed(develop: Develop, folder: Path) -> None:
    server = await develop(assistant(ScriptedModel(), skills=here(folder), skill_script_runner=Runner("hi")))
    await begun(server)
    assert (await server.http(SKILLS)).json["scripts"] == {"runner": "Runner", "rights": None}
    assert (await server.http(f"{SKILLS}/languages")).json is None


@pytest.mark.slow
async def test_which_languages_run_here_is_found_out_by_running_them(develop: Develop, folder: Path) -> None:
    server = await develop(
        assistant(ScriptedModel(), skills=here(folder), skill_script_runner=skills.runner())
    )
    await begun(server)
    found = (await server.http(f"{SKILLS}/languages")).json
    assert found["JavaScript and TypeScript"] is None
    assert found["bash"] is None
    assert any(name.startswith("Python") and why is None for name, why in found.items())
