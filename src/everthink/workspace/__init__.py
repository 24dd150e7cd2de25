"""The files of an agent: where they are, what may be done with them, and what became of them.

from everthink.workspace import Workspace, DiskFiles
"""

from ..facades import help_from
from .limits import WorkspaceLimits
from .memory import MemoryFiles
from .port import Change, Copy, Edit, Entry, Files, Link, MakeFolder, Move, Put, Remove
from .workspace import Workspace, WorkspaceInfo

__all__ = [
    "Change",
    "Copy",
    "Edit",
    "Entry",
    "Files",
    "Link",
    "MakeFolder",
    "MemoryFiles",
    "Move",
    "Put",
    "Remove",
    "Workspace",
    "WorkspaceInfo",
    "WorkspaceLimits",
]

help_from(__name__)
