"""Where people come back to from the authorization server of an MCP server.

    asgi --Callback--> redeemed --> McpServers.finish --> a redirect, with an error in it when there was one

Nobody sees an error page of ours, and nothing in a redirect comes from outside but words of an error.
"""

from __future__ import annotations

import logging
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from ..errors import AgentError, CallbackRefused
from ..mcp.callback import Callback
from ..mcp.words import said
from ..observe.events import McpAuthorized
from ..runtime.actor import Actor

__all__ = ["redeemed"]

log = logging.getLogger("everthink.server")

HOME = "/"


async def redeemed(actor: Actor, callback: Callback) -> Response:
    """Redeem what somebody brought back, and send them on."""
    error: str | None = None
    try:
        await actor.mcp.finish(callback)
    except CallbackRefused as refused:
        # The one that was redeemed a moment ago, loaded again: all is well.
        error = None if refused.is_repeat else refused.what
    except AgentError as failed:
        error = said(failed.what)
    except Exception:
        log.exception("%s: a callback could not be redeemed", actor.id)
        error = "It could not be finished. Please try again."
    actor.emit(McpAuthorized(server_id=callback.server_id, success=error is None, error=error))
    where = await actor.hooks.on_mcp_authorized(actor.mcp.shown(callback.server_id), error)
    if isinstance(where, Response):
        return where
    if isinstance(where, str):
        return RedirectResponse(where, 302)
    return RedirectResponse(HOME if error is None else f"{HOME}?error={quote(error)}", 302)
