"""Sentences that the adapters share, so that an error reads the same on every engine.

SQL appears in errors, shortened; parameters never do, because they hold what people wrote.
"""

from __future__ import annotations

from ..errors import CommitRefused, StoreClosed, StoreError, StoreReadOnly
from ..masking import mask

__all__ = ["NOTHING_WRITTEN", "closed", "copied", "only_reads", "refused", "rejected", "shortened"]

NOTHING_WRITTEN = "Nothing of this commit was written; what was stored before is intact."


def shortened(sql: str, *, limit: int = 100) -> str:
    """The beginning of `sql` on one line."""
    line = " ".join(sql.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def refused(sql: str, name: str = "") -> CommitRefused:
    """A guard matched nothing."""
    refused = CommitRefused(
        f"A commit was refused because its guard matched no row: {shortened(sql)}",
        kept=NOTHING_WRITTEN,
        next_step="Read the row again and decide anew: somebody changed it, or it is not there.",
    )
    refused.guard = name
    return refused


def rejected(where: str, reason: object) -> StoreError:
    """The database did not accept a statement: a constraint, a wrong parameter, wrong SQL."""
    return StoreError(
        f"{where} rejected a commit: {mask(str(reason)).strip() or type(reason).__name__}.",
        kept=NOTHING_WRITTEN,
        next_step="Other commits are not affected; correct the statement and apply it again.",
    )


def only_reads(sql: str) -> StoreReadOnly:
    """`fetch` was given a statement that writes."""
    return StoreReadOnly(
        f"fetch() only reads, and this statement writes: {shortened(sql)}",
        kept="Nothing was written.",
        next_step="Put it into a commit and apply() it.",
    )


def closed(where: str) -> StoreClosed:
    """The store was used after close()."""
    return StoreClosed(
        f"The store {where} is closed.",
        kept="Every commit accepted before close() was finished; this call did nothing.",
        next_step="Open the store again.",
    )


def copied(error: StoreError) -> StoreError:
    """The same error for one more reader: a raised error gathers a traceback, so nobody shares one."""
    copy = type(error)(error.what, kept=error.kept, next_step=error.next_step)
    copy.__cause__ = error.__cause__
    return copy
