"""The façades, and which of them has a name that somebody looks for in `everthink` itself, or in another.

    from everthink import ChatRecovery       -->  ImportError: … It is in everthink.recovery: …
    from everthink.hooks import ChatRecovery -->  the same

Computed from what the façades export, so a new name need not be told here, after a look in vain.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from typing import Never

__all__ = ["FACADES", "help_from", "home_of", "missing"]

FACADES = (
    "hooks",
    "chat",
    "memory",
    "workspace",
    "file_tools",
    "codemode",
    "browser",
    "recovery",
    "fibers",
    "timers",
    "mcp",
    "skills",
    "extensions",
    "children",
    "messengers",
    "framework",
    "server",
    "errors",
    "client",
    "observe",
    "testing",
)
"""The modules that users import from by theme."""


_RENAMED = {"callable": "from everthink import exposed"}
"""What Think (JS) calls otherwise, where Python has another meaning for the word."""


_BESIDE = {
    "Endpoint": "everthink.testing.served",
    "Listening": "everthink.testing.in_process_server",
    "Node": "everthink.testing.node",
    "NodeFailed": "everthink.testing.node",
}
"""What tests use and `everthink.testing` does not load: it serves, or starts processes."""


def help_from(facade: str) -> None:
    """Let this façade tell where a name is that it does not have. Type checkers tell it themselves."""
    vars(sys.modules[facade])["__getattr__"] = partial(_tell, facade)


def _tell(facade: str, name: str) -> Never:
    raise missing(name, facade)


def missing(name: str, facade: str = "everthink") -> Exception:
    """What to raise for a name that a façade does not have.

    An `ImportError` when another has it: of an `AttributeError`, `from everthink import …` shows no words.
    """
    if name in _RENAMED:
        return ImportError(f"{facade} has no {name!r}. Write `{_RENAMED[name]}`.", name=facade)
    if (home := home_of(name, facade)) is None:
        return AttributeError(f"module {facade!r} has no attribute {name!r}")
    return ImportError(
        f"{facade} has no {name!r}. It is in {home}: write `from {home} import {name}`.", name=facade
    )


def home_of(name: str, facade: str = "everthink") -> str | None:
    """Where `name` is imported from. None for modules, and for what Python itself asks every module for."""
    if name.startswith("_") or _is_module(facade, name):
        return None
    homes = ("everthink", *(f"everthink.{one}" for one in FACADES))
    found = (home for home in homes if home != facade and name in import_module(home).__all__)
    return next(found, _BESIDE.get(name))


def _is_module(facade: str, name: str) -> bool:
    from importlib.util import find_spec  # after a look in vain only

    return hasattr(sys.modules[facade], "__path__") and find_spec(f"{facade}.{name}") is not None
