from __future__ import annotations

import pytest

from everthink.models.port import AssistantMessage, TextPart, Usage
from everthink.observe.events import (
    CHANNELS,
    EVENTS,
    ChatStepFinish,
    ChatTranscriptRepaired,
    ChatTurnFinish,
    ChatTurnStart,
    Destroy,
    Event,
    ScheduleDuplicateWarning,
    ToolCallFinish,
    channel_of,
)

NAMED_BY_THE_PROTOCOL = [
    "state:update",
    "rpc",
    "rpc:error",
    "message:clear",
    "message:cancel",
    "message:error",
    "tool:result",
    "tool:approval",
    "schedule:create",
    "schedule:execute",
    "schedule:cancel",
    "schedule:retry",
    "schedule:error",
    "schedule:duplicate_warning",
    "queue:create",
    "queue:retry",
    "queue:error",
    "alarm:memory_limit_reset",
    "submission:create",
    "submission:status",
    "submission:error",
    "fiber:run:started",
    "fiber:run:completed",
    "fiber:run:failed",
    "fiber:run:interrupted",
    "fiber:recovery:detected",
    "fiber:recovery:attempt",
    "fiber:recovery:handled",
    "fiber:recovery:skipped",
    "fiber:recovery:failed",
    "chat:request:failed",
    "chat:turn:start",
    "chat:turn:finish",
    "chat:recovery:detected",
    "chat:recovery:scheduled",
    "chat:recovery:attempt",
    "chat:recovery:completed",
    "chat:recovery:skipped",
    "chat:recovery:failed",
    "chat:recovery:exhausted",
    "chat:transcript:repaired",
    "chat:onstart:degraded",
    "chat:hydration:windowed",
    "chat:media:evicted",
    "chat:stream:stalled",
    "chat:context:compacted",
    "connect",
    "disconnect",
    "destroy",
]

OURS = ["chat:step:start", "chat:step:finish", "tool:call:start", "tool:call:finish", "model:retry"]


def test_every_event_of_the_protocol_is_declared() -> None:
    assert set(NAMED_BY_THE_PROTOCOL + OURS) <= set(EVENTS)


@pytest.mark.parametrize("type", sorted(NAMED_BY_THE_PROTOCOL + OURS))
def test_a_body_is_named_after_its_type_and_cannot_be_changed(type: str) -> None:
    kind = EVENTS[type]
    words = type.replace(":", "_").split("_")
    assert kind.__name__ == "".join(word.capitalize() for word in words)
    assert kind.type == type
    assert kind.channel in CHANNELS
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize(
    ("type", "channel"),
    [
        ("state:update", "agents:state"),
        ("rpc", "agents:rpc"),
        ("rpc:error", "agents:rpc"),
        ("tool:result", "agents:message"),
        ("submission:create", "agents:message"),
        ("chat:turn:start", "agents:chat"),
        ("model:retry", "agents:chat"),
        ("chat:transcript:repaired", "agents:transcript"),
        ("queue:create", "agents:schedule"),
        ("notice:failed", "agents:channel"),
        ("connect", "agents:lifecycle"),
        ("alarm:memory_limit_reset", "agents:lifecycle"),
        ("something:new", "agents:lifecycle"),
    ],
)
def test_types_are_routed_to_channels(type: str, channel: str) -> None:
    assert channel_of(type) == channel


def test_a_payload_is_camel_case_and_leaves_out_what_is_absent() -> None:
    start = ChatTurnStart(request_id="r1", trigger="programmatic", admission="queue", continuation=False)
    assert start.payload() == {
        "requestId": "r1",
        "trigger": "programmatic",
        "admission": "queue",
        "continuation": False,
    }
    assert Destroy().payload() == {}


def test_nested_values_become_json_too() -> None:
    step = ChatStepFinish(
        request_id="r1",
        step_number=0,
        model="demo",
        finish_reason="stop",
        usage=Usage(input_tokens=3, cached_input_tokens=1),
        duration_ms=12,
    )
    assert step.payload()["usage"] == {"inputTokens": 3, "cachedInputTokens": 1}
    repaired = ChatTranscriptRepaired(removed_tool_calls=1, normalized_inputs=0, tool_call_ids=("c1",))
    assert repaired.payload() == {"removedToolCalls": 1, "normalizedInputs": 0, "toolCallIds": ["c1"]}


def test_a_field_that_would_hide_the_type_gives_up_its_underscore_on_the_wire() -> None:
    warning = ScheduleDuplicateWarning(callback="tick", count=12, type_="interval")
    assert warning.type == "schedule:duplicate_warning"
    assert warning.payload() == {"callback": "tick", "count": 12, "type": "interval"}


def test_what_was_said_is_in_the_body_but_neither_in_the_payload_nor_in_its_repr() -> None:
    call = ToolCallFinish(
        request_id="r1", tool_call_id="c1", tool_name="look", success=True, duration_ms=1, output="a secret"
    )
    step = ChatStepFinish(
        request_id="r1",
        step_number=0,
        model="demo",
        finish_reason="stop",
        duration_ms=1,
        answer=AssistantMessage([TextPart("a secret")]),
    )
    assert call.output == "a secret"
    for body in (call, step):
        assert "secret" not in repr(body)
        assert "secret" not in repr(body.payload())


def test_the_envelope_as_json_has_the_five_keys_of_the_protocol() -> None:
    body = ChatTurnFinish(
        request_id="r1", trigger="rpc", admission="queue", status="completed", duration_ms=5
    )
    event = Event(body.type, body.channel, "Support", "room-1", body.payload(), 1_700_000_000_000, body)
    assert event.to_json() == {
        "type": "chat:turn:finish",
        "agent": "Support",
        "name": "room-1",
        "payload": {
            "requestId": "r1",
            "trigger": "rpc",
            "admission": "queue",
            "status": "completed",
            "durationMs": 5,
        },
        "timestamp": 1_700_000_000_000,
    }
    with pytest.raises(AttributeError):
        event.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
