"""The examples about durable recovery, as literally as Python allows: turns are really cut off, and wake."""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from typing import Any

import pytest

from everthink import Message, Think, client_tool, tool
from everthink.errors import TurnInterrupted
from everthink.memory import default_context_overflow_classifier
from everthink.testing import ManualClock, ScriptedModel, calls, hangs, overflows, says
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.hooks import script
from tests.support.overflow import NOTE, SUMMARY, Shortener, talk
from tests.support.recovery import Room

pytestmark = pytest.mark.anyio

console = logging.getLogger("console")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "console")
    return caplog


async def room_of(open_app: OpenApp, agent: type[Think], model: ScriptedModel) -> Room:
    """The agent in an app whose clock stands still."""
    clock = ManualClock()
    return Room(await open_app(agent, clock=clock), agent, model, clock)


# --- bounds


@pytest.mark.example("recovery", 1)
async def test_a_turn_that_dies_more_often_than_allowed_ends_with_the_terminal_message(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(*[hangs()] * 7)

    async def on_exhausted(ctx):
        console.warning("Chat recovery exhausted %s", ctx.incident_id)

    class MyAgent(Think):
        chat_recovery = {
            "max_attempts": 6,
            "stable_timeout": 10,
            "terminal_message": "The assistant was interrupted and could not recover.",
            "on_exhausted": on_exhausted,
        }

        def get_model(self):
            return model

    room = await room_of(open_app, MyAgent, model)
    await room.ask()
    for _ in range(6):
        await room.cut(after=40)
        await room.wake_into_silence()
    await room.cut(after=40)
    await room.wake()

    assert model.asked == 7
    home = await room.home()
    assert home.chat.host.last_failure.value is not None
    assert home.chat.host.last_failure.value.error == "The assistant was interrupted and could not recover."
    [incident] = await room.incidents()
    assert f"Chat recovery exhausted {incident.id}" in logged.messages


@pytest.mark.example("recovery", 4)
async def test_a_policy_of_ones_own_ends_recovery_when_too_much_was_spent(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    MAX_SPEND = 2
    spend: dict[str, int] = {}
    model = ScriptedModel(says("Half ").then_hangs(), *[hangs()] * 3)

    async def get_spend_for_turn(request: str) -> int:
        spend[request] = spend.get(request, 0) + 1
        return spend[request]

    async def should_keep_recovering(ctx):
        return (await get_spend_for_turn(ctx.recovery_root_request_id)) < MAX_SPEND

    async def on_exhausted(ctx):
        console.warning("Recovery exhausted %s %s", ctx.incident_id, ctx.reason)

    class MyAgent(Think):
        chat_recovery = {
            "max_attempts": 10,
            "no_progress_timeout": 5 * 60,
            "max_recovery_work": math.inf,
            "terminal_message": "The assistant was interrupted and could not recover.",
            "should_keep_recovering": should_keep_recovering,
            "on_exhausted": on_exhausted,
        }

        def get_model(self):
            return model

    room = await room_of(open_app, MyAgent, model)
    await room.ask()
    for _ in range(2):  # the first attempt is free, before the second the policy is asked
        await room.cut(after=40)
        await room.wake_into_silence()
    await room.cut(after=40)
    await room.wake()

    assert list(spend.values()) == [2]
    [incident] = await room.incidents()
    assert f"Recovery exhausted {incident.id} recovery_aborted" in logged.messages
    assert await room.texts() == ["Hi", "Half "]


# --- deciding


@pytest.mark.example("recovery", 2)
@pytest.mark.example("readme", 12)
async def test_a_hook_that_returns_an_empty_dict_lets_the_turn_go_on(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("The tide ").then_hangs(), says("comes twice."))

    class MyAgent(Think):
        chat_recovery = {
            "max_attempts": 10,
            "terminal_message": "The assistant was interrupted. Please try again.",
        }

        def get_model(self):
            return model

        async def on_chat_recovery(self, ctx):
            console.info("Recovering chat turn %s %s %s", ctx.incident_id, ctx.attempt, ctx.recovery_kind)
            return {}

    room = await room_of(open_app, MyAgent, model)
    await room.ask("Tides?")
    await room.cut()
    await room.wake()
    assert await room.texts() == ["Tides?", "The tide comes twice."]
    [line] = logged.messages[:1]
    assert line.startswith("Recovering chat turn ")
    assert line.endswith(" 1 continue")


@pytest.mark.example("recovery", 3)
async def test_a_turn_that_was_cut_off_before_its_first_word_is_run_again(
    open_app: OpenApp, logged: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("Twice a day."))
    began = asyncio.Event()

    class MyAgent(Think):
        def get_model(self):
            return model

        async def before_turn(self):
            if not began.is_set():
                began.set()
                await asyncio.Event().wait()

        def on_chat_recovery(self, ctx):
            if not ctx.stream_id and not ctx.partial_text:
                console.info("Recovering a pre-stream interruption")
            return {}

    room = await room_of(open_app, MyAgent, model)
    asked = asyncio.create_task(room.agent.save_messages("Tides?"))
    await began.wait()
    await room.cut()
    with pytest.raises(TurnInterrupted):
        await asked
    await room.wake()
    assert await room.texts() == ["Tides?", "Twice a day."]
    assert "Recovering a pre-stream interruption" in logged.messages


# --- calls that were interrupted


@pytest.mark.example("recovery", 5)
@pytest.mark.example("readme", 13)
async def test_a_question_that_was_answered_in_words_becomes_text_and_other_calls_fail(
    open_app: OpenApp,
) -> None:
    class MyAgent(Think):
        model = ScriptedModel(
            calls("ask_user", prompt="Which color?"),
            calls("pick", number=1),
            says("Blue it is."),
        )

        def get_tools(self):
            question = {"type": "object", "properties": {"prompt": {"type": "string"}}}
            number = {"type": "object", "properties": {"number": {"type": "integer"}}}
            return [
                client_tool("ask_user", description="Ask.", parameters=question),
                client_tool("pick", description="Pick.", parameters=number),
            ]

        def repair_interrupted_tool_part(self, part):
            record = part
            if record["type"] == "tool-ask_user":
                input = record.get("input")
                if input and input.get("prompt"):
                    return {"type": "text", "text": input["prompt"]}
            return super().repair_interrupted_tool_part(part)

    app = await open_app(MyAgent)
    agent = app.agent(MyAgent)
    await agent.save_messages("Paint it.")
    await agent.save_messages("Blue.")
    await agent.save_messages("Go on.")

    shown = script(MyAgent.model.last_request)
    assert shown[:3] == [("user", "Paint it."), ("assistant", "Which color?"), ("user", "Blue.")]
    assert ("ToolCallPart", "pick") in shown
    assert "ToolCallPart" not in [kind for kind, what in shown if what == "ask_user"]
    [failed] = [what for kind, what in shown if kind == "result"]
    assert "interrupted" in str(failed)


# --- a conversation that is too long


@pytest.mark.example("recovery", 6)
async def test_a_turn_that_overflows_is_run_again_on_a_shorter_conversation(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(overflows(), says("Twice a day."))
        context_overflow = {"reactive": True}
        classify_chat_error = default_context_overflow_classifier

        def configure_session(self, session):
            return session.on_compaction(Shortener())

    app = await open_app(MyAgent)
    agent = app.agent(MyAgent)
    await agent.add_messages(talk("One.", "Two."))
    assert (await agent.save_messages("Tides?")).text == "Twice a day."
    assert script(MyAgent.model.last_request) == [NOTE, ("assistant", SUMMARY), ("user", "Tides?")]


@pytest.mark.example("recovery", 7)
@pytest.mark.example("readme", 14)
async def test_a_turn_that_comes_near_the_window_is_compacted_between_its_steps(open_app: OpenApp) -> None:
    compacted: list[Any] = []

    class MyAgent(Think):
        model = ScriptedModel(calls("look").uses(190_000, 10), says("Blue.").uses(900, 10))
        context_overflow = {
            "reactive": True,
            "proactive": {"max_input_tokens": 200_000},
        }
        classify_chat_error = default_context_overflow_classifier

        def configure_session(self, session):
            return session.on_compaction(Shortener())

        @tool
        def look(self) -> str:
            """Look."""
            return "blue"

    app = await open_app(MyAgent)
    app.events.subscribe(compacted.append, type="chat:context:compacted")
    agent = app.agent(MyAgent)
    await agent.add_messages(talk("One.", "Two."))
    assert (await agent.save_messages("Look.")).text == "Blue."
    assert len(compacted) == 1
    assert SUMMARY in [what for _, what in script(MyAgent.model.last_request)]


# --- stability


@pytest.mark.example("recovery", 8)
async def test_an_agent_says_whether_a_call_waits_for_a_person(open_app: OpenApp) -> None:
    class MyAgent(Think):
        model = ScriptedModel(says("Hello."), calls("pay", amount=5), says("Paid."))

        @tool(needs_approval=True)
        def pay(self, amount: int) -> str:
            """Pay."""
            return "paid"

    app = await open_app(MyAgent)
    agent = await live(app.agent(MyAgent))
    await agent.save_messages("Hi")
    assert agent.has_pending_interaction() is False
    asked = await agent.save_messages("Pay 5")
    assert agent.has_pending_interaction() is True
    await agent.apply_tool_approval(asked.pending[0].tool_call_id, True)
    await agent.continue_last_turn()
    assert agent.has_pending_interaction() is False


@pytest.mark.example("recovery", 9)
async def test_an_agent_waits_until_all_is_quiet_and_then_goes_on(open_app: OpenApp) -> None:
    gate = asyncio.Event()

    class MyAgent(Think):
        model = ScriptedModel(says("Looking").waits(gate).says(", found."), says("In short: found."))

        async def summarize(self):
            stable = await self.wait_until_stable(timeout=30)
            if stable:
                await self.save_messages(
                    [
                        {
                            "id": str(uuid.uuid4()),
                            "role": "user",
                            "parts": [{"type": "text", "text": "Now that you are done, summarize."}],
                        }
                    ]
                )

    app = await open_app(MyAgent)
    agent = app.agent(MyAgent)
    looking = asyncio.create_task(agent.save_messages("Look."))
    await MyAgent.model.until_silent()
    summarizing = asyncio.create_task(agent.summarize())
    gate.set()
    await asyncio.gather(looking, summarizing)
    messages: list[Message] = await agent.get_messages()
    assert [message.text for message in messages] == [
        "Look.",
        "Looking, found.",
        "Now that you are done, summarize.",
        "In short: found.",
    ]
