"""Whether a value is so small that it may be looked all through on the event loop.

    value --is_light--> here | in a thread

What models and their code write may hold hundreds of thousands of values in a megabyte, or one list in a
thousand places. Here no more than a thousand values are looked at to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

__all__ = ["SHORT", "is_light", "unhurried"]

T = TypeVar("T")

SHORT = 64 * 1024
"""Characters of a text that is light."""
_FEW = 1_000


def is_light(value: Any) -> bool:
    """True when all of a value takes no time worth mentioning. Looks at no more of it than that."""
    left, room = _FEW, SHORT
    todo: list[Iterator[Any]] = [iter((value,))]
    while todo:
        for one in todo[-1]:
            left -= 1
            if isinstance(one, str | bytes):
                room -= len(one)
            elif isinstance(one, Mapping):
                items = cast("Mapping[Any, Any]", one)
                todo += (iter(items), iter(items.values()))
                break
            elif isinstance(one, list | tuple | set | frozenset):
                todo.append(iter(cast("Sequence[Any]", one)))
                break
            if left < 0 or room < 0:
                return False
        else:
            todo.pop()
        if left < 0 or len(todo) > _FEW:
            return False
    return True


async def unhurried(work: Callable[..., T], *args: Any) -> T:
    """What `work` comes to: here when what it is given is light, else in a thread."""
    return work(*args) if is_light(args) else await asyncio.to_thread(work, *args)
