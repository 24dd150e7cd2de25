"""Tools with which a model works in files. Every agent has them; these are for storage of your own.

from everthink.file_tools import create_workspace_tools
"""

from ..facades import help_from
from .bash import BashOptions
from .operations import (
    BashOperations,
    DeleteOperations,
    EditOperations,
    FindOperations,
    GrepOperations,
    ListOperations,
    ReadOperations,
    WriteOperations,
)
from .tools import (
    create_bash_tool,
    create_delete_tool,
    create_edit_tool,
    create_find_tool,
    create_grep_tool,
    create_list_tool,
    create_read_tool,
    create_workspace_tools,
    create_write_tool,
)

__all__ = [
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
]

help_from(__name__)
