"""What erasing an agent deletes: its rows, and those of all below it, in every table there is.

    Directory.erase --> it leaves memory, its fence is shut --> erased(agent), one commit --> scrub

The tables are read from the schema, so that a new one is erased, and exported, from its first day on.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster import queries as cluster
from ..store.migrate import tables_of
from ..store.port import Rows, Statement
from .queries import FAMILY
from .schema import MIGRATIONS

__all__ = ["TABLES", "erased", "rows_erased"]

TABLES = tables_of(MIGRATIONS)
"""Every table of an agent. All begin with the column `agent`."""


def erased(agent: str, *, is_claimed: bool = False) -> list[Statement]:
    """Delete every row of an agent and of all below it; with `is_claimed` also the one that says who runs it.

    Who is below it is what the table of agents says: it comes last.
    """
    tables = sorted(TABLES, key=lambda table: table.name == "agents")
    deleted = [
        Statement(f"{FAMILY} {what} FROM {table.name} WHERE agent IN (SELECT agent FROM family)", (agent,))
        for table in tables
        for what in ("SELECT COUNT(*)", "DELETE")
    ]
    return [*deleted, cluster.forgotten(agent)] if is_claimed else deleted


def rows_erased(answers: Sequence[Rows]) -> int:
    """How many rows that commit deleted."""
    return sum(rows[0][0] for rows in answers[: 2 * len(TABLES) : 2])
