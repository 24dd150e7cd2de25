"""Text to frames and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everthink.errors import InvalidMessage
from everthink.limits import Limits
from everthink.messages import Message
from everthink.wire import frames as wire
from everthink.wire.body import read_body
from everthink.wire.codec import Refused, encode
from everthink.wire.codec import decode as decode_within

from ..support.frames import VALID, frames

LIMITS = Limits()


def decode(frame: str | bytes, limits: Limits = LIMITS) -> Any:
    return decode_within(frame, limits)


def text(**fields: Any) -> str:
    return json.dumps(fields)


CHAT = {"method": "POST", "body": "{}"}


@pytest.mark.case(535)
@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (
            text(type="cf_agent_use_chat_request", id="r", init=CHAT),
            wire.UseChat("r", wire.RequestInit("POST", "{}")),
        ),
        (text(type="cf_agent_use_chat_request", id="r", init={}), wire.UseChat("r", wire.RequestInit())),
        (text(type="cf_agent_chat_request_cancel", id="r"), wire.CancelRequest("r")),
        (text(type="cf_agent_chat_clear"), wire.ClearChat()),
        (text(type="cf_agent_chat_messages", messages=[1]), wire.ClientMessages([1])),
        (text(type="cf_agent_tool_result", toolCallId="c"), wire.ToolAnswered("c")),
        (
            text(
                type="cf_agent_tool_result",
                toolCallId="c",
                toolName="t",
                output=[1],
                state="output-error",
                errorText="no",
                autoContinue=True,
                clientTools=[{"name": "x"}],
            ),
            wire.ToolAnswered("c", "t", [1], "output-error", "no", True, [{"name": "x"}]),
        ),
        (
            text(type="cf_agent_tool_approval", toolCallId="c", approved=False),
            wire.ApprovalAnswered("c", False),
        ),
        (
            text(type="cf_agent_tool_approval", toolCallId="c", approved=True, autoContinue=True),
            wire.ApprovalAnswered("c", True, True),
        ),
        (text(type="cf_agent_stream_resume_request"), wire.ResumeRequest()),
        (text(type="cf_agent_stream_resume_request", probeId="p"), wire.ResumeRequest("p")),
        (text(type="cf_agent_stream_resume_ack", id="r"), wire.ResumeAck("r")),
        (text(type="cf_agent_state", state=None), wire.SetState(None)),
        (text(type="rpc", id="1", method="m", args=[]), wire.CallMethod("1", "m", [])),
        (text(type="cf_agent_chat_clear", anything="else"), wire.ClearChat()),
        ('{"id":"r","type":"cf_agent_chat_request_cancel"}', wire.CancelRequest("r")),
    ],
)
def test_each_client_frame_is_read_with_and_without_its_options(frame: str, expected: Any) -> None:
    assert decode(frame) == expected


@pytest.mark.case(535)
@pytest.mark.parametrize(
    "frame",
    [
        "",
        "hello",
        "7",
        "null",
        "[]",
        '"cf_agent_chat_clear"',
        "{}",
        '{"type":7}',
        '{"type":"unknown"}',
        '{"type":"cf_agent_identity","name":"x","agent":"y"}',
        '{"type":"cf_agent_use_chat_response","id":"r","body":"","done":true}',
        '{"type":"cf_agent_stream_resuming","id":"r"}',
        '{"type":"cf_agent_use_chat_request","id":"r"}',
        '{"type":"cf_agent_use_chat_request","id":7,"init":{}}',
        '{"type":"cf_agent_chat_request_cancel"}',
        '{"type":"cf_agent_tool_result"}',
        '{"type":"cf_agent_tool_approval","toolCallId":"c"}',
        '{"type":"cf_agent_tool_approval","toolCallId":"c","approved":"yes"}',
        '{"type":"cf_agent_state"}',
        '{"type":"rpc","id":"1","method":"m"}',
        '{"type":"cf_agent_chat_clear"',
        '{"type":"cf_agent_state","state":NaN}',
        '{"type":"cf_agent_state","state":1e999}',
        '{"type":"cf_agent_state","state":"\ud800"}',
    ],
)
def test_what_is_not_a_client_frame_is_nobodys(frame: str) -> None:
    assert decode(frame) is None


def nested(depth: int) -> str:
    return '{"type":"cf_agent_state","state":' + "[" * depth + "]" * depth + "}"


def test_a_frame_may_be_deep_and_long_but_not_endlessly_so() -> None:
    assert isinstance(decode(nested(LIMITS.frame_depth - 1)), wire.SetState)
    for depth in (LIMITS.frame_depth, 1_000_000):
        assert decode(nested(depth)) == Refused("cf_agent_state", None, "is nested deeper than 128 levels")
    long = text(type="rpc", id="1", method="m", args=["x" * LIMITS.frame_bytes])
    assert decode(long) == Refused("rpc", "1", f"is longer than {LIMITS.frame_bytes} bytes")
    assert isinstance(decode(long.replace("x" * 1000, "", 1)), wire.CallMethod)


@pytest.mark.parametrize("number", [str(2**64), "9" * 40, "-" + "9" * 30])
def test_a_big_number_travels_unchanged(number: str) -> None:
    read = decode(f'{{"type":"cf_agent_state","state":[{number}]}}')
    assert isinstance(read, wire.SetState)
    assert encode(wire.State(read.state)) == f'{{"type":"cf_agent_state","state":[{number}]}}'


@pytest.mark.case(524)
@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (wire.Identity("n", "a"), {"type": "cf_agent_identity", "name": "n", "agent": "a"}),
        (
            wire.Identity("n", "a", True),
            {"type": "cf_agent_identity", "name": "n", "agent": "a", "stateFollows": True},
        ),
        (wire.State(None), {"type": "cf_agent_state", "state": None}),
        (wire.State(0), {"type": "cf_agent_state", "state": 0}),
        (wire.StreamResuming("r"), {"type": "cf_agent_stream_resuming", "id": "r"}),
        (wire.StreamPending(), {"type": "cf_agent_stream_pending"}),
        (
            wire.StreamPending("r", "p"),
            {"type": "cf_agent_stream_pending", "id": "r", "probeId": "p"},
        ),
        (wire.ResumeNone(), {"type": "cf_agent_stream_resume_none"}),
        (
            wire.ResumeNone("idle", "p"),
            {"type": "cf_agent_stream_resume_none", "reason": "idle", "probeId": "p"},
        ),
        (wire.Recovering(False), {"type": "cf_agent_chat_recovering", "recovering": False}),
        (
            wire.ResponseFrame("r", "{}", False, seq=0),
            {"type": "cf_agent_use_chat_response", "id": "r", "body": "{}", "done": False, "seq": 0},
        ),
        (
            wire.ResponseFrame("r", "", True, replay=True, outcome="aborted", message_ids=["u"]),
            {
                "type": "cf_agent_use_chat_response",
                "id": "r",
                "body": "",
                "done": True,
                "replay": True,
                "outcome": "aborted",
                "messageIds": ["u"],
            },
        ),
        (
            wire.CallResult("1", True, True),
            {"type": "rpc", "id": "1", "success": True, "done": True},
        ),
        (
            wire.CallResult("1", True, False, False),
            {"type": "rpc", "id": "1", "success": True, "done": False, "result": False},
        ),
        (
            wire.CallResult("1", False, error="no"),
            {"type": "rpc", "id": "1", "success": False, "error": "no"},
        ),
        (
            wire.ChatMessages([Message("m", "user", [])], connect=True),
            {
                "type": "cf_agent_chat_messages",
                "messages": [{"id": "m", "role": "user", "parts": []}],
                "connect": True,
            },
        ),
    ],
)
def test_optional_fields_of_server_frames_are_absent_never_null(frame: Any, expected: Any) -> None:
    assert json.loads(encode(frame)) == expected


def test_half_a_surrogate_is_mended_on_the_way_out() -> None:
    assert json.loads(encode(wire.State("a\ud83db")))["state"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"half \ud83d", "half \ufffd"),
        (r"\ude00 the other half", "\ufffd the other half"),
        (r"\uD83D\uD83D\uDE00", "\ufffd\U0001f600"),
        (r"whole \ud83d\ude00 and \ud83dhalf", "whole \U0001f600 and \ufffdhalf"),
        (r"a path: C:\\ud83d and \ud83d", "a path: C:\\ud83d and \ufffd"),
    ],
)
def test_half_a_surrogate_is_mended_on_the_way_in(written: str, read: str) -> None:
    frame = decode(f'{{"type":"cf_agent_state","state":{{"{written}":"{written}"}}}}')
    assert frame == wire.SetState({read: read})


def test_half_a_surrogate_does_not_make_broken_json_whole() -> None:
    assert decode(r'{"type":"cf_agent_state","state":"\ud83d}') is None
    assert decode(r'{"type":"cf_agent_state","state":"\ud8"}') is None


@given(st.text(st.characters(categories=["Cs", "L", "P"]) | st.sampled_from('\\"u\ud83d\ude00')))
def test_every_text_javascript_can_write_is_read(text: str) -> None:
    mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert decode(json.dumps({"type": "cf_agent_state", "state": text})) == wire.SetState(mended)
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
    body = read_body(request(json.dumps({"messages": [message]})), new_id=str)
    assert body is not None
    assert body.messages[0].text == mended


# --- the body of a request


def request(body: Any, method: str = "POST") -> wire.UseChat:
    return wire.UseChat("r", wire.RequestInit(method, body if isinstance(body, str) else json.dumps(body)))


def test_a_body_says_messages_trigger_tools_and_the_rest() -> None:
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    body = read_body(
        request(
            {
                "messages": [message],
                "trigger": "regenerate-message",
                "clientTools": [{"name": "a"}, 7],
                "mode": "brief",
            }
        ),
        new_id=str,
    )
    assert body is not None
    assert [m.to_json() for m in body.messages] == [message]
    assert body.regenerates
    assert body.client_tools == [{"name": "a"}]
    assert body.custom == {"mode": "brief"}


@pytest.mark.parametrize(
    ("body", "tools"),
    [({}, None), ({"clientTools": []}, []), ({"clientTools": "x"}, None), ({"clientTools": None}, None)],
)
def test_absent_tools_differ_from_no_tools(body: Any, tools: Any) -> None:
    read = read_body(request({"messages": [], **body, "trigger": "whatever"}), new_id=str)
    assert read is not None
    assert read.client_tools == tools
    assert not read.regenerates
    assert read.custom is None


@pytest.mark.parametrize("body", ["[]", "7", "{}", '{"messages":{}}', '{"messages":null}'])
def test_a_body_without_messages_is_no_request(body: str) -> None:
    assert read_body(request(body), new_id=str) is None
    assert read_body(request('{"messages":[]}', "PUT"), new_id=str) is None
    assert read_body(wire.UseChat("r", wire.RequestInit("POST", {"messages": []})), new_id=str) is None


@pytest.mark.parametrize("body", ["", "{", "{'messages':[]}"])
def test_a_body_that_is_not_json_is_an_error(body: str) -> None:
    with pytest.raises(InvalidMessage, match=r"body of the request is not JSON"):
        read_body(request(body), new_id=str)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("[" * 100_000, "is nested deeper than 128 levels"),
        ('{"messages":[' + "{}," * 50_000 + "{}]}", "holds more than 80000 values"),
    ],
)
def test_a_body_over_a_bound_is_an_error(body: str, why: str) -> None:
    with pytest.raises(InvalidMessage, match=f"body of the request {why}"):
        read_body(request(body), new_id=str)


def test_a_message_that_is_none_is_named() -> None:
    with pytest.raises(InvalidMessage, match=r"messages\[0\]\.role"):
        read_body(request({"messages": [{"id": "u", "role": "robot", "parts": []}]}), new_id=str)


# --- anything at all


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.text(), st.binary(), st.recursive(st.none() | st.text(), lambda x: st.lists(x)).map(json.dumps)
    )
)
def test_decoding_never_raises(value: str | bytes) -> None:
    decode(value)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_a_valid_frame_with_one_field_changed_is_read_whole_or_not_at_all(frame: Any, data: Any) -> None:
    key = data.draw(st.sampled_from(sorted(frame)))
    value = data.draw(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
    )
    read = decode(json.dumps({**frame, key: value}))
    if read is not None:
        for name in getattr(read, "__struct_fields__", ()):
            if name in ("id", "method", "tool_call_id"):
                assert isinstance(getattr(read, name), str)


def test_hostile_frames_decode_to_a_frame_or_nothing() -> None:
    found = [decode(frame) for frame in frames(11, 5_000)]
    assert any(frame is None for frame in found)
    assert {type(frame) for frame in found} >= {type(None), wire.SetState, wire.CallMethod, wire.ToolAnswered}
