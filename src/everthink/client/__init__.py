"""Talk to an agent of a running server from a program: say, stream, resume, answer tools, call methods.

from everthink.client import connect
"""

from ..facades import help_from
from .conversation import Conversation, connect
from .questions import ToolQuestion
from .reply import Reply
from .runs import ChildRun, RunEvent

__all__ = ["ChildRun", "Conversation", "Reply", "RunEvent", "ToolQuestion", "connect"]

help_from(__name__)
