"""What hooks are given to read: values that say what to do instead when somebody changes them.

    turn.system = "..."       --to_read-->   FrozenInstanceError: return TurnConfig(system=…)
    turn.messages.clear()     --ReadList-->  the same, with messages=…

A change that nobody hears of would be lost without a word. A copy (`list(turn.messages)`) is anybody's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, TypeVar

__all__ = ["ReadDict", "ReadList", "to_read"]

T = TypeVar("T")


def to_read(instead: str) -> Callable[[type[T]], type[T]]:
    """Decorates a frozen dataclass: whoever assigns to a field is told what to do `instead`.

    `{name}` in it is the field.
    """

    def decorate(cls: type[T]) -> type[T]:
        def refuse(self: T, name: str, *_: Any) -> None:
            raise _refused(f"{cls.__name__}.{name}", instead.format(name=name))

        cls.__setattr__ = refuse
        cls.__delattr__ = refuse
        return cls

    return decorate


def _refused(what: str, instead: str) -> FrozenInstanceError:
    return FrozenInstanceError(f"{what} is there to be read; nothing was changed. {instead}")


class ReadList(list[T]):
    """A list that a hook reads. Its copies are plain lists."""

    __slots__ = ("_instead", "_what")

    def __init__(self, values: list[T], what: str, instead: str) -> None:
        super().__init__(values)
        self._what, self._instead = what, instead

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (list(self),)

    def copy(self) -> list[T]:
        """A plain list of the same."""
        return list(self)


class ReadDict(dict[str, T]):
    """A dict that a hook reads. Its copies are plain dicts."""

    __slots__ = ("_instead", "_what")

    def __init__(self, values: dict[str, T], what: str, instead: str) -> None:
        super().__init__(values)
        self._what, self._instead = what, instead

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)

    def copy(self) -> dict[str, T]:
        """A plain dict of the same."""
        return dict(self)


def _refuse(self: Any, *_: Any, **__: Any) -> Any:
    raise _refused(self._what, self._instead)


_CHANGES = {
    ReadList: ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "__imul__"),
    ReadDict: ("pop", "popitem", "setdefault", "update", "clear", "__ior__"),
}
for _kind, _names in _CHANGES.items():
    for _name in (*_names, "__setitem__", "__delitem__", "__iadd__"):
        setattr(_kind, _name, _refuse)
