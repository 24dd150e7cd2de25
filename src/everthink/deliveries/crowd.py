"""How many messages of one person may wait in a conversation. Others wait for them, and each is a turn.

Courier.accept --is_full--> the message is taken | whoever wrote it is told that it was not
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from ..messengers.values import MessengerContext

__all__ = ["TOO_MANY", "Crowd", "Person"]

Person = tuple[str, str]
"""A messenger, and the id that its platform has of somebody."""
TOO_MANY = (
    "I have not come to {} messages of yours yet, and did not take this one. Please send it again later."
)
TOGETHER = 10
"""So many times as many may wait where those that follow each other are answered together."""


class Crowd:
    """Who waits in one conversation. `waiting_turns`: see `Limits`; one person has half of them."""

    def __init__(self, waiting_turns: int) -> None:
        self._share = max(1, waiting_turns // 2)
        # Messages that are being accepted, and are no turns yet.
        self._arriving: Counter[Person] = Counter()

    @staticmethod
    def person(context: MessengerContext) -> Person:
        """Who has written."""
        return context.messenger_id, context.author.user_id

    def too_many(self, person: Person, waiting: Iterable[MessengerContext], *, together: bool) -> int | None:
        """How many of somebody's messages wait, when no more are taken; `None`: one more is."""
        found = self._arriving[person] + sum(1 for one in waiting if self.person(one) == person)
        return found if found >= self._share * (TOGETHER if together else 1) else None

    @contextmanager
    def arriving(self, person: Person) -> Generator[None]:
        """One of theirs is being accepted."""
        self._arriving[person] += 1
        try:
            yield
        finally:
            self._arriving[person] -= 1
            if not self._arriving[person]:
                del self._arriving[person]
