"""Frames no honest client sends."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
BODY = {"messages": [USER], "trigger": "submit-message", "clientTools": [{"name": "where"}], "mode": "x"}

VALID: list[dict[str, Any]] = [
    {"type": "cf_agent_use_chat_request", "id": "r1", "init": {"method": "POST", "body": json.dumps(BODY)}},
    {"type": "cf_agent_chat_request_cancel", "id": "r1"},
    {"type": "cf_agent_chat_clear"},
    {"type": "cf_agent_chat_messages", "messages": [USER]},
    {"type": "cf_agent_tool_result", "toolCallId": "c1", "toolName": "where", "output": {"a": 1}},
    {"type": "cf_agent_tool_result", "toolCallId": "c1", "state": "output-error", "errorText": "no"},
    {
        "type": "cf_agent_tool_result",
        "toolCallId": "c1",
        "autoContinue": True,
        "clientTools": [{"name": "x"}],
    },
    {"type": "cf_agent_tool_approval", "toolCallId": "c1", "approved": True, "autoContinue": True},
    {"type": "cf_agent_tool_approval", "toolCallId": "c1", "approved": False, "approvalId": "a1"},
    {"type": "cf_agent_tool_result", "toolCallId": "c1", "output": {"action": "accept"}, "approvalId": "a1"},
    {"type": "cf_agent_stream_resume_request", "probeId": "p1"},
    {"type": "cf_agent_stream_resume_request"},
    {"type": "cf_agent_stream_resume_ack", "id": "r1"},
    {"type": "cf_agent_state", "state": {"count": 1}},
    {"type": "rpc", "id": "1", "method": "add", "args": [1, 2]},
]

NUMBERS = [
    "1e999",
    "-0",
    "1" * 400,
    "9" * 5000,
    "1e-400",
    "0.1e",
    "--1",
    "NaN",
    "Infinity",
    str(2**64),
    str(-(2**70)),
]


def frames(seed: int, count: int) -> Iterator[str | bytes]:
    """`count` frames: noise, broken JSON, wrong shapes, bombs, and some that are fine."""
    dice = random.Random(seed)
    makers = [_noise, _broken, _broken, _misshapen, _misshapen, _bomb, _bytes, _fine]
    for _ in range(count):
        yield dice.choice(makers)(dice)


def _fine(dice: random.Random) -> str:
    return json.dumps(dice.choice(VALID[1:]))


def _bytes(dice: random.Random) -> bytes:
    return dice.randbytes(dice.randrange(64))


def _noise(dice: random.Random) -> str:
    return "".join(
        chr(dice.choice([dice.randrange(128), dice.randrange(0xD7FF)])) for _ in range(dice.randrange(40))
    )


def _broken(dice: random.Random) -> str:
    text = list(json.dumps(dice.choice(VALID)))
    for _ in range(dice.randrange(1, 4)):
        place = dice.randrange(len(text))
        match dice.randrange(4):
            case 0:
                del text[place]
            case 1:
                text.insert(place, dice.choice('{}[],:"\\u0tn-1 e.\0'))
            case 2:
                text[place] = chr(dice.randrange(32, 300))
            case _:
                del text[place:]
                text.append(dice.choice(['"', "}", "]", ""]))
        if not text:
            break
    return "".join(text)


def _any(dice: random.Random, depth: int = 3) -> Any:
    plain = [None, True, False, 0, -1, 2**53, 1.5, "", "x" * 50, "\0", "\ud800", "r1", "c1"]
    if depth == 0 or dice.random() < 0.6:
        return dice.choice(plain)
    if dice.random() < 0.5:
        return [_any(dice, depth - 1) for _ in range(dice.randrange(4))]
    return {dice.choice(["type", "id", "name", "role", "parts", ""]): _any(dice, depth - 1) for _ in range(3)}


def _misshapen(dice: random.Random) -> str:
    frame: dict[str, Any] = dict(dice.choice(VALID))
    for _ in range(dice.randrange(1, 3)):
        key = dice.choice([*frame, "extra"])
        if dice.random() < 0.25:
            frame.pop(key, None)
        else:
            frame[key] = _any(dice)
    if isinstance(frame.get("init"), dict) and dice.random() < 0.7:
        body: dict[str, Any] = dict(BODY)
        body[dice.choice(list(body))] = _any(dice)
        frame["init"] = {"method": "POST", "body": json.dumps(body)}
    return json.dumps(frame)


def _bomb(dice: random.Random) -> str:
    number = dice.choice(NUMBERS)
    depth = dice.choice([50, 127, 128, 129, 500, 2000])
    kind = dice.choice(["[", '{"a":'])
    closing = "]" if kind == "[" else "}"
    nested = kind * depth + "1" + closing * depth
    return dice.choice(
        [
            f'{{"type":"cf_agent_state","state":{number}}}',
            f'{{"type":"cf_agent_state","state":{nested}}}',
            f'{{"type":"rpc","id":"1","method":"add","args":[{number},{nested}]}}',
            f'{{"type":"cf_agent_tool_result","toolCallId":"c1","output":{nested}}}',
            f'{{"type":{nested}}}',
            nested,
            kind * depth,
            number,
            '{"type":"cf_agent_use_chat_request","id":"r","init":{"method":"POST","body":'
            + json.dumps(nested)
            + "}}",
        ]
    )
