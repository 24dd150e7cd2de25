"""Stopping turns: by a signal, by id, all at once; running, queued, or over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, ToolContext, TurnConfig, tool
from everthink.chat import AbortController
from everthink.hooks import ChatResponse, TurnContext
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, calls, fails, hangs, opens, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import (
    Database,
    Heard,
    Witness,
    all_over,
    follow,
    home_of,
    prompt,
    record_events,
    roles,
)

pytestmark = pytest.mark.anyio


@pytest.mark.case(58)
async def test_aborting_in_mid_stream_keeps_the_partial_answer_and_tells_no_done(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a model in the middle of its answer
    model = ScriptedModel(says("Half an ").then_hangs(), says("Whole."))
    app = await open_app(cls := assistant(model))
    stop, heard = AbortController(), Heard()
    chat = follow(app.agent(cls).chat("Hi", callback=heard, signal=stop.signal))
    await model.until_silent()

    # When it is stopped
    stop.abort("enough")
    result = await chat

    # Then neither done nor error was told, the partial answer is stored as it was, the model let go
    assert heard.names == ["start"]
    assert heard.text == "Half an "
    assert (result.status, result.error, result.text) == ("aborted", "enough", "Half an ")
    _, partial = await app.agent(cls).get_messages()
    assert partial.parts[-1] == {"type": "text", "text": "Half an ", "state": "streaming"}
    assert [(t["status"], t["error"]) for t in Database(tmp_path).turns()] == [("aborted", "enough")]
    assert model.cut_off == 1

    # ... and the next chat works
    assert (await app.agent(cls).chat("Again")).text == "Whole."
    assert prompt(model.last_request) == [("user", "Hi"), ("assistant", "Half an "), ("user", "Again")]


@pytest.mark.case(58)
async def test_no_abort_chunk_is_journaled(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(cls := assistant(model))
    stop = AbortController()
    turn = asyncio.create_task(app.agent(cls).save_messages("Hi", signal=stop.signal))
    await model.until_silent()
    stop.abort()
    await turn
    assert [c.type for c in Database(tmp_path).chunks()] == [
        "start",
        "start-step",
        "text-start",
        "text-delta",
    ]


@pytest.mark.case(58)
async def test_aborting_before_the_first_word_stores_no_answer(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel(opens().then_hangs())
    app = await open_app(cls := assistant(model))
    stop = AbortController()
    turn = asyncio.create_task(app.agent(cls).save_messages("Hi", signal=stop.signal))
    await model.until_silent()
    stop.abort()
    result = await turn
    assert (result.status, result.message) == ("aborted", None)
    assert Database(tmp_path).texts() == ["Hi"]


@pytest.mark.case(59)
async def test_the_id_told_at_the_start_cancels_a_running_chat(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(cls := assistant(model))
    events, heard = record_events(app, "message:cancel"), Heard()
    chat = follow(app.agent(cls).chat("Hi", callback=heard))
    await model.until_silent()
    request_id = heard.told[0][1]

    assert await app.agent(cls).cancel_chat(request_id, "changed my mind") is True

    assert (await chat).status == "aborted"
    assert [event.payload for event in events] == [{"requestId": request_id}]
    assert Database(tmp_path).turns()[0]["error"] == "changed my mind"
    assert await app.agent(cls).cancel_chat(request_id) is False


@pytest.mark.case(59)
async def test_a_chat_can_be_cancelled_from_the_very_start(open_app: OpenApp) -> None:
    model = ScriptedModel()
    app = await open_app(cls := assistant(model))
    agent = await live(app.agent(cls))

    class Hasty(Heard):
        def on_start(self, request_id: str) -> None:
            super().on_start(request_id)
            agent.cancel_chat(request_id)

    heard = Hasty()
    result = await app.agent(cls).chat("Hi", callback=heard)

    assert (result.status, heard.names) == ("aborted", ["start"])
    assert model.requests == []
    assert roles(await app.agent(cls).get_messages()) == ["user"]


@pytest.mark.case(60)
async def test_a_signal_that_never_fires_changes_nothing(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))
    result = await app.agent(cls).save_messages("Hi", signal=AbortController().signal)
    assert (result.status, result.text) == ("completed", "Hello")


@pytest.mark.case(61)
async def test_a_signal_that_fired_already_gives_an_aborted_turn_and_asks_no_model(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model = ScriptedModel()
    app = await open_app(cls := assistant(model))
    stop = AbortController()
    stop.abort("too late")

    result = await app.agent(cls).save_messages("Hi", signal=stop.signal)

    assert (result.status, result.message) == ("aborted", None)
    assert model.requests == []
    assert Database(tmp_path).texts() == ["Hi"]
    assert Database(tmp_path).statuses() == ["aborted"]


@pytest.mark.case(62)
async def test_a_signal_that_fires_in_mid_stream_gives_an_aborted_turn(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(cls := assistant(model))
    stop = AbortController()
    turn = asyncio.create_task(app.agent(cls).save_messages("Hi", signal=stop.signal))
    await model.until_silent()
    stop.abort()
    result = await turn
    assert (result.status, result.text, result.error) == ("aborted", "Half", None)


@pytest.mark.case(63, 77)
async def test_aborting_after_the_end_does_nothing_and_leaves_no_listener(
    open_app: OpenApp, tmp_path: Path
) -> None:
    model = ScriptedModel(*(says(f"answer {i}") for i in range(5)))
    app = await open_app(cls := assistant(model))
    stop = AbortController()
    for i in range(5):
        assert (await app.agent(cls).save_messages(f"question {i}", signal=stop.signal)).status == "completed"
        assert stop.signal.listeners == 0

    stop.abort()

    assert Database(tmp_path).statuses() == ["completed"] * 5
    assert len(await app.agent(cls).get_messages()) == 10


@pytest.mark.case(64)
async def test_aborting_everything_stops_running_and_waiting_turns(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a turn that runs and two that wait
    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(cls := assistant(model))
    witness = Witness(await home_of(app, cls))
    turns = [asyncio.create_task(app.agent(cls).save_messages("first"))]
    await model.until_silent()
    turns += [asyncio.create_task(app.agent(cls).save_messages(text)) for text in ("second", "third")]
    await witness.until_accepted(3)

    # When all are stopped
    await app.agent(cls).abort_all_requests("closing time")

    # Then the first keeps what it said, and the others ask nothing
    results = await asyncio.gather(*turns)
    assert [(r.status, r.text) for r in results] == [("aborted", "Half"), ("aborted", ""), ("aborted", "")]
    assert model.asked == 1
    assert [(t["status"], t["error"]) for t in Database(tmp_path).turns()] == [
        ("aborted", "closing time")
    ] * 3


@pytest.mark.case(65)
async def test_aborted_turns_leave_no_controller_behind_and_the_next_one_works(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Half").then_hangs(), says("Whole."))
    app = await open_app(cls := assistant(model))
    home, stop = await home_of(app, cls), AbortController()
    running = asyncio.create_task(app.agent(cls).save_messages("Hi", signal=stop.signal))
    await model.until_silent()
    assert len(home.chat.host.aborts) == 1
    stop.abort()
    await running
    assert (len(home.chat.host.aborts), home.chat.door.queue.is_idle, home.chat.host.turns.answer) == (
        0,
        True,
        None,
    )
    await app.agent(cls).save_messages("Hi", signal=stop.signal)
    assert len(home.chat.host.aborts) == 0

    assert (await app.agent(cls).save_messages("Again")).text == "Whole."


@pytest.mark.case(66)
@pytest.mark.parametrize("when", ["before", "during"])
async def test_continue_last_turn_obeys_its_signal(open_app: OpenApp, when: str) -> None:
    model = ScriptedModel(says("one"), says("and two").then_hangs())
    app = await open_app(cls := assistant(model))
    await app.agent(cls).save_messages("Hi")
    stop = AbortController()
    if when == "before":
        stop.abort()
        result = await app.agent(cls).continue_last_turn(signal=stop.signal)
    else:
        turn = follow(app.agent(cls).continue_last_turn(signal=stop.signal))
        await model.until_silent()
        stop.abort()
        result = await turn
    assert (result.status, result.continuation) == ("aborted", True)
    assert [m.text for m in await app.agent(cls).get_messages()] == (
        ["Hi", "one"] if when == "before" else ["Hi", "one", "and two"]
    )


async def test_cancelling_a_queued_turn_ends_it_when_its_time_comes(
    open_app: OpenApp, tmp_path: Path
) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("one").waits(gate), says("three"))
    app = await open_app(cls := assistant(model))
    witness, heard = Witness(await home_of(app, cls)), Heard()
    first = asyncio.create_task(app.agent(cls).save_messages("first"))
    await model.until_silent()
    second = follow(app.agent(cls).chat("second", callback=heard))
    await witness.until_accepted(2)
    third = asyncio.create_task(app.agent(cls).save_messages("third"))

    assert await app.agent(cls).cancel_chat(heard.told[0][1]) is True
    assert Database(tmp_path).statuses()[1] == "accepted"
    gate.set()

    assert (await first).status == "completed"
    assert (await second).status == "aborted"
    assert (await third).text == "three"
    assert model.asked == 2
    said = await app.agent(cls).get_messages()
    assert [m.text for m in said] == ["first", "one", "second", "third", "three"]


@pytest.mark.case(141)
@pytest.mark.parametrize("when", ["before", "during"])
async def test_the_response_hook_hears_of_the_abort_and_on_chat_error_does_not(
    open_app: OpenApp, when: str
) -> None:
    told: list[Any] = []

    def on_chat_response(self: Think, response: ChatResponse) -> None:
        told.append((response.status, response.error, response.message.text))

    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(
        cls := assistant(
            model,
            on_chat_response=on_chat_response,
            on_chat_error=lambda self, error, ctx: told.append(error),
        )
    )
    stop = AbortController()
    if when == "before":
        stop.abort()
    turn = asyncio.create_task(app.agent(cls).save_messages("Hi", signal=stop.signal))
    if when == "during":
        await model.until_silent()
        stop.abort()
    await turn
    assert told == [("aborted", None, "Half" if when == "during" else "")]


# --- tools


def waiting_tool(began: asyncio.Event, let_go: asyncio.Event, log: list[str]) -> Any:
    @tool
    async def work(ctx: ToolContext) -> str:
        """Work for a long time."""
        began.set()
        try:
            await let_go.wait()
        except asyncio.CancelledError:
            log.append(f"cancelled, signal {ctx.signal.aborted}")
            raise
        return "done"

    return work


@pytest.mark.case(652)
async def test_a_running_tool_is_stopped_and_nobody_knows_how_far_it_came(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a tool that runs
    began, let_go, log = asyncio.Event(), asyncio.Event(), []
    work = waiting_tool(began, let_go, log)
    model = ScriptedModel(says("Let me work.").calls("work", id="call-1"), says("ok"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [work]))
    stop = AbortController()
    turn = asyncio.create_task(app.agent(cls).save_messages("Go", signal=stop.signal))
    await began.wait()

    # When the turn is stopped
    stop.abort()
    result = await turn

    # Then the tool was told, its call is kept as it was, and the ledger says that its end is unknown
    assert (result.status, result.text) == ("aborted", "Let me work.")
    await asyncio.sleep(0)
    assert log == ["cancelled, signal True"]
    (call,) = result.message.tool_parts  # type: ignore[union-attr]
    assert call["state"] == "input-available"
    assert Database(tmp_path).calls()["call-1"]["state"] == "unknown"

    # ... and the next prompt has a result for it
    await app.agent(cls).save_messages("And?")
    assert [role for role, _ in prompt(model.last_request)] == ["user", "assistant", "tool", "user"]


async def test_a_tool_that_ignores_the_abort_holds_nothing_up_and_its_result_is_lost(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a tool that does not let itself be stopped
    began, let_go, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Never give up."""
        began.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        finished.set()
        return "too late"

    model = ScriptedModel(calls("stubborn", id="call-1"), says("Next."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [stubborn]))
    stop = AbortController()
    turn = asyncio.create_task(app.agent(cls).save_messages("Go", signal=stop.signal))
    await began.wait()

    # When the turn is stopped, it ends at once, and the next one runs
    stop.abort()
    assert (await asyncio.wait_for(turn, timeout=30)).status == "aborted"
    assert (await app.agent(cls).save_messages("Next?")).text == "Next."

    # Then what the tool returns afterwards changes nothing
    stored = Database(tmp_path).messages()
    chunks = len(Database(tmp_path).chunks())
    let_go.set()
    await finished.wait()
    await all_over(app, cls)
    assert Database(tmp_path).messages() == stored
    assert len(Database(tmp_path).chunks()) == chunks
    assert Database(tmp_path).calls()["call-1"]["state"] == "unknown"


