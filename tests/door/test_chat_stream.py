"""`chat()`: a turn whose chunks can be followed, by iterating or through a callback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Message, Think
from everthink import chunks as ui
from everthink.door.chat_request import ChatRequest
from everthink.errors import InvalidMessage, TurnFailed
from everthink.hooks import ChatResponse
from everthink.journal.feed import (
    ChunksStored,
    HistoryChanged,
    TurnAccepted,
    TurnEnded,
    TurnStarted,
)
from everthink.testing.scripted import ScriptedModel, calls, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import Database, Heard, Witness, accept_request, all_over, home_of, prompt, roles

pytestmark = pytest.mark.anyio

WHOLE_TURN = [
    "start",
    "start-step",
    "text-start",
    "text-delta",
    "text-delta",
    "text-end",
    "finish-step",
    "finish",
]


@pytest.mark.case(10)
async def test_the_callback_gets_every_chunk_as_json_text_and_then_done(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello ", "there."))))
    heard = Heard()

    result = await app.agent(cls).chat("Hi", callback=heard)

    assert heard.names == ["start", "done"]
    assert heard.told[0] == ("start", result.request_id)
    assert heard.told[-1] == ("done", None)
    assert [chunk["type"] for chunk in heard.chunks] == WHOLE_TURN
    assert heard.text == result.text == "Hello there."
    (turn,) = Database(tmp_path).turns()
    shown = [body for name, body in heard.told if name == "event"]
    assert shown == [ui.encode(chunk) for chunk in Database(tmp_path).chunks(turn["id"])]


@pytest.mark.case(10)
async def test_the_methods_of_a_callback_may_be_async_or_missing(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"), says("again"))))
    told: list[Any] = []

    class Slow:
        async def on_event(self, json: str) -> None:
            await asyncio.sleep(0)
            told.append(json)

        async def on_done(self) -> None:
            told.append("done")

    await app.agent(cls).chat("Hi", callback=Slow())
    assert (len(told), told[-1]) == (8, "done")

    # A plain function is told the chunks and nothing else
    told.clear()
    await app.agent(cls).chat("Hi", callback=told.append)
    assert [ui.decode(body).type for body in told] == list(dict.fromkeys(WHOLE_TURN))


async def test_iterating_gives_the_chunks_and_then_the_result(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(thinks("hm").says("Hello ", "there."))))

    stream = app.agent(cls).chat("Hi")
    chunks = [chunk async for chunk in stream]

    assert isinstance(chunks[0], ui.Start)
    assert isinstance(chunks[-1], ui.Finish)
    assert [c.delta for c in chunks if isinstance(c, ui.TextDelta)] == ["Hello ", "there."]
    assert stream.result is not None
    assert (stream.result.status, stream.result.text) == ("completed", "Hello there.")
    assert stream.request_id == stream.result.request_id
    assert chunks[0].message_id == stream.result.message.id  # type: ignore[union-attr]


async def test_only_the_text_can_be_followed(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(thinks("hm").says("Hello ", "there."))))
    assert [piece async for piece in app.agent(cls).chat("Hi").text()] == ["Hello ", "there."]


async def test_nothing_happens_until_the_stream_is_followed(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel(says("Hello"))
    app = await open_app(cls := assistant(model))
    agent = await live(app.agent(cls))

    stream = agent.chat("Hi")
    await asyncio.sleep(0)
    assert (model.requests, Database(tmp_path).turns(), len(agent._home.chat.host.aborts)) == ([], [], 0)

    assert (await stream).text == "Hello"


@pytest.mark.case(8, 9)
async def test_readers_are_shown_the_turn_from_its_acceptance_to_its_end(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))
    witness = Witness(await home_of(app, cls))

    result = await app.agent(cls).chat("Hi")

    kinds = [type(shown) for shown in witness.shown]
    assert kinds[:3] == [TurnAccepted, HistoryChanged, TurnStarted]
    assert kinds[-2:] == [HistoryChanged, TurnEnded]
    assert set(kinds[3:-2]) == {ChunksStored}
    assert witness.text == "Hello"
    assert all(s.turn.request_id == result.request_id for s in witness.shown if isinstance(s, ChunksStored))


@pytest.mark.case(21)
async def test_a_request_from_a_browser_streams_text_to_its_end_and_is_stored(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello ", "there."))))
    home = await home_of(app, cls)
    witness = Witness(home)
    question = Message("q", "user", [{"type": "text", "text": "Hi"}])

    admitted: Any = await accept_request(home, ChatRequest("r-1", [question]))
    result = await admitted.result()

    assert (result.request_id, result.status, witness.text) == ("r-1", "completed", "Hello there.")
    assert [chunk.type for chunk in witness.chunks] == WHOLE_TURN
    assert [s.status for s in witness.shown if isinstance(s, TurnEnded)] == ["completed"]
    assert [m.text for m in await app.agent(cls).get_messages()] == ["Hi", "Hello there."]


async def test_a_reader_that_raises_is_dropped_and_the_others_read_on(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"))))
    home = await home_of(app, cls)

    def broken(shown: Any) -> None:
        raise RuntimeError("a torn socket")

    home.feed.join(broken)
    witness = Witness(home)
    assert (await app.agent(cls).chat("Hi")).status == "completed"
    assert witness.text == "Hello"
    assert len(home.feed) == 1


async def test_leaving_the_loop_early_does_not_stop_the_turn(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a model that is not done yet
    gate = asyncio.Event()
    app = await open_app(cls := assistant(ScriptedModel(says("The whole ").waits(gate).says("answer."))))

    # When the reader leaves after the first word
    async for chunk in app.agent(cls).chat("Hi"):
        if isinstance(chunk, ui.TextDelta):
            break
    assert Database(tmp_path).statuses() == ["running"]
    gate.set()

    # Then the answer is completed without it, and nobody is left reading
    home = await home_of(app, cls)
    await all_over(app, cls)
    assert Database(tmp_path).statuses() == ["completed"]
    assert Database(tmp_path).texts() == ["Hi", "The whole answer."]
    assert len(home.feed) == 0


@pytest.mark.parametrize("way", ["iterate", "await"])
async def test_a_reader_that_is_cancelled_does_not_stop_the_turn(
    open_app: OpenApp, tmp_path: Path, way: str
) -> None:
    # Given a model that is not done yet, and somebody who follows it
    gate = asyncio.Event()
    model = ScriptedModel(says("The whole ").waits(gate).says("answer."))
    app = await open_app(cls := assistant(model))

    async def follow() -> None:
        if way == "iterate":
            async for _ in app.agent(cls).chat("Hi"):
                pass
        else:
            await app.agent(cls).chat("Hi")

    reader = asyncio.create_task(follow())
    await model.until_silent()

    # When they are cancelled
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    gate.set()

    # Then the turn goes on to its end
    await all_over(app, cls)
    assert Database(tmp_path).statuses() == ["completed"]
    assert Database(tmp_path).texts() == ["Hi", "The whole answer."]


async def test_a_callback_that_raises_reaches_the_caller_and_the_turn_goes_on(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello"), says("still here"))))

    def on_event(json: str) -> None:
        raise ValueError("the reader broke")

    with pytest.raises(ValueError, match="the reader broke"):
        await app.agent(cls).chat("Hi", callback=on_event)

    await all_over(app, cls)
    assert Database(tmp_path).texts() == ["Hi", "Hello"]
    assert (await app.agent(cls).chat("Again")).text == "still here"


async def test_a_callback_that_raises_on_start_leaves_nothing_behind(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    home = await home_of(app, cls)

    class Hasty:
        def on_start(self, request_id: str) -> None:
            raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        await app.agent(cls).chat("Hi", callback=Hasty())

    assert (len(home.chat.host.aborts), home.chat.door.queue.is_idle, len(home.feed)) == (0, True, 0)
    assert Database(tmp_path).turns() == []


async def test_a_stream_that_fails_raises_after_its_last_chunk(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Half an ").then_fails("overloaded"))))
    stream, seen = app.agent(cls).chat("Hi"), []

    async def read() -> None:
        async for piece in stream.text():
            seen.append(piece)

    with pytest.raises(TurnFailed, match="overloaded") as failed:
        await read()

    assert seen == ["Half an "]
    assert failed.value.request_id == stream.request_id
    assert stream.result is not None
    assert (stream.result.status, stream.result.error) == ("error", "overloaded")


async def test_done_is_told_once_the_answer_is_stored_and_before_the_hook(
    open_app: OpenApp, tmp_path: Path
) -> None:
    order: list[str] = []

    async def on_chat_response(self: Think, response: ChatResponse) -> None:
        await asyncio.sleep(0)
        order.append("hook")

    class Listener:
        def on_done(self) -> None:
            order.append("done " + ",".join(Database(tmp_path).texts()))

    app = await open_app(cls := assistant(ScriptedModel(says("Hello")), on_chat_response=on_chat_response))
    await app.agent(cls).chat("Hi", callback=Listener())
    assert order == ["done Hi,Hello", "hook"]


async def test_chat_takes_a_list_and_a_function_that_sees_the_conversation(open_app: OpenApp) -> None:
    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model))

    async def ask(messages: list[Message]) -> list[str]:
        return [f"you said {messages[-1].text}", "why?"]

    await app.agent(cls).chat(["a", {"role": "user", "parts": [{"type": "text", "text": "b"}]}])
    await app.agent(cls).chat(ask)

    assert prompt(model.last_request) == [
        ("user", "a"),
        ("user", "b"),
        ("assistant", "one"),
        ("user", "you said one"),
        ("user", "why?"),
    ]


async def test_a_message_that_is_not_valid_is_refused_before_anything_is_told(
    open_app: OpenApp, tmp_path: Path
) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    heard = Heard()
    with pytest.raises(InvalidMessage, match="parts"):
        await app.agent(cls).chat({"role": "user"}, callback=heard)
    assert heard.told == []
    assert Database(tmp_path).turns() == []
    assert len((await home_of(app, cls)).chat.host.aborts) == 0


CLIENT_TOOLS = [
    {
        "name": "locate",
        "description": "Where the user is.",
        "parameters": {"type": "object", "properties": {"exact": {"type": "boolean"}}},
    }
]


async def test_client_tools_of_one_chat_live_for_that_turn_only(open_app: OpenApp, tmp_path: Path) -> None:
    model = ScriptedModel(says("one"), says("two"))
    app = await open_app(cls := assistant(model))

    await app.agent(cls).chat("Hi", client_tools=CLIENT_TOOLS)
    await app.agent(cls).chat("And now?")

    assert [[tool.name for tool in request.tools] for request in model.requests] == [["locate"], []]
    assert Database(tmp_path).rows("SELECT * FROM kv WHERE name = 'openTools'") == []
    await app.evict(cls, "default")
    assert (await home_of(app, cls)).chat.browser.tools == []


async def test_a_client_tool_nobody_answers_ends_the_turn_with_the_call_pending(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(calls("locate", exact=True))))
    result = await app.agent(cls).chat("Where am I?", client_tools=CLIENT_TOOLS)
    assert result.status == "completed"
    (part,) = result.message.tool_parts  # type: ignore[union-attr]
    assert (part["state"], part["input"]) == ("input-available", {"exact": True})


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_client_tool_can_be_answered_by_whoever_called_chat(
    open_app: OpenApp, is_async: bool
) -> None:
    model = ScriptedModel(calls("locate", exact=True, id="call-7"), says("In Paris."))
    app = await open_app(cls := assistant(model))
    asked: list[Any] = []

    def answer(name: str, input: dict[str, Any], call_id: str) -> Any:
        asked.append((name, input, call_id))
        return {"city": "Paris"}

    async def answer_later(name: str, input: dict[str, Any], call_id: str) -> Any:
        return answer(name, input, call_id)

    result = await app.agent(cls).chat(
        "Where am I?", client_tools=CLIENT_TOOLS, on_client_tool_call=answer_later if is_async else answer
    )

    assert asked == [("locate", {"exact": True}, "call-7")]
    assert result.text == "In Paris."
    assert result.message.tool_parts[0]["output"] == {"city": "Paris"}  # type: ignore[union-attr]


@pytest.mark.agent_case(436)
async def test_the_channel_and_the_client_tools_of_a_chat_do_not_reach_the_next_turn(
    open_app: OpenApp,
) -> None:
    bodies: list[Any] = []
    app = await open_app(
        cls := assistant(
            ScriptedModel(says("one"), says("two")),
            before_turn=lambda self, turn: bodies.append((turn.body, turn.metadata)),
        )
    )
    await app.agent(cls).chat("Hi", channel="email", metadata={"ticket": 7})
    await app.agent(cls).chat("Hi again")

    first, _, second, _ = await app.agent(cls).get_messages()
    assert first.metadata == {"channel": "email", "turnMetadata": {"ticket": 7}}
    assert second.metadata is None
    assert bodies == [(None, {"ticket": 7}), (None, None)]
    assert roles(await app.agent(cls).get_messages()) == ["user", "assistant"] * 2
