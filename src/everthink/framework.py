"""What a project of agents goes by: files in folders, and agents without a class statement.

from everthink.framework import agent, discover
"""

from .app.declarative import agent
from .app.discovery import Discovered, discover, find_agents
from .facades import help_from

__all__ = ["Discovered", "agent", "discover", "find_agents"]

help_from(__name__)
