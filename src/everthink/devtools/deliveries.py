"""Messengers, for the page: whom a conversation is with, and what was shown there.

    inspector.py       "messenger": whose chat it is; "deliveries": how each message to it stands
    conversations.py   the same mark in the list, also for conversations that are children

Read from what is stored; no agent is started, and no platform is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..deliveries import queries
from ..deliveries.showing import came_by, view
from ..messages import parse_stored
from ..session import queries as session
from ..store.port import AgentStore, Store

__all__ = ["listed", "of_agents", "of_conversation"]

DELIVERIES = 100
"""So many are shown, the newest."""
AT_A_TIME = 500

Json = dict[str, Any]


async def listed(store: AgentStore) -> list[Json]:
    """The messages to platforms of one agent, the newest first."""
    rows = await queries.newest(store, limit=DELIVERIES)
    return [told for row in rows if (told := view(row)) is not None]


async def of_conversation(store: AgentStore, live: str, name: str) -> Json | None:
    """The chat that a conversation is in: that of what was said last, else of what was said first."""
    rows = await store.fetch(session.LAST_ASKED, live)
    found = came_by(parse_stored(*rows[0]), name) if rows else None
    return found or (await of_agents(store.database, [(store.agent, name)])).get(store.agent)


async def of_agents(database: Store, agents: Iterable[tuple[str, str]]) -> dict[str, Json]:
    """The chats that these agents were first asked in, by their ids. `agents`: ids and names."""
    names = dict(agents)
    ids, first = list(names), dict[str, Any]()
    for start in range(0, len(ids), AT_A_TIME):
        some = ids[start : start + AT_A_TIME]
        first |= {row[0]: row[1:] for row in await database.fetch(session.first_asked(len(some)), *some)}
    found = {
        id: came_by(parse_stored(*first[id]) if id in first else None, name) for id, name in names.items()
    }
    return {id: told for id, told in found.items() if told is not None}
