"""What failing tools said, for the model alone.

    a tool raised --> turn/calls --words--> the ledger's row      (the chunk: a sentence that says nothing)
    the next prompt --> prompt/convert --> ToolErrors --> the model

An exception may hold anything: a path, an address, a row of the database. It is in no chunk, no message and
no frame, so that nothing which shows a conversation can show it; the call's row in the ledger holds it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..masking import mask, shortened
from ..messages import Message
from ..store.port import AgentStore
from . import queries

__all__ = ["HAS_RUN", "MAY_HAVE_RUN", "UNTOLD_TOOL", "ToolErrors", "words_of"]

HAS_RUN = (
    "The call was not run again: it was approved once and has run. Its result is not in this conversation; "
    "check before you call it again."
)
MAY_HAVE_RUN = (
    "The tool call was interrupted while it ran and no result was recorded. It may or may not have taken "
    "effect: check before you call it again."
)
UNTOLD_TOOL = "The tool failed."
"""What people read of a tool's error, unless the tool raised a `ToolError`."""
LONGEST = 20_000


def words_of(error: BaseException) -> str:
    """What the model reads of an exception: its own words, without keys and passwords."""
    return mask(shortened(str(error), LONGEST)) or type(error).__name__


class ToolErrors:
    """The words of an agent's failed calls. Read once, when a message needs them; then kept along."""

    def __init__(self, store: AgentStore) -> None:
        self._store = store
        self._read = False
        # By call: the words by the message the call is in. Some providers number calls anew in each turn.
        self._known: dict[str, dict[str, str]] = {}

    async def learn(self, messages: Iterable[Message]) -> None:
        """Know the words of the calls in `messages`."""
        if self._read or not any(self._is_missing(message) for message in messages):
            return
        for call_id, message_id, words in await self._store.fetch(queries.WORDS):
            self._known.setdefault(call_id, {}).setdefault(message_id or "", words)
        self._read = True

    def _is_missing(self, message: Message) -> bool:
        return message.role == "assistant" and any(
            part.get("errorText") == UNTOLD_TOOL and self.of(message.id, part.get("toolCallId", "")) is None
            for part in message.parts
        )

    def of(self, message_id: str, call_id: str) -> str | None:
        """What the call said; `None` when nobody knows any more."""
        known = self._known.get(call_id, {})
        if message_id in known or len(known) != 1:
            return known.get(message_id)
        return next(iter(known.values()))  # a message that was copied to another session

    def keep(self, message_id: str, call_id: str, words: str) -> None:
        """A call of this process failed."""
        self._known.setdefault(call_id, {})[message_id] = words

    def forget(self) -> None:
        """The conversation was cleared."""
        self._known.clear()
        self._read = False
