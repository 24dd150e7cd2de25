"""What is on a reader's screen, frame by frame."""

from __future__ import annotations

import json
from typing import Any

from everthink import chunks as ui
from everthink.client.transcript import Transcript
from everthink.messages import Message, user_message
from everthink.wire import frames as wire
from everthink.wire.codec import decode_told

QUESTION = user_message("Capital?", id="u1")


def chunk(number: int, body: dict[str, Any], **fields: Any) -> wire.ResponseFrame:
    return wire.ResponseFrame("r1", json.dumps(body), False, seq=number, **fields)


def start(id: str) -> dict[str, Any]:
    return {"type": "start", "messageId": id}


def delta(text: str) -> dict[str, Any]:
    return {"type": "text-delta", "id": "t", "delta": text}


def shown(*frames: wire.ServerFrame) -> tuple[Transcript, list[ui.Chunk]]:
    """What is on the screen after these frames, and the chunks that were new."""
    transcript = Transcript()
    new = [transcript.take(frame) for frame in (wire.ChatMessages([QUESTION]), *frames)]
    return transcript, [one for one in new if one is not None]


def test_what_is_replayed_is_not_new() -> None:
    told = [chunk(0, start("a1")), chunk(1, delta("Par"))]
    transcript, new = shown(*told, *told, chunk(2, delta("is.")))
    assert [message.text for message in transcript.messages] == ["Capital?", "Paris."]
    assert [one.type for one in new] == ["start", "text-delta", "text-delta"]


def test_an_answer_that_begins_anew_replaces_its_first_beginning() -> None:
    transcript, new = shown(
        chunk(0, start("a1")), chunk(1, delta("Lond")), chunk(0, start("a2")), chunk(1, delta("Paris."))
    )
    assert [message.text for message in transcript.messages] == ["Capital?", "Paris."]
    assert transcript.messages[-1].id == "a2"
    assert len(new) == 4


def test_a_turn_that_is_played_again_after_its_end_is_counted_from_the_start() -> None:
    transcript, new = shown(
        chunk(0, start("a1")),
        chunk(1, delta("Lond")),
        wire.ResponseFrame("r1", "", True, outcome="recovering"),
        chunk(0, start("a1")),
        chunk(1, delta("Paris.")),
    )
    assert [message.text for message in transcript.messages] == ["Capital?", "Paris."]
    assert len(new) == 4


def test_a_place_holder_does_not_undo_what_was_said() -> None:
    transcript, _ = shown(
        chunk(0, start("a1")),
        chunk(1, delta("Paris.")),
        wire.ResponseFrame("r1", ui.NOTHING_NEW, False, seq=1, replay=True),
    )
    assert transcript.messages[-1].text == "Paris."


def test_a_continuation_stays_until_the_conversation_holds_it() -> None:
    frames = [
        chunk(0, start("a2"), continuation=True),
        chunk(1, delta("Paris."), continuation=True),
        wire.ResponseFrame("r1", "", True, continuation=True),
    ]
    transcript, _ = shown(*frames)
    assert [message.text for message in transcript.messages] == ["Capital?", "Paris."]

    answer = Message("a2", "assistant", [{"type": "text", "text": "Paris."}])
    transcript.take(wire.ChatMessages([QUESTION, answer]))
    assert [message.id for message in transcript.messages] == ["u1", "a2"]


def test_a_cleared_conversation_shows_nothing_of_what_still_streams() -> None:
    transcript, _ = shown(chunk(0, start("a1")), chunk(1, delta("Par")), wire.ClearChat())
    assert transcript.messages == []


def test_what_a_newer_server_says_is_passed_over() -> None:
    assert decode_told('{"type":"cf_agent_from_the_future","x":1}') is None
    assert decode_told("welcome") is None
    known = decode_told('{"type":"cf_agent_identity","name":"room","agent":"assistant","newer":true}')
    assert known == wire.Identity("room", "assistant")
