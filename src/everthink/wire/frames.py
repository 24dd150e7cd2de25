"""The frames of the protocol, both ways: plain values, named as what they mean.

    bytes <--codec--> frames <--> server/

Field names on the wire are camelCase; optional fields are absent, never null.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..messages import Message

__all__ = [
    "RUN_MILESTONE",
    "RUN_PROGRESS",
    "AgentToolEvent",
    "ApprovalAnswered",
    "CallMethod",
    "CallResult",
    "CancelRequest",
    "ChatFrame",
    "ChatMessages",
    "ClearChat",
    "ClientFrame",
    "ClientMessages",
    "Compacted",
    "Identity",
    "McpServers",
    "MessageChanged",
    "Recovering",
    "RequestInit",
    "ResponseFrame",
    "ResumeAck",
    "ResumeNone",
    "ResumeRequest",
    "ServerFrame",
    "SessionError",
    "SessionStatus",
    "SetState",
    "State",
    "StateError",
    "StreamPending",
    "StreamResuming",
    "ToolAnswered",
    "UseChat",
]


class _Frame(msgspec.Struct, tag_field="type", rename="camel", omit_defaults=True):
    pass


# --- client to server


class RequestInit(msgspec.Struct):
    """How the browser would have posted it: `body` is JSON text, as bytes when it is long."""

    method: str = ""
    body: Any = None


class UseChat(_Frame, tag="cf_agent_use_chat_request"):
    """Send or regenerate."""

    id: str
    init: RequestInit


class CancelRequest(_Frame, tag="cf_agent_chat_request_cancel"):
    """Stop a turn."""

    id: str


class ClearChat(_Frame, tag="cf_agent_chat_clear"):
    """Empty the conversation. Also sent to the other tabs."""


class ClientMessages(_Frame, tag="cf_agent_chat_messages"):
    """A client's idea of the conversation. Ignored: the server's counts."""

    messages: list[Any] = []


class ToolAnswered(_Frame, tag="cf_agent_tool_result"):
    """A tool ran in the browser."""

    tool_call_id: str
    tool_name: str = ""
    output: Any = None
    state: str | None = None
    error_text: str | None = None
    auto_continue: bool = False
    client_tools: list[dict[str, Any]] | None = None
    knows_call: bool = False
    """Of the answer to a tool's question: True when the sender does not take it for the tool's result."""
    approval_id: str | None = None
    """Which question of the call this answers: the id it was shown with. For no other it counts then."""


class ApprovalAnswered(_Frame, tag="cf_agent_tool_approval"):
    """A person said yes or no to a call."""

    tool_call_id: str
    approved: bool
    auto_continue: bool = False
    approval_id: str | None = None
    """Which question of the call this answers: the id it was shown with. For no other it counts then."""


class ResumeRequest(_Frame, tag="cf_agent_stream_resume_request"):
    """Is anything streaming? Always answered, with the same `probe_id`."""

    probe_id: str | None = None


class ResumeAck(_Frame, tag="cf_agent_stream_resume_ack"):
    """Yes, replay that stream to me."""

    id: str


class SetState(_Frame, tag="cf_agent_state"):
    """Replace the agent's state."""

    state: Any


class CallMethod(_Frame, tag="rpc"):
    """Call a method."""

    id: str
    method: str
    args: list[Any]


ChatFrame = (
    UseChat
    | CancelRequest
    | ClearChat
    | ClientMessages
    | ToolAnswered
    | ApprovalAnswered
    | ResumeRequest
    | ResumeAck
)
"""What is about a conversation."""
ClientFrame = ChatFrame | SetState | CallMethod


# --- server to client


class Identity(_Frame, tag="cf_agent_identity"):
    """Who answers. `state_follows` only when a state frame comes next."""

    name: str
    agent: str
    state_follows: bool = False


class State(_Frame, tag="cf_agent_state"):
    """The agent's state."""

    state: Any


class StateError(_Frame, tag="cf_agent_state_error"):
    """A state update was refused."""

    error: str


class McpServers(_Frame, tag="cf_agent_mcp_servers"):
    """The MCP servers of the agent and what they offer."""

    mcp: dict[str, Any]


class CallResult(_Frame, tag="rpc"):
    """An answer to a call: a result, a piece of one, or an error."""

    id: str
    success: bool
    done: bool | None = None
    result: Any = msgspec.UNSET
    error: str | None = None


class ChatMessages(_Frame, tag="cf_agent_chat_messages"):
    """The stored conversation. `connect` only on the copy a new connection gets."""

    messages: list[Message]
    connect: bool = False


class ResponseFrame(_Frame, tag="cf_agent_use_chat_response"):
    """A chunk of a turn, its error, or its end."""

    id: str
    body: str
    done: bool
    error: bool = False
    seq: int | None = None
    continuation: bool = False
    replay: bool = False
    replay_complete: bool = False
    outcome: Literal["completed", "error", "aborted", "skipped", "recovering"] | None = None
    message_ids: list[str] | None = None


class MessageChanged(_Frame, tag="cf_agent_message_updated"):
    """One stored message changed."""

    message: Message


class StreamResuming(_Frame, tag="cf_agent_stream_resuming"):
    """A stream is offered; it is replayed to whoever acks."""

    id: str
    probe_id: str | None = None


class StreamPending(_Frame, tag="cf_agent_stream_pending"):
    """A turn is accepted and has not said anything yet."""

    id: str | None = None
    probe_id: str | None = None


class ResumeNone(_Frame, tag="cf_agent_stream_resume_none"):
    """Nothing to resume."""

    reason: Literal["idle", "continuation-owned"] | None = None
    probe_id: str | None = None


class Recovering(_Frame, tag="cf_agent_chat_recovering"):
    """An interrupted turn is being finished, or not any more."""

    recovering: bool
    id: str | None = None


class Compacted(msgspec.Struct, rename="camel"):
    """What a compaction did."""

    tokens_before: int


class SessionStatus(_Frame, tag="cf_agent_session"):
    """How long the conversation is, and whether it is being shortened."""

    phase: Literal["idle", "compacting"]
    token_estimate: int
    token_threshold: int | None
    compacted: Compacted | None = None


class SessionError(_Frame, tag="cf_agent_session_error"):
    """The conversation could not be shortened."""

    error: str


RUN_PROGRESS, RUN_MILESTONE = "data-agent-progress", "data-agent-milestone"
"""The types of chunks in which a child says how far it is with a run."""


class AgentToolEvent(_Frame, tag="agent-tool-event"):
    """Something of a child's run: number `sequence` of it, live and told again."""

    sequence: int
    event: dict[str, Any]
    parent_tool_call_id: str | None = None
    replay: bool = False


ServerFrame = (
    Identity
    | State
    | StateError
    | McpServers
    | CallResult
    | ChatMessages
    | ClearChat
    | ResponseFrame
    | MessageChanged
    | StreamResuming
    | StreamPending
    | ResumeNone
    | Recovering
    | SessionStatus
    | SessionError
    | AgentToolEvent
)
