"""Hooks and settings as people write them, and what they are told when they meant something else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from everthink import AgentError, Think, TurnConfig, tool
from everthink.errors import InvalidSettings, InvalidTurn
from everthink.memory import MediaEviction
from everthink.recovery import ChatRecovery, RecoveryDecision
from everthink.recovery.incident import settings_of
from everthink.session.media import eviction_of
from everthink.settings import as_settings, meant
from everthink.testing import ScriptedModel, calls, says
from everthink.turn.overflow import Proactive, overflow_of
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.server import open_app as open_app_in
from tests.support.server import served

# --- fewer parameters than there are


@pytest.mark.anyio
async def test_a_hook_may_take_fewer_parameters_than_it_is_given(open_app: OpenApp) -> None:
    seen: list[str] = []

    class Assistant(Think):
        model = ScriptedModel(calls("look"), says("Done."))

        @tool
        def look(self) -> str:
            """Look."""
            return "seen"

        def before_turn(self) -> None:
            seen.append("before_turn")

        async def before_step(self) -> None:
            seen.append("before_step")

        def before_tool_call(self, *args: Any) -> None:
            seen.append(f"before_tool_call {len(args)}")

        def after_tool_call(self) -> None:
            seen.append("after_tool_call")

        def on_step_finish(self) -> None:
            seen.append("on_step_finish")

        def on_chat_response(self) -> None:
            seen.append("on_chat_response")

        def on_start(self) -> None:
            seen.append("on_start")

    app = await open_app(Assistant)
    assert (await app.agent(Assistant).save_messages("Go")).status == "completed"
    assert seen == [
        "on_start",
        "before_turn",
        "before_step",
        "before_tool_call 1",
        "after_tool_call",
        "on_step_finish",
        "before_step",
        "on_step_finish",
        "on_chat_response",
    ]


@pytest.mark.anyio
async def test_an_error_hook_may_take_the_error_alone(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Half").then_fails("Broke.", kind="fatal"))
    app = await open_app(cls := assistant(model, on_chat_error=lambda self, error: f"Sorry: {error}"))
    assert (await app.agent(cls).save_messages("Go")).error == "Sorry: Broke."


@pytest.mark.anyio
async def test_hooks_of_connections_may_take_fewer_parameters(tmp_path: Path) -> None:
    seen: list[str] = []

    class Assistant(Think):
        model = ScriptedModel()

        def should_connection_be_readonly(self) -> bool:
            seen.append("should_connection_be_readonly")
            return False

        def should_send_protocol_messages(self, connection: Any) -> bool:
            seen.append("should_send_protocol_messages")
            return True

        async def on_connect(self, connection: Any) -> None:
            seen.append("on_connect")

        def on_message(self) -> None:
            seen.append("on_message")

        def on_close(self, connection: Any) -> None:
            seen.append("on_close")

        def on_request(self) -> str:
            seen.append("on_request")
            return "answered"

        def validate_state_change(self, state: Any) -> None:
            seen.append("validate_state_change")

        async def on_state_changed(self) -> None:
            seen.append("on_state_changed")

    def authorize(identity: Any) -> bool:
        return identity == "ada"

    checks = {
        "authenticate": lambda: "ada",
        "authorize": authorize,
        "on_before_connect": lambda connection: None,
        "on_before_request": lambda: None,
    }
    app = open_app_in(tmp_path, Assistant, **checks)
    async with served(app) as server:
        chat = await server.connect(Assistant)
        await chat.until_frame("mcp_servers")
        await chat.send("hello")
        await chat.settled()
        assert (await server.http("/agents/assistant/room/x", method="POST")).json == "answered"
        await (await live(app.agent(Assistant, "room"))).set_state({"a": 1})
        await chat.until_frame("state")
        await chat.close()
    assert set(seen) == {
        "should_connection_be_readonly",
        "should_send_protocol_messages",
        "on_connect",
        "on_message",
        "on_close",
        "on_request",
        "validate_state_change",
        "on_state_changed",
    }


# --- dicts


@pytest.mark.anyio
async def test_a_dict_does_for_the_settings_of_a_turn_and_a_step(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("look"), says("Done."))

    class Assistant(Think):
        @tool
        def look(self) -> str:
            """Look."""
            return "seen"

        def before_turn(self, turn: Any) -> Any:
            return {"system": "Be brief.", "maxSteps": 3, "tool_choice": "auto"}

        def before_step(self, step: Any) -> Any:
            if step.step_number == 0:
                return {"toolChoice": {"type": "tool", "toolName": "look"}}
            return {}

    Assistant.model = model
    app = await open_app(Assistant)
    assert (await app.agent(Assistant).save_messages("Go")).text == "Done."
    assert [request.tool_choice for request in model.requests] == ["tool:look", "auto"]
    assert model.requests[0].system == "Be brief."


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("decision", "read"),
    [
        ({"action": "block", "reason": "Not now."}, "Not now."),
        ({"action": "substitute", "output": "instead"}, "instead"),
        ({"action": "allow", "input": {"place": "Rome"}}, "Rome"),
        ({"action": "allow"}, "Paris"),
    ],
)
async def test_a_dict_does_for_a_decision_about_a_call(open_app: OpenApp, decision: Any, read: str) -> None:
    model = ScriptedModel(calls("look", place="Paris"), says("Done."))

    class Assistant(Think):
        @tool
        def look(self, place: str) -> str:
            """Look."""
            return place

        def before_tool_call(self, call: Any) -> Any:
            return decision

    Assistant.model = model
    app = await open_app(Assistant)
    await app.agent(Assistant).save_messages("Go")
    assert read in str(model.last_request.messages[-1])


def test_a_dict_does_for_the_settings_of_a_class() -> None:
    assert settings_of({"maxAttempts": 6}) == ChatRecovery(max_attempts=6)
    assert overflow_of({"proactive": {"maxInputTokens": 5}}).proactive == Proactive(max_input_tokens=5)
    kept = eviction_of({"keep_recent_messages": 6})
    assert kept == MediaEviction(keep_recent_messages=6)


# --- mistakes


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        ("before_turn", {"sistem": "x"}, "TurnConfig has no field 'sistem'. Did you mean 'system'?"),
        ("before_turn", "Be brief.", "What before_turn returned is 'Be brief.', a str."),
        ("before_turn", [1], "What before_turn returned is [1], a list."),
        ("before_step", 5, "What before_step returned is 5, an int."),
        ("before_step", {"tool_choice": "look"}, "tool_choice is 'look', a str"),
        ("before_step", {"tool_choice": "tool:lok"}, "names 'lok', and there is no such tool"),
        ("before_turn", TurnConfig(tool_choice="tool:lok"), "Did you mean 'look'?"),
        ("get_system_prompt", None, "get_system_prompt returned None"),
    ],
)
async def test_what_is_not_understood_is_refused_with_the_hook_and_the_nearest_name(
    open_app: OpenApp, hook: str, answer: Any, words: str
) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    members = {hook: lambda self, *args: answer, "get_tools": lambda self: [look]}
    app = await open_app(cls := assistant(ScriptedModel(), **members))
    try:
        error = (await app.agent(cls).save_messages("Go")).error
    except AgentError as raised:
        error = str(raised)
    assert words in str(error)


@pytest.mark.parametrize(
    ("name", "value", "ours"),
    [
        ("beforeTurn", lambda self, turn: None, "before_turn"),
        ("before_tool_calls", lambda self, call: None, "before_tool_call"),
        ("befor_turn", lambda self, turn: None, "before_turn"),
        ("configure_sesion", lambda self, session: session, "configure_session"),
        ("get_scheduled_task", lambda self: [], "get_scheduled_tasks"),
        ("modle", "demo", "model"),
        ("on_chat_responses", lambda self, response: None, "on_chat_response"),
        ("getSystemPrompt", lambda self: "x", "get_system_prompt"),
        ("systemPrompt", "Be brief.", "system_prompt"),
        ("system_promt", "Be brief.", "system_prompt"),
        ("instructions", "Be brief.", "system_prompt"),
        ("maxSteps", 5, "max_steps"),
        ("max_step", 5, "max_steps"),
        ("tools", [], "get_tools"),
    ],
)
def test_a_misspelt_hook_or_setting_is_told_where_the_class_is_written(
    name: str, value: Any, ours: str
) -> None:
    with pytest.raises(InvalidSettings, match=f"Did you mean '{ours}'"):
        type("Assistant", (Think,), {name: value})


@pytest.mark.parametrize("name", ["get_models", "get_order", "ask", "on_sale", "price", "steps", "modes"])
def test_a_name_of_one_s_own_is_left_alone(name: str) -> None:
    assert meant(name, lambda self: None, Think) is None
    assert meant(name, 5, Think) is None
    type("Assistant", (Think,), {name: lambda self: None})


def test_settings_that_are_none_at_all_say_what_they_take() -> None:
    with pytest.raises(InvalidSettings, match=r"chat_recovery is 'yes', a str\. It takes a ChatRecovery"):
        settings_of("yes")
    with pytest.raises(InvalidSettings, match="There are: persist, continue"):
        as_settings(RecoveryDecision, {"x": 1}, "What on_chat_recovery returned")


def test_what_a_class_of_one_s_own_declares_may_be_filled_in_by_the_next() -> None:
    declared = {"notes": list, "system_prompts": list}
    base = type("Base", (Think,), {"__annotations__": declared, "__module__": "mine"})
    assert type("Next", (base,), {"notes": [], "system_prompts": []}).notes == []


# --- tools of a step, and hooks whose answer is needed at once


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("look", "before_turn returned: TurnConfig.active_tools is 'look', a str.*a list"),
        (["lok"], "names 'lok'.*Did you mean 'look'"),
    ],
)
async def test_active_tools_that_are_none_are_named(open_app: OpenApp, names: Any, words: str) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    cls = assistant(
        ScriptedModel(says("Hi.")),
        get_tools=lambda self: [look],
        before_turn=lambda self: {"active_tools": names},
    )
    app = await open_app(cls)
    try:
        told = (await app.agent(cls, "room").save_messages("Hi")).error or ""
    except InvalidSettings as raised:
        told = str(raised)
    assert re.search(words, told)


@pytest.mark.parametrize("name", ["validate_state_change", "repair_interrupted_tool_part"])
def test_a_hook_whose_answer_is_needed_at_once_is_no_coroutine(name: str) -> None:
    async def hook(self: Any, *given: Any) -> None:
        return None

    with pytest.raises(InvalidSettings, match=rf"Hasty.{name} is `async`"):
        type("Hasty", (Think,), {name: hook})


@pytest.mark.parametrize("approved", ["no", "yes", 1, None])
async def test_an_approval_is_yes_or_no(open_app: OpenApp, approved: Any) -> None:
    ran: list[str] = []

    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        ran.append("paid")
        return "paid"

    cls = assistant(ScriptedModel(calls("pay"), says("Done.")), get_tools=lambda self: [pay])
    app = await open_app(cls)
    agent = app.agent(cls, "room")
    [call] = (await agent.save_messages("Pay")).pending
    with pytest.raises(InvalidTurn, match="True or False"):
        await agent.apply_tool_approval(call.tool_call_id, approved)
    assert ran == []
