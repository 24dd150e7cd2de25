"""Tools that run in the browser, approvals, and going on by itself afterwards."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink import AgentError
from everthink.testing import ManualClock, ScriptedModel, calls, says

from ..support.agents import assistant
from ..support.browser import CONTINUE, ONE_CALL, TOOLS, TWO_CALLS, Asked, outcome, quiet
from ..support.server import kinds
from ..support.turns import Database, all_over
from .conftest import Serve

pytestmark = pytest.mark.anyio


@pytest.mark.case(254, 274, 277, 515, 532, 533, 534, 301)
async def test_a_result_is_shown_to_all_and_the_agent_goes_on(serve: Serve, tmp_path: Any) -> None:
    go = asyncio.Event()
    asked = await Asked.make(serve, ONE_CALL, says("You are in ").waits(go).says("Paris."))
    one, two = asked.one, asked.two
    one_before, two_before = len(one.frames), len(two.frames)

    # When the tab answers and asks for the stream in the same instant
    await one.answer("c1", {"city": "Paris"}, **CONTINUE)
    await one.probe("p")
    pending = await one.until_frame("stream_pending")
    await asked.quiet()
    offer = await one.until_frame("stream_resuming")
    await asked.model.until_silent()
    await one.ack(offer["id"])
    await one.until(lambda: any(f.get("replayComplete") for f in one.frames))
    go.set()
    done = await one.until_done(offer["id"])
    await two.until_done(offer["id"])

    # Then the part is settled everywhere, before anything streams
    updated = one.of("message_updated")[0]
    assert updated == two.of("message_updated")[0]
    part = updated["message"]["parts"][-1]
    assert (part["state"], part["output"], part["preliminary"]) == (
        "output-available",
        {"city": "Paris"},
        False,
    )
    # and the one that answered was told to wait, offered the stream, and got it from its start
    assert pending == {"type": "cf_agent_stream_pending", "id": offer["id"], "probeId": "p"}
    assert kinds(one, since=one_before)[:4] == [
        "message_updated",
        "stream_pending",
        "stream_resuming",
        "chunks",
    ]
    assert one.seqs(offer["id"]) == two.seqs(offer["id"]) == list(range(len(one.seqs(offer["id"]))))
    # and the other got it live, each frame marked as a continuation. Its window has added all that to the
    # message before, and is told the end first: until then it would keep that beside the stored answer
    await two.until(lambda: kinds(two)[-1] == "chat_messages")
    assert kinds(two, since=two_before) == ["message_updated", "chunks", "done", "chat_messages"]
    for tab in (one, two):
        assert all(f["continuation"] for f in tab.responses(offer["id"]))
        start = json.loads(tab.responses(offer["id"])[0]["body"])
        assert start == {"type": "start"}
    assert done["outcome"] == "completed"
    assert "messageIds" not in done
    # and its answer is a message of its own
    assert [m.text for m in one.messages] == ["Where am I?", "", "You are in Paris."]
    assert Database(tmp_path).texts() == ["Where am I?", "", "You are in Paris."]
    await one.probe("after")
    assert (await one.until_frame("stream_resume_none"))["reason"] == "idle"


@pytest.mark.case(278)
async def test_a_result_without_auto_continue_starts_nothing(serve: Serve) -> None:
    asked = await Asked.make(serve, ONE_CALL)
    await asked.one.answer("c1", "Paris")
    await asked.one.until_frame("message_updated")
    assert asked.clock.waiting == 0
    await asked.one.probe("p")
    assert (await asked.one.until_frame("stream_resume_none"))["reason"] == "idle"
    assert asked.model.asked == 1


async def test_a_result_for_an_unknown_or_settled_call_is_silent(serve: Serve) -> None:
    asked = await Asked.make(serve, ONE_CALL)
    await asked.one.answer("c1", "first")
    await asked.one.until_frame("message_updated")
    before = len(asked.one.frames)
    await asked.one.answer("c1", "second", **CONTINUE)
    await asked.one.answer("nope", 1, **CONTINUE)
    await asked.one.approve("nope")
    await asked.one.settled()
    assert kinds(asked.one, since=before) == ["stream_resume_none"]
    assert asked.clock.waiting == 0
    assert outcome(asked.one, "c1")["output"] == "first"


@pytest.mark.case(270, 273, 298, 304)
@pytest.mark.parametrize("order", [("c1", "c2"), ("c2", "c1")])
async def test_parallel_results_make_one_continuation(serve: Serve, order: tuple[str, str]) -> None:
    asked = await Asked.make(serve, TWO_CALLS, says("Both are in."))
    for call in order:
        await asked.one.answer(call, f"from {call}", **CONTINUE)
    await asked.one.until_frame("message_updated", count=2)
    await asked.quiet()
    offer = await asked.one.until_frame("stream_resuming")
    await asked.two.until_done(offer["id"])
    await all_over(asked.server.app, asked.cls, "room")
    assert asked.model.asked == 2
    assert asked.model.remaining == 0
    assert [outcome(asked.two, c)["output"] for c in ("c1", "c2")] == ["from c1", "from c2"]


@pytest.mark.case(302)
async def test_each_result_restarts_the_wait_under_the_same_id(serve: Serve) -> None:
    asked = await Asked.make(serve, TWO_CALLS, says("Both."))
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.probe("p1")
    first = await asked.one.until_frame("stream_pending")
    await asked.clock.advance(0.04)
    await asked.one.answer("c2", 2, **CONTINUE)
    await asked.one.probe("p2")
    second = await asked.one.until_frame("stream_pending", count=2)
    assert first["id"] == second["id"]
    await asked.clock.advance(0.04)
    await asked.one.settled()
    assert asked.model.asked == 1
    await asked.clock.advance(0.01)
    assert (await asked.one.until_frame("stream_resuming"))["id"] == first["id"]


@pytest.mark.case(285, 287, 288)
async def test_an_incomplete_batch_waits_without_a_timer_until_its_last_answer(serve: Serve) -> None:
    asked = await Asked.make(serve, TWO_CALLS, says("Now both."))
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.quiet()
    assert asked.clock.waiting == 0
    await asked.one.probe("p")
    assert (await asked.one.until_frame("stream_pending"))["probeId"] == "p"
    assert asked.model.asked == 1
    assert outcome(asked.one, "c2")["state"] == "input-available"

    await asked.one.answer("c2", 2, **CONTINUE)
    await asked.one.until_frame("message_updated", count=2)
    await asked.quiet()
    offer = await asked.one.until_frame("stream_resuming")
    await asked.two.until_done(offer["id"])
    assert asked.model.asked == 2
    shown = str(asked.model.last_request.messages)
    assert "interrupted" not in shown


@pytest.mark.case(290)
async def test_an_error_without_auto_continue_completes_the_batch(serve: Serve) -> None:
    asked = await Asked.make(serve, TWO_CALLS, says("One failed."))
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.quiet()
    await asked.one.answer("c2", state="output-error", errorText="no signal", autoContinue=False)
    await asked.one.until_frame("message_updated", count=2)
    await asked.quiet()
    offer = await asked.one.until_frame("stream_resuming")
    await asked.two.until_done(offer["id"])
    assert asked.two.text == "One failed."
    assert outcome(asked.two, "c2")["errorText"] == "no signal"


@pytest.mark.case(291)
async def test_an_error_alone_without_auto_continue_starts_nothing(serve: Serve) -> None:
    asked = await Asked.make(serve, ONE_CALL)
    await asked.one.answer("c1", state="output-error", autoContinue=False)
    await asked.one.until_frame("message_updated")
    assert outcome(asked.one, "c1")["errorText"] == "Tool execution denied by user"
    assert asked.clock.waiting == 0
    assert asked.model.asked == 1


@pytest.mark.case(292)
async def test_after_a_restart_the_next_result_of_a_batch_continues(serve: Serve) -> None:
    asked = await Asked.make(serve, TWO_CALLS, says("After all."))
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.server.app.evict(asked.cls, "room")

    again = await asked.server.connect(asked.cls, id="one")
    await again.answer("c2", 2, **CONTINUE)
    await again.until_frame("message_updated")
    await asked.quiet()
    offer = await again.until_frame("stream_resuming")
    await again.ack(offer["id"])
    await again.until_done(offer["id"])
    assert again.text == "After all."
    assert asked.model.asked == 2


@pytest.mark.case(299, 300)
async def test_it_goes_on_although_the_tab_that_answered_is_gone(serve: Serve) -> None:
    left = asyncio.Event()
    asked = await Asked.make(serve, ONE_CALL, says("Anyway."), on_close=lambda self, *how: left.set())
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.two.until_frame("message_updated")
    await asked.one.drop()
    await left.wait()
    await asked.quiet()
    await asked.two.until_text("Anyway.")
    assert asked.two.of("stream_resuming") == []


@pytest.mark.case(514)
async def test_another_tab_may_not_take_a_continuation_while_its_owner_is_there(serve: Serve) -> None:
    go, left = asyncio.Event(), asyncio.Event()
    asked = await Asked.make(
        serve, ONE_CALL, says("Mine ").waits(go).says("alone."), on_close=lambda self, *how: left.set()
    )
    one, two = asked.one, asked.two
    await one.answer("c1", 1, **CONTINUE)
    await one.until_frame("message_updated")
    # scheduled only: the other is told idle
    await two.probe("early")
    assert (await two.until_frame("stream_resume_none")) == {
        "type": "cf_agent_stream_resume_none",
        "reason": "idle",
        "probeId": "early",
    }
    await asked.quiet()
    await two.until_text("Mine ")
    await two.probe("late")
    none = await two.until_frame("stream_resume_none", count=2)
    assert none["reason"] == "continuation-owned"
    assert none["probeId"] == "late"
    # and stays in the live stream
    request = (await one.until_frame("stream_resuming"))["id"]
    # once the owner is gone it may
    await one.drop()
    await left.wait()
    await two.probe("gone")
    await two.until(lambda: any(f.get("probeId") == "gone" for f in two.frames))
    assert two.of("stream_resuming")[-1] == {
        "type": "cf_agent_stream_resuming",
        "id": request,
        "probeId": "gone",
    }
    await two.ack(request)
    go.set()
    await two.until_done(request)
    assert two.text == "Mine alone."


@pytest.mark.case(303, 310)
async def test_an_answer_in_the_middle_of_a_continuation_makes_another_one_after_it(serve: Serve) -> None:
    go = asyncio.Event()
    asked = await Asked.make(
        serve, ONE_CALL, calls("where", id="c2").waits(go).says("and"), says("Both rounds.")
    )
    one, two = asked.one, asked.two
    await one.answer("c1", 1, **CONTINUE)
    await one.until_frame("message_updated")
    await asked.quiet()
    await two.until(lambda: any(p["toolCallId"] == "c2" for m in two.messages for p in m.tool_parts))
    await asked.model.until_silent()
    await one.answer("c2", 2, **CONTINUE)
    await two.until_frame("message_updated", count=2)
    await asked.quiet()
    assert asked.model.asked == 2
    go.set()
    await two.until_text("Both rounds.")
    assert asked.model.asked == 3
    assert outcome(two, "c2")["output"] == 2


@pytest.mark.case(147)
async def test_the_response_hook_knows_a_continuation(serve: Serve) -> None:
    seen: list[tuple[str, bool]] = []
    asked = await Asked.make(
        serve,
        ONE_CALL,
        says("Done."),
        on_chat_response=lambda self, response: seen.append((response.message.text, response.continuation)),
    )
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.quiet()
    await asked.two.until(lambda: asked.two.text == "Done.")
    await all_over(asked.server.app, asked.cls, "room")
    assert seen == [("", False), ("Done.", True)]


async def test_a_clear_forgets_a_continuation_that_is_scheduled(serve: Serve) -> None:
    asked = await Asked.make(serve, ONE_CALL)
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.two.clear()
    await asked.one.until_frame("chat_clear")
    await asked.clock.advance(1)
    await asked.one.settled()
    assert asked.model.asked == 1


async def test_a_continuation_that_cannot_begin_is_one_error_frame(serve: Serve) -> None:
    def before_turn(self: Any, turn: Any) -> None:
        if turn.continuation:
            raise AgentError("not again")

    asked = await Asked.make(serve, ONE_CALL, before_turn=before_turn)
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.probe("p")
    pending = await asked.one.until_frame("stream_pending")
    await asked.quiet()
    done = await asked.one.until_done(pending["id"])
    assert done == {
        "type": "cf_agent_use_chat_response",
        "id": pending["id"],
        "body": "not again",
        "done": True,
        "error": True,
        "continuation": True,
    }
    assert await asked.one.until_frame("stream_resume_none") == {"type": "cf_agent_stream_resume_none"}


async def test_a_failed_continuation_is_replayed_as_one(serve: Serve) -> None:
    asked = await Asked.make(serve, ONE_CALL, says("Half").then_fails("Broke.", kind="fatal"))
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.quiet()
    request = (await asked.one.until_frame("stream_resuming"))["id"]
    await asked.two.until_done(request)

    late = await asked.server.connect(asked.cls)
    await late.ack(request)
    await late.until_done(request)
    assert [f["body"] for f in late.responses(request)][-1] == "Broke."
    assert all(f.get("continuation") for f in late.responses(request))


@pytest.mark.case(320)
async def test_the_browsers_tools_are_replaced_by_those_of_a_result(serve: Serve) -> None:
    asked = await Asked.make(serve, ONE_CALL, says("ok"))
    await asked.one.answer("c1", 1, clientTools=[{"name": "elsewhere"}], **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.quiet()
    await asked.two.until_text("ok")
    assert [t.name for t in asked.model.last_request.tools] == ["elsewhere"]


@pytest.mark.parametrize("tools", [[{}], [{"name": 5}], [{"name": ""}]])
async def test_tools_that_are_none_do_not_poison_the_agent(serve: Serve, tools: Any) -> None:
    asked = await Asked.make(serve, ONE_CALL, says("Fine."))
    await asked.one.answer("c1", 1, clientTools=tools)
    await asked.one.settled()
    await asked.one.until_done(await asked.one.say("And now?"))
    assert asked.one.text == "Fine."
    assert [t.name for t in asked.model.last_request.tools] == ["where"]


# --- in the middle of the stream


@pytest.mark.case(271, 272, 294, 295, 305)
async def test_a_batch_answered_in_mid_stream_makes_one_continuation_at_its_end(
    serve: Serve, tmp_path: Any
) -> None:
    go = asyncio.Event()
    clock, model = (
        ManualClock(),
        ScriptedModel(calls("where", id="c1").waits(go).calls("where", id="c2"), says("Both.")),
    )
    cls = assistant(model)
    server = await serve(cls, clock=clock)
    chat = await server.connect(cls, id="one")
    await chat.until_frame("mcp_servers")
    request = await chat.say("Twice", **TOOLS)
    await chat.until(
        lambda: any(p["state"] == "input-available" for m in chat.messages for p in m.tool_parts)
    )
    await chat.answer("c1", "early", **CONTINUE)
    await chat.until_frame("message_updated")
    await quiet(clock)
    assert model.asked == 1
    go.set()
    await chat.until_done(request)
    assert outcome(chat, "c1")["output"] == "early"
    assert model.asked == 1

    await chat.answer("c2", "late", **CONTINUE)
    await chat.until_frame("message_updated", count=2)
    await quiet(clock)
    offer = await chat.until_frame("stream_resuming")
    await chat.ack(offer["id"])
    await chat.until_done(offer["id"])
    assert chat.text == "Both."
    assert model.asked == 2
    stored = [p["output"] for m in Database(tmp_path).messages() for p in m["parts"] if "output" in p]
    assert stored == ["early", "late"]
