"""Restarts: what was shown stays, what was accepted runs."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Message, Think
from everthink.door.chat_request import ChatRequest
from everthink.errors import StoreClosed, TurnInterrupted
from everthink.hooks import TurnContext
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import (
    Database,
    Witness,
    accept_request,
    all_over,
    follow,
    gated_app,
    home_of,
    prompt,
)

pytestmark = pytest.mark.anyio

Restart = Callable[[App, type[Think]], Awaitable[App]]


@pytest.fixture(params=["evicted", "reopened"])
def restart(request: pytest.FixtureRequest, open_app: OpenApp) -> Restart:
    """Drop the agent from memory, or close the app and open another on the same file."""

    async def again(app: App, cls: type[Think]) -> App:
        if request.param == "evicted":
            await app.evict(cls, "default")
            return app
        await app.close()
        return await open_app(cls)

    return again


async def test_an_interrupted_turn_goes_on_from_what_was_shown(
    open_app: OpenApp, tmp_path: Path, restart: Restart
) -> None:
    # Given a turn in the middle of its answer
    model = ScriptedModel(says("The capital ", "is ").then_hangs(), says("Paris."), says("Sure."))
    app = await open_app(cls := assistant(model))
    witness = Witness(await home_of(app, cls))
    turn = asyncio.create_task(app.agent(cls).save_messages("Capital of France?"))
    await witness.until_text("The capital is ")

    # When the agent is restarted
    app = await restart(app, cls)

    # Then whoever waited is told, and the conversation gets the whole answer, once
    with pytest.raises(TurnInterrupted):
        await turn
    await all_over(app, cls)
    question, answer = await app.agent(cls).get_messages()
    assert (question.text, answer.text) == ("Capital of France?", "The capital is Paris.")
    (row,) = Database(tmp_path).turns()
    assert (row["status"], row["message_id"], row["error"]) == ("completed", answer.id, None)

    # ... and the next turn sees nothing of it
    await app.agent(cls).save_messages("Sure?")
    assert prompt(model.last_request) == [
        ("user", "Capital of France?"),
        ("assistant", "The capital is Paris."),
        ("user", "Sure?"),
    ]


async def test_an_interrupted_turn_that_had_shown_nothing_is_run_again(
    open_app: OpenApp, tmp_path: Path, restart: Restart
) -> None:
    began = asyncio.Event()

    async def before_turn(self: Think, turn: TurnContext) -> None:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()

    app = await open_app(cls := assistant(ScriptedModel(says("Hello.")), before_turn=before_turn))
    turn = asyncio.create_task(app.agent(cls).save_messages("Hi"))
    await began.wait()
    app = await restart(app, cls)
    with pytest.raises(TurnInterrupted):
        await turn
    await all_over(app, cls)
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi", "Hello."]
    assert Database(tmp_path).statuses() == ["completed"]


async def test_an_interrupted_regeneration_keeps_its_place_beside_the_old_answer(
    open_app: OpenApp, restart: Restart
) -> None:
    model = ScriptedModel(says("old"), says("half new, ").then_hangs(), says("whole new"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")
    witness = Witness(await home_of(app, cls))
    turn = follow(app.agent(cls).regenerate())
    await witness.until_text("half new, ")
    app = await restart(app, cls)
    with pytest.raises(TurnInterrupted):
        await turn
    await all_over(app, cls)
    agent = await live(app.agent(cls))
    assert [m.text for m in agent.messages] == ["Hi", "half new, whole new"]
    branches = await agent.session.get_branches(agent.messages[0].id)
    assert [m.text for m in branches] == ["old", "half new, whole new"]
    # The answer it replaces was no part of what it was asked
    assert [text for _, text in prompt(model.last_request)][:2] == ["Hi", "half new, "]


async def test_an_interrupted_continuation_is_a_message_of_its_own(
    open_app: OpenApp, restart: Restart
) -> None:
    model = ScriptedModel(says("one"), says("and two ").then_hangs(), says("and three"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")
    witness = Witness(await home_of(app, cls))
    turn = follow(app.agent(cls).continue_last_turn())
    await witness.until_text("and two ")
    app = await restart(app, cls)
    with pytest.raises(TurnInterrupted):
        await turn
    await all_over(app, cls)
    messages = await app.agent(cls).get_messages()
    assert [m.text for m in messages] == ["Hi", "one", "and two and three"]
    assert len({m.id for m in messages}) == 3


async def test_a_chat_that_is_followed_is_told_of_the_interruption(
    open_app: OpenApp, restart: Restart
) -> None:
    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(cls := assistant(model))
    seen: list[str] = []

    async def read() -> None:
        async for piece in app.agent(cls).chat("Hi").text():
            seen.append(piece)

    reading = asyncio.create_task(read())
    await Witness(await home_of(app, cls)).until_text("Half")
    await restart(app, cls)
    with pytest.raises(TurnInterrupted, match="Everything shown so far is stored"):
        await reading
    assert seen == ["Half"]


async def test_turns_that_waited_run_after_the_restart_in_their_order(
    open_app: OpenApp, tmp_path: Path, restart: Restart
) -> None:
    # Given a turn that runs, and behind it a message, a streamed one, a browser's and a submission
    answers = ["two", "three", "four", "five"]
    model = ScriptedModel(says("one, ").then_hangs(), says("whole"), *(says(text) for text in answers))
    app = await open_app(cls := assistant(model))
    home = await home_of(app, cls)
    witness = Witness(home)
    waiting: list[asyncio.Task[Any]] = [asyncio.create_task(app.agent(cls).save_messages("first"))]
    await witness.until_text("one, ")
    waiting.append(asyncio.create_task(app.agent(cls).save_messages("second", metadata={"n": 2})))
    await witness.until_accepted(2)
    waiting.append(follow(app.agent(cls).chat("third", channel="email")))
    await witness.until_accepted(3)
    admitted: Any = await accept_request(
        home, ChatRequest("r-4", [Message("q4", "user", [{"type": "text", "text": "fourth"}])], body={"x": 1})
    )
    await app.agent(cls).submit_messages("fifth", submission_id="job")
    assert Database(tmp_path).statuses() == ["running", *["accepted"] * 4]

    # When the agent is restarted
    app = await restart(app, cls)
    ended = await asyncio.gather(*waiting, admitted.result(), return_exceptions=True)
    assert all(isinstance(e, TurnInterrupted) for e in ended)

    # Then all that was accepted is answered, once, in its order, after the one that was cut off
    await all_over(app, cls)
    rows = Database(tmp_path).turns()
    assert [row["status"] for row in rows] == ["completed"] * 5
    assert [row["ended_at"] for row in rows] == sorted(row["ended_at"] for row in rows)
    assert prompt(model.requests[1])[0] == ("user", "first")
    assert (await app.agent(cls).inspect_submission("job")).status == "completed"
    messages = await app.agent(cls).get_messages()
    answered = [m.text for m in messages if m.role == "assistant"]
    assert answered == ["one, whole", *answers]
    asked = {m.text: m.metadata for m in messages if m.role == "user"}
    assert set(asked) == {"first", "second", "third", "fourth", "fifth"}
    assert asked["second"] == {"turnMetadata": {"n": 2}}
    assert asked["third"] == {"channel": "email"}


async def test_a_waiting_turn_keeps_its_body_and_its_client_tools(
    open_app: OpenApp, restart: Restart
) -> None:
    seen: list[Any] = []

    def before_turn(self: Think, turn: TurnContext) -> None:
        seen.append((turn.body, sorted(turn.tools)))

    model = ScriptedModel(says("one ").then_hangs(), says("more"), says("two"))
    app = await open_app(cls := assistant(model, before_turn=before_turn))
    home = await home_of(app, cls)
    witness = Witness(home)
    first = asyncio.create_task(app.agent(cls).save_messages("first"))
    await witness.until_text("one")
    request = ChatRequest(
        "r",
        [Message("q", "user", [{"type": "text", "text": "second"}])],
        client_tools=[{"name": "locate"}],
        body={"tone": "dry"},
    )
    await accept_request(home, request)

    app = await restart(app, cls)
    with pytest.raises(TurnInterrupted):
        await first
    await all_over(app, cls)

    # The first is asked again for its second half, without what came later
    assert seen == [(None, []), (None, []), ({"tone": "dry"}, ["locate"])]
    assert [tool.name for tool in model.last_request.tools] == ["locate"]


@pytest.mark.parametrize("ask", ["continue_last_turn", "regenerate", "save nothing"])
async def test_a_waiting_turn_without_messages_of_its_own_runs_too(
    open_app: OpenApp, tmp_path: Path, restart: Restart, ask: str
) -> None:
    # Given a turn that needs no input, behind one that runs
    model = ScriptedModel(says("zero"), says("one ").then_hangs(), says("and more"), says("two"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")
    witness = Witness(await home_of(app, cls))
    running = follow(app.agent(cls).continue_last_turn())
    await witness.until_text("one")
    agent = app.agent(cls)
    match ask:
        case "continue_last_turn":
            waiting = follow(agent.continue_last_turn({"tone": "dry"}))
        case "regenerate":
            waiting = follow(agent.regenerate())
        case _:
            waiting = asyncio.create_task(agent.save_messages([], metadata={"n": 1}))
    await witness.until_accepted(2)

    # When the agent is restarted
    app = await restart(app, cls)
    await asyncio.gather(running, waiting, return_exceptions=True)
    (await live(app.agent(cls))).get_config()
    await all_over(app, cls)

    # Then it has run
    assert Database(tmp_path).statuses() == ["completed"] * 3
    expected = ["Hi", "two"] if ask == "regenerate" else ["Hi", "zero", "one and more", "two"]
    assert [m.text for m in await app.agent(cls).get_messages()] == expected


async def test_a_waiting_turn_whose_input_was_a_function_is_skipped(
    open_app: OpenApp, tmp_path: Path, restart: Restart
) -> None:
    # Given a function that waits for its turn: it cannot be kept
    model = ScriptedModel(says("one ").then_hangs(), says("and more"))
    app = await open_app(cls := assistant(model))
    witness = Witness(await home_of(app, cls))
    first = asyncio.create_task(app.agent(cls).save_messages("first"))
    await witness.until_text("one")
    second = asyncio.create_task(app.agent(cls).save_messages(lambda messages: ["second"]))
    await witness.until_accepted(2)

    # When the agent is restarted
    app = await restart(app, cls)
    await asyncio.gather(first, second, return_exceptions=True)
    (await live(app.agent(cls))).get_config()
    await all_over(app, cls)

    # Then the model is not asked for an answer to nothing
    assert Database(tmp_path).statuses() == ["completed", "skipped"]
    assert model.asked == 2
    assert [m.text for m in await app.agent(cls).get_messages()] == ["first", "one and more"]


async def test_what_a_function_gave_is_part_of_the_question_after_a_restart(
    open_app: OpenApp, restart: Restart
) -> None:
    # Given a turn whose input a function made
    model = ScriptedModel(says("zero"), says("one ").then_hangs(), says("and more"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")
    witness, made = Witness(await home_of(app, cls)), list[int]()

    def make(messages: list[Message]) -> list[str]:
        made.append(len(messages))
        return ["From a function"]

    turn = asyncio.create_task(app.agent(cls).save_messages(make))
    await witness.until_text("one ")

    # When it is cut off
    app = await restart(app, cls)
    await asyncio.gather(turn, return_exceptions=True)
    await all_over(app, cls)

    # Then it answers that, and the function is not needed again
    texts = [m.text for m in await app.agent(cls).get_messages()]
    assert texts == ["Hi", "zero", "From a function", "one and more"]
    assert [text for _, text in prompt(model.last_request)][:4] == ["Hi", "zero", "From a function", "one "]
    assert made == [2]


async def test_a_function_that_was_cut_off_itself_is_skipped(
    open_app: OpenApp, tmp_path: Path, restart: Restart
) -> None:
    began = asyncio.Event()

    async def make(messages: list[Message]) -> list[str]:
        began.set()
        await asyncio.Event().wait()
        return ["never"]

    app = await open_app(cls := assistant(ScriptedModel()))
    turn = asyncio.create_task(app.agent(cls).save_messages(make))
    await began.wait()
    app = await restart(app, cls)
    await asyncio.gather(turn, return_exceptions=True)
    await all_over(app, cls)
    assert Database(tmp_path).statuses() == ["skipped"]
    assert await app.agent(cls).get_messages() == []


async def test_a_turn_whose_kept_input_is_not_readable_does_not_keep_the_agent_from_starting(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model = ScriptedModel(says("one ").then_hangs(), says("and more"), says("fine"))
    app = await open_app(cls := assistant(model))
    witness = Witness(await home_of(app, cls))
    first = asyncio.create_task(app.agent(cls).save_messages("first"))
    await witness.until_text("one")
    second = asyncio.create_task(app.agent(cls).save_messages("second"))
    await witness.until_accepted(2)
    await app.close()
    await asyncio.gather(first, second, return_exceptions=True)
    with sqlite3.connect(tmp_path / "everthink.db") as connection:
        connection.execute("UPDATE turns SET input = '{broken' WHERE status = 'accepted'")
    connection.close()

    app = await open_app(cls)
    assert (await app.agent(cls).save_messages("third")).text == "fine"
    # It is over, and kept: it used to be dropped as if nobody had asked.
    assert Database(tmp_path).statuses() == ["completed", "error", "completed"]
    assert Database(tmp_path).turns()[1]["input"] == "{broken"


async def test_ended_turns_are_left_alone_by_a_restart(
    open_app: OpenApp, tmp_path: Path, restart: Restart
) -> None:
    model = ScriptedModel(says("one"), says("Half").then_fails("no"))
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("first")
    await app.agent(cls).save_messages("second")
    rows, messages = Database(tmp_path).turns(), Database(tmp_path).messages()
    app = await restart(app, cls)
    (await live(app.agent(cls))).get_config()
    await all_over(app, cls)
    assert (Database(tmp_path).turns(), Database(tmp_path).messages()) == (rows, messages)


async def test_nothing_is_shown_of_a_turn_after_it_was_cut(tmp_path: Path) -> None:
    # Given a store that is still writing the first sentence while the second one waits
    gate = asyncio.Event()
    model = ScriptedModel(says("First. ").waits(gate).says("Second.").then_hangs(), says("And the rest."))
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        witness = Witness(await home_of(app, cls))
        turn = asyncio.create_task(app.agent(cls).save_messages("Hi"))
        await witness.until_accepted(1)
        store.hold()
        await store.until_waiting()
        gate.set()
        for _ in range(20):
            await asyncio.sleep(0)

        # When the agent is evicted and started anew while that commit is under way
        await app.evict(cls, "default")
        waking = asyncio.create_task(app.agent(cls).get_messages())
        for _ in range(50):
            await asyncio.sleep(0)
        store.release()
        await waking
        with pytest.raises(TurnInterrupted):
            await turn
        await all_over(app, cls)

        # Then nobody was shown more than the answer begins with, and only its second half was asked for
        [_, answer] = await app.agent(cls).get_messages()
        assert answer.text.startswith(witness.text)
        assert answer.text == "First. And the rest."


async def test_a_turn_that_is_being_accepted_while_the_agent_is_evicted_is_not_lost(tmp_path: Path) -> None:
    # Given a store that is still writing the row of a turn
    model = ScriptedModel(says("one"), says("two"))
    async with gated_app(tmp_path, cls := assistant(model)) as (app, store):
        await home_of(app, cls)
        store.hold()
        turn = asyncio.create_task(app.agent(cls).save_messages("first"))
        await store.until_waiting()

        # When the agent is evicted
        evicting = asyncio.create_task(app.evict(cls, "default"))
        await asyncio.sleep(0)
        store.release()
        await evicting
        with pytest.raises((TurnInterrupted, StoreClosed)):
            await turn

        # Then the message is in the conversation, and no turn is left open
        assert (await app.agent(cls).get_messages())[0].text == "first"
        await app.agent(cls).save_messages("second")
        assert Database(tmp_path).rows("SELECT * FROM turns WHERE ended_at IS NULL") == []


async def test_a_closed_app_takes_no_turns(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = await live(app.agent(cls))
    await app.close()
    with pytest.raises(StoreClosed, match="closed"):
        await app.agent(cls).save_messages("Hi")
    with pytest.raises(StoreClosed, match="shutting down"):
        await agent.save_messages("Hi")


async def test_a_turn_that_is_nearly_done_gets_the_grace_to_finish(open_app: OpenApp, tmp_path: Path) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("Nearly ").waits(gate).says("done."))
    app = await open_app(cls := assistant(model), grace=60.0)
    turn = asyncio.create_task(app.agent(cls).save_messages("Hi"))
    await model.until_silent()
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)
    gate.set()
    await closing
    assert (await turn).text == "Nearly done."
    assert Database(tmp_path).statuses() == ["completed"]


async def test_a_call_that_waits_for_a_person_is_still_there_after_a_restart(
    open_app: OpenApp, restart: Restart
) -> None:
    model = ScriptedModel(calls("locate", id="call-1"), says("In Paris."))
    app = await open_app(cls := assistant(model))
    question = Message("q", "user", [{"type": "text", "text": "Where?"}])
    admitted: Any = await accept_request(
        await home_of(app, cls), ChatRequest("r", [question], client_tools=[{"name": "locate"}])
    )
    await admitted.result()

    app = await restart(app, cls)

    assert (await live(app.agent(cls))).has_pending_interaction() is True
    assert await app.agent(cls).apply_tool_result("call-1", "Paris") is True
    assert (await app.agent(cls).continue_last_turn()).text == "In Paris."
