"""Outcomes that arrive from outside the stream: a browser tool's result, a person's approval,
and the result of a call that belongs to an earlier message.

    frame, API, fold's CrossMessage --> new parts (or None: nothing to change)

Pure: parts go in, new parts come out; the ones given are left as they were. The first
final outcome wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from ..messages import Message, Part, is_settled, is_tool_part, tool_name
from .fold import CrossMessage

__all__ = [
    "holder_of",
    "is_pending",
    "settled_across",
    "with_approval",
    "with_result",
]

_TAKES_RESULT = frozenset({"input-available", "approval-requested", "approval-responded"})
_TAKES_APPROVAL = frozenset({"input-available", "approval-requested"})
_WAITS_FOR_BROWSER = frozenset({"input-available"})
_ASKS = frozenset({"approval-requested"})


def _replace_first(
    parts: Sequence[Part], call_id: str, states: frozenset[str], change: Callable[[Part], Part]
) -> list[Part] | None:
    for index, part in enumerate(parts):
        if is_tool_part(part) and part.get("toolCallId") == call_id and part.get("state") in states:
            return [*parts[:index], change(part), *parts[index + 1 :]]
    return None


def _unshown(part: Part) -> Part:
    """A call without what was shown of it while it ran."""
    return {key: value for key, value in part.items() if key not in ("output", "preliminary")}


def with_result(
    parts: Sequence[Part],
    call_id: str,
    *,
    output: Any = None,
    is_error: bool = False,
    error_text: str | None = None,
    is_strangers: bool = False,
) -> list[Part] | None:
    """`parts` with a browser tool's result. `None` when no call waits for it.

    `is_strangers`: a client says so. Then a call that asks for approval does not take a result.
    """

    def change(part: Part) -> Part:
        if is_error:
            return {
                **_unshown(part),
                "state": "output-error",
                "errorText": error_text or "Tool execution denied by user",
            }
        return {**part, "state": "output-available", "output": output, "preliminary": False}

    return _replace_first(parts, call_id, _WAITS_FOR_BROWSER if is_strangers else _TAKES_RESULT, change)


def with_approval(
    parts: Sequence[Part],
    call_id: str,
    *,
    approved: bool,
    reason: str | None = None,
    answers: dict[str, Any] | None = None,
    is_strangers: bool = False,
    to: str | None = None,
) -> list[Part] | None:
    """`parts` with a person's answer. `None` when no call waits for it.

    `answers` is what was filled in, when the tool itself asked: it is shown beside the question.
    `to` is the id of the question that is answered: a call that asks again does not take it.
    `is_strangers`: a client says so. Then only a call that asks takes it.
    """

    def change(part: Part) -> Part:
        before = cast("dict[str, Any]", part.get("approval") or {})
        approval = {**before, "id": before.get("id") or call_id, "approved": approved}
        if reason is not None:
            approval["reason"] = reason
        if answers is not None:
            approval["descriptor"] = {**(before.get("descriptor") or {}), "answers": answers}
        if approved:
            return {**part, "state": "approval-responded", "approval": approval}
        return {**_unshown(part), "state": "output-denied", "approval": approval}

    changed = _replace_first(parts, call_id, _ASKS if is_strangers else _TAKES_APPROVAL, change)
    if changed is not None and to is not None:
        asked = next(part for part in changed if part.get("toolCallId") == call_id)
        if asked["approval"]["id"] != to:
            return None
    return changed


def settled_across(parts: Sequence[Part], outcome: CrossMessage) -> list[Part] | None:
    """`parts` of an earlier message with an outcome streamed later. A final may replace a preliminary."""
    for index, part in enumerate(parts):
        if not is_tool_part(part) or part.get("toolCallId") != outcome.tool_call_id:
            continue
        if is_settled(part):
            return None
        changed = _unshown(part)
        if outcome.approval is not None:  # what was shown of it so far stays to be seen
            changed = {**part, "state": "approval-requested", "approval": outcome.approval}
        elif outcome.is_denied:
            changed["state"] = "output-denied"
        elif outcome.is_error:
            changed["state"] = "output-error"
            changed["errorText"] = outcome.error_text or "Tool execution failed"
        else:
            changed["state"] = "output-available"
            changed["output"] = outcome.output
            changed["preliminary"] = outcome.preliminary
        return [*parts[:index], changed, *parts[index + 1 :]]
    return None


def holder_of(messages: Iterable[Message], call_id: str) -> Message | None:
    """The assistant message that holds a call."""
    for message in messages:
        if message.role == "assistant" and any(p.get("toolCallId") == call_id for p in message.parts):
            return message
    return None


def is_pending(part: Part, client_tools: Iterable[str]) -> bool:
    """True when a call waits for a person: an approval, or a tool that runs in the browser."""
    if not is_tool_part(part):
        return False
    state = part.get("state")
    return state == "approval-requested" or (
        state == "input-available" and tool_name(part) in set(client_tools)
    )
