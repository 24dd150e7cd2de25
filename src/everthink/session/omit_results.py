"""The last resort for a prompt that does not fit: tool results are left out, the largest first.

    overflow --> choose --call ids--> slimmed --> the prompt of the next try

Pure, and only about what the model is shown: the conversation keeps everything. Each call stays and
each result stays in its place as a short note, so a prompt that was valid is valid afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..context.activated_skills import is_activation_text
from ..messages import encode_json
from ..models import port as model

__all__ = ["choose", "slimmed"]

_WORTH_IT = 500


def slimmed(messages: Sequence[model.ModelMessage], *, omitted: Collection[str]) -> list[model.ModelMessage]:
    """`messages` with a note in place of each result whose call is in `omitted`.

    The very same list when nothing is omitted. What a provider ran itself is left as it is:
    it takes such results back only in its own form.
    """
    if not omitted:
        return messages if isinstance(messages, list) else list(messages)
    return [_slim(m, omitted) if isinstance(m, model.ToolMessage) else m for m in messages]


def choose(messages: Sequence[model.ModelMessage], *, omitted: Collection[str], keep: int = 4) -> set[str]:
    """The calls whose results should go next, so that the prompt becomes at most half as large.

    Of the results before the last `keep` messages the largest go first; the recent ones follow when
    those are not enough. Empty when nothing is left that would be worth it.
    """
    shown = slimmed(messages, omitted=omitted)
    edge = len(shown) - keep
    found: dict[str, _Candidate] = {}
    for index, result in _results(shown):
        size = _result_size(result)
        if size <= _WORTH_IT or result.id in omitted or is_activation_text(result.name, result.output):
            continue
        known = found.get(result.id, _Candidate(result.id, 0, False, index))
        found[result.id] = _Candidate(
            result.id, known.gain + size - len(_note(size)), index >= edge, known.index
        )
    missing = sum(map(_message_size, shown)) / 2
    chosen: set[str] = set()
    order: Callable[[_Candidate], Any] = lambda one: (one.is_recent, -one.gain, one.index)  # noqa: E731
    for candidate in sorted(found.values(), key=order):
        if missing <= 0:
            break
        chosen.add(candidate.id)
        missing -= candidate.gain
    return chosen


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A result that could go; several, when calls share an id."""

    id: str
    gain: int
    is_recent: bool
    index: int


def _slim(message: model.ToolMessage, omitted: Collection[str]) -> model.ToolMessage:
    content: list[model.ToolResultPart | model.ApprovalResponse] = []
    changed = False
    for part in message.content:
        if isinstance(part, model.ToolResultPart) and part.id in omitted and not part.provider_executed:
            size = _result_size(part)
            note = _note(size)
            if len(note) < size:
                part = msgspec.structs.replace(part, output=note, content=None)
                changed = True
        content.append(part)
    return model.ToolMessage(content) if changed else message


def _note(size: int) -> str:
    return f"[This result of {size} characters was left out to make room.]"


def _results(messages: Sequence[model.ModelMessage]) -> Iterator[tuple[int, model.ToolResultPart]]:
    for index, message in enumerate(messages):
        if isinstance(message, model.ToolMessage):
            for part in message.content:
                if isinstance(part, model.ToolResultPart) and not part.provider_executed:
                    yield index, part


def _message_size(message: model.ModelMessage) -> int:
    if isinstance(message, model.SystemMessage):
        return len(message.text)
    return sum(map(_part_size, message.content))


def _part_size(
    part: model.AssistantContent | model.ApprovalResponse,
) -> int:
    match part:
        case model.TextPart() | model.ReasoningPart():
            return len(part.text)
        case model.FilePart():
            return len(part.url)
        case model.ToolCallPart():
            return len(part.name) + _length(part.input)
        case model.ToolResultPart():
            return _result_size(part)
        case model.ApprovalResponse():
            return 0


def _result_size(part: model.ToolResultPart) -> int:
    """What a result weighs in a prompt: a model is shown its output or its content."""
    return max(_length(part.output), sum(map(_part_size, part.content or ())))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(encode_json(value).decode())
