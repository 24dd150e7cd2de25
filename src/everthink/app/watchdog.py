"""Name the code that held the event loop. One thread for each app.

    thread --"are you there?"--> event loop --yes--> (nothing)
       └--no answer for a second--> the stack of the loop's thread --> a warning, `loop:blocked`

While a function holds the loop nobody is served, and afterwards nobody knows which one it was. The thread
writes the warning at once, since the loop may never come back; the event follows when it does. A loop that
only waits for something to do has answered, so what is found is always code; one that runs many short things
one after the other is late, which is said too, and names nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ..observe.events import LoopBlocked
from ..runtime.actor import Actor
from ..turn.host import TurnHost

__all__ = ["Held", "Watchdog", "held_by"]

log = logging.getLogger("everthink.runtime")

BEATS = 4
"""So often within the threshold the loop is asked."""
QUIET = 60.0
"""Seconds in which the same place is named once."""
MAX_PLACES = 100
"""So many places are remembered."""

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple(
    {
        path + os.sep
        for key in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(key))
    }
)
_LOOPS = (os.sep + "asyncio" + os.sep, os.sep + "selectors.py")


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds the loop: the innermost frame of the application, else of ours, else of all.

    A package that is being imported is held against who asked for it, which may be us on their behalf."""

    where: str
    """File and line."""
    function: str
    task: str | None = None
    """The name of the task it is part of, which says which tool or turn it is."""
    agent: str | None = None
    """The agent whose code it is, if that can be seen."""


class Watchdog:
    """Watches the loop it is started on.

    `tell(agent, event)` is called there, once for each time it was held; the agent is empty when not known.
    """

    def __init__(self, tell: Callable[[str, LoopBlocked], object], *, threshold: float = 1.0) -> None:
        self._tell, self._threshold = tell, threshold
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        # The thread asks and notes when; the loop answers by taking the note away.
        self._asked_at: float | None = None
        # What the loop had called when it was looked at last.
        self._called: int | None = None
        self._found: Held | None = None
        self._named: dict[str, float] = {}
        self._unnamed = 0

    def start(self) -> None:
        """Begin, on the loop that runs."""
        self._loop, self._watched = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="everthink watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for the thread: it sleeps for a moment at most."""
        self._over.set()

    # --- on the thread

    def _watch(self) -> None:
        while not self._over.wait(self._threshold / BEATS):
            asked = self._asked_at
            if asked is None:
                self._called = None
                self._asked_at = time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:
                    return  # the loop is closed
            elif self._found is None:
                self._look(asked)

    def _look(self, asked: float) -> None:
        frame = sys._current_frames().get(self._watched)  # pyright: ignore[reportPrivateUsage]
        if frame is None or (called := _called_by_the_loop(frame)) is None:
            return
        before, self._called = self._called, called
        late = time.monotonic() - asked
        if late < self._threshold or self._asked_at != asked:
            return
        if before is not None and before != called:
            # One short thing after the other: nobody holds it, there is too much to do.
            self._warn("", "The event loop is late by %.1f s: it has more to do than it can.", late)
            return
        held = self._found = held_by(frame, self._task())  # before the warning: the loop may go on meanwhile
        if held is not None:
            self._warn(
                held.where,
                "The event loop is held for %.1f s now by %s in %s (agent %.100r, task %.100r). Nobody is"
                " served meanwhile: let it wait with `await`, or use asyncio.to_thread.",
                late,
                held.where,
                held.function,
                held.agent,
                held.task,
            )

    def _task(self) -> str | None:
        with contextlib.suppress(RuntimeError):
            task = asyncio.current_task(self._loop)
            return task.get_name() if task is not None else None
        return None

    def _warn(self, place: str, words: str, *values: object) -> None:
        now = time.monotonic()
        if now - self._named.get(place, -QUIET) < QUIET:
            self._unnamed += 1
            return
        self._named.pop(place, None)
        self._named[place] = now
        if len(self._named) > MAX_PLACES:
            del self._named[next(iter(self._named))]
        if self._unnamed:
            words += f" ({self._unnamed} times more since the last warning.)"
        self._unnamed = 0
        log.warning(words, *values)

    # --- on the loop

    def _answer(self) -> None:
        asked, found = self._asked_at, self._found
        self._found = self._asked_at = None
        if found is not None and asked is not None:
            lasted = (time.monotonic() - asked) * 1e3
            blocked = LoopBlocked(
                where=found.where, function=found.function, task=found.task, duration_ms=lasted
            )
            self._tell(found.agent or "", blocked)


def held_by(innermost: FrameType, task: str | None = None) -> Held | None:
    """Whose code runs in a stack: an application's before ours before a library's. `None`: the loop waits."""
    if _is_of_the_loop(innermost):
        return None
    ours: FrameType | None = None
    frame: FrameType | None = innermost
    theirs: FrameType | None = None
    agent: str | None = None
    is_importing = is_our_import = False
    while frame is not None and not _is_of_the_loop(frame):
        file = frame.f_code.co_filename
        if file.startswith(_OURS):
            is_our_import = is_our_import or (is_importing and theirs is None)
            ours = ours or frame
        elif file.startswith("<frozen importlib"):
            is_importing = True
        elif not file.startswith(("<", *_LIBRARIES)) and not is_our_import:
            theirs = theirs or frame
        agent = agent or _agent_in(frame)
        frame = frame.f_back
    found = theirs or ours or innermost
    return Held(f"{found.f_code.co_filename}:{found.f_lineno}", found.f_code.co_qualname, task, agent)


def _called_by_the_loop(innermost: FrameType) -> int | None:
    """Which of its callbacks or tasks the loop runs, `None` when it waits."""
    frame: FrameType | None = innermost
    called: FrameType | None = None
    while frame is not None and not _is_of_the_loop(frame):
        called, frame = frame, frame.f_back
    return None if called is None else id(called)


def _agent_in(frame: FrameType) -> str | None:
    """The address of the agent that a method or our machinery runs for."""
    for name in ("self", "host", "actor"):
        one: Any = frame.f_locals.get(name)
        owner: Any = getattr(one, "_home", one)
        if isinstance(owner, Actor | TurnHost):
            return owner.id
    return None


def _is_of_the_loop(frame: FrameType) -> bool:
    """True for the loop itself. What lies beneath it is the program that started it."""
    return any(loop in frame.f_code.co_filename for loop in _LOOPS)
