"""Let a turn begin anew: what it has said is forgotten, wherever it is.

    turn/attempt (no room for its answer), recovery/ (nothing is kept) --> start_over --> an empty journal

One commit: its chunks, its calls and its answer, as far as somebody's next message has brought that into the
conversation. A process that dies before it finds the turn as it was; after it, as one that has said nothing.
"""

from __future__ import annotations

from ..journal import queries
from ..journal.feed import HistoryChanged, TurnRewound
from ..journal.read import Journal
from ..journal.turn import Turn
from .ending import read_again
from .host import TurnHost

__all__ = ["start_over"]


async def start_over(host: TurnHost, turn: Turn, *, at_once: bool = False) -> Journal:
    """Forget what a turn has said; its answer gets another id. `at_once`: it goes on without a pause."""
    copy = await host.session.plan_removal(turn.message_id)
    turn.message_id = host.new_id()
    await host.store.apply([*copy, *queries.rewound(turn.id, message_id=turn.message_id)])
    if copy:
        await host.session.removed()
        host.feed.publish(HistoryChanged())
    host.feed.publish(TurnRewound(turn, at_once=at_once))
    return await read_again(host, turn)
