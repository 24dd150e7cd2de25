"""The public surface. Growing it is a visible change in this file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from importlib import import_module

import pytest

import everthink
from everthink import facades

from .source import modules

DEFINING = {"errors", "client", "observe", "testing"}
"""Façades that our own modules import, too: the errors are defined there, the others are whole rooms."""

EXPORTS: list[str] = [
    "Agent",
    "AgentError",
    "Allow",
    "App",
    "Block",
    "Message",
    "Retry",
    "ScheduledTask",
    "StepConfig",
    "Submission",
    "Substitute",
    "Think",
    "Tool",
    "ToolContext",
    "ToolError",
    "TurnConfig",
    "TurnResult",
    "UNSET",
    "agent_tool",
    "client_tool",
    "exposed",
    "tool",
]

# The façades, by module: what they offer besides the package itself.
FACADES: dict[str, list[str]] = {
    "children": [
        "AgentTool",
        "AgentToolProgress",
        "AgentToolResult",
        "AgentToolRun",
        "Detached",
        "InterruptedReason",
        "RunStatus",
        "SubAgent",
        "build_path",
        "parse_path",
    ],
    "chat": [
        "AbortController",
        "AbortSignal",
        "ChatStream",
        "Debounce",
        "PendingCall",
        "StreamCallback",
    ],
    "client": [
        "ChildRun",
        "Conversation",
        "Reply",
        "RunEvent",
        "ToolQuestion",
        "connect",
    ],
    "errors": [
        "AgentElsewhere",
        "AgentErased",
        "AgentError",
        "AgentNotInMemory",
        "AgentSetAside",
        "AnsweredBefore",
        "AuthorizationFailed",
        "BlockedAddress",
        "CallFailed",
        "CallbackRefused",
        "CommitInDoubt",
        "CommitRefused",
        "CompactionNotSetUp",
        "ContextRefused",
        "ContextUnavailable",
        "DiscoveryFailed",
        "ErrorKind",
        "ExtensionError",
        "FiberConflict",
        "FiberStopped",
        "InvalidCallback",
        "InvalidContext",
        "InvalidFiber",
        "InvalidMessage",
        "InvalidRetry",
        "InvalidSchedule",
        "InvalidScheduledTask",
        "InvalidSettings",
        "InvalidTurn",
        "LeaseLost",
        "MissingExtra",
        "MissingKey",
        "ModelError",
        "NeedsAuthorization",
        "NestedTurn",
        "NoMessages",
        "NoModel",
        "NoSuchChild",
        "NotConnected",
        "NotInFiber",
        "NotJson",
        "Problem",
        "RunConflict",
        "ScriptExhausted",
        "SecretsUnreadable",
        "SessionBusy",
        "SkillError",
        "StoreClosed",
        "StoreError",
        "StoreFull",
        "StoreLocked",
        "StorePooled",
        "StoreReadOnly",
        "StoreTooNew",
        "StoreUnavailable",
        "StoreUnreadable",
        "StreamCut",
        "StreamStalled",
        "StructuredOutputError",
        "SubmissionConflict",
        "TooDeep",
        "TooManyTurns",
        "ToolDefinitionError",
        "ToolError",
        "ToolInputError",
        "ToolInterrupted",
        "ToolOutputError",
        "ToolTimeout",
        "TurnFailed",
        "TurnGivenUp",
        "TurnInterrupted",
        "UNTOLD",
        "UnknownMessage",
        "UnknownModel",
        "UnknownSession",
        "Unreadable",
        "WorkspaceCode",
        "WorkspaceError",
        "is_elsewhere",
        "is_for_people",
    ],
    "extensions": [
        "Approval",
        "ContextBlockInfo",
        "ContextPermissions",
        "Extension",
        "ExtensionHost",
        "ExtensionInfo",
        "ExtensionManager",
        "ExtensionRequest",
        "ExtensionStorage",
        "InstalledExtension",
        "LoadedExtension",
        "Manifest",
        "Permissions",
        "Refuse",
        "SessionPermissions",
        "StoredExtension",
        "TrustedExtension",
        "create_extension_tools",
        "installed",
    ],
    "fibers": [
        "FiberAborted",
        "FiberCompleted",
        "FiberContext",
        "FiberFailed",
        "FiberInspection",
        "FiberInterrupted",
        "FiberRecovery",
        "FiberRecoveryContext",
    ],
    "codemode": ["Executions", "Made", "Past", "Pending", "create_execute_tool"],
    "browser": ["Browsers", "create_browser_tools"],
    "file_tools": [
        "BashOperations",
        "BashOptions",
        "DeleteOperations",
        "EditOperations",
        "FindOperations",
        "GrepOperations",
        "ListOperations",
        "ReadOperations",
        "WriteOperations",
        "create_bash_tool",
        "create_delete_tool",
        "create_edit_tool",
        "create_find_tool",
        "create_grep_tool",
        "create_list_tool",
        "create_read_tool",
        "create_workspace_tools",
        "create_write_tool",
    ],
    "framework": [
        "Discovered",
        "agent",
        "discover",
        "find_agents",
    ],
    "hooks": [
        "Approver",
        "CalledTool",
        "ChatErrorContext",
        "ChatResponse",
        "ChunkContext",
        "InvalidCall",
        "StepContext",
        "StepResult",
        "Timeouts",
        "ToolCall",
        "ToolOutcome",
        "ToolResult",
        "TurnContext",
        "has_tool_call",
        "step_count_is",
    ],
    "mcp": [
        "HttpServer",
        "LocalServer",
        "McpServer",
        "StdioServer",
    ],
    "memory": [
        "CompactContext",
        "Compaction",
        "ContextBlock",
        "ContextOverflow",
        "ContextProvider",
        "DirectoryProvider",
        "MediaEviction",
        "ObjectStoreProvider",
        "Overlay",
        "Proactive",
        "RecentHistory",
        "SearchHit",
        "SearchableEntries",
        "Session",
        "SessionInfo",
        "Sessions",
        "Shortening",
        "StoredBlock",
        "StoredEntries",
        "TokenCount",
        "create_compact_function",
        "default_context_overflow_classifier",
        "model_summarizer",
        "prune_tool_calls",
    ],
    "messengers": [
        "Action",
        "Arrived",
        "Attachment",
        "Author",
        "Button",
        "Capabilities",
        "DeliveryError",
        "DeliveryPolicy",
        "Draft",
        "Incoming",
        "Messenger",
        "MessengerContext",
        "MessengerDefinition",
        "MessengerEvent",
        "MessengerLimits",
        "Moved",
        "RateLimited",
        "Refused",
        "SubAgentConversation",
        "Target",
        "Thread",
        "Uncertain",
        "Unreachable",
        "WebhookReply",
        "define_messengers",
    ],
    "observe": [
        "Event",
        "EventBody",
        "EventBus",
        "Listener",
        "Unsubscribe",
        "event",
    ],
    "recovery": [
        "ChatRecovery",
        "ChatRecoveryContext",
        "Exhausted",
        "KeepRecovering",
        "REPORT",
        "RERUN",
        "RecoveryDecision",
        "Suspect",
    ],
    "server": [
        "Connection",
        "Granted",
        "Limits",
        "McpEndpoint",
        "StreamingResponse",
    ],
    "skills": [
        "Bounds",
        "Diagnostic",
        "Installed",
        "Resource",
        "ResourceInfo",
        "Runner",
        "ScriptRequest",
        "ScriptRunner",
        "Skill",
        "SkillInfo",
        "SkillRegistry",
        "SkillSource",
        "activate",
        "from_directory",
        "from_index",
        "from_manifest",
        "from_package",
        "from_workspace",
        "install",
        "object_store",
        "runner",
        "view",
    ],
    "testing": [
        "FailingCommit",
        "HeldRead",
        "ManualClock",
        "Play",
        "ScriptedModel",
        "Traffic",
        "WatchedStore",
        "Window",
        "Witness",
        "attaches",
        "calls",
        "calls_raw",
        "cites",
        "fails",
        "hangs",
        "opens",
        "overflows",
        "says",
        "thinks",
        "waits",
    ],
    "timers": [
        "Job",
        "Schedule",
        "TaskContext",
    ],
    "workspace": [
        "Change",
        "Copy",
        "DiskFiles",
        "Edit",
        "Entry",
        "Files",
        "Found",
        "Hits",
        "Link",
        "MakeFolder",
        "MemoryFiles",
        "MountedFiles",
        "Move",
        "ParentWorkspace",
        "Put",
        "ReadOnly",
        "Remove",
        "Workspace",
        "WorkspaceInfo",
        "WorkspaceLimits",
    ],
}


def exports(facade: str) -> list[str]:
    return sorted(import_module(f"everthink.{facade}").__all__)


def test_the_package_exports_exactly_this() -> None:
    assert sorted(everthink.__all__) == EXPORTS


@pytest.mark.parametrize("facade", FACADES)
def test_a_facade_exports_exactly_this(facade: str) -> None:
    assert exports(facade) == FACADES[facade]


@pytest.mark.parametrize("names", [EXPORTS, *FACADES.values()])
def test_a_list_is_sorted_and_free_of_doubles(names: list[str]) -> None:
    assert sorted(set(names)) == names


@pytest.mark.parametrize("facade", ["", *FACADES])
def test_every_export_exists(facade: str) -> None:
    module = import_module(f"everthink.{facade}".rstrip("."))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_a_name_is_imported_from_one_place() -> None:
    homes = Counter(name for names in [EXPORTS, *FACADES.values()] for name in names)
    twice = [name for name, count in homes.items() if count > 1]
    assert twice == ["AgentError", "ToolError"]  # which are where all errors are, too


def test_every_facade_is_looked_through_for_a_name() -> None:
    assert sorted(facades.FACADES) == sorted(FACADES)


@pytest.mark.parametrize(("name", "home"), [("ChatRecovery", "recovery"), ("says", "testing")])
def test_a_name_that_is_in_a_facade_is_told_with_its_module(name: str, home: str) -> None:
    words = f"It is in everthink.{home}: write `from everthink.{home} import {name}`."
    with pytest.raises(ImportError, match=re.escape(words)):
        exec(f"from everthink import {name}")
    with pytest.raises(ImportError, match=re.escape(words)):
        getattr(everthink, name)


@pytest.mark.parametrize(
    ("facade", "name", "home"),
    [
        ("hooks", "FiberContext", "everthink.fibers"),
        ("hooks", "TurnConfig", "everthink"),
        ("timers", "Retry", "everthink"),
        ("server", "App", "everthink"),
        ("memory", "ChatRecovery", "everthink.recovery"),
        ("testing", "Listening", "everthink.testing.in_process_server"),
        ("testing", "Node", "everthink.testing.node"),
    ],
)
def test_a_name_of_another_facade_is_told_with_its_module(facade: str, name: str, home: str) -> None:
    with pytest.raises(ImportError, match=re.escape(f"It is in {home}: write `from {home} import {name}`.")):
        exec(f"from everthink.{facade} import {name}")
    exec(f"from {home} import {name}")


@pytest.mark.parametrize(
    "facade", [one for one in FACADES if one != "errors"]
)  # which imports nothing of ours
def test_a_facade_helps_those_who_look_in_vain_and_knows_its_own_modules(facade: str) -> None:
    module = import_module(f"everthink.{facade}")
    with pytest.raises(
        ImportError, match=f"everthink.{facade} has no 'callable'. Write `from everthink import"
    ):
        _ = module.callable
    assert not hasattr(module, "Nowhere")
    assert not hasattr(module, "__wrapped__")


def test_a_name_that_is_nowhere_is_no_attribute() -> None:
    assert not hasattr(everthink, "ChatRecoverry")
    assert not hasattr(everthink, "__wrapped__")


@pytest.mark.slow
def test_a_module_is_imported_as_ever() -> None:
    script = "from everthink import chunks, memory; from everthink.hooks import values"
    script += "; print(chunks.__name__, memory.__name__, values.__name__)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "everthink.chunks everthink.memory everthink.hooks.values\n"


def test_our_own_modules_import_what_defines_a_name() -> None:
    """A façade that was imported from inside would load far more than the name, and soon itself."""
    facades = {f"everthink.{facade}" for facade in FACADES if facade not in DEFINING}
    wrong = [
        f"{module.place}:{imported.line} imports {imported.name}"
        for module in modules()
        for imported in module.imports()
        if imported.name in facades | {"everthink"}
    ]
    assert wrong == []
