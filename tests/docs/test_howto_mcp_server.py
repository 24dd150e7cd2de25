"""docs/howto-mcp-server.md: its app over HTTP, its configuration over standard input and output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everthink.mcp_server.catalogue import ANSWER_SCHEMA
from everthink.server import McpEndpoint
from mcp import Client, StdioServerParameters

from ..support.commands import Command
from ..support.mcp import texts
from .pages import ROOT, files, written

PAGE = "howto-mcp-server.md"


def test_the_commands_of_the_page_list_and_call_the_tool(tmp_path: Path) -> None:
    written(PAGE, tmp_path)
    with Command(tmp_path, "serve", "app:app", "--port", "0") as server:
        address = server.until(r"(http://\S+/mcp) for MCP clients")[1]
        everthink = [sys.executable, "-m", "everthink.cli", "mcp"]
        listed = subprocess.run([*everthink, "list", address], capture_output=True, text=True, check=True)
        call = [*everthink, "call", address, "ask_support", '{"message": "Hello"}']
        called = subprocess.run(call, capture_output=True, text=True, check=True)

    assert listed.stdout.startswith("ask_support\n  Answers questions about the orders of our shop.\n")
    assert called.stdout.startswith("Hello!")


@pytest.mark.anyio
async def test_the_configuration_of_the_page_starts_the_agent(tmp_path: Path) -> None:
    shop = written(PAGE, tmp_path)
    configured = json.loads(files(PAGE)["mcp.json"])["mcpServers"]["shop"]
    assert configured["command"] == "everthink"
    args = [str(shop) if arg == "/home/ada/shop" else arg for arg in configured["args"]]
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "everthink.cli", *args], cwd="/", env={**os.environ}
    )

    async with Client(started) as client:
        answer = await client.call_tool("ask_support", {"message": "My name is Ada"})

    assert "Ada" in texts(answer)[0]
    assert (shop / ".everthink" / "everthink.db").exists()


def test_every_setting_and_every_status_is_on_the_page() -> None:
    page = (ROOT / "docs" / PAGE).read_text("utf-8")

    for name in [*McpEndpoint.__dataclass_fields__, *ANSWER_SCHEMA["properties"]["status"]["enum"]]:
        assert f"| `{name}` |" in page, name
