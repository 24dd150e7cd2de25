"""Files that a model refused: what people said before is shown without them, so that one file fails one turn.

    a call is refused --> asked again without older files --it opens--> Files.leave_out --> the next prompts

Pure, and only about what the model is shown: the conversation keeps every file. The last message of a person
is never changed: what is asked now is sent as it is, or refused in words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set

from ..errors import ModelError
from ..models import port as model

__all__ = ["Files", "Mark", "asks_with_files", "may_be_about_files", "older_files", "without_files"]

Mark = tuple[int, str]
"""Which file it is, in this process: its address can be megabytes of data."""

_ABOUT_OTHER_THINGS = frozenset({401, 402, 403, 404, 429})
_LONGEST_NAME = 100
_NONE: Set[Mark] = frozenset()  # one for all: there may be many conversations


class Files:
    """What is known of the files of one conversation, while it is in memory."""

    __slots__ = ("refused", "taken")

    def __init__(self) -> None:
        self.taken = _NONE
        """Those in the last prompt that a model took."""
        self.refused = _NONE
        """Those that are left out of prompts."""

    def suspects(self, messages: Sequence[model.ModelMessage]) -> list[Set[Mark]]:
        """What to leave out of a refused prompt: first what no model took yet, then every older file."""
        older = older_files(messages)
        fresh = older - self.taken
        return [marks for marks in ([fresh] if fresh == older else [fresh, older]) if marks]

    def opened(self, messages: Sequence[model.ModelMessage], left_out: Set[Mark]) -> None:
        """A model took these messages, from which `left_out` is missing."""
        self.taken = frozenset(_mark(part) for _, part in _files(messages)) or _NONE
        if left_out:
            self.refused = self.refused | left_out


def may_be_about_files(error: ModelError) -> bool:
    """Whether a call that never opened may have been refused because of a file."""
    return error.kind in ("fatal", "unknown") and error.status not in _ABOUT_OTHER_THINGS


def older_files(messages: Sequence[model.ModelMessage]) -> Set[Mark]:
    """The files that people sent before the last message of a person."""
    asked = _asked(messages)
    return frozenset(_mark(part) for index, part in _files(messages) if index != asked)


def asks_with_files(messages: Sequence[model.ModelMessage]) -> bool:
    """Whether the last message of a person holds a file."""
    asked = _asked(messages)
    return any(index == asked for index, _ in _files(messages))


def without_files(messages: list[model.ModelMessage], marks: Collection[Mark]) -> list[model.ModelMessage]:
    """`messages` with a note in place of each of these files, except in the last message of a person.

    The very same list when there is nothing to leave out.
    """
    if not marks:
        return messages
    asked = _asked(messages)
    return [
        _noted(message, marks) if isinstance(message, model.UserMessage) and index != asked else message
        for index, message in enumerate(messages)
    ]


def _noted(message: model.UserMessage, marks: Collection[Mark]) -> model.UserMessage:
    if not any(isinstance(part, model.FilePart) and _mark(part) in marks for part in message.content):
        return message
    return model.UserMessage(
        [
            model.TextPart(_note(part)) if isinstance(part, model.FilePart) and _mark(part) in marks else part
            for part in message.content
        ]
    )


def _note(part: model.FilePart) -> str:
    words = ", ".join(word[:_LONGEST_NAME] for word in (part.filename, part.media_type) if word)
    return f"[A file that the model does not take: {words}]"


def _mark(part: model.FilePart) -> Mark:
    return (hash(part.url), part.media_type)


def _asked(messages: Sequence[model.ModelMessage]) -> int:
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], model.UserMessage):
            return index
    return -1


def _files(messages: Sequence[model.ModelMessage]) -> Iterator[tuple[int, model.FilePart]]:
    for index, message in enumerate(messages):
        if isinstance(message, model.UserMessage):
            for part in message.content:
                if isinstance(part, model.FilePart):
                    yield index, part
