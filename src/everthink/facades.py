"""The façades, and which of them has a name that somebody looks for in `everthink` itself.

    from everthink import ChatRecovery  -->  ImportError: … It is in everthink.recovery: …

Computed from what the façades export, so a new name need not be told here. Loaded after a look in vain.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

__all__ = ["FACADES", "home_of", "missing"]

FACADES = (
    "hooks",
    "chat",
    "memory",
    "recovery",
    "fibers",
    "timers",
    "mcp",
    "server",
    "errors",
    "client",
    "observe",
    "testing",
)
"""The modules that users import from by theme."""


_RENAMED = {"callable": "from everthink import exposed"}
"""What Think (JS) calls otherwise, where Python has another meaning for the word."""


def missing(name: str) -> Exception:
    """What to raise for a name that `everthink` does not have.

    An `ImportError` when a façade has it: of an `AttributeError`, `from everthink import …` shows no words.
    """
    if name in _RENAMED:
        return ImportError(f"everthink has no {name!r}. Write `{_RENAMED[name]}`.", name="everthink")
    if (home := home_of(name)) is None:
        return AttributeError(f"module 'everthink' has no attribute {name!r}")
    return ImportError(
        f"everthink has no {name!r}. It is in {home}: write `from {home} import {name}`.", name="everthink"
    )


def home_of(name: str) -> str | None:
    """The façade that exports `name`. None for modules, and for what Python itself asks every module for."""
    if name.startswith("_") or find_spec(f"everthink.{name}") is not None:
        return None
    homes = (f"everthink.{facade}" for facade in FACADES)
    return next((home for home in homes if name in import_module(home).__all__), None)
