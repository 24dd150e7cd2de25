"""Stored messages as the model reads them.

    history (UI messages) --> convert --> list[ModelMessage]

Pure. A call and its result always travel together: what has no outcome is left out, and
`paired` enforces the same on lists that hooks put together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, cast

import msgspec

from ..journal.tool_errors import UNTOLD_TOOL
from ..messages import Message, Part, is_tool_part, normalize_input, steps, text_of, tool_name
from ..models import port as model
from ..session.row_size import Shortening, cut, shorten
from ..tools.output import ModelOutput, model_output
from ..tools.tool import Tool
from .wording import EMPTY_MESSAGE, LEFT_OUT

__all__ = ["Converter", "convert", "has_approvals", "paired", "prune_tool_calls", "unshared"]

Said = Callable[[str, str], str | None]
"""What the call of a message said that people were not shown."""
Seen = Callable[[str, str], ModelOutput | None]
"""What a model sees of the result of a call in a message, where that had to be made before."""
_WHOLE = Shortening()
"""Without shortening, as many are kept apart as with it: the latest ones still change."""
DENIED_TEXT = "Tool call execution denied."
_NO_NAMES: frozenset[str] = frozenset()  # one for all: there may be many conversations


class Converter:
    """Converts a growing history, each message once.

    Messages are never changed in place, so what was converted stays valid for the same object.
    The cost of a turn does not grow with the conversation: all but the last few messages are one
    list that only gets longer.
    """

    def __init__(
        self,
        words: Said | None = None,
        shortening: Callable[[], Shortening | None] = Shortening,
        views: Seen | None = None,
    ) -> None:
        self._words, self._shortening, self._views = words, shortening, views
        # How the older ones were shortened; `None`: all are shown as they are.
        self._how: Shortening | None = None
        # The messages of which `_older_converted` is the shortened, converted form.
        self._older: list[Message] = []
        self._older_converted: list[model.ModelMessage] = []
        self._recent: dict[str, tuple[Message, list[model.ModelMessage]]] = {}
        self._custom = _NO_NAMES
        self.left_out: Callable[[str, Exception], None] | None = None
        """Told of a message that cannot be put into words for a model, with what stood in the way."""

    def unchecked(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages not seen before: those a repair has to look at."""
        known = len(self._older) if self._starts_as_before(messages) else 0
        recent = self._recent
        return [m for m in messages[known:] if (entry := recent.get(m.id)) is None or entry[0] is not m]

    def convert(self, messages: Sequence[Message], tools: Mapping[str, Tool]) -> list[model.ModelMessage]:
        """All messages, with those before the last few shortened, every call paired with its result."""
        custom = frozenset([name for name, tool in tools.items() if tool.to_model_output]) or _NO_NAMES
        how = self._shortening()
        if custom != self._custom or how != self._how or not self._starts_as_before(messages):
            self.forget()
            self._custom, self._how = custom, how
        edge = self._edge(messages)
        for message in messages[len(self._older) : edge]:
            self._older.append(message)
            self._older_converted += self._converted(message, tools, shortens=True)
            self._recent.pop(message.id, None)
        converted = list(self._older_converted)
        for message in messages[edge:]:
            entry = self._recent.get(message.id)
            if entry is None or entry[0] is not message:
                entry = self._recent[message.id] = (message, self._converted(message, tools))
            converted += entry[1]
        return converted

    def _converted(
        self, message: Message, tools: Mapping[str, Tool], *, shortens: bool = False
    ) -> list[model.ModelMessage]:
        """One message; a note in its place when it cannot be read, so that it does not fail every turn."""
        try:
            if shortens and self._how:
                return convert(shorten(message, self._how), tools, self._words, self._seen_shortened)
            return convert(message, tools, self._words, self._views)
        except Exception as error:  # noqa: BLE001 - told below
            if self.left_out is not None:
                self.left_out(message.id, error)
            note = model.TextPart(LEFT_OUT)
            return [
                model.AssistantMessage([note]) if message.role == "assistant" else model.UserMessage([note])
            ]

    def _seen_shortened(self, message_id: str, call_id: str) -> ModelOutput | None:
        """A view of an older result: it was made from all of the result. Files are shown as they are."""
        view = None if self._views is None else self._views(message_id, call_id)
        if view is None or self._how is None:
            return view
        content = view.content
        if content is not None:
            content = [_cut_part(part, self._how.max_output_chars) for part in content]
        return ModelOutput(cut(view.output, self._how.max_output_chars), content)

    def forget(self) -> None:
        """Start afresh (the conversation was cleared, or its beginning changed)."""
        self._older.clear()
        self._older_converted.clear()
        self._recent.clear()

    def _starts_as_before(self, messages: Sequence[Message]) -> bool:
        return len(self._older) <= self._edge(messages) and messages[: len(self._older)] == self._older

    def _edge(self, messages: Sequence[Message]) -> int:
        """How many of them are older ones, which are not converted again."""
        return max(0, len(messages) - (self._how or _WHOLE).keep_recent_messages)


