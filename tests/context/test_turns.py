"""Context blocks in whole turns: the model is shown the prompt, and what it writes is there afterwards."""

from __future__ import annotations

import pytest

from everthink import Think
from everthink.context.providers import SearchableEntries, StoredEntries
from everthink.session.session import Session
from everthink.testing import ScriptedModel
from everthink.testing.scripted import calls, says
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio

CONTEXT_TOOLS = {"set_context", "load_context", "unload_context", "search_context"}


@pytest.mark.memory_case(123)
async def test_a_turn_without_blocks_has_no_context_tools(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hello."))

    class Plain(Think):
        def get_model(self) -> ScriptedModel:
            return model

    app = await open_app(Plain)
    await app.agent(Plain, "room").save_messages("Hi")
    assert not CONTEXT_TOOLS & {tool.name for tool in model.requests[0].tools}


async def test_a_model_remembers_across_turns_and_restarts(open_app: OpenApp) -> None:
    # Given a model that writes a fact, a document and an entry, and reads what it wrote
    model = ScriptedModel(
        calls("set_context", label="memory", content="Likes tea."),
        calls("set_context", label="skills", content="Arr!", metadata={"title": "Pirate style"}),
        calls("set_context", label="facts", content="The cat is called Ada."),
        calls("load_context", label="skills", key="pirate-style"),
        calls("search_context", label="facts", query="cat called"),
        calls("set_context", label="soul", content="Be rude."),
        says("Noted."),
        says("Tea?"),
    )

    class Remembering(Think):
        def get_model(self) -> ScriptedModel:
            return model

        def configure_session(self, session: Session) -> Session:
            return (
                session.with_context("soul", provider="Be kind.")
                .with_context("memory", description="Facts about the user", max_tokens=1000)
                .with_context("skills", provider=StoredEntries())
                .with_context("facts", provider=SearchableEntries())
            )

    app = await open_app(Remembering)
    result = await app.agent(Remembering, "room").save_messages("Hi")

    # Then it was shown the blocks and the tools, and read the results
    first = model.requests[0]
    assert {tool.name for tool in first.tools} >= CONTEXT_TOOLS
    assert "MEMORY (Facts about the user) [0% — 0/1000 tokens] [writable]" in first.system
    assert result.message is not None
    outputs = [part["output"] for part in result.message.tool_parts]
    assert outputs[:5] == [
        "Written to memory. Usage: 0% (3/1000 tokens).",
        'Indexed "pirate-style" in skills.',
        outputs[2],
        "Arr!",
        f"[{outputs[2].split(chr(34))[1]}]\nThe cat is called Ada.",
    ]
    assert outputs[5].startswith("Error:")
    # And the prompt did not move within the turn
    assert {request.system for request in model.requests} == {first.system}

    # When the process starts again
    await app.close()
    app = await open_app(Remembering)
    await app.agent(Remembering, "room").save_messages("Hi again")

    # Then the prompt has what was written
    shown = model.requests[-1].system
    assert "Likes tea." in shown
    assert "- pirate-style: Pirate style" in shown
    assert "1 entries indexed." in shown
    assert "Be rude." not in shown
