"""What a person sees who stays at the window while the server dies and comes back.

    frames, over as many connections as it takes --> Screen --> messages, and what was wrong with them

Pure: the transcript that every client of ours keeps, read by somebody who complains. A chunk is told by its
number: what comes again must be what was there, what is new must be the next one. What was on the screen
stays: text only grows, and no answer disappears.
"""

from __future__ import annotations

from ... import chunks as ui
from ...client.transcript import Transcript
from ...wire import frames as wire
from .run_screen import RunScreen

__all__ = ["Screen"]


class Screen(Transcript):
    """The conversation on one screen."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        """What a reader would complain about."""
        self.errors: list[str] = []
        """The errors that were shown."""
        self.recoveries = 0
        """How often it was told that the agent recovers."""
        # The text of each answer as it was last seen, by the message's id.
        self._seen: dict[str, str] = {}
        self._gone: set[str] = set()
        self.runs = RunScreen(self._complain)
        """The runs of the agent's children."""

    def may_leave(self, id: str) -> None:
        """This answer makes room for another one, which the person asked for."""
        self._gone.add(id)

    def take(self, frame: wire.ServerFrame) -> ui.Chunk | None:
        """Show a frame, and look at what is on the screen then."""
        new = super().take(frame)
        match frame:
            case wire.ResponseFrame(body=body, error=True):
                self.errors.append(body)
            case wire.Recovering(recovering):
                self.recoveries += recovering
            case wire.ClearChat():
                self._gone.update(self._seen)
            case wire.AgentToolEvent():
                self.runs.take(frame)
            case _:
                pass
        self._look()
        return new

    def _missed(self, number: int, due: int) -> bool:
        self._complain(f"chunk {number} of an answer came when chunk {due} was due")
        return False

    def _changed(self, number: int, known: list[str], body: str) -> bool:
        self._complain(f"chunk {number} of an answer was {known[number]} and is now {body}")
        return False

    def _ended(self, request: str) -> None:
        """Its chunks are kept: told again, they must be the same."""

    def _nothing_streams(self) -> None:
        self._drafts.clear()
        self._over.clear()

    def _look(self) -> None:
        shown = {message.id: message.text for message in self.messages if message.role == "assistant"}
        for id, before in list(self._seen.items()):
            now = shown.get(id)
            if now is not None and not now.startswith(before):
                self._complain(f"an answer went back from {before!r} to {now!r}")
            elif now is None and before and id not in self._gone and not self._was_renamed(before, shown):
                self._complain(f"the answer {before!r} was taken from the screen")
            if now is None:
                del self._seen[id]
        self._seen |= shown

    def _was_renamed(self, text: str, shown: dict[str, str]) -> bool:
        """A continuation has no message id while it streams; when it is stored it gets one."""
        return any(now.startswith(text) for now in shown.values())

    def _complain(self, what: str) -> None:
        if what not in self.faults:
            self.faults.append(what)
