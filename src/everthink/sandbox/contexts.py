"""Contexts of JavaScript that outlive their job: a few in each child; the one goes that rested longest.

    javascript_guest.py --a job with `keep`--> taken: the context, if it is there --> ended well: kept again

Runs in the child; the host reads the number. A context belongs to one name with one source. It is in no other
place while a job is in it, and one that did not come to a clean end is never used again.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Any

__all__ = ["MOST_KEPT", "Contexts", "Place"]

MOST_KEPT = 24
"""So many are kept in a child; it has memory for all of them."""


class Place:
    """A context, and the job that is in it: what the context asks of us is asked of that job."""

    def __init__(self, runtime: Any, loaded: bytes = b"") -> None:
        self.runtime = runtime
        self.loaded = loaded
        """What tells the source that was loaded."""
        self.context: Any = None
        self.job: Any = None

    def must_stop(self) -> bool:
        """Whether what runs is to end."""
        return self.job.must_stop()

    def resolved(self, base: str, name: str) -> str | None:
        """Which module is meant."""
        return self.job.resolved(base, name)

    def module(self, name: str) -> str | None:
        """The source of a module."""
        return self.job.module(name)

    def asked(self, what: str, *args: Any) -> Any:
        """Called from JavaScript."""
        return self.job.asked(what, *args)

    async def following(self) -> Any:
        """What happens next."""
        return await self.job.following()

    def close(self) -> None:
        """Free what it holds."""
        with contextlib.suppress(Exception):  # of an engine that has trapped; what it held is freed
            self.runtime.close()


class Contexts:
    """Those that rest."""

    def __init__(self) -> None:
        self._resting: OrderedDict[str, Place] = OrderedDict()

    def taken(self, name: str, loaded: bytes) -> Place | None:
        """That of a name, if the same was loaded there."""
        place = self._resting.pop(name, None)
        if place is None or place.loaded == loaded:
            return place
        place.close()
        return None

    def keep(self, name: str, place: Place) -> None:
        """Let it rest."""
        place.job = None
        self._resting[name] = place
        while len(self._resting) > MOST_KEPT:
            _, oldest = self._resting.popitem(last=False)
            oldest.close()
