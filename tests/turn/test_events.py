"""What observers hear of turns: one start and one finish each, whichever way it went."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think
from everthink.chat import AbortController
from everthink.door.chat_request import ChatRequest
from everthink.hooks import TurnContext
from everthink.observe.events import Event
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.turns import Witness, accept_request, all_over, follow, home_of, record_events

pytestmark = pytest.mark.anyio

TURN = ("chat:turn:start", "chat:turn:finish")


def pairs(events: list[Event]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The payloads of starts and finishes, which must alternate."""
    assert [event.type for event in events] == [*TURN] * (len(events) // 2)
    return [(events[i].payload, events[i + 1].payload) for i in range(0, len(events), 2)]


@pytest.mark.case(108, 112)
async def test_a_turn_emits_one_start_and_one_finish_with_the_same_labels(open_app: OpenApp) -> None:
    # Given a model that takes a second and a half
    clock, gate = ManualClock(), asyncio.Event()
    model = ScriptedModel(says("Hello").waits(gate))
    app = await open_app(cls := assistant(model), clock=clock)
    events = record_events(app, *TURN)

    # When a turn runs
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi", channel="email"))
    await model.until_silent()
    assert [event.type for event in events] == ["chat:turn:start"]
    await clock.advance(1.5)
    gate.set()
    result = await turn

    # Then it is told with exactly these keys
    ((start, finish),) = pairs(events)
    labels = {
        "requestId": result.request_id,
        "trigger": "programmatic",
        "admission": "queue",
        "generation": 0,
    }
    assert start == labels
    assert finish == {**labels, "status": "completed", "durationMs": 1500}
    assert [(e.agent, e.name, e.channel) for e in events] == [("Assistant", "room", "agents:chat")] * 2


@pytest.mark.case(109)
async def test_events_of_a_continuation_say_so(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"), says("two"))))
    await app.agent(cls).save_messages("Hi")
    events = record_events(app, *TURN)
    await app.agent(cls).continue_last_turn()
    ((start, finish),) = pairs(events)
    assert (start["continuation"], finish["continuation"]) == (True, True)


@pytest.mark.case(110)
async def test_every_door_has_its_trigger(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(*(says(str(i)) for i in range(6)))))
    events, agent = record_events(app, *TURN), app.agent(cls)

    await agent.chat("Hi")
    await agent.save_messages("Hi")
    await agent.run_turn("Hi", mode="stream", callback=lambda body: None)
    await agent.regenerate()
    await agent.submit_messages("Hi")
    await all_over(app, cls)
    messages = await agent.get_messages()
    admitted: Any = await accept_request(await home_of(app, cls), ChatRequest("r-1", messages))
    await admitted.result()

    starts = [start for start, _ in pairs(events)]
    assert [start["trigger"] for start in starts] == [
        "rpc",
        "programmatic",
        "rpc",
        "programmatic",
        "submission",
        "ws-chat",
    ]
    assert starts[-1]["requestId"] == "r-1"
    assert all("continuation" not in start for start in starts)


@pytest.mark.case(111)
async def test_turns_one_after_another_give_ordered_pairs_with_their_own_ids(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(*(says(str(i)) for i in range(4)))))
    events = record_events(app, *TURN)
    results = await asyncio.gather(*(app.agent(cls).save_messages(str(i)) for i in range(4)))
    told = pairs(events)
    assert [(s["requestId"], f["requestId"]) for s, f in told] == [(r.request_id,) * 2 for r in results]
    assert len({s["requestId"] for s, _ in told}) == 4


