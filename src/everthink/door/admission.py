"""The one door. Every turn comes in here: from code, a socket, a submission, a tool result, recovery.

    caller --Turn--> admit: row `accepted` (durable) --> queue --> perform --> response hook

Nobody is told yes before the row is committed. A place in the queue is taken before the commit,
so the order of acceptance is the order of running. The response hook runs after the place is
given up, one hook at a time, so it may start turns itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..abort import AbortController, AbortSignal
from ..current import InTurn, current_connection, enclosing_turns, in_active_turn
from ..errors import (
    UNTOLD,
    InvalidTurn,
    NestedTurn,
    StoreClosed,
    is_elsewhere,
    is_for_people,
)
from ..hooks.values import TurnResult
from ..journal import queries
from ..journal.feed import (
    HistoryChanged,
    TurnAccepted,
    TurnEnded,
)
from ..journal.turn import (
    SUBMITTED,
    InputFunction,
    Trigger,
    Turn,
)
from ..journal.turn_input import encode_input
from ..masking import mask
from ..messages import UNSET, Message, Unset
from ..observe.events import ChatTurnBrokeOff
from ..session.said_before import refuse_other_words
from ..session.tree import Plan
from ..settings import shown
from ..store.port import Statement
from ..tools.tool import Tool
from ..turn.attempt import perform
from ..turn.ending import close, end_unstarted
from ..turn.host import TurnHost, interrupted
from ..turn.outcome import Outcome, Postponed
from .numbers import TurnNumbers
from .queue import Ticket, TurnQueue

__all__ = ["Admitted", "Door", "Record"]

log = logging.getLogger("everthink.turn")

# The agents whose response hook this code runs inside of.
_HOOK: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("everthink_hook", default=frozenset())


@dataclass(frozen=True, slots=True)
class Record:
    """What a submission's row keeps besides its input."""

    metadata: str | None = None
    key: str | None = None


class Admitted:
    """An accepted turn. `await result()` for its end."""

    def __init__(self, agent: str, turn: Turn, abort: AbortController) -> None:
        self._agent, self.turn, self.abort = agent, turn, abort
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    async def outcome(self) -> Outcome:
        """The turn's end, and the end of its response hook (unless asked from inside a hook)."""
        assert self.task is not None
        if self._agent in _HOOK.get():
            # The hook we are in must return before the next one is called: do not wait for that.
            return await asyncio.shield(self.ended)
        await asyncio.wait([self.task])
        return self.ended.result()

    async def result(self) -> TurnResult:
        """The turn's result. A turn that could not be set up raises what kept it from it."""
        outcome = await self.outcome()
        outcome.raise_setup_failure()
        return outcome.result()


