"""One MCP server as an agent knows it: what it offers, how it stands, and its tools.

    McpServers, SharedServers --> Server --tools--> turn/assemble
                                    |  --call--> Link --> the server

What it offers is known from the table before anybody has connected, so a restart with the server away loses no
tool: a call waits for the connection, and says why there is none. A tool is made once for each catalogue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..calling import call_hook
from ..clock import Clock
from ..errors import ToolDefinitionError
from ..settings import nearest
from ..tools.json_input import JsonInput
from ..tools.tool import Origin, Tool, ToolContext
from .catalogue import Catalogue, CatalogueTool, changed_tools
from .link import Link, LinkState, Timeouts, Wires
from .naming import tool_name
from .places import Place

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["Server", "ServerState"]

ServerState = LinkState | Literal["not-connected"]
LONGEST_ERROR = 500


@dataclass(slots=True, eq=False)
class Trust:
    """What the tools of a server looked like when they were last accepted, by their hashes.

    Those of a new server are accepted with it. One that changes afterwards asks a person, once.
    """

    hashes: dict[str, str]

    def note(self, catalogue: Catalogue) -> bool:
        """Accept tools that are new. True when there were any."""
        new = {tool.name: tool.hash for tool in catalogue.tools if tool.name not in self.hashes}
        self.hashes |= new
        return bool(new)

    def has_changed(self, tool: CatalogueTool) -> bool:
        """True for a tool that is not what was accepted."""
        return self.hashes.get(tool.name, tool.hash) != tool.hash

    def accept(self, tool: CatalogueTool) -> None:
        """A person has said yes to what it is now."""
        self.hashes[tool.name] = tool.hash


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
        hashes: dict[str, str] | None = None,
        auth_url: str | None = None,
    ) -> None:
        self.id, self.name, self.prefix, self.place = id, name, prefix, place
        self._wires, self._clock, self._moved = wires, clock, moved
        self._kept, self.trust = kept, Trust(hashes or {})
        self._auth_url = auth_url
        self.link: Link | None = None
        self._tools: dict[str, Tool] = {}
        self._tools_of: Catalogue | None = None
        self.taken: Callable[[Server, CatalogueTool], Awaitable[None]] | None = None
        """Told when a person has said yes to a tool that had changed."""

    # --- how it stands

    @property
    def state(self) -> ServerState:
        """How it stands."""
        if self.link is not None:
            return self.link.state
        return "authenticating" if self._auth_url else "not-connected"

    @property
    def error(self) -> str | None:
        """Why there is no connection."""
        return None if self.link is None else self.link.error

    @property
    def auth_url(self) -> str | None:
        """Where a person lets us in, while that is wanted."""
        return self._auth_url if self.link is None else self.link.auth_url

    @property
    def catalogue(self) -> Catalogue | None:
        """What it offers, as far as is known."""
        return (self.link.catalogue if self.link is not None else None) or self._kept

    def start(self) -> Link:
        """Connect, unless that is under way."""
        if self.link is None:
            self.link = Link(
                self.name, self._wires(self), clock=self._clock, changed=lambda: self._moved(self)
            )
        self.link.start()
        return self.link

    async def stop(self) -> None:
        """Hang up."""
        if self.link is not None:
            await self.link.stop()

    # --- its tools

    def tools(self, taken: Collection[str] = ()) -> Mapping[str, Tool]:
        """Its tools by the names that models call them. Names of `taken` are left to their owners."""
        catalogue = self.catalogue
        if catalogue is None:
            return {}
        if catalogue is not self._tools_of:
            self._tools, self._tools_of = self._made(catalogue), catalogue
        return self._tools

    def _made(self, catalogue: Catalogue) -> dict[str, Tool]:
        origin = Origin(f"mcp {self.id}", line=None)
        tools: dict[str, Tool] = {}
        for offered in catalogue.tools:
            if self.place.tools is not None and offered.name not in self.place.tools:
                continue
            name = tool_name(self.prefix, offered.name, taken=tools)
            tools[name] = Tool(
                name,
                offered.description,
                JsonInput(offered.input_schema),
                self._body(offered),
                title=offered.title,
                needs_approval=self._approval(offered),
                on_interrupt="rerun" if offered.read_only or offered.idempotent else "report",
                to_model_output=_shown_to_models,
                origin=origin,
            )
        return tools

    def _approval(self, offered: CatalogueTool) -> bool | Callable[..., Any]:
        policy = self.place.approval
        if policy == "always" or (policy == "destructive" and offered.destructive):
            return True
        has_changed = self.trust.has_changed

        async def asks(input: dict[str, Any]) -> bool:
            if callable(policy) and await call_hook(policy, offered.name, input):
                return True
            return has_changed(offered)

        return asks if callable(policy) or has_changed(offered) else False

    def _body(self, offered: CatalogueTool) -> Callable[..., Any]:
        async def call(input: dict[str, Any], ctx: ToolContext) -> Any:
            if self.trust.has_changed(offered) and self.taken is not None:
                await self.taken(self, offered)  # it asks as long as nobody has said yes
            return await self.call(offered.name, input, ctx)

        return call

    async def call(self, tool: str, input: dict[str, Any], ctx: ToolContext) -> Any:
        """Run one of its tools."""
        from .calls import called

        return await called(self.start(), tool, input, ctx, self.timeouts)

    @property
    def timeouts(self) -> Timeouts:
        """How long its calls may take."""
        return Timeouts(self.place.timeout, self.place.max_time)

    def check_filter(self) -> None:
        """Tell of names in `tools=` that the server does not have."""
        catalogue = self.catalogue
        if self.place.tools is None or catalogue is None:
            return
        known = [tool.name for tool in catalogue.tools]
        for name in self.place.tools:
            if name not in known:
                near = nearest(name, known)
                raise ToolDefinitionError(
                    f"The MCP server {self.name!r} has no tool {name!r}.",
                    next_step=f"Did you mean {near!r}?" if near else f"It has: {', '.join(known) or 'none'}.",
                )


def _shown_to_models(value: Any) -> Any:
    from .results import for_model

    return for_model(value)
