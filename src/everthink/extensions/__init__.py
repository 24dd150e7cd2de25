"""Extensions: code with declared rights that adds tools and hooks to an agent, also written by a model.

from everthink.extensions import Extension, Permissions
"""

from ..facades import help_from
from .manager import ExtensionManager
from .packages import installed
from .port import ExtensionHost, ExtensionStorage, LoadedExtension
from .tools import create_extension_tools
from .trusted import TrustedExtension
from .values import (
    Approval,
    ContextBlockInfo,
    ContextPermissions,
    Extension,
    ExtensionInfo,
    ExtensionRequest,
    InstalledExtension,
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
    "InstalledExtension",
    "LoadedExtension",
    "Manifest",
    "Permissions",
    "Refuse",
    "SessionPermissions",
    "StoredExtension",
    "TrustedExtension",
    "create_extension_tools",
    "installed",
]

help_from(__name__)
