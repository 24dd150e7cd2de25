"""The public surface. Growing it is a visible change in this file."""

from __future__ import annotations

import everthink

EXPORTS: list[str] = [
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
    "REPORT",
    "RERUN",
    "RecoveryDecision",
    "Retry",
    "Schedule",
    "ScheduledTask",
    "SearchHit",
    "SearchableEntries",
    "Session",
    "SessionInfo",
    "Sessions",
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
    "UNSET",
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


def test_the_package_exports_exactly_this() -> None:
    assert sorted(getattr(everthink, "__all__", [])) == EXPORTS


def test_the_list_is_sorted_and_free_of_doubles() -> None:
    assert sorted(set(EXPORTS)) == EXPORTS


def test_every_export_exists() -> None:
    assert [name for name in EXPORTS if not hasattr(everthink, name)] == []
