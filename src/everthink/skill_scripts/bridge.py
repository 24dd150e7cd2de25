"""Whom a script can ask: tools, a workspace and addresses, as far as its runner was given them.

    the sandbox --Host.call--> Bridge --Rights?--> a tool | the workspace | guard/
                                        no: a refusal in words, which the script may catch

One for each run, so runs share nothing. Every right is asked for here, on our side, by each call: what the
guest believes of its rights, and which names it calls, decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ..calling import awaited
from ..errors import AgentError, ToolError, WorkspaceError
from ..journal.tool_errors import words_of
from ..sandbox.port import HostRefused, Stream
from ..tools.context import ToolContext
from ..tools.output import jsonable
from ..tools.question import Question
from ..tools.tool import Tool
from ..words import said as on_one_line
from ..workspace.port import Entry
from .rights import Rights
from .web import fetch

__all__ = ["Bridge"]

_log = logging.getLogger("everthink.skills")

LARGEST_FILE = 1_000_000
"""Bytes of a file of the workspace that a script reads or writes at once."""
MOST_ENTRIES = 5_000
"""So many paths are told at once."""
Verb = Callable[..., Awaitable[Any]]


class Bridge:
    """The host of one run."""

    def __init__(self, rights: Rights, tools: Mapping[str, Tool], context: ToolContext | None) -> None:
        self._rights, self.tools, self._context = rights, tools, context or ToolContext()
        self._calls = 0
        self.written: list[tuple[Stream, str]] = []
        """What the script has printed, as it came."""
        self._verbs: dict[str, Verb] = {
            "tool": self.tool,
            "read_file": self.read_file,
            "list_files": self.list_files,
            "glob": self.glob,
            "stat": self.stat,
            "write_file": self.write_file,
            "fetch": self.fetch,
        }

    # --- what a sandbox asks

    def output(self, stream: Stream, text: str) -> None:
        """See what the script prints."""
        self.written.append((stream, text))

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """`bridge.call(verb, …)`, or a function by its name: `tools.weather(…)`, `workspace.stat(…)`."""
        space, _, function = name.rpartition(".")
        if name == "bridge.call" and args and isinstance(args[0], str):
            return await self._do(args[0], args[1:], kwargs)
        if space == "tools" and function == "call":
            return await self._do("tool", args, kwargs)
        if space == "tools":
            given = args[0] if args else dict(kwargs)
            return await self.tool(self._named(function), given)
        return await self._do(function, args, kwargs)

    async def _do(self, verb: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        found = self._verbs.get(verb)
        if found is None:
            raise HostRefused(f"There is no {on_one_line(verb, 80)!r} here.")
        try:
            return await found(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise HostRefused(f"{verb} is not asked like this.") from None
            raise

    def _named(self, function: str) -> str:
        """The tool that a language calls by a name of its own."""
        return next((name for name in self.tools if name.replace("-", "_") == function), function)

    # --- tools

    async def tool(self, name: Any, input: Any = None) -> Any:
        """Call a tool, as a model would: its input is checked, and the hooks of the turn are asked."""
        found = self.tools.get(name) if isinstance(name, str) else None
        if found is None:
            there = f" There are: {', '.join(sorted(self.tools))}." if self.tools else ""
            raise HostRefused(f"Tool not available: {on_one_line(name, 80)}.{there}")
        given: Any = {} if input is None else input
        self._calls += 1
        context = self._context
        call_id = f"{context.tool_call_id}/{self._calls}"
        inside = replace(
            context,
            tool_name=found.name,
            tool_call_id=call_id,
            answer=None,
            show=None,
            ask=None,
            inner=None,
            conclude=None,
        )
        try:
            if found.needs_approval and await found.needs_approval_for(given, inside):
                raise HostRefused(
                    f"A person has to agree to this call of {found.name}, and a script cannot ask one."
                    " It has to be called as a tool of its own."
                )
            if context.inner is not None:
                return await context.inner.run(found, call_id, given, begin=_begin)
            values = [value async for value in found.iterate(given, inside)]
            return jsonable(values[-1] if values else None, tool=found.name)
        except HostRefused:
            raise
        except Question:
            raise HostRefused(f"{found.name} has to ask a person, which it cannot do for a script.") from None
        except Exception as error:
            if not isinstance(error, ToolError):
                _log.exception("the tool %r failed for a script", found.name)
            raise HostRefused(words_of(error)) from error

    # --- the workspace

    async def read_file(self, path: Any) -> str | None:
        """The text of a file, `None` when there is none."""
        files = self._readable()
        entry = await self._asked(files.stat, _text("path", path))
        if entry is not None and entry.size > LARGEST_FILE:
            raise HostRefused(f"{path} has {entry.size:,} bytes, and {LARGEST_FILE:,} are read at once.")
        return None if entry is None else await self._asked(files.read_file, path)

    async def list_files(self, path: Any = ".") -> list[dict[str, Any]]:
        """What is in a folder."""
        files = self._readable()
        return _entries(await self._asked(files.read_dir, _text("path", path)))

    async def glob(self, pattern: Any) -> list[dict[str, Any]]:
        """What has a path like this."""
        files = self._readable()
        return _entries(await self._asked(files.glob, _text("pattern", pattern)))

    async def stat(self, path: Any) -> dict[str, Any] | None:
        """What is at a path: `{"type", "size"}`, or `None`."""
        files = self._readable()
        entry = await self._asked(files.stat, _text("path", path))
        return None if entry is None else {"type": entry.kind, "size": entry.size}

    async def write_file(self, path: Any, content: Any) -> None:
        """Write a text to a file."""
        files = self._readable()
        if not self._rights.may_write:
            raise HostRefused("Workspace write access is not available: scripts may only read it.")
        text = _text("content", content)
        if len(text.encode("utf-8", "replace")) > LARGEST_FILE:
            raise HostRefused(f"More than {LARGEST_FILE:,} bytes are not written at once.")
        await self._asked(files.write_file, _text("path", path), text)

    def _readable(self) -> Any:
        if not self._rights.may_read:
            raise HostRefused("Workspace access is not available: scripts were given none.")
        return self._rights.files

    async def _asked(self, verb: Callable[..., Any], *args: Any) -> Any:
        try:
            return await awaited(verb(*args))
        except (WorkspaceError, ToolError) as error:
            raise HostRefused(str(error)) from error
        except Exception as error:
            _log.exception("a workspace failed for a script")
            raise HostRefused("The workspace failed.") from error

    # --- the network

    async def fetch(self, url: Any, options: Any = None) -> dict[str, Any]:
        """Open an address, if the runner may."""
        if self._rights.network is None:
            raise HostRefused("Network access is not available: scripts were given none.")
        try:
            return await fetch(self._rights.network, _text("url", url), options or {})
        except AgentError as error:
            raise HostRefused(str(error)) from error


async def _begin(given: Any) -> None:
    """Nothing is kept of a call that a script makes: the script's own call is what the ledger has."""


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise HostRefused(
            f"{name} is a text, and not {_JSON.get(type(cast('object', value)), 'something else')}."
        )
    return value


_JSON: Mapping[type, str] = {
    type(None): "missing",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}
"""Values as those call them who write JavaScript or bash."""


def _entries(found: Sequence[Entry]) -> list[dict[str, Any]]:
    if len(found) > MOST_ENTRIES:
        raise HostRefused(f"There are {len(found):,} of them, more than {MOST_ENTRIES:,}. Ask for fewer.")
    return [
        {"path": entry.path, "name": entry.name, "type": entry.kind, "size": entry.size} for entry in found
    ]
