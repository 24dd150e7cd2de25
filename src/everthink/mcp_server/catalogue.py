"""Which tools an app has for MCP clients: each agent that chats, and its `@exposed` methods if that is asked.

    agent classes + McpEndpoint --Catalogue--> AskTool, MethodTool: name, words, JSON schema

Made once, from what the classes say of themselves. A tool is known by its name alone, so no two may have one;
a method whose parameters no schema can describe is left out, and told in the log.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..address import kebab
from ..errors import AgentError, ToolDefinitionError
from ..mcp_endpoint import McpEndpoint
from ..runtime.rpc import ExposedMethod, exposed_method
from ..settings import nearest
from ..tools.docs import in_words, read_docstring
from ..tools.function_input import FunctionInput
from ..tools.signature import Signature

__all__ = ["AskTool", "Catalogue", "MethodTool", "Offered"]

log = logging.getLogger("everthink.mcp")

LONGEST_NAME = 64
"""Characters of a tool's name: models are given no more."""
LONGEST_WORDS = 2_000
"""Characters of a docstring that clients are shown."""
HOW_TO_ASK = (
    "Sends `message` to this agent and returns its answer. The answer names its `conversation`: give that to"
    " go on there; leave it out to begin a new one. Without a `message` the last answer of a `conversation`"
    " is returned, as soon as it is whole."
)

ASK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "description": "What to say to the agent. Leave it out to get the last answer of a conversation.",
        },
        "conversation": {
            "type": "string",
            "maxLength": 512,
            "description": "The conversation to go on with, as an earlier answer named it.",
        },
    },
    "additionalProperties": False,
}
ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "conversation": {"type": "string", "description": "Give it to go on."},
        "status": {
            "type": "string",
            "enum": ["completed", "waiting", "error", "aborted", "skipped", "interrupted"],
            "description": "`waiting`: a call of the agent's waits for a person.",
        },
        "text": {"type": "string", "description": "What the agent said."},
        "error": {"type": "string"},
        "waits_for": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "tool": {"type": "string"},
                    "kind": {"type": "string", "enum": ["approval", "client"]},
                    "call": {"type": "string"},
                    "input": {},
                },
                "required": ["tool", "kind", "call"],
            },
        },
    },
    "required": ["conversation", "status", "text"],
}


@dataclass(frozen=True, slots=True)
class AskTool:
    """A tool that asks an agent of a class."""

    name: str
    description: str
    cls: type[Any]

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its input."""
        return ASK_SCHEMA


@dataclass(frozen=True, slots=True)
class MethodTool:
    """A tool that calls a method of an agent of a class."""

    name: str
    description: str
    cls: type[Any]
    method: str
    info: ExposedMethod
    agent_key: str
    """What the agent's own name is called among the arguments."""
    input: FunctionInput
    schema: dict[str, Any]
    signature: inspect.Signature
    """The parameters that clients fill, in order."""

    def arguments(self, given: dict[str, Any]) -> list[Any]:
        """What the method is called with, in order. Raises `ToolInputError`."""
        named = self.input.arguments(self.name, given)
        bound = self.signature.bind(**named)
        bound.apply_defaults()
        return list(bound.args)


Offered = AskTool | MethodTool


class Catalogue:
    """The tools of one app, in the order of its classes."""

    def __init__(self, classes: Sequence[type[Any]], endpoint: McpEndpoint, chats: type[Any]) -> None:
        self._tools: dict[str, Offered] = {}
        for cls in endpoint.agents if endpoint.agents is not None else classes:
            for tool in _tools_of(cls, chats, exposed=endpoint.exposed):
                self._add(tool)
        if not self._tools:
            raise AgentError(
                "There is nothing that this app could offer to MCP clients: no agent of it chats.",
                next_step="Offer methods: App(mcp={'exposed': True}), with @exposed on some of them.",
            )

    def _add(self, tool: Offered) -> None:
        other = self._tools.setdefault(tool.name, tool)
        if other is not tool:
            raise AgentError(
                f"Two tools for MCP clients are called {tool.name}: one of {other.cls.__name__} and one of"
                f" {tool.cls.__name__}.",
                next_step="Rename a class or a method, or offer one of them: App(mcp={'agents': […]}).",
            )

    def __iter__(self) -> Iterator[Offered]:
        return iter(self._tools.values())

    def get(self, name: str) -> Offered | None:
        """The tool of this name."""
        return self._tools.get(name)

    def unknown(self, name: str) -> str:
        """Words for somebody who asks for a tool that there is not."""
        near = nearest(name[:LONGEST_NAME], self._tools)
        hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(self._tools)}."
        return f"There is no tool {name[:LONGEST_NAME]!r}. {hint}"


