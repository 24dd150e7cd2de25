"""Which agent a method of `App` is about: a class and a name, with those below it, or a handle.

    app.erase(Assistant, "ada")    app.erase(Assistant, "ada", (Researcher, "notes"))    app.erase(handle)
                       |---------------------------|---------------------------------------|--> Address

A child is named as `build_path` names it: nobody has to start an agent in order to say which one is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..address import Address, canonical, kebab
from ..errors import AgentError
from ..settings import shown
from .handle import Handle, address_in

if TYPE_CHECKING:
    from ..runtime.directory import Directory

__all__ = ["address_of", "check_class"]


def check_class(cls: Any, method: str, known: Iterable[str]) -> None:
    """Raise in words when something else was given in the place of an agent class."""
    if isinstance(cls, type):
        return  # whether it is one of ours is seen when it is reached
    classes = list(known)
    names = [name for name in classes if cls in (name, kebab(name)) or name == type(cls).__name__]
    example = next(iter([*names, *classes, "Assistant"]))
    raise AgentError(
        f"app.{method}() is given {shown(cls)}, in the place of an agent class.",
        next_step=f'Write app.{method}({example}, "name"): the class itself, then the name of the agent.',
    )


def address_of(
    directory: Directory, method: str, agent: Any, name: Any, below: Sequence[Any], known: Iterable[str]
) -> Address:
    """The address of the agent that a method is given. Raises in words when there can be none."""
    if isinstance(agent, Handle):
        if name is not None or below:
            raise AgentError(
                f"app.{method}() is given {agent!r}, which says who is meant, and a name besides.",
                kept="Nothing was done.",
                next_step=f"Write app.{method}(handle), or the class and the name.",
            )
        return address_in(agent, directory)
    check_class(agent, method, known)
    if name is None:
        raise AgentError(
            f"app.{method}({agent.__name__}) is given no name.",
            kept="Nothing was done.",
            next_step=f'Write app.{method}({agent.__name__}, "name").',
        )
    address = directory.address(agent, canonical(name))
    for child in below:
        cls, called = _child(method, child)
        _check_known(directory, method, cls)
        address = directory.address(cls, canonical(called), below=address)
    return address


def _child(method: str, given: Any) -> tuple[type[Any], Any]:
    pair = cast("tuple[Any, ...]", given) if isinstance(given, tuple) else ()
    if len(pair) == 2 and isinstance(pair[0], type):
        return pair[0], pair[1]
    raise AgentError(
        f"app.{method}() is given {shown(given)}, in the place of a child.",
        kept="Nothing was done.",
        next_step=f'Write a pair: app.{method}(Assistant, "room-1", (Researcher, "notes")).',
    )


def _check_known(directory: Directory, method: str, cls: type[Any]) -> None:
    if directory.classes.get(cls.__name__) is cls:
        return
    raise AgentError(
        f"app.{method}() is given {cls.__name__}, of which this app has no children"
        f" (it has: {', '.join(sorted(directory.classes))}).",
        kept="Nothing was done.",
        next_step=f"Name the class in the one of its parent, sub_agents = ({cls.__name__},), or in App(…).",
    )
