"""What a turn has said so far, as people in a messenger read it, and how a long text is cut into messages.

    chunks --Words.take--> one text --pieces--> the streamed message, and those that follow it

Pure: equal chunks give an equal text, so what is shown after a crash is what was shown before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..chunks import Chunk, TextDelta, TextEnd, TextStart, ToolApprovalRequest

__all__ = ["Words", "pieces", "split_text", "visible_part"]

Length = Callable[[str], int]
"""How long a text is, as a platform counts."""


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


def split_text(text: str, limit: int, *, length: Length = len) -> list[str]:
    """A text in pieces of at most `limit`: at paragraphs, lines or spaces where that leaves no piece short,
    else anywhere. Nothing is lost: together they are the text. A blank text is none."""
    found: list[str] = []
    while text.strip():
        if length(text) <= limit:
            found.append(text)
            break
        end = _end_of_piece(text, limit, length)
        found.append(text[:end])
        text = text[end:]
    else:
        if found and text:
            found[-1] += text  # what is left is blank
    return found


def _end_of_piece(text: str, limit: int, length: Length) -> int:
    most = bisect_right(range(1, min(limit, len(text)) + 1), limit, key=lambda end: length(text[:end]))
    most = max(1, most)
    for mark in ("\n\n", "\n", " "):
        at = text.rfind(mark, 0, most - len(mark) + 1)
        if at >= most // 2:
            return at + len(mark)
    return most


def visible_part(text: str, limit: int, *, length: Length = len) -> str:
    """The part of a text that the streamed message shows. A code block that goes on is closed."""
    return _cut(text, limit, None, length)[0]


def pieces(
    text: str,
    *,
    visible: int,
    follow_up: int,
    most: int | None = None,
    split: Callable[[str], Sequence[str]] | None = None,
    length: Length = len,
) -> list[str]:
    """A finished text as messages: the streamed one first. A code block that is cut goes on as one, in its
    language. What `split` returns is shown as it is; what is longer than `most` of it is cut, and where it
    returns nothing the text is split as if there were none."""
    first, rest, fence = _cut(text, visible, None, length)
    if not rest.strip():
        return [first] if first.strip() else []
    if split is not None:
        head = "" if fence is None else f"{fence.line}\n"
        said = split(head + rest)
        more = [one for one in ([said] if isinstance(said, str) else said) if one.strip()]
        if more:
            return [first, *(cut for one in more for cut in _whole(one, follow_up, most, length))]
    return [first, *_all(rest, follow_up, fence, length)]


def _whole(text: str, follow_up: int, most: int | None, length: Length) -> list[str]:
    limit = max(follow_up, most or 0)
    return [text] if length(text) <= limit else _all(text, follow_up, None, length)


def _all(text: str, limit: int, fence: _Fence | None, length: Length) -> list[str]:
    found: list[str] = []
    while text.strip():
        piece, text, fence = _cut(text, limit, fence, length)
        found.append(piece)
    return found


# --- code blocks


class _Fence(NamedTuple):
    """The line with which a block of code begins."""

    mark: str
    language: str

    @property
    def line(self) -> str:
        return self.mark + self.language

    def is_closed_by(self, line: str) -> bool:
        found = _FENCE.fullmatch(line)
        return found is not None and found[1].startswith(self.mark) and not found[2].strip()


_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`]*)")


def _cut(text: str, limit: int, fence: _Fence | None, length: Length) -> tuple[str, str, _Fence | None]:
    """The first message of a text, what is left of it, and the block of code that goes on there. `fence`: the
    block in which the text begins."""
    head = "" if fence is None else f"{fence.line}\n"
    if length(head) > limit // 4:
        head = ""  # so short a message has no room for more than words
    room = limit - length(head)
    if length(text) <= room:
        return head + text, "", None
    end = _end_of_piece(text, room, length)
    if (opened := _open_after(text[:end], fence)) is not None:
        close = length(f"\n{opened.mark}")
        if close <= room // 4:
            end = _end_of_piece(text, room - close, length)
            opened = _open_after(text[:end], fence)
        else:
            opened = None
    if opened is None:
        return head + text[:end], text[end:], None
    begins = text.rfind("\n", 0, end - 1) + 1
    if begins > 0 and text[end - 1] == "\n" and _open_after(text[:begins], fence) is None:
        return head + text[:begins], text[begins:], None  # it begins with the next message
    body, rest = text[:end], text[end:]
    line, _, after = rest.partition("\n")
    shown = f"{head}{body}{'' if body.endswith(chr(10)) else chr(10)}{opened.mark}"
    return (shown, after, None) if opened.is_closed_by(line) else (shown, rest, opened)


def _open_after(text: str, fence: _Fence | None) -> _Fence | None:
    """The block of code in which a text ends."""
    for line in text.split("\n"):
        if fence is not None:
            fence = None if fence.is_closed_by(line) else fence
        elif (found := _FENCE.fullmatch(line)) is not None:
            fence = _Fence(found[1], found[2].strip().partition(" ")[0])
    return fence
