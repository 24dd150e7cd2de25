"""What has no effect in a tool as it is written: a body that never runs, help for what it does not take.

@tool --> tool.py --does_something, tell_unknown_help--> an error, where it is written
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ..settings import nearest
from .signature import Signature, definition_of

__all__ = ["does_something", "tell_unknown_help"]

log = logging.getLogger("everthink.tools")

_DOES = ("CALL", "STORE", "LOAD_FAST", "LOAD_ATTR", "LOAD_METHOD", "YIELD_VALUE", "SEND", "BINARY", "IMPORT")
_ALSO_IN_NOTHING = ("CALL_INTRINSIC",)
"""What the compiler itself adds to a coroutine."""


def does_something(function: Callable[..., Any]) -> bool:
    """True when a function does more than return a constant, or raise."""
    import dis  # for tools of the browser only

    code = getattr(function, "__code__", None)
    if code is None:
        return False
    names = [one.opname for one in dis.get_instructions(code)]
    if "RAISE_VARARGS" in names:  # `raise NotImplementedError`, with words or without
        return False
    return any(name.startswith(_DOES) and not name.startswith(_ALSO_IN_NOTHING) for name in names)


def tell_unknown_help(signature: Signature, help_: Mapping[str, str]) -> None:
    """Warn about an argument that the docstring describes and the function does not take."""
    if signature.extra is not None:
        return
    known = [*(parameter.name for parameter in signature.parameters), *signature.reserved]
    for name in help_:
        if name not in known:
            near = nearest(name, known)
            hint = f" Did you mean {near!r}?" if near else ""
            log.warning(
                "%s: its docstring describes %r, which is no parameter; the model is told nothing of it.%s",
                definition_of(signature.fn),
                name,
                hint,
            )
