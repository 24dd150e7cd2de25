"""`AgentClient` as it is published, in Node, against our server.

window.mjs: AgentClient and the chat's frames <-- journeys.mjs --a JSON line each--> one test each
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import free_port, judge, packages_of, serving, walk, workbench

HERE = Path(__file__).parent
HOOKS = HERE.parent / "hooks"

JOURNEYS = [
    "connect_and_identity",
    "send_and_stream",
    "reload_in_the_middle",
    "dropped_socket",
    "dropped_socket_until_the_end",
    "slow_to_accept",
    "two_clients",
    "cancel",
    "regenerate",
    "server_tool",
    "client_tool",
    "approval_accepted",
    "approval_denied",
    "error_then_reconnect",
    "clear",
    "server_started_turn",
    "submitted_turn",
    "state_from_the_server",
    "state_from_the_client",
    "state_refused",
    "callable",
    "callable_timeout",
    "callable_and_a_lost_line",
    "streaming_callable",
]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """How every journey went."""
    folder = tmp_path_factory.mktemp("node")
    files = [HERE / "package.json", HERE / "journeys.mjs", HERE / "window.mjs", HOOKS / "backstage.mjs"]
    bench = workbench(folder / "bench", packages_of(HERE), *files)
    port = free_port()
    store = f"sqlite:///{folder}/node.db"
    command = [sys.executable, "-m", "tests.journeys.hooks.stage", str(port), store]
    with serving(command, port, folder / "node.log"):
        return walk(bench, {"host": f"127.0.0.1:{port}"})


@pytest.mark.parametrize("name", JOURNEYS)
def test_journey(walked: dict[str, dict[str, Any]], name: str) -> None:
    judge(walked[name])


def test_no_journey_is_left_out(walked: dict[str, dict[str, Any]]) -> None:
    assert sorted(walked) == sorted(JOURNEYS)
