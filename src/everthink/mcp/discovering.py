"""What a server offers, asked of itself: all pages of all lists that it says it has.

    Link --client--> discover --> Catalogue       wires_of(server) --> how a link connects, discovers, listens
                     listen --its lists have changed--> Link

What the SDK is needed for is imported when a link first connects.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..backoff import backoff
from ..clock import Clock
from ..errors import MissingExtra
from .catalogue import Catalogue, catalogue_of
from .failures import failure_of
from .link import Lost, Wires
from .places import Network

if TYPE_CHECKING:
    from mcp import Client

    from .server import Server

__all__ = ["discover", "listen", "load_sdk", "wires_of"]

log = logging.getLogger("everthink.mcp")

MOST_PAGES = 100
"""A server whose lists never end must not hold us."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
_METHOD_NOT_FOUND = -32601
_one_at_a_time = threading.Lock()


def wires_of(
    server: Server,
    network: Network,
    clock: Clock,
    *,
    written: Sequence[str] = (),
    auth: Callable[[], Any] | None = None,
) -> Wires:
    """How a server is connected to. `written` are addresses that the application itself wrote down."""
    allow = [*network.allow, *(urlsplit(url).netloc.rpartition("@")[2] for url in written)]

    @asynccontextmanager
    async def connect(lost: Lost) -> AsyncGenerator[Client]:
        connector = (await load_sdk()).Connector(
            server.name,
            server.place,
            network.version,
            loopback=network.loopback,
            allow=allow,
            auth=auth or _nobody,
            said=server.said.append,
            options={"elicitation_callback": server.elicited, "message_handler": server.heard},
        )
        async with connector.connect(lost) as client:
            yield client

    return Wires(connect, discover, functools.partial(listen, clock=clock))


async def load_sdk(kept: str = "The server is kept.") -> Any:
    """Import what needs the SDK beside the event loop: it takes a second, in which a loop would serve nobody.

    Whoever is about to import such a module of ours awaits this first. Returns the one that connects.
    """
    if _imported.cache_info().currsize:
        return _imported()
    try:
        return await asyncio.to_thread(_import)
    except (ImportError, MissingExtra) as error:
        raise MissingExtra(
            "MCP servers need the package mcp, which is not installed.",
            kept=kept,
            next_step='Run: pip install "everthink[mcp]"',
        ) from error


def _import() -> Any:
    with _one_at_a_time:
        return _imported()


@functools.cache
def _imported() -> Any:
    for name in (".calls", "..oauth.flow"):
        importlib.import_module(name, __package__)
    return importlib.import_module(".transports", __package__)


def _nobody() -> None:
    return None


async def discover(client: Client) -> Catalogue:
    """Everything that a server offers, as far as it says that it has such a thing."""
    can = client.server_capabilities
    tools = await _all(client.list_tools, "tools") if can.tools is not None else []
    prompts = await _all(client.list_prompts, "prompts") if can.prompts is not None else []
    resources: list[Any] = []
    templates: list[Any] = []
    if can.resources is not None:
        resources = await _all(client.list_resources, "resources")
        templates = await _all(client.list_resource_templates, "resource_templates")
    return catalogue_of(
        tools=tools,
        prompts=prompts,
        resources=resources,
        templates=templates,
        instructions=client.instructions,
        capabilities=can,
    )


async def _all(fetch: Callable[..., Awaitable[Any]], name: str) -> list[Any]:
    from mcp.shared.exceptions import MCPError

    found: list[Any] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        try:
            page = await fetch(cursor=cursor)
        except MCPError as error:
            if error.code == _METHOD_NOT_FOUND:
                return []
            raise
        found += getattr(page, name)
        cursor = page.next_cursor
        if not cursor:
            break
    return found


async def listen(client: Client, changed: Callable[[], None], *, clock: Clock) -> None:
    """Call `changed` when one of its lists changes, as long as the connection stands.

    Servers of the protocol of 2026 tell those who listen; older ones do it by themselves (`Server.heard`).
    """
    from mcp.client.subscriptions import ListenNotSupportedError

    can = client.server_capabilities
    tools, prompts, resources = (
        bool(offer is not None and offer.list_changed) for offer in (can.tools, can.prompts, can.resources)
    )
    failures = 0
    while tools or prompts or resources:
        listening = client.listen(
            tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
        )
        try:
            async with listening as changes:
                if failures:
                    changed()  # what happened meanwhile is not told again
                failures = 0
                async for _ in changes:
                    changed()
        except ListenNotSupportedError:
            return
        except Exception as error:  # noqa: BLE001 - the connection itself may be fine
            log.debug("an MCP server cannot be listened to: %s", failure_of(error).words)
            if getattr(error, "code", None) == _METHOD_NOT_FOUND:
                return
        failures += 1
        await clock.sleep(backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE))