async def wait_for_something_cancelled() -> None:
    inner = asyncio.ensure_future(asyncio.Event().wait())
    inner.cancel()
    await inner


@pytest.mark.parametrize("who", ["tool", "hook"])
async def test_a_tool_or_hook_whose_own_work_is_cancelled_has_failed_but_the_turn_goes_on(
    open_app: OpenApp, who: str
) -> None:
    @tool
    async def fragile() -> str:
        """Wait for something that somebody else cancels."""
        await wait_for_something_cancelled()
        return "never"

    async def before_tool_call(self: Think, call: Any) -> None:
        if who == "hook":
            await wait_for_something_cancelled()

    model = ScriptedModel(calls("fragile"), says("It was cancelled."))
    app = await open_app(
        cls := assistant(model, get_tools=lambda self: [fragile], before_tool_call=before_tool_call)
    )
    result = await app.agent(cls).save_messages("Go")
    assert (result.status, result.text) == ("completed", "It was cancelled.")
    assert result.message.tool_parts[0]["state"] == "output-error"  # type: ignore[union-attr]


# --- waits that an abort ends


async def test_a_pause_before_another_try_ends_with_the_abort(open_app: OpenApp) -> None:
    clock, stop = ManualClock(), AbortController()
    model = ScriptedModel(fails("busy", kind="rate_limit"))
    app = await open_app(cls := assistant(model), clock=clock)
    turn = asyncio.create_task(app.agent(cls).save_messages("Hi", signal=stop.signal))
    await clock.until_waiting()
    stop.abort()
    assert (await turn).status == "aborted"
    assert (model.asked, clock.waiting) == (1, 0)


async def test_a_provider_that_never_opens_is_let_go(open_app: OpenApp) -> None:
    model, stop = ScriptedModel(hangs()), AbortController()
    app = await open_app(cls := assistant(model))
    turn = asyncio.create_task(app.agent(cls).save_messages("Hi", signal=stop.signal))
    await model.until_silent()
    stop.abort()
    assert (await turn).status == "aborted"
    await model.until_cut_off()


async def test_a_slow_set_up_is_stopped_too(open_app: OpenApp, tmp_path: Path) -> None:
    began, model, stop = asyncio.Event(), ScriptedModel(), AbortController()

    async def before_turn(self: Think, turn: TurnContext) -> TurnConfig | None:
        began.set()
        await asyncio.Event().wait()
        return None

    app = await open_app(cls := assistant(model, before_turn=before_turn))
    turn = asyncio.create_task(app.agent(cls).save_messages("Hi", signal=stop.signal))
    await began.wait()
    stop.abort()
    assert (await turn).status == "aborted"
    assert (model.requests, Database(tmp_path).statuses()) == ([], ["aborted"])
