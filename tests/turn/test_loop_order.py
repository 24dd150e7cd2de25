"""The order in which a turn calls its hooks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everthink import Think, TurnConfig, tool
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.hooks import ask, breathe, soon, submitted, until

pytestmark = pytest.mark.anyio


def diarist(model: ScriptedModel, diary: list[str]) -> type[Think]:
    """An agent that writes down each of its hooks as it runs."""

    class Assistant(Think):
        def configure_session(self, session):
            diary.append("configure_session")
            return session

        async def before_turn(self, turn):
            diary.append("before_turn")

        def before_step(self, step):
            diary.append(f"before_step {step.step_number}")

        async def on_chunk(self, context):
            # A result reaches on_chunk and after_tool_call in no promised order.
            if context.chunk.type != "tool-result":
                diary.append(f"on_chunk {context.chunk.type}")

        def before_tool_call(self, call):
            diary.append(f"before_tool_call {call.name}")

        async def after_tool_call(self, outcome):
            diary.append(f"after_tool_call {outcome.name}")

        async def on_step_finish(self, step):
            diary.append(f"on_step_finish {step.step_number}")

        def on_chat_response(self, response):
            diary.append(f"on_chat_response {response.status}")

        def on_chat_error(self, error, ctx):
            diary.append(f"on_chat_error {ctx.stage}")
            return error

        @tool
        async def weather(self, city: str) -> str:
            """The weather."""
            diary.append("weather runs")
            return "rain"

        @tool
        def clock(self) -> str:
            """The time."""
            diary.append("clock runs")
            return "noon"

    Assistant.model = model
    return Assistant


async def test_a_turn_with_two_tools_calls_every_hook_in_order(open_app: OpenApp) -> None:
    # Given an agent that keeps a diary, and a model that needs two tools, one after the other
    diary: list[str] = []
    model = ScriptedModel(calls("weather", city="Paris"), calls("clock"), says("It ", "rains."))
    app = await open_app(cls := diarist(model, diary))

    # When it answers
    await app.agent(cls, "room").save_messages("Weather and time?")

    # Then the hooks ran in the documented order
    writing = ["on_chunk tool-input-start", "on_chunk tool-input-delta", "on_chunk tool-input-delta"]
    assert diary == [
        "configure_session",
        "before_turn",
        "before_step 0",
        *writing,
        "on_chunk tool-call",
        "before_tool_call weather",
        "weather runs",
        "after_tool_call weather",
        "on_step_finish 0",
        "before_step 1",
        *writing,
        "on_chunk tool-call",
        "before_tool_call clock",
        "clock runs",
        "after_tool_call clock",
        "on_step_finish 1",
        "before_step 2",
        "on_chunk text-delta",
        "on_chunk text-delta",
        "on_step_finish 2",
        "on_chat_response completed",
    ]


async def _chat(handle: Any) -> None:
    assert (await handle.chat("Hi")).status == "completed"


async def _save(handle: Any) -> None:
    await handle.save_messages("Hi")


async def _run(handle: Any) -> None:
    await handle.run_turn("Hi")


async def _socket(handle: Any) -> None:
    await ask(handle, "Hi")


async def _continue(handle: Any) -> None:
    await handle.add_messages([{"role": "assistant", "parts": [{"type": "text", "text": "Well,"}]}])
    await handle.continue_last_turn()


async def _regenerate(handle: Any) -> None:
    await handle.add_messages("Hi")
    await handle.regenerate()


async def _submit(handle: Any) -> None:
    assert (await submitted(handle, "Hi")).status == "completed"


@pytest.mark.case(152)
@pytest.mark.parametrize("door", [_chat, _save, _run, _socket, _continue, _regenerate, _submit])
async def test_the_same_hooks_run_whichever_door_a_turn_came_by(
    open_app: OpenApp, door: Callable[[Any], Awaitable[None]]
) -> None:
    # Given an agent that keeps a diary
    diary: list[str] = []
    model = ScriptedModel(calls("weather", city="Paris"), says("Rain."))
    app = await open_app(cls := diarist(model, diary))

    # When a turn comes by this door
    await soon(door(app.agent(cls, "room")))
    # A submission is completed before its response hook runs.
    await until(lambda: diary[-1] == "on_chat_response completed")

    # Then every hook ran once, and once per step
    assert [line for line in diary if "on_chunk" not in line] == [
        "configure_session",
        "before_turn",
        "before_step 0",
        "before_tool_call weather",
        "weather runs",
        "after_tool_call weather",
        "on_step_finish 0",
        "before_step 1",
        "on_step_finish 1",
        "on_chat_response completed",
    ]
    assert diary.count("on_chunk text-delta") == 1


async def test_a_failed_answer_ends_with_the_error_hook_then_the_response_hook(open_app: OpenApp) -> None:
    diary: list[str] = []
    model = ScriptedModel(says("Half an ans").then_fails("overloaded"))
    app = await open_app(cls := diarist(model, diary))

    await app.agent(cls, "room").save_messages("Hi")

    assert diary[1:] == [
        "before_turn",
        "before_step 0",
        "on_chunk text-delta",
        "on_chat_error stream",
        "on_chat_response error",
    ]


async def test_parallel_tools_each_keep_their_order_and_all_end_before_the_step_does(
    open_app: OpenApp,
) -> None:
    # Given two tools of one step, of which the first waits for the second
    diary: list[str] = []
    second_is_done = asyncio.Event()

    @tool
    async def slow() -> str:
        diary.append("slow runs")
        await second_is_done.wait()
        return "slow"

    @tool
    async def fast() -> str:
        diary.append("fast runs")
        second_is_done.set()
        return "fast"

    model = ScriptedModel(calls("slow").calls("fast"), says("Both."))
    cls = assistant(
        model,
        get_tools=lambda self: [slow, fast],
        before_tool_call=lambda self, call: diary.append(f"before {call.name}"),
        after_tool_call=lambda self, outcome: diary.append(f"after {outcome.name}"),
        on_step_finish=lambda self, step: diary.append(f"step {step.step_number}"),
    )
    app = await open_app(cls)

    # When they run
    await soon(app.agent(cls, "room").save_messages("Both?"))

    # Then each call's own order holds, and the step ends after both
    for name in ("slow", "fast"):
        mine = [line for line in diary if name in line]
        assert mine == [f"before {name}", f"{name} runs", f"after {name}"]
    assert diary[-2:] == ["step 0", "step 1"]
    assert diary.index("before fast") < diary.index("after slow")


async def test_nothing_of_the_next_step_starts_before_on_step_finish_returned(open_app: OpenApp) -> None:
    # Given an on_step_finish that waits after the first step
    entered, go_on = asyncio.Event(), asyncio.Event()
    diary: list[str] = []

    async def on_step_finish(self, step):
        entered.set()
        await go_on.wait()
        diary.append(f"finished {step.step_number}")

    @tool
    async def look() -> str:
        return "seen"

    model = ScriptedModel(calls("look"), says("Done."))
    cls = assistant(
        model,
        get_tools=lambda self: [look],
        on_step_finish=on_step_finish,
        before_step=lambda self, step: diary.append(f"before {step.step_number}"),
    )
    app = await open_app(cls)

    # When the first step is over
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Look"))
    await soon(entered.wait())
    await breathe()

    # Then the second has not begun, and does once the hook returns
    assert (model.asked, diary) == (1, ["before 0"])
    go_on.set()
    assert (await soon(turn)).text == "Done."
    assert diary == ["before 0", "finished 0", "before 1", "finished 1"]


async def test_the_answer_is_stored_before_on_chat_response_sees_it(open_app: OpenApp) -> None:
    stored: list[str] = []

    async def on_chat_response(self, response):
        stored.extend(message.text for message in await self.get_messages())

    app = await open_app(cls := assistant(ScriptedModel(says("Hello.")), on_chat_response=on_chat_response))
    await app.agent(cls, "room").save_messages("Hi")
    assert stored == ["Hi", "Hello."]


async def test_the_partial_answer_is_stored_before_on_chat_error_is_asked(open_app: OpenApp) -> None:
    stored: list[str] = []

    async def on_chat_error(self, error, ctx):
        stored.extend(message.text for message in await self.get_messages())

    model = ScriptedModel(says("Half an ans").then_fails("overloaded"))
    app = await open_app(cls := assistant(model, on_chat_error=on_chat_error))
    await app.agent(cls, "room").save_messages("Hi")
    assert stored == ["Hi", "Half an ans"]


async def test_configure_session_runs_once_and_not_per_turn(open_app: OpenApp) -> None:
    diary: list[str] = []
    model = ScriptedModel(says("One."), says("Two."))
    app = await open_app(cls := diarist(model, diary))
    for text in ("1", "2"):
        await app.agent(cls, "room").save_messages(text)
    assert diary.count("configure_session") == 1
    assert diary.count("before_turn") == 2


async def test_hooks_may_be_assigned_on_the_instance_at_any_time(open_app: OpenApp) -> None:
    # Given an agent without hooks that has answered once already
    model = ScriptedModel(says("One."), calls("look"), says("Two."), says("Three."))
    diary: list[str] = []

    @tool
    async def look() -> str:
        return "seen"

    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    handle = app.agent(cls, "room")
    await handle.save_messages("1")

    # When hooks are put on the live agent
    agent = await live(handle)
    agent.before_turn = lambda turn: diary.append("before_turn") or TurnConfig(system="Be brief.")

    async def before_step(step):
        diary.append("before_step")

    agent.before_step = before_step
    for name in ("on_chunk", "before_tool_call", "after_tool_call", "on_step_finish", "on_chat_response"):
        setattr(agent, name, lambda value, name=name: diary.append(name))
    await handle.save_messages("2")

    # Then they run like written ones
    assert set(diary) == {
        "before_turn",
        "before_step",
        "on_chunk",
        "before_tool_call",
        "after_tool_call",
        "on_step_finish",
        "on_chat_response",
    }
    assert model.requests[1].system == "Be brief."

    # And taking them away is noticed too
    for name in set(diary):
        delattr(agent, name)
    diary.clear()
    await handle.save_messages("3")
    assert diary == []
