"""What came of playing a script once: all that a judge needs to know.

player --Story--> judge
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

__all__ = ["Cut", "Point", "Story"]


class Cut(NamedTuple):
    """A commit at which a process dies, counted from its start."""

    commit: int
    when: Literal["before", "after"]

    def __str__(self) -> str:
        return f"{self.commit}:{self.when}"


Point = tuple[Cut, ...]
"""Where the first process dies, where the one after it dies, and so on."""


@dataclass(slots=True)
class Story:
    """One performance of a script, with its deaths."""

    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The stored tree, oldest first, each with its `parent`."""
    turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The ledger: `tool`, `state`."""
    path: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The conversation as the server tells it to whoever comes last."""
    screen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The conversation as it is on the screen of somebody who stayed."""
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