def _cut_part(part: model.TextPart | model.FilePart, limit: int) -> model.TextPart | model.FilePart:
    """A part of a result in an older message: a text shortened, a file as it is."""
    return (
        msgspec.structs.replace(part, text=cut(part.text, limit))
        if isinstance(part, model.TextPart)
        else part
    )


def convert(
    message: Message, tools: Mapping[str, Tool], words: Said | None = None, views: Seen | None = None
) -> list[model.ModelMessage]:
    """One stored message as model messages: none, one, or an assistant's steps with their results.

    `words` knows what a call in a message said that people were not shown, `views` how its result is seen.
    """
    if message.role == "system":
        text = text_of(message.parts)
        return [model.SystemMessage(text)] if text.strip() else []
    if message.role == "user":
        content: list[model.TextPart | model.FilePart] = [
            part for raw in message.parts if (part := _spoken(raw))
        ]
        if not any(isinstance(part, model.FilePart) or part.text.strip() for part in content):
            # Providers refuse an empty message, but somebody who says nothing still wants an answer.
            wrote = any(raw.get("type") == "text" for raw in message.parts)
            content = [model.TextPart(EMPTY_MESSAGE)] if wrote else []
        return [model.UserMessage(content)] if content else []
    converted: list[model.ModelMessage] = []
    for step in filter(None, steps(message.parts)):
        converted += _step(
            step,
            tools,
            lambda call_id: words(message.id, call_id) if words else None,
            lambda call_id: views(message.id, call_id) if views else None,
        )
    return converted


def _spoken(part: Part) -> model.TextPart | model.FilePart | None:
    match part.get("type"):
        case "text":
            return model.TextPart(part["text"], _metadata(part)) if part.get("text") else None
        case "file":
            return model.FilePart(part["url"], part["mediaType"], part.get("filename"), _metadata(part))
        case _:
            return None


def _metadata(part: Part, field: str = "providerMetadata") -> Any:
    found = part.get(field)
    if not isinstance(found, dict):
        return None
    given = cast("dict[str, Any]", found)
    return {name: cast("Any", data) for name, data in given.items() if isinstance(data, dict)} or None


def _step(
    parts: Sequence[Part],
    tools: Mapping[str, Tool],
    said_by: Callable[[str], str | None],
    seen_of: Callable[[str], ModelOutput | None],
) -> list[model.ModelMessage]:
    said: list[model.AssistantContent] = []
    results: list[model.ToolResultPart | model.ApprovalResponse] = []
    asked: set[str] = set()
    for part in parts:
        if part.get("type") == "reasoning":
            if part.get("text") or part.get("providerMetadata"):
                said.append(model.ReasoningPart(part.get("text", ""), _metadata(part)))
        elif is_tool_part(part):
            outcome = _outcome(part, tools, said_by, seen_of)
            if outcome is None or part["toolCallId"] in asked:
                continue
            asked.add(part["toolCallId"])
            executed = bool(part.get("providerExecuted"))
            said.append(
                model.ToolCallPart(
                    part["toolCallId"],
                    tool_name(part),
                    normalize_input(part.get("input")),
                    executed,
                    _metadata(part, "callProviderMetadata"),
                )
            )
            if executed and isinstance(outcome, model.ToolResultPart):
                said.append(msgspec.structs.replace(outcome, provider_executed=True))
            else:
                results.append(outcome)
        elif spoken := _spoken(part):
            said.append(spoken)
    if _is_blank(said):
        return []
    converted: list[model.ModelMessage] = [model.AssistantMessage(said)]
    if results:
        converted.append(model.ToolMessage(results))
    return converted


def _outcome(
    part: Part,
    tools: Mapping[str, Tool],
    said_by: Callable[[str], str | None],
    seen_of: Callable[[str], ModelOutput | None],
) -> model.ToolResultPart | model.ApprovalResponse | None:
    call_id, name = part["toolCallId"], tool_name(part)
    match part.get("state"):
        case "output-available" if not part.get("preliminary"):
            output, content = seen_of(call_id) or model_output(tools.get(name), part.get("output"))
            return model.ToolResultPart(
                call_id,
                name,
                output,
                content=content,
                provider_metadata=_metadata(part, "resultProviderMetadata"),
            )
        case "output-error":
            text = part.get("errorText") or "Tool execution failed"
            if text == UNTOLD_TOOL:
                text = said_by(call_id) or text
            return model.ToolResultPart(call_id, name, with_aftermath(text, seen_of(call_id)), is_error=True)
        case "output-denied":
            approval = cast("dict[str, Any]", part.get("approval") or {})
            # The reason of a yes that came too late does not say why it was denied.
            reason = None if approval.get("approved") else approval.get("reason")
            told = with_aftermath(reason or DENIED_TEXT, seen_of(call_id))
            return model.ToolResultPart(call_id, name, told, is_error=True)
        case "approval-responded":
            approval = cast("dict[str, Any]", part.get("approval") or {})
            return model.ApprovalResponse(
                approval.get("id") or call_id, call_id, bool(approval.get("approved")), approval.get("reason")
            )
        case _:
            return None


def with_aftermath(text: str, after: ModelOutput | None) -> str:
    """Why a call has no result, and what it had done before, if it has told that."""
    return f"{text}\n{after.output}" if after is not None and after.output else text


