"""Children in addresses: `/agents/assistant/room-1/sub/researcher/notes/…`.

    path --parse_path--> whom it names, and what follows        agents --build_path--> path

A `sub` parts a child from its parent when a class that is known follows it, and a name; any other is a word
like others, but not where a child of a class that nobody knows would have one below it: nobody else is
reached in its place. The name of a child is percent-encoded: it may have slashes. That of an agent without
parents stands as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast
from unicodedata import category
from urllib.parse import unquote

from ..address import canonical, child_in_address, from_address, in_address, kebab
from ..errors import AgentError
from ..settings import nearest, shown

__all__ = [
    "OF_A_CALL",
    "SUB",
    "BadName",
    "Called",
    "NoSuchClass",
    "Parsed",
    "build_path",
    "parse_path",
    "read_hops",
]

SUB = "sub"
OF_A_CALL = "agent-tool:"
"""How the name of a child begins that a call of its parent has made."""


class BadName(ValueError):
    """A segment that cannot be the name of a child."""


class NoSuchClass(BadName):
    """A child in the middle whose class nobody knows."""


class Parsed(NamedTuple):
    """Whom a path names."""

    hops: tuple[tuple[type[Any], str], ...]
    """Class and name of the children, each below the one before it."""
    rest: tuple[str, ...]
    """The segments that follow, as they were written."""


Called = Mapping[type[Any], Mapping[str, type[Any]]]
"""What children are called below a parent of a class, besides their classes: the names of their files."""


def read_hops(
    segments: Sequence[str],
    classes: Mapping[str, type[Any]],
    parent: type[Any] | None = None,
    called: Called | None = None,
) -> Parsed:
    """The children in what follows the name of an agent. `classes` by what they are called in an address.

    Raises `BadName`, and `NoSuchClass` when one in the middle is unknown.
    """
    hops: list[tuple[type[Any], str]] = []
    start = 0
    while True:
        own = None if parent is None or called is None else called.get(parent)
        known = {**classes, **own} if own else classes
        if (at := _marker(segments, start, known)) is None:
            return Parsed(tuple(hops), tuple(segments[start:]))
        if at > start and segments[start] == SUB:
            near = nearest(segments[start + 1], known)
            meant = f"; the nearest is {near!r}" if near else ""
            raise NoSuchClass(f"no class of children is called {segments[start + 1]!r:.100}{meant}")
        parent = known[segments[at + 1]]
        hops.append((parent, _name(segments[at + 2])))
        start = at + 3


def _marker(segments: Sequence[str], start: int, classes: Mapping[str, type[Any]]) -> int | None:
    for at in range(start, len(segments) - 2):
        if segments[at] == SUB and segments[at + 1] in classes:
            return at
    return None


def _name(segment: str) -> str:
    try:
        name: str = canonical(unquote(segment, errors="strict"))
    except UnicodeDecodeError as error:
        raise BadName("it is not UTF-8") from error
    if not name or any(category(letter) in ("Cc", "Cs") for letter in name):
        raise BadName("it is empty, or has a control character")
    return name


def parse_path(path: str, classes: Sequence[type[Any]], *, prefix: str = "agents") -> list[tuple[str, str]]:
    """The agents that a path names, from the outermost to the child: `[("Assistant", "room-1"), …]`.

    Empty when it names none of these classes. Raises for a child whose name is none.
    """
    if isinstance(classes, type):
        raise AgentError(
            f"parse_path() is given {shown(classes)}, in the place of a list of classes.",
            next_step=f"Write parse_path(path, [{classes.__name__}]).",
        )
    known = {name: cls for cls in classes for name in (kebab(cls.__name__), cls.__name__)}
    start = [part for part in prefix.split("/") if part]
    segments = [part for part in path.partition("?")[0].split("/") if part]
    if segments[: len(start)] != start or len(segments) < len(start) + 2:
        return []
    kind, name, *rest = segments[len(start) :]
    if kind not in known:
        return []
    try:
        hops = read_hops(rest, known).hops
    except BadName as error:
        raise AgentError(f"{path!r:.200} names a child that there cannot be: {error}.") from error
    return [(known[kind].__name__, from_address(name)), *((cls.__name__, child) for cls, child in hops)]


def build_path(*agents: tuple[type[Any] | str, str], prefix: str = "agents") -> str:
    """The path of an agent: `build_path((Assistant, "room-1"), (Researcher, "notes"))`.

    Raises for a name that no address can say.
    """
    if not agents:
        raise AgentError("build_path() is given no agent.", next_step='build_path((Assistant, "room-1"))')
    for agent in agents:
        if not isinstance(cast("Any", agent), tuple) or len(agent) != 2:
            raise AgentError(
                f"build_path() is given {shown(agent)}, in the place of a class and a name.",
                next_step='Write pairs: build_path((Assistant, "room-1"), (Researcher, "notes")).',
            )
    (root, name), *children = agents
    pieces = ["", *(part for part in prefix.split("/") if part), _kind(root), in_address(name)]
    for cls, child in children:
        pieces += [SUB, _kind(cls), child_in_address(child)]
    return "/".join(pieces)


def _kind(cls: type[Any] | str) -> str:
    return cls if isinstance(cls, str) else kebab(cls.__name__)
