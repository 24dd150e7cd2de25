"""What the inspector shows of the journal: rows in, JSON out.

    store --rows--> view --JSON--> inspector.py

Pure. The names are those of the columns, as in `everthink inspect --json`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from .. import chunks as ui
from ..clock import ms_of
from ..journal.facts import BadEnding, CallFacts, Span, TurnFacts
from ..journal.segments import unpack
from ..masking import masked
from ..messages import Message, decode_json
from ..recovery.suspects import Suspect
from ..store.port import Row

__all__ = ["Node", "Tree", "aside", "calls", "chunks", "endings", "in_and_out", "turns", "usage"]

Json = dict[str, Any]
Steps = Callable[[str], list[Json] | None]

LONGEST = 10_000
"""So many characters of a call's input or output are shown."""


DELTAS = {"text-delta": "delta", "reasoning-delta": "delta", "tool-input-delta": "inputTextDelta"}
"""The chunks that are pieces of a text, and where in them it is."""


# --- turns


def turns(found: Iterable[TurnFacts], steps: Steps) -> list[Json]:
    """Turns, with the steps that were recorded for their requests."""
    return [_turn(turn._asdict(), steps) for turn in found]


def _turn(turn: Json, steps: Steps) -> Json:
    taken = steps(turn["request_id"])
    return {
        **turn,
        "continuation": bool(turn["continuation"]),
        "error": masked(turn["error"]),
        "steps": taken,
        "usage": usage(taken or []),
    }


def usage(steps: Iterable[Json]) -> dict[str, int] | None:
    """The tokens of all steps together; `None` when no provider said a number."""
    total: dict[str, int] = {}
    for step in steps:
        for name, count in step.get("usage", {}).items():
            total[name] = total.get(name, 0) + count
    return total or None


def endings(found: Iterable[BadEnding]) -> list[Json]:
    """Which message was left half, or which was not answered, and why."""
    return [{**ending._asdict(), "error": masked(ending.error)} for ending in found]


# --- what is set aside


def aside(suspect: Suspect) -> Json:
    """A turn (or the agent itself, without one) that is not tried any more, and why."""
    return {
        "turn": suspect.turn or None,
        "strikes": suspect.strikes,
        "what": suspect.what,
        "first_at": ms_of(suspect.first_at),
        "last_at": ms_of(suspect.last_at),
        "is_aside": suspect.is_aside,
    }


# --- calls


def calls(found: Iterable[CallFacts], known: Mapping[str, Json]) -> list[Json]:
    """Calls, with what went into each and what came out of it (`known`, by its id)."""
    return [_call(call._asdict(), known) for call in found]


def _call(row: Json, known: Mapping[str, Json]) -> Json:
    call = {**row, **known.get(row["call_id"], {})}
    if words := call.pop("words"):
        call["error"] = _shown(words)  # what the model read; people were told less
    if row["input"] is not None:
        call["input"] = _shown(_parsed(row["input"]))  # A hook changed it: what the ledger has is what ran.
    return call


def in_and_out(messages: Iterable[Message]) -> dict[str, Json]:
    """What went into the calls of these messages and what came out, by call."""
    found: dict[str, Json] = {}
    for message in messages:
        for part in message.tool_parts:
            told = {"input": _shown(part.get("input"))}
            if part.get("state") == "output-available":
                told["output"] = _shown(part.get("output"))
            elif part.get("state") == "output-error":
                told["error"] = _shown(part.get("errorText", ""))
            found[part["toolCallId"]] = told
    return found


def _parsed(text: str) -> Any:
    try:
        return decode_json(text)
    except msgspec.DecodeError:
        return text  # The model wrote no JSON; what it wrote is what we show.


def _shown(value: Any) -> Any:
    hidden = masked(value)
    text = hidden if isinstance(hidden, str) else msgspec.json.encode(hidden).decode()
    return hidden if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


# --- chunks


