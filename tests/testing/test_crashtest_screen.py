"""The screen of somebody who stays: it grows, keeps what it has, and notices when it must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everthink.messages import user_message
from everthink.testing.crashtest.screen import Screen
from everthink.wire.codec import decode_told

Json = dict[str, Any]


def delta(words: str) -> Json:
    return {"type": "text-delta", "id": "t", "delta": words}


ANSWER = [
    {"type": "start", "messageId": "a1"},
    {"type": "text-start", "id": "t"},
    delta("The capital "),
    delta("is "),
    delta("Paris."),
    {"type": "text-end", "id": "t"},
]
QUESTION = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Capital?"}]}
STORED = {
    "id": "a1",
    "role": "assistant",
    "parts": [{"type": "text", "text": "The capital is Paris.", "state": "done"}],
}


def chunk(number: int, body: Json | None = None, *, request: str = "r1", **fields: Any) -> Json:
    text = json.dumps(body or ANSWER[number])
    frame = {"type": "cf_agent_use_chat_response", "id": request, "body": text, "done": False}
    return {**frame, "seq": number, **fields}


def done(request: str = "r1", **fields: Any) -> Json:
    return {"type": "cf_agent_use_chat_response", "id": request, "body": "", "done": True, **fields}


def history(*messages: Json) -> Json:
    return {"type": "cf_agent_chat_messages", "messages": list(messages)}


IDLE = {"type": "cf_agent_stream_resume_none", "reason": "idle"}


def show(screen: Screen, frame: Json) -> None:
    told = decode_told(json.dumps(frame))
    assert told is not None
    screen.take(told)


@pytest.fixture
def screen() -> Screen:
    """Half of an answer is on it."""
    found = Screen()
    for frame in (history(QUESTION), *(chunk(n) for n in range(4))):
        show(found, frame)
    assert [message.text for message in found.messages] == ["Capital?", "The capital is "]
    return found


def test_an_answer_that_is_replayed_and_goes_on_is_shown_once(screen: Screen) -> None:
    show(screen, {"type": "cf_agent_chat_recovering", "recovering": True})
    for number in range(6):
        show(screen, chunk(number, replay=number < 4))
        assert screen.messages[-1].text.startswith("The capital is ")
    show(
        screen, {"type": "cf_agent_use_chat_response", "id": "r1", "body": "", "done": False, "replay": True}
    )
    show(screen, history(QUESTION, STORED))
    show(screen, done())
    assert [message.text for message in screen.messages] == ["Capital?", "The capital is Paris."]
    assert (screen.faults, screen.errors, screen.recoveries) == ([], [], 1)


def test_an_answer_that_ended_while_the_reader_was_away_is_there(screen: Screen) -> None:
    show(screen, history(QUESTION, STORED))
    show(screen, IDLE)
    assert screen.messages[-1].text == "The capital is Paris."
    assert screen.faults == []


def test_history_without_the_partial_takes_nothing_from_the_screen(screen: Screen) -> None:
    show(screen, history(QUESTION))
    assert screen.messages[-1].text == "The capital is "
    assert screen.faults == []


def test_a_stream_that_goes_on_after_all_is_put_together_again(screen: Screen) -> None:
    show(screen, history(QUESTION, {**STORED, "parts": [{"type": "text", "text": "The capital is "}]}))
    show(screen, IDLE)
    show(screen, chunk(4))
    assert screen.messages[-1].text == "The capital is Paris."
    assert screen.faults == []


def test_an_answer_that_is_taken_away_is_noticed(screen: Screen) -> None:
    show(screen, history(QUESTION))
    show(screen, IDLE)
    assert screen.faults == ["the answer 'The capital is ' was taken from the screen"]


def test_an_answer_that_goes_back_is_noticed(screen: Screen) -> None:
    show(screen, history(QUESTION, {**STORED, "parts": [{"type": "text", "text": "The cap"}]}))
    show(screen, done())
    assert screen.faults == ["an answer went back from 'The capital is ' to 'The cap'"]


def test_an_answer_that_is_told_otherwise_is_noticed(screen: Screen) -> None:
    show(screen, chunk(2, delta("The city "), replay=True))
    (fault,) = screen.faults
    assert fault.startswith("chunk 2 of an answer was ")
    assert "The city" in fault


def test_a_piece_that_is_missing_is_noticed(screen: Screen) -> None:
    show(screen, chunk(5))
    assert screen.faults == ["chunk 5 of an answer came when chunk 4 was due"]


def test_an_answer_that_makes_room_for_another_may_leave(screen: Screen) -> None:
    show(screen, history(QUESTION, STORED))
    show(screen, done())
    screen.may_leave("a1")
    show(screen, history(QUESTION))
    assert screen.faults == []


def test_a_continuation_gets_its_id_when_it_is_stored(screen: Screen) -> None:
    show(screen, history(QUESTION, STORED))
    show(screen, done())
    bodies = [{"type": "start"}, {"type": "text-start", "id": "t"}, delta("More.")]
    for number, body in enumerate(bodies):
        show(screen, chunk(number, body, request="r2", continuation=True))
    assert [message.text for message in screen.messages] == ["Capital?", "The capital is Paris.", "More."]
    more = {"id": "a2", "role": "assistant", "parts": [{"type": "text", "text": "More."}]}
    show(screen, history(QUESTION, STORED, more))
    show(screen, done("r2"))
    assert [message.id for message in screen.messages] == ["u1", "a1", "a2"]
    assert screen.faults == []


def test_what_the_person_says_is_on_the_screen_at_once_and_once(screen: Screen) -> None:
    show(screen, history(QUESTION, STORED))
    show(screen, done())
    thanks = user_message("Thanks.", id="u2")
    screen.said(thanks)
    screen.said(thanks)
    assert [message.id for message in screen.messages] == ["u1", "a1", "u2"]
    show(screen, history(QUESTION, STORED, thanks.to_json()))
    assert [message.id for message in screen.messages] == ["u1", "a1", "u2"]
    assert screen.faults == []


def test_errors_are_kept(screen: Screen) -> None:
    show(screen, done(error=True) | {"body": "It broke."})
    assert screen.errors == ["It broke."]


def test_a_message_that_changes_is_shown_as_it_is_now(screen: Screen) -> None:
    show(screen, history(QUESTION, STORED))
    show(screen, done())
    show(screen, {"type": "cf_agent_message_updated", "message": {**STORED, "metadata": {"n": 1}}})
    assert screen.messages[-1].metadata == {"n": 1}
