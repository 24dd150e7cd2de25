"""What a tool asks a person, as a client sees it.

    a part that asks --question_in--> ToolQuestion --> whoever answers it: `Conversation.reply`

Pure. To a client the server is a stranger: what is no question of ours is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from ..messages import Part, tool_name
from ..tools.question import Form, Given, as_shown

__all__ = ["ToolQuestion", "answers_in", "approval_of", "question_in", "said_in", "shown_in"]


@dataclass(frozen=True, slots=True)
class ToolQuestion:
    """Something that a tool asks a person before it goes on."""

    call_id: str
    tool: str
    asks: str
    """Who asks: the name of an MCP server, or nothing when it is the tool itself."""
    forms: Mapping[str, Form]
    """What is to be filled in, by name: a `message`, and a `schema`, or a `url` to go to, or neither."""
    seconds: float | None = None
    """So long it waits, when its call runs meanwhile. `None`: however long it takes."""
    asked: str = ""
    """The id of this question, for `approve(…, asked=…)` and `reply(…, asked=…)`: a call may ask again."""


class _Described(msgspec.Struct):
    kind: str
    forms: dict[str, Form]
    asks: str = ""
    seconds: float | None = None
    answers: dict[str, Given] | None = None


def question_in(part: Part) -> ToolQuestion | None:
    """The question of a call that waits for a person; `None` when it waits for a yes or a no."""
    told = _described(part)
    if told is None:
        return None
    asked = str(_approval(part).get("id") or "")
    return ToolQuestion(part["toolCallId"], tool_name(part), told.asks, told.forms, told.seconds, asked)


def answers_in(part: Part) -> list[tuple[Form, Given]]:
    """What was answered to the question of a call, form by form."""
    told = _described(part)
    given = (told.answers if told is not None else None) or {}
    return [(form, given[name]) for name, form in told.forms.items() if name in given] if told else []


def shown_in(part: Part) -> dict[str, Any] | None:
    """The same as it is shown, by the names of the forms; `None` when nobody has answered."""
    told = _described(part)
    return None if told is None or told.answers is None else as_shown(told.answers)


def said_in(part: Part) -> bool | None:
    """The yes or no that somebody has said to a call; `None` when nobody has."""
    told = _described(part)
    if told is not None and told.answers is not None:
        return all(one.action == "accept" for one in told.answers.values())
    said: Any = _approval(part).get("approved")
    return said if isinstance(said, bool) else None


def _described(part: Part) -> _Described | None:
    try:
        told = msgspec.convert(_approval(part).get("descriptor"), _Described)
    except msgspec.ValidationError:
        return None
    return told if told.kind == "question" and told.forms else None


def approval_of(part: Part) -> str:
    """The id under which a call asks. It is another one when it asks again."""
    return str(_approval(part).get("id", ""))


def _approval(part: Part) -> dict[str, Any]:
    approval: Any = part.get("approval")
    return cast("dict[str, Any]", approval) if isinstance(approval, dict) else {}
