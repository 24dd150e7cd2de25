"""Who sees the model's thinking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everthink import Think, TurnConfig, tool
from everthink.models.port import AssistantMessage, ReasoningPart, TextPart
from everthink.testing.scripted import ScriptedModel, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import ask, configured, only, types, watch

pytestmark = pytest.mark.anyio


async def _chat(handle: Any) -> None:
    await handle.chat("Hi")


async def _save(handle: Any) -> None:
    await handle.save_messages("Hi")


async def _socket(handle: Any) -> None:
    await ask(handle, "Hi")


@pytest.mark.case(163, 164, 165, 166, 167)
@pytest.mark.parametrize("door", [_chat, _save, _socket])
@pytest.mark.parametrize(
    ("agent", "turn", "is_shown"),
    [
        (None, None, True),
        (False, None, False),
        (True, False, False),
        (False, True, True),
        (None, False, False),
    ],
)
async def test_thinking_is_shown_unless_the_agent_or_the_turn_hides_it(
    open_app: OpenApp,
    door: Callable[[Any], Awaitable[None]],
    agent: bool | None,
    turn: bool | None,
    is_shown: bool,
) -> None:
    # Given a model that thinks before it speaks
    members: dict[str, Any] = {} if agent is None else {"send_reasoning": agent}
    model = ScriptedModel(thinks("Hm, ", "well", signature="s").says("Yes."))
    cls = assistant(model, before_turn=configured(TurnConfig(send_reasoning=turn)), **members)
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When it answers
    await door(handle)

    # Then readers and storage have the thinking, or neither has
    thought = ["reasoning-start", "reasoning-delta", "reasoning-delta", "reasoning-end"]
    answer = ["text-start", "text-delta", "text-end"]
    assert types(shown) == [
        "start",
        "start-step",
        *(thought if is_shown else []),
        *answer,
        "finish-step",
        "finish",
    ]
    stored = [part for part in (await handle.get_messages())[-1].parts if part["type"] == "reasoning"]
    assert [part["text"] for part in stored] == (["Hm, well"] if is_shown else [])
    if is_shown:
        assert stored[0]["providerMetadata"] == {"anthropic": {"signature": "s"}}


@pytest.mark.case(165, 166)
async def test_what_one_turn_decides_the_next_one_forgets(open_app: OpenApp) -> None:
    model = ScriptedModel(thinks("a").says("1."), thinks("b").says("2."), thinks("c").says("3."))
    cls = assistant(
        model, before_turn=configured(TurnConfig(send_reasoning=False), None, TurnConfig(send_reasoning=True))
    )
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    for text in ("1", "2", "3"):
        await handle.save_messages(text)
    assert [chunk.delta for chunk in only(shown, "reasoning-delta")] == ["b", "c"]


async def test_continuations_may_think_in_private(open_app: OpenApp) -> None:
    model = ScriptedModel(thinks("a").says("One"), thinks("b").says(" two."))
    cls = assistant(
        model,
        before_turn=lambda self, turn: TurnConfig(send_reasoning=False) if turn.continuation else None,
    )
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    await handle.save_messages("Count")
    await handle.continue_last_turn()
    assert [chunk.delta for chunk in only(shown, "reasoning-delta")] == ["a"]


@pytest.mark.case(657)
async def test_hidden_thinking_still_reaches_on_chunk_and_the_next_step(open_app: OpenApp) -> None:
    # Given an agent that hides its thinking and calls a tool after it
    heard: list[str] = []

    class Assistant(Think):
        model = ScriptedModel(thinks("Hm", signature="s").calls("look"), says("Done."))
        send_reasoning = False

        @tool
        async def look(self) -> str:
            """Look."""
            return "seen"

        def on_chunk(self, context):
            if context.chunk.type == "reasoning-delta":
                heard.append(context.chunk.text)

    app = await open_app(Assistant)
    handle = app.agent(Assistant, "room")
    shown = await watch(handle)

    # When it answers
    await handle.save_messages("Look")

    # Then the hook heard it and the provider got its signed thought back, but no reader saw it
    assert heard == ["Hm"]
    said = next(m for m in Assistant.model.requests[1].messages if isinstance(m, AssistantMessage))
    assert said.content[0] == ReasoningPart("Hm", {"anthropic": {"signature": "s"}})
    assert not any("reasoning" in kind for kind in types(shown))


async def test_shown_thinking_is_given_back_to_the_model_in_the_next_turn(open_app: OpenApp) -> None:
    model = ScriptedModel(thinks("Hm", signature="s").says("Yes."), says("Bye."))
    app = await open_app(cls := assistant(model))
    for text in ("1", "2"):
        await app.agent(cls, "room").save_messages(text)
    assert model.requests[1].messages[1] == AssistantMessage(
        [ReasoningPart("Hm", {"anthropic": {"signature": "s"}}), TextPart("Yes.")]
    )
