"""What an agent finds when it wakes: turns that a dead process left behind.

    turns rows not ended --> accepted: queued again   running, interrupted: picked up where they stopped

Turns take their places in the order they had. Whether one that was cut off goes on is decided when
its turn comes (`recovery/recover.py`); until then those who connect are told that it will.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ..door.requests import ChatRoom, brought
from ..door.submissions import INVALID_TEXT, Submissions
from ..errors import StoreError, Unreadable
from ..journal import queries
from ..journal.turn import Turn
from ..journal.turn_input import decode_input
from ..store.port import Row
from ..tools.collect import client_tools_from
from ..turn.ending import end_lost
from ..turn.outcome import Failure
from .aside import UNREADABLE_TEXT, put_aside, tell_aside
from .incident import TERMINAL_MESSAGE
from .recover import Patient, Recovery
from .suspects import Suspect

__all__ = ["take_up", "wake"]


class Sleeper(Patient, ChatRoom, Protocol):
    """A house that may have been left in a hurry."""

    submissions: Submissions

    @property
    def recovery(self) -> Recovery:
        """What decides about turns that were cut off."""
        ...


async def wake(house: Sleeper) -> None:
    """Put the turns of an earlier process back into the queue. Runs once, before the agent serves."""
    for row in await house.store.fetch(queries.OPEN, house.id):
        await _enter(house, row)
    for row in await house.store.fetch(queries.ACCEPTED, house.id):
        await _enter(house, row)


async def take_up(house: Sleeper, turn_id: str) -> None:
    """Put one turn, which was released, into the queue of an agent that serves already."""
    for row in await house.store.fetch(queries.ONE, house.id, turn_id):
        if row[12] is None and all(turn.id != turn_id for turn in house.door.turns):
            await _enter(house, row)


async def _enter(house: Sleeper, row: Row) -> None:
    """A row that is not over takes its place again. One that nobody can read is set aside, and told."""
    try:
        await _entered(house, row)
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - told: the turns after it, and the agent, must not suffer
        await _unreadable(house, row, error)


async def _entered(house: Sleeper, row: Row) -> None:
    if row[3] != "accepted":
        turn = _turn(house, row)
        turn.is_applied = turn.is_started = True
        if turn.signal.aborted:
            turn.is_interrupted = True  # it is ended where it was, and nobody waits for more
        else:
            house.recovery.interrupt(turn)
    elif row[2] == "submission":
        await house.submissions.resume(row)
        return
    else:
        envelope = decode_input(row[5])
        if envelope.messages is None and not envelope.is_applied:
            await end_lost(house, row[0], TERMINAL_MESSAGE)
            return
        turn = _turn(house, row)
    house.door.enqueue(turn, house.queue.reserve(turn.request_id))


async def _unreadable(house: Sleeper, row: Row, error: Exception) -> None:
    now, id = house.clock.now_ms(), row[0]
    suspect = Suspect(agent=house.id, turn=id, strikes=0, first_at=now, last_at=now)
    text = INVALID_TEXT if row[2] == "submission" else UNREADABLE_TEXT
    statements = put_aside(house, id, suspect, text, error)
    failure = Failure(id=row[1], turn=id, error=text, continuation=bool(row[4]))
    house.last_failure = msgspec.to_builtins(failure)
    await house.store.apply([*statements, house.save_value("lastFailure", house.last_failure)])
    tell_aside(house, id, row[1], suspect, error)
    if row[2] == "submission":
        await house.submissions.tell(id)


def _turn(house: Sleeper, row: Row) -> Turn:
    """The turn of a row, as it was."""
    envelope = decode_input(row[5])
    turn = house.door.new_turn(
        row[2],
        id=row[0],
        request_id=row[1],
        input=envelope.messages,
        continuation=bool(row[4]),
        parent=envelope.place,
        body=envelope.body,
        client_tools=client_tools_from(envelope.client_tools or []),
        channel=envelope.channel,
        metadata=envelope.metadata,
    )
    if not isinstance(row[8], str):
        raise Unreadable(f"Turn {row[0]!r}", "it names no message")
    turn.message_id, turn.seq, turn.question, turn.created_at = row[8], row[13], row[14], row[10]
    turn.is_applied, turn.is_readonly = envelope.is_applied, envelope.is_readonly
    turn.answers, turn.identity, turn.tools_by = envelope.answers, envelope.identity, envelope.tools_by
    turn.message_ids = envelope.brought
    if row[16] is not None:
        house.aborts.cancel(turn.request_id, row[16] or None)
    if row[2] == "ws-chat":
        turn.brings = lambda: brought(house, turn, envelope.client_tools)
    if row[2] == "submission":
        turn.body = house.last_body  # as when it began
        house.submissions.watch(turn)
    return turn
