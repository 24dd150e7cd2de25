"""The page is told when the demo model answers, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everthink.serving.missing_models import use_demo_models
from everthink.serving.page import WithPage
from everthink.serving.target import load
from everthink.testing.in_process_server import Listening

pytestmark = pytest.mark.anyio

AGENTS = """
from everthink import App, Think
from everthink.testing import ScriptedModel

class Fixed(Think):
    model = "openai:gpt-5"

class Chosen(Think):
    def get_model(self):
        return "openai:gpt-5"

class Real(Think):
    model = ScriptedModel()

class Toy(Think):
    model = "demo"

app = App(Fixed, Chosen, Real, Toy, store="sqlite:///stood.db", grace=0.0)
"""


async def test_the_list_of_agents_says_for_whom_the_demo_model_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "stood_in.py").write_text(AGENTS)
    loaded = load("stood_in:app")
    use_demo_models(loaded)
    async with Listening(WithPage(loaded)) as server:

        async def told() -> dict[str, str | None]:
            listed = json.loads((await server.http("/everthink/agents")).text)
            return {one["class"]: one.get("stand_in") for one in listed}

        before = await told()
        assert "stands in" in (before["Fixed"] or "")
        assert "OPENAI_API_KEY" in (before["Fixed"] or "")
        assert before["Toy"] == "The demo model answers, by a few rules. No language model is asked."
        assert (before["Real"], before["Chosen"]) == (None, None)

        # Which model code chooses is known once it was asked
        chat = await server.connect("/agents/chosen/room")
        await chat.until_done(await chat.say("Hi"))
        assert "OPENAI_API_KEY" in ((await told())["Chosen"] or "")
