"""What the server and the network say, as our errors.

    asyncpg's errors, OSError --> StoreUnavailable, StoreUnreadable, StoreFull, StoreReadOnly, StoreError

A commit whose answer was lost with the connection is in doubt: it may be stored. We say so instead of
guessing, and never send it twice.
"""

from __future__ import annotations

import re
import ssl
from typing import Any
from urllib.parse import urlsplit

from ..errors import (
    CommitInDoubt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnreadable,
)
from ..masking import mask
from ..store.error_texts import NOTHING_WRITTEN, rejected
from .driver import load

__all__ = [
    "NO_PERMISSION",
    "failures",
    "from_server",
    "from_state",
    "in_doubt",
    "location_of",
    "state_of",
    "unreachable",
]

NO_PERMISSION = "42501"
_UNKNOWN_OPTION = re.compile(r"unrecognized configuration parameter (\S+)")


def failures() -> tuple[type[Exception], ...]:
    """Everything a call of the driver may raise: the server, the network, parameters that do not fit."""
    asyncpg = load()
    driver: tuple[type[Exception], ...] = (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
    )
    return (*driver, OSError, TimeoutError, ValueError, TypeError, ArithmeticError, MemoryError, StoreError)


def location_of(url: str) -> str:
    """Where the database is, without the password."""
    try:
        parts = urlsplit(url)
        if "@" in parts.path:
            raise ValueError  # a password with a slash in it: what stands before the @ is part of it
        return (
            f"{parts.hostname or 'localhost'}:{parts.port or 5432}/{parts.path.lstrip('/') or parts.username}"
        )
    except ValueError:
        return "(an address that cannot be read)"


def state_of(error: BaseException) -> str:
    """The server's five-letter code, or nothing when the error is not the server's."""
    state: Any = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else ""


def from_server(error: Exception, where: str, *, kept: str = NOTHING_WRITTEN) -> StoreError:
    """`error` as one of ours, with `error` as its cause."""
    if isinstance(error, StoreError):
        return error
    # The first argument is the message; the text as a whole would quote what people wrote.
    message = error.args[0] if error.args else error
    if state := state_of(error):
        translated = from_state(state, str(message), where, kept=kept)
    elif isinstance(error, OSError | TimeoutError):
        translated = unreachable(error, where, kept=kept)
    else:
        translated = rejected(f"The database {where}", message)
    translated.__cause__ = error
    return translated


def from_state(state: str, message: str, where: str, *, kept: str = NOTHING_WRITTEN) -> StoreError:
    """One of our errors for a code of the server."""
    message = mask(message)
    if state == "53100":
        return StoreFull(
            f"There is no space left on the server of the database {where} ({message}).",
            kept=kept,
            next_step="Free some space there and try again; a running store needs no restart.",
        )
    if state == "25006":
        return StoreReadOnly(
            f"The database {where} may not be written ({message}).",
            kept=kept,
            next_step="Name the primary server in the URL, not a copy of it.",
        )
    if state == NO_PERMISSION or state.startswith("28"):
        return StoreUnreadable(
            f"The database {where} refused this user ({message}).",
            kept=kept,
            next_step="Check user and password in the URL (postgresql://user:password@host:5432/database), "
            "and that this user may create and use tables there.",
        )
    if state == "3D000":
        return StoreUnavailable(
            f"There is no database {where} ({message}).",
            kept="Nothing was changed.",
            next_step=f"Create it with: createdb {where.rpartition('/')[2]}",
        )
    if state.startswith(("08", "57P", "53")):
        return StoreUnavailable(
            f"The server of the database {where} is not available ({message}).",
            kept=kept,
            next_step="The store connects again by itself; try again when the server is up.",
        )
    if state == "42704" and (option := _UNKNOWN_OPTION.search(message)):
        return StoreError(
            f"The server of the database {where} does not know {option[1]}, an option of the URL.",
            kept="Nothing was opened.",
            next_step="Leave it out. A URL takes sslmode, sslrootcert and the other options of TLS, and"
            " settings of the server, such as search_path.",
        )
    return rejected(f"The database {where}", f"{message} ({state})")


def unreachable(error: Exception, where: str, *, kept: str) -> StoreUnavailable:
    """Nobody answers at the address."""
    reason = mask(str(error)) or type(error).__name__
    return StoreUnavailable(
        f"The server of the database {where} cannot be reached ({reason}).",
        kept=kept,
        next_step=_advice(error),
    )


def _advice(error: Exception) -> str:
    """What to do about a server that did not answer, or not as the URL asks for."""
    if "rejected SSL upgrade" in str(error):
        return (
            "The server answers, but without TLS, and the URL asks for it (sslmode=…). Switch it on there "
            "(ssl = on), or write sslmode=prefer if nobody else can listen in between."
        )
    if isinstance(error, ssl.SSLError):
        return (
            "The server answers, but its certificate is not trusted here. Name the authority's in the "
            "URL (sslrootcert=/path/ca.pem) and the host as the certificate has it."
        )
    return "Check host and port in the URL, and that PostgreSQL is running there."


def in_doubt(error: BaseException, where: str) -> CommitInDoubt:
    """The connection broke between sending a commit and hearing what became of it."""
    translated = CommitInDoubt(
        f"The connection to the database {where} was lost during a commit"
        f" ({mask(str(error)) or type(error).__name__}).",
        kept="This commit may or may not have been stored, whole or not at all; earlier ones are intact.",
        next_step="Read what is stored before writing it again. The store connects again by itself.",
    )
    translated.__cause__ = error
    return translated
