"""The files of an agent: where they are, what may be done with them, and what became of them.

from everthink.workspace import Workspace, DiskFiles
"""

from ..facades import help_from
from .disk import DiskFiles
from .grep import Found, Hits
from .memory import MemoryFiles
from .mounted import MountedFiles, ReadOnly
from .port import Change, Copy, Edit, Entry, Files, Link, MakeFolder, Move, Put, Remove, WorkspaceLimits
from .workspace import ParentWorkspace, Workspace, WorkspaceInfo

__all__ = [
    "Change",
    "Copy",
    "DiskFiles",
    "Edit",
    "Entry",
    "Files",
    "Found",
    "Hits",
    "Link",
    "MakeFolder",
    "MemoryFiles",
    "MountedFiles",
    "Move",
    "ParentWorkspace",
    "Put",
    "ReadOnly",
    "Remove",
    "Workspace",
    "WorkspaceInfo",
    "WorkspaceLimits",
]

help_from(__name__)
