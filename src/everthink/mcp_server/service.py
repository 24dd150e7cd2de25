"""The MCP server of an app: which tools there are, and what a call does.

    http.py, stdio.py --Visit--> Service.answer --> asking.py, calling.py --> Result
                                 Service.server: the same for the library, which speaks the protocol

Whoever arrives here may come in: that was asked before. What they may do there, and whether the agent can
be reached, is told as the result of the call.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from ..access.access import Access, Pass
from ..access.permissions import MAY_NOT_ASK, NOT_ALLOWED, READONLY
from ..errors import UNTOLD, AgentElsewhere, AgentSetAside, LeaseLost, is_for_people
from ..limits import Limits
from ..mcp_endpoint import McpEndpoint
from ..runtime.actor import Actor
from .asking import Progress, ask, look
from .callers import Caller, caller_of
from .calling import Running, call_method
from .catalogue import ANSWER_SCHEMA, AskTool, Catalogue, MethodTool, Offered
from .in_flight import Begun, InFlight
from .results import Result, of_answer, of_call, refused
from .visits import Unfit, Visit, Wanted, read_call

if TYPE_CHECKING:
    from ..runtime.directory import Directory

__all__ = ["VISIT", "Offering", "Service"]

log = logging.getLogger("everthink.mcp")

VISIT = "everthink.mcp.visit"
"""Where the scope of a request has the visit that was let in, or `Unfit`."""
INSTRUCTIONS = (
    "Each ask_… tool is an agent that remembers. Give the conversation that an answer names to go on with it."
)
NO_SUCH = "There is no such conversation. Give a `message` to begin one."
ELSEWHERE = "Another server process has this conversation open. Please try again in a moment."


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """What is offered, and how: the parts of an app that its MCP server uses."""

    endpoint: McpEndpoint
    catalogue: Catalogue
    open: Callable[[], Awaitable[Directory]]
    access: Access
    limits: Limits
    version: str = ""


class Service:
    """Answers MCP clients for one app."""

    def __init__(self, offering: Offering, operator: Pass | None = None) -> None:
        self.offering, self.catalogue = offering, offering.catalogue
        self.in_flight = InFlight()
        self._running = Running()
        self.operator = operator or Pass()
        """Who calls when there is no request: the one who has started this process."""
        self.server: Server[Any] = Server(
            "everthink",
            version=offering.version,
            instructions=INSTRUCTIONS,
            get_tool_input_schema=lambda name: None,  # no header of a request is about an argument
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self._listed = ListToolsResult(tools=[_described(tool) for tool in self.catalogue])

    # --- for the library

    async def _list(self, ctx: Any, params: Any) -> ListToolsResult:
        return self._listed

    async def _call(self, ctx: Any, params: Any) -> CallToolResult:
        visit = await self._visit(ctx, params.name, params.arguments)
        if isinstance(visit, Unfit):
            return _told(refused(visit.words))

        async def tell(count: float, words: str | None) -> None:
            await ctx.session.report_progress(count, message=words)

        key = (visit.line, str(ctx.request_id))
        with self.in_flight.listed(key) as begun:
            return _told(await self.answer(visit, tell, begun))

    async def _visit(self, ctx: Any, name: str, arguments: Any) -> Visit | Unfit:
        """The visit that was let in; without a request, that of whoever has started this process."""
        if ctx.request is not None:
            let_in: Visit | Unfit | None = ctx.request.scope[VISIT]
            if let_in is None:
                raise MCPError(INVALID_PARAMS, self.catalogue.unknown(name))
            return let_in
        tool = self.catalogue.get(name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, self.catalogue.unknown(name))
        wanted = await self.read(tool, arguments, self.operator.identity)
        return wanted if isinstance(wanted, Unfit) else Visit(wanted, self.operator)

    # --- a call

    async def read(self, tool: Offered, arguments: Any, identity: Any) -> Wanted | Unfit:
        """What a call asks for."""
        return await read_call(tool, arguments, self.offering.endpoint, identity)

    async def answer(self, visit: Visit, tell: Progress, begun: Begun) -> Result:
        """Do what a visit is for."""
        wanted = visit.wanted
        try:
            directory = await self.offering.open()
            address = directory.address(wanted.tool.cls, wanted.name)
            if wanted.action == "read" and not await directory.exists(address):
                return refused(NO_SUCH)
            actor = await directory.reach(address)
            with actor.hold():
                caller = await caller_of(visit, actor)
                if isinstance(wanted.tool, MethodTool):
                    return await self._method(actor, caller, wanted.tool, wanted, tell, begun)
                return await self._question(actor, caller, wanted, tell, begun)
        except (AgentElsewhere, LeaseLost) as error:
            log.info("%s", error)
            return refused(ELSEWHERE)
        except AgentSetAside as error:
            return refused(str(error))
        except Exception as error:
            log.exception("%s %r could not answer an MCP client", wanted.tool.cls.__name__, wanted.name)
            return refused(str(error) if is_for_people(error) else UNTOLD)

    async def _question(
        self,
        actor: Actor,
        caller: Caller,
        wanted: Wanted,
        tell: Progress,
        begun: Begun,
    ) -> Result:
        assert actor.chat is not None
        if wanted.message is None:
            answered = await look(actor.chat, tell=tell)
        elif not caller.may("ask"):
            self._audit(actor, caller, "ask", reason="no permission")
            return refused(MAY_NOT_ASK)
        else:
            answered = await ask(actor.chat, caller, wanted.message, tell=tell, begun=begun)
        return of_answer(answered, wanted.name, is_new=wanted.is_new)

    async def _method(
        self,
        actor: Actor,
        caller: Caller,
        tool: MethodTool,
        wanted: Wanted,
        tell: Progress,
        begun: Begun,
    ) -> Result:
        if not tool.info.reads and not caller.may("call"):
            self._audit(actor, caller, "call", tool.method, "no permission")
            return refused(READONLY if caller.is_readonly else NOT_ALLOWED)
        if self._running.is_full(actor, caller):
            most = actor.limits.calls_at_once
            self._audit(actor, caller, "call", tool.method, f"{most} calls at once")
            return refused(f"{most} calls of yours run already; wait for one of them")
        self._audit(actor, caller, "call", tool.method)
        called = await call_method(
            actor, caller, tool.method, wanted.arguments, tell=tell, begun=begun, among=self._running
        )
        return of_call(called)

    def _audit(
        self,
        actor: Actor,
        caller: Caller,
        action: str,
        target: str | None = None,
        reason: str | None = None,
    ) -> None:
        audit, agent = self.offering.access.audit, actor.address
        who = {"identity": caller.who, "connection_id": caller.id, "address": caller.address}
        if reason is None:
            audit.did(agent, action, target=target, **who)
        else:
            audit.refused(agent, action, reason, target=target, **who)


def _described(tool: Offered) -> Tool:
    if isinstance(tool, AskTool):
        return Tool(
            name=tool.name,
            title=tool.cls.__name__,
            description=tool.description,
            input_schema=tool.schema,
            output_schema=ANSWER_SCHEMA,
        )
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=ToolAnnotations(read_only_hint=True) if tool.info.reads else None,
    )


def _told(result: Result) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text) for text in result.texts],
        structured_content=result.structured,
        is_error=result.is_error,
    )
