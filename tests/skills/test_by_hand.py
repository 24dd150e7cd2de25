"""A skill that code activates in the place of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink import skills
from everthink.errors import SkillError
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

from .build import skill
from .test_turns import BODY, SAID, compacting, here, outputs

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skill(tmp_path / "skills", body=BODY)
    return tmp_path / "skills"


async def test_what_code_activates_is_there_in_every_later_turn_and_not_said_twice(
    open_app: OpenApp, folder: Path
) -> None:
    model = ScriptedModel(calls("activate_skill", name="pirate-style"), says("Arr!"), says("Arr again!"))
    cls = assistant(model, skills=here(folder))
    app = await open_app(cls)
    async with app.agent(cls, "a") as agent:
        assert await skills.activate(agent, "pirate-style") is True
        assert await skills.activate(agent, "pirate-style") is False
        assert [one.role for one in await agent.get_messages()] == ["user", "assistant"]

        await agent.save_messages("Hello")

    # The model that activates it once more is told that it has it
    [first, again] = outputs(model.requests[1])
    assert SAID in first
    assert "is active already" in again
    assert [SAID in one for one in outputs(model.requests[0])] == [True]


async def test_it_is_carried_by_a_summary(open_app: OpenApp, folder: Path) -> None:
    model = ScriptedModel(says("One."), says("Two."))
    cls = assistant(model, skills=here(folder), configure_session=compacting)
    app = await open_app(cls)
    async with app.agent(cls, "a") as agent:
        await skills.activate(agent, "pirate-style")
        await agent.save_messages("One?")
        assert await agent.session.compact() is not None
        await agent.save_messages("Two?")

    assert outputs(model.last_request) == []
    assert SAID in str(model.last_request.messages)


@pytest.mark.parametrize("given", [{}, {"skills": True}])
async def test_a_skill_that_is_not_there_activates_nothing(
    open_app: OpenApp, folder: Path, given: dict[str, Any]
) -> None:
    cls = assistant(ScriptedModel(), **({"skills": here(folder)} if given else {}))
    app = await open_app(cls)
    async with app.agent(cls, "a") as agent:
        with pytest.raises(SkillError, match="no skill 'parrot-style'") as refused:
            await skills.activate(agent, "parrot-style")
        assert ("pirate-style" in refused.value.next_step) is bool(given)
        assert await agent.get_messages() == []
