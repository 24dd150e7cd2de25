"""Turns over a socket: what each tab is told, in which order."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink import AgentError, Message
from everthink.testing import ScriptedModel, fails, says
from everthink.testing.client import Client
from tests.support.agents import live

from ..support.agents import assistant
from ..support.server import kinds
from ..support.turns import Database, all_over
from .conftest import Serve

pytestmark = pytest.mark.anyio


def chunk_types(client: Client, request: str) -> list[str]:
    return [json.loads(f["body"])["type"] for f in client.responses(request) if "seq" in f]


GREETING = ["chat_messages", "identity", "mcp_servers"]


@pytest.mark.case(21, 506)
async def test_a_request_streams_numbered_chunks_then_the_transcript_then_done(
    serve: Serve, tmp_path: Any
) -> None:
    cls = assistant(ScriptedModel(says("Hello ", "there.")))
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.until_frame("mcp_servers")

    request = await chat.say("Hi", message_id="u-hi")
    done = await chat.until_done(request)

    assert kinds(chat) == [*GREETING, "chunks", "chat_messages", "done"]
    assert chat.frames[0] == {"type": "cf_agent_chat_messages", "messages": [], "connect": True}
    assert chunk_types(chat, request) == [
        "start", "start-step", "text-start", "text-delta", "text-delta", "text-end", "finish-step", "finish",
    ]  # fmt: skip
    assert chat.seqs(request) == list(range(8))
    start = json.loads(chat.responses(request)[0]["body"])
    stored = chat.of("chat_messages")[-1]
    assert "connect" not in stored
    assert [m["role"] for m in stored["messages"]] == ["user", "assistant"]
    assert stored["messages"][1]["id"] == start["messageId"]
    assert stored["messages"][0]["metadata"] == {"channel": "web"}
    assert done == {
        "type": "cf_agent_use_chat_response",
        "id": request,
        "body": "",
        "done": True,
        "outcome": "completed",
        "messageIds": ["u-hi"],
    }
    assert Database(tmp_path).texts() == ["Hi", "Hello there."]


async def test_the_other_tab_sees_the_question_then_the_same_stream(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Both ", "see this.")))
    server = await serve(cls)
    asker, watcher = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    await watcher.until_frame("mcp_servers")

    request = await asker.say("Who sees?")
    await asyncio.gather(asker.until_done(request), watcher.until_done(request))

    assert kinds(asker)[3:] == ["chunks", "chat_messages", "done"]
    assert kinds(watcher)[3:] == ["chat_messages", "chunks", "chat_messages", "done"]
    assert [m["role"] for m in watcher.of("chat_messages")[1]["messages"]] == ["user"]
    assert watcher.responses(request) == asker.responses(request)
    assert watcher.messages == asker.messages


async def test_sockets_that_share_an_id_are_both_served(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("To both.")))
    server = await serve(cls)
    one, two = await server.connect(cls, id="same"), await server.connect(cls, id="same")
    await two.until_frame("mcp_servers")

    request = await one.say("Hi")
    await asyncio.gather(one.until_done(request), two.until_done(request))
    assert one.text == two.text == "To both."
    assert kinds(two)[3:] == ["chunks", "chat_messages", "done"]  # left out together with the sender

    await one.close()
    await two.settled()
    assert (await live(server.app.agent(cls, "room"))).connections[0].id == "same"


@pytest.mark.case(146)
async def test_the_response_hook_fires_for_a_turn_from_a_socket(serve: Serve) -> None:
    seen: list[Any] = []
    told = asyncio.Event()

    def on_chat_response(self: Any, response: Any) -> None:
        seen.append((response.status, response.message.text, response.continuation))
        told.set()

    cls = assistant(ScriptedModel(says("Noted.")), on_chat_response=on_chat_response)
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.say("Hi")
    await told.wait()
    assert seen == [("completed", "Noted.", False)]


@pytest.mark.case(167)
async def test_the_body_of_a_request_reaches_before_turn(serve: Serve) -> None:
    bodies: list[Any] = []
    cls = assistant(ScriptedModel(says("ok")), before_turn=lambda self, turn: bodies.append(turn.body))
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Hi", mode="brief", depth=2))
    assert bodies == [{"mode": "brief", "depth": 2}]


async def test_a_tab_that_leaves_does_not_stop_the_turn(serve: Serve) -> None:
    go = asyncio.Event()
    model = ScriptedModel(says("First half, ").waits(go).says("second half."))
    cls = assistant(model)
    server = await serve(cls)
    leaver, stayer = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    request = await leaver.say("Tell me")
    await stayer.until_text("First half, ")

    await leaver.drop()
    await stayer.settled()
    go.set()

    assert (await stayer.until_done(request))["outcome"] == "completed"
    assert stayer.text == "First half, second half."
    assert model.cut_off == 0


# --- stopping


async def test_a_cancel_ends_the_turn_as_aborted_and_keeps_what_was_said(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Half").then_hangs()))
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    request = await one.say("Go")
    await asyncio.gather(one.until_text("Half"), two.until_text("Half"))

    await two.cancel(request)
    for tab in (one, two):
        assert (await tab.until_done(request))["outcome"] == "aborted"
        assert kinds(tab)[-3:] == ["chunks", "chat_messages", "done"]
        assert tab.messages[-1].parts[-1] == {"type": "text", "text": "Half", "state": "streaming"}


@pytest.mark.case(23)
async def test_a_cancel_for_nothing_is_silent(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Still here.")))
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.cancel("no such turn")
    await chat.settled()
    assert kinds(chat) == [*GREETING, "stream_resume_none"]
    request = await chat.say("There?")
    await chat.until_done(request)
    await chat.cancel(request)
    before = len(chat.frames)
    await chat.settled()
    assert kinds(chat, since=before) == ["stream_resume_none"]
    assert chat.text == "Still here."


async def test_clearing_an_idle_chat_tells_the_others_only(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Old."), says("New.")))
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    await one.until_done(await one.say("Before"))
    await two.until(lambda: len(two.messages) == 2)
    before = len(one.frames)

    await one.clear()
    assert await two.until_frame("chat_clear") == {"type": "cf_agent_chat_clear"}
    await one.settled()
    assert kinds(one, since=before) == ["stream_resume_none"]
    assert two.messages == []
    assert (await server.http("/agents/assistant/room/get-messages")).json == []

    await one.until_done(await one.say("After"))
    assert [m.text for m in one.messages] == ["After", "New."]


async def test_tabs_that_clear_at_once_hear_of_each_other_only(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    tabs = [await server.connect(cls, id=str(i)) for i in range(4)]
    await asyncio.gather(*(tab.settled() for tab in tabs))
    await asyncio.gather(*(tab.clear() for tab in tabs))
    for tab in tabs:
        await tab.until_frame("chat_clear", count=3)
        await tab.settled()
        assert len(tab.of("chat_clear")) == 3


async def test_clearing_in_a_stream_ends_it_without_a_snapshot(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Gone").then_hangs()))
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    request = await one.say("Go")
    await asyncio.gather(one.until_text("Gone"), two.until_text("Gone"))
    one_before, two_before = len(one.frames), len(two.frames)

    await one.clear()
    for tab in (one, two):
        assert (await tab.until_done(request))["outcome"] == "aborted"
    assert kinds(one, since=one_before) == ["done"]
    assert kinds(two, since=two_before) == ["chat_clear", "done"]
    assert one.messages == two.messages == []


@pytest.mark.case(7)
async def test_clearing_from_code_tells_every_tab(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Old.")))
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    await one.until_done(await one.say("Hi"))
    await server.app.agent(cls, "room").clear_messages()
    for tab in (one, two):
        await tab.until_frame("chat_clear")
        assert tab.messages == []


@pytest.mark.case(321)
async def test_a_clear_forgets_the_browsers_tools_and_the_body(serve: Serve) -> None:
    model = ScriptedModel(says("one"), says("two"))
    bodies: list[Any] = []
    cls = assistant(model, before_turn=lambda self, turn: bodies.append(turn.body))
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("a", clientTools=[{"name": "where"}], mode="brief"))
    await chat.clear()
    await chat.settled()
    await chat.until_done(await chat.say("b"))
    assert [[t.name for t in r.tools] for r in model.requests] == [["where"], []]
    assert bodies == [{"mode": "brief"}, None]


# --- again


@pytest.mark.case(148)
async def test_regenerating_stores_a_sibling_and_shows_it_to_both_tabs(serve: Serve, tmp_path: Any) -> None:
    fired: list[str] = []
    cls = assistant(
        ScriptedModel(says("First try."), says("Second try.")),
        on_chat_response=lambda self, response: fired.append(response.message.text),
    )
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    await one.until_done(await one.say("Try", message_id="u1"))
    before = len(two.frames)

    question = one.messages[0]
    request = await one.request([question], trigger="regenerate-message")
    done = await one.until_done(request)
    await two.until_done(request)

    assert done["messageIds"] == ["u1"]
    assert [m.text for m in one.messages] == [m.text for m in two.messages] == ["Try", "Second try."]
    old = next(f for f in two.frames[before:] if f["type"] == "cf_agent_chat_messages")
    assert old["messages"][-1]["parts"][-1]["text"] == "First try."
    assert Database(tmp_path).texts() == ["Try", "First try.", "Second try."]
    assert fired == ["First try.", "Second try."]


# --- failures


async def test_an_error_in_the_stream_comes_before_the_snapshot_and_done(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Half an ").then_fails("It broke.", kind="fatal")))
    server = await serve(cls)
    chat = await server.connect(cls)
    request = await chat.say("Go", message_id="u1")
    done = await chat.until_done(request)
    assert kinds(chat)[3:] == ["chunks", "error", "chat_messages", "done"]
    error = next(f for f in chat.responses(request) if f.get("error"))
    assert (error["body"], error["done"], error["messageIds"]) == ("It broke.", False, ["u1"])
    assert done["outcome"] == "error"
    assert chat.text == "Half an "


async def test_a_model_that_refuses_gives_an_error_without_a_snapshot(serve: Serve) -> None:
    cls = assistant(ScriptedModel(fails("Refused.")))
    server = await serve(cls)
    chat = await server.connect(cls)
    request = await chat.say("Go")
    assert (await chat.until_done(request))["outcome"] == "error"
    assert kinds(chat)[3:] == ["chunks", "error", "done"]


@pytest.mark.case(39)
async def test_a_failing_set_up_is_one_final_frame_kept_for_whoever_comes_later(serve: Serve) -> None:
    def before_turn(self: Any, turn: Any) -> None:
        raise AgentError("not today")

    cls = assistant(ScriptedModel(), before_turn=before_turn)
    server = await serve(cls)
    chat = await server.connect(cls)
    request = await chat.say("Go", message_id="u1")
    expected = {
        "type": "cf_agent_use_chat_response",
        "id": request,
        "body": "not today",
        "done": True,
        "error": True,
        "messageIds": ["u1"],
    }
    assert await chat.until_done(request) == expected
    assert kinds(chat)[3:] == ["done"]

    later = await server.connect(cls)
    await later.probe("p")
    assert (await later.until_frame("stream_resuming"))["id"] == request
    await later.ack(request)
    assert await later.until_done(request) == expected


@pytest.mark.case(42)
async def test_a_failing_set_up_is_nothing_for_the_handler_of_work_in_the_background(serve: Serve) -> None:
    others: list[Any] = []

    def before_turn(self: Any, turn: Any) -> None:
        raise ValueError("not today")

    cls = assistant(
        ScriptedModel(), before_turn=before_turn, on_error=lambda self, error: others.append(error)
    )
    server = await serve(cls)
    chat = await server.connect(cls)
    assert (await chat.until_done(await chat.say("Go")))["error"]
    await all_over(server.app, cls, "room")
    assert others == []
    assert chat.closed is None


@pytest.mark.case(43)
async def test_the_error_hook_decides_what_people_read_and_runs_once(serve: Serve) -> None:
    asked: list[tuple[str, str]] = []

    def on_chat_error(self: Any, error: Any, ctx: Any) -> str:
        asked.append((str(error), ctx.stage))
        return "Sorry."

    cls = assistant(ScriptedModel(fails("secret detail")), on_chat_error=on_chat_error)
    server = await serve(cls)
    chat = await server.connect(cls)
    request = await chat.say("Go")
    await chat.until_done(request)
    assert [f["body"] for f in chat.responses(request) if f.get("error")] == ["Sorry."]
    assert asked == [("secret detail", "stream")]


async def test_half_an_emoji_is_a_message_like_any_other(serve: Serve, tmp_path: Any) -> None:
    # A browser that cuts a text in the middle of an emoji sends the first half of it
    cls = assistant(ScriptedModel(says("Half?")))
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("I am \ud83d", mode="\ude00"))
    assert chat.text == "Half?"
    assert Database(tmp_path).texts() == ["I am \ufffd", "Half?"]


@pytest.mark.case(44)
@pytest.mark.parametrize(
    "body",
    [
        "{not json",
        json.dumps({"messages": [{"role": "user"}]}),
        json.dumps({"messages": [7]}),
        '{"messages":' + "[" * 100_000,
    ],
    ids=["no json", "no parts", "no message", "too deep"],
)
async def test_a_request_that_cannot_be_read_is_answered_with_an_error(serve: Serve, body: str) -> None:
    stages: list[tuple[str, bool]] = []
    cls = assistant(
        ScriptedModel(says("fine")),
        on_chat_error=lambda self, error, ctx: stages.append((ctx.stage, ctx.messages_persisted)),
    )
    server = await serve(cls)
    chat, other = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    frame = {"type": "cf_agent_use_chat_request", "id": "bad", "init": {"method": "POST", "body": body}}
    await chat.send(frame)
    done = await chat.until_done("bad")
    assert done["error"]
    assert done["body"]
    assert stages == [("parse", False)]
    await chat.until_done(await chat.say("Hi"))
    assert chat.text == "fine"
    assert other.responses("bad") == []


@pytest.mark.parametrize(
    "init",
    [
        {"method": "GET", "body": '{"messages":[]}'},
        {"method": "POST"},
        {"method": "POST", "body": {"messages": []}},
        {"method": "POST", "body": "[]"},
        {"method": "POST", "body": '{"messages":{}}'},
    ],
)
async def test_what_is_not_a_request_is_ignored_in_silence(serve: Serve, init: Any) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.send({"type": "cf_agent_use_chat_request", "id": "r", "init": init})
    await chat.settled()
    assert kinds(chat) == [*GREETING, "stream_resume_none"]


# --- turns nobody asked for


@pytest.mark.case(8, 9)
@pytest.mark.parametrize("way", ["save_messages", "chat"])
async def test_a_turn_from_code_is_shown_to_every_tab(serve: Serve, way: str) -> None:
    cls = assistant(ScriptedModel(says("From the server.")))
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    await asyncio.gather(one.until_frame("mcp_servers"), two.until_frame("mcp_servers"))
    result = await getattr(server.app.agent(cls, "room"), way)(
        Message("s1", "user", [{"type": "text", "text": "Go"}])
    )
    for tab in (one, two):
        done = await tab.until_done(result.request_id)
        assert kinds(tab)[3:] == ["chat_messages", "chunks", "chat_messages", "done"]
        assert "messageIds" not in done
        assert [m.text for m in tab.messages] == ["Go", "From the server."]


async def test_messages_added_from_code_are_shown_to_every_tab(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    chat = await server.connect(cls)
    await server.app.agent(cls, "room").add_messages("A note")
    await chat.until(lambda: [m.text for m in chat.messages] == ["A note"])
    assert "connect" not in chat.of("chat_messages")[-1]
