"""What is on a reader's screen: frames, over as many connections as it takes, become messages.

    ServerFrame --take--> Transcript --> messages, state; and the chunk that is new in the frame, if any

Pure, and folded as the server folds. A chunk is told by its number, which is the same live and replayed: what
comes again after a lost connection is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import chunks as ui
from ..journal.fold import Accumulator
from ..messages import Message, Part
from ..wire import frames as wire

__all__ = ["Transcript"]


class Transcript:
    """One conversation as it was told."""

    def __init__(self) -> None:
        self.state: Any = None
        self.identity: wire.Identity | None = None
        self.told: frozenset[str] | None = None
        """The ids of the messages in the conversation as the server last told it, if it has."""
        self._stored: list[Message] = []
        self._drafts: dict[str, Accumulator] = {}
        # Continuations that are over: they stay on the screen until the conversation comes that holds them.
        self._over: dict[str, Accumulator] = {}
        self._cut: set[str] = set()
        """Answers of turns that were stopped or failed: what ran in them waits for nobody."""
        # The chunks of each request, by number, as JSON text.
        self._bodies: dict[str, list[str]] = {}

    @property
    def messages(self) -> list[Message]:
        """The conversation, with what streams."""
        drafts = {draft.id: draft.message() for draft in (*self._over.values(), *self._drafts.values())}
        shown = [drafts.pop(message.id, message) for message in self._stored]
        return shown + list(drafts.values())

    @property
    def is_streaming(self) -> bool:
        """True while an answer is not over, as far as is known here."""
        return bool(self._drafts)

    @property
    def streaming(self) -> str | None:
        """The request whose answer is not over, as far as is known here."""
        return next(reversed(self._drafts), None)

    def find(self, id: str | None) -> Message | None:
        """The stored message of this id."""
        return next((message for message in self._stored if message.id == id), None)

    @property
    def last_answer(self) -> Message | None:
        """The last message, if the assistant said it."""
        shown = self.messages
        return shown[-1] if shown and shown[-1].role == "assistant" else None

    def open_calls(self, state: str) -> list[Part]:
        """The tool calls of the last answer that are in this state and wait for somebody."""
        last = self.last_answer
        if last is None or (state == "input-available" and last.id in self._cut):
            return []
        return [part for part in last.tool_parts if part.get("state") == state]

    def call(self, call_id: str) -> Part | None:
        """A tool call of the last answer, however it stands."""
        last = self.last_answer
        parts = [] if last is None else [one for one in last.tool_parts if one["toolCallId"] == call_id]
        return parts[0] if parts else None

    def request_of(self, call_id: str) -> str | None:
        """The request in whose answer a call is, while that streams."""
        for request, draft in self._drafts.items():
            if draft.call(call_id) is not None:
                return request
        return None

    def draft(self, request: str) -> Message | None:
        """What a request has been answered so far, while that streams."""
        draft = self._drafts.get(request)
        return None if draft is None else draft.message()

    def said(self, message: Message) -> None:
        """The person sends a message: it is on the screen before the server knows it."""
        if all(known.id != message.id for known in self._stored):
            self._stored.append(message)

    def replace(self, messages: Iterable[Message]) -> None:
        """The conversation as the server has it."""
        self._stored = list(messages)
        self.told = frozenset(message.id for message in self._stored)
        self._over.clear()

    def clear(self) -> None:
        """The conversation is empty."""
        self.replace(())
        self._drafts.clear()
        self._bodies.clear()

    def take(self, frame: wire.ServerFrame) -> ui.Chunk | None:
        """Show a frame. Returns the chunk in it, if it is one that has not been seen."""
        match frame:
            case wire.ChatMessages(messages):
                self.replace(messages)
            case wire.MessageChanged(message):
                self._update(message)
            case wire.ClearChat():
                self.clear()
            case wire.ResponseFrame():
                return self._respond(frame)
            case wire.ResumeNone(None | "idle"):
                self._nothing_streams()
            case wire.State(state):
                self.state = state
            case wire.Identity():
                self.identity = frame
            case _:
                pass
        return None

    def _update(self, changed: Message) -> None:
        self._stored = [changed if known.id == changed.id else known for known in self._stored]
        for request, draft in self._drafts.items():
            if draft.id == changed.id:
                self._drafts[request] = Accumulator.of(changed, continuation=draft.continuation)

    def _nothing_streams(self) -> None:
        """What is stored is all there is."""
        self._drafts.clear()
        self._over.clear()
        self._bodies.clear()

    def _respond(self, frame: wire.ResponseFrame) -> ui.Chunk | None:
        new = None
        if frame.body and not frame.done and not frame.error and frame.seq is not None:
            new = self._chunk(frame.id, frame.seq, frame.body, frame.continuation)
        if frame.done:
            draft = self._drafts.pop(frame.id, None)
            ids = {*(frame.message_ids or ()), *([] if draft is None else [draft.message().id])}
            self._cut = self._cut | ids if frame.outcome in ("aborted", "error") else self._cut - ids
            if draft is not None and draft.continuation and not self._holds(draft.message().text):
                self._over[frame.id] = draft
            self._ended(frame.id)
        return new

    def _holds(self, text: str) -> bool:
        """True when the conversation has an answer of this text."""
        return any(m.text.startswith(text) for m in self._stored if m.role == "assistant")

    def _chunk(self, request: str, number: int, body: str, continues: bool) -> ui.Chunk | None:
        known = self._bodies.setdefault(request, [])
        if number > len(known):
            if not self._missed(number, len(known)):
                return None
            known += [ui.NOTHING_NEW] * (number - len(known))
        elif (
            number < len(known) and self._differs(known[number], body) and self._changed(number, known, body)
        ):
            known.clear()
            del self._drafts[request]
        is_new = number == len(known)
        if is_new:
            known.append(body)
        chunk = ui.decode(body)
        if request not in self._drafts:
            draft = self._drafts[request] = Accumulator(request, continuation=continues)
            for one in known:
                draft.apply(ui.decode(one))
        elif is_new:
            self._drafts[request].apply(chunk)
        return chunk if is_new else None

    @staticmethod
    def _differs(before: str, now: str) -> bool:
        return before != now and ui.NOTHING_NEW not in (before, now)

    # --- what a stricter reader sees otherwise

    def _missed(self, number: int, due: int) -> bool:
        """Chunk `number` came when `due` was: is it taken?"""
        return True

    def _changed(self, number: int, known: list[str], body: str) -> bool:
        """A chunk came again and is another one: does the answer begin anew? A second start says so."""
        return number == 0

    def _ended(self, request: str) -> None:
        """The stream of a request is over: its numbers may begin anew."""
        self._bodies.pop(request, None)
