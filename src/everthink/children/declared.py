"""Which classes of children an agent class names: in `sub_agents`, and as tools.

App, Gate --class--> children_of --> the classes of its children, which may be made by whoever asks for them
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tools.collect import tools_of

__all__ = ["children_of", "with_children"]


def children_of(cls: type[Any]) -> list[type[Any]]:
    """The classes that an agent class names as those of its children."""
    named: list[type[Any]] = list(getattr(cls, "sub_agents", ()))
    named += [child for tool in tools_of(cls).values() if (child := getattr(tool, "child", None)) is not None]
    return list(dict.fromkeys(named))


def with_children(classes: Iterable[type[Any]]) -> list[type[Any]]:
    """These classes and those of their children, and of theirs."""
    found: dict[type[Any], None] = {}
    wanted = list(classes)
    while wanted:
        cls = wanted.pop(0)
        if cls not in found:
            found[cls] = None
            wanted += children_of(cls)
    return list(found)
