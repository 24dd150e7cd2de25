"""A chat window without a socket: it posts its whole list of messages with every request, as browsers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..door.admission import Admitted
from ..door.chat_request import ChatRequest, Dropped
from ..journal.feed import ChunksStored, FeedEvent
from ..journal.fold import Accumulator
from ..messages import Message

if TYPE_CHECKING:
    from ..app.app import App
    from ..runtime.actor import Actor
    from ..think import Think

__all__ = ["Window"]


class Window:
    """What one browser tab believes, and how it asks. For a tab on a real socket see `Client`."""

    def __init__(self, home: Actor) -> None:
        assert home.chat is not None, "an agent that does not chat has no windows"
        self._chat = home.chat
        self.messages: list[Message] = []
        """The conversation as this window has it."""
        self.client_tools: list[dict[str, Any]] = []
        """The tools that the last request declared; they stay until another one declares others."""
        self._answers: dict[str, Accumulator] = {}
        self.close = home.feed.join(self._see)
        """Call it to see nothing more."""

    @classmethod
    async def of(cls, app: App, agent: type[Think], name: str = "default") -> Window:
        """Open a window onto an agent of an app; it is loaded when it is not there."""
        directory = await app.open()
        return cls(await directory.reach(directory.address(agent, name)))

    async def send(self, id: str, text: str, **options: Any) -> Admitted:
        """Type a message; the request has the message's id. It must be taken."""
        return _taken(await self.try_to_send(id, text, **options))

    async def try_to_send(self, id: str, text: str, **options: Any) -> Admitted | Dropped:
        """Type a message. A window that is refused forgets it again."""
        self.messages = [*self.messages, Message(id, "user", [{"type": "text", "text": text}])]
        taken = await self.ask(id, self.messages, **options)
        if isinstance(taken, Dropped):
            self.messages = [m for m in self.messages if m.id != id]
        return taken

    async def regenerate(self, id: str, **options: Any) -> Admitted:
        """Ask for another answer to the last question."""
        while self.messages and self.messages[-1].role == "assistant":
            self.messages = self.messages[:-1]
        return _taken(await self.ask(id, self.messages, trigger="regenerate-message", **options))

    async def ask(
        self,
        id: str,
        messages: list[Message],
        *,
        trigger: Literal["submit-message", "regenerate-message"] = "submit-message",
        **options: Any,
    ) -> Admitted | Dropped:
        """Post a list of messages. `options` are what else a `ChatRequest` says."""
        copies = [message.copy() for message in messages]
        # As a connection does: a request without tools has those of the one before.
        given = options.pop("client_tools", None)
        tools = self.client_tools if given is None else given
        request = ChatRequest(id, copies, trigger=trigger, client_tools=tools, **options)
        taken = await self._chat.requests.accept(request)
        if isinstance(taken, Admitted):
            self.client_tools = tools
        return taken

    def _see(self, shown: FeedEvent) -> None:
        if isinstance(shown, ChunksStored):
            answer = self._answers.setdefault(shown.turn.id, Accumulator(shown.turn.message_id))
            for chunk in shown.chunks:
                answer.apply(chunk)
            message = answer.message()
            self.messages = [m for m in self.messages if m.id != message.id] + [message]


def _taken(taken: Admitted | Dropped) -> Admitted:
    assert isinstance(taken, Admitted), "the agent took no message while a turn ran (message_concurrency)"
    return taken
