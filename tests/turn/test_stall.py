"""The stall watchdog: a model that falls silent does not hold the turn for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, TurnConfig, client_tool
from everthink.errors import StreamStalled
from everthink.journal.feed import RecoveryChanged, TurnEnded
from everthink.recovery import ChatRecovery
from everthink.recovery.incident import TERMINAL_MESSAGE, Exhausted
from everthink.testing import ManualClock, ScriptedModel, calls, fails, hangs, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Database, Heard, Witness, all_over, home_of, prompt, record_events

pytestmark = pytest.mark.anyio

STALLED = "Chat stream stalled: no activity for 5000ms; the turn was aborted by the stall watchdog."


def stalling(model: ScriptedModel, **members: Any) -> type[Think]:
    """An agent with five seconds of patience."""
    return assistant(model, chat_stream_stall_timeout=5.0, **members)


class Interrupted(Heard):
    """A callback that can be told of an interruption."""

    def on_interrupted(self) -> None:
        self.told.append(("interrupted", None))


# --- the watchdog


@pytest.mark.case(47)
async def test_silence_beyond_the_window_fails_a_turn_that_is_not_recovered(open_app: OpenApp) -> None:
    # Given a model that falls silent, five seconds of patience, and no recovery
    clock, model = ManualClock(), ScriptedModel(says("Half ").then_hangs(), says("Fine."))
    told: list[Any] = []
    cls = stalling(model, chat_recovery=False, on_chat_error=lambda self, error, ctx: told.append(error))
    app = await open_app(cls, clock=clock)
    events = record_events(app, "chat:stream:stalled")
    agent = app.agent(cls, "room")
    turn = asyncio.create_task(agent.save_messages("Hi"))
    await model.until_silent()

    # When less, then more than that passes
    await clock.advance(4.9)
    assert not turn.done()
    await clock.advance(0.2)

    # Then the turn failed with that error, the model was let go, and the half answer is kept
    result = await turn
    assert (result.status, result.error, result.text) == ("error", STALLED, "Half ")
    assert [event.payload for event in events] == [{"requestId": result.request_id, "timeoutMs": 5000}]
    assert [type(error) for error in told] == [StreamStalled]
    assert model.cut_off == 1
    # And the next turn is fine
    assert (await agent.save_messages("Again")).text == "Fine."


@pytest.mark.case(46)
async def test_a_slow_but_steady_stream_is_left_alone(open_app: OpenApp) -> None:
    clock, goes = ManualClock(), [asyncio.Event() for _ in range(3)]
    play = says("a")
    for event in goes:
        play = play.waits(event).says("b")
    model = ScriptedModel(play)
    app = await open_app(cls := stalling(model), clock=clock)
    events = record_events(app, "chat:stream:stalled")
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))
    for event in goes:
        await model.until_silent()
        await clock.advance(4.0)
        event.set()
    assert (await turn).text == "abbb"
    assert (events, clock.waiting) == ([], 0)


@pytest.mark.case(45, 53)
async def test_a_turn_may_have_a_window_of_its_own_and_zero_is_none(open_app: OpenApp) -> None:
    # Given an agent without a watchdog, and one turn with it
    clock, model = ManualClock(), ScriptedModel(hangs(), hangs(), hangs())
    windows = [5.0, 0.0, None]
    app = await open_app(
        cls := assistant(
            model,
            model_timeout=0,
            chat_recovery=False,
            before_turn=lambda self, turn: TurnConfig(chat_stream_stall_timeout=windows.pop(0)),
        ),
        clock=clock,
    )
    agent = app.agent(cls, "room")
    first = asyncio.create_task(agent.save_messages("Hi"))
    await model.until_silent()
    await clock.advance(5.1)
    assert (await first).error == STALLED

    # When the next turn switches it off, and the one after it says nothing about it
    for question in ("Again", "And again"):
        turn = asyncio.create_task(agent.save_messages(question))
        await model.until_silent()
        await clock.advance(3600)

        # Then they wait until somebody stops them
        assert not turn.done()
        await agent.abort_all_requests("enough")
        assert (await turn).status == "aborted"


@pytest.mark.case(48)
async def test_stopping_a_watched_turn_stops_the_model_and_the_watchdog(open_app: OpenApp) -> None:
    clock, model = ManualClock(), ScriptedModel(says("Half ").then_hangs())
    app = await open_app(cls := stalling(model), clock=clock)
    events = record_events(app, "chat:stream:stalled")
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))
    await model.until_silent()
    await app.agent(cls, "room").abort_all_requests("enough")
    result = await turn
    assert (result.status, result.text, model.cut_off) == ("aborted", "Half ", 1)
    assert clock.waiting == 0
    await clock.advance(60)
    assert events == []


@pytest.mark.case(49)
async def test_an_error_in_a_watched_stream_ends_it_without_a_stall(open_app: OpenApp) -> None:
    clock, model = ManualClock(), ScriptedModel(says("Half ").then_fails("no more"))
    app = await open_app(cls := stalling(model), clock=clock)
    events = record_events(app, "chat:stream:stalled", "chat:recovery:detected")
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.error, result.text) == ("error", "no more", "Half ")
    assert clock.waiting == 0
    await clock.advance(60)
    assert events == []


# --- a stall is an interruption


@pytest.mark.case(50)
async def test_a_turn_that_stalls_is_asked_to_go_on_and_ends_as_if_nothing_had_been(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn that falls silent, with a reader and somebody who waits for it
    clock = ManualClock()
    model = ScriptedModel(says("The capital ").then_hangs(), says("is Paris."))
    app = await open_app(cls := stalling(model), clock=clock)
    events = record_events(app, "chat:stream:stalled", "chat:request:failed", "chat:recovery:completed")
    witness = Witness(await home_of(app, cls, "room"))
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Capital of France?"))
    await model.until_silent()

    # When it has been silent for too long
    await clock.advance(5.1)
    result = await turn

    # Then it went on in the same message, and nobody was told of an end or an error in between
    assert (result.status, result.error, result.text) == ("completed", None, "The capital is Paris.")
    assert [event.type for event in events] == ["chat:stream:stalled", "chat:recovery:completed"]
    assert [s.status for s in witness.shown if isinstance(s, TurnEnded)] == ["completed"]
    assert [s.recovering for s in witness.shown if isinstance(s, RecoveryChanged)] == [True, False]
    assert witness.text == "The capital is Paris."
    assert [text for _, text in prompt(model.last_request)][:2] == ["Capital of France?", "The capital "]
    # once, and the conversation has it once
    assert Database(tmp_path).texts() == ["Capital of France?", "The capital is Paris."]
    assert Database(tmp_path).statuses() == ["completed"]
    assert clock.waiting == 0


@pytest.mark.case(50)
async def test_a_callback_that_knows_interruptions_is_told_once_and_nothing_after_it(
    open_app: OpenApp,
) -> None:
    clock, goes = ManualClock(), asyncio.Event()
    model = ScriptedModel(says("Half ").then_hangs(), says("whole").waits(goes).says("."))
    app = await open_app(cls := stalling(model), clock=clock)
    heard = Interrupted()

    async def chat() -> Any:
        return await app.agent(cls, "room").chat("Hi", callback=heard)

    turn = asyncio.create_task(chat())
    await model.until_silent()
    await clock.advance(5.1)

    # It leaves while the turn goes on
    assert (await turn).status == "interrupted"
    assert heard.names == ["start", "interrupted"]
    assert heard.text == "Half "
    goes.set()
    await all_over(app, cls, "room")
    assert heard.names == ["start", "interrupted"]
    assert [m.text for m in await app.agent(cls, "room").get_messages()] == ["Hi", "Half whole."]


@pytest.mark.case(50)
async def test_a_callback_that_does_not_gets_the_rest(open_app: OpenApp) -> None:
    clock, model = ManualClock(), ScriptedModel(says("Half ").then_hangs(), says("whole."))
    app = await open_app(cls := stalling(model), clock=clock)
    heard = Heard()

    async def chat() -> Any:
        return await app.agent(cls, "room").chat("Hi", callback=heard)

    turn = asyncio.create_task(chat())
    await model.until_silent()
    await clock.advance(5.1)
    assert (await turn).text == "Half whole."
    assert (heard.names, heard.text) == (["start", "done"], "Half whole.")


@pytest.mark.case(51)
@pytest.mark.parametrize(
    ("play", "names"), [(says("Fine."), ["start", "done"]), (fails("no more"), ["start", "error"])]
)
async def test_no_interruption_is_reported_when_a_turn_ends(
    open_app: OpenApp, play: Any, names: list[str]
) -> None:
    clock = ManualClock()
    app = await open_app(cls := stalling(ScriptedModel(play)), clock=clock)
    heard = Interrupted()
    await app.agent(cls, "room").chat("Hi", callback=heard)
    assert heard.names == names


@pytest.mark.case(56)
async def test_a_stall_before_the_first_word_asks_again(open_app: OpenApp, tmp_path: Path) -> None:
    clock, model = ManualClock(), ScriptedModel(hangs(), says("Hello."))
    app = await open_app(cls := stalling(model), clock=clock)
    events = record_events(app, "chat:recovery:detected")
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))
    await model.until_silent()
    await clock.advance(5.1)
    assert (await turn).text == "Hello."
    assert Database(tmp_path).texts() == ["Hi", "Hello."]
    assert [event.payload["recoveryKind"] for event in events] == ["retry"]
    # It is asked the same again: there is nothing to go on from
    assert prompt(model.requests[0]) == prompt(model.requests[1]) == [("user", "Hi")]


@pytest.mark.case(57)
async def test_a_submission_that_stalls_is_running_until_it_is_done(open_app: OpenApp) -> None:
    clock, goes = ManualClock(), asyncio.Event()
    model = ScriptedModel(says("Half ").then_hangs(), says("whole").waits(goes).says("."))
    told: list[str] = []
    app = await open_app(
        cls := stalling(model, on_submission_status=lambda self, s: told.append(s.status)), clock=clock
    )
    agent = app.agent(cls, "room")
    await agent.submit_messages("Hi", submission_id="job")
    await model.until_silent()
    await clock.advance(5.1)
    await model.until_silent()
    assert (await agent.inspect_submission("job")).status == "running"
    goes.set()
    await all_over(app, cls, "room")
    submission = await agent.inspect_submission("job")
    assert (submission.status, submission.request_id, submission.error) == ("completed", "job", None)
    assert (told[0], told[-1], told.count("completed")) == ("pending", "completed", 1)
    assert set(told) == {"pending", "running", "completed"}


@pytest.mark.case(54)
async def test_a_turn_that_stalls_again_and_again_is_given_up_where_everybody_sees_it(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a model that never says another word, and three attempts
    clock, model = ManualClock(), ScriptedModel(says("Half ").then_hangs(), *[hangs()] * 3)
    gone: list[Exhausted] = []
    recovery = ChatRecovery(max_attempts=3, no_progress_timeout=3600, on_exhausted=gone.append)
    app = await open_app(
        cls := assistant(model, chat_stream_stall_timeout=40.0, chat_recovery=recovery), clock=clock
    )
    events = record_events(app, "chat:recovery:attempt", "chat:recovery:exhausted")
    witness = Witness(await home_of(app, cls, "room"))
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))

    # When each of them stalls
    for _ in range(4):
        await model.until_silent()
        await clock.advance(40.1)
    result = await turn

    # Then the turn ends with the terminal message, once; what it said stays
    assert (result.status, result.error, result.text) == ("error", TERMINAL_MESSAGE, "Half ")
    assert [s.error for s in witness.shown if isinstance(s, TurnEnded)] == [TERMINAL_MESSAGE]
    assert Database(tmp_path).texts() == ["Hi", "Half "]
    assert [(told.reason, told.attempt, told.partial_text) for told in gone] == [
        ("max_attempts_exceeded", 4, "Half ")
    ]
    assert [event.payload["attempt"] for event in events] == [1, 2, 3, 4, 4]
    # and the raw text of the stall is nowhere
    assert "stalled" not in repr([row["error"] for row in Database(tmp_path).turns()])
    assert clock.waiting == 0


@pytest.mark.case(52)
@pytest.mark.agent_case(302)
async def test_an_answer_that_came_before_a_stall_is_followed_up_once_the_turn_is_over(
    open_app: OpenApp,
) -> None:
    # Given a call for the browser that was answered while the turn still streamed
    clock = ManualClock()
    model = ScriptedModel(
        calls("pick", id="c1").says("and ").then_hangs(), says("You picked a.txt."), says("too much")
    )
    app = await open_app(
        cls := stalling(model, get_tools=lambda self: [client_tool("pick", "")]), clock=clock
    )
    home = await home_of(app, cls, "room")
    await app.agent(cls, "room").submit_messages("Pick")
    await model.until_silent()
    agent = await live(app.agent(cls, "room"))
    assert await agent.apply_tool_result("c1", "a.txt")
    home.chat.continuations.answered(auto_continue=True, owner=None)
    await clock.advance(1.0)
    assert model.asked == 1

    # When it stalls
    await clock.advance(5.1)
    await all_over(app, cls, "room")
    await agent.wait_until_stable()

    # Then the turn is over as it would have been, and one continuation answers
    assert [turn["trigger"] for turn in await turns(home)] == ["submission", "auto-continuation"]
    assert model.asked == 2
    assert [m.text for m in agent.messages] == ["Pick", "and ", "You picked a.txt."]


async def turns(home: Any) -> list[dict[str, Any]]:
    rows = await home.store.fetch("SELECT trigger, status FROM turns ORDER BY seq")
    return [{"trigger": row[0], "status": row[1]} for row in rows]
