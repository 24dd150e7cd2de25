"""What a person sees who stays at the window while the server dies and comes back.

    frames, over as many connections as it takes --> Screen --> messages, and what was wrong with them

Pure. A chunk is told by its number: what comes again must be what was there, what is new must be the
next one. What was on the screen stays: text only grows, and no answer disappears.
"""

from __future__ import annotations

from typing import Any

from ... import chunks as ui
from ...journal.fold import Accumulator
from ...messages import Message, parse_message
from ...server.audience import NOTHING_NEW

__all__ = ["Screen"]


Frame = dict[str, Any]


class Screen:
    """The conversation on one screen."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        """What a reader would complain about."""
        self.errors: list[str] = []
        """The errors that were shown."""
        self.recoveries = 0
        """How often it was told that the agent recovers."""
        self._stored: list[Message] = []
        self._drafts: dict[str, Accumulator] = {}
        # Continuations that are over: they stay on the screen until the conversation comes that holds them.
        self._over: dict[str, Accumulator] = {}
        # The chunks of each request, by number.
        self._chunks: dict[str, list[str]] = {}
        # The text of each answer as it was last seen, by the message's id.
        self._seen: dict[str, str] = {}
        self._gone: set[str] = set()

    @property
    def messages(self) -> list[Message]:
        """The conversation, with what streams."""
        drafts = {draft.id: draft.message() for draft in (*self._over.values(), *self._drafts.values())}
        shown = [drafts.pop(message.id, message) for message in self._stored]
        return shown + list(drafts.values())

    @property
    def is_streaming(self) -> bool:
        """True while an answer is not over, as far as the screen knows."""
        return bool(self._drafts)

    def said(self, message: Message) -> None:
        """The person sends a message: it is on the screen before the server knows it."""
        if all(known.id != message.id for known in self._stored):
            self._stored.append(message)

    def may_leave(self, id: str) -> None:
        """This answer makes room for another one, which the person asked for."""
        self._gone.add(id)

    def take(self, frame: Frame) -> None:
        """Show a frame."""
        match frame["type"]:
            case "cf_agent_chat_messages":
                self._stored = [parse_message(message, new_id=str) for message in frame["messages"]]
                self._over.clear()
            case "cf_agent_message_updated":
                changed = parse_message(frame["message"], new_id=str)
                self._stored = [changed if known.id == changed.id else known for known in self._stored]
                for request, draft in self._drafts.items():
                    if draft.id == changed.id:
                        self._drafts[request] = Accumulator.of(changed, continuation=draft.continuation)
            case "cf_agent_use_chat_response":
                self._respond(frame)
            case "cf_agent_stream_resume_none" if frame.get("reason", "idle") == "idle":
                # Nothing streams: what is stored is all there is.
                self._drafts.clear()
                self._over.clear()
            case "cf_agent_chat_recovering":
                self.recoveries += bool(frame.get("recovering"))
            case _:
                return
        self._look()

    def _respond(self, frame: Frame) -> None:
        request: str = frame["id"]
        if frame.get("error"):
            self.errors.append(str(frame["body"]))
        elif frame["body"] and not frame["done"] and "seq" in frame:
            self._chunk(request, frame["seq"], frame["body"], frame.get("continuation", False))
        if frame["done"]:
            draft = self._drafts.pop(request, None)
            if draft is not None and draft.continuation and not self._holds(draft.message().text):
                self._over[request] = draft

    def _holds(self, text: str) -> bool:
        """True when the conversation has an answer of this text."""
        return any(m.text.startswith(text) for m in self._stored if m.role == "assistant")

    def _chunk(self, request: str, number: int, body: str, continues: bool) -> None:
        known = self._chunks.setdefault(request, [])
        if number > len(known):
            self._complain(f"chunk {number} of an answer came when chunk {len(known)} was due")
            return
        is_new = number == len(known)
        if is_new:
            known.append(body)
        elif NOTHING_NEW not in (body, known[number]) and known[number] != body:
            self._complain(f"chunk {number} of an answer was {known[number]} and is now {body}")
        if request not in self._drafts:
            draft = self._drafts[request] = Accumulator(request, continuation=continues)
            for chunk in known:
                draft.apply(ui.decode(chunk))
        elif is_new:
            self._drafts[request].apply(ui.decode(body))

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
