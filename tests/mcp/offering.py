"""An MCP server that offers something of every kind: `python -m tests.mcp.offering stdio FOLDER`.

What it does leaves a line in FOLDER/deeds. While there is a file FOLDER/hold, its lists are never given.
Over HTTP it is forked from a process that has loaded everything: see `serving.py`.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.types import Audio, Image
from mcp_types import (
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Weather(BaseModel):
    city: str
    degrees: int


class Offering(MCPServer):
    """Lists that can be held back."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__("offering", log_level="CRITICAL", **options)
        self.folder = folder

    def did(self, deed: str) -> None:
        with (self.folder / "deeds").open("a") as file:
            file.write(f"{deed}\n")

    async def list_tools(self) -> Any:
        if (self.folder / "hold").exists():
            self.did("listing")
            await anyio.sleep_forever()
        return await super().list_tools()


def offering(folder: Path) -> Offering:
    """A new one."""
    server = Offering(folder, instructions="Be kind.")

    @server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
    def echo(text: str) -> str:
        """Say it again."""
        server.did(f"echo {text}")
        return f"You said: {text}"

    @server.tool()
    def weather(city: str) -> Weather:
        """The weather in a city."""
        return Weather(city=city, degrees=21)

    @server.tool(structured_output=False)
    def picture() -> Any:
        """A picture."""
        return Image(data=PIXEL, format="png")

    @server.tool(structured_output=False)
    def everything() -> Any:
        """Something of every kind."""
        note = TextResourceContents(uri="note://today", mime_type="text/plain", text="Buy milk.")
        return [
            TextContent(type="text", text="words"),
            Image(data=PIXEL, format="png"),
            Audio(data=b"RIFF", format="wav"),
            ResourceLink(type="resource_link", uri="note://today", name="today", mime_type="text/plain"),
            EmbeddedResource(type="resource", resource=note),
        ]

    @server.tool(structured_output=False)
    async def count(to: int, ctx: Context) -> str:
        """Count, and say how far."""
        for number in range(1, to + 1):
            await ctx.report_progress(number, to, f"at {number}")
        return f"counted to {to}"

    @server.tool(structured_output=False)
    async def wait(text: str, ctx: Context) -> str:
        """Never end."""
        await ctx.report_progress(1, 2, "begun")
        server.did(f"began {text}")
        try:
            await anyio.sleep_forever()
        except BaseException:
            server.did(f"cancelled {text}")
            raise
        return ""

    @server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
    async def look(text: str) -> str:
        """Look something up, which never ends the first time."""
        is_second = (folder / "looked").exists()
        (folder / "looked").touch()
        server.did(f"looks {text}")
        if not is_second:
            await anyio.sleep_forever()
        return f"Found: {text}"

    @server.tool(structured_output=False)
    def fail(words: str) -> str:
        """Fail."""
        raise ToolError(words)

    @server.tool(structured_output=False)
    def big(megabytes: int) -> str:
        """A large answer."""
        return "x" * (megabytes * 1_000_000)

    @server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
    def environment() -> str:
        """The names of its variables."""
        return json.dumps(dict(os.environ))

    @server.tool(structured_output=False)
    def mutter(text: str) -> str:
        """Say something on standard error."""
        sys.stderr.write(text)
        sys.stderr.flush()
        return "muttered"

    @server.tool(structured_output=False)
    async def describe(words: str, ctx: Context) -> str:
        """Give the tool `changing` another description."""
        change(server, words)
        await ctx.notify_tools_changed()
        if not is_modern(ctx):
            await ctx.session.send_tool_list_changed()
        return "done"

    @server.prompt()
    def greet(name: str) -> str:
        """A greeting."""
        return f"Greet {name}."

    @server.resource("note://today", name="today")
    def today() -> str:
        """What is to be done today."""
        return "Buy milk."

    @server.resource("note://{day}/all")
    def notes(day: str) -> str:
        """What is to be done on a day."""
        return f"Nothing on {day}."

    change(server, "As it was.")
    return server


def is_modern(ctx: Context) -> bool:
    return (ctx.protocol_version or "") >= "2026"


def change(server: MCPServer, words: str) -> None:
    """Let `changing` say something else of itself."""

    async def changing(text: str = "") -> str:
        return f"{words} {text}".strip()

    if "changing" in server._tool_manager._tools:
        server.remove_tool("changing")
    server.add_tool(changing, name="changing", description=words, structured_output=False)


# --- over HTTP


def application(kind: str, folder: Path) -> Any:
    """The server behind an address: `/mcp`, or `/sse` for the kind `sse`."""
    server = offering(folder)
    if kind == "sse":
        return server.sse_app()
    if kind == "stateless":
        return server.streamable_http_app(stateless_http=True, json_response=True)
    app = server.streamable_http_app()
    return _of_2025(app) if kind == "sessions" else app


def _of_2025(app: Any) -> Any:
    """The same for a server that has not heard of the protocol of 2026: it has sessions."""

    async def older(scope: Any, receive: Any, send: Any) -> None:
        version = dict(scope.get("headers", ())).get(b"mcp-protocol-version", b"")
        if not version.startswith(b"2026"):
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return older


def serve(kind: str, port: int, folder: Path) -> None:
    """Listen, say so on standard output, and serve until killed."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    print(json.dumps({"pid": os.getpid(), "port": listener.getsockname()[1]}), flush=True)
    config = uvicorn.Config(application(kind, folder), log_level="critical")
    uvicorn.Server(config).run(sockets=[listener])


def fork_for_each_line() -> None:
    """Serve in a process of its own for each line of standard input: kind, port, folder.

    They end with this one: nobody is killed by a number that may belong to another process by then.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    leash, held = os.pipe()
    for line in sys.stdin:
        kind, port, folder = json.loads(line)
        if not os.fork():
            os.close(held)
            threading.Thread(target=end_with, args=(leash,), daemon=True).start()
            serve(kind, port, Path(folder))
            os._exit(0)


def end_with(leash: int) -> None:
    """End when nobody holds the other end any more."""
    os.read(leash, 1)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        fork_for_each_line()
    else:
        offering(Path(sys.argv[2])).run("stdio")
