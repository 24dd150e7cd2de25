"""What an agent finds when it wakes: turns that a dead process left behind.

    turns rows not ended --> accepted: run now   running: keep what was shown, end it

Nothing shown is lost: the chunks in the journal are folded into the message they made.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ..messages import is_settled
from ..session.tree import Plan
from ..store.port import Row
from ..submissions import Submissions
from ..tools.collect import client_tools_from
from ..turn import queries
from ..turn.admission import Door, House
from ..turn.envelope import Envelope, opened
from ..turn.fold import fold
from ..turn.segments import unpack

__all__ = ["INTERRUPTED_TEXT", "wake"]

INTERRUPTED_TEXT = "The assistant was interrupted and could not recover. Please try again."


class Sleeper(House, Protocol):
    """A house that may have been left in a hurry."""

    door: Door
    submissions: Submissions


async def wake(house: Sleeper) -> None:
    """Put right what an earlier process left. Runs once, before the agent serves."""
    for row in await house.store.fetch(queries.OPEN, house.id):
        await _end_interrupted(house, row)
    for row in await house.store.fetch(queries.ACCEPTED, house.id):
        await _run_accepted(house, row)


async def _end_interrupted(house: Sleeper, row: Row) -> None:
    turn_id, continuation, message_id = row[0], bool(row[4]), row[8]
    envelope = _envelope(row)
    segments = await house.store.fetch(queries.SEGMENTS, house.id, turn_id)
    folded = fold((chunk for row in segments for chunk in unpack(row[0])), id=message_id)
    if continuation:
        folded.id = message_id
    for call_id, answer in await house.store.fetch(queries.ANSWERS, house.id, turn_id):
        part = folded.call(call_id)
        if part is not None and not is_settled(part):
            part.update(msgspec.json.decode(answer))
    session, now = house.session, house.clock.now_ms()
    plan = Plan()
    if folded.has_content:
        message = folded.message()
        # A client that sent again while the turn streamed posted the answer as far as it had seen it.
        is_known = session.find(message.id) is not None
        plan = session.plan_update(message) if is_known else session.plan_append([message], envelope.place)
    await session.write(
        plan,
        queries.abandoned(house.id, turn_id, now=now),
        queries.ended(house.id, turn_id, status="error", error=INTERRUPTED_TEXT, now=now),
    )
    if row[2] == "submission":
        await house.submissions.tell(turn_id)


async def _run_accepted(house: Sleeper, row: Row) -> None:
    if row[2] == "submission":
        await house.submissions.resume(row)
        return
    envelope = _envelope(row)
    if envelope.messages is None and not envelope.is_applied:
        # Its input was a function that died with its process.
        await house.store.apply(
            [
                queries.ended(
                    house.id, row[0], status="skipped", error=INTERRUPTED_TEXT, now=house.clock.now_ms()
                )
            ]
        )
        return
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
    turn.message_id, turn.is_applied = row[8], envelope.is_applied
    house.door.enter(turn, house.queue.reserve(turn.request_id))


def _envelope(row: Row) -> Envelope:
    try:
        return opened(row[5])
    except msgspec.DecodeError:
        return Envelope()
