"""A chat window: posts its whole list of messages with every request, as the browser's hook does."""

from __future__ import annotations

from typing import Any, Literal

from everthink.door.admission import Admitted
from everthink.door.requests import (
    ChatRequest,
    Dropped,
    accept_request,
)
from everthink.journal.feed import ChunksStored, FeedEvent
from everthink.journal.fold import Accumulator
from everthink.messages import Message
from everthink.runtime.actor import Actor

__all__ = ["Window", "said"]


def said(id: str, text: str, **metadata: Any) -> Message:
    """A user message."""
    return Message(id, "user", [{"type": "text", "text": text}], metadata or None)


class Window:
    """What one browser tab believes, and how it asks."""

    def __init__(self, home: Actor) -> None:
        self._home = home
        self.messages: list[Message] = []
        self.client_tools: list[dict[str, Any]] = []
        self._answers: dict[str, Accumulator] = {}
        home.feed.join(self._see)

    def _see(self, shown: FeedEvent) -> None:
        if isinstance(shown, ChunksStored):
            answer = self._answers.setdefault(shown.turn.id, Accumulator(shown.turn.message_id))
            for chunk in shown.chunks:
                answer.apply(chunk)
            message = answer.message()
            self.messages = [m for m in self.messages if m.id != message.id] + [message]

    async def send(self, id: str, text: str, **options: Any) -> Admitted:
        """Type a message; the request has the message's id. It must be taken."""
        taken = await self.try_to_send(id, text, **options)
        assert isinstance(taken, Admitted)
        return taken

    async def try_to_send(self, id: str, text: str, **options: Any) -> Admitted | Dropped:
        """Type a message. A window that is refused forgets it again."""
        self.messages = [*self.messages, said(id, text)]
        taken = await self.ask(id, self.messages, **options)
        if isinstance(taken, Dropped):
            self.messages = [m for m in self.messages if m.id != id]
        return taken

    async def regenerate(self, id: str, **options: Any) -> Admitted:
        """Ask for another answer to the last question."""
        while self.messages and self.messages[-1].role == "assistant":
            self.messages = self.messages[:-1]
        taken = await self.ask(id, self.messages, trigger="regenerate-message", **options)
        assert isinstance(taken, Admitted)
        return taken

    async def ask(
        self,
        id: str,
        messages: list[Message],
        *,
        trigger: Literal["submit-message", "regenerate-message"] = "submit-message",
        **options: Any,
    ) -> Admitted | Dropped:
        """Post a list of messages."""
        copies = [message.copy() for message in messages]
        # As a connection does: a request without tools has those of the one before.
        given = options.pop("client_tools", None)
        tools = self.client_tools if given is None else given
        request = ChatRequest(id, copies, trigger=trigger, client_tools=tools, **options)
        taken = await accept_request(self._home, request)
        if isinstance(taken, Admitted):
            self.client_tools = tools
        return taken
