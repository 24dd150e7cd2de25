"""One call of a tool: what is wanted, of which agent, by whom.

    name and arguments --Wanted.read--> Wanted, or Unfit: words for the caller
    Wanted + Pass --> Visit --> asking.py, calling.py

Pure, but for the name of a new conversation. Nothing here has looked whether somebody may do it.
"""

from __future__ import annotations

import secrets
import unicodedata
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

from starlette.requests import HTTPConnection

from ..access.access import Action, Pass
from ..address import MAX_NAME, from_address
from ..calling import call_hook
from ..errors import AgentError, ToolInputError
from ..mcp_endpoint import McpEndpoint
from ..settings import shown
from ..tools.explain import describe
from .catalogue import AskTool, MethodTool, Offered

__all__ = ["Unfit", "Visit", "Wanted", "read_call"]


@dataclass(frozen=True, slots=True)
class Unfit:
    """Arguments that mean nothing: why, in words for the caller."""

    words: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call asks for."""

    tool: Offered
    name: str
    """Of the agent."""
    message: str | None = None
    """What it is asked; `None`: its last answer is wanted, or it is a method that is called."""
    arguments: tuple[Any, ...] = ()
    """What the method is called with."""
    is_new: bool = False
    """True when the caller named no conversation."""

    @property
    def action(self) -> Action:
        """What `authorize` is asked about: who asks or calls over a socket would have to open one."""
        looks = isinstance(self.tool, AskTool) and self.message is None
        return "read" if looks else "connect"


@dataclass(frozen=True, slots=True)
class Visit:
    """Somebody who may come in, and what they want there."""

    wanted: Wanted
    entered: Pass
    request: HTTPConnection | None = None
    """What they came with; `None` for the one who has started this process."""
    line: str = ""
    """Together with the id of a request, what it is known by when it is cancelled."""


async def read_call(tool: Offered, given: Any, endpoint: McpEndpoint, identity: Any) -> Wanted | Unfit:
    """What a call of `tool` with these arguments asks for."""
    if given is not None and not isinstance(given, dict):
        return Unfit(f"The arguments of {tool.name} are {describe(given)}, and not a JSON object.")
    found = dict(cast("dict[str, Any]", given or {}))
    if isinstance(tool, MethodTool):
        return _method_call(tool, found)
    return await _question(tool, found, endpoint, identity)


def _method_call(tool: MethodTool, given: dict[str, Any]) -> Wanted | Unfit:
    name = _name(given.pop(tool.agent_key, None), tool.agent_key)
    if isinstance(name, Unfit):
        return name
    try:
        return Wanted(tool, name, arguments=tuple(tool.arguments(given)))
    except ToolInputError as error:
        return Unfit(str(error))


async def _question(
    tool: AskTool, given: dict[str, Any], endpoint: McpEndpoint, identity: Any
) -> Wanted | Unfit:
    message, named = given.pop("message", None), given.pop("conversation", None)
    if given:
        return Unfit(f"{tool.name} takes `message` and `conversation`, not {', '.join(map(repr, given))}.")
    if message is not None and not isinstance(message, str):
        return Unfit(f"`message` is {describe(message)}, and not text.")
    if not message:
        message = None
    elif not message.strip():
        return Unfit("`message` says nothing.")
    if message is None and named is None:
        return Unfit("Say something: `message` is empty, and no `conversation` is named to look into.")
    if named is None:
        return Wanted(tool, await _new_name(endpoint, identity), message, is_new=True)
    name = _name(named, "conversation")
    return name if isinstance(name, Unfit) else Wanted(tool, name, message)


async def _new_name(endpoint: McpEndpoint, identity: Any) -> str:
    """A name that nobody can guess: who knows it may find the conversation under it."""
    if endpoint.new_name is None:
        return f"mcp-{secrets.token_hex(10)}"
    given = await call_hook(endpoint.new_name, identity)
    name = _name(given, "conversation")
    if isinstance(name, Unfit):
        raise AgentError(f"McpEndpoint(new_name=…) returned {shown(given)}.", next_step="It returns a name.")
    return name


def _name(given: Any, key: str) -> str | Unfit:
    """The name of an agent as it would be in an address."""
    if given is None:
        return Unfit(f"`{key}` is missing: it names the agent.")
    if not isinstance(given, str):
        return Unfit(f"`{key}` is {describe(given)}, and not text.")
    if not given.strip() or len(given) > MAX_NAME:
        return Unfit(f"`{key}` is a name of 1 to {MAX_NAME} characters; this one has {len(given)}.")
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in given):
        return Unfit(f"`{key}` holds a character that no name has: {given[:40]!r}.")
    name = from_address(quote(given, safe=""))
    if len(name) > MAX_NAME:
        return Unfit(f"`{key}` is longer than {MAX_NAME} characters as it stands in an address.")
    return name
