"""Refuse a pooler that hands each transaction to another session of the server.

    A: which session?   B: which session?   B again   A again        a, b, b, a: each of us has its own

What we keep in a session would be lost or be somebody else's: prepared statements, temporary functions, and
the lock that shows others that this process lives, which would then stay when it is dead.
"""

from __future__ import annotations

from ..errors import StorePooled
from .driver import Connection
from .failures import state_of

__all__ = ["is_pooled", "pooled", "refuse_pooled_transactions"]

_WHO = "SELECT pg_backend_pid()"
_STRANGE = ("26000", "42P05")
"""A prepared statement that we made is not there, or one that we did not make is."""


async def refuse_pooled_transactions(one: Connection, other: Connection, where: str) -> None:
    """Raise `StorePooled` unless each of two connections keeps a session of its own."""
    sessions = [await connection.fetchval(_WHO) for connection in (one, other, other, one)]
    first, second, third, fourth = sessions
    if first != fourth or second != third or first == second:
        raise pooled(where)


def is_pooled(error: Exception) -> bool:
    """True for what the server says when the statements of others are in our session."""
    return state_of(error) in _STRANGE


def pooled(where: str) -> StorePooled:
    """The error."""
    return StorePooled(
        f"The pooler in front of the database {where} gives each transaction another session of the server.",
        kept="Nothing was changed.",
        next_step="Let it pool sessions (pgbouncer: pool_mode = session), or connect to PostgreSQL directly:"
        " a process needs up to seven connections.",
    )
