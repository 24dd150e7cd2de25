"""The MCP servers of an agent, for the page: what only the server's side knows of them, adding and removing.

    GET  …/servers            [{"id", "is_shared", "names"}]: the rest is in the frame `cf_agent_mcp_servers`
    POST …/servers            {"name", "url"}    as `add_mcp_server` does it
    POST …/servers/remove     {"id"}             as `remove_mcp_server` does it

A server is added by its address alone: no header, no process. Those of the app are not removed here.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..errors import AgentError, BlockedAddress, InvalidSettings
from ..mcp.naming import tool_names
from ..mcp.server import Server
from ..runtime.actor import Actor
from .replies import as_json, body_of, fields_of, refusal

__all__ = ["ROOM", "answer"]

ROOM = "servers"
"""What this module answers, as the first word of the path."""
LONGEST_NAME = 64

Json = dict[str, Any]
Fields = dict[str, str]


async def answer(actor: Actor, request: Request, rest: list[str]) -> Response:
    """Answer one request that is for servers. What stands against it becomes a refusal."""
    if request.method != "POST":
        return as_json(await _listed(actor)) if rest == [ROOM] else _nothing()
    fields = fields_of(await body_of(request, actor.limits))
    if fields is None:
        return refusal(400, "Send a JSON object of texts. Nothing was changed.")
    try:
        match rest:
            case ["servers"]:
                return await _add(actor, fields, origin=_origin(request))
            case ["servers", "remove"]:
                return await _remove(actor, fields)
            case _:
                return _nothing()
    except (BlockedAddress, InvalidSettings) as error:
        return refusal(400, str(error))
    except AgentError as error:
        return refusal(502, str(error))  # it does not answer; whether it is kept is in the words


def _nothing() -> Response:
    return refusal(404, "There is nothing at this address of the inspector.")


async def _listed(actor: Actor) -> list[Json]:
    """The servers that are there; an agent that has none yet gets none by being looked at."""
    servers = actor.used_servers()
    if servers is None:
        return []
    await servers.open()
    shared = {server.id for server in servers.list() if server.is_shared}
    return [
        {"id": server.id, "is_shared": server.id in shared, "names": _names(server)}
        for server in servers.servers
    ]


def _names(server: Server) -> dict[str, str]:
    """How the model calls those of its tools that it is offered, by the names they have there."""
    if server.catalogue is None:
        return {}
    wanted = server.place.tools
    offered = [tool.name for tool in server.catalogue.tools if wanted is None or tool.name in wanted]
    return tool_names(server.prefix, offered)


async def _add(actor: Actor, fields: Fields, *, origin: str) -> Response:
    name, url = " ".join(fields.get("name", "").split()), fields.get("url", "").strip()
    if not name or len(name) > LONGEST_NAME or not url.lower().startswith(("http://", "https://")):
        return refusal(
            400,
            f'Send {{"name": "…", "url": "https://…"}}, the name of at most {LONGEST_NAME} characters.'
            " Nothing was added.",
        )
    added = await actor.agent.add_mcp_server(name, url, callback_host=origin)
    return as_json({"id": added.id, "state": added.state, "auth_url": added.auth_url})


async def _remove(actor: Actor, fields: Fields) -> Response:
    id, servers = fields.get("id", ""), actor.used_servers()
    if servers is not None and any(one.id == id and one.is_shared for one in servers.list()):
        return refusal(
            409,
            f"The MCP server {id!r} is one of the app's, App(mcp_servers=…). Nothing was changed."
            " To be without it, take it out there.",
        )
    if servers is None or not await actor.agent.remove_mcp_server(id):
        return refusal(404, f"There is no MCP server {id!r}. Nothing was changed.")
    return as_json({"id": id})


def _origin(request: Request) -> str:
    """Where people come back to from an authorization server: the host that this page is at."""
    return f"{request.url.scheme}://{request.url.netloc}"
