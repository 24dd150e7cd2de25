"""Joining a turn in the middle: offers, acks, replays, and what is remembered of failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think
from everthink.testing import ScriptedModel, says, waits

from ..support.agents import assistant
from ..support.server import Served, kinds
from ..support.turns import Witness, follow, home_of
from .conftest import Serve

pytestmark = pytest.mark.anyio


class Streaming:
    """A turn that has said `one two ` and goes on with `three.` when told."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.model = ScriptedModel(says("one ", "two ").waits(self.go).says("three."), says("next."))
        self.cls: type[Think] = assistant(self.model)

    async def begin(self, server: Served) -> Any:
        self.asker = await server.connect(self.cls, id="asker")
        self.request = await self.asker.say("Count")
        await self.asker.until_text("one two ")
        return self.asker


@pytest.mark.case(507, 520, 524)
async def test_a_tab_that_joins_gets_replay_and_live_without_gap_or_double(serve: Serve) -> None:
    turn = Streaming()
    server = await serve(turn.cls)
    asker = await turn.begin(server)

    joiner = await server.connect(turn.cls, id="joiner")
    await joiner.until_frame("mcp_servers")
    assert joiner.frames[0] == {"type": "cf_agent_stream_resuming", "id": turn.request}
    assert joiner.of("chat_messages") == []
    await joiner.ack(turn.request)
    await joiner.until(lambda: any(f.get("replayComplete") for f in joiner.frames))
    replayed = joiner.responses(turn.request)
    assert [f.get("seq") for f in replayed] == [*range(5), None]
    assert all(f["replay"] for f in replayed)
    assert replayed[-1] == {
        "type": "cf_agent_use_chat_response",
        "id": turn.request,
        "body": "",
        "done": False,
        "replay": True,
        "replayComplete": True,
    }
    assert joiner.text == "one two "

    turn.go.set()
    await asyncio.gather(asker.until_done(turn.request), joiner.until_done(turn.request))
    assert joiner.seqs(turn.request) == asker.seqs(turn.request) == list(range(9))
    bodies = [[f["body"] for f in tab.responses(turn.request) if "seq" in f] for tab in (asker, joiner)]
    assert bodies[0] == bodies[1]
    assert not any("replay" in f for f in joiner.responses(turn.request)[6:])
    assert joiner.messages == asker.messages


async def test_a_reload_while_chunks_pour_sees_each_chunk_once(serve: Serve) -> None:
    # Given a model that pours, and tabs that join at every stage of it
    words = [f"w{i} " for i in range(300)]

    async def breathe() -> None:
        await asyncio.sleep(0.001)  # the pace of the model

    play = says(words[0])
    for word in words[1:]:
        play = play.waits(breathe).says(word)
    cls = assistant(ScriptedModel(play))
    server = await serve(cls)
    asker = await server.connect(cls, id="asker")
    request = await asker.say("Pour")
    joiners = []
    for stage in range(10):
        await asker.until_text(f"w{stage * 25} ")
        joiners.append(await server.connect(cls, id=f"j{stage}", resumes=True))

    await asker.until_done(request)
    for joiner in joiners:
        await joiner.until(lambda joiner=joiner: joiner.text == "".join(words))
        await joiner.settled()
        if joiner.seqs(request):  # otherwise it came when all was over
            assert joiner.seqs(request) == list(range(len(joiner.seqs(request))))
            assert joiner.seqs(request) == asker.seqs(request)
    assert any(joiner.seqs(request) for joiner in joiners)


async def test_an_offered_tab_gets_no_live_chunks_but_learns_the_result(serve: Serve) -> None:
    turn = Streaming()
    server = await serve(turn.cls)
    await turn.begin(server)
    joiner = await server.connect(turn.cls)
    await joiner.until_frame("mcp_servers")

    turn.go.set()
    await joiner.until_done(turn.request)
    assert kinds(joiner) == ["stream_resuming", "identity", "mcp_servers", "chat_messages", "done"]
    assert joiner.text == "one two three."

    # and hears the next turn live
    request = await turn.asker.say("More")
    await joiner.until_done(request)
    assert joiner.seqs(request)


