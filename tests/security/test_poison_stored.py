"""Rows that somebody else has written: each is left out and told, and nothing else suffers from it."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from everthink import App
from everthink.errors import InvalidMessage, TooDeep
from everthink.messages import DEEPEST, copy_json, decode_json, encode_json, read_stored
from everthink.recovery.aside import UNREADABLE_TEXT
from everthink.testing import ScriptedModel, says
from tests.support.agents import assistant
from tests.support.postgres import postgres_database, postgres_server, postgres_url
from tests.support.server import Served, served
from tests.support.turns import prompt, record_events

from .poisoned import DEEP, Poisoned, deep, store_url

__all__ = ["postgres_database", "postgres_server", "postgres_url", "store_url"]

pytestmark = pytest.mark.anyio


def parts(*given: Any) -> str:
    return json.dumps({"parts": list(given)})


HOSTILE = {
    "a text that is a number": parts({"type": "text", "text": 5}),
    "a text that is missing": parts({"type": "text"}),
    "parts that are an object": '{"parts": {}}',
    "parts that are null": '{"parts": null}',
    "no parts": "{}",
    "parts that are numbers": parts(5, None),
    "a part without a type": parts({"text": "hello"}),
    "a type that is a list": parts({"type": ["text"], "text": "hello"}),
    "a call without an id": parts({"type": "tool-look", "state": "output-available", "output": 1}),
    "a call whose id is a number": parts({"type": "tool-look", "toolCallId": 5, "state": "output-available"}),
    "a call without a state": parts({"type": "tool-look", "toolCallId": "c"}),
    "a file without an address": parts({"type": "file", "mediaType": "image/png"}),
    "a result nested 10,000 levels deep": '{"parts": [{"type": "tool-look", "toolCallId": "c", "state":'
    f' "output-available", "input": {{}}, "output": {DEEP}}}]}}',
    "a result that only this interpreter could read": '{"parts": [{"type": "tool-look", "toolCallId": "c",'
    f' "state": "output-available", "input": {{}}, "output": {deep(DEEPEST)}}}]}}',
    "content nested 10,000 levels deep": DEEP,
    "metadata that is a list": '{"parts": [], "metadata": [1]}',
    "metadata nested 10,000 levels deep": f'{{"parts": [], "metadata": {{"a": {DEEP}}}}}',
    "a time that is a number": '{"parts": [], "createdAt": 5}',
    "something that is not JSON": "{broken",
    "nothing": "",
    "a list": "[]",
    "half a character": '{"parts": [{"type": "text", "text": "\\ud83d"}]}',
}


def model(count: int = 4) -> ScriptedModel:
    return ScriptedModel(*[says(f"Answer {n}.") for n in range(count)], repeat=True)


def serving(cls: Any, url: str) -> Served:
    return served(App(cls, store=url, grace=0.0, idle_after=None))


async def talks(server: Served, cls: Any, name: str) -> list[str]:
    """Connect, ask, and read over HTTP, as a person's page does. The conversation as it is then."""
    tab = await server.connect(cls, name)
    request = await tab.say("And now?")
    done = await tab.until_done(request)
    assert not done.get("error"), done
    answer = await server.http(f"/agents/assistant/{name}/get-messages")
    assert answer.status == 200
    assert [message["id"] for message in answer.json] == [message.id for message in tab.messages]
    return [message.text for message in tab.messages]


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_row_that_holds_no_message_says_so(content: str) -> None:
    with pytest.raises(InvalidMessage):
        read_stored("m", "user", content)


def test_an_unknown_role_is_no_message() -> None:
    with pytest.raises(InvalidMessage, match="role"):
        read_stored("m", "robot", parts())


