"""An agent and its children, for the page: the runs of one, and a whole family as a tree.

    GET  …                    "runs": how those of the agent stand, with times and tokens
    GET  …/family             the outermost agent > turns > calls > runs > children > turns > …
    POST …/runs/stop          {"id"}: as `cancel_agent_tool` does it (inspector.py)

Frames tell what a child says, not when, nor what it costs: that is here. Read from the journal; no agent is
started.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ..address import Address, kebab
from ..children import queries
from ..children.queries import RunRow
from ..journal.facts import CallFacts, TurnFacts, latest_calls, latest_turns
from ..masking import masked
from ..runtime import queries as runtime
from ..store.port import AgentStore, Store
from . import view

__all__ = ["STOPPED", "children_of", "runs", "tree"]

Json = dict[str, Any]
Steps = Callable[[str, str], list[Json] | None]
"""The steps of a turn, by the id of its agent and of its request."""

RUNS, TURNS, CALLS, MEMBERS = 50, 20, 200, 100
"""So many are shown: runs, turns and calls of one agent, the newest; members of one family."""
STOPPED = "A person stopped it."


# --- the runs of one agent


async def runs(store: AgentStore, turns: Sequence[TurnFacts], steps: Steps) -> list[Json]:
    """How the latest runs of an agent stand, the oldest first. `turns` are the latest of the agent."""
    answers = {turn.id: turn.message_id for turn in turns}
    return [
        {**await _run(store, row, steps), "answer_id": answers.get(row.turn or "")}
        for row in await queries.newest(store, RUNS)
    ]


async def _run(store: AgentStore, row: RunRow, steps: Steps) -> Json:
    turns = await latest_turns(AgentStore(store.database, row.child), TURNS)
    is_at_rest = bool(turns) and all(turn.ended_at is not None for turn in turns)
    return {
        **_described(row),
        "usage": _usage(row.child, turns, steps),
        # A child that is at rest in the middle of its run has asked a person something.
        "is_waiting": row.status == "running" and is_at_rest,
    }


def _described(row: RunRow) -> Json:
    return {
        "run_id": row.run_id,
        "class": row.cls,
        "kebab": kebab(row.cls),
        "call_id": row.call_id,
        "title": row.title,
        "preview": masked(row.preview),
        "status": row.status,
        "error": masked(row.error),
        "started_at": row.started_at,
        "ended_at": row.ended_at,
    }


def _usage(agent: str, turns: Sequence[TurnFacts], steps: Steps) -> dict[str, int] | None:
    return view.usage(step for turn in turns for step in steps(agent, turn.request_id) or [])


# --- the children of conversations


async def children_of(database: Store, roots: Sequence[str]) -> dict[str, list[Json]]:
    """The children of these outermost agents, by their ids: the newest first, each with its latest run."""
    if not roots:
        return {}
    rows = await database.fetch(runtime.below(len(roots)), *roots, MEMBERS * 3)
    latest = await queries.of_children(database, [row[0] for row in rows])
    found: dict[str, list[Json]] = defaultdict(list)
    for agent, cls, name, path, root, created_at in rows:
        run = latest.get(agent)
        found[root].append(_child(runtime.address_of(cls, name, path), run, created_at))
    return found


def _child(address: Address, run: RunRow | None, created_at: int) -> Json:
    told = None if run is None else _described(run)
    return {
        "id": address.id,
        "class": address.cls_name,
        "name": address.name,
        "path": [{"agent": kebab(cls), "name": name} for cls, name in address.path[1:]],
        "messenger": None,
        "title": address.name if told is None else told["title"],
        "preview": None if told is None else told["preview"],
        "status": None if told is None else told["status"],
        "created_at": created_at,
    }


# --- a family as a tree


async def tree(database: Store, root: Address, steps: Steps) -> Json:
    """An agent, its turns, their calls, the runs of these, and their children in the same way."""
    rows = await database.fetch(runtime.below(1), root.id, MEMBERS)
    below: dict[str, list[Address]] = defaultdict(list)
    for _, cls, name, path, _, _ in reversed(rows):
        address = runtime.address_of(cls, name, path)
        if address.parent is not None:
            below[address.parent.id].append(address)
    return {
        **await _member(database, root, below, steps),
        "members": 1 + len(rows),
        "is_cut": len(rows) == MEMBERS,
    }


async def _member(database: Store, address: Address, below: dict[str, list[Address]], steps: Steps) -> Json:
    store = AgentStore(database, address.id)
    turns = (await latest_turns(store, TURNS))[::-1]
    # One that was asked in a turn and ran in a later one is in the ledger of both.
    calls = list({(c.call_id, c.started_at): c for c in reversed(await latest_calls(store, CALLS))}.values())
    children = {child.id: await _member(database, child, below, steps) for child in below[address.id]}
    told = {
        row: {**_described(row), "child": children.pop(row.child, None)}
        for row in await queries.newest(store, RUNS)
    }
    whose = {row: _call_of(row, calls) for row in told}
    return {
        "class": address.cls_name,
        "name": address.name,
        "path": [{"agent": kebab(cls), "name": name} for cls, name in address.path[1:]],
        "turns": [
            {
                "id": turn.id,
                "trigger": turn.trigger,
                "status": turn.status,
                "created_at": turn.created_at,
                "started_at": turn.started_at,
                "ended_at": turn.ended_at,
                "usage": _usage(address.id, [turn], steps),
                "calls": [
                    {**_call(call), "runs": [told[row] for row in told if whose[row] is call]}
                    for call in calls
                    if call.turn == turn.id
                ],
            }
            for turn in turns
        ],
        # Those that code asked for, and those of calls too long ago to be shown.
        "runs": [told[row] for row in told if whose[row] is None],
        # Those that were only talked to.
        "children": list(children.values()),
    }


def _call_of(row: RunRow, calls: Sequence[CallFacts]) -> CallFacts | None:
    """The call that asked for a run. A call may be in two turns: asked in one, run in a later one."""
    same = [call for call in calls if call.call_id == row.call_id and row.turn in (None, call.turn)]
    return next((call for call in same if call.started_at is not None), same[0] if same else None)


def _call(call: CallFacts) -> Json:
    return {
        "call_id": call.call_id,
        "tool": call.tool,
        "state": call.state,
        "asked_at": call.asked_at,
        "started_at": call.started_at,
        "settled_at": call.settled_at,
    }
