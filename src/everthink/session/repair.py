"""Mend a conversation that was interrupted, so that every call has an outcome.

    history --> repair --> history the provider accepts (and the rows to rewrite)

Pure and idempotent. Runs before every model call; a conversation without an interrupted call
comes back as the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from ..errors import InvalidMessage, InvalidSettings
from ..messages import SETTLED_STATES, Message, Part, is_tool_part, normalize_input, parse_message
from ..settings import shown

__all__ = ["INTERRUPTED_TEXT", "Repair", "as_interrupted", "mended_by", "repair"]

INTERRUPTED_TEXT = "The tool call was interrupted before a result was recorded."

_STATES = SETTLED_STATES | {"input-streaming", "input-available", "approval-requested", "approval-responded"}
_KINDS = ("text", "reasoning", "file", "source-url", "source-document", "step-start")


@dataclass(slots=True)
class Repair:
    """What was mended: the changed messages, and how many calls and inputs."""

    messages: list[Message] = field(default_factory=list[Message])
    removed_tool_calls: int = 0
    normalized_inputs: int = 0
    tool_call_ids: list[str] = field(default_factory=list[str])


def as_interrupted(part: Part) -> Part:
    """A call that never got its outcome, as a failed one."""
    return {**part, "state": "output-error", "errorText": INTERRUPTED_TEXT}


def mended_by(mend: Callable[[Part], Part], part: Part) -> Part:
    """What the hook makes of a call, which is stored. Raises `InvalidSettings` for what could not be read."""
    made = mend({**part})
    if made == part:
        return part  # left open: the model is not shown it
    try:
        parse_message({"id": "mended", "role": "assistant", "parts": [made]}, new_id=str)
    except InvalidMessage as error:
        raise _refused(made, error.what.replace("message.parts[0]", "part")) from error
    if is_tool_part(made):
        if made["state"] not in _STATES:
            raise _refused(made, f"There is no state {made['state']!r}.")
    elif made["type"] not in _KINDS and not made["type"].startswith("data-"):
        raise _refused(made, f"There are no parts of type {made['type']!r}.")
    return made


def _refused(made: Any, why: str) -> InvalidSettings:
    return InvalidSettings(
        f"repair_interrupted_tool_part returned {shown(made)}. {why}",
        kept="The message is stored as it was.",
        next_step=f"Return the part with a state of {', '.join(sorted(SETTLED_STATES))}, or a part such as "
        '{"type": "text", "text": "…"}.',
    )


def repair(messages: Iterable[Message], mend: Callable[[Part], Part] = as_interrupted) -> Repair:
    """Mend each unsettled call with `mend` and each input that is not an object."""
    found = Repair()
    for message in messages:
        if message.role != "assistant":
            continue
        parts = [_mended(part, mend, found) for part in message.parts]
        if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
            found.messages.append(message.with_parts(parts))
    return found


def _was_approved(part: Part) -> bool:
    approval = part.get("approval")
    return isinstance(approval, dict) and cast("dict[str, Any]", approval).get("approved") is True


def _mended(part: Part, mend: Callable[[Part], Part], found: Repair) -> Part:
    if not is_tool_part(part) or not part.get("toolCallId"):
        return part
    state = part.get("state")
    if state == "approval-responded":
        return part  # about to run
    if part.get("preliminary") and _was_approved(part):
        return {**part, "state": "approval-responded"}  # it had shown how far it was
    settled = (state in SETTLED_STATES or "output" in part or "result" in part) and not part.get(
        "preliminary"
    )
    # A call may fail before any input was readable; its missing input is what happened.
    if not isinstance(part.get("input"), dict):
        part = {**part, "input": normalize_input(part.get("input"))}
        found.normalized_inputs += 1
    if settled:
        return part
    found.removed_tool_calls += 1
    found.tool_call_ids.append(part["toolCallId"])
    mended = mended_by(mend, part)
    if mended.get("state") in SETTLED_STATES:
        stale = ("preliminary",) if mended["state"] == "output-available" else ("preliminary", "output")
        mended = {k: v for k, v in mended.items() if k not in stale}
    return mended
