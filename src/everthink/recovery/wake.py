"""What an agent finds when it wakes: turns that a dead process left behind.

    turns rows not ended --> accepted: queued again   running, interrupted: picked up where they stopped

Turns take their places in the order they had. Whether one that was cut off goes on is decided when
its turn comes (`recovery/recover.py`); until then those who connect are told that it will.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from ..store.port import Row
from ..submissions import Submissions
from ..tools.collect import client_tools_from
from ..turn import queries
from ..turn.admission import Door
from ..turn.envelope import Envelope, opened
from ..turn.turn import Turn
from .incident import TERMINAL_MESSAGE
from .recover import Patient, Recovery

__all__ = ["wake"]


class Sleeper(Patient, Protocol):
    """A house that may have been left in a hurry."""

    door: Door
    submissions: Submissions
    last_body: dict[str, Any] | None

    @property
    def recovery(self) -> Recovery:
        """What decides about turns that were cut off."""
        ...


async def wake(house: Sleeper) -> None:
    """Put the turns of an earlier process back into the queue. Runs once, before the agent serves."""
    for row in await house.store.fetch(queries.OPEN, house.id):
        turn = _turn(house, row)
        turn.is_applied = turn.is_started = True
        house.recovery.interrupt(turn)
        house.door.enter(turn, house.queue.reserve(turn.request_id))
    for row in await house.store.fetch(queries.ACCEPTED, house.id):
        if row[2] == "submission":
            await house.submissions.resume(row)
            continue
        envelope = _envelope(row)
        if envelope.messages is None and not envelope.is_applied:
            await _end_lost(house, row)
            continue
        turn = _turn(house, row)
        house.door.enter(turn, house.queue.reserve(turn.request_id))


def _turn(house: Sleeper, row: Row) -> Turn:
    """The turn of a row, as it was."""
    envelope = _envelope(row)
    turn = house.door.turn(
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
    turn.message_id, turn.seq, turn.question, turn.created_at = row[8], row[13], row[14], row[10]
    turn.is_applied, turn.is_readonly = envelope.is_applied, envelope.is_readonly
    turn.answers, turn.identity = envelope.answers, envelope.identity
    if row[2] == "submission":
        turn.body = house.last_body  # as when it began
        house.submissions.watch(turn)
    return turn


async def _end_lost(house: Sleeper, row: Row) -> None:
    # Its input was a function that died with its process.
    now = house.clock.now_ms()
    ended = queries.ended(house.id, row[0], status="skipped", error=TERMINAL_MESSAGE, now=now)
    await house.store.apply([ended])


def _envelope(row: Row) -> Envelope:
    try:
        return opened(row[5])
    except msgspec.DecodeError:
        return Envelope()
