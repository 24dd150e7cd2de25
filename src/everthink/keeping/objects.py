"""What an object store holds of agents: deleted when they are erased, read when they are exported.

    Directory.erase --members--> erase_objects --> the objects are gone, then the rows
    App.export --contents row--> pieces_of --> lines with the bytes

The rows of an agent are in one commit; objects are not. They go first: what fails leaves an agent that can be
erased again, never bytes that nobody can name any more.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from inspect import getattr_static
from typing import Any

from ..errors import AgentError
from ..object_contents import LostObject, ObjectContents
from ..own import OWN_WORKSPACE
from ..store.port import Store
from ..workspace import queries
from ..workspace.contents import PART_BYTES
from ..workspace.workspace import Workspace

__all__ = ["erase_objects", "objects_of", "pieces_of", "unknown_objects"]


def objects_of(cls: type[Any] | None, agent: str) -> ObjectContents | None:
    """Where the large contents of an agent of this class are; `None` when they are in its rows."""
    named = None if cls is None else getattr_static(cls, "workspace", OWN_WORKSPACE)
    return named.objects_of(agent) if isinstance(named, Workspace) else None


async def erase_objects(
    store: Store, members: Sequence[tuple[str, str]], classes: Mapping[str, type[Any]]
) -> None:
    """Delete what object stores hold of agents (ids, names of classes). Raises when that cannot be:
    a store does not answer, or nobody knows where the objects are."""
    known = {agent: objects_of(classes.get(name), agent) for agent, name in members}
    for agent, objects in known.items():
        if objects is None and (rows := await store.fetch(queries.COUNT_OBJECTS, agent=agent))[0][0]:
            raise unknown_objects(agent, rows[0][0])
    for objects in known.values():
        if objects is not None:
            await objects.delete(await objects.listed())


def unknown_objects(agent: str, count: int) -> AgentError:
    """Nobody could delete them later."""
    return AgentError(
        f"{count} contents of {agent!r} are in an object store, and it is not known here which.",
        kept="Nothing was erased.",
        next_step="Call `await app.erase(…)` in an app whose class has its workspace = Workspace(objects=…).",
    )


async def pieces_of(objects: ObjectContents, line: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """A line of an export about a content that is an object, as lines that have its bytes."""
    number = begins = 0
    piece = bytearray()

    def told() -> dict[str, Any]:
        text = base64.b64encode(piece).decode()
        part = {"part": number, "encoding": "base64", "begins": begins, "size": len(piece), "content": text}
        return {**line, **part}

    try:
        async for some in objects.stream(line["hash"]):
            piece += some
            while len(piece) > PART_BYTES:
                rest = piece[PART_BYTES:]
                del piece[PART_BYTES:]
                yield told()
                number, begins, piece = number + 1, begins + len(piece), rest
    except LostObject as error:
        yield {**line, "error": str(error)}
        return
    yield told()
