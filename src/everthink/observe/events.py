"""What an agent reports about itself: small typed values on named channels.

    turn/, session/, runtime/ --body--> bus --Event--> subscribers, logging, OpenTelemetry

An event is emitted after the fact it reports is durable (starts and attempts excepted).
What people and models said never travels in a payload: a field marked `content` can
be read by subscribers in this process, and is left out of payloads, logs and `repr`.

A body's class is named after its type: `chat:turn:start` is `ChatTurnStart`. Optional
fields are `None` when absent, and absent ones do not appear in the payload.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

import msgspec

from ..address import Address
from ..masking import mask
from ..models.port import AssistantMessage, Request, Usage

__all__ = [
    "CHANNELS",
    "EVENTS",
    "AlarmMemoryLimitReset",
    "Audit",
    "ChatClientDropped",
    "ChatContextCompacted",
    "ChatContextSlimmed",
    "ChatFilesLeftOut",
    "ChatHydrationWindowed",
    "ChatMediaEvicted",
    "ChatOnstartDegraded",
    "ChatRecoveryAttempt",
    "ChatRecoveryCompleted",
    "ChatRecoveryDetected",
    "ChatRecoveryExhausted",
    "ChatRecoveryFailed",
    "ChatRecoveryScheduled",
    "ChatRecoverySkipped",
    "ChatRequestFailed",
    "ChatStepFinish",
    "ChatStepStart",
    "ChatStoredUnreadable",
    "ChatStreamCut",
    "ChatStreamStalled",
    "ChatTranscriptRepaired",
    "ChatTurnBrokeOff",
    "ChatTurnFinish",
    "ChatTurnSetAside",
    "ChatTurnStart",
    "Connect",
    "Content",
    "Destroy",
    "Disconnect",
    "Event",
    "EventBody",
    "FiberRecoveryAttempt",
    "FiberRecoveryDetected",
    "FiberRecoveryFailed",
    "FiberRecoveryHandled",
    "FiberRecoverySkipped",
    "FiberRunCompleted",
    "FiberRunFailed",
    "FiberRunInterrupted",
    "FiberRunStarted",
    "LoopBlocked",
    "McpAuthorized",
    "McpChanged",
    "McpConnected",
    "McpRemoved",
    "MessageCancel",
    "MessageClear",
    "MessageCut",
    "MessageError",
    "ModelRetry",
    "QueueCreate",
    "QueueError",
    "QueueRetry",
    "Released",
    "Rpc",
    "RpcError",
    "ScheduleCancel",
    "ScheduleCreate",
    "ScheduleDuplicateWarning",
    "ScheduleError",
    "ScheduleExecute",
    "ScheduleRetry",
    "SetAside",
    "Stage",
    "StateUpdate",
    "SubmissionCreate",
    "SubmissionError",
    "SubmissionStatus",
    "TaskFailed",
    "ToolApproval",
    "ToolCallFinish",
    "ToolCallStart",
    "ToolResult",
    "TurnStatus",
    "channel_of",
    "event",
]

TurnStatus = Literal["completed", "error", "aborted", "skipped"]
Stage = Literal["parse", "persist", "turn", "stream", "recovery", "transcript"]

CHANNELS: dict[str, tuple[str, ...]] = {
    "agents:state": ("state:",),
    "agents:rpc": ("rpc", "rpc:"),
    "agents:message": ("message:", "tool:", "submission:", "action:"),
    "agents:transcript": ("transcript:", "chat:transcript:"),
    "agents:chat": ("chat:", "model:"),
    "agents:fiber": ("fiber:",),
    "agents:agent_tool": ("agent_tool:",),
    "agents:schedule": ("schedule:", "queue:"),
    "agents:workflow": ("workflow:",),
    "agents:mcp": ("mcp:",),
    "agents:workspace": ("workspace:",),
    "agents:email": ("email:",),
    "agents:channel": ("channel:", "notice:", "messenger:"),
    "agents:lifecycle": (),
}
"""Every channel with the event types it carries: a prefix when it ends in `:`, else one type.

