"""Whose files an agent works in: its own, or with `ParentWorkspace` those of the one above it.

address, classes --whose_workspace--> the owner's id, and what its class says that its workspace is
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import getattr_static
from typing import Any

from ..address import Address
from ..own import OWN_WORKSPACE
from ..workspace.workspace import ParentWorkspace, Workspace

__all__ = ["whose_workspace"]


def whose_workspace(address: Address, classes: Mapping[str, type[Any]]) -> tuple[str, Any]:
    """Who owns the files that an agent works in, and what they are: a definition, or an object of users."""
    named = _named(address, classes)
    while isinstance(named, ParentWorkspace) and address.parent is not None:
        address = address.parent
        named = _named(address, classes)
    if named is OWN_WORKSPACE or isinstance(named, ParentWorkspace):
        return address.id, Workspace()
    return address.id, named


def _named(address: Address, classes: Mapping[str, type[Any]]) -> Any:
    cls = classes.get(address.cls_name)
    return OWN_WORKSPACE if cls is None else getattr_static(cls, "workspace", OWN_WORKSPACE)
