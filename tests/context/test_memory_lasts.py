"""What outlives a session, what goes with it, and what a conversation keeps in full."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest

from everthink import Message, Think
from everthink.memory import StoredBlock, StoredEntries
from everthink.session.row_size import shorten
from everthink.testing.scripted import ScriptedModel, says
from tests.support.agents import assistant, live

pytestmark = pytest.mark.anyio

LARGE = bytes(range(256)) * 160
FILE = {
    "type": "file",
    "mediaType": "image/png",
    "url": "data:image/png;base64," + base64.b64encode(LARGE).decode(),
}


def shared_memory(self: Any, session: Any) -> Any:
    return session.with_context("memory", provider=StoredBlock(shared=True)).with_context(
        "skills", provider=StoredEntries(shared=True)
    )


async def test_a_shared_block_is_the_same_in_every_session_and_outlives_them(open_app: Any) -> None:
    # Given an agent whose memory all sessions share
    app = await open_app(assistant(ScriptedModel(), configure_session=shared_memory))
    [cls] = app.classes
    agent = await live(app.agent(cls, "ada"))
    trip = await agent.sessions.create("Trip")
    session = await agent.sessions.session(trip.id)

    # When one of them writes it and is deleted
    await session.replace_context_block("memory", "Likes tea.")
    await session.set_context_entry("skills", "tea", "Boil water.")
    await agent.sessions.delete(trip.id)

    # Then the others have it
    prompt = await agent.session.refresh_system_prompt()
    assert "Likes tea." in prompt
    assert await agent.session.load_context("skills", "tea") == "Boil water."


async def evicted_path(agent: Any, session: Any) -> str:
    """Fill a session so that its first message's file leaves it; the path it went to."""
    await session.append_message(Message("picture", "user", [FILE]))
    for number in range(9):
        await session.append_message(Message(f"m{number}", "user", [{"type": "text", "text": "hm"}]))
    await agent._home.chat.evictor.run_pass(_settings())
    message = await session.get_message("picture")
    assert message is not None
    return message.parts[0]["text"].partition("preserved at ")[2].rstrip("]")


def _settings() -> Any:
    from everthink.memory import MediaEviction

    return MediaEviction(keep_recent_messages=4)


async def test_clearing_a_conversation_takes_its_files_along(open_app: Any) -> None:
    app = await open_app(assistant(ScriptedModel(), media_eviction=False))
    [cls] = app.classes
    agent = await live(app.agent(cls, "ada"))
    path = await evicted_path(agent, agent.session)
    assert await agent.read_attachment(path) == LARGE

    await agent.clear_messages()

    assert await agent.read_attachment(path) is None


async def test_a_file_that_a_fork_names_stays_when_the_conversation_is_cleared(open_app: Any) -> None:
    app = await open_app(assistant(ScriptedModel(), media_eviction=False))
    [cls] = app.classes
    agent = await live(app.agent(cls, "ada"))
    path = await evicted_path(agent, agent.session)
    fork = await agent.sessions.fork("", "m3", "Fork")

    await agent.clear_messages()
    assert await agent.read_attachment(path) == LARGE

    await agent.sessions.delete(fork.id)
    await agent.clear_messages()
    assert await agent.read_attachment(path) is None


def loaded(output: str, type: str = "tool-load_context") -> Message:
    part = {"type": type, "toolCallId": "c", "state": "output-available", "input": {}, "output": output}
    return Message("a", "assistant", [part | ({"toolName": "load_context"} if "dynamic" in type else {})])


@pytest.mark.parametrize("type", ["tool-load_context", "dynamic-tool"])
def test_a_loaded_document_is_shown_whole_however_old_it_is(type: str) -> None:
    message = loaded("x" * 5000, type)
    assert shorten(message) is message


def test_other_results_are_shown_shortened_when_they_are_old() -> None:
    assert len(shorten(loaded("x" * 5000, "tool-search")).parts[0]["output"]) <= 500


async def test_an_agent_with_blocks_and_a_system_prompt_is_warned_about_once(
    open_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    members = {"system_prompt": "Be kind.", "configure_session": shared_memory}
    app = await open_app(assistant(ScriptedModel(), **members))
    [cls] = app.classes
    with caplog.at_level(logging.WARNING, "everthink.runtime"):
        await live(app.agent(cls, "ada"))
        await live(app.agent(cls, "bob"))
    assert (
        len([record for record in caplog.records if "system prompt is made of those" in record.message]) == 1
    )


async def test_blocks_alone_warn_nobody(open_app: Any, caplog: pytest.LogCaptureFixture) -> None:
    app = await open_app(assistant(ScriptedModel(), configure_session=shared_memory))
    [cls] = app.classes
    with caplog.at_level(logging.WARNING, "everthink.runtime"):
        await live(app.agent(cls, "ada"))
    assert not [record for record in caplog.records if "system prompt" in record.message]


async def test_a_summarizer_that_is_down_is_not_asked_with_every_message(open_app: Any) -> None:
    # Given a conversation above its threshold whose summary fails
    asked: list[int] = []

    def fails(messages: list[Message], context: Any) -> None:
        asked.append(len(messages))
        raise ConnectionError("down")

    def configured(self: Any, session: Any) -> Any:
        return session.on_compaction(fails).compact_after(100)

    app = await open_app(assistant(ScriptedModel(), configure_session=configured))
    [cls] = app.classes
    session = (await live(app.agent(cls, "ada"))).session
    await session.append_message(Message("long", "user", [{"type": "text", "text": "word " * 200}]))
    assert len(asked) == 1

    # When a little more is said, then much more
    await session.append_message(Message("short", "user", [{"type": "text", "text": "hm"}]))
    assert len(asked) == 1
    await session.append_message(Message("longer", "user", [{"type": "text", "text": "word " * 50}]))

    # Then only the latter asks again; asking by hand always does
    assert len(asked) == 2
    await session.compact()
    assert len(asked) == 3


async def test_generate_text_asks_the_agent_s_own_model_beside_the_conversation(open_app: Any) -> None:
    model = ScriptedModel(says("Rome."), says("Paris."))
    app = await open_app(assistant(model))
    [cls] = app.classes
    agent: Think = await live(app.agent(cls, "ada"))

    assert await agent.generate_text("Capital of Italy?") == "Rome."
    assert await agent.generate_text("Capital of France?", system="One word.") == "Paris."

    assert [request.system for request in model.requests] == ["", "One word."]
    assert await agent.get_messages() == []
