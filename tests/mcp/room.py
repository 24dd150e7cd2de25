"""An agent of a real app that calls tools of MCP servers as a test says."""

from __future__ import annotations

from typing import Any

from tests.conftest import OpenApp

from everthink import App, Think
from everthink.mcp.link import Link
from everthink.mcp.server import Server
from everthink.testing import ScriptedModel, calls, says

__all__ = ["Part", "Room", "room"]

Part = dict[str, Any]


class Room:
    """One conversation. Its servers are those of the app."""

    def __init__(self, app: App, cls: type[Think], model: ScriptedModel) -> None:
        self.app, self.cls, self.model = app, cls, model
        self.agent = app.agent(cls)

    async def call(self, tool: str, **input: Any) -> Part:
        """A turn in which the model calls a tool and goes on. The part of the call."""
        self.model.add(calls(tool, **input), says("Done."))
        result = await self.agent.save_messages("Go on.")
        assert (result.status, result.message.text) == ("completed", "Done.")
        (part,) = result.message.tool_parts
        return part

    async def output(self, tool: str, **input: Any) -> Any:
        """The same for a call that has to work. What it returned."""
        part = await self.call(tool, **input)
        assert part["state"] == "output-available", part
        return part["output"]

    async def error(self, tool: str, **input: Any) -> str:
        """The same for a call that has to fail. What the model is told."""
        part = await self.call(tool, **input)
        assert part["state"] == "output-error", part
        return part["errorText"]

    async def offered(self) -> list[str]:
        """The tools that the model of a turn is offered."""
        self.model.add(says("Hello."))
        assert (await self.agent.save_messages("Hello?")).status == "completed"
        return [tool.name for tool in self.model.last_request.tools]

    async def server(self, name: str = "docs") -> Server:
        async with self.agent as agent:
            return agent._home.mcp.find(name)

    async def link(self, name: str = "docs") -> Link:
        link = (await self.server(name)).link
        assert link is not None
        return link


async def room(open_app: OpenApp, servers: dict[str, Any] | None = None, **options: Any) -> Room:
    """A new one. `members` are more of its class, the rest are options of the app."""
    model = ScriptedModel()
    members = {"wait_for_mcp_connections": True, **options.pop("members", {})}
    cls = type("Assistant", (Think,), {"model": model, "include_workspace_tools": False, **members})
    return Room(await open_app(cls, mcp_servers=servers or {}, **options), cls, model)