def chunks(spans: Iterable[Span]) -> list[Json]:
    """What a turn has said as single chunks by sequence; `commit` is the first number of its segment."""
    found: list[Json] = [
        {
            "seq": first + place,
            "commit": first,
            "written_at": written,
            "chunk": masked(chunk),
        }
        for first, written, text in spans
        for place, chunk in enumerate(_segment(text))
    ]
    blocks: dict[tuple[str, str], list[Json]] = {}
    for chunk in (one["chunk"] for one in found):
        kind = chunk.get("type")
        # A chunk that somebody else wrote may have a delta's name and another shape.
        if isinstance(kind, str) and kind in DELTAS and isinstance(chunk.get(DELTAS[kind]), str):
            block = kind, str(chunk.get("id") or chunk.get("toolCallId"))
            blocks.setdefault(block, []).append(chunk)
    for (kind, _), pieces in blocks.items():
        _mask_pieces(pieces, DELTAS[kind])
    return found


def _segment(text: str) -> list[Json]:
    try:
        return [decode_json(ui.encode(chunk)) for chunk in unpack(text)]
    except msgspec.DecodeError as error:
        return [{"type": "unreadable", "error": str(error), "text": text[:LONGEST]}]


def _mask_pieces(pieces: list[Json], field: str) -> None:
    """A secret may come in pieces that look like nothing. Then the first holds the text, masked."""
    text = "".join(piece[field] for piece in pieces)
    hidden = masked(text)
    if hidden != text:
        for place, piece in enumerate(pieces):
            piece[field] = "" if place else hidden


# --- messages


class Node(NamedTuple):
    """A message as the tree sees it: a row of `TREE`."""

    id: str
    parent: str | None
    role: str
    created_at: int
    seq: int


class Tree:
    """Messages with their parents, and what follows from that."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.nodes = sorted((Node(*row) for row in rows), key=lambda node: node.seq)
        self._by_id = {node.id: node for node in self.nodes}
        self._children: dict[str, list[Node]] = {}
        for node in self.nodes:
            if node.parent is not None:
                self._children.setdefault(node.parent, []).append(node)

    @property
    def leaf(self) -> str | None:
        """The message that the next one hangs on: the newest."""
        return self.nodes[-1].id if self.nodes else None

    def path(self) -> list[str]:
        """The active path, root first."""
        return [node.id for node in self._up(self.leaf)]

    def versions(self, id: str) -> list[str]:
        """What stands directly below a message, in the order it was written."""
        return [n.id for n in sorted(self._children.get(id, []), key=lambda n: (n.created_at, n.seq))]

    def forks(self) -> dict[str, Json]:
        """The messages of the active path with several versions below them, and which one is active."""
        path = self.path()
        found: dict[str, Json] = {}
        for above, below in itertools.pairwise(path):
            versions = self.versions(above)
            if len(versions) > 1:
                found[above] = {"versions": versions, "active": versions.index(below)}
        return found

    def tip_below(self, id: str) -> str | None:
        """Where the branch through a message ends; its newest end when there are several."""
        if id not in self._by_id:
            return None
        below, seen = [self._by_id[id]], {id}
        for node in below:
            fresh = [child for child in self._children.get(node.id, ()) if child.id not in seen]
            seen.update(child.id for child in fresh)
            below += fresh
        return max(below, key=lambda node: node.seq).id  # a child is newer than its parent

    def answer(self, id: str) -> list[str]:
        """A version of an answer: the message and those that follow it on its branch, up to a question."""
        branch = self._up(self.tip_below(id), to=id)
        said = itertools.takewhile(lambda node: node.role != "user", branch)
        return [node.id for node in said]

    def between(self, first: str, last: str) -> list[str]:
        """The messages from `first` down to `last`; none when that is no way down."""
        found = [node.id for node in self._up(last, to=first)]
        return found if found[:1] == [first] else []

    def to_json(self) -> list[Json]:
        """Every message without its content, oldest first."""
        return [
            {"id": node.id, "parent": node.parent, "role": node.role, "created_at": node.created_at}
            for node in self.nodes
        ]

    def _up(self, id: str | None, to: str | None = None) -> list[Node]:
        """The messages from `to` (the root when omitted) down to `id`."""
        found: dict[str, Node] = {}
        node = self._by_id.get(id or "")
        while node is not None and node.id not in found:  # rows of others may go round in a circle
            found[node.id] = node
            node = None if node.id == to else self._by_id.get(node.parent or "")
        return list(found.values())[::-1]
