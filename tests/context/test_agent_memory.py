"""An agent with a memory: blocks in its prompt, a session set up in its own way, calls that come back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think
from everthink.messages import Message
from everthink.models.port import (
    AssistantMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from everthink.prompt.convert import Converter
from everthink.session.session import Session
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.context import Sign
from tests.support.memory import said

from ..session.conftest import OpenSession

pytestmark = pytest.mark.anyio


# --- the prompt


@pytest.mark.memory_case(194)
@pytest.mark.case(193, 195)
async def test_the_prompt_is_made_of_the_blocks_and_empty_ones_to_write_are_shown(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Tea."))

    def configure_session(self: Think, session: Session) -> Session:
        return session.with_context("soul", provider=Sign("You are a parrot.")).with_context("memory")

    Assistant = assistant(model, configure_session=configure_session, system_prompt="You are a cat.")
    await (await open_app(Assistant)).agent(Assistant).save_messages("Hi")
    system = model.requests[0].system
    for words in ("SOUL", "You are a parrot.", "MEMORY", "[writable]"):
        assert words in system
    assert "You are a cat." not in system


@pytest.mark.memory_case(194)
async def test_the_contents_of_blocks_are_in_the_prompt_before_anybody_made_tools(
    open_session: OpenSession,
) -> None:
    session = (await open_session()).with_context("soul", provider=Sign("You are a parrot."))
    assert "You are a parrot." in await session.freeze_system_prompt()


@pytest.mark.memory_case(195)
@pytest.mark.case(194)
async def test_the_prompt_stays_frozen_between_turns_while_blocks_keep_what_is_written(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(*(says(f"answer {n}") for n in range(4)))
    source = Sign("You are a parrot.")

    def configure_session(self: Think, session: Session) -> Session:
        return session.with_context("soul", provider=source).with_context("memory").with_cached_prompt()

    Assistant = assistant(model, configure_session=configure_session)
    app = await open_app(Assistant)
    agent = await live(app.agent(Assistant))
    await agent.save_messages("one")
    source.text = "You are a cat."
    await agent.session.replace_context_block("memory", "Likes tea.")
    await agent.save_messages("two")
    assert model.requests[1].system == model.requests[0].system
    assert "You are a parrot." in model.requests[1].system

    # also in the next process, which finds what was written
    await app.close()
    again = await live((await open_app(Assistant)).agent(Assistant))
    await again.save_messages("three")
    assert model.requests[2].system == model.requests[0].system
    await again.session.refresh_system_prompt()
    await again.save_messages("four")
    assert "You are a cat." in model.requests[3].system
    assert "Likes tea." in model.requests[3].system


@pytest.mark.memory_case(197)
@pytest.mark.case(196)
async def test_a_session_may_be_set_up_asynchronously(open_app: OpenApp) -> None:
    model = ScriptedModel(says("one"), says("two"), says("three"))

    async def configure_session(self: Think, session: Session) -> Session:
        await asyncio.sleep(0)
        return session.with_context("soul", provider=Sign("You are a parrot."))

    Assistant = assistant(model, configure_session=configure_session)
    app = await open_app(Assistant)
    await app.agent(Assistant).save_messages("first")
    await app.agent(Assistant).save_messages("second")
    await app.close()
    await (await open_app(Assistant)).agent(Assistant).save_messages("third")
    assert ["parrot" in request.system for request in model.requests] == [True, True, True]


# --- calls that come back from storage


def call(id: str, name: str = "weather", **fields: Any) -> dict[str, Any]:
    part = {"type": f"tool-{name}", "toolCallId": id, "state": "output-available", "input": {"id": id}}
    return {**part, "output": f"result of {id}", **fields}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


STEP = {"type": "step-start"}
DYNAMIC = {
    "type": "dynamic-tool",
    "toolName": "lookup",
    "toolCallId": "d1",
    "state": "output-available",
    "input": {"deep": [1, 2.5, None, {"é": "€"}]},
    "output": {"rows": [[], {}], "is": True},
    "title": "Look it up",
    "providerExecuted": False,
    "callProviderMetadata": {"anthropic": {"x": 1}},
    "preliminary": False,
}


@pytest.mark.memory_case(175)
async def test_parts_of_dynamic_tools_come_back_with_all_their_fields(open_session: OpenSession) -> None:
    message = Message("a", "assistant", [text("hm"), DYNAMIC, {**DYNAMIC, "state": "output-error"}], {"n": 1})
    session = await open_session()
    for one in (said("q"), message, said("thanks")):
        await session.append_message(one)
    fresh = await open_session()
    assert await fresh.get_message("a") == message
    assert await fresh.get_history() == [said("q"), message, said("thanks")]


def asked(words: str) -> UserMessage:
    return UserMessage([TextPart(words)])


def answered(*parts: Any) -> AssistantMessage:
    return AssistantMessage(list(parts))


def called(id: str) -> ToolCallPart:
    return ToolCallPart(id, "weather", {"id": id})


def results(*call_ids: str) -> ToolMessage:
    return ToolMessage([ToolResultPart(id, "weather", f"result of {id}") for id in call_ids])


@pytest.mark.memory_case(176, 177, 178)
@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        pytest.param(
            [[text("It is "), text("late.")]],
            [answered(TextPart("It is "), TextPart("late."))],
            id="texts",
        ),
        pytest.param(
            [[call("1"), STEP, text("Rain.")]],
            [answered(called("1")), results("1"), answered(TextPart("Rain."))],
            id="a call with its result",
        ),
        pytest.param(
            [[text("Well."), {**call("1"), "state": "input-available"}]],
            [answered(TextPart("Well."))],
            id="a call without outcome",
        ),
        pytest.param(
            [[call("1"), call("2"), {**call("3"), "state": "input-streaming"}, STEP, text("Both.")]],
            [answered(called("1"), called("2")), results("1", "2"), answered(TextPart("Both."))],
            id="several calls",
        ),
        pytest.param(
            [[call("1")], [call("2"), STEP, call("3")]],
            [
                answered(called("1")),
                results("1"),
                asked("and?"),
                answered(called("2")),
                results("2"),
                answered(called("3")),
                results("3"),
            ],
            id="several turns",
        ),
    ],
)
async def test_what_was_stored_becomes_the_prompt_it_should(
    open_session: OpenSession, stored: list[list[dict[str, Any]]], expected: list[Any]
) -> None:
    session = await open_session()
    await session.append_message(said("q", "how?"))
    for n, parts in enumerate(stored):
        if n:
            await session.append_message(said(f"q{n}", "and?"))
        await session.append_message(Message(f"a{n}", "assistant", parts))
    fresh = await open_session()
    assert Converter().convert(await fresh.get_history(), {}) == [asked("how?"), *expected]
