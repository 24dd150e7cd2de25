"""everthink: chat agents that do not lose their thread."""

from .abort import AbortController, AbortSignal
from .agent import Agent
from .errors import AgentError, ModelError, TurnFailed
from .messages import Message
from .models.classify import default_context_overflow_classifier
from .server.app import App, Handle
from .session.tree import UNSET, Session
from .submissions import Submission
from .think import Think
from .tools.tool import Tool, ToolContext, client_tool, tool
from .turn.convert import prune_tool_calls
from .turn.hooks import (
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
from .turn.overlap import Debounce
from .turn.streamed import ChatStream

__all__ = [
    "UNSET",
    "AbortController",
    "AbortSignal",
    "Agent",
    "AgentError",
    "Allow",
    "App",
    "Block",
    "ChatErrorContext",
    "ChatResponse",
    "ChatStream",
    "ChunkContext",
    "Debounce",
    "Handle",
    "Message",
    "ModelError",
    "PendingCall",
    "Session",
    "StepConfig",
    "StepContext",
    "StepResult",
    "Submission",
    "Substitute",
    "Think",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolOutcome",
    "TurnConfig",
    "TurnContext",
    "TurnFailed",
    "TurnResult",
    "client_tool",
    "default_context_overflow_classifier",
    "has_tool_call",
    "prune_tool_calls",
    "step_count_is",
    "tool",
]
