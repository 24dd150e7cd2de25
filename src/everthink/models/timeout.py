"""How long a model may be silent before it is given up.

    model --events--> patient --events--> turn/loop        nothing for `model_timeout` seconds: ModelError

Only the waiting for the model counts: tools, hooks and slow readers take their time outside of it. Every
event begins the time anew, so a long answer is no reason.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncGenerator
from typing import Any, Literal

from ..clock import Clock, Timer
from ..errors import InvalidSettings, ModelError
from ..settings import shown
from .port import Model, ModelEvent, Request

__all__ = ["Patient", "asked", "patient"]

Events = AsyncGenerator[ModelEvent, None]


def patient(events: Events, seconds: float | None, *, clock: Clock, name: str) -> Events:
    """The events of a model, or a `ModelError` when the next one does not come within `seconds`.

    `None`, 0 and `math.inf`: it may take for ever.
    """
    if not seconds or seconds <= 0 or seconds == math.inf:
        return events
    return _Patience(events, seconds, clock, name).events()


def asked(model: Model, request: Request) -> Events:
    """What a model streams. Raises when its `stream` gives something else."""
    events = model.stream(request)
    if hasattr(events, "__anext__") and hasattr(events, "aclose"):
        return events
    given: Any = events
    told = shown(given)
    if inspect.iscoroutine(given):
        given.close()
        told = "a coroutine: it is `async def` and has no `yield`"
    raise InvalidSettings(
        f"{type(model).__name__}.stream returned {told}.",
        next_step="Write `async def stream(self, request)` that yields events: TextStart, TextDelta, TextEnd,"
        " Finish.",
    )


class Patient:
    """A model that is given up when it is silent for too long."""

    def __init__(self, model: Model, seconds: float | None, clock: Clock) -> None:
        self._model, self._seconds, self._clock = model, seconds, clock
        self.name = model.name
        self.continues: Literal["prefill", "prompt"] = model.continues

    def stream(self, request: Request) -> Events:
        """Ask the model."""
        return patient(asked(self._model, request), self._seconds, clock=self._clock, name=self.name)


class _Patience:
    """One timer for a whole answer: it looks since when the model is waited for, and waits for the rest.

    Between two events there is little more than a look at the clock: this runs for every word.
    """

    def __init__(self, events: Events, seconds: float, clock: Clock, name: str) -> None:
        self._events, self._seconds, self._clock, self._name = events, seconds, clock, name
        # Since when the model is waited for; `None` while what it said is handled.
        self._since: float | None = None
        self._waits: asyncio.Task[Any] | None = None
        self._is_over = False
        self._timer: Timer | None = None

    async def events(self) -> Events:
        monotonic = self._clock.monotonic
        self._waits = asyncio.current_task()
        self._look()
        try:
            self._since = monotonic()
            async for event in self._events:
                self._since = None
                yield event
                self._since = monotonic()
        except asyncio.CancelledError:
            if not self._is_over or self._waits is None or self._waits.uncancel() > 0:
                raise  # somebody else stops it
            raise ModelError(
                f"{self._name} said nothing for {self._seconds:g} s and was given up.",
                kind="unknown",
                next_step="Allow it more with the agent's setting model_timeout, in seconds; 0 is for ever.",
            ) from None
        finally:
            self._since = None
            if self._timer is not None:
                self._timer.cancel()
            await self._events.aclose()

    def _look(self) -> None:
        silent = 0.0 if self._since is None else self._clock.monotonic() - self._since
        if self._waits is not None and silent >= self._seconds:
            self._is_over = True
            self._waits.cancel()
            return
        self._timer = self._clock.call_later(self._seconds - silent, self._look, housekeeping=True)
