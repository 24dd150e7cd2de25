"""Where people come back to from the authorization server of an MCP server.

    asgi --Callback--> came_back --a state of ours?--> McpServers.finish --> on_mcp_authorized --> a redirect
                           |--no--> the application's checks, as for any request --> strange: a redirect

Whoever knows a state that we have sent somebody away with is let in by it, and by nothing else: a browser
that was sent here brings no token of the application. For any other state no agent is woken and nothing is
changed. Nobody sees an error page of ours, and nothing in a redirect comes from outside but the words of an
error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from starlette.responses import RedirectResponse, Response

from ..address import Address
from ..errors import AgentError, CallbackRefused
from ..mcp.naming import is_callback
from ..mcp.queries import callback_of
from ..oauth.callback import Callback
from ..oauth.visits import is_known
from ..observe.events import McpAuthorized
from ..runtime.actor import Actor
from ..words import said

if TYPE_CHECKING:
    from ..runtime.directory import Directory

__all__ = ["came_back", "strange"]

log = logging.getLogger("everthink.server")

HOME = "/"
PRIVATE = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
"""The address they came with has a code in it."""
TROUBLE = "It could not be finished. Please try again."


async def came_back(
    directory: Directory, agent: Address, callback: Callback, path: str | None
) -> Response | None:
    """Answer somebody who comes back to `path`; `None` stands for the agent's own place for that.

    Returns `None` when nobody has been sent away with that state: then it is a request like any other.
    """
    stored = await callback_of(directory.store, agent.id, callback.server_id)
    if stored is None or not _is_there(path, stored[0]) or stored[1] is None:
        return None
    try:
        is_ours = is_known(directory.network.sealer.open(stored[1]), callback.state)
    except AgentError as error:
        log.warning("a callback of the MCP server %s cannot be checked: %s", callback.server_id, error)
        return None
    if not is_ours:
        return None
    actor = await directory.reach(agent)
    with actor.hold():
        return await _redeemed(actor, callback)


def strange(actor: Actor, callback: Callback, path: str | None) -> Response | None:
    """Send somebody on who may come in, and comes back with a state that is not, or no longer, ours.

    Returns `None` when it is something else: the agent itself knows what it means.
    """
    servers = actor.used_servers()
    registered = None if servers is None else servers.callback_of(callback.server_id)
    if not _is_there(path, registered):
        return None
    return _sent_home(CallbackRefused("nobody waits for it").what)


def _is_there(path: str | None, registered: str | None) -> bool:
    return registered is not None and (path is None or is_callback(path, registered))


async def _redeemed(actor: Actor, callback: Callback) -> Response:
    """Redeem what somebody brought back, and send them on."""
    error: str | None = None
    id = callback.server_id
    try:
        await actor.mcp.finish(callback)
    except CallbackRefused as refused:
        # The one that was redeemed a moment ago, loaded again: all is well.
        is_fine = refused.is_repeat and await actor.mcp.is_let_in(id)
        error = None if is_fine else refused.what
    except AgentError as failed:
        error = said(failed.what)
    except Exception:
        log.exception("%s: a callback could not be redeemed", actor.id)
        error = TROUBLE
    actor.emit(McpAuthorized(server_id=id, success=error is None, error=error))
    if (server := actor.mcp.look_up(id)) is None:
        return _sent_home(error)  # removed meanwhile
    where = await actor.hooks.on_mcp_authorized(server, error)
    if isinstance(where, Response):
        where.headers.update(PRIVATE)
        return where
    if isinstance(where, str) and _is_address(where):
        return RedirectResponse(where, 302, PRIVATE)
    if where is not None:
        wrong = TypeError(f"on_mcp_authorized returned {where!r}: neither an address nor a response")
        actor.hooks.log_error("on_mcp_authorized", wrong)
    return _sent_home(error)


def _sent_home(error: str | None) -> Response:
    return RedirectResponse(HOME if error is None else f"{HOME}?error={quote(error, safe='')}", 302, PRIVATE)


def _is_address(text: str) -> bool:
    """True for a path of this site, or the address of another one."""
    try:
        scheme = urlsplit(text).scheme
    except ValueError:
        return False
    return text.startswith("/") if not scheme else scheme in ("http", "https")
