"""What is stored of an agent and of those below it, and which of them is which.

    stage --Actor--> stored, members --> report --Member …--> judge

A child that a call asked for is called after that call, whose id is made up anew in each performance. So it
is known by its class and its place among those of its parent, in the order of the calls.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...address import Address
from ...children import queries as runs
from ...children.queries import RunRow
from ...journal.read import calls_of
from ...journal.turn_rows import all_turns
from ...messages import encode_json, is_tool_part, parse_stored
from ...runtime import queries
from ...runtime.actor import Actor
from ...runtime.directory import Directory
from ...session import queries as session
from ...store.port import AgentStore
from .story import ABOVE

__all__ = ["addresses", "is_waited_for", "members", "stored"]

Json = dict[str, Any]

_LAST = 2**62


async def addresses(directory: Directory, root: Address) -> list[Address]:
    """All below an agent, parents before their children, and the older of two siblings first."""
    rows = await directory.store.fetch(queries.BELOW, root.id)
    found = [queries.address_of(cls, name, path) for _, cls, name, path in rows]
    return sorted(found, key=lambda address: len(address.parents))


async def is_waited_for(store: AgentStore) -> bool:
    """True while a run of an agent's children goes on, or its end was not delivered."""
    return bool(await runs.open_runs(store) or await runs.owed(store))


async def members(directory: Directory, root: Actor) -> list[Json]:
    """All below an agent, each with what is stored of it."""
    below = await addresses(directory, root.address)
    asked = await runs.of_children(directory.store, [address.id for address in below])
    told: dict[Address, Json] = {root.address: {"agent": "", **await stored(root)}}
    for address in below:
        told[address] = {**_asked_by(asked.get(address.id)), **await stored(await directory.reach(address))}
    for parent, of_parent in list(told.items()):
        children = [address for address in below if address.parent == parent]
        for address, name in _named(children, told, _calls(of_parent["messages"])):
            above = of_parent["agent"]
            told[address]["agent"] = f"{above}{ABOVE}{name}" if above else name
    return [told[address] for address in below]


async def stored(home: Actor) -> Json:
    """The messages, turns and calls of one agent."""
    turns = await all_turns(home.store)
    calls = [
        {"tool": call.tool, "state": call.state}
        for turn in turns
        for call in await calls_of(home.store, turn.id)
    ]
    return {
        "messages": [] if home.chat is None else await _messages(home, home.chat.session.id),
        "turns": [{"trigger": row.trigger, "status": row.status, "error": row.error} for row in turns],
        "calls": calls,
    }


async def _messages(home: Actor, id: str) -> list[Json]:
    messages: list[Json] = []
    before = _LAST
    while rows := await home.store.fetch(session.ROWS, id, before):
        messages += [_told(row) for row in rows]
        before = rows[-1][4]
    return messages[::-1]


def _told(row: Any) -> Json:
    message = parse_stored(row[0], row[2], row[3])
    told = json.loads(encode_json(message.to_json())) if message else {"id": row[0], "role": row[2]}
    return {**told, "parent": row[1]}


def _asked_by(run: RunRow | None) -> Json:
    return {"call": None, "run": None} if run is None else {"call": run.call_id, "run": run.status}


def _calls(messages: Sequence[Json]) -> dict[str, int]:
    """The place of each call in a conversation."""
    parts = [part for message in messages for part in message.get("parts", ()) if is_tool_part(part)]
    return {part["toolCallId"]: place for place, part in enumerate(parts)}


def _named(
    children: Sequence[Address], told: dict[Address, Json], calls: dict[str, int]
) -> list[tuple[Address, str]]:
    """The children of one parent: `Guide 1`, `Guide 2`, … in the order of the calls that asked for them."""
    number: Counter[str] = Counter()
    found: list[tuple[Address, str]] = []
    for address in sorted(children, key=lambda one: calls.get(told[one]["call"], -1)):
        number[address.cls_name] += 1
        found.append((address, f"{address.cls_name} {number[address.cls_name]}"))
    return found