The first match wins; types that match nothing are on `agents:lifecycle`."""


def channel_of(event_type: str) -> str:
    """The channel that carries events of this type."""
    for channel, types in CHANNELS.items():
        for known in types:
            if event_type == known or (known.endswith(":") and event_type.startswith(known)):
                return channel
    return "agents:lifecycle"


# --- how events are made -----------------------------------------------------------------


T = TypeVar("T")
Content = Annotated[T | None, "content"]
"""Marks a field that holds what people or models said: never in a payload, log or `repr`."""


class EventBody(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of event says. Subclasses are declared with `@event("its:type")`."""

    type: ClassVar[str] = ""
    channel: ClassVar[str] = ""
    level: ClassVar[int] = logging.DEBUG
    wire_names: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __post_init__(self) -> None:
        # Libraries like to repeat the key or the address that failed.
        if error := getattr(self, "error", None):
            msgspec.structs.force_setattr(self, "error", mask(str(error)))

    def payload(self) -> dict[str, Any]:
        """The fields as JSON: names in camelCase, absent ones and content left out."""
        return {
            wire: _plain(value)
            for field, wire in self.wire_names
            if (value := getattr(self, field)) is not None
        }

    def __repr__(self) -> str:
        fields = ", ".join(f"{field}={getattr(self, field)!r}" for field, _ in self.wire_names)
        return f"{type(self).__name__}({fields})"


@dataclass(frozen=True, slots=True)
class Event:
    """One event as subscribers receive it: what, from whom, when."""

    type: str
    channel: str
    agent: str
    """The class name of the agent."""
    name: str
    """The name of the instance."""
    payload: dict[str, Any]
    timestamp: int
    """Milliseconds since 1970."""
    body: EventBody
    """The typed value the payload was made from."""
    parents: tuple[tuple[str, str], ...] = ()
    """Class and name of those above the agent, the outermost first, when it is a child."""

    @property
    def id(self) -> str:
        """The agent's address: its class and its name, below those of its parents."""
        return Address(self.agent, self.name, self.parents).id

    def to_json(self) -> dict[str, Any]:
        """The event as it is published to other processes."""
        return {
            "type": self.type,
            "agent": self.agent,
            "name": self.name,
            "payload": self.payload,
            "timestamp": self.timestamp,
            **({"parents": [list(one) for one in self.parents]} if self.parents else {}),
        }


EVENTS: dict[str, type[EventBody]] = {}
"""Every declared event by its type, those of applications included."""

Body = TypeVar("Body", bound=EventBody)


def event(event_type: str, /, *, level: int = logging.DEBUG) -> Callable[[type[Body]], type[Body]]:
    """Declare a kind of event; `level` is how loud it is in the log. Applications may add their own:
    `@event("shop:order")` above `class ShopOrder(EventBody)` with its fields.
    """

    def declare(cls: type[Body]) -> type[Body]:
        cls.type, cls.channel, cls.level = event_type, channel_of(event_type), level
        hidden = _content_fields(cls)
        cls.wire_names = tuple((f, _camel(f)) for f in cls.__struct_fields__ if f not in hidden)
        EVENTS[event_type] = cls
        return cls

    return declare


def _content_fields(cls: type[EventBody]) -> set[str]:
    # Read as written: resolving some sixty classes' hints would cost more than the rest of the import.
    return {
        name
        for base in cls.__mro__
        for name, hint in vars(base).get("__annotations__", {}).items()
        if "Content[" in str(hint) or "'content'" in str(hint)
    }


def _plain(value: object) -> Any:
    plain = msgspec.to_builtins(value)
    return list(cast("tuple[Any, ...]", plain)) if isinstance(plain, tuple) else plain


def _camel(name: str) -> str:
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


# --- state and calls ---------------------------------------------------------------------


@event("state:update")
class StateUpdate(EventBody, frozen=True, kw_only=True):
    """The agent's state was replaced."""


@event("rpc")
class Rpc(EventBody, frozen=True, kw_only=True):
    """An exposed method was called by a client."""

    method: str
    streaming: bool | None = None


@event("rpc:error", level=logging.WARNING)
class RpcError(EventBody, frozen=True, kw_only=True):
    """An exposed method raised."""

    method: str
    error: str


# --- messages and tools ------------------------------------------------------------------


@event("message:clear")
class MessageClear(EventBody, frozen=True, kw_only=True):
    """The conversation was emptied."""


