"""`save_messages`: add messages, answer them, wait for the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Message, Think
from everthink.hooks import ChatResponse
from everthink.journal.feed import (
    FeedEvent,
    HistoryChanged,
    TurnEnded,
)
from everthink.testing.scripted import ScriptedModel, fails, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import Database, Witness, all_over, gated_app, home_of, prompt, roles

pytestmark = pytest.mark.anyio


@pytest.mark.case(115)
async def test_it_stores_and_answers(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))

    result = await app.agent(cls).save_messages("Hi")

    assert (result.status, result.continuation, result.error, result.text) == (
        "completed",
        False,
        None,
        "Hello",
    )
    (turn,) = Database(tmp_path).turns()
    assert (turn["request_id"], turn["trigger"], turn["status"]) == (
        result.request_id,
        "programmatic",
        "completed",
    )
    assert Database(tmp_path).messages()[-1]["id"] == result.message.id == turn["message_id"]  # type: ignore[union-attr]


@pytest.mark.case(115)
async def test_it_takes_several_messages_of_any_role(open_app: OpenApp) -> None:
    model = ScriptedModel(says("ok"))
    app = await open_app(cls := assistant(model))

    await app.agent(cls).save_messages(
        [
            {"role": "system", "parts": [{"type": "text", "text": "Be brief."}]},
            Message("q", "user", [{"type": "text", "text": "Who?"}]),
            {"id": "a", "role": "assistant", "parts": [{"type": "text", "text": "Me."}]},
            "Really?",
        ]
    )

    assert prompt(model.last_request) == [
        ("system", "Be brief."),
        ("user", "Who?"),
        ("assistant", "Me."),
        ("user", "Really?"),
    ]
    assert roles(await app.agent(cls).get_messages()) == ["system", "user", "assistant", "user", "assistant"]


@pytest.mark.case(116)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_sees_the_messages_at_the_moment_its_turn_comes(
    open_app: OpenApp, is_async: bool
) -> None:
    # Given a turn that runs, and one that waits behind it with a function
    gate = asyncio.Event()
    model = ScriptedModel(says("one").waits(gate), says("two"))
    app = await open_app(cls := assistant(model))
    seen: list[list[str]] = []

    def ask(messages: list[Message]) -> list[str]:
        seen.append([m.text for m in messages])
        messages.clear()  # a copy: this changes nothing
        return ["second"]

    async def ask_later(messages: list[Message]) -> list[str]:
        return ask(messages)

    first = asyncio.create_task(app.agent(cls).save_messages("first"))
    await model.until_silent()
    second = asyncio.create_task(app.agent(cls).save_messages(ask_later if is_async else ask))
    await asyncio.sleep(0)
    assert seen == []

    # When the first ends
    gate.set()
    await asyncio.gather(first, second)

    # Then the function saw its answer
    assert seen == [["first", "one"]]
    assert [m.text for m in await app.agent(cls).get_messages()] == ["first", "one", "second", "two"]


@pytest.mark.case(116)
async def test_a_function_that_raises_fails_its_caller_and_stores_nothing(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model = ScriptedModel(says("ok"))
    app = await open_app(cls := assistant(model))

    def ask(messages: list[Message]) -> list[str]:
        raise LookupError("no question")

    with pytest.raises(LookupError, match="no question"):
        await app.agent(cls).save_messages(ask)

    assert (model.requests, Database(tmp_path).messages()) == ([], [])
    assert [(t["status"], t["error"]) for t in Database(tmp_path).turns()] == [("error", "no question")]
    assert (await app.agent(cls).save_messages("Hi")).text == "ok"


@pytest.mark.case(93)
async def test_an_empty_list_given_or_returned_does_ask_the_model(open_app: OpenApp) -> None:
    # Given a conversation of two messages
    model = ScriptedModel(says("one"), says("two"), says("three"))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)
    await agent.save_messages("first")

    # When nothing is added, twice
    assert (await agent.save_messages([])).status == "completed"
    assert len(await agent.get_messages()) == 3
    assert (await agent.save_messages(lambda messages: [])).status == "completed"

    # Then there are two more answers
    assert [m.text for m in await agent.get_messages()] == ["first", "one", "two", "three"]


@pytest.mark.case(661)
async def test_an_empty_list_into_an_empty_conversation_fails_before_the_model_is_asked(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model = ScriptedModel()
    app = await open_app(cls := assistant(model))
    with pytest.raises(Exception, match=r"^No messages to send to the model\."):
        await app.agent(cls).save_messages([])
    assert (model.requests, Database(tmp_path).statuses()) == ([], ["error"])


@pytest.mark.case(117)
async def test_it_fires_the_response_hook_before_it_returns(open_app: OpenApp) -> None:
    heard: list[ChatResponse] = []

    async def on_chat_response(self: Think, response: ChatResponse) -> None:
        await asyncio.sleep(0)
        heard.append(response)

    app = await open_app(cls := assistant(ScriptedModel(says("Hello")), on_chat_response=on_chat_response))
    result = await app.agent(cls).save_messages("Hi")
    (response,) = heard
    assert (response.request_id, response.status, response.continuation) == (
        result.request_id,
        "completed",
        False,
    )
    assert response.message == result.message
    assert response.message is not result.message


@pytest.mark.case(118)
async def test_readers_are_told_of_the_question_and_of_the_answer(open_app: OpenApp, tmp_path: Path) -> None:
    stored: list[list[str]] = []

    def look(shown: FeedEvent) -> None:
        if isinstance(shown, HistoryChanged):
            stored.append(Database(tmp_path).texts())

    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))
    witness = Witness(await home_of(app, cls), look)
    await app.agent(cls).save_messages("Hi")
    assert stored == [["Hi"], ["Hi", "Hello"]]
    assert witness.text == "Hello"


@pytest.mark.case(150)
async def test_the_response_hook_may_start_a_turn_whose_own_hook_follows_after_it(open_app: OpenApp) -> None:
    # Given a hook that asks a second question and waits for the answer
    trace: list[str] = []

    async def on_chat_response(self: Think, response: ChatResponse) -> None:
        trace.append(f"in {response.message.text}")
        if response.message.text == "one":
            more = await self.save_messages("second")
            trace.append(f"got {more.text}")
        trace.append(f"out {response.message.text}")

    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model, on_chat_response=on_chat_response))

    # When the first question is asked
    result = await app.agent(cls).save_messages("first")
    await all_over(app, cls)

    # Then the second turn's hook came after the first's had returned: not nested, not lost
    assert result.text == "one"
    assert trace == ["in one", "got two", "out one", "in two", "out two"]
    assert [m.text for m in await app.agent(cls).get_messages()] == ["first", "one", "second", "two"]


@pytest.mark.case(150)
async def test_hooks_of_turns_that_end_while_a_hook_runs_wait_for_it_in_order(open_app: OpenApp) -> None:
    # Given a slow hook
    gate, entered, trace = asyncio.Event(), asyncio.Event(), []

    async def on_chat_response(self: Think, response: ChatResponse) -> None:
        trace.append(f"in {response.message.text}")
        entered.set()
        await gate.wait()
        trace.append(f"out {response.message.text}")

    app = await open_app(
        cls := assistant(ScriptedModel(says("1"), says("2"), says("3")), on_chat_response=on_chat_response)
    )
    witness = Witness(await home_of(app, cls))

    # When two more turns end while it runs
    turns = [asyncio.create_task(app.agent(cls).save_messages(text)) for text in "abc"]
    await entered.wait()
    await witness.until(lambda: sum(isinstance(s, TurnEnded) for s in witness.shown) == 3)
    assert trace == ["in 1"]
    gate.set()
    await asyncio.gather(*turns)

    # Then each was told once, one after the other
    assert trace == ["in 1", "out 1", "in 2", "out 2", "in 3", "out 3"]


@pytest.mark.case(151)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_hook_that_raises_changes_neither_the_result_nor_the_message(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    def shout(self: Think, response: ChatResponse) -> None:
        response.message.parts.clear()
        raise RuntimeError("hook fell over")

    async def shout_later(self: Think, response: ChatResponse) -> None:
        shout(self, response)

    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model, on_chat_response=shout_later if is_async else shout))

    result = await app.agent(cls).save_messages("first")

    assert (result.status, result.text) == ("completed", "one")
    assert [m.text for m in await app.agent(cls).get_messages()] == ["first", "one"]
    assert "on_chat_response" in caplog.text
    assert "hook fell over" in caplog.text
    assert (await app.agent(cls).save_messages("second")).text == "two"


@pytest.mark.case(87)
async def test_one_agent_answers_one_at_a_time_in_the_order_asked(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel(*(says(f"answer {i}") for i in range(6)))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls)

    results = await asyncio.gather(*(agent.save_messages(f"question {i}") for i in range(6)))

    assert [r.text for r in results] == [f"answer {i}" for i in range(6)]
    asked = [text for i in range(6) for text in (f"question {i}", f"answer {i}")]
    assert [m.text for m in await agent.get_messages()] == asked
    assert [len(request.messages) for request in model.requests] == [1, 3, 5, 7, 9, 11]
    rows = Database(tmp_path).turns()
    assert [row["request_id"] for row in rows] == [r.request_id for r in results]


async def test_agents_of_different_names_answer_at_the_same_time(open_app: OpenApp) -> None:
    # Given two agents whose models each wait until the other speaks
    first, second = asyncio.Event(), asyncio.Event()

    def play(request: Any) -> Any:
        mine, other = (first, second) if prompt(request)[-1][1] == "to a" else (second, first)
        mine.set()
        return says("both").waits(other)

    app = await open_app(cls := assistant(ScriptedModel(play, play)))

    # When both are asked at once, both answer
    results = await asyncio.wait_for(
        asyncio.gather(app.agent(cls, "a").save_messages("to a"), app.agent(cls, "b").save_messages("to b")),
        timeout=30,
    )
    assert [r.text for r in results] == ["both", "both"]


async def test_a_caller_that_stops_waiting_does_not_stop_the_turn(open_app: OpenApp, tmp_path: Path) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("The whole ").waits(gate).says("answer."))
    app = await open_app(cls := assistant(model))

    waiting = asyncio.create_task(app.agent(cls).save_messages("Hi"))
    await model.until_silent()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert Database(tmp_path).statuses() == ["running"]
    gate.set()
    await all_over(app, cls)

    assert Database(tmp_path).statuses() == ["completed"]
    assert Database(tmp_path).texts() == ["Hi", "The whole answer."]


async def test_a_caller_that_stops_waiting_for_its_place_in_the_queue_keeps_it(
    open_app: OpenApp, tmp_path: Path
) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("one").waits(gate), says("two"))
    app = await open_app(cls := assistant(model))
    witness = Witness(await home_of(app, cls))

    first = asyncio.create_task(app.agent(cls).save_messages("first"))
    await model.until_silent()
    second = asyncio.create_task(app.agent(cls).save_messages("second"))
    await witness.until_accepted(2)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(second, timeout=0)
    gate.set()
    await first
    await all_over(app, cls)

    assert Database(tmp_path).statuses() == ["completed", "completed"]
    assert Database(tmp_path).texts() == ["first", "one", "second", "two"]


async def test_a_caller_cancelled_while_its_turn_is_being_accepted_leaves_no_turn_half_open(
    tmp_path: Path,
) -> None:
    # Given a store that is still writing the row of a turn
    model = ScriptedModel(says("one"), says("two"))
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        home = await home_of(app, cls)
        store.hold()
        waiting = asyncio.create_task(app.agent(cls).save_messages("first"))
        await store.until_waiting()

        # When the caller gives up, and the row becomes durable afterwards
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        store.release()

        # Then the turn runs to its end, and the next one follows it
        await app.agent(cls).save_messages("second")
        assert Database(tmp_path).statuses() == ["completed", "completed"]
        assert [m.text for m in await app.agent(cls).get_messages()] == ["first", "one", "second", "two"]
        assert (len(home.chat.host.aborts), home.chat.door.queue.is_idle) == (0, True)


@pytest.mark.case(85)
async def test_a_turn_that_fails_does_not_hold_up_the_next(open_app: OpenApp) -> None:
    model = ScriptedModel(fails("no"), says("two"))
    app = await open_app(cls := assistant(model))
    first, second = await asyncio.gather(
        app.agent(cls).save_messages("first"), app.agent(cls).save_messages("second")
    )
    assert (first.status, first.error) == ("error", "no")
    assert second.text == "two"
