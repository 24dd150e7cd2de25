"""The MCP client as it is published for JavaScript, in Node, against an app that is offered to it.

@modelcontextprotocol/sdk <-- journeys.mjs --a JSON line each--> one test each
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import free_port, judge, packages_of, serving, walk, workbench

HERE = Path(__file__).parent

JOURNEYS = [
    "tools_are_listed",
    "an_answer_and_its_words",
    "an_approval_that_waits",
    "an_agent_that_fails",
    "a_method",
    "a_request_that_is_cancelled",
    "two_at_once",
    "nobody",
    "a_conversation_of_others",
    "a_tool_that_there_is_not",
]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """How every journey went."""
    folder = tmp_path_factory.mktemp("mcp")
    bench = workbench(folder / "bench", packages_of(HERE), HERE / "package.json", HERE / "journeys.mjs")
    port = free_port()
    command = [sys.executable, "-m", "tests.journeys.mcp.offered", str(port), f"sqlite:///{folder}/mcp.db"]
    with serving(command, port, folder / "mcp.log"):
        return walk(bench, {"url": f"http://127.0.0.1:{port}/mcp"})


@pytest.mark.parametrize("name", JOURNEYS)
def test_journey(walked: dict[str, dict[str, Any]], name: str) -> None:
    judge(walked[name])


def test_no_journey_is_left_out(walked: dict[str, dict[str, Any]]) -> None:
    assert sorted(walked) == sorted(JOURNEYS)
