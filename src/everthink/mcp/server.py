"""One MCP server as an agent knows it: what it offers, how it stands, and what it is asked.

    McpServers, SharedServers --> Server --tools--> turn/assemble
    Agent.call_mcp_tool, …  ------> |  --call, prompt, resource--> Link --> the server

What it offers is known from the table before anybody has connected, so a restart with the server away loses
no tool: a call waits for the connection, and says why there is none. A tool is made once for each catalogue.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..calling import call_hook
from ..clock import Clock
from ..errors import ToolError
from ..json_values import plain_json
from ..models.port import ToolSpec
from ..settings import nearest
from ..tools.json_input import JsonInput
from ..tools.question import Form, Question
from ..tools.tool import Origin, Tool, ToolContext
from ..words import said
from .catalogue import EMPTY, Catalogue, CatalogueTool
from .discovering import load_sdk
from .link import Call, Link, Timeouts, Wires
from .naming import tool_names
from .places import HttpServer, Place, ServerState
from .results import shown_to_model

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["Server", "ServerTool"]

log = logging.getLogger("everthink.mcp")

CHANGED = "changed"
"""The form that asks about a tool that is not what it was."""
MOST_SAID = 5
MOST_LEFT_OUT = 10
"""Reasons of what is left out of a catalogue that are written to the log."""
MOST_ACCEPTED = 5_000
"""Tools whose hashes are kept, also of those that are not offered any more."""


class ServerTool(Tool[..., Any]):
    """A tool of a server. What the model is told of it is made once: there may be hundreds in every turn."""

    _told: ToolSpec | None = None

    def spec(self) -> ToolSpec:
        """The tool as the model is told about it."""
        if self._told is None or self._told.name != self.name:
            self._told = super().spec()
        return self._told


class Server:
    """One server."""

    def __init__(
        self,
        id: str,
        name: str,
        prefix: str,
        place: Place,
        *,
        wires: Callable[[Server], Wires],
        clock: Clock,
        moved: Callable[[Server], object],
        kept: Catalogue | None = None,
        accepted: Mapping[str, str] | None = None,
        auth_url: str | None = None,
        whose: str = "",
    ) -> None:
        self.id, self.name, self.prefix, self.place, self._whose = id, name, prefix, place, whose
        self._wires, self._clock, self._moved = wires, clock, moved
        self._kept = kept
        self.accepted: dict[str, str] = dict(accepted or {})
        """The hashes of its tools as they were accepted: with the server, or by a person afterwards."""
        self.waits_at = auth_url
        """Where a person lets us in, as it is kept, while nobody has connected in this process."""
        self.link: Link | None = None
        self.on_accept: Callable[[Server], Awaitable[None]] | None = None
        """Keeps `accepted` after a person has said yes to a tool that had changed."""
        self.said: deque[str] = deque(maxlen=MOST_SAID)
        """What its process said last beside its answers. It is for whoever runs the app, not for pages."""
        self._has_failed = False
        self._told: dict[str, str] = {}
        # Made anew when it offers something else.
        self._tools: dict[str, Tool] = {}
        self._tools_of: Catalogue | None = None
        self._running: list[ToolContext] = []

    # --- how it stands

    @property
    def state(self) -> ServerState:
        """How it stands."""
        if self.link is not None:
            return self.link.state
        return "authenticating" if self.waits_at else "not-connected"

    @property
    def error(self) -> str | None:
        """Why there is no connection."""
        return None if self.link is None else self.link.error

    @property
    def auth_url(self) -> str | None:
        """Where a person lets us in, while that is wanted."""
        return self.waits_at if self.link is None else self.link.auth_url

    @property
    def catalogue(self) -> Catalogue | None:
        """What it offers, as far as is known."""
        return self._kept if self.link is None else self.link.catalogue

    @property
    def address(self) -> str:
        """Where it is, as it may be told to clients."""
        return self.place.url if isinstance(self.place, HttpServer) else f"{self.name}:"

    def start(self) -> Link:
        """Connect, unless that is under way. One that waits for a person is asked again."""
        if self.link is None:
            self.link = Link(
                self.name, self._wires(self), clock=self._clock, changed=self._stands, catalogue=self._kept
            )
        self.link.start()
        return self.link

    def _stands(self) -> None:
        if self.state == "failed" and not self._has_failed:
            self._has_failed = True
            last = f" It said last: {self.said[-1]}" if self.said else ""
            log.warning(
                "%sthe MCP server %s does not answer: %s It is tried again.%s",
                self._whose,
                self.name,
                self.error,
                last,
            )
        elif self.state == "ready" and self._has_failed:
            self._has_failed = False
            log.info("%sthe MCP server %s answers now", self._whose, self.name)
        self._moved(self)

    async def stop(self, why: str | None = None) -> None:
        """Hang up. `why` is what those read who wait for an answer."""
        if self.link is not None:
            await self.link.stop(why)

    # --- what comes from the server by itself

    async def heard(self, message: Any) -> None:
        """A notification: its lists may have changed."""
        method = str(getattr(message, "method", ""))
        if method.endswith("/list_changed") and self.link is not None:
            self.link.refresh()

    async def elicited(self, context: Any, params: Any) -> Any:
        """An older server asks a person something in the middle of a call."""
        from .calls import elicited

        assert self.link is not None
        with self.link.asking():
            return await elicited(self._running, self.name, params)

    # --- its tools

    def tools(self) -> Mapping[str, Tool]:
        """Its tools by the names that models call them."""
        catalogue = self.catalogue
        if catalogue is None:
            return {}
        if catalogue is not self._tools_of:
            self._tools, self._tools_of = self._made(catalogue), catalogue
        return self._tools

    def has_changed(self, tool: CatalogueTool) -> bool:
        """True for a tool that is not what was accepted."""
        return self.accepted.get(tool.name, tool.hash) != tool.hash

    def accept_new(self) -> tuple[str, ...]:
        """Accept tools that were not there before. The names of those that are not what they were, once."""
        tools = self.catalogue.tools if self.catalogue is not None else ()
        if len(self.accepted) > MOST_ACCEPTED:  # it has new names each time
            self.accepted = {
                tool.name: self.accepted[tool.name] for tool in tools if tool.name in self.accepted
            }
        self.accepted |= {tool.name: tool.hash for tool in tools if tool.name not in self.accepted}
        changed = {tool.name: tool.hash for tool in tools if self.has_changed(tool)}
        names = tuple(name for name, hash in changed.items() if self._told.get(name) != hash)
        self._told = changed
        if names:
            log.warning("tools of the MCP server %s are not what they were: %s", self.name, ", ".join(names))
        return names

    def _made(self, catalogue: Catalogue) -> dict[str, Tool]:
        origin = Origin(f"mcp {self.id}")
        wanted = self.place.tools
        self._warn(catalogue)
        offered = [tool for tool in catalogue.tools if wanted is None or tool.name in wanted]
        names = tool_names(self.prefix, [tool.name for tool in offered])
        return {
            names[tool.name]: ServerTool(
                names[tool.name],
                tool.description,
                JsonInput({"type": "object", **tool.input_schema}),
                self._body(tool),
                title=tool.title,
                needs_approval=self._approval(tool),
                on_interrupt="rerun" if tool.read_only or tool.idempotent else "report",
                to_model_output=shown_to_model,
                origin=origin,
            )
            for tool in offered
        }

    def _warn(self, catalogue: Catalogue) -> None:
        """Say what of a new catalogue is not offered, so that nobody looks for it in vain."""
        whose = f"{self._whose}of the MCP server {self.name}"
        for one in catalogue.skipped[:MOST_LEFT_OUT]:
            log.warning("%s is left out: %s: %s", whose, one.name, one.why)
        if (more := len(catalogue.skipped) - MOST_LEFT_OUT) > 0:
            log.warning("%s are left out: %d more", whose, more)
        known = [tool.name for tool in catalogue.tools]
        for name in self.place.tools or ():
            if name not in known:
                log.warning(
                    "%sthe MCP server %s has no tool %r, which tools=[…] names.%s",
                    self._whose,
                    self.name,
                    name,
                    f" Did you mean {near!r}?" if (near := nearest(name, known)) else "",
                )

    def _approval(self, tool: CatalogueTool) -> bool | Callable[..., Any]:
        policy = self.place.approval
        if policy == "always" or (policy == "destructive" and tool.destructive):
            return True

        if not callable(policy):
            return False

        async def asks(input: dict[str, Any]) -> Any:
            return await call_hook(policy, tool.name, input)

        return asks

    def _body(self, tool: CatalogueTool) -> Callable[..., Any]:
        async def call(input: dict[str, Any], ctx: ToolContext) -> Any:
            # What is offered now is what would run, whatever this turn was shown before.
            now = self._offered(tool.name) or tool
            if self.has_changed(now):
                await self._accept(now, ctx)
            return await self.call(tool.name, input, ctx)

        return call

    async def _accept(self, tool: CatalogueTool, ctx: ToolContext) -> None:
        """Go on once a person has said yes to a tool as it is now. A yes to what it was before is none."""
        state, answer = {CHANGED: tool.hash}, ctx.answer
        if answer is None or answer.state != state:
            message = (
                f"The tool {tool.name!r} of the MCP server {self.name!r} is not what it was when it was"
                f" accepted. It says of itself now: {said(tool.description) or 'nothing.'}"
                " May it be used from now on?"
            )
            raise Question({CHANGED: Form(message)}, state=state, asks=self.name)
        if answer.forms[CHANGED].action != "accept":
            raise ToolError(
                f"The tool {tool.name!r} is not what it was, and a person did not allow it. Nothing was run."
            )
        self.accepted[tool.name] = tool.hash
        if self.on_accept is not None:
            await self.on_accept(self)
        ctx.answer = None  # it was for us, not for the server

    def _offered(self, name: str) -> CatalogueTool | None:
        return next((tool for tool in self._lists.tools if tool.name == name), None)

    async def call(self, tool: str, input: dict[str, Any], ctx: ToolContext) -> Any:
        """Run one of its tools."""
        await load_sdk()
        from .calls import called

        self._running.append(ctx)
        try:
            return await called(self.start(), self._call_of(tool), input, ctx, self.timeouts, self._clock)
        finally:
            self._running.remove(ctx)

    def _call_of(self, tool: str) -> Call:
        found = self._offered(tool)
        return Call(tool, may_repeat=found is not None and (found.read_only or found.idempotent))

    # --- what an agent's own code asks of it

    async def use(self, tool: str, input: Mapping[str, Any], agent: Any) -> Any:
        """What a tool answers to code. Raises `ToolError` with why it did not.

        Outside a turn there is nobody to ask: a tool that has a question fails with it.
        """
        given = plain_json(dict(input), "input", "call_mcp_tool")
        self._check("tool", tool, [one.name for one in self._lists.tools])
        try:
            return await self.call(tool, given, ToolContext(agent=agent))
        except Question as asked:
            raise ToolError(
                f"The tool {tool!r} of the MCP server {self.name!r} asks a person something: {asked}",
                kept="It was not answered.",
                next_step="Let a model call it: in a turn a person can answer.",
            ) from None

    @property
    def _lists(self) -> Catalogue:
        return self.catalogue or EMPTY

    def _check(self, kind: str, name: str, known: list[str]) -> None:
        """Raise about a name that nearly is one that the server has. Any other is left to the server."""
        if name not in known and (near := nearest(name, known)) is not None:
            raise ToolError(
                f"The MCP server {self.name!r} has no {kind} {name!r}.",
                kept="Nothing was run.",
                next_step=f"Did you mean {near!r}?",
            )

    async def prompt(self, name: str, arguments: dict[str, str] | None) -> list[dict[str, Any]]:
        """The messages of a prompt."""

        self._check("prompt", name, [prompt.name for prompt in self._lists.prompts])

        async def ask(client: Client, alive: Callable[[], None]) -> Any:
            return await client.get_prompt(name, arguments)

        result = await self.start().call(ask, self.timeouts, f"the prompt {name!r}")
        return [_plain(message) for message in result.messages]

    async def resource(self, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource."""

        async def ask(client: Client, alive: Callable[[], None]) -> Any:
            return await client.read_resource(uri)

        result = await self.start().call(ask, self.timeouts, f"the resource {uri!r}")
        return [_plain(content) for content in result.contents]

    @property
    def timeouts(self) -> Timeouts:
        """How long its calls may take."""
        return Timeouts(self.place.timeout, self.place.total_timeout)


def _plain(value: Any) -> dict[str, Any]:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)
