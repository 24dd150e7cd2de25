"""Overlays: a summary shown in place of a range of messages. The messages themselves stay.

    compaction --Overlay--> (walk back from the tip) --> the path as it is shown

Pure. Ancestors are unique, so an overlay whose last message is on a path covers a range of that
path. Walking back from the tip, the overlay that ends latest is met first and wins; of those that
end at one message the one that begins earliest does, and of equal ones the later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..clock import ms_of
from ..messages import Message

__all__ = ["OVERLAY_PREFIX", "Overlay", "applied", "by_last", "is_overlay"]

OVERLAY_PREFIX = "compaction_"


@dataclass(frozen=True, slots=True)
class Overlay:
    """A stored compaction: messages `from_message_id` to `to_message_id` are shown as `summary`."""

    id: str
    from_message_id: str
    to_message_id: str
    summary: str
    reason: str
    """Why it was made: `"asked"`, `"threshold"`, `"reactive"` or `"proactive"`."""
    tokens_before: int
    """What the conversation was estimated at before it."""
    created_at: datetime
    seq: int = 0
    """Grows with each overlay of the session."""
    first: int = 0
    """The sequence number of the first message it covers."""
    above: str | None = None
    """The parent of that message."""

    @property
    def message_id(self) -> str:
        """The id of the message shown in place of the range. No row has it."""
        return OVERLAY_PREFIX + self.id

    def message(self) -> Message:
        """The message shown in place of the range."""
        said = Message(self.message_id, "assistant", [{"type": "text", "text": self.summary}])
        return said.stored(ms_of(self.created_at))


def is_overlay(message: Message) -> bool:
    """True for a message that stands for others: it has no row and is never stored."""
    return message.id.startswith(OVERLAY_PREFIX)


def by_last(overlays: Iterable[Overlay]) -> dict[str, Overlay]:
    """The overlay that counts at each last message."""
    found: dict[str, Overlay] = {}
    for overlay in sorted(overlays, key=lambda one: one.seq):
        known = found.get(overlay.to_message_id)
        if known is None or overlay.first <= known.first:
            found[overlay.to_message_id] = overlay
    return found


def applied(messages: Sequence[Message], overlays: Iterable[Overlay]) -> list[Message]:
    """A path with the overlays that lie inside it, as `messages` shows them."""
    ends = by_last(overlays)
    if not ends:
        return list(messages)
    index_of = {message.id: index for index, message in enumerate(messages)}
    shown: list[Message] = []
    index = len(messages) - 1
    while index >= 0:
        overlay = ends.get(messages[index].id)
        start = None if overlay is None else index_of.get(overlay.from_message_id)
        if overlay is None or start is None or start > index:
            shown.append(messages[index])
            index -= 1
        else:
            shown.append(overlay.message())
            index = start - 1
    return shown[::-1]
