"""What hooks are given, and what they may return besides the names of `everthink` itself.

from everthink.hooks import ToolCall, TurnContext, has_tool_call
"""

from ..facades import help_from
from ..identity import Approver
from .values import (
    CalledTool,
    ChatErrorContext,
    ChatResponse,
    ChunkContext,
    InvalidCall,
    StepContext,
    StepResult,
    Timeouts,
    ToolCall,
    ToolOutcome,
    ToolResult,
    TurnContext,
    has_tool_call,
    step_count_is,
)

__all__ = [
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
]

help_from(__name__)
