"""Tools with which a model reads and uses pages of the web, through a browser that reaches nothing private.

from everthink.browser import create_browser_tools
"""

from ..facades import help_from
from .browsers import Browsers
from .tools import create_browser_tools

__all__ = ["Browsers", "create_browser_tools"]

help_from(__name__)
