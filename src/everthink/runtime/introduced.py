"""A new agent is known from its first write on.

    actor --commit--> Introduced --commit and "it exists"--> store

Whoever only looks at an agent that does not exist leaves nothing behind: the row of an agent is written in
the same commit as the first thing that is kept for it. A child's brings those of all above it: nobody is the
child of an agent that is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..store.port import AgentStore, Commit, Rows, Statement

__all__ = ["Introduced"]


class Introduced(AgentStore):
    """The store of one agent. `known` makes the agent and those above it known, as often as it is run."""

    __slots__ = ("_is_known", "_known", "_store")

    def __init__(self, store: AgentStore, known: Sequence[Statement]) -> None:
        super().__init__(store.database, store.agent)
        self._store, self._known = store, known
        self._is_known = False

    @property
    def is_known(self) -> bool:
        """True once something was written through here: the agent and those above it are known."""
        return self._is_known

    def apply(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        """Write a commit; see `Store.apply`."""
        if self._is_known:
            return self._store.apply(commit)
        written = self._store.apply([*commit, *self._known])
        told: asyncio.Future[list[Rows]] = asyncio.get_running_loop().create_future()

        def tell(done: asyncio.Future[list[Rows]]) -> None:
            error = None if done.cancelled() else done.exception()
            self._is_known = self._is_known or (not done.cancelled() and error is None)
            if told.done():
                return
            if done.cancelled():
                told.cancel()
            elif error is not None:
                told.set_exception(error)
            else:
                told.set_result(done.result()[: -len(self._known)])

        written.add_done_callback(tell)
        return told
