"""Tabs that were told to wait: for a turn that has said nothing yet, or for a continuation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink.testing import ManualClock, ScriptedModel, calls, says
from tests.support.agents import live

from ..support.agents import assistant
from ..support.browser import CONTINUE, ONE_CALL, TOOLS, TWO_CALLS, Asked, outcome, quiet
from ..support.server import kinds, served
from ..support.turns import all_over, gated_app, home_of
from .conftest import Serve

pytestmark = pytest.mark.anyio

NONE = {"type": "cf_agent_stream_resume_none"}


class Slow:
    """An agent whose turns begin one after the other, each when it is let."""

    def __init__(self, *plays: Any, turns: int) -> None:
        self.begun = 0
        self.more, self.gates = asyncio.Event(), [asyncio.Event() for _ in range(turns)]
        slow = self

        async def before_turn(self: Any, turn: Any) -> None:
            gate = slow.gates[slow.begun]
            slow.begun += 1
            slow.more.set()
            await gate.wait()

        self.cls = assistant(ScriptedModel(*plays), before_turn=before_turn)


@pytest.mark.case(525)
async def test_a_tab_of_an_idle_agent_waits_for_nothing_and_reads_the_next_turn_live(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Hi.")))
    server = await serve(cls)
    idle, asker = await server.connect(cls, id="idle"), await server.connect(cls, id="asker")
    await idle.until_frame("mcp_servers")
    request = await asker.say("Hello")
    await asyncio.gather(idle.until_done(request), asker.until_done(request))
    assert idle.of("stream_pending", "stream_resuming", "stream_resume_none") == []
    assert idle.seqs(request) == asker.seqs(request)


@pytest.mark.case(526, 529)
async def test_who_waits_is_told_the_latest_request_and_released_by_the_last_one_only(serve: Serve) -> None:
    # Given two turns that have said nothing
    slow = Slow(turns=2)
    server = await serve(slow.cls)
    asker = await server.connect(slow.cls, id="asker")
    first = await asker.say("one")
    await slow.more.wait()
    second = await asker.say("two")
    await asker.settled()
    joiner = await server.connect(slow.cls, id="joiner")
    await joiner.probe("p")
    await joiner.until_frame("stream_pending", count=2)
    assert [f["id"] for f in joiner.of("stream_pending")] == [second, second]

    # When one of them is stopped, and one that nobody knows
    await asker.cancel("nobody's")
    await asker.cancel(first)
    await joiner.until_done(first)
    await joiner.settled()
    assert joiner.of("stream_resume_none") == []

    # Then only the end of the last one releases the tab
    await asker.cancel(second)
    assert await joiner.until_frame("stream_resume_none") == NONE
    await joiner.until_done(second)
    assert len(joiner.of("stream_resume_none")) == 1


@pytest.mark.case(314)
async def test_a_continuation_whose_owner_left_may_be_waited_for_by_another_tab(serve: Serve) -> None:
    left = asyncio.Event()
    asked = await Asked.make(serve, ONE_CALL, says("Anyway."), on_close=lambda self, *how: left.set())
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.two.until_frame("message_updated")
    await asked.two.probe("mine?")
    assert (await asked.two.until_frame("stream_resume_none"))["reason"] == "idle"
    await asked.one.drop()
    await left.wait()
    await asked.two.probe("and now?")
    pending = await asked.two.until_frame("stream_pending")
    assert pending["probeId"] == "and now?"
    await asked.quiet()
    assert (await asked.two.until_frame("stream_resuming"))["id"] == pending["id"]
    await asked.two.ack(pending["id"])
    await asked.two.until_done(pending["id"])
    assert asked.two.text == "Anyway."


@pytest.mark.case(315, 316)
async def test_everybody_who_waits_is_told_that_nothing_comes_once(serve: Serve) -> None:
    slow = Slow(says("Later."), turns=2)
    server = await serve(slow.cls)
    asker = await server.connect(slow.cls, id="asker")
    request = await asker.say("Well?")
    await slow.more.wait()
    tabs = [await server.connect(slow.cls, id=name) for name in ("a", "b", "gone")]
    for tab in tabs:
        await tab.until_frame("stream_pending")
    await tabs.pop().drop()

    await asker.cancel(request)
    for tab in tabs:
        assert await tab.until_frame("stream_resume_none") == NONE
    # and they are forgotten: the next turn is live for them, without an offer
    slow.gates[1].set()
    again = await asker.say("Again")
    for tab in tabs:
        await tab.until_done(again)
        assert kinds(tab).count("stream_resume_none") == 1
        assert tab.of("stream_resuming") == []
        assert tab.text == "Later."


# --- answers that cross


@pytest.mark.case(296)
async def test_a_slow_sibling_answered_after_the_stream_makes_one_continuation(serve: Serve) -> None:
    # Given one call answered while the message streams, and one that is not
    go = asyncio.Event()
    clock = ManualClock()
    model = ScriptedModel(calls("where", id="c1").calls("where", id="c2").waits(go), says("Both."))
    cls = assistant(model)
    server = await serve(cls, clock=clock)
    tab = await server.connect(cls, id="tab")
    request = await tab.say("Where?", **TOOLS)
    await tab.until(lambda: len(tab.seqs(request)) >= 4)
    await tab.answer("c1", 1, **CONTINUE)
    await tab.until_frame("message_updated")
    go.set()
    await tab.until_done(request)
    await quiet(clock)
    await tab.settled()
    assert model.asked == 1

    # When the other one comes
    await tab.answer("c2", 2, **CONTINUE)
    await tab.until_frame("message_updated", count=2)
    await quiet(clock)

    # Then the agent goes on once, with both, and nothing was repaired
    offer = await tab.until_frame("stream_resuming")
    await tab.ack(offer["id"])
    await tab.until_done(offer["id"])
    await all_over(server.app, cls, "room")
    assert model.asked == 2
    assert [outcome(tab, call)["output"] for call in ("c1", "c2")] == [1, 2]


@pytest.mark.case(307, 309)
async def test_an_answer_being_stored_when_the_wait_is_over_is_part_of_the_batch(
    tmp_path: Path,
) -> None:
    # Given two calls, one answered, and an answer to the other on its way into the database
    clock, model = ManualClock(), ScriptedModel(TWO_CALLS, says("Both."))
    cls = assistant(model)
    async with gated_app(tmp_path, cls, clock=clock) as (app, store), served(app) as server:
        tab = await server.connect(cls, id="tab")
        await tab.until_done(await tab.say("Where?", **TOOLS))
        await tab.answer("c1", 1, **CONTINUE)
        await tab.until_frame("message_updated")
        home = await home_of(app, cls, "room")
        store.hold()
        await tab.answer("c2", 2, **CONTINUE)
        await store.until_waiting()

        # When the first one has waited long enough
        await quiet(clock)
        assert home.chat.continuations.pending is not None
        store.release()

        # Then one continuation answers both, and the second one's wait is over too
        offer = await tab.until_frame("stream_resuming")
        await tab.ack(offer["id"])
        await tab.until_done(offer["id"])
        await clock.advance(1)
        await all_over(app, cls, "room")
        assert home.chat.continuations.pending is None
        assert model.asked == 2
        assert clock.waiting == 0


@pytest.mark.case(288, 289)
async def test_an_agent_that_waits_for_answers_may_sleep_and_one_that_goes_on_may_not(
    serve: Serve,
) -> None:
    asked = await Asked.make(serve, TWO_CALLS, says("Both."))
    home = await home_of(asked.server.app, asked.cls, "room")
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")
    assert not home.chat.continuations.is_at_rest
    await asked.quiet()
    assert home.chat.continuations.is_at_rest
    await asked.one.answer("c2", 2, **CONTINUE)
    await asked.one.until_frame("message_updated", count=2)
    # every call is answered, and still the agent is not at rest
    agent = await live(asked.server.app.agent(asked.cls, "room"))
    assert not agent.has_pending_interaction()
    assert not home.chat.continuations.is_at_rest
    stable = asyncio.ensure_future(agent.wait_until_stable(timeout=0.01))
    while asked.clock.waiting < 2:  # noqa: ASYNC110 - the clock tells of the first sleeper only
        await asyncio.sleep(0)
    await asked.clock.advance(0.01)
    assert await stable is False
    await asked.clock.advance(0.05)
    await asked.two.until_text("Both.")
    await all_over(asked.server.app, asked.cls, "room")
    assert await agent.wait_until_stable() is True
    assert home.chat.continuations.is_at_rest
