"""A tool that has to ask a person something before it can go on.

    body --raise Question--> turn/calls: kept in the ledger, shown with a form; the turn ends
    a person's answer --> a continuation --> the body once more, with `ctx.answer`

A question outlives the process: what the tool needs to go on is its `state`, any JSON value, which comes back
with the answer and is shown to nobody. Pure: values, and the checks of what a stranger answers.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import msgspec

from .json_input import misfits

__all__ = [
    "Action",
    "Answer",
    "Form",
    "Given",
    "LiveQuestion",
    "Question",
    "as_shown",
    "descriptor",
    "read_answer",
    "yes_to",
]

Action = Literal["accept", "decline", "cancel"]
_ACTIONS = ("accept", "decline", "cancel")
MAX_FORMS = 8


class Form(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something to fill in, or an address to go to."""

    message: str
    schema: dict[str, Any] = {}
    """The JSON schema of the fields, an object. Empty: there is nothing to fill in but yes or no."""
    url: str | None = None
    """Where the person has to go. Nobody opens it for them."""


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person did with a form."""

    action: Action
    content: dict[str, Any] | None = None


class Answer(msgspec.Struct, frozen=True):
    """What a person answered to the question that this tool asked before."""

    forms: dict[str, Given]
    state: Any = None
    """What the tool had kept with its question."""
    asked: dict[str, Form] = {}
    """What the person was asked."""


class Question(Exception):
    """Raised by the body of a tool: it goes on once a person has answered."""

    def __init__(self, forms: Mapping[str, Form], *, state: Any = None, asks: str = "") -> None:
        super().__init__("; ".join(form.message for form in forms.values()))
        self.forms, self.state, self.asks = dict(forms), state, asks


@dataclass(slots=True)
class LiveQuestion:
    """A question of a call that runs, and waits for the answer."""

    id: str
    """The id it is shown with."""
    forms: dict[str, Form]
    answered: asyncio.Future[dict[str, Given]]


def descriptor(question: Question, *, seconds: float | None = None) -> dict[str, Any]:
    """What a page is shown of a question, as the `descriptor` of the call's approval.

    `seconds`: so long the call waits for the answer, running. `None`: it waits however long it takes.
    """
    forms = {name: msgspec.to_builtins(form) for name, form in question.forms.items()}
    waits = {} if seconds is None else {"seconds": seconds}
    return {"kind": "question", "asks": question.asks, "forms": forms, **waits}


def as_shown(given: Mapping[str, Given]) -> dict[str, Any]:
    """What was answered, by the names of the forms, for those who look at the question afterwards."""
    return {
        name: msgspec.to_builtins(one if one.action == "accept" else Given(one.action))
        for name, one in given.items()
    }


def yes_to(forms: Mapping[str, Form]) -> dict[str, Given] | str:
    """What a plain yes means: every form as it is. Words, when one has fields that must be filled in."""
    return _checked(forms, {name: Given("accept", {}) for name in forms})


def read_answer(forms: Mapping[str, Form], output: Any) -> dict[str, Given] | str:
    """What somebody answered: `{"action": "accept", "content": {…}}`, for several forms by their names below
    `"answers"`. Words, when it is no answer to these forms."""
    if not isinstance(output, dict):
        return 'An answer is {"action": "accept", "content": {…}}, or "decline" or "cancel".'
    said = cast("dict[str, Any]", output)
    by_name: Any = said.get("answers", {next(iter(forms)): said} if len(forms) == 1 else None)
    if not isinstance(by_name, dict) or set(cast("dict[str, Any]", by_name)) != set(forms):
        return f"An answer is wanted for each of: {', '.join(map(repr, forms))}."
    given: dict[str, Given] = {}
    for name, one in cast("dict[str, Any]", by_name).items():
        fields = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        content = fields.get("content")
        if fields.get("action") not in _ACTIONS or not isinstance(content, dict | None):
            actions = ", ".join(_ACTIONS)
            return f"The answer to {name!r} has no action of {actions}, or a content that is no object."
        given[name] = Given(fields["action"], cast("dict[str, Any] | None", content))
    return _checked(forms, given)


def _checked(forms: Mapping[str, Form], given: dict[str, Given]) -> dict[str, Given] | str:
    for name, one in given.items():
        if one.action != "accept" or not forms[name].schema:
            continue
        content, schema = one.content or {}, forms[name].schema
        problems = [*misfits(content, schema), *_misspelt(content, schema)]
        if problems:
            return f"What was filled in does not fit: {problems[0]}."
    return given


def _misspelt(content: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """The texts of a form that are not written as they should be: an address, a day, a time."""
    fields = schema.get("properties")
    found: list[str] = []
    for name, rules in cast("dict[str, Any]", fields if isinstance(fields, dict) else {}).items():
        value, kind = content.get(name), cast("dict[str, Any]", rules).get("format") if rules else None
        if isinstance(value, str) and kind in _FORMATS and not _FORMATS[kind](value):
            found.append(f"{name} should be {_WRITTEN[kind]} (got {value[:60]!r})")
    return found


def _is_email(text: str) -> bool:
    before, at, after = text.rpartition("@")
    return bool(before and at and after) and not any(sign.isspace() for sign in text)


def _is_link(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path))


def _is_time(kind: type[datetime.date]) -> Callable[[str], bool]:
    def reads(text: str) -> bool:
        try:
            kind.fromisoformat(text)
        except ValueError:
            return False
        return True

    return reads


_FORMATS: dict[Any, Callable[[str], bool]] = {
    "email": _is_email,
    "uri": _is_link,
    "date": _is_time(datetime.date),
    "date-time": _is_time(datetime.datetime),
}
_WRITTEN: dict[Any, str] = {
    "email": "an e-mail address",
    "uri": "a web address, such as https://my.page",
    "date": "a day, such as 2026-12-24",
    "date-time": "a time, such as 2026-12-24T18:30:00+01:00",
}
