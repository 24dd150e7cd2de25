"""What an agent finds when it wakes: turns that a dead process left behind.

    turns rows not ended --> accepted: queued again   running, interrupted: picked up where they stopped

Turns take their places in the order they had. Whether one that was cut off goes on is decided when
its turn comes (`recovery/recover.py`); until then those who connect are told that it will.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import msgspec

from ..clock import moment_of
from ..door.admission import Door
from ..door.browser import Browser
from ..door.submissions import INVALID_TEXT, Submissions
from ..errors import StoreError, Unreadable
from ..journal import turn_rows
from ..journal.turn import SUBMITTED, Failing, Turn
from ..journal.turn_input import decode_input
from ..journal.turn_rows import TurnRow
from ..messages import decode_json
from ..tools.collect import client_tools_from
from ..turn.ending import end_lost
from ..turn.host import TurnHost
from ..turn.last_failure import Failure
from .aside import UNREADABLE_TEXT, put_aside, tell_aside
from .incident import TERMINAL_MESSAGE
from .recover import Recovery
from .suspects import Suspect
from .trials import Trials

__all__ = ["Waking"]


class Waking:
    """Puts turns of an earlier process back into the queue of one agent.

    `rested` are those that left memory because all they did was wait for a person.
    """

    def __init__(
        self,
        host: TurnHost,
        door: Door,
        submissions: Submissions,
        browser: Browser,
        recovery: Recovery,
        trials: Trials,
        still_goes_on: Callable[[], Awaitable[bool | str]],
        rested: Collection[str] = (),
    ) -> None:
        self._host, self._door, self._submissions, self._rested = host, door, submissions, rested
        self._browser, self._recovery, self._trials = browser, recovery, trials
        self._still_goes_on = still_goes_on

    async def wake(self) -> None:
        """Take up all of them. Runs once, before the agent serves."""
        for row in await turn_rows.unfinished(self._host.store):
            if row.seq <= self._door.last_found:  # the agent's own start code may have sent others
                await self._enter(row)

    async def take_up(self, turn_id: str) -> None:
        """Take up one turn, which was released, while the agent serves already."""
        row = await turn_rows.one(self._host.store, turn_id)
        if row is None or row.ended_at is not None:
            return
        if all(turn.id != turn_id for turn in self._host.turns):
            await self._enter(row)

    async def _enter(self, row: TurnRow) -> None:
        """A row that is not over takes its place again. One that nobody can read is set aside, and told."""
        try:
            await self._entered(row)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - told: the turns after it, and the agent, must not suffer
            await self._unreadable(row, error)

    async def _entered(self, row: TurnRow) -> None:
        if row.status != "accepted":
            turn = self._turn(row)
            turn.is_applied = turn.is_started = True
            if row.status == "failing":
                turn.failing = _failing(row)
            turn.has_rested = row.id in self._rested
            if turn.signal.aborted or turn.failing is not None or turn.has_rested:
                # It is ended where it was, and nobody waits for more; or nothing has cut it off.
                turn.is_interrupted = True
            else:
                self._recovery.interrupt(turn)
        elif row.trigger in SUBMITTED:
            await self._submissions.resume(row)
            return
        else:
            stored = decode_input(row.input)
            if stored.messages is None and not stored.is_applied:
                await end_lost(self._host, row.id, TERMINAL_MESSAGE)
                return
            turn = self._turn(row)
            if turn.continuation and turn.trigger == "programmatic":
                turn.gate = self._still_goes_on  # the one before it may ask the next question
        self._door.enqueue(turn, self._door.queue.reserve(turn.request_id))

    async def _unreadable(self, row: TurnRow, error: Exception) -> None:
        host, id = self._host, row.id
        now = host.clock.now_ms()
        suspect = Suspect(agent=host.id, turn=id, strikes=0, first_at=moment_of(now), last_at=moment_of(now))
        text = INVALID_TEXT if row.trigger in SUBMITTED else UNREADABLE_TEXT
        statements = put_aside(host, self._trials, id, suspect, text, error)
        failure = Failure(row.request_id, id, text, continuation=row.continuation)
        await host.store.apply([*statements, host.last_failure.note(failure)])
        tell_aside(host, id, row.request_id, suspect, error)
        if row.trigger in SUBMITTED:
            await self._submissions.tell(id)

    def _turn(self, row: TurnRow) -> Turn:
        """The turn of a row, as it was."""
        stored = decode_input(row.input)
        turn = self._door.new_turn(
            row.trigger,
            id=row.id,
            request_id=row.request_id,
            input=stored.messages,
            continuation=row.continuation,
            parent=stored.answer_parent,
            body=stored.body,
            client_tools=client_tools_from(stored.client_tools or []),
            channel=stored.channel,
            metadata=stored.metadata,
        )
        turn.message_id, turn.seq = row.answer_id, row.seq
        turn.question, turn.created_at, turn.rewound = row.question, row.created_at, row.rewound
        turn.is_applied, turn.is_readonly = stored.is_applied, stored.is_readonly
        turn.answers, turn.identity, turn.tools_by = stored.answers, stored.identity, stored.tools_by
        turn.message_ids = stored.brought
        if row.stop is not None:
            self._host.aborts.cancel(turn.request_id, row.stop or None)
        if row.trigger == "ws-chat":
            turn.brings = self._browser.bringing(turn, stored.client_tools)
        if row.trigger in SUBMITTED:
            turn.body = self._browser.body  # as when it began
            self._submissions.watch(turn)
        return turn


def _failing(row: TurnRow) -> Failing:
    try:
        return decode_json(row.failing or "", Failing)
    except (msgspec.DecodeError, TypeError) as error:
        raise Unreadable(f"Turn {row.id!r}", error) from error
