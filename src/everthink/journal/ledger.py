"""What the ledger says about one call, whoever asks: is it open, was it approved, with which input?

    ChatSockets, turn/calls --call id--> ledger --> what may be done about it

A transcript can be shown, copied and shortened; what may still be said about a call is decided here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ..identity import Approver
from ..store.port import AgentStore
from ..tools.question import Answer, Form, Given
from . import queries

__all__ = [
    "Asked",
    "Asking",
    "approval_of",
    "asks_again",
    "is_for_people",
    "is_open",
    "open_calls",
    "question_of",
    "was_called",
]

_OPEN = ("asked", "approved", "denied")


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that asked for approval."""

    turn: str
    """The turn that asked."""
    tool: str
    state: Literal["open", "approved", "denied", "taken", "over"]
    """`taken`: a turn has begun to run it, and how it ended is not known. `over`: it has run."""
    input: Any
    by: Approver | None = None
    """Who said yes."""
    question: Asking | None = None
    """What it asks a person, when it is a tool's own question."""


class Asking(msgspec.Struct, frozen=True):
    """A question of a tool, as the ledger keeps it."""

    forms: dict[str, Form]
    state: Any = None
    answers: dict[str, Given] | None = None

    @property
    def answer(self) -> Answer | None:
        """What the tool is told when it goes on."""
        return None if self.answers is None else Answer(self.answers, self.state, self.forms)


async def was_called(store: AgentStore, call_id: str) -> bool:
    """True when the ledger has a call of this id, of any turn."""
    return bool(await store.fetch(queries.WAS_CALLED, call_id))


async def is_for_people(store: AgentStore, call_id: str) -> bool:
    """True when a call may have asked a person something, whoever has answered: not one of a browser."""
    rows = await store.fetch(queries.CALL, call_id)
    return any(row[3].partition(":")[0] != queries.CLIENT for row in rows)


async def is_open(store: AgentStore, call_id: str, *, in_browser: bool, by: str | None = None) -> bool:
    """True when somebody may answer: a call that runs in a browser, or one that asks for approval.

    `by` is the mark of who would: a tool that one person's window declared is nobody else's to answer.
    """
    rows = await store.fetch(queries.CALL, call_id)
    if not rows or rows[0][2] != "asked":
        return False
    who: str = rows[0][3]
    if not in_browser:
        return who.partition(":")[0] != queries.CLIENT
    return who in (queries.CLIENT, queries.client_of(by))


async def asks_again(store: AgentStore, call_id: str) -> bool:
    """True when what a call asks is not the first that it has asked: somebody has answered before."""
    return len(await store.fetch(queries.CALL, call_id)) > 1


async def open_calls(store: AgentStore, tools: Collection[str]) -> list[str]:
    """The calls of these tools that wait for an answer."""
    return [call_id for call_id, tool in await store.fetch(queries.OPEN_CALLS) if tool in tools]


async def approval_of(store: AgentStore, call_id: str, *, running: str) -> Asked | None:
    """What was asked about a call, and the answer. `None` for one the ledger never saw (`add_messages`).

    `running` is the turn that is about to run it: its own row is no answer to anything. One yes is for one
    run, whichever branch, session or turn comes by.
    """
    rows = [row for row in await store.fetch(queries.CALL, call_id) if row[0] != running]
    if not rows:
        return None
    states: set[queries.CallState] = {row[2] for row in rows}
    # Of a call that asks and asks again, one question is the present one: the others have been run.
    asking = [row for row in rows if row[6] is not None and row[2] in _OPEN]
    if asking and not states & {"done", "failed"}:
        turn, tool, state, _, text, who, question = asking[0]
        is_open: Any = "open" if state == "asked" else state
        return Asked(turn, tool, is_open, _value(text), Approver.of(_value(who)), _asking(question))
    turn, tool, state, _, text, who, _ = rows[-1]  # the oldest: later ones are turns that ran it
    # One that was begun with an answer and cut off has it still.
    answered = None if rows[0][6] is None else _asking(rows[0][6])
    return Asked(turn, tool, _approval(state, states), _value(text), Approver.of(_value(who)), answered)


async def question_of(store: AgentStore, call_id: str) -> Asking | None:
    """What a call asks a person, if it is open."""
    rows = await store.fetch(queries.CALL, call_id)
    return next((_asking(row[6]) for row in rows if row[6] is not None and row[2] == "asked"), None)


def _approval(
    state: queries.CallState, states: set[queries.CallState]
) -> Literal["open", "approved", "denied", "taken", "over"]:
    if states & {"done", "failed"}:
        return "over"
    if states & {"started", "unknown"}:
        return "taken"
    if state == "approved":
        return "approved"
    return "denied" if state == "denied" else "open"


def _asking(text: str) -> Asking:
    return msgspec.json.decode(text, type=Asking)


def _value(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