def paired(messages: Sequence[model.ModelMessage]) -> list[model.ModelMessage]:
    """`messages` without calls that lack a result, results that lack a call, and approvals.

    What a provider would refuse cannot leave here, whatever a hook put together.
    """
    kept: list[model.ModelMessage] = []
    # Our own calls that the next message answers, and the provider's that still miss their result.
    asked: set[str] = set()
    owed: set[str] = set()
    given = _Given(messages)
    for index, message in enumerate(messages):
        if isinstance(message, model.AssistantMessage):
            asked = set()
            content = _paired_content(message.content, given, index, asked, owed)
            if not _is_blank(content):
                is_same = len(content) == len(message.content) and all(map(is_, content, message.content))
                kept.append(message if is_same else model.AssistantMessage(content))
        elif isinstance(message, model.ToolMessage):
            results: list[model.ToolResultPart | model.ApprovalResponse] = []
            for part in message.content:
                if isinstance(part, model.ToolResultPart) and part.id in asked:
                    asked.remove(part.id)
                    results.append(part)
            if results:
                kept.append(message if len(results) == len(message.content) else model.ToolMessage(results))
        else:
            kept.append(message)
    return kept


class _Given:
    """Where results stand in a conversation: those of providers are looked up when one is asked for."""

    def __init__(self, messages: Sequence[model.ModelMessage]) -> None:
        self._messages = messages
        self._places: dict[str, list[tuple[int, int]]] | None = None
        self._users: list[int] = []

    def answers(self, index: int) -> set[str]:
        """The calls that the message after `index` answers."""
        following = self._messages[index + 1] if index + 1 < len(self._messages) else None
        if not isinstance(following, model.ToolMessage):
            return set()
        return {part.id for part in following.content if isinstance(part, model.ToolResultPart)}

    def comes_later(self, id: str, index: int, place: int) -> bool:
        """Whether the provider gives the result of its call, at once or in a later step."""
        if self._places is None:
            self._places = self._looked_up()
        places = self._places.get(id, [])
        after = bisect_right(places, (index, place))
        until = bisect_right(self._users, index)
        end = self._users[until] if until < len(self._users) else len(self._messages)
        return after < len(places) and places[after][0] < end

    def _looked_up(self) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for index, message in enumerate(self._messages):
            if isinstance(message, model.UserMessage):
                self._users.append(index)
            elif isinstance(message, model.AssistantMessage):
                for place, part in enumerate(message.content):
                    if isinstance(part, model.ToolResultPart):
                        found.setdefault(part.id, []).append((index, place))
        return found


def _paired_content(
    said: Sequence[model.AssistantContent], given: _Given, index: int, asked: set[str], owed: set[str]
) -> list[model.AssistantContent]:
    """Of what an assistant said: each call once and only with its result, each result after its call."""
    answers: set[str] | None = None
    kept: list[model.AssistantContent] = []
    seen: set[str] = set()
    for place, part in enumerate(said):
        if isinstance(part, model.ToolResultPart):
            if part.id not in owed:
                continue
            owed.remove(part.id)
        elif isinstance(part, model.ToolCallPart):
            if part.id in seen or part.id in owed:
                continue
            if part.provider_executed:
                if not given.comes_later(part.id, index, place):
                    continue
                owed.add(part.id)
            else:
                answers = given.answers(index) if answers is None else answers
                if part.id not in answers:
                    continue
                asked.add(part.id)
            seen.add(part.id)
            if not isinstance(part.input, dict):
                part = msgspec.structs.replace(part, input=normalize_input(part.input))
        kept.append(part)
    return kept


def _is_blank(content: Iterable[Any]) -> bool:
    """True when there is nothing in it that a provider would take for a message."""
    return not any(not isinstance(part, model.TextPart) or part.text.strip() for part in content)


def has_approvals(messages: Iterable[model.ModelMessage]) -> bool:
    """True when a person's answer stands where a result should be."""
    return any(
        type(part) is model.ApprovalResponse
        for message in messages
        if type(message) is model.ToolMessage
        for part in message.content
    )


def unshared(messages: Iterable[model.ModelMessage]) -> list[model.ModelMessage]:
    """Messages a hook may change without changing what is remembered of them. Parts cannot be changed."""
    return [
        m if isinstance(m, model.SystemMessage) else msgspec.structs.replace(m, content=list(m.content))
        for m in messages
    ]


def prune_tool_calls(messages: Sequence[model.ModelMessage], *, keep: int = 2) -> list[model.ModelMessage]:
    """`messages` without the calls and results before the last `keep` messages: for `before_turn`."""
    edge = len(messages) - keep
    pruned: list[model.ModelMessage] = []
    for index, message in enumerate(messages):
        if index >= edge:
            pruned.append(message)
        elif isinstance(message, model.AssistantMessage):
            said: list[model.AssistantContent] = [
                p for p in message.content if not isinstance(p, model.ToolCallPart | model.ToolResultPart)
            ]
            if said:
                pruned.append(model.AssistantMessage(said))
        elif not isinstance(message, model.ToolMessage):
            pruned.append(message)
    return paired(pruned)