@pytest.mark.case(113)
async def test_a_submission_is_told_when_it_runs_not_when_it_is_accepted(open_app: OpenApp) -> None:
    # Given a turn that runs
    gate = asyncio.Event()
    model = ScriptedModel(says("one").waits(gate), says("two"))
    app = await open_app(cls := assistant(model))
    first = asyncio.create_task(app.agent(cls).save_messages("first"))
    await model.until_silent()
    events = record_events(app, *TURN)

    # When a submission is accepted behind it
    await app.agent(cls).submit_messages("second", submission_id="job")
    assert events == []
    gate.set()
    await first
    await all_over(app, cls)

    # Then its turn is told once it has its turn
    (finish_of_first, *rest) = events
    assert finish_of_first.type == "chat:turn:finish"
    ((start, finish),) = pairs(rest)
    assert (start["requestId"], start["trigger"], finish["status"]) == ("job", "submission", "completed")
    assert "submit" not in {event.payload["admission"] for event in events}


def failing(self: Think, turn: TurnContext) -> None:
    raise LookupError("no such plan")


@pytest.mark.case(108)
async def test_the_finish_of_a_turn_that_went_wrong_says_how(open_app: OpenApp) -> None:
    # A turn that breaks off, one that cannot be set up, one that is stopped
    model = ScriptedModel(says("Half").then_fails("overloaded"))
    app = await open_app(cls := assistant(model))
    events = record_events(app, *TURN)
    await app.agent(cls).save_messages("Hi")
    ((_, finish),) = pairs(events)
    assert (finish["status"], finish["error"], finish["errorType"]) == ("error", "overloaded", "ModelError")

    app = await open_app(cls := assistant(ScriptedModel(), before_turn=failing), store=":memory:")
    events = record_events(app, *TURN)
    with pytest.raises(LookupError):
        await app.agent(cls).save_messages("Hi")
    ((_, finish),) = pairs(events)
    assert (finish["status"], finish["error"], finish["errorType"]) == (
        "error",
        "no such plan",
        "LookupError",
    )

    app = await open_app(cls := assistant(ScriptedModel()), store=":memory:")
    events, stop = record_events(app, *TURN), AbortController()
    stop.abort()
    await app.agent(cls).save_messages("Hi", signal=stop.signal)
    ((_, finish),) = pairs(events)
    assert finish["status"] == "aborted"


@pytest.mark.case(108)
async def test_turns_that_never_begin_are_not_told(open_app: OpenApp) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("one").waits(gate))
    app = await open_app(cls := assistant(model))
    witness = Witness(await home_of(app, cls))
    first = asyncio.create_task(app.agent(cls).save_messages("first"))
    await model.until_silent()
    second = asyncio.create_task(app.agent(cls).save_messages("second"))
    await witness.until_accepted(2)
    events = record_events(app, *TURN)

    await app.agent(cls).reset_turn_state()
    await asyncio.gather(first, second)
    await app.agent(cls).run_turn("")

    assert [(e.type, e.payload["status"]) for e in events] == [("chat:turn:finish", "skipped")]


@pytest.mark.case(108)
async def test_a_subscriber_that_raises_breaks_no_turn(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))

    def broken(event: Event) -> None:
        raise RuntimeError("observers must not matter")

    app.events.subscribe(broken)
    assert (await app.agent(cls).save_messages("Hi")).text == "Hello"


async def test_what_people_say_is_in_no_payload(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("my secret answer"))))
    events = record_events(app)
    await app.agent(cls).save_messages("my secret question")
    await app.agent(cls).clear_messages()
    assert len(events) > 3
    assert "my secret" not in repr([event.payload for event in events])


async def test_cancelling_and_clearing_are_told(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Half").then_hangs())
    app = await open_app(cls := assistant(model))
    events = record_events(app, "message:cancel", "message:clear")
    stream = app.agent(cls).chat("Hi")
    turn = follow(stream)
    await model.until_silent()
    await app.agent(cls).cancel_chat(stream.request_id)
    await turn
    await app.agent(cls).clear_messages()
    assert [(e.type, e.channel, e.payload) for e in events] == [
        ("message:cancel", "agents:message", {"requestId": stream.request_id}),
        ("message:clear", "agents:message", {}),
    ]