@pytest.mark.case(513)
async def test_every_probe_in_a_stream_is_answered_with_an_offer(serve: Serve) -> None:
    turn = Streaming()
    server = await serve(turn.cls)
    await turn.begin(server)
    joiner = await server.connect(turn.cls)
    for probe in ("p1", "p2"):
        await joiner.probe(probe)
    await joiner.until_frame("stream_resuming", count=3)
    offers = joiner.of("stream_resuming")
    assert [offer.get("probeId") for offer in offers] == [None, "p1", "p2"]
    assert {offer["id"] for offer in offers} == {turn.request}


@pytest.mark.case(521)
async def test_an_ack_for_another_turn_is_ignored_in_a_stream(serve: Serve) -> None:
    turn = Streaming()
    server = await serve(turn.cls)
    await turn.begin(server)
    joiner = await server.connect(turn.cls)
    await joiner.ack("something else")
    await joiner.settled()
    assert joiner.of("use_chat_response") == []


@pytest.mark.case(523)
async def test_an_ack_after_the_end_is_answered_with_done(serve: Serve) -> None:
    turn = Streaming()
    server = await serve(turn.cls)
    await turn.begin(server)
    joiner = await server.connect(turn.cls)
    await joiner.until_frame("stream_resuming")
    turn.go.set()
    await joiner.until_done(turn.request)
    before = len(joiner.frames)
    await joiner.ack(turn.request)
    await joiner.ack("never heard of it")
    await joiner.settled()
    late, unknown, _ = joiner.frames[before:]
    assert late["done"]
    assert late["replay"]
    assert late["messageIds"]
    assert unknown == {
        "type": "cf_agent_use_chat_response",
        "id": "never heard of it",
        "body": "",
        "done": True,
        "replay": True,
    }


@pytest.mark.case(510, 522)
async def test_a_tab_that_acks_after_the_end_gets_what_the_conversation_does_not_hold(serve: Serve) -> None:
    # Given a tab that was offered a stream which ends before it says yes, without a word to keep
    go = asyncio.Event()
    cls = assistant(ScriptedModel(waits(go)))
    server = await serve(cls)
    asker = await server.connect(cls, id="asker")
    request = await asker.say("Well?", message_id="u1")
    await asker.until(lambda: asker.seqs(request))
    joiner = await server.connect(cls, id="joiner")
    assert (await joiner.until_frame("stream_resuming"))["id"] == request
    go.set()
    live = await joiner.until_done(request)
    assert live["body"] == "No response was generated."
    before = len(joiner.frames)

    # When it says yes
    await joiner.ack(request)
    await joiner.until(lambda: len([f for f in joiner.responses(request) if f["done"]]) == 2)

    # Then the chunks are told from their start, and the end once more, and nothing else
    *chunks, done = joiner.frames[before:]
    assert [f["seq"] for f in chunks] == asker.seqs(request) == list(range(len(chunks)))
    assert [f["body"] for f in chunks] == [f["body"] for f in asker.responses(request) if "seq" in f]
    assert all(f["replay"] and not f["done"] for f in chunks)
    assert done == {
        "type": "cf_agent_use_chat_response",
        "id": request,
        "body": "",
        "done": True,
        "replay": True,
        "messageIds": ["u1"],
    }


async def test_a_late_ack_is_told_how_the_turn_ended_unless_it_ended_well(serve: Serve) -> None:
    turn = Streaming()
    server = await serve(turn.cls)
    asker = await turn.begin(server)
    joiner = await server.connect(turn.cls, id="joiner")
    await joiner.until_frame("stream_resuming")
    await asker.cancel(turn.request)
    await joiner.until_done(turn.request)
    before = len(joiner.frames)
    await joiner.ack(turn.request)
    await joiner.until(lambda: len(joiner.frames) > before)
    # what was said is in the conversation it has just got, so it is not told again
    [done] = joiner.frames[before:]
    assert done["outcome"] == "aborted"
    assert (done["done"], done["replay"], done["body"]) == (True, True, "")
    assert joiner.text == asker.text == "one two "


@pytest.mark.case(508, 517)
async def test_after_the_end_a_new_tab_gets_the_transcript_and_idle(serve: Serve) -> None:
    turn = Streaming()
    server = await serve(turn.cls)
    asker = await turn.begin(server)
    turn.go.set()
    await asker.until_done(turn.request)
    late = await server.connect(turn.cls)
    await late.probe("p")
    none = await late.until_frame("stream_resume_none")
    assert none == {"type": "cf_agent_stream_resume_none", "reason": "idle", "probeId": "p"}
    assert late.frames[0]["connect"] is True
    assert late.messages == asker.messages


