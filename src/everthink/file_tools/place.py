"""Where the files are that a tool works with, and how a write becomes part of the call that asked for it.

    tool body --Place.of(ctx)--> Workspace | a backend
              --Place.concluding(ctx, output)--> the same, whose next edit settles the call in its own commit

The tools of an agent are made once for its class and find the workspace of the agent that runs them. On the
agent's own rows an edit, the ledger and the result are one commit; elsewhere the edit comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..calling import awaited
from ..errors import ToolError, WorkspaceError
from ..store.port import Statement
from ..tools.context import ToolContext
from ..workspace.paths import EVICTED_FOLDER, is_below, normal
from ..workspace.workspace import Workspace

__all__ = ["Place", "is_stored", "shown_error"]


class Place:
    """The files that tools work with: a backend, or with `None` those of the agent that runs them."""

    def __init__(self, backend: Any = None, *, is_once: bool | None = None) -> None:
        self.backend = backend
        self.is_once = backend is None or is_stored(backend) if is_once is None else is_once
        """True when a write that a crash cut off has certainly not happened: it may be run again."""

    def of(self, ctx: ToolContext) -> Any:
        """The backend for a call."""
        found = self.backend if self.backend is not None else getattr(ctx.agent, "workspace", None)
        if found is None:
            raise ToolError("There is no workspace here: the tool is run outside of an agent.")
        return found

    async def where(self, ctx: ToolContext, path: str) -> Any:
        """The backend that has what is at a path. What left old messages is in the agent's own rows, also
        when its workspace is somewhere else."""
        found = self.of(ctx)
        own: Callable[[], Workspace] | None = getattr(ctx.agent, "_own_workspace", None)
        if self.backend is not None or own is None or not is_below(normal(path), EVICTED_FOLDER):
            return found
        return own() if await awaited(found.stat(path)) is None else found

    def concluding(self, ctx: ToolContext, output: Callable[[], Any]) -> Any:
        """The same for one edit. `output()` is the result of the call; it is asked once the edit is known."""
        found, conclude = self.of(ctx), ctx.conclude
        if conclude is None or not isinstance(found, Workspace):
            return found

        async def settle(statements: Sequence[Statement]) -> None:
            if statements:  # what is not in our rows has happened already: the call is settled as any other
                await conclude(output(), statements, None)

        return found.concluding(settle)


def is_stored(backend: Any) -> bool:
    """True when a backend, or what a class calls its workspace, keeps files in the agent's own rows."""
    return isinstance(backend, Workspace) and backend.is_own


def shown_error(error: WorkspaceError) -> ToolError:
    """What stands in the way, for the model and for people: it names paths of the workspace, nothing else."""
    return ToolError(str(error))
