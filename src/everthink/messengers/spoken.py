"""What a turn has said so far, as people in a messenger read it, and how a long text is cut into messages.

    chunks --Words.take--> one text --pieces--> the streamed message, and those that follow it

Pure: equal chunks give an equal text, so what is shown after a crash is what was shown before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..chunks import Chunk, TextDelta, TextEnd, TextStart, ToolApprovalRequest

__all__ = ["Words", "pieces", "split_text", "visible_part"]


class Words:
    """The text of a turn. Only what is said counts: no thinking, no calls."""

    __slots__ = ("_is_apart", "asks", "chunks", "text")

    def __init__(self) -> None:
        self.text = ""
        self.asks = False
        """True when a call in it has asked for approval."""
        self.chunks = 0
        """How many chunks of the turn are in it."""
        self._is_apart = False

    def take(self, chunks: Iterable[Chunk]) -> None:
        """What the turn has said next."""
        for chunk in chunks:
            self.chunks += 1
            match chunk:
                case TextDelta(delta=delta):
                    if self._is_apart and delta:
                        if self.text and not self.text[-1].isspace() and not delta[0].isspace():
                            self.text += " "
                        self._is_apart = False
                    self.text += delta
                case TextStart() | TextEnd():
                    pass
                case other:
                    self.asks = self.asks or isinstance(other, ToolApprovalRequest)
                    self._is_apart = bool(self.text)


def split_text(text: str, limit: int) -> list[str]:
    """A text in pieces of at most `limit` characters: at paragraphs, lines or spaces where that leaves no
    piece short, else anywhere. Nothing is lost: together they are the text. A blank text is none."""
    found: list[str] = []
    while text.strip():
        if len(text) <= limit:
            found.append(text)
            break
        end = _end_of_piece(text, limit)
        found.append(text[:end])
        text = text[end:]
    else:
        if found and text:
            found[-1] += text  # what is left is blank
    return found


def _end_of_piece(text: str, limit: int) -> int:
    for mark in ("\n\n", "\n", " "):
        at = text.rfind(mark, 0, limit - len(mark) + 1)
        if at >= limit // 2:
            return at + len(mark)
    return limit


def visible_part(text: str, limit: int) -> str:
    """The part of a text that the streamed message shows."""
    return text if len(text) <= limit else text[: _end_of_piece(text, limit)]


def pieces(
    text: str, *, visible: int, follow_up: int, split: Callable[[str], Sequence[str]] | None = None
) -> list[str]:
    """A finished text as messages: the streamed one first."""
    first = visible_part(text, visible)
    rest = text[len(first) :]
    if not rest.strip():
        return [first] if first.strip() else []
    more = list(split(rest)) if split is not None else split_text(rest, follow_up)
    return [first, *(one for one in more if one.strip())]
