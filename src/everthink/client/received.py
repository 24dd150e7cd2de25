"""What a server says, looked at before anybody believes it: to a client, the server is a stranger.

    server --text--> check_frame --> Exchange            server --agents--> agents_in --> chat

What is no frame of a conversation is told as that; names that would not stand in an address are no agents,
since commands with them are shown to be copied.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from websockets.asyncio.client import connect
from websockets.http11 import Response

from ..errors import AgentError
from ..messages import DEEPEST, depth_of
from ..plain import plain

__all__ = ["LONGEST_FRAME", "Direct", "agents_in", "check_frame", "words_of"]

Json = dict[str, Any]
LONGEST_FRAME = 256 * 1024 * 1024
"""Bytes of one frame, also of one that was compressed: a whole conversation fits many times."""
MOST_AGENTS = 1024 * 1024
"""Bytes of the list of a server's agents."""
_IN_ADDRESS = re.compile(r"[A-Za-z0-9_.~%/-]+")


class Direct(connect):
    """A connection to this address and no other: who sends us on could choose a server of ours."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Where to go instead: nowhere."""
        return exc


def words_of(response: Response) -> str:
    """What a refusal says, on one line."""
    if 300 <= response.status_code < 400:
        return plain(f"it says to go to {response.headers.get('Location', 'another address')}")[:300]
    said = bytes(response.body or b"").decode(errors="replace")
    return plain(said[:200].strip().rstrip("."))


def check_frame(text: str | bytes) -> None:
    """Raise an `AgentError` for a text that is no frame, or one of a conversation that cannot be shown."""
    try:
        frame = _read(text)
        if not isinstance(frame, dict):
            raise TypeError("not an object")
        frame = cast("Json", frame)
        match frame.get("type"):
            case "cf_agent_chat_messages":
                _check(list, frame["messages"])
                for message in frame["messages"]:
                    _check_message(message)
            case "cf_agent_message_updated":
                _check_message(frame["message"])
            case "cf_agent_use_chat_response":
                _check(str, frame["id"], frame["body"])
                _check(bool, frame["done"])
                _check(int, frame.get("seq", 0))
                if frame["body"] and not frame["done"] and not frame.get("error"):
                    _check_chunk(frame["body"])
            case "cf_agent_stream_resuming":
                _check(str, frame["id"])
            case "agent-tool-event":
                _check_event(frame["event"])
                _check(int, frame["sequence"])
            case _:
                pass
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise _no_frame() from error


def _check_event(event: Any) -> None:
    _check(dict, event)
    _check(str, event["kind"], event["runId"])
    match event["kind"]:
        case "started":
            _check(str, event["agentType"])
            _check(int, event.get("order", 0))
            _check(dict, event.get("display") or {})
        case "chunk":
            _check(str, event["body"])
            _check_chunk(event["body"])
        case _:
            texts = [event[name] for name in ("summary", "error", "reason") if event.get(name) is not None]
            _check(str, *texts)


def _check_chunk(body: str) -> None:
    chunk = _read(body)
    _check(dict, chunk)
    _check(str, chunk["type"])
    if chunk["type"] == "text-delta":
        _check(str, chunk["delta"])


def _read(text: str | bytes) -> Any:
    if depth_of(text) > DEEPEST:
        raise ValueError("nested too deep to be shown")
    return json.loads(text)


def _check_message(message: Any) -> None:
    _check(dict, message)
    _check(str, message["id"], message["role"])
    _check(list, message["parts"])
    for part in message["parts"]:
        _check(dict, part)
        _check(str, part["type"], *(part[name] for name in ("text", "toolCallId") if name in part))


def _check(kind: type, *values: Any) -> None:
    if not all(isinstance(value, kind) for value in values):
        raise TypeError(f"not all of {kind.__name__}")


def _no_frame() -> AgentError:
    """What the person is told when a server says something else."""
    return AgentError(
        "What the server sent is no frame of a conversation.",
        kept="What was said is kept by the server, if it keeps anything.",
        next_step="Check that the address is that of an agent, and that the server is no other program.",
    )


def agents_in(answer: Any) -> list[Json]:
    """The agents in an answer of a server. Raises `ValueError` when it lists none."""
    text = answer.read(MOST_AGENTS + 1)
    if len(text) > MOST_AGENTS:
        raise ValueError("longer than a list of agents")
    return [one for one in _read(text) if _fits(one["kebab"]) and _fits(one["prefix"])]


def _fits(name: Any) -> bool:
    return isinstance(name, str) and _IN_ADDRESS.fullmatch(name) is not None
