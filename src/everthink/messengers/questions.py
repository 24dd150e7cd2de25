"""Approvals as messages with two buttons: what is asked, who may answer, what is shown afterwards.

    a turn ends with a call that asks --ask--> a message with Approve and Deny
    somebody presses one --Press.read--> which question, yes or no --may_answer--> the call goes on, or not
                                                                   --decided--> the message says who decided

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec

from ..messages import Message, Part, encode_json, is_tool_part, tool_name
from .values import Author, Button, Draft, MessengerEvent, Target

__all__ = ["QUESTION", "Press", "asked_by", "may_answer"]

_LONGEST = 1_500
"""Characters of a call's input that are shown."""


class Press(NamedTuple):
    """A button that was pressed: which question, and yes or no."""

    key: str
    """The delivery's key: see `Sender.key`."""
    approved: bool

    @classmethod
    def read(cls, event: MessengerEvent) -> Press | None:
        """The answer to a question of ours; `None` for any other button."""
        found = (
            None
            if event.action is None
            else re.fullmatch(r"et:([0-9a-f]{24}):([yn])", event.action.action_id)
        )
        return None if found is None else cls(found[1], found[2] == "y")


def asked_by(answer: Message) -> dict[str, Part]:
    """The calls of a message that wait for approval."""
    return {
        str(part["toolCallId"]): part
        for part in answer.parts
        if is_tool_part(part) and part.get("state") == "approval-requested"
    }


def may_answer(target: Target, author: Author, approvers: Sequence[str] | None) -> bool:
    """True when somebody may say yes or no: an approver, or, where none are named, whoever asked."""
    if approvers is not None:
        return author.user_id in approvers
    return target.user is not None and author.user_id == target.user


class _Question:
    closed = "This question is closed."
    not_yours = "This is not yours to decide."
    decided_before = "Somebody has decided this already."
    elsewhere = "Please answer this on the page."

    def ask(self, part: Part, key: str) -> Draft:
        """The message that asks about a call."""
        forms = _forms(part)
        if forms is not None:
            asks = "\n\n".join(forms)
            if _needs_fields(part):
                return Draft(text=f"{asks}\n\n_{self.elsewhere}_")
            return Draft(text=asks, buttons=_buttons(key, "Yes", "No"))
        given: Any = part.get("input")
        shown = msgspec.json.format(encode_json(given)).decode() if given not in (None, {}) else ""
        if len(shown) > _LONGEST:
            shown = f"{shown[:_LONGEST]}\n…"
        body = f"\n\n```json\n{shown}\n```" if shown else ""
        return Draft(
            text=f"**May I use `{tool_name(part)}`?**{body}", buttons=_buttons(key, "Approve", "Deny")
        )

    def decided(self, *, approved: bool, by: str | None) -> str:
        """What the message says once somebody has decided."""
        word = "Approved" if approved else "Denied"
        return f"{'✅' if approved else '🚫'} {word}{f' by {by}' if by else ''}."


QUESTION = _Question()


def _buttons(key: str, yes: str, no: str) -> tuple[Button, ...]:
    return (
        Button(id=f"et:{key}:y", label=yes, style="primary"),
        Button(id=f"et:{key}:n", label=no, style="danger"),
    )


def _described(part: Part) -> dict[str, Any]:
    approval: Any = part.get("approval")
    described = cast("dict[str, Any]", approval).get("descriptor") if isinstance(approval, dict) else None
    return cast("dict[str, Any]", described) if isinstance(described, dict) else {}


def _forms(part: Part) -> list[str] | None:
    """What a tool itself asks; `None` for a call that asks for approval."""
    described = _described(part)
    if described.get("kind") != "question":
        return None
    forms: Any = described.get("forms") or {}
    return [str(form.get("message", "")) for form in forms.values()]


def _needs_fields(part: Part) -> bool:
    forms: Any = _described(part).get("forms") or {}
    return any(form.get("schema") or form.get("url") for form in forms.values())
