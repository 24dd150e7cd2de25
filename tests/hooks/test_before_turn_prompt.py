"""How stored messages become the messages of a prompt."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Message, TurnConfig, tool
from everthink.errors import NoMessages
from everthink.memory import prune_tool_calls
from everthink.models.port import (
    AssistantMessage,
    FilePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from everthink.prompt.wording import CONTINUE_NUDGE
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import ask, results, script

pytestmark = pytest.mark.anyio


def text(role: Any, said: str, id: str) -> Message:
    return Message(id, role, [{"type": "text", "text": said}])


def called(id: str, name: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"tool-{name}", "toolCallId": id, "toolName": name, "state": state, "input": {}, **fields}


@pytest.mark.case(198)
async def test_every_kind_of_stored_part_becomes_what_the_model_reads(open_app: OpenApp) -> None:
    # Given a conversation with parts of every kind
    model = ScriptedModel(says("Done."))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    signed = {"anthropic": {"signature": "s"}}
    await handle.add_messages(
        [
            Message("m0", "system", [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]),
            Message(
                "m1",
                "user",
                [
                    {"type": "text", "text": "See"},
                    {"type": "file", "url": "https://a/b.png", "mediaType": "image/png"},
                    {"type": "data-note", "data": 1},
                ],
            ),
            Message(
                "m2",
                "assistant",
                [
                    {"type": "step-start"},
                    {"type": "reasoning", "text": "Hm", "providerMetadata": signed},
                    {"type": "text", "text": "Let me look."},
                    called("c1", "look", "output-available", output={"seen": 1}, input={"at": "x"}),
                    called("c2", "look", "output-error", errorText="too dark"),
                    called("c3", "look", "output-denied", approval={"id": "a", "approved": False}),
                    called(
                        "c4", "look", "output-denied", approval={"id": "b", "approved": False, "reason": "no"}
                    ),
                    {"type": "step-start"},
                    {"type": "source-url", "sourceId": "s", "url": "https://x"},
                    {"type": "text", "text": "I saw."},
                ],
            ),
            Message("m3", "assistant", [{"type": "data-note", "data": 2}]),
        ]
    )

    # When the model is asked
    await handle.save_messages("And?")

    # Then each became its counterpart, results in call order, and what says nothing is gone
    assert model.last_request.messages == [
        SystemMessage("Be kind."),
        UserMessage([TextPart("See"), FilePart("https://a/b.png", "image/png")]),
        AssistantMessage(
            [
                ReasoningPart("Hm", signed),
                TextPart("Let me look."),
                ToolCallPart("c1", "look", {"at": "x"}),
                ToolCallPart("c2", "look", {}),
                ToolCallPart("c3", "look", {}),
                ToolCallPart("c4", "look", {}),
            ]
        ),
        ToolMessage(
            [
                ToolResultPart("c1", "look", {"seen": 1}),
                ToolResultPart("c2", "look", "too dark", is_error=True),
                ToolResultPart("c3", "look", "Tool call execution denied.", is_error=True),
                ToolResultPart("c4", "look", "no", is_error=True),
            ]
        ),
        AssistantMessage([TextPart("I saw.")]),
        UserMessage([TextPart("And?")]),
    ]


@pytest.mark.case(199)
async def test_results_of_browser_tools_stay_in_the_prompt_of_later_turns(open_app: OpenApp) -> None:
    # Given a browser tool that was called and answered
    model = ScriptedModel(calls("cursor", id="c1"), says("Line 3."), says("Two."), says("Three."))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    await ask(handle, "Where am I?", client_tools=[{"name": "cursor"}])
    assert await handle.apply_tool_result("c1", {"line": 3})
    await handle.continue_last_turn()

    # When turns go by
    await handle.save_messages("2")
    await handle.save_messages("3")

    # Then the model still reads it
    assert ("result", {"line": 3}) in script(model.last_request)
    assert results(model.last_request) == [ToolResultPart("c1", "cursor", {"line": 3})]


async def test_a_hook_may_prune_old_calls_from_the_prompt(open_app: OpenApp) -> None:
    @tool
    async def look() -> str:
        return "seen"

    model = ScriptedModel(calls("look"), says("One."), says("Two."))
    cls = assistant(
        model,
        get_tools=lambda self: [look],
        before_turn=lambda self, turn: TurnConfig(messages=prune_tool_calls(turn.messages)),
    )
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    await handle.save_messages("1")
    await handle.save_messages("2")
    assert script(model.last_request) == [("user", "1"), ("assistant", "One."), ("user", "2")]


@pytest.mark.case(660)
async def test_only_messages_before_the_last_four_are_shortened_and_only_in_the_prompt(
    open_app: OpenApp,
) -> None:
    # Given long texts and long results on both sides of the edge
    long, output = "x" * 10_050, "y" * 600
    model = ScriptedModel(says("Done."))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    parts = [
        {"type": "text", "text": long},
        called("c1", "look", "output-available", output=output),
        called("c2", "look", "output-available", output={"rows": [output, 1]}),
    ]
    recent = [
        {**part, "toolCallId": "r" + part["toolCallId"]} if "toolCallId" in part else part for part in parts
    ]
    history = [
        Message("old-user", "user", [{"type": "text", "text": long}]),
        Message("old", "assistant", parts),
        Message("recent-user", "user", [{"type": "text", "text": long}]),
        Message("recent", "assistant", recent),
        text("user", "short", "m5"),
    ]
    await handle.add_messages(history)

    # When the model is asked (with the new question the last four begin at "recent-user")
    await handle.save_messages("And?")

    # Then older texts and results are cut to size, keeping their type
    old_user, old, old_results, recent_user, fresh, fresh_results, *_ = model.last_request.messages
    for said in (old_user.content[0].text, old.content[0].text):
        assert said.startswith("xxx")
        assert said.endswith(" chars]")
        assert "... [truncated " in said
        assert len(said) <= 10_040
    first, second = (part.output for part in old_results.content)
    assert len(first) <= 540
    assert "... [truncated " in first
    assert isinstance(second, dict)
    assert len(str(second)) <= 600

    # And the recent ones and storage are untouched
    assert recent_user.content[0].text == fresh.content[0].text == long
    assert [part.output for part in fresh_results.content] == [output, {"rows": [output, 1]}]
    stored = await handle.get_messages()
    assert [message.parts for message in stored[:5]] == [message.parts for message in history]


@pytest.mark.case(660)
async def test_a_message_is_shortened_once_it_has_become_old(open_app: OpenApp) -> None:
    long = "x" * 10_050
    model = ScriptedModel(*(says(word) for word in ("1.", "2.", "3.")))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    for said in (long, "b", "c"):
        await handle.save_messages(said)
    shown = [len(request.messages[0].content[0].text) for request in model.requests]
    assert shown[:2] == [10_050, 10_050]
    assert shown[2] < 10_050


@pytest.mark.case(661)
async def test_no_messages_at_all_is_an_error_before_the_model_is_asked(open_app: OpenApp) -> None:
    told: list[Any] = []
    model = ScriptedModel()
    cls = assistant(model, on_chat_error=lambda self, error, ctx: told.append((error, ctx.stage)))
    app = await open_app(cls)
    with pytest.raises(NoMessages, match=r"^No messages to send to the model\."):
        await app.agent(cls, "room").save_messages(lambda messages: [])
    assert model.asked == 0
    assert [(type(error), stage) for error, stage in told] == [(NoMessages, "turn")]


@pytest.mark.case(661)
async def test_messages_that_say_nothing_to_a_model_are_no_messages(open_app: OpenApp) -> None:
    model = ScriptedModel()
    app = await open_app(cls := assistant(model))
    silent = Message("m1", "user", [{"type": "data-note", "data": 1}])
    with pytest.raises(NoMessages):
        await app.agent(cls, "room").save_messages(silent)
    assert model.asked == 0


@pytest.mark.case(131, 137, 662)
async def test_a_prompt_that_would_end_with_the_assistant_gets_a_nudge_that_is_not_stored(
    open_app: OpenApp,
) -> None:
    # Given an answer that is to be continued (the scripted provider refuses a trailing assistant)
    model = ScriptedModel(says("Well,"), says(" yes."), says("Bye."))
    app = await open_app(cls := assistant(model))
    handle = app.agent(cls, "room")
    await handle.save_messages("Go on")

    # When it is continued
    await handle.continue_last_turn()

    # Then the prompt ended with one nudge, which is nowhere else
    assert script(model.requests[1]) == [
        ("user", "Go on"),
        ("assistant", "Well,"),
        ("user", CONTINUE_NUDGE),
    ]
    assert [(m.role, m.text) for m in await handle.get_messages()] == [
        ("user", "Go on"),
        ("assistant", "Well,"),
        ("assistant", " yes."),
    ]
    await handle.save_messages("Bye")
    assert ("user", CONTINUE_NUDGE) not in script(model.requests[2])


@pytest.mark.case(662)
async def test_a_hooks_own_messages_that_end_with_the_assistant_get_the_nudge_too(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Done."))
    own = [UserMessage([TextPart("Q")]), AssistantMessage([TextPart("A")])]
    cls = assistant(model, before_turn=lambda self, turn: TurnConfig(messages=own))
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("Hi")
    assert script(model.last_request)[-1] == ("user", CONTINUE_NUDGE)
    assert len(own) == 2


@pytest.mark.case(662)
async def test_the_shown_messages_do_not_hold_the_nudge(open_app: OpenApp) -> None:
    seen: list[Any] = []
    model = ScriptedModel(says("Well,"), says(" yes."))
    cls = assistant(model, before_turn=lambda self, turn: seen.append(list(turn.messages)))
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    await handle.save_messages("Go on")
    await handle.continue_last_turn()
    assert seen[1] == [UserMessage([TextPart("Go on")]), AssistantMessage([TextPart("Well,")])]


async def test_calls_without_a_result_in_a_hooks_messages_never_reach_the_model(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Done."))
    own = [
        UserMessage([TextPart("Q")]),
        AssistantMessage([TextPart("A"), ToolCallPart("c1", "look", {}), ToolCallPart("c2", "look", {})]),
        ToolMessage([ToolResultPart("c2", "look", 2), ToolResultPart("c9", "look", 9)]),
        UserMessage([TextPart("Q2")]),
    ]
    app = await open_app(cls := assistant(model, before_turn=lambda self, turn: TurnConfig(messages=own)))
    assert (await app.agent(cls, "room").save_messages("Hi")).status == "completed"
    assert script(model.last_request) == [
        ("user", "Q"),
        ("assistant", "A"),
        ("ToolCallPart", "look"),
        ("result", 2),
        ("user", "Q2"),
    ]