async def test_the_sender_reconnects_under_its_old_id_and_goes_on_reading(serve: Serve) -> None:
    turn = Streaming()
    server = await serve(turn.cls)
    asker = await turn.begin(server)
    await asker.drop()

    again = await server.connect(turn.cls, id="asker", resumes=True)
    await again.until_text("one two ")
    turn.go.set()
    done = await again.until_done(turn.request)
    assert done["outcome"] == "completed"
    assert again.text == "one two three."
    assert again.seqs(turn.request) == list(range(9))
    assert turn.model.cut_off == 0


async def test_a_turn_begun_before_anybody_connected_can_be_joined(serve: Serve) -> None:
    turn = Streaming()
    server = await serve(turn.cls)
    witness = Witness(await home_of(server.app, turn.cls, "room"))
    running = follow(server.app.agent(turn.cls, "room").chat("Count"))
    await witness.until_text("one two ")

    joiner = await server.connect(turn.cls, resumes=True)
    await joiner.until_text("one two ")
    turn.go.set()
    result = await running
    await joiner.until_done(result.request_id)
    assert joiner.seqs(result.request_id) == list(range(9))
    assert joiner.text == "one two three."


# --- before the first chunk


class Thinking:
    """A turn that is accepted and says nothing until told."""

    def __init__(self) -> None:
        self.go, self.begun = asyncio.Event(), asyncio.Event()
        go, begun = self.go, self.begun

        async def before_turn(self: Any, turn: Any) -> None:
            begun.set()
            await go.wait()

        self.cls: type[Think] = assistant(ScriptedModel(says("At last.")), before_turn=before_turn)


@pytest.mark.case(516, 527)
async def test_a_tab_that_comes_before_the_first_chunk_is_told_to_wait_and_then_offered(serve: Serve) -> None:
    turn = Thinking()
    server = await serve(turn.cls)
    asker = await server.connect(turn.cls, id="asker")
    request = await asker.say("Well?")
    await turn.begun.wait()

    joiner = await server.connect(turn.cls, id="joiner")
    await joiner.until_frame("mcp_servers")
    assert kinds(joiner) == ["stream_pending", "chat_messages", "identity", "mcp_servers"]
    assert joiner.of("stream_pending") == [{"type": "cf_agent_stream_pending", "id": request}]
    assert joiner.of("chat_messages")[0]["connect"] is True
    await joiner.probe("p")
    pending = await joiner.until_frame("stream_pending", count=2)
    assert pending == {"type": "cf_agent_stream_pending", "id": request, "probeId": "p"}

    turn.go.set()
    offer = await joiner.until_frame("stream_resuming")
    assert offer == {"type": "cf_agent_stream_resuming", "id": request}
    await joiner.ack(request)
    await joiner.until_done(request)
    await asker.until_done(request)
    assert len(joiner.of("stream_resuming")) == 1  # asked twice, offered once
    assert joiner.text == "At last."


@pytest.mark.case(528)
async def test_a_waiting_tab_is_told_when_the_turn_ends_without_a_word(serve: Serve) -> None:
    turn = Thinking()
    server = await serve(turn.cls)
    asker = await server.connect(turn.cls, id="asker")
    request = await asker.say("Well?")
    await turn.begun.wait()
    joiner = await server.connect(turn.cls, id="joiner")
    await joiner.until_frame("mcp_servers")
    await asker.cancel(request)
    assert await joiner.until_frame("stream_resume_none") == {"type": "cf_agent_stream_resume_none"}
    assert (await joiner.until_done(request))["outcome"] == "aborted"


@pytest.mark.case(530)
async def test_a_tab_that_waits_between_two_queued_turns_survives_the_first(serve: Serve) -> None:
    go, begun = asyncio.Event(), asyncio.Event()
    model = ScriptedModel(waits(go).says("One."), says("Two."))
    asked: list[int] = []

    async def before_turn(self: Any, turn: Any) -> None:
        asked.append(1)
        if len(asked) == 1:
            begun.set()
            await go.wait()
            raise ValueError("the first one fails")

    cls = assistant(model, before_turn=before_turn)
    server = await serve(cls)
    asker = await server.connect(cls, id="asker")
    await asker.say("one")
    await begun.wait()
    second = await asker.say("two")
    await asker.settled()
    joiner = await server.connect(cls, id="joiner")
    await joiner.until_frame("stream_pending")
    go.set()
    assert (await joiner.until_frame("stream_resuming"))["id"] == second
    assert joiner.of("stream_resume_none") == []
    await joiner.ack(second)
    await joiner.until_done(second)
    assert joiner.text.endswith("One.")


