"""docs/howto-mcp.md: its app with a server that wants a person, and its tables against what there is."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from everthink import Agent
from everthink.mcp import HttpServer, StdioServer
from everthink.mcp.places import ServerState
from everthink.testing import ManualClock

from ..support.authorization import Locked
from ..support.mcp_stack import Stack, state_of
from .pages import ROOT, program

PAGE = "howto-mcp.md"
TEXT = (ROOT / "docs" / PAGE).read_text("utf-8")


@pytest.mark.anyio
async def test_the_app_of_the_page_is_let_in_by_a_person(tmp_path: Path) -> None:
    agent = program(PAGE, "app.py")["Assistant"]
    async with (
        Locked(ManualClock()) as locked,
        Stack(f"sqlite:///{tmp_path}/app.db", locked.clock, agent=agent) as stack,
    ):
        chat = await stack.connect()

        [answer] = await chat.call("connect", "Issues", locked.url)
        back = await stack.open(await stack.sent_back(answer["result"]))

        await chat.until(lambda: state_of(chat) == "ready")
        [id] = chat.of("mcp_servers")[-1]["mcp"]["servers"]
        assert back.headers["location"] == f"/settings?connected={id}"


def test_every_option_method_and_state_is_on_the_page() -> None:
    options = set(inspect.signature(Agent.add_mcp_server).parameters) - {"self", "name", "url"}
    places = {field.name for kind in (HttpServer, StdioServer) for field in fields(kind)} - {"url", "command"}
    methods = [name for name in dir(Agent) if "mcp" in name and not name.startswith("_")]

    for name in (*options, *places):
        assert f"`{name}`" in TEXT, name
    for name in (*methods, *get_args(ServerState), "include_mcp_tools", "wait_for_mcp_connections"):
        assert f"| `{name}` |" in TEXT, name
