"""What somebody says to an agent: questions, a clear, results of the browser's tools, approvals.

    ChatSockets --frame--> Asking --> door/requests.py, runtime/control.py

A window must not wait for ever: whatever becomes of its question, it is told. An answer to a question that
is not open changes nothing, and is told to the audit.
"""

from __future__ import annotations

import logging
from typing import Any

from ..access.audit import AgentAuditor
from ..door.requests import ChatRequest, Dropped, accept_request, bounded_tools, trailing
from ..errors import AgentError, CommitInDoubt, LeaseLost
from ..messages import encode_json
from ..runtime import control
from ..runtime.actor import Actor
from ..store.port import Statement
from ..turn.ending import explain
from ..wire import frames as wire
from ..wire.body import ChatBody, read_body
from .audience import Audience
from .connections import Connection
from .publishing import clearing

__all__ = ["Asking"]

log = logging.getLogger("everthink.server")

NOT_OPEN = "no question of this id is open"


class Asking:
    """What connections ask of one agent, and answer it."""

    def __init__(self, actor: Actor, audience: Audience, audit: AgentAuditor) -> None:
        self._actor, self._audience, self._audit = actor, audience, audit

    # --- questions

    async def request(self, connection: Connection, frame: wire.UseChat) -> None:
        """A chat window asks."""
        actor = self._actor
        try:
            body = read_body(frame, new_id=actor.new_id, limits=actor.limits, trusts=actor.trusts_clients)
        except AgentError as error:
            said = await explain(actor, error, "parse", frame.id, False, identity=connection.who)
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
            accepted = await accept_request(actor, _request(connection, frame.id, body, tools))
            connection.client_tools = tools
        except (CommitInDoubt, LeaseLost) as error:
            # The agent has left memory, this socket is closed: the window comes back and sees what is stored.
            log.info("the request %s is not answered: %s", frame.id, error)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the window must not wait for ever
            said = await explain(actor, error, "persist", frame.id, False, identity=connection.who)
            if body.messages and actor.session.find(body.messages[-1].id) is not None:
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
        actor, token = self._actor, clearing.set(connection.key)
        try:
            for one in self._audience.connections:
                one.client_tools = []
            actor.open_tools, actor.tools_by = [], None
            actor.last_body = actor.body_by = None
            kept = ("openTools", "openToolsBy", "lastBody", "lastBodyBy")
            forget = [actor.save_value(key, None) for key in kept]
            await actor.store.apply(forget)
            await control.clear(actor)
        finally:
            clearing.reset(token)
        self._audit.tell(connection, "clear")

    # --- answers

    async def tool_answered(self, connection: Connection, frame: wire.ToolAnswered) -> None:
        """A tool of the browser has run."""
        actor, more = self._actor, self._wish(connection, frame.auto_continue)
        if frame.client_tools:
            try:
                bounded_tools(frame.client_tools, actor.limits)
            except AgentError as error:
                log.info("a tool result is ignored: %s", error)
                return
            more.append(actor.save_value("openTools", frame.client_tools))
            more.append(actor.save_value("openToolsBy", connection.mark))
        output, failed, text = frame.output, frame.state == "output-error", frame.error_text
        size = len(encode_json([output, text]))
        if size > actor.limits.tool_result_bytes:
            output, failed = None, True
            text = f"The result has {size} bytes, more than {actor.limits.tool_result_bytes}."
        changed = await control.apply_result(
            actor,
            frame.tool_call_id,
            output,
            is_error=failed,
            error_text=text,
            more=more,
            is_strangers=True,
            by=connection.who,
        )
        if changed:
            if frame.client_tools:
                connection.client_tools = actor.open_tools = frame.client_tools
                actor.tools_by = connection.mark
            self._answered(connection, frame.auto_continue)
        else:
            self._audit.tell(connection, "answer", frame.tool_call_id, NOT_OPEN)

    async def approved(self, connection: Connection, frame: wire.ApprovalAnswered) -> None:
        """Somebody said yes or no to a call."""
        changed = await control.apply_approval(
            self._actor,
            frame.tool_call_id,
            frame.approved,
            more=self._wish(connection, frame.auto_continue),
            is_strangers=True,
            by=connection.who,
        )
        if changed:
            self._audit.tell(connection, "approval" if frame.approved else "denial", frame.tool_call_id)
            self._answered(connection, frame.auto_continue)
        else:
            self._audit.tell(connection, "approval", frame.tool_call_id, NOT_OPEN)

    def _wish(self, connection: Connection, goes_on: bool) -> list[Statement]:
        if not goes_on:
            return []
        wish = self._actor.continuations.wish(
            connection.key, is_readonly=connection.is_readonly, identity=connection.who
        )
        return [wish]

    def _answered(self, connection: Connection, goes_on: bool) -> None:
        self._actor.continuations.answered(
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
