"""Recovery as chat windows see it, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, tool
from everthink.recovery import ChatRecovery, RecoveryDecision
from everthink.recovery.incident import TERMINAL_MESSAGE
from everthink.recovery.recover import DECLINED_TEXT, RECOVERING_TTL_MS
from everthink.testing import ManualClock, ScriptedModel, calls, hangs, says
from everthink.testing.client import Client
from tests.support.agents import assistant
from tests.support.cuts import Reports, kept
from tests.support.server import Served, kinds, open_app, served
from tests.support.turns import record_events

pytestmark = pytest.mark.anyio

HALF = says("Half ").then_hangs()
Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Serve]:
    """Serves agents from one SQLite file; call it again for the next process."""
    async with AsyncExitStack() as stack:

        async def serve_(*agents: type[Think], **options: Any) -> Served:
            return await stack.enter_async_context(served(open_app(tmp_path, *agents, **options)))

        yield serve_


async def ask(
    server: Served, cls: type[Think], model: ScriptedModel, *, said: str = "Half "
) -> tuple[Client, str]:
    """A tab that has asked, and its request, once the model is silent."""
    tab = await server.connect(cls, id="asker")
    request = await tab.say("Hi")
    await model.until_silent()
    await kept(server.app, cls, said)
    return tab, request


def announced(tab: Client) -> list[tuple[bool, str | None]]:
    return [(frame["recovering"], frame.get("id")) for frame in tab.of("chat_recovering")]


# --- a process dies


@pytest.mark.case(491)
async def test_a_tab_that_comes_back_gets_the_rest_of_the_same_stream(serve: Serve) -> None:
    # Given a tab that has seen half an answer when the server goes away
    go = asyncio.Event()
    model = ScriptedModel(HALF, says("who").waits(go).says("le."))
    cls = assistant(model)
    server = await serve(cls)
    before, request = await ask(server, cls, model)
    await before.until_text("Half ")
    assert announced(before) == []
    await server.stop()

    # When it comes back to the next process
    server = await serve(cls)
    await model.until_silent()
    after = await server.connect(cls, id="asker", resumes=True)
    await after.until_text("Half who")

    # Then it is offered the stream, and told that the turn is being recovered
    assert kinds(after)[:2] == ["stream_resuming", "chat_recovering"]
    assert after.frames[0]["id"] == request
    assert announced(after) == [(True, request)]

    # and gets the rest in the same stream and the same message
    go.set()
    await after.until_frame("chat_recovering", count=2)
    assert announced(after) == [(True, request), (False, request)]
    assert after.seqs(request) == list(range(len(after.seqs(request))))
    assert kinds(after)[-3:] == ["chat_messages", "done", "chat_recovering"]
    assert [m.text for m in after.messages] == ["Hi", "Half whole."]
    assert after.messages[-1].id == before.messages[-1].id
    # and who comes now is told nothing of it
    late = await server.connect(cls, id="late")
    await late.settled()
    assert announced(late) == []


async def test_a_turn_that_had_said_nothing_is_a_normal_stream_after_all(serve: Serve) -> None:
    go = asyncio.Event()
    model = ScriptedModel(hangs(), says("Whole").waits(go).says("."))
    started = asyncio.Event()

    async def before_turn(agent: Think, turn: Any) -> None:
        if model.asked:
            await started.wait()

    cls = assistant(model, before_turn=before_turn)
    server = await serve(cls)
    _, request = await ask(server, cls, model, said="")
    await server.stop()
    server = await serve(cls)
    tab = await server.connect(cls, resumes=True)
    await tab.settled()
    assert announced(tab) == [(True, request)]
    started.set()
    await tab.until_text("Whole")
    go.set()
    await tab.until_frame("chat_recovering", count=2)
    assert announced(tab) == [(True, request), (False, request)]
    assert [m.text for m in tab.messages] == ["Hi", "Whole."]
    assert (tab.responses(request)[-1]["done"], model.asked) == (True, 2)


@pytest.mark.case(491)
async def test_a_recovery_that_takes_very_long_is_not_announced_to_newcomers(serve: Serve) -> None:
    clock, model = ManualClock(), ScriptedModel(HALF, hangs())
    cls = assistant(model, model_timeout=0)
    server = await serve(cls, clock=clock)
    await ask(server, cls, model)
    await server.stop()
    server = await serve(cls, clock=clock)
    await model.until_silent()
    for seconds, told in ((RECOVERING_TTL_MS / 1000 - 1, True), (1, False)):
        await clock.advance(seconds)
        tab = await server.connect(cls, id=f"at {told}")
        await tab.settled()
        assert bool(announced(tab)) is told


async def test_a_second_turn_that_was_cut_off_is_announced_when_it_goes_on(serve: Serve) -> None:
    # Given two turns that were cut off, the first of them put off
    clock, go = ManualClock(), [asyncio.Event(), asyncio.Event()]
    model = ScriptedModel(
        HALF,
        says("Other ").then_hangs(),
        says("who").waits(go[0]).says("le."),
        says("th").waits(go[1]).says("ing."),
    )
    refuses = [True, False, False]

    def on_chat_recovery(agent: Think, ctx: Any) -> None:
        if refuses.pop(0):
            raise RuntimeError("not now")

    cls = assistant(model, on_chat_recovery=on_chat_recovery)
    server = await serve(cls, clock=clock)
    _, first = await ask(server, cls, model)
    await server.stop()
    server = await serve(cls, clock=clock)
    tab = await server.connect(cls, resumes=True)
    await tab.until_text("Half ")
    await clock.until_waiting()
    second = await tab.say("And?")
    await tab.until_text("Other ")
    await server.stop()

    # When they go on, one after the other
    server = await serve(cls, clock=clock)
    await model.until_silent()
    tab = await server.connect(cls, resumes=True)
    await tab.settled()
    go[0].set()
    await model.until_silent()
    go[1].set()
    await tab.until_frame("chat_recovering", count=4)

    # Then each of them is announced, and each of them cleared
    assert announced(tab) == [(True, first), (False, first), (True, second), (False, second)]
    assert {"Half whole.", "Other thing."} <= {m.text for m in tab.messages}


async def test_a_turn_that_others_overtook_is_replayed_whole(serve: Serve) -> None:
    # Given a turn that was cut off and put off, and another one that streams meanwhile
    clock, go = ManualClock(), asyncio.Event()
    model = ScriptedModel(HALF, says("Other."), says("who").waits(go).says("le."))
    refuses = [True, False]

    def on_chat_recovery(agent: Think, ctx: Any) -> None:
        if refuses.pop(0):
            raise RuntimeError("not now")

    cls = assistant(model, on_chat_recovery=on_chat_recovery)
    server = await serve(cls, clock=clock)
    _, first = await ask(server, cls, model)
    await server.stop()
    server = await serve(cls, clock=clock)
    tab = await server.connect(cls, resumes=True)
    await tab.until_text("Half ")
    await clock.until_waiting()
    await tab.until_done(await tab.say("And?"))
    early = await server.connect(cls, id="early", resumes=True)
    await early.until_text("Half ")

    # When it goes on, and somebody comes
    await clock.advance(30)
    await tab.until_text("who")
    late = await server.connect(cls, id="late", resumes=True)
    await late.until_text("Half who")
    go.set()
    await asyncio.gather(late.until_done(first), early.until_done(first))

    # Then they have all of it
    for reader in (early, late):
        assert reader.seqs(first) == list(range(len(reader.seqs(first))))
        assert all(frame["body"] for frame in reader.responses(first) if "seq" in frame)
        assert "Half whole." in [m.text for m in reader.messages]


# --- a stall


@pytest.mark.case(491)
async def test_a_stall_is_a_pause_for_those_who_watch(serve: Serve) -> None:
    clock = ManualClock()
    model = ScriptedModel(HALF, says("whole."))
    cls = assistant(model, chat_stream_stall_timeout=5.0)
    server = await serve(cls, clock=clock)
    tab, request = await ask(server, cls, model)
    await tab.until_text("Half ")
    await clock.advance(5.1)
    await tab.until_frame("chat_recovering", count=2)
    assert announced(tab) == [(True, request), (False, request)]
    assert kinds(tab)[-6:] == [
        "chunks",
        "chat_recovering",
        "chunks",
        "chat_messages",
        "done",
        "chat_recovering",
    ]
    assert [m.text for m in tab.messages] == ["Hi", "Half whole."]
    assert tab.seqs(request) == list(range(len(tab.seqs(request))))


# --- it is given up


def doomed(model: ScriptedModel, **recovery: Any) -> type[Think]:
    """An agent whose turns are given up when they stall a second time."""
    settings = ChatRecovery(no_progress_timeout=1.0, **recovery)
    return assistant(model, chat_stream_stall_timeout=5.0, chat_recovery=settings)


async def give_up(serve: Serve, model: ScriptedModel, cls: type[Think]) -> tuple[Served, Client, str]:
    clock = ManualClock()
    server = await serve(cls, clock=clock)
    tab, request = await ask(server, cls, model)
    await clock.advance(5.1)
    await model.until_silent()
    await clock.advance(5.1)
    await tab.until_done(request)
    return server, tab, request


def terminal(tab: Client, request: str) -> list[dict[str, Any]]:
    return [frame for frame in tab.responses(request) if frame.get("error")]


async def look(server: Served, cls: type[Think], id: str) -> Client:
    """A tab that comes later, and has taken what it was offered."""
    tab = await server.connect(cls, id=id, resumes=True)
    await tab.settled()
    await tab.settled()
    return tab


@pytest.mark.case(492)
async def test_a_turn_that_was_given_up_is_shown_to_those_who_come_later(serve: Serve) -> None:
    model = ScriptedModel(HALF, hangs())
    cls = doomed(model)
    server, tab, request = await give_up(serve, model, cls)
    assert [frame["body"] for frame in terminal(tab, request)] == [TERMINAL_MESSAGE]
    await tab.until_frame("chat_recovering", count=2)
    assert announced(tab) == [(True, request), (False, request)]
    assert [m.text for m in tab.messages] == ["Hi", "Half "]

    for place in ("same process", "next process"):
        late = await look(server, cls, place)
        (frame,) = terminal(late, request)
        assert (frame["body"], frame["done"]) == (TERMINAL_MESSAGE, True)
        assert announced(late) == []
        assert [m.text for m in late.messages] == ["Hi", "Half "]
        await server.stop()
        server = await serve(cls)


@pytest.mark.case(493)
async def test_an_error_before_the_first_word_is_shown_to_those_who_come_later(serve: Serve) -> None:
    # Given a turn that was cut off before it said anything, and fails when it is run again
    model = ScriptedModel(hangs())

    def before_turn(agent: Think, turn: Any) -> None:
        if model.asked:
            raise RuntimeError("no such luck")

    def on_chat_error(agent: Think, error: Exception, ctx: Any) -> str:
        return f"Sorry: {error}"

    cls = assistant(model, before_turn=before_turn, on_chat_error=on_chat_error)
    server = await serve(cls)
    _, request = await ask(server, cls, model, said="")
    await server.stop()
    server = await serve(cls)
    for name in ("one", "two"):
        tab = await server.connect(cls, id=name, resumes=True)
        await tab.until_done(request)
        assert [frame["body"] for frame in terminal(tab, request)] == ["Sorry: no such luck"]
    assert [m.text for m in tab.messages] == ["Hi"]


@pytest.mark.case(494)
async def test_clearing_drops_what_is_remembered_of_it(serve: Serve) -> None:
    model = ScriptedModel(HALF, hangs())
    cls = doomed(model)
    server, tab, request = await give_up(serve, model, cls)
    await tab.clear()
    await tab.settled()
    for place in ("same process", "next process"):
        late = await look(server, cls, place)
        assert (late.responses(request), late.of("stream_resuming"), late.messages) == ([], [], [])
        await server.stop()
        server = await serve(cls)


@pytest.mark.case(495)
async def test_accepting_a_new_request_drops_it_before_anything_streams(serve: Serve) -> None:
    # Given a turn that was given up
    model = ScriptedModel(HALF, hangs(), hangs())
    cls = doomed(model)
    server, tab, request = await give_up(serve, model, cls)

    # When another request is accepted, and has not said a word
    newer = await tab.say("Again")
    await model.until_silent()

    # Then those who come are told of that one
    late = await look(server, cls, "late")
    assert late.responses(request) == []
    assert newer in [frame["id"] for frame in late.of("stream_pending", "stream_resuming")]
    # and so are those who come to the next process
    await server.stop()
    server = await serve(cls := doomed(ScriptedModel(says("Fine."))))
    later = await server.connect(cls, id="later", resumes=True)
    await later.until(lambda: [m.text for m in later.messages][-1:] == ["Fine."])
    assert later.responses(request) == []


@pytest.mark.case(496)
async def test_a_hook_that_raises_does_not_keep_the_end_from_anybody(serve: Serve) -> None:
    def on_exhausted(told: Any) -> None:
        raise RuntimeError("the pager is broken")

    model = ScriptedModel(HALF, hangs())
    cls = doomed(model, on_exhausted=on_exhausted, terminal_message="Sorry.")
    clock = ManualClock()
    server = await serve(cls, clock=clock)
    reports, fibers = Reports(server.app), record_events(server.app, "fiber:*")
    tab, request = await ask(server, cls, model)
    await clock.advance(5.1)
    await model.until_silent()
    await clock.advance(5.1)
    await tab.until_done(request)
    assert [frame["body"] for frame in terminal(tab, request)] == ["Sorry."]
    assert reports.names[-1] == "exhausted"
    assert fibers == []


async def test_a_turn_that_is_not_continued_ends_with_words_that_say_so(serve: Serve) -> None:
    model = ScriptedModel(HALF)
    decides, arrived = asyncio.Event(), asyncio.Event()

    async def on_chat_recovery(agent: Think, ctx: Any) -> RecoveryDecision:
        arrived.set()
        await decides.wait()
        return RecoveryDecision(continue_=False)

    cls = assistant(model, on_chat_recovery=on_chat_recovery)
    server = await serve(cls)
    _, request = await ask(server, cls, model)
    await server.stop()
    server = await serve(cls)
    await arrived.wait()
    tab = await server.connect(cls, resumes=True)
    await tab.until_text("Half ")
    decides.set()
    await tab.until_frame("chat_recovering", count=2)
    assert announced(tab) == [(True, request), (False, request)]
    assert [frame["body"] for frame in terminal(tab, request)] == [DECLINED_TEXT]
    assert [m.text for m in tab.messages] == ["Hi", "Half "]


async def test_a_turn_that_starts_over_ends_for_readers_and_streams_anew(serve: Serve) -> None:
    model = ScriptedModel(HALF, says("Something ", "else."))
    decides, arrived = asyncio.Event(), asyncio.Event()

    async def on_chat_recovery(agent: Think, ctx: Any) -> RecoveryDecision:
        arrived.set()
        await decides.wait()
        return RecoveryDecision(persist=False)

    cls = assistant(model, on_chat_recovery=on_chat_recovery)
    server = await serve(cls)
    _, request = await ask(server, cls, model)
    await server.stop()
    server = await serve(cls)
    await arrived.wait()
    tab = await server.connect(cls, resumes=True)
    await tab.until_text("Half ")
    decides.set()
    await tab.until_frame("chat_recovering", count=2)
    ends = [frame.get("outcome") for frame in tab.responses(request) if frame["done"]]
    assert ends == ["recovering", "completed"]
    assert [m.text for m in tab.messages] == ["Hi", "Something else."]


async def test_a_turn_that_waits_for_a_person_shows_its_question_and_no_recovery(serve: Serve) -> None:
    # Given a call that needs approval, in a turn that is cut off
    @tool(needs_approval=True)
    def delete() -> str:
        """Delete everything."""
        return "deleted"

    model = ScriptedModel(calls("delete", id="c1").says("and ").then_hangs(), says("Gone."))
    cls = assistant(model, get_tools=lambda self: [delete])
    server = await serve(cls)
    await ask(server, cls, model, said="and ")
    await server.stop()

    # When somebody comes back
    server = await serve(cls)
    tab = await server.connect(cls, resumes=True)
    await tab.until(
        lambda: [p["state"] for m in tab.messages for p in m.tool_parts] == ["approval-requested"]
    )
    # Then it is told that nothing recovers any more, and the answer goes on from the approval
    await tab.until(lambda: [told for told, _ in announced(tab)][-1:] in ([], [False]))
    await tab.settled()
    late = await look(server, cls, "late")
    assert announced(late) == []
    await tab.approve("c1")
    await tab.until_text("Gone.")
