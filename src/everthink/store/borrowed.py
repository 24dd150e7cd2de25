"""The rows of one agent as another of its family has them: a child that works in its parent's files.

    child's tool --edit--> StoredFiles, BorrowedStore --statements with the owner's id--> the child's commit

A commit is one agent's, and passes that agent's fence. What is the owner's in it says so: its id is put in
before the statements leave here. So the files of the parent, and the call of the child that wrote them, are
one commit.
"""

from __future__ import annotations

import asyncio

from .marks import bound
from .port import AgentStore, Commit, Rows

__all__ = ["BorrowedStore", "lent"]


class BorrowedStore(AgentStore):
    """What belongs to `owner`, written by whoever has `by`."""

    __slots__ = ("_by",)

    def __init__(self, owner: str, by: AgentStore) -> None:
        super().__init__(by.database, owner)
        self._by = by

    def apply(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        """Write a commit; see `Store.apply`."""
        return self._by.apply(bound(commit, self.agent))


def lent(store: AgentStore, commit: Commit) -> Commit:
    """The statements as a commit of somebody else may hold them."""
    return bound(commit, store.agent) if isinstance(store, BorrowedStore) else commit
