"""everthink: chat agents that do not lose their thread.

What is named here is loaded when it is first used: an import costs what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .abort import AbortController, AbortSignal
    from .agent import Agent
    from .app.app import App
    from .app.handle import Handle
    from .context.blocks import ContextBlock, ContextProvider
    from .context.providers import (
        DirectoryProvider,
        SearchableEntries,
        StoredBlock,
        StoredEntries,
    )
    from .door.chat_stream import ChatStream
    from .door.concurrency import Debounce
    from .door.submissions import Submission
    from .errors import AgentError, ModelError, ToolError, TurnFailed
    from .fibers.values import (
        FiberAborted,
        FiberCompleted,
        FiberContext,
        FiberFailed,
        FiberInspection,
        FiberInterrupted,
        FiberRecovery,
        FiberRecoveryContext,
    )
    from .hooks.values import (
        Allow,
        Block,
        ChatErrorContext,
        ChatResponse,
        ChunkContext,
        PendingCall,
        StepConfig,
        StepContext,
        StepResult,
        Substitute,
        Timeouts,
        ToolCall,
        ToolOutcome,
        TurnConfig,
        TurnContext,
        TurnResult,
        has_tool_call,
        step_count_is,
    )
    from .identity import Granted
    from .limits import Limits
    from .messages import UNSET, Message
    from .models.classify import default_context_overflow_classifier
    from .models.tokens import TokenCount
    from .recovery.context import ChatRecoveryContext, RecoveryDecision
    from .recovery.incident import ChatRecovery, Exhausted, KeepRecovering
    from .recovery.suspects import Suspect
    from .runtime.rpc import StreamingResponse, callable
    from .schedules.alarms import Schedule
    from .schedules.jobs import Job
    from .schedules.retry import Retry
    from .schedules.task import ScheduledTask, TaskContext
    from .server.connections import Connection
    from .session.media import MediaEviction
    from .session.overlay import Overlay
    from .session.row_size import Shortening
    from .session.session import SearchHit, Session
    from .session.session_queries import SessionInfo
    from .session.sessions import Sessions
    from .session.summary import CompactContext, Compaction, create_compact_function, model_summarizer
    from .think import Think
    from .tools.ask import REPORT, RERUN
    from .tools.tool import Tool, ToolContext, client_tool, tool
    from .turn.convert import prune_tool_calls
    from .turn.overflow import ContextOverflow, Proactive

__all__ = [
    "REPORT",
    "RERUN",
    "UNSET",
    "AbortController",
    "AbortSignal",
    "Agent",
    "AgentError",
    "Allow",
    "App",
    "Block",
    "ChatErrorContext",
    "ChatRecovery",
    "ChatRecoveryContext",
    "ChatResponse",
    "ChatStream",
    "ChunkContext",
    "CompactContext",
    "Compaction",
    "Connection",
    "ContextBlock",
    "ContextOverflow",
    "ContextProvider",
    "Debounce",
    "DirectoryProvider",
    "Exhausted",
    "FiberAborted",
    "FiberCompleted",
    "FiberContext",
    "FiberFailed",
    "FiberInspection",
    "FiberInterrupted",
    "FiberRecovery",
    "FiberRecoveryContext",
    "Granted",
    "Handle",
    "Job",
    "KeepRecovering",
    "Limits",
    "MediaEviction",
    "Message",
    "ModelError",
    "Overlay",
    "PendingCall",
    "Proactive",
    "RecoveryDecision",
    "Retry",
    "Schedule",
    "ScheduledTask",
    "SearchHit",
    "SearchableEntries",
    "Session",
    "SessionInfo",
    "Sessions",
    "Shortening",
    "StepConfig",
    "StepContext",
    "StepResult",
    "StoredBlock",
    "StoredEntries",
    "StreamingResponse",
    "Submission",
    "Substitute",
    "Suspect",
    "TaskContext",
    "Think",
    "Timeouts",
    "TokenCount",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutcome",
    "TurnConfig",
    "TurnContext",
    "TurnFailed",
    "TurnResult",
    "callable",
    "client_tool",
    "create_compact_function",
    "default_context_overflow_classifier",
    "has_tool_call",
    "model_summarizer",
    "prune_tool_calls",
    "step_count_is",
    "tool",
]

_HOMES = {
    ".abort": ("AbortController", "AbortSignal"),
    ".agent": ("Agent",),
    ".errors": ("AgentError", "ModelError", "ToolError", "TurnFailed"),
    ".messages": ("Message", "UNSET"),
    ".models.classify": ("default_context_overflow_classifier",),
    ".recovery.context": ("ChatRecoveryContext", "RecoveryDecision"),
    ".identity": ("Granted",),
    ".limits": ("Limits",),
    ".recovery.incident": ("ChatRecovery", "Exhausted", "KeepRecovering"),
    ".recovery.suspects": ("Suspect",),
    ".schedules.alarms": ("Schedule",),
    ".runtime.rpc": ("StreamingResponse", "callable"),
    ".fibers.values": (
        "FiberAborted",
        "FiberCompleted",
        "FiberContext",
        "FiberFailed",
        "FiberInspection",
        "FiberInterrupted",
        "FiberRecovery",
        "FiberRecoveryContext",
    ),
    ".schedules.jobs": ("Job",),
    ".schedules.retry": ("Retry",),
    ".schedules.task": ("ScheduledTask", "TaskContext"),
    ".app.app": ("App",),
    ".app.handle": ("Handle",),
    ".server.connections": ("Connection",),
    ".context.blocks": ("ContextBlock", "ContextProvider"),
    ".session.row_size": ("Shortening",),
    ".session.media": ("MediaEviction",),
    ".session.overlay": ("Overlay",),
    ".context.providers": ("DirectoryProvider", "SearchableEntries", "StoredBlock", "StoredEntries"),
    ".session.session": ("SearchHit", "Session"),
    ".session.session_queries": ("SessionInfo",),
    ".session.sessions": ("Sessions",),
    ".session.summary": ("CompactContext", "Compaction", "create_compact_function", "model_summarizer"),
    ".models.tokens": ("TokenCount",),
    ".door.submissions": ("Submission",),
    ".think": ("Think",),
    ".tools.ask": ("REPORT", "RERUN"),
    ".tools.tool": ("Tool", "ToolContext", "client_tool", "tool"),
    ".turn.convert": ("prune_tool_calls",),
    ".hooks.values": (
        "Allow",
        "Block",
        "ChatErrorContext",
        "ChatResponse",
        "ChunkContext",
        "PendingCall",
        "StepConfig",
        "StepContext",
        "StepResult",
        "Substitute",
        "Timeouts",
        "ToolCall",
        "ToolOutcome",
        "TurnConfig",
        "TurnContext",
        "TurnResult",
        "has_tool_call",
        "step_count_is",
    ),
    ".turn.overflow": ("ContextOverflow", "Proactive"),
    ".door.concurrency": ("Debounce",),
    ".door.chat_stream": ("ChatStream",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load what `__all__` names when it is asked for."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name], __name__), name)
    return value


def __dir__() -> list[str]:
    """What there is to import."""
    return sorted([*globals(), *__all__])