def _tools_of(cls: type[Any], chats: type[Any], *, exposed: bool) -> Iterator[Offered]:
    called = _safe(kebab(cls.__name__))
    if issubclass(cls, chats):
        yield AskTool(_fitted(f"ask_{called}"), _asks(cls), cls)
    for method in dir(cls) if exposed else ():
        if (info := exposed_method(cls, method)) is None:
            continue
        try:
            yield _method_tool(cls, method, info, _fitted(f"{called}_{_safe(method)}"))
        except ToolDefinitionError as error:
            log.warning("@exposed %s.%s is no tool for MCP clients: %s", cls.__name__, method, error)


def _asks(cls: type[Any]) -> str:
    own = inspect.cleandoc(vars(cls).get("__doc__") or f"The agent {cls.__name__}.")
    return f"{_shortened(own)}\n\n{HOW_TO_ASK}"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS]}…"


def _safe(name: str) -> str:
    """A name in letters that every client takes."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "agent"


def _fitted(name: str) -> str:
    """A name that is no longer than may be: of a longer one the beginning, and what tells it from others."""
    if len(name) <= LONGEST_NAME:
        return name
    mark = hashlib.blake2b(name.encode(), digest_size=3).hexdigest()
    return f"{name[: LONGEST_NAME - 7]}_{mark}"


# --- methods


def _method_tool(cls: type[Any], method: str, info: ExposedMethod, name: str) -> MethodTool:
    written = inspect.getattr_static(cls, method)
    function = inspect.unwrap(getattr(written, "__func__", written))
    parameters = _parameters(function, isinstance(written, staticmethod), info)
    described, help_ = read_docstring(info.description)
    signature = Signature(function, "function", parameters, None)
    input_ = FunctionInput(signature, help_)
    input_.complete(cls, required=True)
    if input_.typed.context:
        raise ToolDefinitionError("it takes a ToolContext, which only a turn has.")
    taken = {*input_.typed.parameters, *input_.schema["properties"]}
    key = next(key for key in ("name", "agent", "agent_name", "its_name") if key not in taken)
    return MethodTool(
        name,
        f"{_shortened(described or in_words(method))}\n\nOf the agent {cls.__name__} that `{key}` names.",
        cls,
        method,
        info,
        key,
        input_,
        _with_agent(input_.schema, key, cls),
        inspect.Signature(parameters),
    )


def _parameters(function: Any, is_static: bool, info: ExposedMethod) -> list[inspect.Parameter]:
    """Those that a client fills: they come in order, after the agent itself and the stream."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError("it has no signature to read.") from error
    taken = found[(0 if is_static else 1) + info.streaming :]
    if any(p.kind is p.POSITIONAL_ONLY for p in taken):
        raise ToolDefinitionError("it has parameters without names, and MCP clients give them by name.")
    return [p for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD]


def _with_agent(schema: dict[str, Any], key: str, cls: type[Any]) -> dict[str, Any]:
    """The schema of a method's input, with the agent's name in front."""
    agent = {"type": "string", "maxLength": 512, "description": f"Which {cls.__name__}: its name."}
    return {
        **schema,
        "properties": {key: agent, **schema.get("properties", {})},
        "required": [key, *schema.get("required", [])],
        "additionalProperties": False,
    }
