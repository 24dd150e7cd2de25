"""Extensions: code with declared rights that adds tools and hooks to an agent, also written by a model.

from everthink.extensions import Extension, Permissions
"""

from ..facades import help_from
from .port import ExtensionHost, ExtensionStorage, LoadedExtension
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
    "ExtensionRequest",
    "ExtensionStorage",
    "LoadedExtension",
    "Manifest",
    "Permissions",
    "Refuse",
    "SessionPermissions",
    "StoredExtension",
]

help_from(__name__)
