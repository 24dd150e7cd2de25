"""Gather tools: from a class, from `get_tools()`, from a browser.

    Think.__init_subclass__ --> collect_tools(cls)
    its agents              --> tools_of(cls)
    get_tools()             --> as_tools(value)
    a chat request          --> client_tools_from(list)

Each gives `name -> Tool` in the order of definition, with names that providers accept.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..errors import ToolDefinitionError
from ..surface import refuse_unknown
from .bounds import SchemaBounds
from .tool import Tool, client_tool, tool

__all__ = ["ToolSource", "as_tools", "check_client_tools", "client_tools_from", "collect_tools", "tools_of"]

log = logging.getLogger("everthink.tools")


@dataclass(frozen=True, slots=True)
class ToolSource:
    """One of the places that an agent's tools come from. What is said of them is in their `Origin`."""

    name: str
    get: Callable[[], Awaitable[Mapping[str, Tool]]]
    """Gives them, by name. Asked in every turn."""
    hidden: Callable[[Sequence[str]], None] | None = None
    """Told the names that another source has as well, whose tools are used."""


def collect_tools(cls: type, *, complete: bool = False) -> dict[str, Tool]:
    """The `@tool` methods of `cls` and its bases.

    Overriding a tool with a tool replaces it, with `None` removes it; anything else in its place is refused.
    Schemas that waited for `cls` to exist are made now. A type that is defined later still is no
    error unless `complete` is asked for; the first use of the tool would raise then.
    """
    attributes: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        attributes.update(dict.fromkeys(name for name, value in vars(base).items() if _tool_in(value)))
    tools: dict[str, Tool] = {}
    for attribute in attributes:
        owner = next(base for base in cls.__mro__ if attribute in vars(base))
        found = _tool_in(vars(owner)[attribute])
        if found is None:
            _check_removed(cls, owner, attribute)
            continue
        found.complete(owner, required=complete)
        _add(tools, found)
    return tools


def tools_of(cls: type) -> dict[str, Tool]:
    """The tools of a class that is whole, looked for once."""
    found = vars(cls).get(_FOUND)
    if found is None:
        found = collect_tools(cls, complete=True)
        setattr(cls, _FOUND, found)
    return found


_FOUND = "_everthink_tools"
"""Where a class keeps them; not for its subclasses, which have their own."""


def _check_removed(cls: type, owner: type, name: str) -> None:
    """Only `None` takes a tool away: whoever overrides one usually means to keep it."""
    replaced = next(base for base in cls.__mro__ if name in vars(base) and base is not owner)
    if vars(owner)[name] is None or _tool_in(vars(replaced)[name]) is None:
        return
    raise ToolDefinitionError(
        f"{owner.__name__}.{name} is no tool, and takes the place of {replaced.__name__}.{name},"
        " which is one.",
        next_step=f"Write @tool above it again. To take the tool away, write `{name} = None`.",
    )


def as_tools(value: Any, where: str = "get_tools()") -> dict[str, Tool]:
    """What `get_tools()` returned, or what else `where` names was given, as `name -> Tool`.

    A mapping of names to tools or functions (the key is the name), or an iterable of them.
    """
    if value is None:
        return {}
    if isinstance(value, Tool):
        return {value.name: value}
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {name: _made(one, where, name=name) for name, one in items}
    tools: dict[str, Tool] = {}
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise _not_tools(value, where)
    for one in cast("Iterable[Any]", value):
        _add(tools, _made(one, where))
    return tools


def client_tools_from(schemas: Any) -> dict[str, Tool]:
    """The tools a browser offers: a list of `{"name", "description"?, "parameters"?}`."""
    if schemas is None:
        return {}
    if not isinstance(schemas, (list, tuple)):
        raise _not_client_tools("it is not a list")
    tools: dict[str, Tool] = {}
    bounds = SchemaBounds()
    for index, found in enumerate(cast("list[Any]", schemas)):
        made = _client_tool(found, f"clientTools[{index}]", bounds)
        if made.name in tools:
            log.warning("the browser offers two tools named %r; the last one is used", made.name)
            del tools[made.name]
        tools[made.name] = made
    return tools


def check_client_tools(schemas: list[Any]) -> None:
    """Refuse what is unknown in client tools that code declares. Browsers may send more than we read."""
    for found in schemas:
        if isinstance(found, Mapping):
            keys = map(str, cast("Mapping[Any, Any]", found))
            refuse_unknown(keys, ("name", "description", "parameters"), "A client tool")


def _client_tool(found: Any, where: str, bounds: SchemaBounds) -> Tool:
    if not isinstance(found, dict):
        raise _not_client_tools(f"{where} is not an object")
    schema = cast("dict[str, Any]", found)
    name, description, parameters = (schema.get(key) for key in ("name", "description", "parameters"))
    if not isinstance(name, str):
        raise _not_client_tools(f"{where}.name is not text")
    if not isinstance(description, str | None):
        raise _not_client_tools(f"{where}.description is not text")
    if not isinstance(parameters, dict | None):
        raise _not_client_tools(f"{where}.parameters is not a JSON schema")
    if parameters is not None:
        bounds.check(name, cast("dict[str, Any]", parameters))
    return client_tool(name, description or "", cast("dict[str, Any] | None", parameters))


def _tool_in(value: Any) -> Tool | None:
    if isinstance(value, Tool):
        return cast("Tool", value)
    if isinstance(value, (staticmethod, classmethod)):
        inner = cast("Any", value).__func__
        if isinstance(inner, Tool):
            found = cast("Tool", inner)
            return found.as_class_method() if isinstance(value, classmethod) else found
    return None


def _made(one: Any, where: str, *, name: Any = None) -> Tool:
    if name is not None and not isinstance(name, str):
        raise ToolDefinitionError(f"{name!r} is not the name of a tool.", next_step="Names are text.")
    if isinstance(one, Tool):
        found = cast("Tool", one)
        return found if name is None else found.named(name)
    if isinstance(one, type) or not callable(one):
        raise _not_tools(one, where)
    return tool(one, name=name)


def _add(tools: dict[str, Tool], found: Tool) -> None:
    other = tools.get(found.name)
    if other is not None:
        raise ToolDefinitionError(
            f"Two tools are named {found.name!r}: {other.source} and {found.source}.",
            next_step=f"Give one of them another name with {_naming(found)}(name=...).",
        )
    tools[found.name] = found


def _naming(found: Tool) -> str:
    return "@tool" if getattr(found, "child", None) is None else "agent_tool"


def _not_tools(value: Any, where: str) -> ToolDefinitionError:
    if isinstance(value, Mapping) and any(isinstance(one, Tool) for one in cast("Any", value).values()):
        return ToolDefinitionError(
            f"{where}: a dict of tools is in the list.",
            next_step='Put its tools there: [*more.values()]; or put dicts together: {**more, "name": tool}.',
        )
    return ToolDefinitionError(
        f"{where}: {value!r:.200} is not a tool.",
        next_step="It takes tools or functions, in a list or as {name: tool}.",
    )


def _not_client_tools(why: str) -> ToolDefinitionError:
    return ToolDefinitionError(
        f"The browser's tools cannot be used: {why}.",
        next_step='One looks like {"name": "…", "description": "…", "parameters": {"type": "object"}}.',
    )
