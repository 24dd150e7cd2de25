"""One MCP server as an agent knows it: what it offers, how it stands, and its tools.

    McpServers, SharedServers --> Server --tools--> turn/assemble
                                    |  --call--> Link --> the server

What it offers is known from the table before anybody has connected, so a restart with the server away loses
no tool: a call waits for the connection, and says why there is none. A tool is made once for each catalogue.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..calling import call_hook
from ..clock import Clock
from ..models.port import ToolSpec
from ..tools.json_input import JsonInput
from ..tools.tool import Origin, Tool, ToolContext
from .catalogue import Catalogue, CatalogueTool
from .link import Link, Timeouts, Wires
from .naming import tool_names
from .places import HttpServer, Place, ServerState
from .results import shown_to_model

__all__ = ["Server", "ServerTool"]

log = logging.getLogger("everthink.mcp")

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
    ) -> None:
        self.id, self.name, self.prefix, self.place = id, name, prefix, place
        self._wires, self._clock, self._moved = wires, clock, moved
        self._kept = kept
        self.accepted: dict[str, str] = dict(accepted or {})
        """The hashes of its tools as they were accepted: with the server, or by a person afterwards."""
        self.waits_at = auth_url
        """Where a person lets us in, as it is kept, while nobody has connected in this process."""
        self.link: Link | None = None
        self.on_accept: Callable[[Server], Awaitable[None]] | None = None
        """Keeps `accepted` after a person has said yes to a tool that had changed."""
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
            moved = lambda: self._moved(self)  # noqa: E731
            self.link = Link(
                self.name, self._wires(self), clock=self._clock, changed=moved, catalogue=self._kept
            )
        self.link.start()
        return self.link

    async def stop(self) -> None:
        """Hang up."""
        if self.link is not None:
            await self.link.stop()

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

    def _approval(self, tool: CatalogueTool) -> bool | Callable[..., Any]:
        policy = self.place.approval
        if policy == "always" or (policy == "destructive" and tool.destructive):
            return True

        async def asks(input: dict[str, Any]) -> bool:
            if callable(policy) and await call_hook(policy, tool.name, input):
                return True
            return self.has_changed(tool)

        return asks if callable(policy) or self.has_changed(tool) else False

    def _body(self, tool: CatalogueTool) -> Callable[..., Any]:
        async def call(input: dict[str, Any], ctx: ToolContext) -> Any:
            if self.has_changed(tool):  # it asks as long as nobody has said yes: somebody has
                self.accepted[tool.name] = tool.hash
                if self.on_accept is not None:
                    await self.on_accept(self)
            return await self.call(tool.name, input, ctx)

        return call

    async def call(self, tool: str, input: dict[str, Any], ctx: ToolContext) -> Any:
        """Run one of its tools."""
        from .calls import called

        self._running.append(ctx)
        try:
            return await called(self.start(), tool, input, ctx, self.timeouts)
        finally:
            self._running.remove(ctx)

    @property
    def timeouts(self) -> Timeouts:
        """How long its calls may take."""
        return Timeouts(self.place.timeout, self.place.total_timeout)