async def test_a_conversation_with_unreadable_messages_goes_on_without_them(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a conversation with every kind of row that holds no message in it
    caplog.set_level(logging.CRITICAL, "everthink")
    async with Poisoned.at(store_url) as rows:
        await rows.agent("room")
        await rows.said("room", "first", "Hello")
        above = "first"
        for number, content in enumerate(HOSTILE.values()):
            await rows.message(
                "room", f"h{number}", content, parent=above, role="assistant" if number % 2 else "user"
            )
            above = f"h{number}"
        await rows.message(
            "room", "robot", parts({"type": "text", "text": "I rule."}), parent=above, role="robot"
        )
        await rows.said("room", "nul", "a\0b", parent="robot")
    cls = assistant(script := model())

    # When people come and talk, twice
    async with serving(cls, store_url) as server:
        told = record_events(server.app, "chat:stored:unreadable")
        assert await talks(server, cls, "room") == ["Hello", "a\0b", "And now?", "Answer 0."]
        assert (await talks(server, cls, "room"))[-1] == "Answer 1."
    # Then the model is shown what can be read, each row was told once, and all are still there
    assert prompt(script.requests[0]) == [("user", "Hello"), ("user", "a\0b"), ("user", "And now?")]
    assert sorted(event.body.id for event in told) == sorted(
        [*(f"h{n}" for n in range(len(HOSTILE))), "robot"]
    )
    async with Poisoned.at(store_url) as rows:
        kept = dict(await rows.rows("SELECT id, content FROM messages WHERE id LIKE 'h%' OR id = 'robot'"))
    assert [kept[f"h{number}"] for number in range(len(HOSTILE))] == list(HOSTILE.values())


SEGMENTS = {
    "something that is not JSON": "[broken",
    "a number": "5",
    "a number as a chunk": "[5]",
    "an empty run": "[[]]",
    "a run of an unknown kind": '[["x", "a", "b"]]',
    "a run of numbers": '[["t", "a", 5]]',
    "nested 10,000 levels deep": f"[{DEEP}]",
    "a result nested 10,000 levels deep": '[{"type": "tool-output-available", "toolCallId": "c", "output":'
    f" {DEEP}}}]",
    "half a character": '[["t", "a", "\\ud83d"]]',
}
HARMLESS = {
    "a chunk of an unknown kind": '[{"type": "weather"}]',
    "a chunk without a kind": "[{}]",
    "a delta of numbers": '[{"type": "text-delta", "id": 5, "delta": 5}]',
    "a result without a call": '[{"type": "tool-output-available", "toolCallId": "nowhere", "output": 1}]',
    "an end without a beginning": '[{"type": "text-end", "id": "x"}]',
}


async def test_a_turn_whose_chunks_are_not_ours_is_over_and_the_conversation_goes_on(store_url: str) -> None:
    """One turn must not keep an agent, nor one agent the server, from answering."""
    async with Poisoned.at(store_url) as rows:
        for number, chunks in enumerate([*SEGMENTS.values(), *HARMLESS.values()]):
            await rows.agent(name := f"room-{number}")
            await rows.said(name, "q", "Hello")
            await rows.turn(name, "t")
            await rows.segment(name, "t", chunks)
    cls = assistant(model())
    async with serving(cls, store_url) as server:
        told = record_events(server.app, "chat:turn:set_aside")
        for number in range(len(SEGMENTS) + len(HARMLESS)):
            texts = await talks(server, cls, f"room-{number}")
            assert texts[0] == "Hello"
            assert texts[-2] == "And now?"
        aside = await server.app.set_aside()
        tab = await server.connect(cls, "room-0", resumes=True)
        await tab.settled()
    rooms = [f"Assistant/room-{number}" for number in range(len(SEGMENTS))]
    assert sorted(one.agent for one in aside) == sorted(rooms)
    assert {(one.turn, one.is_aside) for one in aside} == {("t", True)}
    assert sorted(f"{event.agent}/{event.name}" for event in told) == sorted(rooms)
    assert {event.body.reason for event in told} == {"unreadable"}
    async with Poisoned.at(store_url) as rows:
        kept = await rows.rows(
            "SELECT chunks FROM segments s JOIN turns t ON t.agent = s.agent AND t.id = s.turn"
            " WHERE t.set_aside_at IS NOT NULL"
        )
        assert sorted(row[0] for row in kept) == sorted(SEGMENTS.values())
        ended = await rows.rows("SELECT status, error FROM turns WHERE id = 't' AND set_aside_at IS NOT NULL")
    assert {tuple(row) for row in ended} == {("error", UNREADABLE_TEXT)}


ENVELOPES = {
    "something that is not JSON": "{broken",
    "nested 10,000 levels deep": f'{{"body": {{"a": {DEEP}}}}}',
    "tools that are no list": '{"isApplied": true, "clientTools": {"a": 1}}',
    "tools without a name": '{"isApplied": true, "clientTools": [{"description": "x"}]}',
    "a tool whose schema is a list": '{"isApplied": true, "clientTools": [{"name": "x", "parameters": [1]}]}',
    "messages that are no list": '{"messages": {"a": 1}}',
    "a message of the wrong shape": '{"messages": [{"id": "m", "role": "user", "parts":'
    ' [{"type": "text", "text": 5}]}]}',
    "a body that is a list": '{"isApplied": true, "body": [1]}',
}


@pytest.mark.parametrize("status", ["accepted", "running"])
async def test_a_turn_whose_input_is_not_ours_is_over_and_the_next_ones_run(
    store_url: str, status: str
) -> None:
    async with Poisoned.at(store_url) as rows:
        for number, envelope in enumerate(ENVELOPES.values()):
            await rows.agent(name := f"room-{number}")
            await rows.said(name, "q", "Hello")
            await rows.turn(name, "bad", status=status, input=envelope)
            await rows.turn(name, "good", status="accepted", input='{"isApplied": true}')
    cls = assistant(model())
    async with serving(cls, store_url) as server:
        for number in range(len(ENVELOPES)):
            assert "And now?" in await talks(server, cls, f"room-{number}")
        assert len(await server.app.set_aside()) == len(ENVELOPES)
    async with Poisoned.at(store_url) as rows:
        kept = await rows.rows("SELECT input FROM turns WHERE id = 'bad' ORDER BY agent")
        ended = await rows.rows("SELECT status FROM turns WHERE id = 'good'")
    assert [row[0] for row in kept] == list(ENVELOPES.values())
    assert {row[0] for row in ended} == {"completed"}


VALUES = [
    (key, value)
    for key in ("state", "config", "lastFailure", "continuation", "session", "lastBody", "openTools")
    for value in ("5", '"x"', "[1]", "[{}]", '{"id": 5}', '{"value": 5', DEEP, '"\\ud83d"')
]


async def test_kept_values_of_the_wrong_shape_are_left_out(store_url: str) -> None:
    async with Poisoned.at(store_url) as rows:
        for number, (key, value) in enumerate(VALUES):
            await rows.agent(f"room-{number}")
            await rows.value(f"room-{number}", key, value)
    cls = assistant(model(), initial_state={"n": 1})
    async with serving(cls, store_url) as server:
        for number in range(len(VALUES)):
            assert (await talks(server, cls, f"room-{number}"))[-1].startswith("Answer")
    async with Poisoned.at(store_url) as rows:
        kept = dict(await rows.rows("SELECT agent, value FROM kv WHERE name = 'state'"))
    lost = [number for number, (key, value) in enumerate(VALUES) if key == "state"]
    assert [kept[f"Assistant/room-{number}"] for number in lost] == [VALUES[number][1] for number in lost]


async def test_rows_that_go_round_in_a_circle_are_walked_once(store_url: str) -> None:
    from everthink.devtools.inspector import Inspector
    from everthink.testing.in_process_server import Listening

    async with Poisoned.at(store_url) as rows:
        await rows.agent("room")
        await rows.message("room", "a", parts({"type": "text", "text": "A"}), parent="b")
        await rows.message("room", "b", parts({"type": "text", "text": "B"}), parent="a")
        await rows.turn("room", "t")
        await rows.segment("room", "t", SEGMENTS["a number as a chunk"])
        await rows.value("room", "session", "5")
        await rows.run(
            "INSERT INTO compactions (agent, session, id, seq, from_message, to_message, summary, reason,"
            " tokens_before, created_at) VALUES ('Assistant/room', '', 'c', 1, 'b', 'a', 'S', 'asked', 0, 1)"
        )
        await rows.run(
            "INSERT INTO calls (agent, turn, call_id, tool, step, state, on_interrupt, input, asked_at)"
            " VALUES ('Assistant/room', 't', 'c', 'look', 0, 'asked', 'report', ?, 1)",
            DEEP,
        )
    cls = assistant(model())
    async with serving(cls, store_url) as server:
        assert (await talks(server, cls, "room"))[-1] == "Answer 0."
        async with Listening(Inspector(server.app)) as inspector:
            for path in ("", "/turns/t", "/answers/a"):
                answer = await inspector.http(f"/everthink/inspect/assistant/room{path}")
                assert answer.status == 200, answer.text
            overview = (await inspector.http("/everthink/inspect/assistant/room")).json
    assert [(one["turn"], one["is_aside"]) for one in overview["set_aside"]] == [("t", True)]


# --- the values themselves


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_what_is_nested_too_deep_is_refused_in_words_wherever_it_is_copied_or_written() -> None:
    for levels in (DEEPEST + 2, 10_000, 100_000):
        with pytest.raises(TooDeep, match=f"more than {DEEPEST} levels"):
            copy_json(nested(levels))
    with pytest.raises(TooDeep):
        encode_json(nested(10_000))
    with pytest.raises(TooDeep):
        encode_json(["\ud83d", nested(900)])
    with pytest.raises(Exception, match="nested more than"):
        decode_json(DEEP)
    assert copy_json(nested(DEEPEST)) == nested(DEEPEST)


@pytest.mark.parametrize("content", ["CAST(x'ff' AS TEXT)", "x'ff'", "x'7b7d'"])
async def test_a_text_that_is_no_text_is_left_out(tmp_path: Path, content: str) -> None:
    """SQLite keeps whatever it is given; one such row kept the whole conversation from being read."""
    url = f"sqlite:///{tmp_path}/everthink.db"
    async with Poisoned.at(url) as rows:
        await rows.agent("room")
        await rows.said("room", "first", "Hello")
        await rows.message("room", "bad", "", parent="first", role="assistant")
        await rows.run(f"UPDATE messages SET content = {content} WHERE id = 'bad'")
        await rows.run(f"INSERT INTO kv (agent, name, value) VALUES ('Assistant/room', 'config', {content})")
    cls = assistant(model())
    async with serving(cls, url) as server:
        assert await talks(server, cls, "room") == ["Hello", "And now?", "Answer 0."]


async def test_agents_that_never_come_up_keep_nobody_else_waiting(tmp_path: Path) -> None:
    """More of them than are woken at once, all with a turn that was cut off."""
    url, gate = f"sqlite:///{tmp_path}/everthink.db", asyncio.Event()
    async with Poisoned.at(url) as rows:
        for name in [*(f"hang-{number}" for number in range(40)), "room"]:
            await rows.agent(name)
            await rows.said(name, "q", "Hello")
            await rows.turn(name, "t")

    async def on_start(self: Any, props: Any = None) -> None:
        if self.name.startswith("hang"):
            await gate.wait()

    cls = assistant(model(), on_start=on_start)
    async with serving(cls, url) as server:
        tab = await server.connect(cls, "room", resumes=True)
        await tab.until_text("Answer")
        assert await server.app.set_aside() == []
