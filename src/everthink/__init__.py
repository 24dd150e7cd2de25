"""everthink: chat agents that do not lose their thread.

from everthink import App, Think, tool

What nearly every agent names is here. The rest is beside it, by theme: `everthink.hooks`, `chat`, `memory`,
`workspace`, `file_tools`, `recovery`, `fibers`, `timers`, `mcp`, `children`, `framework`,
`server`, `errors`, `client`, `observe`, `testing`.
"""

from typing import TYPE_CHECKING, Never

from .agent import Agent
from .app.app import App
from .children.tool import agent_tool
from .door.submission import Submission
from .errors import AgentError, ToolError
from .hooks.values import Allow, Block, StepConfig, Substitute, TurnConfig, TurnResult
from .messages import UNSET, Message
from .runtime.rpc import exposed
from .schedules.retry import Retry
from .schedules.task import ScheduledTask
from .think import Think
from .tools.tool import Tool, ToolContext, client_tool, tool

__all__ = [
    "UNSET",
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
    "agent_tool",
    "client_tool",
    "exposed",
    "tool",
]


if not TYPE_CHECKING:  # a type checker shall go on telling what is not here

    def __getattr__(name: str) -> Never:
        """Say where `name` is, to whoever looks for it here."""
        from .facades import missing

        raise missing(name)
