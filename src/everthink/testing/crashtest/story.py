"""What came of playing a script once: all that a judge needs to know.

player --Story--> judge
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

__all__ = ["ABOVE", "Cut", "Member", "Point", "SeenRun", "Story"]

ABOVE = " > "
"""Between the names of a parent and of its child."""


class Cut(NamedTuple):
    """A commit at which a process dies, counted from its start."""

    commit: int
    when: Literal["before", "after"]

    def __str__(self) -> str:
        return f"{self.commit}:{self.when}"


Point = tuple[Cut, ...]
"""Where the first process dies, where the one after it dies, and so on."""


@dataclass(slots=True)
class Member:
    """An agent below the one that is played, and what is stored of it."""

    agent: str
    """Which one: `Guide 1` is the first child of that class, `Guide 1 > Porter 2` the second of its own."""
    call: str | None = None
    """The call of its parent's model that asked for it; `None`: code made it."""
    run: str | None = None
    """How its run stands; `None`: nobody asked it as a tool."""
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@dataclass(slots=True)
class SeenRun:
    """A run of a child, as a window of its parent was told of it."""

    agent: str
    """The class of the child."""
    call: str | None
    pieces: list[str] = field(default_factory=list[str])
    """What it said, piece by piece, as JSON text."""
    end: dict[str, Any] | None = None
    """The event that ended it."""
    status: str = "running"
    """How it stands, as clients of ours read it."""
    text: str = ""
    """What it said, as they read it."""


@dataclass(slots=True)
class Story:
    """One performance of a script, with its deaths."""

    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The stored tree, oldest first, each with its `parent`."""
    turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The ledger: `tool`, `state`."""
    family: list[Member] = field(default_factory=list[Member])
    """The agents below it, parents before their children."""
    path: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The conversation as the server tells it to whoever comes last."""
    screen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The conversation as it is on the screen of somebody who stayed."""
    runs: dict[str, SeenRun] = field(default_factory=dict[str, SeenRun])
    """The runs of its children, by id, as they are there."""
    late_runs: dict[str, SeenRun] = field(default_factory=dict[str, SeenRun])
    """The same as whoever comes last is told of them."""
    faults: list[str] = field(default_factory=list[str])
    """What that reader would complain about."""
    errors: list[str] = field(default_factory=list[str])
    """Errors that were shown."""
    effects: list[str] = field(default_factory=list[str])
    """What tools did to the world, line by line."""
    refusals: list[str] = field(default_factory=list[str])
    """What a provider would have refused."""
    commits: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The commits of the first process."""
    deaths: int = 0
    step: str = ""
    """The step that was under way at the first death."""
    broken: str | None = None
    """Why the script could not be played to its end."""
    log: str = ""
    """What the processes said."""
