"""`Executions`: what the code of models has done for one agent, and what of it waits for a person.

    Executions.of(agent).pending() --> what people are asked
                        .list(), .get(id), .expire(), .prune(), .delete(id)

A person answers through the call that asks, as for any tool: `apply_tool_approval`. What has waited for too
long is closed by `expire`; an answer that comes later is told so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast, get_args

from ..clock import Clock, moment_of
from ..errors import InvalidSettings
from ..journal.ledger import approval_of
from ..messages import Part, is_settled
from ..sandbox.port import Sandbox
from ..settings import shown
from ..store.port import AgentStore, Statement
from . import queries
from .queries import CallRow, CallState, ExecutionRow, ExecutionState
from .values import text_of, value_of

__all__ = [
    "CUT_OFF",
    "EXPIRED",
    "FORGOTTEN",
    "KEPT",
    "REJECTED",
    "STOPPED",
    "Executions",
    "Made",
    "Past",
    "Pending",
]

KEPT = 50
"""So many that are over are kept of an agent."""
EXPIRED = "Nobody answered in time, and the execution was closed. What it did before that stays done."
GAVE_UP = "It did not come to an end, and was closed. What it did before that stays done."
REJECTED = "A person said no, and the execution was closed. What it did before that stays done."

CUT_OFF = (
    "It still ran when its execution ended, and was cut off. It may or may not have taken effect: check"
    " before you call it again."
)
STOPPED = "A person stopped it. What it did before that stays done."
FORGOTTEN = (
    "The execution was deleted while it waited for a person, and its log with it. Nothing was run now;"
    " what it did before that stays done. Look what is done, and write code for the rest."
)
LEFT = (
    "The conversation went on without an answer, and the execution was closed. What it did before that stays"
    " done."
)


@dataclass(frozen=True, slots=True)
class Made:
    """A call that code has made."""

    seq: int
    """Its place among the calls of its execution, from 1 on."""
    name: str
    input: Any
    state: CallState
    output: Any = None
    """What it gave; of one that failed, the words."""


@dataclass(frozen=True, slots=True)
class Past:
    """An execution: under way, waiting or over."""

    id: str
    """The id of the call that brought the code."""
    tool: str
    language: str
    code: str
    state: ExecutionState
    began_at: datetime
    changed_at: datetime
    outcome: dict[str, Any] | None = None
    """What the tool gave, once it is over."""
    calls: tuple[Made, ...] = ()
    """Of `get` alone."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that waits for a person."""

    execution: str
    """Answer it: `agent.apply_tool_approval(execution, True, asked=asked)`."""
    seq: int
    name: str
    input: Any
    """All of it, as it will run."""
    asked: str | None = None
    """The id of this question: an answer that names it is not taken for what the code asks next."""


