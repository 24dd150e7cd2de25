"""Abort signals: how a turn, its model call and its tools learn that they should stop.

    cancel_chat, cancel frame, reset --> AbortRegistry --> AbortSignal --> turn/loop, models/, tools/

A signal fires at most once and keeps its first reason. Callbacks run synchronously, on the
event loop's thread; one that raises is logged and does not keep the others from running.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

__all__ = ["AbortController", "AbortRegistry", "AbortSignal", "Aborted"]

log = logging.getLogger("everthink.abort")


class Aborted(Exception):
    """Raised by `AbortSignal.raise_if_aborted`."""


class AbortSignal:
    """Tells that work should stop. Read `aborted` and `reason`, or wait for it."""

    __slots__ = ("_aborted", "_callbacks", "_reason", "_waiters")

    def __init__(self) -> None:
        self._aborted = False
        self._reason: object = None
        self._callbacks: dict[int, Callable[[AbortSignal], object]] | None = None
        self._waiters: set[asyncio.Future[None]] | None = None

    @property
    def aborted(self) -> bool:
        """True once the work should stop."""
        return self._aborted

    @property
    def reason(self) -> object:
        """Why, as given by whoever aborted first; `None` when no reason was given."""
        return self._reason

    @property
    def listeners(self) -> int:
        """How many callbacks are attached."""
        return len(self._callbacks or ())

    def raise_if_aborted(self) -> None:
        """Raise `Aborted` when the work should stop."""
        if self._aborted:
            raise Aborted(str(self._reason) if self._reason is not None else "aborted")

    def on_abort(self, callback: Callable[[AbortSignal], object]) -> Callable[[], None]:
        """Call `callback(signal)` when aborted, at once if it already is. Returns how to detach it."""
        if self._aborted:
            callback(self)
            return lambda: None
        if self._callbacks is None:
            self._callbacks = {}
        key = id(callback)
        while key in self._callbacks:
            key += 1
        self._callbacks[key] = callback
        callbacks = self._callbacks
        return lambda: callbacks.pop(key, None) and None

    async def wait(self) -> None:
        """Return once aborted."""
        if self._aborted:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = set()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _fire(self, reason: object) -> None:
        if self._aborted:
            return
        self._aborted, self._reason = True, reason
        callbacks, self._callbacks = self._callbacks or {}, None
        for callback in list(callbacks.values()):
            try:
                callback(self)
            except Exception:
                log.exception("an abort listener raised")
        callbacks.clear()
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)


class AbortController:
    """The side that may abort. Hand out `signal`."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: object = None) -> None:
        """Fire the signal. Later calls do nothing."""
        self.signal._fire(reason)  # pyright: ignore[reportPrivateUsage]


class AbortRegistry:
    """One controller per request id, made when first asked for."""

    def __init__(self) -> None:
        self._controllers: dict[str, AbortController] = {}

    def __len__(self) -> int:
        return len(self._controllers)

    def signal(self, request_id: object) -> AbortSignal | None:
        """The signal of `request_id`, made if needed. Ids that are not text have none."""
        if not isinstance(request_id, str):
            return None
        controller = self._controllers.get(request_id)
        if controller is None:
            controller = self._controllers[request_id] = AbortController()
        return controller.signal

    def controller(self, request_id: str) -> AbortController:
        """The controller of `request_id`, made if needed."""
        self.signal(request_id)
        return self._controllers[request_id]

    def peek(self, request_id: str) -> AbortSignal | None:
        """The signal of `request_id` if there is one."""
        controller = self._controllers.get(request_id)
        return controller.signal if controller else None

    def cancel(self, request_id: str, reason: object = None) -> bool:
        """Abort `request_id`. False when nothing of that id runs."""
        controller = self._controllers.get(request_id)
        if controller is None:
            return False
        controller.abort(reason)
        return True

    def link(self, request_id: str, external: AbortSignal | None) -> Callable[[], None]:
        """Abort `request_id` when `external` fires. Returns how to unlink."""
        if external is None:
            return lambda: None
        self.signal(request_id)
        return external.on_abort(lambda signal: self.cancel(request_id, signal.reason))

    def remove(self, request_id: str, signal: AbortSignal | None = None) -> None:
        """Forget `request_id` (unless it has another signal by now); a later `signal` makes a fresh one."""
        controller = self._controllers.get(request_id)
        if controller is not None and signal in (None, controller.signal):
            del self._controllers[request_id]

    def abort_all(self, reason: object = None) -> None:
        """Abort everything registered."""
        for controller in list(self._controllers.values()):
            controller.abort(reason)

    def destroy_all(self, reason: object = None) -> None:
        """Abort everything and forget it."""
        self.abort_all(reason)
        self._controllers.clear()
