"""What somebody says to an agent: questions, a clear, results of the browser's tools, approvals.

    ChatSockets --frame--> Asking --> door/requests.py, door/answers.py

A window must not wait for ever: whatever becomes of its question, it is told. An answer to a question that
is not open, or that does not fit its form, changes nothing: it is told to the audit, and its sender is shown
how things are.
"""

from __future__ import annotations

import logging
from typing import Any

from ..door.answers import Stranger
from ..door.chat_request import ChatRequest, Dropped
from ..door.requests import bounded_tools, trailing
from ..errors import AgentError, CommitInDoubt, LeaseLost
from ..journal.ledger import is_for_people
from ..messages import encode_json
from ..runtime.chat import Chat
from ..store.port import Statement
from ..turn.ending import explain
from ..wire import frames as wire
from ..wire.body import ChatBody, read_body
from .audience import AgentAuditor, ChatAudience
from .connections import Connection
from .publishing import clearing

__all__ = ["Asking"]

log = logging.getLogger("everthink.server")

NOT_OPEN = "no question of this id is open"


class Asking:
    """What connections ask of one agent, and answer it."""

    def __init__(self, chat: Chat, audience: ChatAudience, audit: AgentAuditor) -> None:
        self._chat, self._host, self._audience, self._audit = chat, chat.host, audience, audit

    # --- questions

    async def request(self, connection: Connection, frame: wire.UseChat) -> None:
        """A chat window asks."""
        host, requests = self._host, self._chat.requests
        try:
            body = read_body(frame, new_id=host.new_id, limits=host.limits, trusts=requests.trusts_clients)
        except AgentError as error:
            said = await explain(host, error, "parse", frame.id, False, identity=connection.who)
            # What cannot be read is in its list, and goes with each request.
            self._audience.correct(connection)
            connection.send(wire.ResponseFrame(frame.id, said.shown, True, error=True))
            return
        if body is None:
            why = "its body is no JSON object with a list `messages`, sent with POST; it is ignored"
            self._audit.tell(connection, "frame", "cf_agent_use_chat_request", why)
            return
        frame.init.body = None  # it may be long, and has been read
        tools = connection.client_tools if body.client_tools is None else body.client_tools
        try:
            accepted = await requests.accept(_request(connection, frame.id, body, tools))
            connection.client_tools = tools
        except (CommitInDoubt, LeaseLost) as error:
            # The agent has left memory, this socket is closed: the window comes back and sees what is stored.
            log.info("the request %s is not answered: %s", frame.id, error)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the window must not wait for ever
            said = await explain(host, error, "persist", frame.id, False, identity=connection.who)
            if body.messages and host.session.find(body.messages[-1].id) is not None:
                # It shows a change of what was said; nothing new is lost by it.
                self._audience.correct(connection)
            connection.send(wire.ResponseFrame(frame.id, said.shown, True, error=True))
            return
        if isinstance(accepted, Dropped):
            connection.send(wire.ChatMessages(self._audience.messages))
            ids = trailing(body.messages) or None
            connection.send(wire.ResponseFrame(frame.id, "", True, outcome="skipped", message_ids=ids))

    async def clear(self, connection: Connection) -> None:
        """A connection empties the conversation."""
        token = clearing.set(connection.key)
        try:
            for one in self._audience.connections:
                one.client_tools = []
            await self._chat.clear()
        finally:
            clearing.reset(token)
        self._audit.tell(connection, "clear")

    # --- answers

    async def tool_answered(self, connection: Connection, frame: wire.ToolAnswered) -> None:
        """A tool of the browser has run."""
        chat, limits = self._chat, self._host.limits
        goes_on = frame.auto_continue and not chat.answers.is_live(frame.tool_call_id)
        more = self._continuation(connection, goes_on)
        if frame.client_tools:
            try:
                bounded_tools(frame.client_tools, limits)
            except AgentError as error:
                log.info("a tool result is ignored: %s", error)
                return
            more += chat.browser.declared(frame.client_tools, connection.mark)
        output, failed, text = frame.output, frame.state == "output-error", frame.error_text
        size = len(encode_json([output, text]))
        if size > limits.tool_result_bytes:
            output, failed = None, True
            text = f"The result has {size} bytes, more than {limits.tool_result_bytes}."
        is_question = await chat.answers.is_question(frame.tool_call_id)
        changed = await chat.answers.apply_result(
            frame.tool_call_id,
            output,
            is_error=failed,
            error_text=text,
            more=more,
            stranger=self._stranger(connection, frame.approval_id),
            asked=frame.approval_id,
            by=connection.who,
        )
        if changed:
            if frame.client_tools:
                connection.client_tools = frame.client_tools
                chat.browser.declare(frame.client_tools, connection.mark)
            if is_question and not frame.knows_call:
                self._audience.apart |= {connection}
            self._answered(connection, goes_on)
        else:
            self._audit.tell(connection, "answer", frame.tool_call_id, NOT_OPEN)
            await self._show_call(connection, frame.tool_call_id)

    async def _show_call(self, connection: Connection, call_id: str) -> None:
        """Show a window how a call stands that asks people: it takes what it has sent for the answer, and it
        is not. The question is still open, or somebody else was faster."""
        if not await is_for_people(self._host.store, call_id):
            return
        answer = self._host.turns.answer
        if self._chat.answers.is_live(call_id) and answer is not None:
            connection.send(wire.MessageChanged(answer.message()))
        else:
            self._audience.correct(connection)

    async def approved(self, connection: Connection, frame: wire.ApprovalAnswered) -> None:
        """Somebody said yes or no to a call."""
        goes_on = frame.auto_continue and not self._chat.answers.is_live(frame.tool_call_id)
        changed = await self._chat.answers.apply_approval(
            frame.tool_call_id,
            frame.approved,
            more=self._continuation(connection, goes_on),
            stranger=self._stranger(connection, frame.approval_id),
            asked=frame.approval_id,
            by=connection.who,
        )
        if changed:
            self._audit.tell(connection, "approval" if frame.approved else "denial", frame.tool_call_id)
            self._audience.apart -= {connection}
            self._answered(connection, goes_on)
        else:
            self._audit.tell(connection, "approval", frame.tool_call_id, NOT_OPEN)
            await self._show_call(connection, frame.tool_call_id)

    def _stranger(self, connection: Connection, question: str | None) -> Stranger | None:
        return None if self._chat.requests.trusts_clients else Stranger(connection.since, question)

    def _continuation(self, connection: Connection, goes_on: bool) -> list[Statement]:
        if not goes_on:
            return []
        saved = self._chat.continuations.save(
            connection.key, is_readonly=connection.is_readonly, identity=connection.who
        )
        return [saved]

    def _answered(self, connection: Connection, goes_on: bool) -> None:
        self._chat.continuations.answered(
            auto_continue=goes_on,
            owner=connection.key,
            is_readonly=connection.is_readonly,
            identity=connection.who,
        )


def _request(connection: Connection, id: str, body: ChatBody, tools: list[dict[str, Any]]) -> ChatRequest:
    return ChatRequest(
        id,
        body.messages,
        "regenerate-message" if body.regenerates else "submit-message",
        tools,
        body.custom,
        channel="web",
        origin=connection.key,
        is_readonly=connection.is_readonly,
        identity=connection.who,
        may_clear="clear" in connection.permissions,
    )
