"""The functions that code can call: tools under names that a language takes, with their stubs.

tools of the turn, state.* --Function--> Job.names (stubs, to check code against), search, describe
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..errors import ToolDefinitionError
from ..sandbox.port import HostRefused
from ..tools.tool import Tool
from .stubs import python_stub, typescript_stub

__all__ = ["Function", "functions_of", "identifier"]

_RESERVED = frozenset(keyword.kwlist) | {
    "delete",
    "new",
    "function",
    "var",
    "let",
    "const",
    "this",
    "typeof",
    "void",
}


@dataclass(frozen=True, slots=True)
class Function:
    """One of them."""

    module: str
    name: str
    tool: Tool

    @property
    def full_name(self) -> str:
        """As code writes it."""
        return f"{self.module}.{self.name}"

    def stub(self, language: str) -> str:
        """Its declaration."""
        make = python_stub if language == "python" else typescript_stub
        return make(self.name, self.tool.input_schema, self.tool.description)

    def input(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The input of a call: arguments by place and by name, or one object."""
        schema = self.tool.input_schema
        names = list(cast("dict[str, Any]", schema.get("properties", {})))
        if len(args) == 1 and not kwargs and isinstance(args[0], dict):
            whole = cast("dict[str, Any]", args[0])
            if not self._takes_object(names) or self._is_input(whole, names):
                return dict(whole)
        if len(args) > len(names):
            raise HostRefused(f"{self.full_name}() takes {len(names)} arguments, and not {len(args)}.")
        given = dict(zip(names, args, strict=False))
        if twice := given.keys() & kwargs.keys():
            raise HostRefused(f"{self.full_name}() was given {', '.join(sorted(twice))} twice.")
        return given | dict(kwargs)

    def _is_input(self, given: Mapping[str, Any], names: Sequence[str]) -> bool:
        """True when an object names all parameters, and is not just what the first of them takes."""
        required = cast("list[str]", self.tool.input_schema.get("required") or ())
        return bool(given) and {*required} <= given.keys() <= {*names}

    def _takes_object(self, names: list[str]) -> bool:
        if not names:
            return False
        first = self.tool.input_schema["properties"][names[0]]
        return isinstance(first, dict) and cast("dict[str, Any]", first).get("type") == "object"


def identifier(name: str) -> str:
    """A name that Python and JavaScript take."""
    made = re.sub(r"[^A-Za-z0-9_$]", "", re.sub(r"[-.\s/:]", "_", name)).replace("$", "_")
    if made[:1].isdigit() or made[:1] in ("_", ""):
        made = f"tool_{made.lstrip('_')}".rstrip(
            "_"
        )  # what begins with _ cannot be reached in a module of Python
    return f"{made}_" if made in _RESERVED else made


def functions_of(module: str, tools: Iterable[Tool]) -> dict[str, Function]:
    """The functions of a module, by full name. Tools without a body are left out."""
    found: dict[str, Function] = {}
    for tool in tools:
        if not tool.has_body:
            continue
        function = Function(module, identifier(tool.name), tool)
        other = found.get(function.full_name)
        if other is not None:
            raise ToolDefinitionError(
                f"The tools {other.tool.name!r} and {tool.name!r}"
                f" would both be {function.full_name} in code.",
                next_step="Give one of them another name with @tool(name=...).",
            )
        found[function.full_name] = function
    return found
