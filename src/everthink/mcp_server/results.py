"""What a tool gives back: words for a model, and the same as JSON for a program.

    Answered, Called --> content (texts), structured content, is it an error?

Pure. A caller reads the words alone, or the JSON alone: each says all that matters. What somebody has to do
is said in words, with the name to do it by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..hooks.values import PendingCall
from ..messages import encode_json
from .asking import Answered
from .calling import Called

__all__ = ["Result", "of_answer", "of_call", "refused"]


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gives back."""

    texts: Sequence[str]
    structured: dict[str, Any] | None = field(default=None)
    is_error: bool = False


def refused(words: str) -> Result:
    """Why nothing was done."""
    return Result([words], is_error=True)


def of_answer(answered: Answered, conversation: str, *, is_new: bool) -> Result:
    """An agent's answer. The first text is what it said."""
    texts = [answered.text] if answered.text else []
    texts += [_waits(call) for call in answered.waits_for]
    if answered.error:
        texts.append(answered.error if answered.status != "error" else f"This did not work: {answered.error}")
    if is_new or answered.waits_for or answered.status == "interrupted":
        texts.append(f"To go on here, give the conversation {conversation!r}.")
    structured: dict[str, Any] = {
        "conversation": conversation,
        "status": answered.status,
        "text": answered.text,
    }
    if answered.error:
        structured["error"] = answered.error
    if answered.waits_for:
        structured["waits_for"] = [_as_json(call) for call in answered.waits_for]
    return Result(texts or ["(The agent said nothing.)"], structured, answered.status == "error")


def _waits(call: PendingCall) -> str:
    given = encode_json(call.input).decode()
    if call.kind == "approval":
        return (
            f"The agent wants to call {call.tool_name} with {given} and waits until a person allows it: where"
            " people talk to this agent, not here. The turn has ended; it goes on after their answer."
        )
    return (
        f"The agent has called {call.tool_name} with {given}, which runs in a person's browser, and waits for"
        " one that is connected. The turn has ended; it goes on with the result."
    )


def _as_json(call: PendingCall) -> dict[str, Any]:
    return {"tool": call.tool_name, "kind": call.kind, "call": call.tool_call_id, "input": call.input}


def of_call(called: Called) -> Result:
    """What a method returned."""
    if called.error is not None:
        return refused(called.error)
    value = called.result
    text = value if isinstance(value, str) else encode_json(value).decode()
    structured: dict[str, Any] = {"result": value}
    if called.pieces:
        structured["pieces"] = called.pieces
    return Result([text], structured)
