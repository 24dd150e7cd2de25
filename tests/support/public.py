"""What users import: every name of the package and of its façades, with what it stands for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from everthink.facades import FACADES

__all__ = ["MODULES", "PUBLIC"]

MODULES = ("everthink", *(f"everthink.{facade}" for facade in FACADES))
PUBLIC: dict[str, Any] = {
    name: getattr(module, name) for module in map(import_module, MODULES) for name in module.__all__
}