@event("message:cancel")
class MessageCancel(EventBody, frozen=True, kw_only=True):
    """Somebody asked for a running turn to stop."""

    request_id: str


@event("message:error")
class MessageError(EventBody, frozen=True, kw_only=True):
    """A reply broke off."""

    error: str


@event("message:cut")
class MessageCut(EventBody, frozen=True, kw_only=True):
    """A message was too large for a row and is stored in part; its metadata says which."""

    message_id: str
    role: str
    bytes: int
    """How large it was."""


@event("tool:result")
class ToolResult(EventBody, frozen=True, kw_only=True):
    """A client delivered the result of a tool it ran."""

    tool_call_id: str
    tool_name: str


@event("tool:approval")
class ToolApproval(EventBody, frozen=True, kw_only=True):
    """A person answered a call that asked first."""

    tool_call_id: str
    approved: bool


@event("tool:call:start")
class ToolCallStart(EventBody, frozen=True, kw_only=True):
    """A tool of ours is about to run. `step_number` is absent before the first step."""

    request_id: str
    tool_call_id: str
    tool_name: str
    step_number: int | None = None
    input: Content[Any] = None


@event("tool:call:finish")
class ToolCallFinish(EventBody, frozen=True, kw_only=True):
    """A tool of ours gave its result or failed; the model reads either."""

    request_id: str
    tool_call_id: str
    tool_name: str
    step_number: int | None = None
    success: bool
    duration_ms: int
    error: str | None = None
    error_type: str | None = None
    output: Content[Any] = None


# --- submissions -------------------------------------------------------------------------


class _Submission(EventBody, frozen=True, kw_only=True):
    submission_id: str
    request_id: str | None = None
    idempotency_key: str | None = None


@event("submission:create")
class SubmissionCreate(_Submission, frozen=True, kw_only=True):
    """Work was accepted, to run later."""


@event("submission:status")
class SubmissionStatus(_Submission, frozen=True, kw_only=True):
    """Accepted work moved on."""

    status: str


@event("submission:error", level=logging.WARNING)
class SubmissionError(_Submission, frozen=True, kw_only=True):
    """Accepted work failed."""

    error: str


# --- turns -------------------------------------------------------------------------------


@event("chat:request:failed", level=logging.WARNING)
class ChatRequestFailed(EventBody, frozen=True, kw_only=True):
    """A turn failed; `stage` says how far it had come."""

    request_id: str | None = None
    stage: Stage
    messages_persisted: bool | None = None
    error: str


class _Turn(EventBody, frozen=True, kw_only=True):
    request_id: str
    trigger: str
    admission: str
    continuation: bool | None = None
    generation: int | None = None
    identity: Any = None
    """Who asked, as the application's `authenticate` said, as JSON."""


@event("chat:turn:start")
class ChatTurnStart(_Turn, frozen=True, kw_only=True):
    """A turn left the queue and runs."""


@event("chat:turn:finish", level=logging.INFO)
class ChatTurnFinish(_Turn, frozen=True, kw_only=True):
    """A turn ended. Exactly one for each start."""

    status: TurnStatus
    duration_ms: int
    error: str | None = None
    error_type: str | None = None
    stopped_by: str | None = None
    """`max_steps` or `stop_when`, when the model would have gone on."""


@event("chat:step:start")
class ChatStepStart(EventBody, frozen=True, kw_only=True):
    """The model is about to be asked."""

    request_id: str
    step_number: int
    model: str
    request: Content[Request | None] = None
    telemetry: Content[dict[str, Any] | None] = None
    """What `TurnConfig.telemetry` asked for."""


@event("chat:step:finish")
class ChatStepFinish(EventBody, frozen=True, kw_only=True):
    """The model answered. `usage` holds what the provider reported."""

    request_id: str
    step_number: int
    model: str
    finish_reason: str
    usage: Usage | None = None
    duration_ms: int
    response_id: str | None = None
    response_model: str | None = None
    error_type: str | None = None
    answer: Content[AssistantMessage | None] = None


@event("model:retry", level=logging.INFO)
class ModelRetry(EventBody, frozen=True, kw_only=True):
    """A model call did not open and is tried again after `delay_ms`."""

    request_id: str
    attempt: int
    delay_ms: int
    error: str
    error_type: str | None = None