class Door:
    """Admits the turns of one agent."""

    __slots__ = (
        "_admitting",
        "_hooks",
        "_host",
        "_numbers",
        "_open",
        "entering",
        "is_closed",
        "last_found",
        "queue",
    )

    def __init__(self, host: TurnHost) -> None:
        self._host = host
        self.queue = TurnQueue()
        self._numbers = TurnNumbers(host.save_value)
        self.last_found = 0
        """The number that turns of an earlier process may have at most: greater ones are of this one."""
        self._hooks = asyncio.Lock()
        self._open: dict[Admitted, None] = {}
        self._admitting: dict[asyncio.Future[Admitted], None] = {}
        self.entering: tuple[str, ...] = ()
        """The ids of requests that are looked at: no other one may have them."""
        self.is_closed = False

    @property
    def running(self) -> dict[str, asyncio.Task[None]]:
        """The tasks of the turns that run or wait, by the ids of their turns."""
        return {a.turn.id: a.task for a in self._open if a.task is not None and not a.task.done()}

    async def load(self, mark: int | None) -> None:
        """Learn which numbers turns have had, with the mark that was kept. Before anything is accepted."""
        self.last_found = await self._numbers.load(self._host.store, mark)

    # --- making a turn

    def new_turn(
        self,
        trigger: Trigger,
        *,
        input: list[Message] | None = None,
        compute_input: InputFunction | None = None,
        request_id: str | None = None,
        continuation: bool = False,
        parent: str | Unset | None = UNSET,
        body: dict[str, Any] | None = None,
        client_tools: Mapping[str, Tool] | None = None,
        channel: str | None = None,
        metadata: dict[str, Any] | None = None,
        id: str | None = None,
        generation: int | None = None,
    ) -> Turn:
        """A turn with its ids and its signal, not yet accepted."""
        host = self._host
        request = request_id or host.new_id()
        signal = host.aborts.signal(request)
        assert signal is not None
        return Turn(
            id=id or host.new_id(),
            request_id=request,
            trigger=trigger,
            message_id=host.new_id(),
            signal=signal,
            generation=host.generation if generation is None else generation,
            admission="execute-submission" if trigger in SUBMITTED else "queue",
            continuation=continuation,
            input=input or [],
            compute_input=compute_input,
            parent=parent,
            body=body,
            client_tools=client_tools or {},
            channel=channel,
            metadata=metadata,
            identity=self._asker(),
        )

    def _asker(self) -> Any:
        """Who asks for a turn: whoever asked for the one that this code is part of, or is served by it."""
        id, caller = self._host.id, current_connection.get()
        outer = (turn.identity for turn in reversed(enclosing_turns.get()) if turn.agent == id)
        served = caller.who if caller is not None and caller.agent_id == id else None
        return next(outer, None) or served

    def refuse_nested(self, trigger: Trigger) -> None:
        """Raise when called from inside a turn of this agent: waiting for it would never end."""
        if in_active_turn(self._host.id):
            raise NestedTurn(trigger)

    def refuse_waiting(self, method: str) -> None:
        """Raise when called from inside a turn of this agent that is not over: `method` waits until it is."""
        inside = {turn.id for turn in enclosing_turns.get() if turn.agent == self._host.id}
        if inside and any(turn.id in inside for turn in self._host.turns):
            raise NestedTurn("", waits=method)

    # --- accepting it

    async def admit(
        self,
        turn: Turn,
        *,
        external: AbortSignal | None = None,
        plan: Callable[[], Plan] | None = None,
        more: Sequence[Statement] = (),
    ) -> Admitted:
        """Accept `turn`: its row is durable when this returns, and it runs when those before it are done.

        What `plan()` returns and `more` ride in the same commit (a socket's messages are stored on arrival).
        """
        return await asyncio.shield(self.admitting(turn, external=external, plan=plan, more=more))

    def admitting(
        self,
        turn: Turn,
        *,
        external: AbortSignal | None = None,
        plan: Callable[[], Plan] | None = None,
        more: Sequence[Statement] = (),
        record: Record | None = None,
    ) -> asyncio.Future[Admitted]:
        """`admit`, for whoever may come back to wait for it: its place in the queue is taken already."""
        self._refuse_when_closed()
        _check_signal(external)
        ticket = self.queue.reserve(turn.request_id, turn.generation)
        # Whoever asked may stop waiting, but a row that is being written cannot be taken back:
        # from here on the turn goes its own way.
        admitting = asyncio.ensure_future(self._admit(turn, ticket, external, plan, more, record))
        self._admitting[admitting] = None
        admitting.add_done_callback(self._admitting.pop)
        return admitting

    async def _admit(
        self,
        turn: Turn,
        ticket: Ticket,
        external: AbortSignal | None,
        plan: Callable[[], Plan] | None,
        more: Sequence[Statement],
        record: Record | None,
    ) -> Admitted:
        try:
            await self._accept(turn, ticket, plan, more, record)
        except BaseException:
            ticket.release()
            self._host.aborts.remove(turn.request_id, turn.signal)
            raise
        return self.enqueue(turn, ticket, external=external)

    async def record(self, turn: Turn, record: Record, more: Sequence[Statement] = ()) -> None:
        """Write the row of a turn that is entered later: a submission. It is durable when this returns, and
        so is `more`, which must exist together with it."""
        self._refuse_when_closed()
        try:
            await self._accept(turn, None, None, more, record)
        except BaseException:
            self._host.aborts.remove(turn.request_id, turn.signal)
            raise

    def _refuse_when_closed(self) -> None:
        if self.is_closed:
            raise StoreClosed(
                "The agent is shutting down.", kept="Nothing was stored.", next_step="Send it again."
            )

    async def _accept(
        self,
        turn: Turn,
        ticket: Ticket | None,
        plan: Callable[[], Plan] | None,
        more: Sequence[Statement],
        record: Record | None = None,
    ) -> None:
        host = self._host
        await host.session.note_stored_ids(turn.input)
        if plan is None and turn.input:  # a window's request has looked at its own
            waiting = [m for other in (*host.turns, *host.turns.arriving) for m in other.input]
            refuse_other_words(host.session, turn.input, waiting)
        accepted = self._plan(turn, ticket, plan, record)
        if accepted is None:
            return  # it will be told so when its time comes
        planned, rows, at_once = accepted
        brings = turn.brings if at_once else None
        if brings is not None:
            more = [*more, *brings.statements()]
        more = [*more, *host.last_failure.forget()]
        host.turns.arriving.append(turn)
        try:
            await host.session.write(planned, *rows, *more)
        except BaseException:
            if brings is not None:
                brings.undo()
            raise
        finally:
            host.turns.arriving.remove(turn)
        self._numbers.stored(turn.seq)
        turn.is_started = at_once
        host.feed.publish(TurnAccepted(turn))
        if turn.is_applied and (turn.message_ids or turn.trigger == "ws-chat"):
            host.feed.publish(HistoryChanged(turn, "input"))

    def _plan(
        self, turn: Turn, ticket: Ticket | None, plan: Callable[[], Plan] | None, record: Record | None
    ) -> tuple[Plan, list[Statement], bool] | None:
        """What a turn brings into the conversation, its row, and whether it runs at once.

        `None`: the conversation was reset. Nothing is awaited between this and the commit, so a reset comes
        either before or after both.
        """
        host = self._host
        if ticket is not None and host.generation != turn.generation:
            return None
        # Nothing is ahead: the row is running from the start and the input goes in with it.
        is_given = plan is not None or turn.compute_input is None
        at_once = is_given and ticket is not None and ticket.is_front
        planned: Plan | None = None
        if plan is not None:
            planned = plan()
        elif at_once:
            planned = host.session.plan_append(turn.input)
            turn.message_ids = planned.new
        turn.is_applied = planned is not None
        turn.cut = planned.cut if planned is not None else []
        if at_once:
            turn.question = host.session.tip
        turn.seq, mark = self._numbers.take()
        turn.created_at = host.clock.now_ms()
        row = queries.accepted(
            id=turn.id,
            seq=turn.seq,
            request_id=turn.request_id,
            trigger=turn.trigger,
            continuation=turn.continuation,
            input=encode_input(turn),
            message_id=turn.message_id,
            now=turn.created_at,
            metadata=None if record is None else record.metadata,
            key=None if record is None else record.key,
            at_once=at_once,
            question=turn.question,
        )
        return planned or Plan(), [row, *mark], at_once

    def enqueue(self, turn: Turn, ticket: Ticket, *, external: AbortSignal | None = None) -> Admitted:
        """Run a turn whose row is durable already once its ticket comes to the front."""
        host = self._host
        abort = host.aborts.controller(turn.request_id)
        unlink = host.aborts.link(turn.request_id, external)
        admitted = Admitted(host.id, turn, abort)
        self._open[admitted] = None
        host.turns.add(turn)
        admitted.task = asyncio.create_task(
            self._run(admitted, ticket, unlink), name=f"turn {turn.trigger} {turn.request_id}"
        )
        return admitted

    # --- running it

    async def _run(self, admitted: Admitted, ticket: Ticket, unlink: Any) -> None:
        host, turn = self._host, admitted.turn
        # Nobody waits for a submission, so it is not inside whatever turn submitted it.
        around = () if turn.trigger == "submission" else enclosing_turns.get()
        within = InTurn(host.id, turn.id, turn.identity, turn.is_readonly)
        enclosing_turns.set((*around, within))
        try:
            try:
                while isinstance(outcome := await self._turn_of(admitted, ticket), Postponed):
                    ticket.release()
                    await self._wait(turn, outcome.seconds)
                    ticket = self.queue.reserve(turn.request_id, turn.generation)
            finally:
                ticket.release()
                unlink()
                host.aborts.remove(turn.request_id, turn.signal)
        except BaseException as error:
            self._open.pop(admitted, None)
            host.turns.remove(turn)
            if not admitted.ended.done():
                stopped = isinstance(error, asyncio.CancelledError)
                admitted.ended.set_exception(interrupted(host, turn.request_id) if stopped else error)
                admitted.ended.exception()  # whoever waits sees it; nobody may be waiting
            if isinstance(error, Exception):
                await self._broke_off(turn, error)
            if isinstance(error, asyncio.CancelledError | Exception):
                return
            raise
        enclosing_turns.set(around)
        host.turns.remove(turn)
        admitted.ended.set_result(outcome)
        try:
            if turn.watch is not None:
                await turn.watch(outcome.status, outcome.text)
            if turn.heard is not None and outcome.status == "completed":
                await turn.heard.wait()
            await self._respond(outcome)
        finally:
            self._open.pop(admitted, None)

    async def _broke_off(self, turn: Turn, error: Exception) -> None:
        """A turn could not even be ended. Its row stays open, for the next start; people are told now."""
        host = self._host
        log.error("turn %s of %s broke off and stays open", turn.id, host.id, exc_info=error)
        if is_elsewhere(error):
            return  # the agent stops, is gone, or goes on in another process: nothing has failed
        shown = mask(str(error)) if is_for_people(error) else UNTOLD
        host.emit(ChatTurnBrokeOff(request_id=turn.request_id, turn_id=turn.id, error=str(error)))
        close(host, TurnEnded(turn, "error", shown, streamed=turn.is_started))
        if turn.watch is not None:
            try:
                await turn.watch("error", shown)
            except Exception as failed:  # noqa: BLE001 - told: whoever waits has been woken
                host.hooks.log_error("on_submission_status", failed)

    async def _wait(self, turn: Turn, seconds: float) -> None:
        """Let time pass, unless somebody cancels the turn."""
        waits = [
            asyncio.ensure_future(self._host.clock.sleep(seconds)),
            asyncio.ensure_future(turn.signal.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _turn_of(self, admitted: Admitted, ticket: Ticket) -> Outcome | Postponed:
        host, turn = self._host, admitted.turn
        if turn.is_interrupted:
            front = asyncio.ensure_future(ticket.front())
            patience = asyncio.ensure_future(host.clock.sleep(host.recovery.patience))
            try:
                await asyncio.wait([front, patience], return_when=asyncio.FIRST_COMPLETED)
            finally:
                patience.cancel()
                if not front.done():
                    front.cancel()
            if not front.done() or front.cancelled():
                return await host.recovery.queue_timeout(turn)
            is_next = front.result()
        else:
            is_next = await ticket.front()
        if is_next:
            return await self._body(admitted)
        return await end_unstarted(host, turn, "skipped", error="The conversation was reset.")

    async def _body(self, admitted: Admitted) -> Outcome | Postponed:
        turn = admitted.turn
        if turn.trigger in SUBMITTED and turn.signal.aborted and not turn.is_started:
            return await end_unstarted(self._host, turn, "aborted")  # cancelled while it waited
        may = True if turn.gate is None else await turn.gate()
        if may is not True:
            why = may or "A newer message took its place."
            return await end_unstarted(self._host, turn, "skipped", error=why)
        return await perform(self._host, turn, admitted.abort)

    async def _respond(self, outcome: Outcome) -> None:
        host = self._host
        response = outcome.response()
        if response is None or not host.hooks.overrides("on_chat_response"):
            return
        async with self._hooks:
            _HOOK.set(_HOOK.get() | {host.id})
            await host.hooks.on_chat_response(response)

    # --- stopping

    def reset(self) -> None:
        """Begin a new generation: what waits is told so when its time comes, what runs belongs to none."""
        self.queue.reset()
        self._host.generation = self.queue.generation

    def refuse(self) -> None:
        """Admit nothing more. Follow with `close`."""
        self.is_closed = self._host.is_stopping = True

    def cut(self) -> None:
        """Cut running turns where they are, at once. Follow with `close`."""
        self.refuse()
        for admitted in self._open:
            if admitted.task is not None:
                admitted.task.cancel()

    async def close(self, grace: float = 0.0) -> None:
        """Admit nothing more; give running turns `grace` seconds, then cut them where they are.

        What is cut stays `running` in the journal, exactly as after a crash.
        """
        self.refuse()
        if self._admitting:
            await asyncio.wait(self._admitting)
        tasks = [admitted.task for admitted in self._open if admitted.task and not admitted.task.done()]
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _check_signal(external: Any) -> None:
    """Refuse what cannot stop a turn, while there is none."""
    if external is not None and not isinstance(external, AbortSignal):
        raise InvalidTurn(
            f"signal is {shown(external)}, not an AbortSignal.",
            kept="Nothing was stored.",
            next_step="Make an AbortController, pass its .signal, and call its abort() to stop the turn.",
        )
