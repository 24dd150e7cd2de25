"""What a connection may do: one look before anything is done for it.

    ChatSockets --frame--> needed --> the permission it takes      refused --> what the client is told

Reading takes none: the conversation, streams, and methods that are marked `@exposed(reads=True)`.
"""

from __future__ import annotations

from typing import assert_never

from ..identity import Permission
from ..runtime.rpc import exposed_method
from ..wire import frames as wire
from ..wire.codec import Refused

__all__ = ["answer_to", "is_about_the_view", "needed", "refused", "target_of"]

READONLY = "Connection is readonly"
NOT_ALLOWED = "Not allowed"
MAY_NOT_ASK = "You may read this conversation, but not write in it."


def needed(frame: wire.ClientFrame, agent: type) -> Permission | None:
    """The permission that a frame takes, or `None`."""
    match frame:
        case wire.UseChat():
            return "ask"
        case wire.ToolAnswered() | wire.ApprovalAnswered():
            return "answer"
        case wire.CancelRequest():
            return "cancel"
        case wire.ClearChat():
            return "clear"
        case wire.SetState():
            return "state"
        case wire.CallMethod(method=method):
            info = exposed_method(agent, method)
            return None if info is not None and info.reads else "call"
        case wire.ClientMessages() | wire.ResumeRequest() | wire.ResumeAck():
            return None
        case _:
            assert_never(frame)


def refused(frame: wire.ClientFrame, *, is_readonly: bool) -> wire.ServerFrame | None:
    """What a client is told whose frame takes a permission that it does not have."""
    why = READONLY if is_readonly else NOT_ALLOWED
    match frame:
        case wire.UseChat(id=id):
            return wire.ResponseFrame(id, MAY_NOT_ASK, True, error=True)
        case wire.SetState():
            return wire.StateError(why)
        case wire.CallMethod(id=id):
            return wire.CallResult(id, success=False, error=why)
        case _:
            return None


def answer_to(refused: Refused) -> wire.ServerFrame | None:
    """What the sender of a refused frame is told; `None` when no frame can say it."""
    if refused.type == "cf_agent_state":
        return wire.StateError(refused.words)
    if refused.id is None:
        return None
    if refused.type == "cf_agent_use_chat_request":
        return wire.ResponseFrame(refused.id, refused.words, True, error=True)
    if refused.type == "rpc":
        return wire.CallResult(refused.id, False, error=refused.words)
    return None


def is_about_the_view(frame: wire.ClientFrame) -> bool:
    """True when the client has shown its own wish already, and must be told how things really are."""
    return isinstance(frame, wire.UseChat | wire.ToolAnswered | wire.ApprovalAnswered | wire.ClearChat)


def target_of(frame: wire.ClientFrame) -> str | None:
    """What a frame is about, for the audit."""
    match frame:
        case wire.UseChat(id=id) | wire.CancelRequest(id=id):
            return id
        case wire.ToolAnswered(tool_call_id=id) | wire.ApprovalAnswered(tool_call_id=id):
            return id
        case wire.CallMethod(method=method):
            return method
        case _:
            return None