class Executions:
    """The executions of one agent."""

    def __init__(
        self,
        store: AgentStore,
        clock: Clock,
        sandboxes: Any,
        *,
        answers: Any,
    ) -> None:
        """`answers` are the door's; `None` of an agent that does not chat."""
        self.store, self.clock, self._sandboxes = store, clock, sandboxes
        self._answers = answers

    async def _part_of(self, id: str) -> Part | None:
        return None if self._answers is None else await self._answers.part_of(id)

    @classmethod
    def of(cls, agent: Any) -> Executions:
        """Those of an agent that is in memory."""
        own = None if isinstance(agent, type) else getattr(agent, "_executions", None)
        if own is None:
            raise InvalidSettings(
                f"Executions.of() takes an agent that is in memory, not {shown(agent)}.",
                next_step="Within the agent that is `self`; from outside, hold it:"
                ' `async with app.agent(Shop, "one") as shop: Executions.of(shop)`.',
            )
        return own()

    def sandbox(self, language: str) -> Sandbox:
        """Where code of a language runs, for all agents of this process."""
        return self._sandboxes.of(language)

    async def list(
        self, *, states: Sequence[ExecutionState] = (), tool: str | None = None, limit: int = 50
    ) -> list[Past]:
        """The latest ones, the newest first."""
        wanted = (states,) if isinstance(states, str) else tuple(states)
        if unknown := [state for state in wanted if state not in get_args(ExecutionState)]:
            raise InvalidSettings(
                f"list(states=…) has no state {shown(unknown[0])}.",
                next_step=f"The states are {', '.join(get_args(ExecutionState))}.",
            )
        await self._close_left()
        rows = await queries.executions(self.store, states=wanted, runtime=tool, limit=max(0, limit))
        return [_past(row) for row in rows]

    async def get(self, id: str) -> Past | None:
        """One, with its calls."""
        await self._close_left()
        row = await queries.found(self.store, id)
        if row is None:
            return None
        calls = tuple(
            Made(
                call.seq + 1,
                call.tool,
                value_of(call.input),
                call.state,
                _gave(call),
            )
            for call in await queries.calls_of(self.store, id)
        )
        return _past(row, calls)

    async def pending(self, id: str | None = None) -> list[Pending]:
        """What people are asked in this conversation, the newest execution first.

        Not what another answer to the same message has asked, or another session: there it waits until
        somebody comes back to it, or `expire` closes it.
        """
        await self._close_left()
        found: list[Pending] = []
        for row in await queries.executions(self.store, states=("paused",), limit=1_000):
            if id is None or row.id == id:
                part = await self._part_of(row.id) or {}
                if part.get("state") != "approval-requested":
                    continue  # on another branch; or somebody has said yes, and it goes on with the next turn
                approval = cast("dict[str, Any]", part.get("approval") or {})
                found += [
                    Pending(row.id, call.seq + 1, call.tool, value_of(call.input), approval.get("id"))
                    for call in await queries.calls_of(self.store, row.id)
                    if call.state == "pending"
                ]
        return found

    async def _is_settled(self, id: str) -> bool:
        part = await self._part_of(id)
        return part is not None and is_settled(part)

    async def _close_left(self) -> None:
        """Close what waits for an answer that cannot come: a no ends the call that asks, and so does a person
        who writes something else. Nobody runs that code again to hear so."""
        for row in await queries.executions(self.store, states=queries.OPEN, limit=1_000):
            if row.state == "running":
                if await self._is_settled(row.id):  # its turn was broken off, and the conversation went on
                    await self.store.apply(self.closing(row.id, "error"))
                continue
            asked = await approval_of(self.store, row.id, running="")
            if asked is not None and asked.state == "denied":
                await self.store.apply(self.closing(row.id, "rejected", REJECTED))
            elif asked is not None and asked.state in ("open", "over") and await self._is_settled(row.id):
                # Answered, and over all the same: its tool is not there any more. Else somebody has left it.
                question = asked.question
                is_gone = asked.state == "over" and question is not None and question.answers is not None
                end = self.closing(row.id, "error") if is_gone else self.closing(row.id, "rejected", LEFT)
                await self.store.apply(end)

    async def expire(self, *, max_age: float | timedelta = timedelta(hours=24)) -> list[str]:
        """Close what has waited or run for longer, and say which."""
        seconds: Any = max_age.total_seconds() if isinstance(max_age, timedelta) else max_age
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e12:
            raise InvalidSettings(
                f"expire(max_age={shown(max_age)}) is no time above zero.",
                kept="Nothing was closed.",
                next_step="Give seconds or a timedelta: expire(max_age=timedelta(hours=24)).",
            )
        now = self.clock.now_ms()
        closed: list[str] = []
        for id, state in await queries.grown_old(self.store, now - int(seconds * 1000)):
            await self.store.apply(self.closing(id, "rejected" if state == "paused" else "error"))
            closed.append(id)
        return closed

    def closing(self, id: str, state: ExecutionState, words: str | None = None) -> list[Statement]:
        """What closes an execution that has no end of its own."""
        told = words or (EXPIRED if state == "rejected" else GAVE_UP)
        outcome = text_of({"status": "error", "executionId": id, "error": told})
        now = self.clock.now_ms()
        cut_off = queries.cut_off(id, outcome=text_of(CUT_OFF), now=now)
        return [cut_off, *queries.closed(id, state, outcome=outcome, now=now)]

    async def delete(self, id: str) -> bool:
        """Forget an execution, with its log. One that waits is closed by it, and so is what it asks."""
        if await queries.found(self.store, id) is None:
            return False
        asks = (await self._part_of(id) or {}).get("state") == "approval-requested"
        forgotten = queries.forgotten(id)
        is_closed = asks and await self._answers.apply_result(
            id, None, is_error=True, error_text=FORGOTTEN, more=forgotten
        )
        if not is_closed:  # nobody is asked: or it is answered at this very moment
            await self.store.apply(forgotten)
        return True

    async def prune(self, keep: int = KEPT) -> int:
        """Forget all that are over but the newest. It happens by itself whenever one begins."""
        await self._close_left()
        ids = await queries.kept(self.store, max(0, keep))
        if ids:
            await self.store.apply(queries.pruned(ids))
        return len(ids)


def _gave(call: CallRow) -> Any:
    """What a call gave; of one that has no result the words, all of them: this is for those who run it."""
    if call.outcome is None:
        return None
    return value_of(call.outcome) if call.state == "done" else queries.told_words(call)


def _past(row: ExecutionRow, calls: tuple[Made, ...] = ()) -> Past:
    return Past(
        row.id,
        row.runtime,
        row.language,
        row.code,
        row.state,
        moment_of(row.began_at),
        moment_of(row.changed_at),
        None if row.outcome is None else value_of(row.outcome),
        calls,
    )
