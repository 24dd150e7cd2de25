"""Name the code that held the event loop. One thread for each app.

    thread --"are you there?"--> event loop --yes--> (nothing)
       └--no answer for a second--> the stack of the loop's thread --> a warning, `loop:blocked`

While a function holds the loop nobody is served, and afterwards nobody knows which one it was. The thread
writes the warning at once, since the loop may never come back; the event follows when it does. A loop that
only waits for something to do has answered, so what is found is always code.
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
from .actor import Actor

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
    """Who holds the loop: the innermost frame of the application, else of ours, else of all."""

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
                self._asked_at = time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:
                    return  # the loop is closed
            elif self._found is None and time.monotonic() - asked >= self._threshold:
                self._look(asked)

    def _look(self, asked: float) -> None:
        frame = sys._current_frames().get(self._watched)  # pyright: ignore[reportPrivateUsage]
        held = None if frame is None else held_by(frame, self._task())
        if held is not None and self._asked_at == asked:
            self._found = held  # before the warning: the loop may go on while that is written
            self._warn(held, time.monotonic() - asked)

    def _task(self) -> str | None:
        with contextlib.suppress(RuntimeError):
            task = asyncio.current_task(self._loop)
            return task.get_name() if task is not None else None
        return None

    def _warn(self, held: Held, seconds: float) -> None:
        now = time.monotonic()
        if now - self._named.get(held.where, -QUIET) < QUIET:
            self._unnamed += 1
            return
        self._named.pop(held.where, None)
        self._named[held.where] = now
        if len(self._named) > MAX_PLACES:
            del self._named[next(iter(self._named))]
        more = f" (it was held {self._unnamed} times more since the last warning)" if self._unnamed else ""
        self._unnamed = 0
        log.warning(
            "The event loop is held for %.1f s now by %s in %s (agent %.100r, task %.100r)%s. Nobody is"
            " served meanwhile: let it wait with `await`, or use asyncio.to_thread.",
            seconds,
            held.where,
            held.function,
            held.agent,
            held.task,
            more,
        )

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
    while frame is not None and not _is_of_the_loop(frame):
        file = frame.f_code.co_filename
        if file.startswith(_OURS):
            ours = ours or frame
        elif not file.startswith(("<", *_LIBRARIES)):
            theirs = theirs or frame
        agent = agent or _agent_in(frame)
        frame = frame.f_back
    found = theirs or ours or innermost
    return Held(f"{found.f_code.co_filename}:{found.f_lineno}", found.f_code.co_qualname, task, agent)


def _agent_in(frame: FrameType) -> str | None:
    """The address of the agent that a method or our machinery runs for."""
    for name in ("self", "host", "home", "actor"):
        one: Any = frame.f_locals.get(name)
        home: Any = getattr(one, "_home", one)
        if isinstance(home, Actor):
            return home.id
    return None


def _is_of_the_loop(frame: FrameType) -> bool:
    """True for the loop itself. What lies beneath it is the program that started it."""
    return any(loop in frame.f_code.co_filename for loop in _LOOPS)
