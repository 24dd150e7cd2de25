"""Extensions: code with declared rights that adds tools and hooks to an agent, also written by a model.

from everthink.extensions import Extension, Permissions
"""

from ..facades import help_from
from .manager import ExtensionManager
from .port import ExtensionHost, ExtensionStorage, LoadedExtension
from .tools import create_extension_tools
from .values import (
    Approval,
    ContextBlockInfo,
    ContextPermissions,
    Extension,
    ExtensionInfo,
    ExtensionRequest,
    Manifest,
    Permissions,
    Refuse,
    SessionPermissions,
    StoredExtension,
)

__all__ = [
    "Approval",
    "ContextBlockInfo",
    "ContextPermissions",
    "Extension",
    "ExtensionHost",
    "ExtensionInfo",
    "ExtensionManager",
    "ExtensionRequest",
    "ExtensionStorage",
    "LoadedExtension",
    "Manifest",
    "Permissions",
    "Refuse",
    "SessionPermissions",
    "StoredExtension",
    "create_extension_tools",
]

help_from(__name__)
