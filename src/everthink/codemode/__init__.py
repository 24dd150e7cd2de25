"""Code that models write, and that calls the agent's tools.

from everthink.codemode import create_execute_tool
"""

from ..facades import help_from
from .runs import Executions, Made, Past, Pending
from .tool import create_execute_tool

__all__ = ["Executions", "Made", "Past", "Pending", "create_execute_tool"]

help_from(__name__)
