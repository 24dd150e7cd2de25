"""How a session lies: its tree of messages, and the summaries over it.

    rows of messages and compactions --> Layout --> which summary is shown, where a message is

Pure. Summaries exist only in what is shown (`compaction_…`); here they are put beside the rows that
they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..clock import ms_of
from ..session.overlay import Overlay, by_last
from .view import Tree

__all__ = ["Layout"]

Json = dict[str, Any]


class Layout:
    """The messages of a session and the summaries over them."""

    def __init__(self, tree: Tree, overlays: Sequence[Overlay]) -> None:
        self.tree = tree
        self.overlays = list(overlays)
        self._by_id = {one.message_id: one for one in overlays} | {one.id: one for one in overlays}
        self._path = tree.path()
        self._on_path = set(self._path)
        # Of the messages that a summary stands for at the moment: which one.
        self._covered = _covered(self._path, overlays)

    def overlay(self, id: str) -> Overlay | None:
        """A summary by its id, or by the id of the message it is shown as."""
        return self._by_id.get(id)

    def row(self, id: str) -> str:
        """The stored message that `id` means: for a summary, the last one it stands for."""
        overlay = self._by_id.get(id)
        return id if overlay is None else overlay.to_message_id

    def messages_of(self, overlay: Overlay) -> list[str] | None:
        """The ids a summary stands for, oldest first; `None` when they are too far back to be seen."""
        ids = self.tree.between(overlay.from_message_id, overlay.to_message_id)
        return ids or None

    def state(self, overlay: Overlay) -> str:
        """`shown`, `covered` by a later one, or on another `branch`."""
        if overlay.to_message_id not in self._on_path:
            return "branch"
        return "shown" if self._covered.get(overlay.to_message_id) is overlay else "covered"

    def where(self, id: str) -> Json:
        """Where a message is found: `shown`, `summarised` (and in which one), or on another `branch`."""
        if overlay := self._covered.get(id):
            return {"where": "summarised", "summary": overlay.message_id}
        return {"where": "shown" if id in self._on_path else "branch", "summary": None}

    def forks(self) -> dict[str, Json]:
        """`Tree.forks`, also under the id of a summary that ends where the branches begin."""
        found = self.tree.forks()
        for overlay in self._covered.values():
            if fork := found.get(overlay.to_message_id):
                found[overlay.message_id] = fork
        return found

    def compactions(self) -> list[Json]:
        """Every summary, the newest first."""
        return [self._told(overlay) for overlay in reversed(self.overlays)]

    def _told(self, overlay: Overlay) -> Json:
        ids = self.messages_of(overlay)
        return {
            "id": overlay.id,
            "message_id": overlay.message_id,
            "from": overlay.from_message_id,
            "to": overlay.to_message_id,
            "messages": None if ids is None else len(ids),
            "summary": overlay.summary,
            "reason": overlay.reason,
            "tokens_before": overlay.tokens_before,
            "created_at": ms_of(overlay.created_at),
            "state": self.state(overlay),
        }


def _covered(path: Sequence[str], overlays: Sequence[Overlay]) -> dict[str, Overlay]:
    """Walks back from the tip as the session does: the summary that ends latest is met first."""
    ends, places = by_last(overlays), {id: place for place, id in enumerate(path)}
    found: dict[str, Overlay] = {}
    place = len(path) - 1
    while place >= 0:
        overlay = ends.get(path[place])
        if overlay is None:
            place -= 1
            continue
        start = places.get(overlay.from_message_id, 0)
        found.update(dict.fromkeys(path[min(start, place) : place + 1], overlay))
        place = min(start, place) - 1
    return found
