"""What we write to the log: nobody's secret, nobody's forged line, nobody's flood.

    log.warning("%s is refused", path) --> Clean --> the application's handlers, or ours (serving/process.py)

`Clean` sits on each of our loggers, so it does its work whoever wrote the handlers: values are masked
(`masking.py`), stand on one line without control characters (`plain.py`), and are cut when they are long.
A traceback is indented, so that a line of it never looks like a line of the log. Warnings that somebody
causes again and again are counted instead of written (`Sparing`).
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, cast
from weakref import WeakKeyDictionary

from .masking import mask, shortened
from .plain import cut, plain

__all__ = ["CLEAN", "LOGGERS", "Clean", "Sparing", "clean", "cleaned_traceback", "guarded"]

_SEEN = "everthink_cleaned"
LONGEST_VALUE = 2000
LONGEST_LINE = 1000
MOST_LINES = 120
MOST_KINDS = 200
MOST_OF_A_KIND = 100
"""So many warnings of one kind are written in a minute; the rest is counted."""

LOGGERS = (
    "abort",
    "agent",
    "browser",
    "cli",
    "client",
    "children",
    "cluster",
    "codemode",
    "devtools",
    "extensions",
    "fibers",
    "hooks",
    "machines",
    "mcp",
    "messengers",
    "models",
    "observe",
    "recovery",
    "runtime",
    "sandbox",
    "schedules",
    "server",
    "session",
    "skills",
    "store",
    "submissions",
    "tasks",
    "tools",
    "turn",
    "workspace",
)
"""The last words of our loggers' names: `everthink.server` and so on."""


def clean(value: object, *, longest: int = LONGEST_VALUE) -> str:
    """A value that somebody else chose, fit for a line of the log."""
    # Shortened first: masking a text of megabytes for the sake of its beginning would hold the loop.
    said = value if isinstance(value, str) else str(value)
    return cut(plain(mask(shortened(said, 2 * longest))), longest)


class Sparing(logging.Filter):
    """Lets `most` records of a kind pass in each `seconds`, then counts, and says how many were left out.

    A kind is what the line says without its values.
    """

    def __init__(
        self, *, most: int = 20, seconds: float = 60.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._most, self._seconds, self._now = most, seconds, now
        # By kind: when its time began, how many passed, how many did not.
        self._kinds: dict[object, list[float]] = {}

    def allows(self, kind: object) -> tuple[bool, int]:
        """Whether one more may be written, and how many before it were not."""
        now = self._now()
        counted = self._kinds.get(kind)
        if counted is None or now - counted[0] >= self._seconds:
            missed = int(counted[2]) if counted else 0
            self._kinds.pop(kind, None)
            while len(self._kinds) >= MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            self._kinds[kind] = [now, 1, 0]
            return True, missed
        if counted[1] < self._most:
            counted[1] += 1
            return True, 0
        counted[2] += 1
        return False, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether `record` is written. The first after some that were not says how many.

        What is said below a warning was asked for, and all of it is written.
        """
        if record.levelno < logging.WARNING:
            return True
        event: dict[str, Any] = getattr(record, "event", {})  # of observe/bus.py: all have one form
        kind = (record.name, record.levelno, event.get("type") or str(record.msg)[:200])
        passes, missed = self.allows(kind)
        if missed:
            record.msg = f"({missed} lines like the next were left out.) {record.msg}"
        return passes


class _Value:
    """An argument of a record, cleaned when it is written."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return clean(self._value)

    def __repr__(self) -> str:
        return clean(repr(self._value))


class Clean(logging.Filter):
    """Cleans the values and the traceback of every record, and holds back what comes too often."""

    def __init__(self) -> None:
        super().__init__()
        # Each server counts for itself, and a server is a loop.
        self._sparing: WeakKeyDictionary[Any, Sparing] = WeakKeyDictionary()

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean `record`. False when enough of its kind were written."""
        if _SEEN in record.__dict__:
            return True  # by our logger, before it came to our handler
        record.__dict__[_SEEN] = True
        if not self._is_spared(record):
            return False
        if isinstance(record.args, Mapping):
            named = cast("Mapping[str, Any]", record.args)
            record.args = {name: _cleaned(value) for name, value in named.items()}
        elif record.args:
            record.args = tuple(map(_cleaned, record.args))
        if record.exc_info and not record.exc_text:
            # Formatters write this text when it is there.
            record.exc_text = cleaned_traceback(record.exc_info[1])
        return True

    def _is_spared(self, record: logging.LogRecord) -> bool:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return True  # no client is at work outside of one
        if (sparing := self._sparing.get(loop)) is None:
            sparing = self._sparing[loop] = Sparing(most=MOST_OF_A_KIND)
        return sparing.filter(record)


def _cleaned(value: Any) -> Any:
    return value if isinstance(value, int | float | _Value | None) else _Value(value)


def cleaned_traceback(error: BaseException | None) -> str:
    """The traceback of `error`, masked, indented, and bounded: its beginning and its end."""
    if error is None:
        return ""
    lines = "".join(traceback.format_exception(error)).splitlines()
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        left_out = f"… {len(lines) - 2 * half} lines are left out …"
        lines = [*lines[:half], left_out, *lines[-half:]]
    text = mask("\n".join(shortened(line, LONGEST_LINE) for line in lines))
    return "\n".join(f"  {plain(line)}" for line in text.split("\n"))


CLEAN = Clean()


def guarded(name: str) -> logging.Logger:
    """The logger `everthink.<name>`, with `CLEAN` on it."""
    logger = logging.getLogger(f"everthink.{name}")
    logger.addFilter(CLEAN)  # without effect when it is there
    return logger


for _name in LOGGERS:
    guarded(_name)
