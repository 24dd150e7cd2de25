"""What became of a commit, and telling those who wait for it.

an engine --[Outcome, …]--> settle --> the futures that `apply` returned
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..errors import StoreError
from .port import Commit, Rows

__all__ = ["Job", "Outcome", "settle"]

Outcome = list[Rows] | StoreError
"""The rows of each statement, or why nothing was written."""

Job = tuple[Commit, "asyncio.Future[list[Rows]]"]
"""A commit that was accepted, and who waits for it."""


def settle(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
    """Answer each of `jobs`, in order. On the event loop's thread."""
    for (_, future), outcome in zip(jobs, outcomes, strict=True):
        if future.done():
            continue  # Cancelled: the commit was applied all the same.
        if isinstance(outcome, StoreError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
