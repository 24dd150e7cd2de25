"""Machines, sandboxes, browsers, sources of skills and tools say at once what they cannot be made of.

One text for a list is its letters, and "no" is true: where an option is annotated as a list of texts, as a
yes or no, or as a number, nothing else passes for one.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from everthink import browser, codemode, file_tools, skills
from everthink.calling import awaited
from everthink.errors import InvalidSettings
from everthink.guard.rules import Rules
from everthink.machines.bubblewrap import Bubblewrap
from everthink.machines.docker import Docker
from everthink.machines.locked import Locked
from everthink.machines.sandbox import MachineSandbox
from everthink.machines.strongest import strongest
from everthink.monty.sandbox import MontySandbox
from everthink.sandbox import port
from everthink.sandbox.bash import BashSandbox
from everthink.sandbox.javascript import JavaScriptSandbox

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Made:
    """Something that users make, with what it cannot be made without."""

    make: Callable[..., Any]
    needs: dict[str, Any] = field(default_factory=dict[str, Any])
    leaves: frozenset[str] = frozenset()
    """Options that take more than their annotation says."""


MADE = {
    one.make.__name__: one
    for one in (
        Made(Bubblewrap),
        Made(Locked),
        Made(Docker),
        Made(strongest),
        Made(MachineSandbox, {"machine": Locked()}),
        Made(BashSandbox),
        Made(JavaScriptSandbox),
        Made(MontySandbox),
        Made(port.Limits),
        Made(port.Job, {"language": "bash", "source": ""}, frozenset({"now"})),  # any moment
        Made(Rules),
        Made(browser.Browsers),
        Made(browser.create_browser_tools),
        Made(codemode.create_execute_tool),
        Made(file_tools.BashOptions),
        Made(file_tools.create_bash_tool),
        Made(file_tools.create_workspace_tools),
        Made(skills.Bounds),
        Made(skills.SkillRegistry, {"sources": []}),
        Made(skills.from_directory, {"root": "skills"}),
        Made(skills.from_index, {"url": "https://example.com"}),
        Made(skills.from_manifest, {"id": "own", "skills": []}),
        Made(skills.from_package, {"package": "everthink"}),
        Made(skills.from_workspace),
        Made(skills.install, {"source": b"", "into": "/nowhere"}),
        Made(skills.object_store, {"store": object()}),
        Made(skills.runner),
    )
}

OURS = {
    *("Diagnostic", "Executions", "Installed", "Made", "Past", "Pending", "Resource", "ResourceInfo"),
    *("Runner", "ScriptRequest", "Skill", "SkillInfo", "activate", "view"),
}
"""What is given to users, or asked for, and not made by them."""


def members(hint: Any) -> Iterator[Any]:
    """The types of a union, or the one."""
    if get_origin(hint) in (Union, types.UnionType):
        for one in get_args(hint):
            yield from members(one)
    else:
        yield hint


def is_texts(hint: Any) -> bool:
    if get_origin(hint) not in (Sequence, Iterable, Collection, AbstractSet, list, tuple, set, frozenset):
        return False
    return all(
        one is str or get_origin(one) in (Literal, PathLike) or one is Ellipsis
        for inner in get_args(hint)
        for one in members(inner)
    )


class _Names(dict[str, Any]):
    """Names of a module; those that it imports for its types alone are anything."""

    def __missing__(self, name: str) -> Any:
        return Any


def options(kind: Callable[[Any], bool]) -> list[tuple[str, str]]:
    """The options that are annotated so: of what, and which."""
    found: list[tuple[str, str]] = []
    for name, one in MADE.items():
        call = one.make.__init__ if inspect.isclass(one.make) else one.make
        names = _Names(vars(builtins) | vars(inspect.getmodule(one.make) or builtins))
        hints = get_type_hints(call, globalns=names, localns=names)
        found += [
            (name, option)
            for option in inspect.signature(one.make).parameters
            if option not in one.leaves and any(map(kind, members(hints[option])))
        ]
    return found


async def refused(name: str, option: str, value: Any) -> None:
    one = MADE[name]
    with pytest.raises(InvalidSettings, match=option):
        await awaited(one.make(**{**one.needs, option: value}))


TEXTS = options(is_texts)
YES_NO = options(lambda hint: hint is bool)
NUMBERS = options(lambda hint: hint in (int, float))


@pytest.mark.parametrize(("name", "option"), TEXTS)
async def test_one_text_is_no_list_of_texts(name: str, option: str) -> None:
    await refused(name, option, "/usr")


@pytest.mark.parametrize(("name", "option"), TEXTS)
async def test_a_number_is_no_text(name: str, option: str) -> None:
    await refused(name, option, [3])


@pytest.mark.parametrize(("name", "option"), YES_NO)
async def test_a_text_is_neither_yes_nor_no(name: str, option: str) -> None:
    await refused(name, option, "no")


@pytest.mark.parametrize(("name", "option"), NUMBERS)
@pytest.mark.parametrize("value", ["2", -1, True])
async def test_a_bound_is_a_number_and_none_below_zero(name: str, option: str, value: Any) -> None:
    await refused(name, option, value)


def test_the_options_that_are_meant_are_found() -> None:
    assert {("Bubblewrap", "read_only"), ("Job", "args"), ("object_store", "skills")} <= set(TEXTS)
    assert {("create_browser_tools", "execute"), ("install", "replace")} <= set(YES_NO)
    assert {("MachineSandbox", "most"), ("create_execute_tool", "timeout")} <= set(NUMBERS)


@pytest.mark.parametrize("module", [browser, codemode, file_tools, skills])
def test_everything_that_users_make_with_options_is_looked_at(module: types.ModuleType) -> None:
    for name in module.__all__:
        made = getattr(module, name)
        if name in MADE or name in OURS or getattr(made, "_is_protocol", False):
            continue
        assert len(inspect.signature(made).parameters) <= 1, f"{name} has options: name it in MADE"
