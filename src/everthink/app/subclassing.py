"""The body of a subclass of `App`: what in it has an effect, and what has none.

    class Site(App): def authenticate(self, connection): ...   --> asked, as App(authenticate=…) is
    class Site(App): grace = 99                                --> InvalidSettings: Site(…, grace=…)

Pure. A check that nobody asks leaves the app open, so a name that was meant otherwise is refused.
"""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import InvalidSettings
from ..settings import is_ours, is_read, nearest, snake
from ..surface import check_method
from .options import GIVEN, OPTIONS, READ, STORE_OPTIONS

__all__ = ["check_app_class"]

METHODS = {**GIVEN, "on_other_request": ("request",), "resolve_model": ("value",)}
"""What a subclass may fill in, and what it is given."""
_OTHERWISE = {
    "auth": "authenticate",
    "on_connect": "on_before_connect",
    "on_request": "on_other_request",
}
_NAMES = (*OPTIONS, *READ, *(name for options in STORE_OPTIONS.values() for name in options))


def check_app_class(cls: type, base: type) -> None:
    """Raise `InvalidSettings` about what the body of a subclass of `base`, the `App`, would do in vain."""
    if is_ours(cls):
        return
    for name, value in vars(cls).items():
        if name in METHODS:
            check_method(cls, name, value, METHODS[name])
        elif name in _NAMES and not is_read(name, cls):
            raise InvalidSettings(
                f"{cls.__name__}.{name} has no effect: it is an option of the app.",
                next_step=f"Give it where the app is made: {cls.__name__}(…, {name}=…).",
            )
        elif not name.startswith("_") and not hasattr(base, name) and not is_read(name, cls):
            _check_slip(cls, name, value)


def _check_slip(cls: type, name: str, value: Any) -> None:
    is_method = inspect.isroutine(value)
    known = METHODS if is_method else _NAMES
    meant = _OTHERWISE.get(name) if is_method else None
    meant = meant or nearest(snake(name), known, like=0.85)
    if meant is not None:
        raise InvalidSettings(
            f"{cls.__name__}.{name} is nothing that App asks.",
            next_step=f"Did you mean {meant!r}? Otherwise give it another name.",
        )