@event("chat:stream:stalled", level=logging.WARNING)
class ChatStreamStalled(EventBody, frozen=True, kw_only=True):
    """A model sent nothing for as long as the agent allows."""

    request_id: str
    timeout_ms: int


@event("chat:stream:cut", level=logging.WARNING)
class ChatStreamCut(EventBody, frozen=True, kw_only=True):
    """The model's stream ended without a finish reason: the answer is interrupted, not complete."""

    request_id: str
    error: str


@event("chat:client:dropped", level=logging.INFO)
class ChatClientDropped(EventBody, frozen=True, kw_only=True):
    """A chat request carried what only we may say; it was left out."""

    request_id: str
    messages: int
    """Messages that are not the person's own, or not at the end of the list."""
    parts: int
    """Parts of the person's own messages that no person can make."""
    identity: Any = None


@event("chat:context:compacted", level=logging.INFO)
class ChatContextCompacted(EventBody, frozen=True, kw_only=True):
    """The conversation was shortened (or could not be) to fit the model."""

    reason: Literal["proactive", "reactive"]
    shortened: bool
    request_id: str | None = None
    attempt: int | None = None


@event("chat:context:slimmed", level=logging.WARNING)
class ChatContextSlimmed(EventBody, frozen=True, kw_only=True):
    """Results of calls are left out of the prompt: shortening the conversation was not enough."""

    request_id: str
    tool_call_ids: Sequence[str]


@event("chat:files:left_out", level=logging.WARNING)
class ChatFilesLeftOut(EventBody, frozen=True, kw_only=True):
    """Files of older messages are left out of the prompt: the model refused the call with them."""

    request_id: str
    files: int
    error: str


@event("chat:transcript:repaired", level=logging.INFO)
class ChatTranscriptRepaired(EventBody, frozen=True, kw_only=True):
    """Calls that nobody will answer any more were closed before the next prompt."""

    request_id: str | None = None
    removed_tool_calls: int
    normalized_inputs: int
    tool_call_ids: Sequence[str] | None = None


@event("chat:stored:unreadable", level=logging.WARNING)
class ChatStoredUnreadable(EventBody, frozen=True, kw_only=True):
    """Something stored is not what we wrote. It is left out, and its row stays; told once while in memory."""

    what: str
    """`message`, or the name of a kept value: `state`, `config`, …"""
    id: str | None = None
    error: str


@event("chat:turn:broke_off", level=logging.ERROR)
class ChatTurnBrokeOff(EventBody, frozen=True, kw_only=True):
    """A turn failed, and that could not be stored either. It stays open; the next start takes it up."""

    request_id: str
    turn_id: str
    error: str


@event("chat:turn:set_aside", level=logging.ERROR)
class ChatTurnSetAside(EventBody, frozen=True, kw_only=True):
    """A turn is not tried again until it is released; what is stored of it is kept."""

    request_id: str
    turn_id: str
    reason: Literal["strikes", "unreadable"]
    """It took the process down or hung it too often, or it cannot be read."""
    strikes: int
    error: str


@event("chat:onstart:degraded", level=logging.WARNING)
class ChatOnstartDegraded(EventBody, frozen=True, kw_only=True):
    """One step of starting up failed; the agent serves without it."""

    step: str
    error: str


@event("chat:hydration:windowed")
class ChatHydrationWindowed(EventBody, frozen=True, kw_only=True):
    """Only the recent part of a large conversation was loaded."""

    total_content_bytes: int
    budget_bytes: int
    hydrated_messages: int


@event("chat:media:evicted")
class ChatMediaEvicted(EventBody, frozen=True, kw_only=True):
    """Old files and large outputs were moved out of the messages."""

    messages: int
    parts: int
    bytes: int
    externalized_bytes: int


# --- recovery ----------------------------------------------------------------------------


class _Recovery(EventBody, frozen=True, kw_only=True):
    incident_id: str
    request_id: str
    attempt: int
    max_attempts: int
    recovery_kind: Literal["retry", "continue"]


@event("chat:recovery:detected", level=logging.INFO)
class ChatRecoveryDetected(_Recovery, frozen=True, kw_only=True):
    """A turn was found interrupted."""


