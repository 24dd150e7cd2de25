"""A look at an MCP server from the terminal: its tools, and one call.

    everthink mcp list, call --> the library's client --> any address the person names

The server is a stranger: what it says is written so that a terminal obeys none of it, and whatever goes wrong
on the way is told in sentences.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import urlsplit

from ..errors import AgentError
from ..serving.output import EXIT_PROBLEM, WrittenWrongly, print_json, say, say_error

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["call_tool", "list_tools", "run"]

CONNECTING = 15.0
"""Seconds to find out whether somebody is there."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """Do it. Raises what is told to the person."""
    from ..mcp_server.settings import check_installed

    try:
        check_installed("everthink mcp")
    except AgentError:
        work.close()
        raise
    import logging

    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # what it says of failures is told in our words
    asyncio.run(work)


async def list_tools(url: str, headers: Sequence[str], *, timeout: float, as_json: bool) -> None:
    """Print the tools of a server."""
    async with _connected(url, headers, timeout) as client:
        tools = await _tools(client)
    if as_json:
        print_json([tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools])
        return
    if not tools:
        say("It has no tools.")
    for tool in tools:
        say(tool.name, "bold")
        for line in (tool.description or "").splitlines():
            say(f"  {line}".rstrip())
        for line in _parameters(tool.input_schema):
            say(f"  {line}", "dim")


async def call_tool(
    url: str, tool: str, arguments: str, headers: Sequence[str], *, timeout: float, as_json: bool
) -> None:
    """Call a tool and print what it gives back."""
    given = _object(arguments)
    async with _connected(url, headers, timeout) as client:
        _check_known(tool, [one.name for one in await _tools(client)])
        result = await client.call_tool(tool, given)
    if as_json:
        print_json(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    else:
        for part in result.content:
            (say_error if result.is_error else say)(_shown(part))
    if result.is_error:
        raise SystemExit(EXIT_PROBLEM)


# --- what the person wrote


def _object(text: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise WrittenWrongly(
            f"The arguments are no JSON: {error}.",
            kept="Nothing was called.",
            next_step="""Write an object, in quotes for the shell: '{"message": "Hello"}'""",
        ) from None
    if not isinstance(found, dict):
        raise WrittenWrongly(
            f"The arguments are JSON, but not an object: {text[:60]}",
            kept="Nothing was called.",
            next_step="""Name each of them: '{"message": "Hello"}'""",
        )
    return cast("dict[str, Any]", found)


def _headers(written: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in written:
        name, colon, value = one.partition(":")
        if not colon or not name.strip() or not name.strip().isascii() or any(c in one for c in "\r\n"):
            raise WrittenWrongly(
                "--header is given something that is no header.",
                next_step='Write a name, a colon and a value: --header "NAME: VALUE".',
            )
        found[name.strip()] = value.strip()
    return found


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        fine = False
    if not fine:
        raise WrittenWrongly(
            f"{url!r} is not an address.", next_step="Write http://host:port/mcp, or https://…"
        )


def _check_known(tool: str, names: Sequence[str]) -> None:
    from ..settings import nearest

    if tool in names:
        return
    near = nearest(tool, names)
    hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(names) or 'none'}."
    raise WrittenWrongly(f"The server has no tool {tool!r}.", kept="Nothing was called.", next_step=hint)


# --- the connection


@asynccontextmanager
async def _connected(url: str, headers: Sequence[str], timeout: float) -> AsyncGenerator[Client]:
    """A client of the server. What goes wrong is raised in words, whichever way the library says it."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from mcp import Client

    _check_address(url)
    statuses: list[int] = []

    async def note(response: Any) -> None:
        statuses.append(response.status_code)

    times = httpx2.Timeout(min(CONNECTING, timeout), read=timeout)
    hooks = {"response": [note]}
    try:
        async with (
            httpx2.AsyncClient(headers=_headers(headers), timeout=times, event_hooks=hooks) as http,
            Client(streamable_http_client(url, http_client=http), read_timeout_seconds=timeout) as client,
        ):
            yield client
    except BaseException as error:  # noqa: BLE001 - the library wraps some in groups
        _tell(url, error, statuses)


def _tell(url: str, error: BaseException, statuses: Sequence[int]) -> NoReturn:
    """Raise what happened, in words for the person."""
    import httpx2
    from mcp.shared.exceptions import MCPError

    found = list(_inside(error))
    for one in found:
        if isinstance(one, AgentError | KeyboardInterrupt | SystemExit):
            raise one from None
    status = statuses[-1] if statuses else None
    for one in found:
        if isinstance(one, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
            raise WrittenWrongly(f"{url!r} is not an address: {one}.") from error
        if isinstance(one, httpx2.TimeoutException | TimeoutError):
            next_step = "Try again, or give it more time: --timeout 600"
            raise AgentError(f"{url} did not answer in time.", next_step=next_step) from error
        if isinstance(one, httpx2.TransportError):
            next_step = "Is it running, and is this its address? `everthink serve` says where it listens."
            raise AgentError(f"Nobody answers at {url}: {one}.", next_step=next_step) from error
    said = next((one.message for one in found if isinstance(one, MCPError)), "")
    raise _refusal(url, status, said) from error


def _refusal(url: str, status: int | None, said: str) -> AgentError:
    if status == 401:
        return AgentError(
            f"{url} does not know who you are (401).",
            next_step='Say so with a header: --header "NAME: VALUE". Most ask for an authorization.',
        )
    if status == 403:
        return AgentError(f"{url} does not let you in (403): {said}", next_step="Come as somebody who may.")
    if status is not None and 300 <= status < 400:
        return AgentError(f"{url} leads elsewhere ({status}): {said}")
    if status is not None and (status in (404, 405, 406, 415, 501) or status < 300) and not _is_mcp(said):
        return AgentError(
            f"{url} is no MCP server: {said or 'it answers something else'} ({status}).",
            next_step="Give the address at which it speaks MCP, such as http://host/mcp.",
        )
    words = said or "it did not say why"
    return AgentError(f"{url} refused: {words}" + (f" ({status})" if status and status >= 400 else ""))


def _is_mcp(said: str) -> bool:
    """False for what the library says of an answer that it could not read."""
    unread = ("Not Found", "Session terminated", "Server returned an error", "Unexpected", "Failed to parse")
    return bool(said) and not said.startswith(unread)


def _inside(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group of them, or in what one was raised from."""
    if isinstance(error, BaseExceptionGroup):
        for one in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _inside(one)
    else:
        yield error


async def _tools(client: Client) -> list[Any]:
    """All tools, whichever page they are on."""
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(100):
        listed = await client.list_tools(cursor=cursor)
        found += listed.tools
        cursor = listed.next_cursor
        if not cursor:
            break
    return found


# --- what it said


def _parameters(schema: dict[str, Any]) -> Iterator[str]:
    properties: Any = schema.get("properties")
    if not isinstance(properties, dict):
        return
    required = schema.get("required") or ()
    for name, about in cast("dict[str, Any]", properties).items():
        told = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
        kind = told.get("type", "any")
        must = "" if name in required else ", may be left out"
        words = told.get("description")
        yield f"{name} ({kind}{must})" + (f": {words}" if words else "")


def _shown(part: Any) -> str:
    """A part of a result, for a person."""
    match part.type:
        case "text":
            return part.text
        case "resource_link":
            return f"[{part.uri}]"
        case "resource":
            return str(getattr(part.resource, "text", None) or f"[{part.resource.uri}]")
        case kind:
            return f"[{kind}, {getattr(part, 'mime_type', None) or 'of no type'}]"
