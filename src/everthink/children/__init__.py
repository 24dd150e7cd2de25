"""Agents that have agents: children, and children as tools. `agent_tool` itself is in `everthink`.

from everthink.children import AgentToolResult, build_path
"""

from ..facades import help_from
from .paths import build_path, parse_path
from .tool import AgentTool
from .values import (
    AgentToolProgress,
    AgentToolResult,
    AgentToolRun,
    Detached,
    InterruptedReason,
    RunStatus,
    SubAgent,
)

__all__ = [
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
]

help_from(__name__)
