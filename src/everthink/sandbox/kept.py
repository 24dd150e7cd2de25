"""What a guest writes: the beginning of each stream as text, and how much was dropped.

bytes of a guest --take--> the text that is new, for whoever watches --> text, for the outcome
"""

from __future__ import annotations

import codecs

__all__ = ["Kept"]


class Kept:
    """One stream."""

    def __init__(self, most: int) -> None:
        self._room = most
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._texts: list[str] = []
        self.dropped = 0

    def take(self, data: bytes) -> str:
        """The text that is new."""
        kept = data[: self._room]
        self._room -= len(kept)
        self.dropped += len(data) - len(kept)
        text = self._decoder.decode(kept)
        self._texts.append(text)
        return text

    def text(self) -> str:
        """All of it. Half a character at its end is left out when there would have been more."""
        if not self.dropped and self._room:
            self._texts.append(self._decoder.decode(b"", final=True))
        return "".join(self._texts)
