"""Carry events from agents to whoever wants to know.

    agent --body--> EventBus.emit --Event--> logging, callbacks, listeners

Delivery is synchronous, in the task that emits; what a subscriber does can never reach
the agent: errors are logged, async callbacks run in tasks of their own, a slow listener
loses its oldest events. Without a subscriber and below the log level nothing is built.

Emit and listen on the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import inspect
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast, overload

from ..logs import guarded
from ..masking import masked
from ..surface import yields
from .events import CHANNELS, EVENTS, Event, EventBody, channel_of

__all__ = ["Callback", "EventBus", "Listener", "Unsubscribe"]

log = logging.getLogger("everthink.observe")

Callback = Callable[[Event], object]
"""A function or coroutine function that takes an event. What it returns is ignored."""

Unsubscribe = Callable[[], None]

AnyCallback = TypeVar("AnyCallback", bound=Callback)

_LONGEST_LOGGED = 500


class _Subscriber:
    """One callback and what it asked for."""

    __slots__ = ("active", "callback", "channels", "context", "types")

    def __init__(self, callback: Callback, channels: frozenset[str] | None, types: tuple[str, ...] | None):
        self.callback, self.channels, self.types = callback, channels, types
        self.active = True
        # Async callbacks run in the context of whoever subscribed: one that starts a turn
        # must not look as if it came from inside the turn it was told about.
        self.context = contextvars.copy_context()

    def wants(self, kind: type[EventBody]) -> bool:
        if self.channels is not None and kind.channel not in self.channels:
            return False
        return self.types is None or any(_matches(pattern, kind.type) for pattern in self.types)


class _Route(NamedTuple):
    """Where events of one kind go. Rebuilt when subscriptions change."""

    logger: logging.Logger
    subscribers: tuple[_Subscriber, ...]


class EventBus:
    """Takes events from agents and hands them to subscribers and to the log.

        bus.subscribe(print, channel="chat")

        @bus.subscribe(type="chat:recovery:*")
        async def page_someone(event): ...

    `now_ms` gives the time an event is stamped with.
    """

    def __init__(self, *, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._subscribers: list[_Subscriber] = []
        self._routes: dict[type[EventBody], _Route] = {}
        self._running: set[asyncio.Task[None]] = set()

    @overload
    def subscribe(
        self,
        callback: Callback,
        *,
        channel: str | Sequence[str] | None = None,
        type: str | Sequence[str] | None = None,
    ) -> Unsubscribe: ...

    @overload
    def subscribe(
        self, *, channel: str | Sequence[str] | None = None, type: str | Sequence[str] | None = None
    ) -> Callable[[AnyCallback], AnyCallback]: ...

    def subscribe(
        self,
        callback: Callback | None = None,
        *,
        channel: str | Sequence[str] | None = None,
        type: str | Sequence[str] | None = None,
    ) -> Any:
        """Call `callback(event)` for every event, or those of some channels or types.

        `channel` is `"agents:chat"` or short `"chat"`; `type` is exact or a prefix like
        `"chat:recovery:*"`; both may be lists. Returns how to unsubscribe, or a decorator
        when called without a callback.
        """
        channels, types = _asked(channel, type)

        def add(callback: AnyCallback) -> AnyCallback:
            self._add(callback, channels, types)
            return callback

        return add if callback is None else self._add(callback, channels, types)

    def listen(
        self,
        *,
        channel: str | Sequence[str] | None = None,
        type: str | Sequence[str] | None = None,
        buffer: int = 1000,
    ) -> Listener:
        """Iterate over events as they happen.

        async with bus.listen(channel="chat") as events:
            async for event in events: ...
        """
        return Listener(self, channel=channel, type=type, buffer=buffer)

    def emit(self, agent: str, name: str, body: EventBody, parents: tuple[tuple[str, str], ...] = ()) -> None:
        """Publish `body` for the instance `name` of the agent class called `agent`. Never raises.

        `parents` are class and name of those above it, for a child."""
        kind = body.__class__
        route = self._routes.get(kind) or self._route(kind)
        logs = route.logger.isEnabledFor(kind.level)
        if not (logs or route.subscribers):
            return
        try:
            told, at = masked(body.payload()), self._now_ms()
            event = Event(kind.type, kind.channel, agent, name, told, at, body, parents)
            if logs:
                _log(route.logger, event)
        except Exception:
            log.exception("%s could not be reported.", kind.type)
            return
        for subscriber in route.subscribers:
            if subscriber.active:
                self._deliver(subscriber, event)

    async def drain(self) -> None:
        """Wait for the async callbacks that are still running."""
        while self._running:
            await asyncio.wait(self._running)

    def _add(
        self, callback: Callback, channels: frozenset[str] | None, types: tuple[str, ...] | None
    ) -> Unsubscribe:
        if not callable(cast("Any", callback)):
            raise TypeError(
                f"subscribe() is given {callback!r:.80} in the place of a function. It gets each event:"
                " app.events.subscribe(print)."
            )
        if yields(callback):
            raise TypeError(
                f"subscribe() is given {callback!r:.80}, which has a `yield`: calling it would run nothing"
                " of it. Give a plain or async function, or use `async for event in app.events.listen()`."
            )
        subscriber = _Subscriber(callback, channels, types)
        self._subscribers.append(subscriber)
        self._routes.clear()

        def unsubscribe() -> None:
            if subscriber.active:
                subscriber.active = False
                self._subscribers.remove(subscriber)
                self._routes.clear()

        return unsubscribe

    def _route(self, kind: type[EventBody]) -> _Route:
        wanted = tuple(subscriber for subscriber in self._subscribers if subscriber.wants(kind))
        logger = guarded(kind.channel.removeprefix("agents:"))
        route = self._routes[kind] = _Route(logger, wanted)
        return route

    def _deliver(self, subscriber: _Subscriber, event: Event) -> None:
        try:
            result = subscriber.callback(event)
            if result is not None and inspect.isawaitable(result):
                self._run(subscriber, result, event)
        except Exception:
            log.exception("A subscriber raised on %s.", event.type)

    def _run(self, subscriber: _Subscriber, result: Awaitable[object], event: Event) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if inspect.iscoroutine(result):
                result.close()
            log.warning("An async subscriber missed %s: it was emitted outside the event loop.", event.type)
            return
        task = loop.create_task(_finish(result, event.type), context=subscriber.context.copy())
        self._running.add(task)
        task.add_done_callback(self._running.discard)


class Listener:
    """Events as an async iterator. Holds at most `buffer`; then the oldest are dropped and counted."""

    def __init__(
        self,
        bus: EventBus,
        *,
        channel: str | Sequence[str] | None,
        type: str | Sequence[str] | None,
        buffer: int,
    ) -> None:
        if buffer < 1:
            raise ValueError(f"A listener needs a buffer of at least 1 event, not {buffer}.")
        self.dropped = 0
        """How many events were lost because nobody took them in time."""
        self._bus, self._channel, self._type = bus, channel, type
        self._events: deque[Event] = deque(maxlen=buffer)
        self._changed = asyncio.Event()
        self._unsubscribe: Unsubscribe | None = None

    async def __aenter__(self) -> Listener:
        self._unsubscribe = self._bus.subscribe(self._keep, channel=self._channel, type=self._type)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._changed.set()

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._unsubscribe is None:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._events.popleft()

    def _keep(self, event: Event) -> None:
        if len(self._events) == self._events.maxlen:
            self.dropped += 1
        self._events.append(event)
        self._changed.set()


async def _finish(result: Awaitable[object], type: str) -> None:
    try:
        await result
    except Exception:
        log.exception("A subscriber raised on %s.", type)


# --- what was asked for ------------------------------------------------------------------


def _asked(
    channel: str | Sequence[str] | None, type: str | Sequence[str] | None
) -> tuple[frozenset[str] | None, tuple[str, ...] | None]:
    """What is listened to. Raises when a type is on none of the channels: it would never be heard of."""
    channels, types = _channels(channel), _types(type)
    for pattern in types or ():
        on = sorted({channel_of(known) for known in EVENTS if _matches(pattern, known)})
        if channels is not None and channels.isdisjoint(on):
            raise ValueError(
                f"Events of the type {pattern!r} are on {' and '.join(on)}, not on"
                f" {' or '.join(sorted(channels))}: this would never be called."
                " Leave the channel out, or name theirs."
            )
    return channels, types


def _channels(asked: str | Sequence[str] | None) -> frozenset[str] | None:
    if asked is None:
        return None
    return frozenset(_channel(name) for name in _each(asked))


def _channel(name: str) -> str:
    full = name if name.startswith("agents:") else f"agents:{name}"
    if full not in CHANNELS:
        raise ValueError(f"There is no event channel {name!r}. {_nearest(full, CHANNELS)}")
    return full


def _types(asked: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if asked is None:
        return None
    for pattern in _each(asked):
        if not any(_matches(pattern, known) for known in EVENTS):
            raise ValueError(f"No event has the type {pattern!r}. {_nearest(pattern, EVENTS)}")
    return tuple(_each(asked))


def _matches(pattern: str, type: str) -> bool:
    return type.startswith(pattern[:-1]) if pattern.endswith("*") else type == pattern


def _each(asked: str | Sequence[str]) -> Sequence[str]:
    return (asked,) if isinstance(asked, str) else asked


def _nearest(asked: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(asked, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known are: {', '.join(sorted(known))}."


# --- the log -----------------------------------------------------------------------------


def _log(logger: logging.Logger, event: Event) -> None:
    payload = {key: _loggable(value) for key, value in event.payload.items()}
    fields = "".join(f" {key}={_short(value)}" for key, value in payload.items())
    extra = {"event": {**event.to_json(), "payload": payload}}
    logger.log(event.body.level, "%s %s%s", event.type, event.id, fields, extra=extra)


def _loggable(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_LOGGED else value[:_LONGEST_LOGGED] + "…"
    return value


def _short(value: Any) -> str:
    if isinstance(value, str) and value and not any(c.isspace() or c in '"=' for c in value):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
