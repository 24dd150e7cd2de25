"""What fibers show to the people who use them: plain values.

run_fiber, start_fiber --> FiberContext        inspect_fiber, list_fibers --> FiberInspection
recovery --> FiberRecoveryContext --> on_fiber_recovered --> FiberCompleted | FiberFailed | …
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast

import msgspec

from ..abort import AbortSignal
from ..clock import moment_of
from ..errors import InvalidFiber
from ..json_values import check_json
from ..messages import UNSET, bounded_json, decode_json
from ..settings import as_settings, check_fields
from ..store.port import Row

__all__ = [
    "TERMINAL",
    "Fiber",
    "FiberAborted",
    "FiberCompleted",
    "FiberContext",
    "FiberFailed",
    "FiberInspection",
    "FiberInterrupted",
    "FiberOutcome",
    "FiberRecovery",
    "FiberRecoveryContext",
    "FiberStatus",
    "as_json",
    "as_object",
    "fiber_recovery_of",
    "words",
]

log = logging.getLogger("everthink.fibers")

FiberStatus = Literal["pending", "running", "completed", "error", "aborted", "interrupted"]
TERMINAL: frozenset[str] = frozenset({"completed", "error", "aborted", "interrupted"})


class FiberContext:
    """What a fiber's function is given."""

    __slots__ = ("_stash", "id", "name", "signal", "snapshot")

    def __init__(
        self,
        id: str,
        name: str,
        signal: AbortSignal,
        snapshot: Any,
        stash: Callable[[Any], Awaitable[None]],
    ) -> None:
        self.id, self.name = id, name
        self.signal = signal
        """Fires when somebody cancels the fiber. Look at it between two steps; nothing stops you by force."""
        self.snapshot: Any = snapshot
        """The last checkpoint before `resume_fiber`; `None` for a fiber that runs for the first time."""
        self._stash = stash

    async def stash(self, data: Any) -> None:
        """Keep a checkpoint (any JSON value) in place of the one before. It is durable when this returns."""
        await self._stash(data)


@dataclass(frozen=True, slots=True)
class FiberInspection:
    """How a managed fiber stands. `accepted` is True only for whoever started it."""

    fiber_id: str
    name: str
    status: FiberStatus
    created_at: datetime
    idempotency_key: str | None = None
    snapshot: Any = None
    error: str | None = None
    metadata: dict[str, Any] | None = None
    started_at: datetime | None = None
    settled_at: datetime | None = None
    accepted: bool = False

    @property
    def is_settled(self) -> bool:
        """True when the fiber neither waits nor runs."""
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class FiberRecoveryContext:
    """A fiber that was cut off, as `on_fiber_recovered` finds it."""

    id: str
    name: str
    snapshot: Any
    """The last checkpoint, or `None`."""
    created_at: datetime
    recovery_reason: Literal["interrupted"] = "interrupted"
    status: FiberStatus | None = None
    """Of a managed fiber: `"interrupted"`. `None` for one of `run_fiber`."""
    idempotency_key: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FiberCompleted:
    """The work is done. What is not given stays as it was stored."""

    snapshot: Any = UNSET
    metadata: Any = UNSET


@dataclass(frozen=True, slots=True)
class FiberFailed:
    """The work failed for good."""

    error: str | None = None
    snapshot: Any = UNSET


@dataclass(frozen=True, slots=True)
class FiberAborted:
    """The work is not wanted any more."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FiberInterrupted:
    """The work stays as it was found, to be resolved later."""

    reason: str | None = None


FiberOutcome = FiberCompleted | FiberFailed | FiberAborted | FiberInterrupted
"""What became of a managed fiber that was cut off."""


@dataclass(frozen=True, slots=True)
class FiberRecovery:
    """How long recovery of fibers may take, in seconds. 0 means without a limit."""

    scan_deadline: float = 10.0
    """One scan takes up no further fiber after this; the rest waits for the next scan."""
    max_age: float = 86_400.0
    """A fiber of `run_fiber` older than this is dropped when its hook fails once more."""

    def __post_init__(self) -> None:
        check_fields(self, "FiberRecovery")


def fiber_recovery_of(setting: FiberRecovery | Mapping[str, Any]) -> FiberRecovery:
    """What `fiber_recovery` asks for."""
    return as_settings(FiberRecovery, setting, "fiber_recovery")


class Fiber(NamedTuple):
    """A row of the table."""

    id: str
    name: str
    managed: int
    status: str
    idempotency_key: str | None
    snapshot: str | None
    metadata: str | None
    error: str | None
    attempts: int
    created_at: int
    started_at: int | None
    settled_at: int | None

    @classmethod
    def of(cls, row: Row) -> Fiber:
        """The row as it was fetched."""
        return cls(*row)

    def inspection(self, *, accepted: bool = False) -> FiberInspection:
        """The row as people see it."""
        return FiberInspection(
            fiber_id=self.id,
            name=self.name,
            status=cast("FiberStatus", self.status),
            created_at=moment_of(self.created_at),
            idempotency_key=self.idempotency_key,
            snapshot=self._decoded("snapshot", self.snapshot),
            error=self.error,
            metadata=self._decoded("metadata", self.metadata),
            started_at=None if self.started_at is None else moment_of(self.started_at),
            settled_at=None if self.settled_at is None else moment_of(self.settled_at),
            accepted=accepted,
        )

    def recovery(self) -> FiberRecoveryContext:
        """The row as `on_fiber_recovered` sees it."""
        return FiberRecoveryContext(
            id=self.id,
            name=self.name,
            snapshot=self._decoded("snapshot", self.snapshot),
            created_at=moment_of(self.created_at),
            status=cast("FiberStatus", self.status) if self.managed else None,
            idempotency_key=self.idempotency_key,
            metadata=self._decoded("metadata", self.metadata),
        )

    def _decoded(self, what: str, text: str | None) -> Any:
        if text is None:
            return None
        try:
            return decode_json(text)
        except msgspec.DecodeError:
            log.warning("the %s of fiber %s (%s) is not readable and is ignored", what, self.id, self.name)
            return None


def as_json(value: Any, what: str) -> str:
    """`value` as JSON text. Raises `NotJson` when it is none."""
    check_json(value, what)
    try:
        return bounded_json(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidFiber(
            f"{what} is not JSON ({error}).",
            kept="What was stored before stays.",
            next_step="Use text, numbers, lists and dicts.",
        ) from error


def as_object(value: Any, what: str) -> str | None:
    """`value` (`None` stays) as the JSON text of an object. Raises when it is none."""
    if value is not None and not isinstance(value, dict):
        raise InvalidFiber(f"{what} is not a dict: {value!r:.80}.", kept="Nothing was stored.")
    return None if value is None else as_json(value, what)


def words(error: BaseException) -> str:
    """What an error says, or its kind when it says nothing."""
    return str(error) or type(error).__name__
