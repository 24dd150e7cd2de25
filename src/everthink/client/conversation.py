"""A conversation with an agent of a running server, from a program.

    async with connect("http://127.0.0.1:8000", "assistant", "room-1") as room:
        async for chunk in room.say("Hello"):
            ...

It speaks as a browser's page does; what it takes to survive lost connections is in `exchange.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from ..address import from_address
from ..errors import AgentError, AnsweredBefore, NotConnected
from ..json_values import check_json, check_payload
from ..messages import Message, MessageInput, Part, as_messages
from ..settings import check_call, shown
from ..tools.question import Action, as_shown, read_answer
from ..wire import frames as wire
from .address import is_of_child, socket_address
from .connection import chat_request
from .exchange import Exchange
from .line import Pace
from .questions import ToolQuestion, approval_of, question_in, said_in, shown_in
from .reply import Reply
from .runs import ChildRun, RunEvent

__all__ = ["Conversation", "connect"]


def connect(
    server: str,
    agent: str | type | None = None,
    name: str = "default",
    *,
    sub: Sequence[tuple[str | type, str]] = (),
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    tools: Sequence[dict[str, Any]] = (),
    patience: float | None = None,
    notice: Callable[[str], object] | None = None,
) -> Conversation:
    """A conversation with `agent` (a class, or how it is called in addresses) of the server at `server`.

    Without an `agent`, `server` is the whole address. `sub` leads to a child: class and name of each on the
    way, `sub=[("researcher", "notes")]`. `token` is sent as the query parameter of that name.
    `tools` are declared to the agent as this client's own: `{"name", "description", "parameters"}`.
    A connection that is lost is looked for as long as it takes, or for `patience` seconds; `notice` is
    called with a few words when that begins and when it ends.
    """
    check_call("connect", server=server, agent=agent, name=name, patience=patience)
    url = socket_address(server, agent, name, token, sub)
    return Conversation(url, headers=headers, tools=tools, patience=patience, notice=notice)


class Conversation:
    """A conversation that survives lost connections. `connect` makes one; it lives inside `async with`."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tools: Sequence[dict[str, Any]] = (),
        patience: float | None = None,
        notice: Callable[[str], object] | None = None,
    ) -> None:
        self._tools, self._url = list(tools), url
        self._exchange = Exchange(url, headers=headers, pace=Pace(patience=patience), notice=notice)
        self._seen = self._exchange.transcript

    async def open(self) -> None:
        """Connect, and learn where things stand. Raises `NotConnected`."""
        await self._exchange.open()

    async def close(self) -> None:
        """Hang up. Answers that are on their way go on without us."""
        await self._exchange.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- looking

    @property
    def messages(self) -> list[Message]:
        """The conversation as it is now, with the answer that streams."""
        return self._seen.messages

    @property
    def state(self) -> Any:
        """The agent's state, as last told."""
        return self._seen.state

    @property
    def agent(self) -> str:
        """How the agent is called in addresses, as the server says."""
        return self._seen.identity.agent if self._seen.identity else ""

    @property
    def name(self) -> str:
        """The agent's name, as the server says. Addresses have it escaped; this is the name itself."""
        if self._seen.identity is None:
            return ""
        told = self._seen.identity.name
        return told if is_of_child(self._url, told) else from_address(told)

    @property
    def chats(self) -> bool:
        """False for an agent that has no conversation: it has a state, and methods to `call`."""
        return self._exchange.chats

    @property
    def refusal(self) -> Exception | None:
        """Why there is no coming back, once there is none."""
        return self._exchange.refusal

    @property
    def to_approve(self) -> list[Part]:
        """The tool calls that wait for a yes or a no."""
        return [part for part in self._asking if question_in(part) is None]

    @property
    def questions(self) -> list[ToolQuestion]:
        """What tools ask a person, with the forms to fill in."""
        return [question for part in self._asking if (question := question_in(part)) is not None]

    @property
    def _asking(self) -> list[Part]:
        return self._seen.open_calls("approval-requested")

    @property
    def to_answer(self) -> list[Part]:
        """The tool calls that wait for the result of a client."""
        return self._seen.open_calls("input-available")

    async def states(self) -> AsyncIterator[Any]:
        """The state as it is now, then each that follows."""
        with self._exchange.watch_state() as queue:
            yield self.state
            while True:
                state = await queue.get()
                if self.refusal is not None:
                    raise self.refusal
                yield state

    @property
    def runs(self) -> list[ChildRun]:
        """The runs of the agent's children, as they are now: the latest when we came, and those since."""
        return self._exchange.runs.all

    def runs_of(self, call_id: str | None) -> list[ChildRun]:
        """The runs that a call of the model asked for, in the order in which they are shown; `None`: those
        that the agent's code did."""
        return self._exchange.runs.of_call(call_id)

    async def run_events(self) -> AsyncIterator[RunEvent]:
        """What happens in the runs of the agent's children from now on, each thing once."""
        with self._exchange.watch_runs() as queue:
            while (event := await queue.get()) is not None:
                yield event
            if self.refusal is not None:
                raise self.refusal

    # --- talking

    def say(self, message: MessageInput, **body: Any) -> Reply:
        """Send a message, at once; its answer is on its way. `body` is what else the agent is told."""
        (said,) = as_messages(message, new_id=lambda: secrets.token_hex(8))
        frame = self._request([*self.messages, said], "submit-message", body)
        return self._exchange.ask(frame, message=said)

    async def ask(self, message: MessageInput, **body: Any) -> Message:
        """Send a message and wait for the whole answer, over as many connections as it takes."""
        return await self.say(message, **body)

    def following(self) -> Reply | None:
        """What is still to come of the answer that streams, whoever asked for it; `None`: none does."""
        request = self._exchange.streaming
        return None if request is None else self._exchange.going_on(request)

    def regenerate(self, **body: Any) -> Reply:
        """Let the last message be answered once more."""
        kept = self.messages
        while kept and kept[-1].role != "user":
            kept.pop()
        if not kept:
            raise AgentError("There is nothing to answer again.")
        frame = self._request(kept, "regenerate-message", body)
        before = frozenset(message.id for message in self.messages)
        self._seen.replace(kept)
        return self._exchange.ask(frame, before=before)

    async def approve(self, call_id: str, approved: bool = True, *, asked: str | None = None) -> Reply:
        """Say yes or no to a call that asks. Returns what the agent makes of it.

        `asked` is the `id` in the part's `approval`: with it only that question is answered, and not what the
        call may ask next. It goes on when all its open calls are answered: only then there is something to
        wait for. Raises `AnsweredBefore` when somebody else has answered first, and otherwise.
        """
        if not isinstance(cast("object", approved), bool):
            raise AgentError(
                f"approve: `approved` is True or False, not {shown(approved)}.",
                kept="The question is still open.",
            )
        frame = wire.ApprovalAnswered(call_id, approved, auto_continue=True)
        return await self._settle(
            call_id,
            "approval-requested",
            frame,
            is_ours=lambda part: said_in(part) is approved,
            shown=asked,
        )

    async def answer(self, call_id: str, output: Any = None, *, error: str | None = None) -> Reply:
        """Send the result of a tool that ran here, or its `error`. Returns what the agent makes of it."""
        tools = self._tools or None
        frame = wire.ToolAnswered(call_id, output=output, auto_continue=True, client_tools=tools)
        if error is not None:
            frame.state, frame.error_text = "output-error", error
        return await self._settle(call_id, "input-available", frame)

    async def reply(
        self,
        call_id: str,
        content: Mapping[str, Any] | None = None,
        *,
        action: Action = "accept",
        answers: Mapping[str, Mapping[str, Any]] | None = None,
        asked: str | None = None,
    ) -> Reply:
        """Answer what a tool asks: `content` is what was filled in. Returns what the agent makes of it.

        `action="decline"` is a no, `"cancel"` neither yes nor no. For several forms, `answers` has
        `{"action": …, "content": …}` by the name of each; `asked` is as in `approve`. Raises when it does not
        fit, or nobody asks, and `AnsweredBefore` when somebody else has answered first, and otherwise.
        """
        question = next((one for one in self.questions if one.call_id == call_id), None)
        if question is None:
            raise _nobody_asks(call_id)
        output: dict[str, Any] = {"answers": {name: dict(one) for name, one in (answers or {}).items()}}
        if answers is None:
            filled = {} if content is None or action != "accept" else {"content": dict(content)}
            output = {"action": action, **filled}
        given = read_answer(question.forms, output)
        if isinstance(given, str):
            raise AgentError(f"This is no answer to {call_id!r}. {given}", kept="The question is still open.")
        frame = wire.ToolAnswered(call_id, output=output, auto_continue=True, knows_call=True)
        streams = None if question.seconds is None else self._seen.request_of(call_id)
        told = as_shown(given)
        return await self._settle(
            call_id,
            "approval-requested",
            frame,
            streams,
            is_ours=lambda part: shown_in(part) == told,
            shown=asked,
        )

    async def cancel(self) -> None:
        """Stop every answer that is waited for here. What was said is kept."""
        for reply in self._exchange.replies:
            await reply.cancel()

    async def clear(self) -> None:
        """Forget the conversation."""
        await self._exchange.ready()
        self._seen.clear()
        await self._exchange.send_and_know(wire.ClearChat())  # who may not is told how things are

    async def set_state(self, state: Any) -> None:
        """Replace the agent's state. Raises when the agent does not take it."""
        check_json(state, "state", "set_state")
        await self._exchange.ready()
        before, self._exchange.state_refused = self.state, None
        self._seen.state = state
        await self._exchange.send_and_know(wire.SetState(state))
        if self._exchange.state_refused is not None:
            self._seen.state = before
            raise AgentError(f"The state was not changed: {self._exchange.state_refused}.")

    async def call(self, method: str, *args: Any) -> Any:
        """Call a method of the agent and return what it returns. Raises `CallFailed`."""
        result = None
        async for piece in self.stream(method, *args):
            result = piece
        return result

    async def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        """Call a streaming method: each piece as it is sent, and last what it ended with, if anything."""
        for place, argument in enumerate(args):
            check_payload(argument, f"argument {place}", method)
        await self._exchange.ready()
        async with contextlib.aclosing(self._exchange.calls.stream(method, *args)) as pieces:
            async for piece in pieces:
                yield piece

    def _request(self, messages: list[Message], trigger: str, body: Mapping[str, Any]) -> wire.UseChat:
        tools = {"clientTools": self._tools} if self._tools else {}
        return chat_request(secrets.token_hex(8), messages, trigger, **tools, **body)

    async def _settle(
        self,
        call_id: str,
        state: str,
        frame: wire.ToolAnswered | wire.ApprovalAnswered,
        streams: str | None = None,
        is_ours: Callable[[Part], bool] | None = None,
        shown: str | None = None,
    ) -> Reply:
        """Send the answer to a call until the server has taken it.

        `streams`: the request in whose answer the call runs, and goes on with this. `is_ours`: whether a call
        that is answered has this answer. `shown`: the question that is answered, when it is no other.
        """

        def asks() -> str | None:
            # A tool may ask again once it is answered: that is another question of the same call.
            parts = [part for part in self._seen.open_calls(state) if part["toolCallId"] == call_id]
            return approval_of(parts[0]) if parts else None

        def waits() -> bool:
            return asks() == asked

        await self._exchange.ready()
        asked = asks()
        if asked is None or shown not in (None, asked):
            raise _nobody_asks(call_id)
        frame.approval_id = asked or None
        exchange = self._exchange
        reply = exchange.continuation() if streams is None else exchange.going_on(streams)
        while True:
            try:
                await self._exchange.send_and_know(frame)
            except NotConnected:
                await asyncio.sleep(0)  # the loss may not have been noticed yet
                await self._exchange.ready()
                if waits():
                    continue  # the answer was lost with the connection
            if waits():
                raise AgentError(
                    f"The answer to call {call_id!r} was not taken.", next_step="May you give it?"
                )
            part = self._seen.call(call_id)
            if is_ours and part is not None and approval_of(part) == asked and not is_ours(part):
                raise AnsweredBefore(call_id, reply)
            return reply


def _nobody_asks(call_id: str) -> AgentError:
    return AgentError(
        f"No call {call_id!r} waits for this answer.",
        next_step="It was answered already, or never asked for.",
    )
