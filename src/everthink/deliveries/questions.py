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

from ..consent import asked_input
from ..messages import Message, Part, encode_json, is_tool_part, tool_name
from ..messengers.values import Author, Button, Draft, MessengerEvent, Target
from ..words import clean

__all__ = ["QUESTION", "Press", "asked_by", "may_answer"]

_LONGEST = 1_500
"""Characters of a call's input that are shown."""
_MARKS = str.maketrans("[]<>`", "()‹›'", "*~|")
"""What a platform reads as markup, in a name."""


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
    return bool(target.user) and author.user_id == target.user


class _Question:
    closed = "This question is closed."
    passed = "⌛ Closed: the conversation went on before anybody decided."
    stopped = "⌛ Closed: stopped before anybody decided."
    not_yours = "This is not yours to decide."
    elsewhere = "Please answer this on the page."

    def ask(self, part: Part, key: str, *, by: str | None = None, can_press: bool = True) -> Draft:
        """The message that asks about a call. `by`: who asks, when it is not the one who was spoken to.
        `can_press`: whether the platform has buttons."""
        asks, has_forms = self._asks(part, by), _forms(part) is not None
        if not can_press or (has_forms and _needs_fields(part)):
            return Draft(text=f"{asks}\n\n_{self.elsewhere}_")
        yes, no = ("Yes", "No") if has_forms else ("Approve", "Deny")
        return Draft(text=asks, buttons=_buttons(key, yes, no))

    def _asks(self, part: Part, by: str | None) -> str:
        """What is asked."""
        forms = _forms(part)
        if forms is not None:
            return "\n\n".join(forms if by is None else [f"**{by} asks:**", *forms])
        given: Any = part.get("input")
        shown, left = "", 0
        if given not in (None, {}):
            shown, left = asked_input(given, _LONGEST, write=_written)
        body = f"\n\n```json\n{shown}\n```" if shown else ""
        if left:
            body += f"\n\n⚠️ {left:,} characters of it are not shown here; the page shows all."
        return f"**{_asking(tool_name(part), by)}**{body}"

    def with_outcome(self, part: Part, outcome: str, *, by: str | None = None) -> str:
        """What was asked, and below it what became of it."""
        return f"{self._asks(part, by)}\n\n{outcome}"

    def decided_before(self, body: str | None) -> str:
        """What whoever comes too late is told. `body`: what the message says since."""
        outcome = (body or self.closed).rpartition("\n\n")[2]
        return (
            outcome if outcome in (self.closed, self.passed, self.stopped) else f"Decided already: {outcome}"
        )

    def became(self, part: Part) -> str:
        """What the message says once a call waits for nobody any more."""
        approval: Any = part.get("approval") or {}
        if part.get("state") == "approval-responded" or approval.get("approved") is not None:
            return self.decided(approved=approval.get("approved") is True, by=None)
        return self.decided(approved=False, by=None) if part.get("state") == "output-denied" else self.passed

    def decided(self, *, approved: bool, by: str | None) -> str:
        """What the message says once somebody has decided."""
        word = "Approved" if approved else "Denied"
        return f"{'✅' if approved else '🚫'} {word}{f' by {_unmarked(by)}' if by else ''}."


QUESTION = _Question()


def _asking(tool: str, by: str | None) -> str:
    return f"May I use `{tool}`?" if by is None else f"{by} asks: may it use `{tool}`?"


def _written(given: Any) -> str:
    """As JSON that nothing in it can end the block of."""
    return msgspec.json.format(encode_json(given)).decode().replace("```", "\\u0060" * 3)


def _unmarked(name: str) -> str:
    """A name as itself: not as a link, nor in bold."""
    return name.translate(_MARKS)


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
    return [clean(form.get("message", ""), _LONGEST) for form in forms.values()]


def _needs_fields(part: Part) -> bool:
    forms: Any = _described(part).get("forms") or {}
    return any(form.get("schema") or form.get("url") for form in forms.values())
