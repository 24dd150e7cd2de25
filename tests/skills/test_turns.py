"""Skills in turns of a real agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from everthink import skills
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

pytestmark = pytest.mark.anyio


async def test_the_model_sees_the_catalogue_and_activates_a_skill(open_app: OpenApp, tmp_path: Path) -> None:
    pirate = tmp_path / "pirate-style"
    pirate.mkdir()
    (pirate / "SKILL.md").write_text(
        "---\nname: pirate-style\ndescription: Talk like a pirate.\n---\nSay arr.\n"
    )
    model = ScriptedModel(calls("activate_skill", {"name": "pirate-style"}), says("Arr!"))
    cls = assistant(model, skills=[skills.from_directory(tmp_path)])
    app = await open_app(cls)

    await app.agent(cls, "a").chat("Talk like a pirate")

    assert "- pirate-style: Talk like a pirate." in model.requests[0].system
    assert [t.name for t in model.requests[0].tools] == ["activate_skill", "read_skill_resource"]
    assert "Say arr." in str(model.requests[1].messages)
