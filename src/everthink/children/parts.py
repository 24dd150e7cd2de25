"""What a parent works with, and what it has of a child that is in memory.

runtime/directory --makes--> Parts, Child --> family.py, runs.py, beginning.py, watching.py
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ..abort import AbortRegistry
from ..address import Address
from ..clock import Clock
from ..door.answers import Answers
from ..door.submissions import Submissions
from ..holds import Hold
from ..hooks.runner import HookRunner
from ..journal.feed import Feed
from ..journal.open_turns import OpenTurns
from ..messages import Part
from ..models.port import OutputSchema
from ..observe.events import EventBody
from ..store.port import AgentStore, Statement
from .queries import RunRow

__all__ = ["Child", "Kin", "Parts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Child:
    """A child in memory that chats, as far as its parent looks into it."""

    address: Address
    store: AgentStore
    hooks: HookRunner
    feed: Feed
    submissions: Submissions
    answers: Answers
    save_value: Callable[[str, Any], Statement]
    accompany: Callable[[str, RunRow], Awaitable[list[Statement]]]
    """What is written with a run of it that begins, given the id of its parent: where people are asked what
    it asks, if they talk with its parent in a messenger."""
    expect: Callable[[OutputSchema], None]
    """Say in memory what its answer is to be, as is stored."""
    expected: Callable[[], OutputSchema | None]
    """What it is to be, if that was said."""
    parts_of: Callable[[str], Awaitable[list[Part]]]
    """The parts of a message."""
    is_to_go_on: Callable[[], bool]
    """True while it waits for a person, or goes on because of an answer."""
    until_stable: Callable[[float | None], Awaitable[bool]]
    rests: Callable[[], bool]
    """True when nothing goes on in it before a person answers: it, or one below it."""
    has_found_turns: Callable[[], bool]
    """True while it works at something that was cut off, or accepted, before it came into memory."""
    cancel_all: Callable[[object], Awaitable[Any]]
    hold: Callable[[], Hold]

    def waits_for_person(self) -> bool:
        """True when its silence is none: somebody is asked something, by it or by one below it."""
        return self.answers.is_waiting_for_person() or self.rests()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kin:
    """How an agent reaches those above and below it."""

    address: Callable[[type[Any], str, Address], Address]
    """The address of a child. Raises when there can be none."""
    called: Callable[[str, str, Address], Address]
    """The same by the name of its class, which need not be known."""
    classes: Callable[[], dict[str, type[Any]]]
    """The classes that are known, by name."""
    learn: Callable[[type[Any]], None]
    """Know the class of a child from now on."""
    handle: Callable[[type[Any], Address], Any]
    """An agent as others have it."""
    reach: Callable[[Address], Awaitable[Any]]
    """Have an agent in memory, known from now on. Raises what its start raises."""
    child: Callable[[Address], Awaitable[Child]]
    """The same for one that chats."""
    exists: Callable[[Address], Awaitable[bool]]
    found: Callable[[str], Awaitable[Address | None]]
    """The address of an agent, by the id of its rows."""
    evict: Callable[[Address], Awaitable[None]]
    erase: Callable[[Address], Awaitable[int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts from below that one parent's runs work with."""

    address: Address
    store: AgentStore
    clock: Clock
    hooks: HookRunner
    feed: Feed
    kin: Kin
    new_id: Callable[[], str]
    emit: Callable[[EventBody], None]
    background: Callable[..., None]
    """Keeps a task alive until it ends. The agent stays in memory for it, unless `rests=…` says that it only
    waits for a person."""
    hold: Callable[[], Hold]
    wake_at: Callable[[int], None]
    """See that the parent is in memory at that time (ms)."""
    mark: Callable[[], Awaitable[None]]
    """Keep with the agent that there are runs to look for."""
    aborts: AbortRegistry | None
    """The turns of the parent, if it chats."""
    turns: OpenTurns | None
    """Its turns, if it chats."""
    submit: Callable[..., Awaitable[Any]] | None
    """Accept a message for its conversation, if it chats: answered when its time has come."""
    add: Callable[..., Awaitable[Any]] | None
    """Write to its conversation, if it chats."""
    keeps: Callable[[str], Awaitable[bool]] | None
    """Whether a message of it is kept, if it chats."""
    forgot: Callable[[], Statement]
    """What stores that no run of a cleared conversation is left."""
    ended_here: dict[str, bool] = field(default_factory=dict[str, bool])
    """The runs that ended in this process: what their parent is to hear of it is on its way. True once it was
    told of an end for good."""