@event("chat:recovery:scheduled")
class ChatRecoveryScheduled(_Recovery, frozen=True, kw_only=True):
    """The interrupted turn will be taken up again."""


@event("chat:recovery:attempt")
class ChatRecoveryAttempt(_Recovery, frozen=True, kw_only=True):
    """The interrupted turn is being taken up again."""


@event("chat:recovery:completed", level=logging.INFO)
class ChatRecoveryCompleted(_Recovery, frozen=True, kw_only=True):
    """The interrupted turn was brought to its end."""


@event("chat:recovery:skipped")
class ChatRecoverySkipped(_Recovery, frozen=True, kw_only=True):
    """Recovery found nothing left to do."""

    reason: str | None = None


@event("chat:recovery:failed", level=logging.WARNING)
class ChatRecoveryFailed(_Recovery, frozen=True, kw_only=True):
    """An attempt failed; another may follow."""

    reason: str | None = None


@event("chat:recovery:exhausted", level=logging.WARNING)
class ChatRecoveryExhausted(_Recovery, frozen=True, kw_only=True):
    """The budget is spent; the turn ended with the terminal message."""

    reason: str


# --- schedules and the queue -------------------------------------------------------------


class _Callback(EventBody, frozen=True, kw_only=True):
    callback: str
    id: str


class _CallbackRetry(_Callback, frozen=True, kw_only=True):
    attempt: int
    max_attempts: int


class _CallbackError(_Callback, frozen=True, kw_only=True):
    error: str
    attempts: int


@event("schedule:create")
class ScheduleCreate(_Callback, frozen=True, kw_only=True):
    """A callback was put on the schedule."""


@event("schedule:execute")
class ScheduleExecute(_Callback, frozen=True, kw_only=True):
    """A scheduled callback ran."""


@event("schedule:cancel")
class ScheduleCancel(_Callback, frozen=True, kw_only=True):
    """A scheduled callback was taken off the schedule."""


@event("schedule:retry")
class ScheduleRetry(_CallbackRetry, frozen=True, kw_only=True):
    """A scheduled callback raised and is tried again."""


@event("schedule:error", level=logging.WARNING)
class ScheduleError(_CallbackError, frozen=True, kw_only=True):
    """A scheduled callback raised for the last time."""


@event("schedule:duplicate_warning", level=logging.WARNING)
class ScheduleDuplicateWarning(EventBody, frozen=True, kw_only=True):
    """The same callback is on the schedule many times, most likely by mistake."""

    callback: str
    count: int
    type_: str


@event("queue:create")
class QueueCreate(_Callback, frozen=True, kw_only=True):
    """A callback was put on the queue."""


@event("queue:retry")
class QueueRetry(_CallbackRetry, frozen=True, kw_only=True):
    """A queued callback raised and is tried again."""


@event("queue:error", level=logging.WARNING)
class QueueError(_CallbackError, frozen=True, kw_only=True):
    """A queued callback raised for the last time."""


@event("alarm:memory_limit_reset", level=logging.WARNING)
class AlarmMemoryLimitReset(EventBody, frozen=True, kw_only=True):
    """Waking up ran out of memory; after `limit` strikes the work is sealed."""

    strikes: int
    limit: int
    sealed: bool
    error: str


# --- fibers ------------------------------------------------------------------------------


class _Fiber(EventBody, frozen=True, kw_only=True):
    fiber_id: str
    fiber_name: str
    managed: bool | None = None


@event("fiber:run:started")
class FiberRunStarted(_Fiber, frozen=True, kw_only=True):
    """A fiber runs."""


@event("fiber:run:completed")
class FiberRunCompleted(_Fiber, frozen=True, kw_only=True):
    """A fiber returned."""

    elapsed_ms: int | None = None


@event("fiber:run:failed", level=logging.WARNING)
class FiberRunFailed(_Fiber, frozen=True, kw_only=True):
    """A fiber raised."""

    error: str
    elapsed_ms: int | None = None


@event("fiber:run:interrupted")
class FiberRunInterrupted(_Fiber, frozen=True, kw_only=True):
    """A fiber was cut off by the end of its process."""

    recovery_reason: str