async def test_a_clear_releases_those_who_wait(serve: Serve) -> None:
    turn = Thinking()
    server = await serve(turn.cls)
    asker = await server.connect(turn.cls, id="asker")
    await asker.say("Well?")
    await turn.begun.wait()
    joiner = await server.connect(turn.cls, id="joiner")
    await joiner.until_frame("stream_pending")
    await asker.clear()
    assert await joiner.until_frame("stream_resume_none") == {"type": "cf_agent_stream_resume_none"}


# --- failures, later


def failing() -> type[Think]:
    return assistant(ScriptedModel(says("Half an ").then_fails("It broke.", kind="fatal"), says("Better.")))


async def fetched(server: Served, cls: type[Think], request: str) -> list[dict[str, Any]]:
    """What a new tab gets of a failed turn through probe and ack."""
    tab = await server.connect(cls)
    await tab.until_frame("mcp_servers")
    assert not any(f.get("error") for f in tab.frames)
    await tab.probe("p")
    offer = await tab.until_frame("stream_resuming")
    assert offer == {"type": "cf_agent_stream_resuming", "id": request, "probeId": "p"}
    await tab.ack(request)
    await tab.until_done(request)
    return tab.responses(request)


@pytest.mark.case(511, 512, 518)
async def test_a_failed_turn_is_told_to_every_tab_that_asks_until_the_next_turn(serve: Serve) -> None:
    cls = failing()
    server = await serve(cls)
    asker = await server.connect(cls)
    request = await asker.say("Go", message_id="u1")
    await asker.until_done(request)

    for _ in range(2):
        *chunks, last = await fetched(server, cls, request)
        assert [f["seq"] for f in chunks] == asker.seqs(request)
        assert [f["body"] for f in chunks] == [f["body"] for f in asker.responses(request) if "seq" in f]
        assert all(f["replay"] for f in chunks)
        assert last == {
            "type": "cf_agent_use_chat_response",
            "id": request,
            "body": "It broke.",
            "done": True,
            "error": True,
            "messageIds": ["u1"],
        }
    other = await server.connect(cls)
    await other.ack("another id")
    assert (await other.until_done("another id"))["replay"]

    await asker.until_done(await asker.say("Again"))
    await other.probe("after")
    await other.until(lambda: any(f.get("probeId") == "after" for f in other.frames))
    assert other.frames[-1]["reason"] == "idle"


async def test_a_failed_turn_is_still_told_after_a_restart(serve: Serve) -> None:
    cls = failing()
    server = await serve(cls)
    asker = await server.connect(cls)
    request = await asker.say("Go", message_id="u1")
    await asker.until_done(request)
    chunks = [f["body"] for f in asker.responses(request) if "seq" in f]
    await server.leave()
    await server.stop()

    second = await serve(cls)
    frames = await fetched(second, cls, request)
    assert [f["body"] for f in frames] == [*chunks, "It broke."]
    assert frames[-1]["messageIds"] == ["u1"]


async def test_a_failed_turn_is_forgotten_by_a_clear(serve: Serve) -> None:
    cls = failing()
    server = await serve(cls)
    asker = await server.connect(cls)
    await asker.until_done(await asker.say("Go"))
    await asker.clear()
    await asker.probe("p")
    assert (await asker.until_frame("stream_resume_none"))["reason"] == "idle"


async def test_an_eviction_closes_the_tabs_so_that_they_come_back_to_the_new_agent(serve: Serve) -> None:
    cls = failing()
    server = await serve(cls)
    asker = await server.connect(cls)
    request = await asker.say("Go", message_id="u1")
    await asker.until_done(request)
    await server.app.evict(cls, "room")
    assert (await asker.until_closed())[0] == 1012
    frames = await fetched(server, cls, request)
    assert frames[-1]["body"] == "It broke."
    again = await server.connect(cls)
    await again.until_frame("mcp_servers")
    await again.until_done(await again.say("Again"))
    assert again.messages[-1].text == "Better."
