"""Remember what an app's agents reported lately, for the page's inspector.

    EventBus --Event--> Recorder --> steps and usage of a turn, the latest events, whoever follows

The journal says what happened; how many tokens each step took is only told in events. Kept in
memory, a bounded number, from the start of this process on. What looks like a secret is masked.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ..masking import masked
from ..observe.bus import EventBus
from ..observe.events import ChatStepFinish, ChatStepStart, Event

__all__ = ["Recorder"]

Follower = Callable[[dict[str, Any]], object]
EVENTS = 2000
"""So many events of all agents together are kept."""
TURNS = 500
"""Of so many turns the steps are kept."""


class Recorder:
    """Listens to an app and remembers its latest events and the steps of its latest turns."""

    def __init__(self, bus: EventBus) -> None:
        self._events: deque[tuple[str, dict[str, Any]]] = deque(maxlen=EVENTS)
        self._steps: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        self._followers: dict[str, list[Follower]] = {}
        # An event's number alone would come again after a restart.
        self._boot, self._count = uuid.uuid4().hex[:8], 0
        bus.subscribe(self._note)

    def events(self, agent: str) -> list[dict[str, Any]]:
        """The latest events of an agent, by its id, oldest first."""
        return [event for whose, event in self._events if whose == agent]

    def steps(self, agent: str, request_id: str) -> list[dict[str, Any]] | None:
        """The steps of a turn, as far as they have come; `None` when it was not seen."""
        found = self._steps.get((agent, request_id))
        return None if found is None else [found[number] for number in sorted(found)]

    def follow(self, agent: str, follower: Follower) -> Callable[[], None]:
        """Tell `follower` every event of an agent from now on. Returns how to stop that."""
        followers = self._followers.setdefault(agent, [])
        followers.append(follower)

        def stop() -> None:
            followers.remove(follower)
            if not followers:
                self._followers.pop(agent, None)

        return stop

    def _note(self, event: Event) -> None:
        agent = event.id
        self._count += 1
        kept = {
            "id": f"{self._boot}-{self._count}",
            "type": event.type,
            "channel": event.channel,
            "timestamp": event.timestamp,
            "payload": masked(event.payload),
        }
        self._events.append((agent, kept))
        if isinstance(event.body, ChatStepStart | ChatStepFinish):
            self._note_step(agent, event.body)
        for follower in list(self._followers.get(agent, ())):
            follower(kept)

    def _note_step(self, agent: str, body: ChatStepStart | ChatStepFinish) -> None:
        steps = self._steps.setdefault((agent, body.request_id), {})
        step: dict[str, Any] = {"number": body.step_number, "model": body.model}
        if isinstance(body, ChatStepFinish):
            step |= {"finish_reason": body.finish_reason, "duration_ms": body.duration_ms}
            if body.usage is not None:
                counts = msgspec.structs.asdict(body.usage)
                step["usage"] = {name: count for name, count in counts.items() if count is not None}
        steps[body.step_number] = step
        while len(self._steps) > TURNS:
            del self._steps[next(iter(self._steps))]