@event("fiber:recovery:detected")
class FiberRecoveryDetected(_Fiber, frozen=True, kw_only=True):
    """An interrupted fiber was found, so long after it was started."""

    recovery_reason: str
    elapsed_ms: int | None = None


@event("fiber:recovery:attempt")
class FiberRecoveryAttempt(_Fiber, frozen=True, kw_only=True):
    """An interrupted fiber is being taken up again."""

    recovery_reason: str


@event("fiber:recovery:handled")
class FiberRecoveryHandled(_Fiber, frozen=True, kw_only=True):
    """An interrupted fiber was dealt with."""

    status: str | None = None
    elapsed_ms: int | None = None


@event("fiber:recovery:skipped")
class FiberRecoverySkipped(_Fiber, frozen=True, kw_only=True):
    """An interrupted fiber was left alone."""

    reason: str


@event("fiber:recovery:failed", level=logging.WARNING)
class FiberRecoveryFailed(_Fiber, frozen=True, kw_only=True):
    """Taking up an interrupted fiber raised."""

    error: str
    reason: str | None = None
    elapsed_ms: int | None = None


# --- lifecycle ---------------------------------------------------------------------------


@event("task:failed", level=logging.ERROR)
class TaskFailed(EventBody, frozen=True, kw_only=True):
    """Work that nobody awaits raised. The log has the traceback."""

    task: str
    error: str
    error_type: str


@event("loop:blocked")
class LoopBlocked(EventBody, frozen=True, kw_only=True):
    """Code held the event loop for longer than a second; nobody was served meanwhile.

    Agent and name are empty when it cannot be seen whose it was. The log had its warning while it lasted.
    """

    where: str
    """File and line of the innermost frame of the application, else of ours."""
    function: str
    task: str | None = None
    """The name of the task, which says which tool or turn it was."""
    duration_ms: float


@event("audit", level=logging.INFO)
class Audit(EventBody, frozen=True, kw_only=True):
    """Somebody did something that one may want to look up later, or was kept from doing it.

    `action` is what: `approval`, `answer`, `cancel`, `clear`, `state`, `call`, `erase`, `connect`, `read`, …
    """

    action: str
    allowed: bool
    identity: Any = None
    """Who it was, as the application's `authenticate` said, as JSON."""
    person: dict[str, Any] | None = None
    """Who it was in a messenger: `messenger`, `provider`, `user_id`, `user_name`, `full_name`."""
    connection_id: str | None = None
    address: str | None = None
    """Where they came from."""
    target: str | None = None
    """What it was about: a call, a method, a message."""
    reason: str | None = None
    """Why it was refused."""


@event("mcp:client:connect")
class McpConnected(EventBody, frozen=True, kw_only=True):
    """An MCP server stands otherwise than before: it connects, is ready, failed, or waits for a person."""

    server_id: str
    url: str
    state: str
    error: str | None = None


@event("mcp:client:changed", level=logging.WARNING)
class McpChanged(EventBody, frozen=True, kw_only=True):
    """Tools of an MCP server are not what they were when they were accepted. They ask a person, once."""

    server_id: str
    tools: tuple[str, ...]


@event("mcp:client:close")
class McpRemoved(EventBody, frozen=True, kw_only=True):
    """An MCP server was removed, with what was kept of it."""

    server_id: str


@event("mcp:client:authorize", level=logging.INFO)
class McpAuthorized(EventBody, frozen=True, kw_only=True):
    """A person came back from the authorization server of an MCP server."""

    server_id: str
    success: bool
    error: str | None = None


@event("connect")
class Connect(EventBody, frozen=True, kw_only=True):
    """A client connected."""

    connection_id: str


@event("disconnect")
class Disconnect(EventBody, frozen=True, kw_only=True):
    """A client left."""

    connection_id: str
    code: int
    reason: str


@event("set_aside", level=logging.ERROR)
class SetAside(EventBody, frozen=True, kw_only=True):
    """Starting the agent took the process down, or hung it, too often: it is not started until released."""

    strikes: int


@event("released", level=logging.INFO)
class Released(EventBody, frozen=True, kw_only=True):
    """What was set aside may be tried again: a turn, or the agent itself."""

    turn_id: str | None = None


@event("destroy")
class Destroy(EventBody, frozen=True, kw_only=True):
    """The agent and everything it kept were deleted."""
