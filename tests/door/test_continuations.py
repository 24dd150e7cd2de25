"""When an agent goes on by itself after its calls are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.door.continuations import QUIET, is_incomplete
from everthink.errors import StoreFull
from everthink.journal.feed import ContinuationDropped, FeedEvent
from everthink.messages import Message
from everthink.runtime.actor import Actor
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, says

from ..conftest import OpenApp
from ..support.agents import assistant
from ..support.turns import all_over, gated_app, home_of

pytestmark = pytest.mark.anyio


def call(id: str, state: str, *, dynamic: bool = False) -> dict[str, Any]:
    kind = {"type": "dynamic-tool", "toolName": "pick"} if dynamic else {"type": "tool-pick"}
    settled = {"output": 1} if state == "output-available" else {}
    return {**kind, "toolCallId": id, "state": state, "input": {}, **settled}


def answer(*parts: dict[str, Any]) -> Message:
    return Message("a1", "assistant", [{"type": "step-start"}, *parts])


QUESTION = Message("u1", "user", [{"type": "text", "text": "Pick"}])
DONE, OPEN = call("c1", "output-available"), call("c2", "input-available")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (None, False),
        (QUESTION, False),
        (answer(DONE), False),
        pytest.param(answer(DONE, OPEN), True, marks=pytest.mark.case(285)),
        (answer(OPEN, DONE), True),
        pytest.param(
            answer(call("d", "output-available", dynamic=True), OPEN), True, marks=pytest.mark.case(286)
        ),
        pytest.param(answer(DONE, call("c2", "approval-requested")), True, marks=pytest.mark.case(297)),
        pytest.param(answer(DONE, call("c2", "approval-responded")), False, marks=pytest.mark.case(282)),
        (answer(DONE, call("c2", "output-error"), call("c3", "output-denied")), False),
        (answer(OPEN, {"type": "step-start"}, DONE), False),  # an earlier step does not count
    ],
)
async def test_a_batch_is_complete_when_no_call_of_its_last_step_is_open(
    message: Any, expected: bool
) -> None:
    assert is_incomplete(message) is expected


class Stage:
    """An agent whose last message has these calls, and the continuation it may make."""

    def __init__(self, app: App, cls: Any, home: Actor, clock: ManualClock, model: ScriptedModel) -> None:
        self.app, self.cls, self.home, self.clock, self.model = app, cls, home, clock, model
        self.refused: list[str] = []
        self.continuations = home.chat.continuations
        home.feed.join(self._see)

    def _see(self, event: FeedEvent) -> None:
        if isinstance(event, ContinuationDropped):
            self.refused.append("refused")

    async def settled(self) -> None:
        """Return once whatever was started in the background is over."""
        while self.home._tasks:
            await asyncio.wait(self.home._tasks)
        await all_over(self.app, self.cls)


async def stage(open_app: OpenApp, *parts: dict[str, Any]) -> Stage:
    clock, model = ManualClock(), ScriptedModel(says("On."), says("And on."))
    cls = assistant(model)
    app = await open_app(cls, clock=clock)
    await app.agent(cls).add_messages([QUESTION, answer(*parts)])
    return Stage(app, cls, await home_of(app, cls), clock, model)


@pytest.mark.case(301, 304)
async def test_an_answer_arms_one_continuation_that_runs_once(open_app: OpenApp) -> None:
    it = await stage(open_app, DONE)
    it.continuations.answered(auto_continue=True, owner="tab")
    armed = it.continuations.armed
    assert armed is not None
    assert armed.request_id
    assert armed.owner == "tab"
    assert it.clock.waiting == 1
    await it.clock.advance(QUIET)
    await it.settled()
    assert it.model.asked == 1
    assert it.continuations.pending is None
    assert it.clock.waiting == 0
    await it.clock.advance(10)
    it.continuations.check()
    await it.settled()
    assert it.model.asked == 1
    assert [m.text for m in it.home.chat.session.path] == ["Pick", "", "On."]


@pytest.mark.case(298, 302)
async def test_more_answers_keep_the_id_move_the_owner_and_restart_the_wait(open_app: OpenApp) -> None:
    it = await stage(open_app, DONE)
    it.continuations.answered(auto_continue=True, owner="one")
    first = it.continuations.armed
    assert first is not None
    await it.clock.advance(QUIET * 0.8)
    it.continuations.answered(auto_continue=True, owner="two")
    it.continuations.answered(auto_continue=True, owner=None)
    assert it.continuations.armed is first
    assert first.owner == "two"
    assert it.clock.waiting == 1
    await it.clock.advance(QUIET * 0.8)
    await it.settled()
    assert it.model.asked == 0
    await it.clock.advance(QUIET * 0.2)
    await it.settled()
    assert it.model.asked == 1


@pytest.mark.case(278, 291)
async def test_an_answer_that_does_not_want_to_go_on_arms_nothing(open_app: OpenApp) -> None:
    it = await stage(open_app, DONE)
    it.continuations.answered(auto_continue=False, owner="tab")
    assert it.continuations.armed is None
    assert it.clock.waiting == 0


@pytest.mark.case(288, 290, 306)
async def test_an_open_call_holds_it_without_a_timer_until_the_last_answer(open_app: OpenApp) -> None:
    it = await stage(open_app, DONE, OPEN)
    it.continuations.answered(auto_continue=True, owner="tab")
    await it.clock.advance(QUIET)
    await it.settled()
    assert it.model.asked == 0
    assert it.clock.waiting == 0
    assert it.continuations.armed is not None

    assert await it.app.agent(it.cls).apply_tool_result("c2", is_error=True)
    it.continuations.answered(auto_continue=False, owner="tab")
    await it.clock.advance(QUIET)
    await it.settled()
    assert it.model.asked == 1


@pytest.mark.case(305, 308)
async def test_a_running_turn_holds_it_until_it_is_over(open_app: OpenApp) -> None:
    it = await stage(open_app, DONE)
    place = it.home.chat.door.queue.reserve("other")
    it.continuations.answered(auto_continue=True, owner="tab")
    await it.clock.advance(QUIET)
    it.continuations.check()
    assert it.model.asked == 0
    assert it.continuations.armed is not None
    place.release()
    it.continuations.check()
    it.continuations.check()
    await it.settled()
    assert it.model.asked == 1


async def test_a_turn_that_begins_first_has_heard_the_answers_and_nothing_follows_it(
    open_app: OpenApp,
) -> None:
    it = await stage(open_app, DONE)
    it.continuations.answered(auto_continue=True, owner="tab")
    await it.home.agent.save_messages("And?")
    await it.clock.advance(QUIET)
    await it.settled()
    assert it.model.asked == 1
    assert (it.continuations.pending, it.refused) == (None, ["refused"])
    assert [m.text for m in it.home.chat.session.path] == ["Pick", "", "And?", "On."]


@pytest.mark.case(303, 310, 318)
async def test_an_answer_while_it_runs_arms_another_with_an_id_of_its_own(open_app: OpenApp) -> None:
    it = await stage(open_app, DONE)
    it.continuations.answered(auto_continue=True, owner="one")
    first = it.continuations.armed
    await it.clock.advance(QUIET)
    it.continuations.answered(auto_continue=True, owner="two")
    second = it.continuations.armed
    assert first is not None
    assert second is not None
    assert first.request_id != second.request_id
    await it.settled()
    await it.clock.advance(QUIET)
    await it.settled()
    assert it.model.asked == 2


@pytest.mark.case(311, 312, 313)
async def test_forgetting_it_stops_the_timer_and_the_next_one_is_new(open_app: OpenApp) -> None:
    it = await stage(open_app, DONE)
    it.continuations.answered(auto_continue=True, owner="one")
    first = it.continuations.armed
    it.continuations.forget()
    assert it.continuations.pending is None
    assert it.refused == ["refused"]
    assert it.clock.waiting == 0
    it.continuations.answered(auto_continue=True, owner="two")
    assert it.continuations.armed is not first
    await it.clock.advance(QUIET)
    await it.settled()
    assert it.model.asked == 1


async def test_one_that_is_refused_is_reported_and_gone(tmp_path: Path) -> None:
    clock, model = ManualClock(), ScriptedModel()
    cls = assistant(model)
    async with gated_app(tmp_path, cls, clock=clock) as (app, store):
        await app.agent(cls).add_messages([QUESTION, answer(DONE)])
        it = Stage(app, cls, await home_of(app, cls), clock, model)
        it.continuations.answered(auto_continue=True, owner="tab")
        store.refuse(lambda commit: StoreFull("no space"))
        await clock.advance(QUIET)
        await it.settled()
        assert it.refused == ["refused"]
        assert it.continuations.pending is None
        store.refuse(lambda commit: None)


async def test_an_agent_that_is_shutting_down_begins_none(open_app: OpenApp) -> None:
    it = await stage(open_app, DONE)
    it.continuations.answered(auto_continue=True, owner="tab")
    it.home.chat.door.is_closed = True
    await it.clock.advance(QUIET)
    await it.settled()
    assert it.continuations.armed is not None
    assert it.refused == []
    assert it.model.asked == 0


async def test_nobody_watches_turns_unless_a_continuation_is_expected(open_app: OpenApp) -> None:
    it = await stage(open_app, DONE)
    readers = len(it.home.feed)
    it.continuations.answered(auto_continue=True, owner="tab")
    assert len(it.home.feed) == readers + 1
    it.continuations.forget()
    assert len(it.home.feed) == readers


@pytest.mark.case(317, 533)
async def test_it_is_pending_until_its_turn_is_accepted(tmp_path: Path) -> None:
    clock, model = ManualClock(), ScriptedModel(says("On."))
    cls = assistant(model)
    async with gated_app(tmp_path, cls, clock=clock) as (app, store):
        await app.agent(cls).add_messages([QUESTION, answer(DONE)])
        it = Stage(app, cls, await home_of(app, cls), clock, model)
        it.continuations.answered(auto_continue=True, owner="tab")
        armed = it.continuations.armed
        store.hold()
        await clock.advance(QUIET)
        await store.until_waiting()
        assert it.continuations.armed is None
        assert it.continuations.pending is armed
        store.release()
        await it.settled()
        assert it.continuations.pending is None
        assert model.asked == 1
