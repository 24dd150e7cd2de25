"""What the first lines of modules say about other modules: they name what is there."""

from __future__ import annotations

import ast
import re

import pytest

from .source import PACKAGE, Module, modules

ROOMS = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
LISTS = [module for module in modules() if module.short in ("sqlite", "postgres")]
"""Rooms whose first lines list their files."""
METHODS = {("server", "discover"), ("tools", "call"), ("tools", "list")}
"""What MCP calls its methods; they only look like modules."""


def opening(module: Module) -> str:
    return ast.get_docstring(module.tree) or ""


def is_there(room: str, name: str) -> bool:
    return (PACKAGE / room / f"{name}.py").exists() or (PACKAGE / room / name).is_dir()


def test_modules_that_are_named_with_their_room_are_there() -> None:
    named = {
        f"{module.place}: {room}/{name}"
        for module in modules()
        for room, name in re.findall(r"\b(\w+)/(\w+)\b", opening(module))
        if room in ROOMS and (room, name) not in METHODS and not is_there(room, name)
    }
    assert named == set()


@pytest.mark.parametrize("room", LISTS, ids=lambda room: room.short)
def test_a_room_that_lists_its_files_lists_all_but_the_store(room: Module) -> None:
    listed = re.findall(r"^(\w+)\.py ", opening(room), re.M)
    files = {path.stem for path in room.path.parent.glob("*.py")} - {"__init__", "store"}
    assert sorted(listed) == sorted(files)
